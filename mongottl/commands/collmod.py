"""collMod: changing an index's TTL, and hiding it from the planner.

Source: MongoDB's collMod reference.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.catalog.index import TS_FIELD
from mongottl.catalog.index_spec import checked_date_ttl
from mongottl.catalog.namespace import check_collection_name, check_database_name
from mongottl.catalog.view import View
from mongottl.commands.collection_options import check_view_source
from mongottl.commands.collections import check_no_index_build
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, COLLECTION, DOCUMENT_FIELD, PIPELINE, TEXT, UNSUPPORTED, Field
from mongottl.document.render import render_document
from mongottl.document.types import MISSING, Int64, Value, is_number, type_code_of, type_name
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.expiry import rearm_collection
from mongottl.exec.views import define_view
from mongottl.query.match.numbers import is_true
from mongottl.ttl.policy import parse_default_ttl

_TRUTH: Final = "[bool, long, int, decimal, double]"


class CollModRequest(NamedTuple):
    collection: Annotated[str, Field("collMod", COLLECTION)]
    index_change: Annotated[bytes | None, Field("index", DOCUMENT_FIELD)] = None
    validator: Annotated[Value, Field("validator", UNSUPPORTED)] = None
    validation_level: Annotated[Value, Field("validationLevel", UNSUPPORTED)] = None
    validation_action: Annotated[Value, Field("validationAction", UNSUPPORTED)] = None
    view_on: Annotated[str | None, Field("viewOn", TEXT)] = None
    pipeline: Annotated[list[Value] | None, Field("pipeline", PIPELINE)] = None
    expire_after_seconds: Annotated[Value, Field("expireAfterSeconds", UNSUPPORTED)] = None
    time_series: Annotated[Value, Field("timeseries", UNSUPPORTED)] = None
    pre_and_post_images: Annotated[Value, Field("changeStreamPreAndPostImages", UNSUPPORTED)] = None
    capped_size: Annotated[Value, Field("cappedSize", ANY)] = None
    capped_max: Annotated[Value, Field("cappedMax", ANY)] = None
    dry_run: Annotated[Value, Field("dryRun", ANY)] = None


class IndexChange:
    """The fields of collMod's `index`; MISSING or None where they are not given."""

    def __init__(self, change: bytes) -> None:
        self.name: str | None = None
        self.key: bytes | None = None
        self.expire_after_seconds: Value = MISSING
        self.hidden: bool | None = None
        self.unique: bool | None = None
        # False where given: every index is in that state, since the option is not supported.
        self.prepare_unique: bool | None = None
        for option, value in fields(change):
            if value is None and option in ("name", "keyPattern", "hidden", "unique", "prepareUnique"):
                continue
            if option == "name":
                if not isinstance(value, str):
                    raise _wrong_type(option, value, "string")
                self.name = value
            elif option == "keyPattern":
                if not isinstance(value, bytes):
                    raise _wrong_type(option, value, "object")
                self.key = value
            elif option == "expireAfterSeconds":
                if value is not None:
                    self.expire_after_seconds = value
            elif option in ("hidden", "unique", "prepareUnique"):
                if not isinstance(value, bool) and not is_number(value):
                    raise _wrong_type(option, value, _TRUTH)
                if option == "hidden":
                    self.hidden = is_true(value)
                elif option == "unique":
                    self.unique = is_true(value)
                elif is_true(value):
                    raise CommandError(
                        ErrorCode.CommandNotSupported, "The option 'collMod.index.prepareUnique' is not supported yet"
                    )
                else:
                    self.prepare_unique = False
            else:
                raise CommandError(40415, f"BSON field 'collMod.index.{option}' is an unknown field.")


def _wrong_type(option: str, value: Value, expected: str) -> CommandError:
    form = "types" if expected.startswith("[") else "type"
    return CommandError(
        ErrorCode.TypeMismatch,
        f"BSON field 'collMod.index.{option}' is the wrong type '{type_name(type_code_of(value))}',"
        f" expected {form} '{expected}'",
    )


@command("collMod", CollModRequest, help="Changes an index's TTL, or hides it.", writes=True)
def coll_mod(op: OperationContext, request: CollModRequest) -> Reply | Steps[Reply]:
    """`{index: {name | keyPattern, expireAfterSeconds, hidden}}`; the reply has the old and new values of what changed.

    On an index on `_ts` with `expireAfterSeconds` this changes the collection's default TTL; a plain single-field index
    becomes a TTL index. NamespaceNotFound (26), IndexNotFound (27), AmbiguousIndexKeyPattern (181), InvalidOptions (72)
    for nonsense, BadValue (2) for hiding `_id`.
    """
    check_database_name(op.database)
    check_collection_name(op.database, request.collection)
    for option, value in (("cappedSize", request.capped_size), ("cappedMax", request.capped_max)):
        if value is not None:
            if not is_number(value):
                raise CommandError(
                    ErrorCode.TypeMismatch,
                    f"BSON field 'collMod.{option}' is the wrong type '{type_name(type_code_of(value))}',"
                    " expected types '[long, int, decimal, double]'",
                )
            raise CommandError(ErrorCode.InvalidOptions, "Collection must be capped.")
    if request.dry_run is not None:
        if not isinstance(request.dry_run, bool) and not is_number(request.dry_run):
            raise CommandError(
                ErrorCode.TypeMismatch,
                f"BSON field 'collMod.dryRun' is the wrong type '{type_name(type_code_of(request.dry_run))}',"
                f" expected types '{_TRUTH}'",
            )
        if is_true(request.dry_run):
            raise CommandError(ErrorCode.InvalidOptions, "The option 'dryRun' is only for converting to a unique index")
    change = None if request.index_change is None else IndexChange(request.index_change)
    collection = op.catalog.find(op.database, request.collection)
    if collection is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"ns does not exist: {op.database}.{request.collection}")
    if isinstance(collection, View):
        if change is not None:
            raise CommandError(ErrorCode.InvalidOptions, "option not supported on a view: index")
        return change_view(op, collection, request.view_on, request.pipeline)
    if request.view_on is not None or request.pipeline is not None:
        raise CommandError(ErrorCode.InvalidOptions, "'viewOn' and 'pipeline' are only supported on views")
    check_no_index_build(collection)
    return _change(op, collection, change)


