"""setQuerySettings, removeQuerySettings: settings for all queries of one shape.

    {setQuerySettings: {find: "c", filter: {a: 1}, $db: "d"}, settings: {indexHints: […], reject: true, …}}
    {setQuerySettings: "<queryShapeHash>", settings: …}

Source: MongoDB's command reference, "setQuerySettings" and "removeQuerySettings".
"""

from functools import partial
from typing import Annotated, Any, Final, NamedTuple

from mongottl.catalog.namespace import SYSTEM_DATABASES, check_database_name
from mongottl.commands.access import on_cluster
from mongottl.commands.crud.find_count_distinct import is_point_lookup
from mongottl.commands.crud.query_shape import QUERY_SHAPES, described_shape
from mongottl.commands.crud.read_requests import AggregateRequest, DistinctRequest, FindRequest, collection_of
from mongottl.commands.query_context import context_of, natural_order, timeless_context_of
from mongottl.commands.registry import COMMANDS, Reply, command
from mongottl.commands.request import DOCUMENT_FIELD, ONE, Field, GenericArguments
from mongottl.document.bson_field import checked_word, missing_field, unknown_field, wrong_type
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import fields, first_field_name, get_value, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.shape import query_shape_hash
from mongottl.exec.state.query_settings import IndexHints, QuerySettings
from mongottl.query.match import parse_match, simple_id_filter
from mongottl.query.pipeline import parse_pipeline
from mongottl.query.projection import parse_projection
from mongottl.query.sort import parse_sort

UNKNOWN_QUERY: Final = 7746402
ONLY_DEFAULTS: Final = 7746604
BY_ID_ALONE: Final = 7746606
INTERNAL_DATABASE: Final = 8584900
NO_DATABASE: Final = 8727500
NO_COLLECTION: Final = 8727501
EMPTY_SETTINGS: Final = 8727502
_FRAMEWORKS: Final = ("classic", "sbe")
_HASH_DIGITS: Final = 64
_DIGITS_AT_ONCE: Final = 4096
# What it takes to read hints for one collection, in the units of `give_way`.
_HINT_WEIGHT: Final = 8


class SetQuerySettingsRequest(NamedTuple):
    query: Annotated[Value, Field("setQuerySettings", ONE)]
    settings: Annotated[bytes, Field("settings", DOCUMENT_FIELD)]


class RemoveQuerySettingsRequest(NamedTuple):
    query: Annotated[Value, Field("removeQuerySettings", ONE)]


@command(
    "setQuerySettings",
    SetQuerySettingsRequest,
    access=on_cluster("querySettings"),
    help="Sets the query settings of a query shape.",
    admin_only=True,
)
def set_query_settings(op: OperationContext, request: SetQuerySettingsRequest) -> Reply:
    """Adds the given settings to the existing ones of the shape; the reply has the result.

    7746402 for a query that is no find, distinct or aggregate, 7746606 for one by `_id` only, 8584900 on an internal
    database, 8727502 for empty settings, 7746604 if all settings would be defaults.
    """
    parts, shape_hash, query = op.compute(partial(_target, op, request.query, "setQuerySettings"))
    if is_empty(request.settings):
        raise CommandError(EMPTY_SETTINGS, "settings field in setQuerySettings command cannot be empty")
    shape = None if query is None else op.compute(partial(_described, parts, query))
    given = QuerySettings(shape_hash, query)
    taken = op.compute(partial(_take, given, request.settings))
    known = op.service.settings.query_settings.get(shape_hash)
    settings = QuerySettings(shape_hash, known.query if query is None and known is not None else query)
    settings.shape = shape
    if known is not None:
        settings.shape = settings.shape or known.shape
        settings.hints = known.hints
        settings.framework = known.framework
        settings.reject = known.reject
        settings.comment = known.comment
    if "indexHints" in taken:
        settings.hints = given.hints
    if "queryFramework" in taken:
        settings.framework = given.framework
    if "reject" in taken:
        settings.reject = given.reject
    if "comment" in taken:
        settings.comment = given.comment
    if settings.is_default():
        raise CommandError(ONLY_DEFAULTS, "the resulting settings cannot be empty or contain only default values")
    op.service.settings.query_settings[shape_hash] = settings
    op.service.settings.save()
    return op.compute(settings.entry)


@command(
    "removeQuerySettings",
    RemoveQuerySettingsRequest,
    access=on_cluster("querySettings"),
    help="Removes the query settings of a query shape.",
    admin_only=True,
)
def remove_query_settings(op: OperationContext, request: RemoveQuerySettingsRequest) -> Reply:
    """Removes the settings of a shape; succeeds if there are none."""
    _, shape_hash, _ = op.compute(partial(_target, op, request.query, "removeQuerySettings"))
    op.service.settings.query_settings.pop(shape_hash, None)
    op.service.settings.save()
    return {}


def _described(parts: list[str], query: bytes) -> bytes:
    return described_shape(parts[0].partition(".")[0], first_field_name(query), fields(query))


