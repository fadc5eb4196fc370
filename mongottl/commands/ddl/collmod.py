"""collMod: changes the options of a collection, the definition of a view, or an index (`collmod_index`).

Source: MongoDB's collMod reference.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.change_kinds import MODIFY
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.namespace import check_collection_name
from mongottl.catalog.time_series import EXPIRY_INDEX, changed_options, check_bucket_seconds, check_granularity
from mongottl.catalog.validator import validator_of
from mongottl.catalog.view import View
from mongottl.commands.access import collection_needs, needing
from mongottl.commands.collection_uuid import check_uuid_of
from mongottl.commands.ddl.collection_options import (
    VALIDATION_ACTIONS,
    VALIDATION_LEVELS,
    check_capped_size,
    check_expiring_time_field,
    check_validator,
    check_view_source,
    checked_capped_max,
    checked_expiry_s,
)
from mongottl.commands.ddl.collections import check_no_index_build
from mongottl.commands.ddl.collmod_index import IndexChange, change_index
from mongottl.commands.ddl.encrypted_fields import check_always_validated
from mongottl.commands.pipeline_access import view_needs
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ANY,
    BOOL_FIELD,
    COLLECTION,
    DOCUMENT_FIELD,
    DOCUMENTS,
    INTEGER,
    STRICT_BOOL,
    TEXT,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.commands.request_fields import CollectionUuid
from mongottl.document.bson_field import checked_word, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.interrupt import Undivided
from mongottl.document.numbers import clamp_to_long
from mongottl.document.types import MISSING, Decimal128, Int64, Value, integer
from mongottl.document.walk import fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.views import check_stages, define_view
from mongottl.exec.stages.stage import check_alive
from mongottl.exec.write.expiry import rearm_collection
from mongottl.exec.write.index_build import finish_build, start_indexes
from mongottl.oplog.change import LoggedChange, is_logged
from mongottl.oplog.records import NAMESPACE as OPLOG
from mongottl.security.privileges import Need


class CollModRequest(NamedTuple):
    collection: Annotated[str, Field("collMod", COLLECTION)]
    index_change: Annotated[bytes | None, Field("index", DOCUMENT_FIELD)] = None
    validator: Annotated[bytes | None, Field("validator", DOCUMENT_FIELD)] = None
    validation_level: Annotated[str | None, Field("validationLevel", TEXT)] = None
    validation_action: Annotated[str | None, Field("validationAction", TEXT)] = None
    view_on: Annotated[str | None, Field("viewOn", TEXT)] = None
    pipeline: Annotated[list[bytes] | None, Field("pipeline", DOCUMENTS)] = None
    expire_after_seconds: Annotated[Value, Field("expireAfterSeconds", ANY)] = MISSING
    time_series: Annotated[bytes | None, Field("timeseries", DOCUMENT_FIELD)] = None
    pre_and_post_images: Annotated[bytes | None, Field("changeStreamPreAndPostImages", DOCUMENT_FIELD)] = None
    capped_size: Annotated[int | None, Field("cappedSize", INTEGER)] = None
    capped_max: Annotated[int | None, Field("cappedMax", INTEGER)] = None
    dry_run: Annotated[bool, Field("dryRun", BOOL_FIELD)] = False
    collection_uuid: CollectionUuid = None


class TimeSeriesChange(NamedTuple):
    granularity: Annotated[str | None, Field("granularity", TEXT)] = None
    bucket_rounding_s: Annotated[int | None, Field("bucketRoundingSeconds", INTEGER)] = None
    bucket_max_span_s: Annotated[int | None, Field("bucketMaxSpanSeconds", INTEGER)] = None


class ImagesChange(NamedTuple):
    enabled: Annotated[bool, Field("enabled", STRICT_BOOL)]


_TIME_SERIES: Final[RequestParser] = parser_for("collMod.timeseries", TimeSeriesChange)
_IMAGES: Final[RequestParser] = parser_for("collMod.changeStreamPreAndPostImages", ImagesChange)


def _coll_mod_needs(op: OperationContext, request: CollModRequest) -> list[Need]:
    return collection_needs(op.database, request.collection, "collMod") + view_needs(
        op, request.collection, request.view_on, request.pipeline
    )


@command(
    "collMod",
    CollModRequest,
    access=needing(_coll_mod_needs),
    help="Changes the options of a collection, a view or an index.",
    writes=True,
    judges_oplog=True,
    stable=True,
    exclusive=True,
    is_repeatable=True,
)
def coll_mod(op: OperationContext, request: CollModRequest) -> Reply:
    """The reply has the old and new values of changed index options, but not of collection options.

    `expireAfterSeconds` of an index on `_ts` changes the collection's default TTL; that of a plain single-field index
    makes it a TTL index. NamespaceNotFound (26), IndexNotFound (27), AmbiguousIndexKeyPattern (181), InvalidOptions
    (72) for options that this type of collection does not have, BadValue (2) for values out of range.
    """
    op.check_database()
    check_collection_name(op.database, request.collection)
    change = None if request.index_change is None else IndexChange(request.index_change)
    options = _checked_options(op, request)
    if f"{op.database}.{request.collection}" == OPLOG:
        raise CommandError(ErrorCode.InvalidOptions, "the oplog cannot be changed by collMod")
    check_uuid_of(op, "collMod", request.collection_uuid, request.collection)
    checked = _checked_view(op, request)
    with Undivided():
        collection = op.catalog.find(op.database, request.collection)
        if collection is None:
            raise CommandError(ErrorCode.NamespaceNotFound, f"ns does not exist: {op.database}.{request.collection}")
        if isinstance(collection, View):
            return _change_view(op, collection, request, change, options, checked)
    if request.view_on is not None or request.pipeline is not None:
        raise CommandError(ErrorCode.InvalidOptions, "'viewOn' and 'pipeline' are only supported on views")
    _check_applicable(collection, request, options)
    if collection.time_series is not None and isinstance(options.get("expireAfterSeconds"), int):
        check_expiring_time_field(collection.time_series.time_field)
    _add_time_series(collection, request, options)
    if request.dry_run and (change is None or not change.only_unique or options):
        raise CommandError(ErrorCode.InvalidOptions, "The option 'dryRun' is only for converting to a unique index")
    check_no_index_build(collection)
    return _change(op, collection, change, options, request)


def _change(
    op: OperationContext,
    collection: Collection,
    change: IndexChange | None,
    options: dict[str, Value],
    request: CollModRequest,
) -> Reply:
    reply: dict[str, Value] = {}
    before = collection.options.raw
    if change is not None:
        reply = change_index(op, collection, change, request.dry_run)
    if options:
        if collection.time_series is not None and "expireAfterSeconds" in options:
            _change_expiry_index(op, collection, options["expireAfterSeconds"])
        _set_options(op, collection, options)
        if "expireAfterSeconds" in options:
            rearm_collection(op.service, collection.number)
    if not request.dry_run:
        _log_change(op, collection, before, change, request, reply)
    return reply


def _set_options(op: OperationContext, collection: Collection, changes: dict[str, Value]) -> None:
    """Changes the options of a collection, as they are by then."""
    while True:
        before = collection.options
        changed = before.with_options(changes)
        op.compute(partial(validator_of, changed))
        with Undivided():
            check_alive(collection)
            if collection.options is before:
                op.catalog.set_options(collection, changed)
                return


def _log_change(
    op: OperationContext,
    collection: Collection,
    before: bytes,
    change: IndexChange | None,
    request: CollModRequest,
    reply: dict[str, Value],
) -> None:
    """Adds the change to the oplog, in the form of a `modify` event. before: the options that the collection had."""
    if not is_logged(collection):
        return
    described: list[tuple[str, Value]] = [
        ("validator", request.validator),
        ("validationLevel", request.validation_level),
        ("validationAction", request.validation_action),
        ("expireAfterSeconds", None if request.expire_after_seconds is MISSING else request.expire_after_seconds),
        ("timeseries", request.time_series),
        ("changeStreamPreAndPostImages", request.pre_and_post_images),
        ("cappedSize", request.capped_size),
        ("cappedMax", request.capped_max),
    ]
    described = [(name, value) for name, value in described if value is not None]
    state: list[tuple[str, Value]] = [
        ("collectionOptions", encode_fields([("uuid", collection.uuid), *fields(before)]))
    ]
    if change is not None:
        described.insert(0, ("index", encode_fields([("name", change.found_name), *change.options])))
        old = [(name[: -len("_old")], value) for name, value in reply.items() if name.endswith("_old")]
        state.append(("indexOptions", encode_fields(old)))
    detail = encode({"operationDescription": encode_fields(described), "stateBeforeChange": encode_fields(state)})
    op.service.commit_log.log_alone(
        LoggedChange(MODIFY, collection.database, collection.name, collection.uuid, detail=detail)
    )


def _checked_options(op: OperationContext, request: CollModRequest) -> dict[str, Value]:
    """The changed options, each checked by itself; MISSING for those that are removed."""
    options: dict[str, Value] = {}
    if request.validation_level is not None:
        checked_word("collMod.validationLevel", request.validation_level, VALIDATION_LEVELS)
        options["validationLevel"] = request.validation_level
    if request.validation_action is not None:
        checked_word("collMod.validationAction", request.validation_action, VALIDATION_ACTIONS)
        options["validationAction"] = request.validation_action
    if request.validator is not None:
        validator = request.validator
        op.compute(lambda: check_validator(op.database, request.collection, validator, op.service.features))
        options["validator"] = MISSING if is_empty(request.validator) else request.validator
    if request.capped_size is not None:
        check_capped_size(request.capped_size)
        options["size"] = integer(request.capped_size)
    if request.capped_max is not None:
        documents = checked_capped_max(request.capped_max)
        options["max"] = documents if documents else MISSING
    if request.time_series is not None:
        series = _parsed_time_series(request.time_series)
        check_granularity(series.granularity)
        check_bucket_seconds(series.bucket_rounding_s, series.bucket_max_span_s)
    if request.expire_after_seconds is not MISSING:
        seconds = _checked_expiry(op, request.expire_after_seconds)
        options["expireAfterSeconds"] = MISSING if seconds is None else Int64(seconds)
    if request.pre_and_post_images is not None:
        images = ImagesChange._make(_IMAGES.parse(request.pre_and_post_images, [], None))
        options["changeStreamPreAndPostImages"] = encode({"enabled": True}) if images.enabled else MISSING
    return options


def _parsed_time_series(change: bytes) -> TimeSeriesChange:
    return TimeSeriesChange._make(_TIME_SERIES.parse(change, [], None))


def _add_time_series(collection: Collection, request: CollModRequest, options: dict[str, Value]) -> None:
    before = collection.options.time_series
    if request.time_series is None or before is None:
        return
    series = _parsed_time_series(request.time_series)
    after = changed_options(before, series.granularity, series.bucket_rounding_s, series.bucket_max_span_s)
    if after != before:
        options["timeseries"] = after


def _change_expiry_index(op: OperationContext, collection: Collection, seconds: Value) -> None:
    """Creates, changes or drops the TTL index of a time series collection."""
    series = collection.time_series
    assert series is not None
    started: list[CollectionIndex] = []
    with Undivided():
        check_alive(collection)
        index = collection.index_named(EXPIRY_INDEX)
        if isinstance(seconds, int):
            descriptor = IndexDescriptor(series.expiry_index_spec(int(seconds)))
            if index is None:
                started = start_indexes(op, collection, [descriptor])
            else:
                op.catalog.replace_descriptor(collection, index, descriptor)
        elif index is not None:
            op.catalog.remove_indexes(collection, [index])
    if started:
        finish_build(op, collection, started)


def _checked_expiry(op: OperationContext, value: Value) -> int | None:
    """Seconds, or None for "off"."""
    if value == "off":
        return None
    if isinstance(value, str):
        raise CommandError(
            ErrorCode.InvalidOptions, f"Invalid string value for the 'expireAfterSeconds' option: '{value}'"
        )
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
        raise wrong_type("collMod.expireAfterSeconds", value, "[string, long, int, decimal, double]")
    return checked_expiry_s(clamp_to_long(value), op.now_ms)


def _check_applicable(collection: Collection, request: CollModRequest, changes: dict[str, Value]) -> None:
    """InvalidOptions (72) for options that this type of collection does not have; BadValue (2) for values that it
    cannot have."""
    options = collection.options
    if options.encrypted_paths is not None:
        check_always_validated(request.validation_level, request.validation_action)
    if collection.time_series is not None:
        if request.time_series is not None:  # with `timeseries`, mongod ignores options of capped collections
            changes.pop("size", None)
            changes.pop("max", None)
        for name in changes:
            if name != "expireAfterSeconds":
                raise CommandError(
                    ErrorCode.InvalidOptions, f"option not supported on a time-series collection: {name}"
                )
        return
    if (request.capped_size is not None or request.capped_max is not None) and not options.capped:
        raise CommandError(ErrorCode.InvalidOptions, "Collection must be capped.")
    if request.time_series is not None and options.time_series is None:
        raise CommandError(ErrorCode.InvalidOptions, "option only supported on a time-series collection: timeseries")
    if request.expire_after_seconds is not MISSING and options.time_series is None and options.clustered_index is None:
        raise CommandError(
            ErrorCode.InvalidOptions,
            "'expireAfterSeconds' is only supported on time-series collections or when the 'clusteredIndex' option is"
            " specified",
        )


def _checked_view(op: OperationContext, request: CollModRequest) -> View | None:
    """The view that a request for another pipeline asks for, with its stages checked; None if it cannot be one."""
    if request.pipeline is None:
        return None
    view = op.catalog.find(op.database, request.collection)
    if not isinstance(view, View):
        return None
    changed = _changed_view(view, request)
    if changed.is_same(view):
        return None
    check_stages(op, changed)
    return changed


def _changed_view(view: View, request: CollModRequest) -> View:
    stages: list[Value] = view.pipeline
    if request.pipeline is not None:
        stages = [*request.pipeline]
    source = view.view_on if request.view_on is None else request.view_on
    return View(view.database, view.name, source, stages, view.collation)


def _change_view(
    op: OperationContext,
    view: View,
    request: CollModRequest,
    change: IndexChange | None,
    options: dict[str, Value],
    checked: View | None,
) -> Reply:
    """Changes the given parts of a view's definition. Errors are those of `exec.results.views.define_view`.

    checked: a view whose stages have been checked."""
    foreign = [*options]
    if change is not None:
        foreign.append("index")
    if request.time_series is not None:
        foreign.append("timeseries")
    if request.dry_run:
        foreign.append("dryRun")
    if foreign:
        raise CommandError(ErrorCode.InvalidOptions, f"option not supported on a view: {foreign[0]}")
    if request.view_on is not None:
        check_view_source(request.view_on)
    changed = _changed_view(view, request)
    if not changed.is_same(view):
        define_view(op, changed, checked is not None and changed.is_same(checked))
    return {}