def change_view(op: OperationContext, view: View, view_on: str | None, pipeline: list[Value] | None) -> Reply:
    """Gives a view another definition; what is None stays. Errors are those of `exec.views.check_view`."""
    if view_on is not None:
        check_view_source(view_on)
    changed = View(
        view.database,
        view.name,
        view.view_on if view_on is None else view_on,
        view.pipeline if pipeline is None else pipeline,
        view.collation,
    )
    if not changed.is_same(view):
        define_view(op, changed)
    return {}


def _change(op: OperationContext, collection: Collection, change: IndexChange | None) -> Steps[Reply]:
    reply: dict[str, Value] = {}
    if change is None:
        return reply
    index = _find_index(collection, change)
    old = index.descriptor
    new = old
    if change.expire_after_seconds is not MISSING:
        seconds = _checked_ttl(collection, index, change.expire_after_seconds)
        if old.is_ttl_setting:
            reply["expireAfterSeconds_old"] = Int64(old.default_ttl_s)
        elif old.expire_after_s is not None:
            reply["expireAfterSeconds_old"] = Int64(old.expire_after_s)
        reply["expireAfterSeconds_new"] = Int64(seconds)
        new = new.with_option("expireAfterSeconds", seconds)
    if change.unique is not None:
        if not change.unique:
            raise CommandError(ErrorCode.BadValue, "collMod does not support converting an index to non-unique")
        if not old.unique and not old.is_id:
            raise CommandError(
                ErrorCode.InvalidOptions, "Cannot make index unique: it must be prepared with prepareUnique first"
            )
    if change.hidden is not None:
        if old.is_id:
            raise CommandError(ErrorCode.BadValue, "can't hide _id index")
        if change.hidden != old.hidden:
            reply["hidden_old"] = old.hidden
            reply["hidden_new"] = change.hidden
            new = new.with_option("hidden", True if change.hidden else MISSING)
    if new is not old:
        op.catalog.replace_descriptor(collection, index, new)
        if new.hidden != old.hidden:
            index.accesses = 0
            index.since_ms = op.now_ms
        op.service.note_write()
        if change.expire_after_seconds is not MISSING:
            yield from rearm_collection(op.service, collection.number)
    return reply


def _find_index(collection: Collection, change: IndexChange) -> IndexEntry:
    if change.name is not None and change.key is not None:
        raise CommandError(ErrorCode.InvalidOptions, "Cannot specify both key pattern and name.")
    if change.name is None and change.key is None:
        raise CommandError(ErrorCode.InvalidOptions, "Must specify either index name or key pattern.")
    if (
        change.expire_after_seconds is MISSING
        and change.hidden is None
        and change.unique is None
        and change.prepare_unique is None
    ):
        raise CommandError(ErrorCode.InvalidOptions, "no expireAfterSeconds, hidden, unique, or prepareUnique field")
    if change.name is not None:
        index = collection.index_named(change.name)
        if index is None:
            raise CommandError(
                ErrorCode.IndexNotFound, f"cannot find index {change.name} for ns {collection.namespace}"
            )
        return index
    assert change.key is not None
    found = [entry for entry in collection.indexes if entry.descriptor.has_key(change.key)]
    if not found:
        raise CommandError(
            ErrorCode.IndexNotFound,
            f"cannot find index {render_document(change.key)} for ns {collection.namespace}",
        )
    if len(found) > 1:
        conflicting = ", ".join(render_document(entry.descriptor.spec) for entry in found)
        raise CommandError(
            ErrorCode.AmbiguousIndexKeyPattern,
            f"index keyPattern {render_document(change.key)} matches {len(found)} indexes, must use index name."
            f" Conflicting indexes: {conflicting}",
        )
    return found[0]


def _checked_ttl(collection: Collection, index: IndexEntry, value: Value) -> int:
    """The new `expireAfterSeconds` of an index, by the rules of its field."""
    if not is_number(value):
        raise _wrong_type("expireAfterSeconds", value, "[long, int, decimal, double]")
    descriptor = index.descriptor
    if descriptor.is_id:
        raise CommandError(ErrorCode.InvalidOptions, "the _id field does not support TTL indexes")
    if len(descriptor.paths) > 1:
        raise CommandError(
            ErrorCode.InvalidOptions, "TTL indexes are single-field indexes, compound indexes do not support TTL"
        )
    if descriptor.paths[0].dotted != TS_FIELD:
        return checked_date_ttl(value, ErrorCode.InvalidOptions)
    seconds = parse_default_ttl(value)
    if not descriptor.is_ttl_setting:
        if descriptor.unique or descriptor.sparse or descriptor.partial_filter is not None:
            raise CommandError(
                ErrorCode.InvalidOptions,
                f"An index on '{TS_FIELD}' that is unique, sparse or partial cannot have 'expireAfterSeconds'",
            )
        for other in collection.indexes:
            if other.descriptor.is_ttl_setting:
                raise CommandError(
                    ErrorCode.InvalidOptions,
                    f"The default TTL of a collection is set once, and index {other.name} sets it",
                )
    return seconds