def _target(op: OperationContext, given: Value, name: str) -> tuple[list[str], str, bytes | None]:
    """The parts of the shape, its hash, and the raw query; if only a hash was given, no parts and None."""
    if isinstance(given, str):
        if len(given) % 2 or not _is_hexadecimal(given):
            raise CommandError(ErrorCode.BadValue, "Hash input is not a hex string")
        if len(given) != _HASH_DIGITS:
            raise CommandError(ErrorCode.InvalidLength, f"Unsupported hash length: {len(given) // 2}")
        return [], given.upper(), None
    if not isinstance(given, bytes):
        raise wrong_type(f"{name}.{name}", given, "[string, object]")
    query = first_field_name(given)
    if query not in QUERY_SHAPES:
        raise CommandError(UNKNOWN_QUERY, f"{name} does not support the query: '{query}'")
    spec = COMMANDS[query]
    database = get_value(given, "$db")
    if database is MISSING or database is None:
        raise missing_field(f"{name}.$db")
    if database == "":
        raise CommandError(ErrorCode.InvalidNamespace, "Invalid namespace: the database of a query is empty")
    generic = GenericArguments()
    request: Any = spec.request._make(spec.parser.parse(given, [], generic))
    check_database_name(generic.database)
    if generic.database in SYSTEM_DATABASES:
        raise CommandError(
            INTERNAL_DATABASE, f"Can't set query settings for queries on the internal database '{generic.database}'"
        )
    if isinstance(request, FindRequest) and is_point_lookup(request):
        type_code, _ = simple_id_filter(request.filter)
        if type_code != 0:
            raise CommandError(BY_ID_ALONE, "Can't set query settings for queries by '_id' alone")
    _check_query(op, generic.database, request)
    parts = QUERY_SHAPES[query](generic.database, request)
    return parts, query_shape_hash(parts), given


def _is_hexadecimal(text: str) -> bool:
    for start in range(0, len(text), _DIGITS_AT_ONCE):
        give_way(_DIGITS_AT_ONCE // 16)
        if text[start : start + _DIGITS_AT_ONCE].strip("0123456789ABCDEFabcdef"):
            return False
    return True


def _check_query(op: OperationContext, database: str, request: Any) -> None:
    """Checks the representative query; the errors of `set_query_settings`."""
    home = op.database
    op.database = database
    try:
        if isinstance(request, FindRequest):
            context = context_of(op, request.collection, request.let, request.collation)
            parse_match(request.filter, context, near=True)
            if not is_empty(request.sort) and not natural_order(request.sort):
                parse_sort(request.sort)
            if not is_empty(request.projection):
                parse_projection(request.projection, context, for_find=True, filter=request.filter)
        elif isinstance(request, DistinctRequest):
            context = timeless_context_of(op, request.collection, request.collation)
            parse_match(request.query, context, near=True)
        elif isinstance(request, AggregateRequest):
            name = collection_of(op, request.collection)
            parse_pipeline(request.pipeline, context_of(op, name, request.let, request.collation))
    finally:
        op.database = home


def _take(settings: QuerySettings, given: bytes) -> set[str]:
    """Applies the given settings; the names of those that are given. 40415 for an unknown one, TypeMismatch (14) for a
    wrong type."""
    taken: set[str] = set()
    for name, value in fields(given):
        if value is None and name in ("indexHints", "queryFramework"):
            continue
        if name == "indexHints":
            settings.hints = _hints(value)
        elif name == "queryFramework":
            settings.framework = checked_word("settings.queryFramework", value, _FRAMEWORKS)
        elif name == "reject":
            if not isinstance(value, bool):
                raise wrong_type("settings.reject", value, "bool")
            settings.reject = value
        elif name == "comment":
            settings.comment = (value,)
        else:
            raise unknown_field(f"settings.{name}")
        taken.add(name)
    return taken


def _hints(value: Value) -> list[IndexHints]:
    """`indexHints`: a document or an array of them. Those with empty `allowedIndexes` are ignored."""
    if not isinstance(value, (bytes, list)):
        raise wrong_type("settings.indexHints", value, "[array, object]")
    given = value if isinstance(value, list) else [value]
    found: list[IndexHints] = list_for(len(given))
    for hint in given:
        if not isinstance(hint, bytes):
            raise wrong_type("settings.indexHints", hint, "object")
        hints = _hint(hint)
        if hints.allowed:
            found.append(hints)
    return found


def _hint(hint: bytes) -> IndexHints:
    database = collection = ""
    allowed: list[Value] | None = None
    named = False
    give_way(_HINT_WEIGHT)
    for name, value in fields(hint):
        if value is None and name in ("ns", "allowedIndexes"):
            continue
        if name == "ns":
            if not isinstance(value, bytes):
                raise wrong_type("indexHints.ns", value, "object")
            named = True
            for part, text in fields(value):
                if part not in ("db", "coll"):
                    raise unknown_field(f"indexHints.ns.{part}")
                if text is None:
                    continue
                if not isinstance(text, str):
                    raise wrong_type(f"indexHints.ns.{part}", text, "string")
                if part == "db":
                    database = text
                else:
                    collection = text
        elif name == "allowedIndexes":
            if not isinstance(value, list):
                raise wrong_type("indexHints.allowedIndexes", value, "array")
            for index in value:
                give_way()
                if not isinstance(index, (str, bytes)):
                    raise CommandError(ErrorCode.FailedToParse, "Hint must be a string or an object")
            allowed = value
        else:
            raise unknown_field(f"indexHints.{name}")
    if not named:
        raise missing_field("indexHints.ns")
    if allowed is None:
        raise missing_field("indexHints.allowedIndexes")
    if not database:
        raise CommandError(NO_DATABASE, "'db' is a required field of the 'ns' of index hints")
    if not collection:
        raise CommandError(NO_COLLECTION, "'coll' is a required field of the 'ns' of index hints")
    return IndexHints(database, collection, allowed)
