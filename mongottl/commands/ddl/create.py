"""create: makes a collection or a view.

Source: MongoDB's create reference; the codes are those that MongoDB 8.2 gives.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.engine_options import checked_storage_engine
from mongottl.catalog.index_spec import check_id_index_spec
from mongottl.catalog.options import CollectionOptions, options_document
from mongottl.catalog.validator import validator_of
from mongottl.catalog.view import View
from mongottl.commands.access import collection_needs, needing
from mongottl.commands.ddl.collection_options import (
    VALIDATION_ACTIONS,
    VALIDATION_LEVELS,
    check_capped_size,
    check_expiring_time_field,
    check_validator,
    check_view_source,
    checked_capped_max,
    checked_clustered_index,
    checked_expiry_s,
    checked_time_series,
)
from mongottl.commands.ddl.encrypted_fields import check_always_validated, check_encrypted_fields
from mongottl.commands.pipeline_access import view_needs
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ANY,
    BOOL_FIELD,
    COLLECTION,
    DOCUMENT_FIELD,
    DOCUMENTS,
    IGNORED,
    INTEGER,
    STRICT_BOOL,
    TEXT,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.document.bson_field import checked_word, missing_field
from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.compare import compare_values
from mongottl.document.interrupt import Undivided
from mongottl.document.render import render_document
from mongottl.document.types import MISSING, BinData, Int64, Value, integer
from mongottl.document.walk import get_value, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.views import check_stages, define_view
from mongottl.query.collation import parse_collation
from mongottl.security.privileges import Need
from mongottl.versions import CREATE_AGAIN, CREATE_TIME_SERIES_AGAIN

_CLUSTERED_AND_VIEW: Final = 6026500
_CLUSTERED_AND_CAPPED: Final = 6049200
_CLUSTERED_AND_MAX: Final = 6049204


class CreateRequest(NamedTuple):
    collection: Annotated[str, Field("create", COLLECTION)]
    capped: Annotated[bool, Field("capped", BOOL_FIELD)] = False
    auto_index_id: Annotated[bool | None, Field("autoIndexId", BOOL_FIELD)] = None
    id_index: Annotated[bytes | None, Field("idIndex", DOCUMENT_FIELD)] = None
    size: Annotated[int | None, Field("size", INTEGER)] = None
    max: Annotated[int | None, Field("max", INTEGER)] = None
    storage_engine: Annotated[bytes | None, Field("storageEngine", DOCUMENT_FIELD)] = None
    index_option_defaults: Annotated[bytes | None, Field("indexOptionDefaults", DOCUMENT_FIELD)] = None
    validator: Annotated[bytes | None, Field("validator", DOCUMENT_FIELD)] = None
    validation_level: Annotated[str | None, Field("validationLevel", TEXT)] = None
    validation_action: Annotated[str | None, Field("validationAction", TEXT)] = None
    view_on: Annotated[str | None, Field("viewOn", TEXT)] = None
    pipeline: Annotated[list[bytes] | None, Field("pipeline", DOCUMENTS)] = None
    collation: Annotated[bytes | None, Field("collation", DOCUMENT_FIELD)] = None
    time_series: Annotated[bytes | None, Field("timeseries", DOCUMENT_FIELD)] = None
    expire_after_seconds: Annotated[int | None, Field("expireAfterSeconds", INTEGER)] = None
    clustered_index: Annotated[Value, Field("clusteredIndex", ANY)] = MISSING
    encrypted_fields: Annotated[bytes | None, Field("encryptedFields", DOCUMENT_FIELD)] = None
    pre_and_post_images: Annotated[bytes | None, Field("changeStreamPreAndPostImages", DOCUMENT_FIELD)] = None
    temp: Annotated[bool, Field("temp", BOOL_FIELD)] = False
    flags: Annotated[Value, Field("flags", IGNORED)] = None


class ImagesOptions(NamedTuple):
    enabled: Annotated[bool, Field("enabled", STRICT_BOOL)]


class IndexOptionDefaults(NamedTuple):
    storage_engine: Annotated[bytes | None, Field("storageEngine", DOCUMENT_FIELD)] = None


_IMAGES: Final[RequestParser] = parser_for("create.changeStreamPreAndPostImages", ImagesOptions)
_INDEX_DEFAULTS: Final[RequestParser] = parser_for("create.indexOptionDefaults", IndexOptionDefaults)


def _create_needs(op: OperationContext, request: CreateRequest) -> list[Need]:
    return collection_needs(op.database, request.collection, "createCollection") + view_needs(
        op, request.collection, request.view_on, request.pipeline
    )


@command(
    "create",
    CreateRequest,
    access=needing(_create_needs),
    help="Creates a collection.",
    writes=True,
    judges_oplog=True,
    stable=True,
    unstable_fields=("capped", "indexOptionDefaults", "max", "size", "storageEngine"),
    in_transaction=True,
)
def create(op: OperationContext, request: CreateRequest) -> Reply:
    """Creates a collection or view. No error if it exists with the same options; NamespaceExists (48) with others.

    In a transaction, in the dialect `cosmos`, and in announced versions before 7.0, NamespaceExists whatever the
    options of the existing collection are.
    """
    return create_with_uuid(op, request, None)


def create_with_uuid(op: OperationContext, request: CreateRequest, uuid: BinData | None) -> Reply:
    """Creates a collection with a given UUID, or a view, as `applyOps` does it; without one it gets a new UUID.

    NamespaceExists (48) also if the existing collection has another UUID, or another collection has this one.
    """
    options = op.compute(partial(parse_options, op, request))
    view: View | None = None
    checked = False
    if request.view_on is None:
        op.compute(partial(validator_of, options))
    else:
        stages: list[Value] = [] if request.pipeline is None else [*request.pipeline]
        view = View(op.database, request.collection, request.view_on, stages, options.collation)
        if op.catalog.find(op.database, request.collection) is None:
            op.catalog.check_new_name(op.database, request.collection)
            check_stages(op, view)
            checked = True
    with Undivided():
        existing = _create(op, request.collection, options, uuid, view, checked)
    if existing is None:
        return {}
    return op.compute(partial(_reply_to_existing, op, existing, options, uuid))


def _create(
    op: OperationContext,
    name: str,
    options: CollectionOptions,
    uuid: BinData | None,
    view: View | None,
    checked: bool,
) -> Collection | None:
    """The collection that is there already, if there is one. view: what is to be created if it is no collection;
    checked: whether its stages have been checked."""
    existing = op.catalog.find(op.database, name)
    if view is not None:
        create_view(op, view, existing, checked)
        return None
    if isinstance(existing, View):
        raise view_exists(existing)
    if existing is not None:
        if op.session.in_transaction:
            raise CommandError(ErrorCode.NamespaceExists, f"Collection {existing.namespace} already exists.")
        return existing
    op.catalog.check_new_name(op.database, name)
    if uuid is None:
        op.catalog.create_collection(op.database, name, options)
        return None
    for other in op.service.catalog.all_collections():
        if other.uuid == uuid:
            raise CommandError(
                ErrorCode.NamespaceExists, f"collection {other.namespace} has the UUID of {op.database}.{name} already"
            )
    op.catalog.create_collection(op.database, name, options, uuid.data)
    return None


def _reply_to_existing(
    op: OperationContext, existing: Collection, options: CollectionOptions, uuid: BinData | None
) -> Reply:
    """The reply if the collection that is there has these options, else the error. Long validators take long."""
    kind = CREATE_AGAIN if existing.time_series is None else CREATE_TIME_SERIES_AGAIN
    is_same = _are_same(existing.options, options) and uuid in (None, existing.uuid)
    if op.service.dialect.refuses_existing(kind):
        raise CommandError(
            ErrorCode.NamespaceExists,
            # liquibase/liquibase-mongodb#581 (2024) has Cosmos DB's whole reply, which is the same.
            f"a collection '{existing.namespace}' already exists",
            advice=op.service.dialect.existing_advice(kind) if is_same else "",
        )
    if is_same:
        return {}
    raise CommandError(
        ErrorCode.NamespaceExists,
        f"namespace {existing.namespace} already exists, but with different options:"
        f" {render_document(existing.options.listed)}",
    )


def _are_same(present: CollectionOptions, given: CollectionOptions) -> bool:
    return present.listed == given.raw or compare_values(present.listed, given.raw) == 0


def create_view(op: OperationContext, view: View, existing: Collection | View | None, checked: bool = False) -> Reply:
    """Creates a view. No error if the same view exists; NamespaceExists (48) if another view or a collection does.

    Errors of the definition are those of `exec.results.views.define_view`. checked: see there.
    """
    if isinstance(existing, View):
        if not existing.is_same(view):
            raise view_exists(existing)
        if op.service.dialect.refuses_existing(CREATE_AGAIN):
            raise view_exists(existing, op.service.dialect.existing_advice(CREATE_AGAIN))
        return {}
    if existing is not None:
        raise CommandError(ErrorCode.NamespaceExists, f"a collection '{view.namespace}' already exists")
    op.catalog.check_new_name(op.database, view.name)
    define_view(op, view, checked)
    return {}


def view_exists(view: View, advice: str = "") -> CommandError:
    return CommandError(
        ErrorCode.NamespaceExists,
        f"namespace {view.namespace} already exists, but is a view: {render_document(view.options())}",
        advice=advice,
    )


def parse_options(op: OperationContext, request: CreateRequest) -> CollectionOptions:
    """The checked options of a new collection or view, as they are stored and listed.

    TypeMismatch (14), BadValue (2) and others for single options, InvalidOptions (72) for options that exclude each
    other.
    """
    options: dict[str, Value] = {}
    _add_capped(request, options)
    _add_validation(op, request, options)
    _check_view(request)
    if request.time_series is not None:
        options["timeseries"] = checked_time_series(request.time_series)
    if request.clustered_index is not MISSING:
        clustered = checked_clustered_index(request.clustered_index)
        if clustered is not None:
            options["clusteredIndex"] = encode(clustered)
    _check_together(request, options)
    _add_expiry(op, request, options)
    _add_settings(request, options)
    return CollectionOptions(options_document(options))


def _add_capped(request: CreateRequest, options: dict[str, Value]) -> None:
    if request.size is not None:
        check_capped_size(request.size)
    if request.clustered_index is not MISSING:
        return  # excludes capped collections, with its own error codes
    if not request.capped:
        if request.size is not None or request.max is not None:
            raise CommandError(
                ErrorCode.InvalidOptions,
                "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
            )
        return
    if request.size is None:
        raise CommandError(ErrorCode.InvalidOptions, "the 'size' field is required when 'capped' is true")
    if request.view_on is not None:
        return  # a view ignores what is about stored documents
    options["capped"] = True
    options["size"] = integer(request.size)
    if request.max is not None:
        most = checked_capped_max(request.max)
        if most > 0:
            options["max"] = most


def _add_validation(op: OperationContext, request: CreateRequest, options: dict[str, Value]) -> None:
    if request.validation_level is not None:
        checked_word("create.validationLevel", request.validation_level, VALIDATION_LEVELS)
    if request.validation_action is not None:
        checked_word("create.validationAction", request.validation_action, VALIDATION_ACTIONS)
    if request.view_on is not None:
        return  # a view ignores what is about stored documents
    if request.validation_level is not None:
        options["validationLevel"] = request.validation_level
    if request.validation_action is not None:
        options["validationAction"] = request.validation_action
    if request.validator is not None:
        validator = request.validator
        op.compute(lambda: check_validator(op.database, request.collection, validator, op.service.features))
        if not is_empty(request.validator):
            options["validator"] = request.validator


def _check_view(request: CreateRequest) -> None:
    if request.view_on is None:
        if request.pipeline is not None:
            raise CommandError(ErrorCode.InvalidOptions, "'pipeline' requires 'viewOn' to also be specified")
        return
    check_view_source(request.view_on)


def _check_together(request: CreateRequest, options: dict[str, Value]) -> None:
    """Errors for options that exclude each other: InvalidOptions (72) unless MongoDB has a code for the pair."""
    if request.clustered_index is not MISSING:
        if request.capped:
            raise CommandError(_CLUSTERED_AND_CAPPED, "A capped collection cannot be clustered")
        if request.max is not None:
            raise CommandError(_CLUSTERED_AND_MAX, "The 'max' option is not supported with 'clusteredIndex'")
        if request.view_on is not None:
            raise CommandError(_CLUSTERED_AND_VIEW, "The 'clusteredIndex' option is not supported with views")
    if request.id_index is not None:
        for other in ("timeseries", "clusteredIndex"):
            if other in options:
                raise _contradiction("idIndex", other)
        if request.view_on is not None:
            raise _contradiction("idIndex", "viewOn")
        check_id_index_spec(request.id_index, _collation(request))
    if "timeseries" in options:
        for other in ("capped", "clusteredIndex", "validator", "validationLevel", "validationAction"):
            if other in options:
                raise _contradiction("timeseries", other)
    if request.view_on is not None:
        if "timeseries" in options:
            raise _contradiction("viewOn", "timeseries")
    elif request.size is not None and "capped" not in options:
        raise _contradiction("size", "clusteredIndex")
    if request.auto_index_id is False:
        raise CommandError(ErrorCode.InvalidOptions, "autoIndexId:false is not allowed")


def _contradiction(option: str, other: str) -> CommandError:
    return CommandError(ErrorCode.InvalidOptions, f"The option '{option}' is not allowed with '{other}'")


def _add_expiry(op: OperationContext, request: CreateRequest, options: dict[str, Value]) -> None:
    if request.expire_after_seconds is None:
        return
    if "timeseries" not in options and "clusteredIndex" not in options:
        raise CommandError(
            ErrorCode.InvalidOptions,
            "'expireAfterSeconds' is only supported on time-series collections or when the 'clusteredIndex' option is"
            " specified",
        )
    refusal = op.service.dialect.date_ttl_refusal
    if refusal is not None:
        raise CommandError(ErrorCode.BadValue, refusal)
    options["expireAfterSeconds"] = Int64(checked_expiry_s(request.expire_after_seconds, op.now_ms))
    if request.time_series is not None:
        check_expiring_time_field(get_value(request.time_series, "timeField"))


def _collation(request: CreateRequest) -> Collation | None:
    """The parsed `collation`, or None. 40414 for an empty one."""
    if request.collation is None:
        return None
    if is_empty(request.collation):
        raise missing_field("collation.locale")
    return parse_collation(request.collation)


def _add_settings(request: CreateRequest, options: dict[str, Value]) -> None:
    """Adds options that are stored and listed but have no effect."""
    collation = _collation(request)
    if collation is not None:
        options["collation"] = collation.spec
    if request.temp:
        options["temp"] = True
    if request.storage_engine is not None:
        kept = checked_storage_engine("storageEngine", request.storage_engine)
        if kept is not None:
            options["storageEngine"] = kept
    if request.index_option_defaults is not None:
        defaults = IndexOptionDefaults._make(_INDEX_DEFAULTS.parse(request.index_option_defaults, [], None))
        if defaults.storage_engine is not None:
            checked_storage_engine("indexOptionDefaults.storageEngine", defaults.storage_engine)
            options["indexOptionDefaults"] = request.index_option_defaults
    if request.pre_and_post_images is not None:
        images = ImagesOptions._make(_IMAGES.parse(request.pre_and_post_images, [], None))
        if images.enabled:
            if request.view_on is not None or "timeseries" in options:
                other = "timeseries" if request.view_on is None else "viewOn"
                raise _contradiction("changeStreamPreAndPostImages", other)
            options["changeStreamPreAndPostImages"] = encode({"enabled": True})
    if request.encrypted_fields is not None:
        _check_encryptable(request)
        check_encrypted_fields(request.encrypted_fields)
        check_always_validated(request.validation_level, request.validation_action)
        options["encryptedFields"] = request.encrypted_fields


def _check_encryptable(request: CreateRequest) -> None:
    if request.view_on is not None or request.time_series is not None:
        raise CommandError(6346401, "Encrypted fields cannot be used with views or time series collections")
    if request.capped:
        raise CommandError(6367301, "Encrypted fields cannot be used with capped collections")
