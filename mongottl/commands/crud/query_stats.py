"""Recording queries for `$queryStats`: the keys of find, aggregate, distinct and count.

    {queryShape: {cmdNs: {db, coll}, command: "find", filter: {a: {$eq: "?number"}}}, client: {…},
     collectionType: "collection", batchSize: "?number"}

Source: MongoDB's manual, "$queryStats (aggregation)".
"""

from collections.abc import Callable
from typing import Any, Final

from mongottl.catalog.collection import Collection
from mongottl.commands.crud.query_shape import QUERY_SHAPES, count_shape, described_shape
from mongottl.commands.registry import CommandSpec
from mongottl.commands.request import GenericArguments
from mongottl.document.build import encode_fields
from mongottl.document.types import Value
from mongottl.document.walk import fields, first_field_name, get_value, is_empty
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.profile import MAX_NOTED_PLANS
from mongottl.exec.plan.described_shape import Shaper
from mongottl.exec.plan.shape import query_shape_hash
from mongottl.exec.results.cursors import cursor_of
from mongottl.exec.results.plan_summary import examined_by, has_sort_stage
from mongottl.exec.state.query_stats import RunningQuery
from mongottl.query.pipeline import traits_of

_SHAPES: Final[dict[str, Callable[[str, Any], list[str]]]] = {**QUERY_SHAPES, "count": count_shape}
# Longer commands are not recorded: their shapes take time and memory.
_MAX_COMMAND_BYTES: Final = 1 << 20
# Of the command, in the rest of the key: values, of which the type alone is kept, and those that are kept.
_TYPES: Final = ("batchSize", "maxTimeMS", "comment", "bypassDocumentValidation")
_KEPT: Final = (
    "noCursorTimeout",
    "allowPartialResults",
    "readConcern",
    "$readPreference",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
)


def note_query(spec: CommandSpec, op: OperationContext, reply: bytes, micros: int) -> None:
    """Adds a command that has succeeded to its query, and records the query if it has ended.

    Of a change stream each command is an execution, since the stream has no end.
    """
    query = op.profile.running_query if spec.name == "getMore" else _begin(spec, op)
    if query is None:
        return
    cursor = cursor_of(reply)
    # Without a cursor: the document with the values of a distinct, or with the number of a count.
    returned = 1 if cursor is None or cursor.returned is None else cursor.returned
    query.add(micros, returned, _examined(op), op.service.clock.now_ms())
    open_cursor = op.service.cursors.find(cursor.identifier) if cursor is not None and cursor.identifier else None
    if open_cursor is None or op.reading.follows_changes:
        query.end()
    if open_cursor is not None:
        open_cursor.running_query = query


def _begin(spec: CommandSpec, op: OperationContext) -> RunningQuery | None:
    store = op.service.profiler.query_stats
    body = op.command.body
    if spec.name not in _SHAPES or get_value(body, "explain") is True:
        return None
    if not store.takes(op.service.clock.monotonic_s(), len(body) > _MAX_COMMAND_BYTES):
        return None
    given = fields(body)
    key = encode_fields([("queryShape", described_shape(op.database, spec.name, given)), *_rest_of_key(op, given)])
    shape_hash = store.shape_hash_of(key)
    if not shape_hash:
        request: Any = spec.request._make(spec.parser.parse(body, op.command.sequences, GenericArguments()))
        shape_hash = query_shape_hash(_SHAPES[spec.name](op.database, request))
    return RunningQuery(
        store, key, shape_hash, has_sort_stage(op, op.profile.plans) or _sorts(get_value(body, "pipeline"))
    )


def _sorts(pipeline: Value) -> bool:
    """Whether a pipeline has a `$sort` that no plan can take over, after a stage that changes documents."""
    changed = False
    for stage in pipeline if isinstance(pipeline, list) else []:
        name = first_field_name(stage) if isinstance(stage, bytes) else ""
        if name == "$sort" and changed:
            return True
        changed = changed or not traits_of(name).selects
    return False


def _rest_of_key(op: OperationContext, given: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
    rest: list[tuple[str, Value]] = []
    if op.client.metadata is not None:
        rest.append(("client", op.client.metadata))
    rest.append(("collectionType", _collection_type(op)))
    shaper = Shaper()
    for name, value in given:
        if name in _TYPES:
            rest.append((name, shaper.literal(value)))
        elif name in _KEPT:
            rest.append((name, value))
        elif name == "cursor" and isinstance(value, bytes) and not is_empty(value):
            rest.append((name, encode_fields([(option, shaper.literal(item)) for option, item in fields(value)])))
    return rest


def _collection_type(op: OperationContext) -> str:
    if op.reading.follows_changes:
        return "changeStream"
    name = get_value(op.command.body, first_field_name(op.command.body))
    if not isinstance(name, str):
        return "virtual"
    found = op.catalog.find(op.database, name)
    if found is None:
        return "nonExistent"
    if not isinstance(found, Collection):
        return "view"
    return "collection" if found.time_series is None else "timeseries"


def _examined(op: OperationContext) -> tuple[int, int]:
    profile = op.profile
    before = profile.examined_before
    if before is None or len(profile.plans) > MAX_NOTED_PLANS:
        return 0, 0
    keys, documents = examined_by(op, profile.plans)
    return keys - before[0] + profile.found_by_id, documents - before[1] + profile.found_by_id
