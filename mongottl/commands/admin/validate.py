"""validate: checks a collection's documents and indexes. validateDBMetadata: checks a database for the Stable API.

Source: MongoDB's reference for each.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.entry_sums import EntrySums, has_entry
from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.catalog.namespace import MAX_DATABASE_NAME_BYTES, check_collection_name
from mongottl.catalog.view import View
from mongottl.commands.access import collection_needs, needing, on_collection
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import (
    ANY,
    COLLECTION,
    DOCUMENT_FIELD,
    ONE,
    STRICT_BOOL,
    TEXT,
    Field,
    RequestParser,
    parser_for,
)
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.numbers import is_true
from mongottl.document.types import MISSING, Int64, Value, integer
from mongottl.document.utf8 import encode_text
from mongottl.document.validate import is_utf8_throughout, validate_document
from mongottl.document.walk import first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.query.pipeline import is_stable
from mongottl.security.privileges import ALL_DATABASES, Need
from mongottl.storage.errors import DamagedRecord
from mongottl.storage.stores import Record
from mongottl.ttl.policy import is_expired

# Records or index entries that are read at once.
_BATCH: Final = 256
# Bytes of documents that are checked in one step.
_STEP_BYTES: Final = 64 * 1024
# Index entries that are looked up in one step.
_STEP_KEYS: Final = 256
# Maximum inconsistent entries that the reply lists.
_MAX_TOLD: Final = 1000


class ValidateRequest(NamedTuple):
    collection: Annotated[str, Field("validate", COLLECTION)]
    full: Annotated[Value, Field("full", ANY)] = False
    background: Annotated[Value, Field("background", ANY)] = False
    metadata: Annotated[Value, Field("metadata", ANY)] = False
    repair: Annotated[Value, Field("repair", ANY)] = False
    fix_multikey: Annotated[Value, Field("fixMultikey", ANY)] = False
    check_bson: Annotated[Value, Field("checkBSONConformance", ANY)] = False


class _Findings:
    """The results of validate so far. Ids are record ids.

    checks_text: whether names and strings must be UTF-8; not_utf8: number of records in which they are not.
    records: number of records that are not expired. keys: for each index the number of their entries, and of entries
    without record.
    """

    def __init__(self, checks_text: bool) -> None:
        self.checks_text = checks_text
        self.records = 0
        self.not_utf8 = 0
        self.corrupt: list[Value] = []
        self.non_compliant = 0
        self.missing: list[Value] = []
        self.extra: list[Value] = []
        self.keys: dict[str, int] = {}
        self.sums: dict[str, EntrySums] = {}
        self.broken_indexes: set[str] = set()

    def note_broken(self, index: CollectionIndex, rid: int, into: list[Value]) -> None:
        self.broken_indexes.add(index.name)
        if len(into) < _MAX_TOLD:
            into.append({"indexName": index.name, "recordId": Int64(rid)})


@command(
    "validate",
    ValidateRequest,
    access=on_collection("validate"),
    help="Checks a collection's documents and indexes.",
    strict=False,
)
def validate(op: OperationContext, request: ValidateRequest) -> Reply:
    """`{ns, nInvalidDocuments, nrecords, nIndexes, keysPerIndex, indexDetails, valid, …}`.

    It checks that every document is valid BSON and has its keys in every index, and that no index has other entries.
    The documents are read from the disk. Other operations run between its steps; documents and entries are compared by
    sums, and those whose sums differ, by what was changed meanwhile or by damage, once more within one step. `full` and
    `background` have no effect. Documents that the collection's validator refuses cause a warning, as do, with
    `checkBSONConformance`, names and strings that are not UTF-8. `indexDetails` has `{valid, spec}` for each index, the
    specification as listIndexes shows it.
    NamespaceNotFound (26); InvalidOptions (72) for options that exclude each other, and for repairs, which MongoDB
    supports only on standalone servers.
    """
    op.check_database()
    check_collection_name(op.database, request.collection)
    _check_options(request)
    collection = op.catalog.lookup(op.database, request.collection, time_series=True)
    if collection is None:
        raise CommandError(
            ErrorCode.NamespaceNotFound,
            f"Collection '{op.database}.{request.collection}' does not exist to validate.",
        )
    found = _Findings(checks_text=is_true(request.check_bson))
    if not is_true(request.metadata):
        _check_records(op, collection, found)
        for index in [index for index in collection.indexes if index.ready]:
            _check_entries(op, collection, index, found)
    return _reply(collection, found)


def _check_options(request: ValidateRequest) -> None:
    def is_set(value: Value) -> bool:
        return is_true(value)

    repair = is_set(request.repair) or is_set(request.fix_multikey)
    if is_set(request.metadata):
        for value in (request.full, request.background, request.check_bson):
            if is_set(value) or repair:
                raise CommandError(
                    ErrorCode.InvalidOptions,
                    "Running the validate command with { metadata: true } is not supported with any other options",
                )
    if is_set(request.check_bson) and repair:
        raise CommandError(
            ErrorCode.InvalidOptions,
            "Cannot run the validate command with both { checkBSONConformance: true } and { repair: true }",
        )
    if is_set(request.background) and is_set(request.full):
        raise CommandError(
            ErrorCode.InvalidOptions,
            "Running the validate command with both { background: true } and { full: true } is not supported",
        )
    if repair:
        raise CommandError(
            ErrorCode.InvalidOptions,
            "Running the validate command with { repair: true } can only be performed in standalone mode",
        )


def _check_alive(op: OperationContext, collection: Collection) -> None:
    op.check_interrupt()
    if collection.dropped:
        raise CommandError(ErrorCode.NamespaceNotFound, f"{collection.namespace} was dropped while it was validated")


def _check_records(op: OperationContext, collection: Collection, found: _Findings) -> None:
    """Checks each document, and adds up the entries that it must have in the indexes."""
    for record in _stored(op, collection, found):
        _check_record(op, collection, record, found)
        op.give_way()  # a batch of records with keys in many indexes takes 30 ms
        _check_alive(op, collection)


def _stored(op: OperationContext, collection: Collection, found: _Findings | None) -> Iterator[Record]:
    """The records as they are on the disk. found: gets those that are damaged."""
    position = 0
    limit = _BATCH
    while True:
        stored = op.recovery_unit.records(collection)
        op.service.engine.forget_cached(stored.ident, position, limit)
        try:
            records, more = stored.scan(position, limit, True, _STEP_BYTES)
        except DamagedRecord as error:
            # Those before it are read one by one.
            if limit == 1:
                if found is not None:
                    found.corrupt.append(Int64(error.record_id))
                position = error.record_id
            limit = 1 if limit > 1 else _BATCH
            continue
        for record in records:
            position = record[0]
            yield record
        if not more:
            return
        op.give_way()
        _check_alive(op, collection)


def _check_record(op: OperationContext, collection: Collection, record: Record, found: _Findings) -> None:
    rid, document, ts_s, ttl_s = record
    alive = not is_expired(ts_s, ttl_s, collection.default_ttl_s, op.service.now_s())
    if alive:
        found.records += 1
    try:
        validate_document(document)
    except CommandError:
        found.corrupt.append(Int64(rid))
        return
    if found.checks_text and not is_utf8_throughout(document):
        found.not_utf8 += 1
    if alive and collection.validator is not None and not collection.validator.accepts(document, op.now_ms):
        found.non_compliant += 1
    for index in list(collection.indexes):
        if not index.has_keys or not index.ready:
            continue
        sums = found.sums.setdefault(index.name, EntrySums())
        keys = dict.fromkeys(index.keys_of(document))
        for key in _in_steps(op, collection, keys):
            sums.add(key, rid)
        if alive:
            found.keys[index.name] = found.keys.get(index.name, 0) + len(keys)


def _in_steps(op: OperationContext, collection: Collection, keys: Iterable[bytes]) -> Iterator[bytes]:
    """The keys of one document, of which there may be millions; others run after _STEP_KEYS of them."""
    left = _STEP_KEYS
    for key in keys:
        if left == 0:
            left = _STEP_KEYS
            op.give_way()
            _check_alive(op, collection)
        left -= 1
        yield key


def _check_entries(op: OperationContext, collection: Collection, index: CollectionIndex, found: _Findings) -> None:
    """Checks that an index has the entries of all documents, and no others."""
    if not index.has_keys:
        return
    sums = found.sums.setdefault(index.name, EntrySums())
    after: tuple[bytes, int] | None = None
    while index in collection.indexes:
        entries, more = op.recovery_unit.index(index).scan(ALL_KEYS, after, _BATCH, _STEP_BYTES)
        for key, rid in entries:
            sums.subtract(key, rid)
        if not more:
            break
        after = entries[-1]
        op.give_way()
        _check_alive(op, collection)
    if sums.differ():
        _find_missing(op, collection, index, sums, found)
        _find_extra(op, collection, index, sums, found)


def _find_missing(
    op: OperationContext, collection: Collection, index: CollectionIndex, sums: EntrySums, found: _Findings
) -> None:
    """Looks for each entry of the records whose sums differ."""
    for record in _stored(op, collection, None):
        if index not in collection.indexes:
            return
        if sums.differ_at(record[0]):
            _find_missing_of(op, collection, index, record, found)


def _find_missing_of(
    op: OperationContext, collection: Collection, index: CollectionIndex, record: Record, found: _Findings
) -> None:
    rid, document, ts_s, ttl_s = record
    try:
        validate_document(document)
    except CommandError:
        return  # its keys are not known; it is reported
    missing = 0
    for key in _in_steps(op, collection, dict.fromkeys(index.keys_of(document))):
        if has_entry(op.recovery_unit.index(index), key, rid):
            continue
        # If the record was changed since it was read, its entries were changed with it.
        if index not in collection.indexes or op.recovery_unit.records(collection).find_record(rid) != record:
            return
        if has_entry(op.recovery_unit.index(index), key, rid):
            continue  # the record was changed twice
        if not missing:
            found.note_broken(index, rid, found.missing)
        missing += 1
    if not is_expired(ts_s, ttl_s, collection.default_ttl_s, op.service.now_s()):
        found.keys[index.name] = found.keys.get(index.name, 0) - missing


def _find_extra(
    op: OperationContext, collection: Collection, index: CollectionIndex, sums: EntrySums, found: _Findings
) -> None:
    """Compares the entries of records whose sums differ with the records, one by one."""
    after: tuple[bytes, int] | None = None
    while index in collection.indexes:
        with Undivided():  # entries and records are of one instant
            _check_alive(op, collection)
            after, more = _compare_some(op, collection, index, after, sums, found)
        if not more:
            return
        op.give_way()


def _compare_some(
    op: OperationContext,
    collection: Collection,
    index: CollectionIndex,
    after: tuple[bytes, int] | None,
    sums: EntrySums,
    found: _Findings,
) -> tuple[tuple[bytes, int] | None, bool]:
    """The last entry that was compared, and whether there are more."""
    size = 0
    entries, more = op.recovery_unit.index(index).scan(ALL_KEYS, after, _BATCH, _STEP_BYTES)
    wanted: dict[int, set[bytes]] = {}
    for entry in entries:
        key, rid = after = entry
        if not sums.differ_at(rid):
            continue
        if rid not in wanted:
            try:
                record = op.recovery_unit.records(collection).find_record(rid)
            except DamagedRecord:
                continue  # its keys are not known; it is reported
            size += 0 if record is None else len(record[1])
            wanted[rid] = set() if record is None else set(index.keys_of(record[1]))
        if key not in wanted[rid] and _is_extra(op, collection, index, key, rid):
            found.note_broken(index, rid, found.extra)
            found.keys[index.name] = found.keys.get(index.name, 0) + 1
        if size >= _STEP_BYTES:
            return after, True
    return after, more


def _is_extra(op: OperationContext, collection: Collection, index: CollectionIndex, key: bytes, rid: int) -> bool:
    """Whether an index has an entry that its record does not have. Other servers of the same store may write between
    two statements, also in an undivided block: so the record must be the same before and after the entry is found."""
    records = op.recovery_unit.records(collection)
    try:
        record = records.find_record(rid)
        if record is not None and key in index.keys_of(record[1]):
            return False
        return has_entry(op.recovery_unit.index(index), key, rid) and records.find_record(rid) == record
    except DamagedRecord:
        return False  # it is reported


def _reply(collection: Collection, found: _Findings) -> Reply:
    details: dict[str, Value] = {}
    keys: dict[str, Value] = {}
    for index in collection.listed_indexes:
        if index.ready:
            spec = index.descriptor.kind.listed(index.descriptor.spec)
            details[index.name] = encode({"valid": index.name not in found.broken_indexes, "spec": spec})
            keys[index.name] = integer(found.keys.get(index.name, 0))
    warnings: list[Value] = []
    errors: list[Value] = []
    if found.non_compliant:
        warnings.append(
            "Detected one or more documents not compliant with the collection's schema."
            " See nNonCompliantDocuments for their number."
        )
    if found.not_utf8:
        warnings.append(
            "Detected one or more documents not conformant to the BSON specification: names or strings that are no"
            " UTF-8."
        )
    if found.corrupt:
        errors.append("Detected one or more invalid documents. See corruptRecords.")
    if found.missing:
        errors.append("Detected one or more missing index entries. See missingIndexEntries.")
    if found.extra:
        errors.append("Detected one or more extra index entries. See extraIndexEntries.")
    return {
        "ns": collection.namespace,
        "uuid": collection.uuid,
        "nInvalidDocuments": integer(len(found.corrupt)),
        "nNonCompliantDocuments": integer(found.non_compliant),
        "nrecords": integer(found.records),
        "nIndexes": len(details),
        "keysPerIndex": encode(keys),
        "indexDetails": encode(details),
        "valid": not errors,
        "repaired": False,
        "repairMode": "None",
        "warnings": warnings,
        "errors": errors,
        "extraIndexEntries": found.extra,
        "missingIndexEntries": found.missing,
        "corruptRecords": found.corrupt,
    }


# validateDBMetadata

# Not part of the Stable API, version 1. Source: MongoDB's "Stable API" page.
_UNSTABLE_INDEX_OPTIONS: Final = ("background", "bucketSize", "sparse", "storageEngine")


class ValidateDBMetadataRequest(NamedTuple):
    command: Annotated[Value, Field("validateDBMetadata", ONE)]
    api: Annotated[bytes, Field("apiParameters", DOCUMENT_FIELD)]
    database: Annotated[str | None, Field("db", TEXT)] = None
    collection: Annotated[str | None, Field("collection", TEXT)] = None


class ApiParameters(NamedTuple):
    version: Annotated[str, Field("version", TEXT)]
    strict: Annotated[bool, Field("strict", STRICT_BOOL)] = False
    deprecation_errors: Annotated[bool, Field("deprecationErrors", STRICT_BOOL)] = False


_API: Final[RequestParser] = parser_for("validateDBMetadata.apiParameters", ApiParameters)


def _validate_metadata_needs(op: OperationContext, request: ValidateDBMetadataRequest) -> list[Need]:
    if request.database is None:
        return [Need(ALL_DATABASES, "validate")]
    return collection_needs(request.database, request.collection or "", "validate")


@command(
    "validateDBMetadata",
    ValidateDBMetadataRequest,
    access=needing(_validate_metadata_needs),
    help="Lists indexes and views that do not conform to the Stable API.",
)
def validate_db_metadata(op: OperationContext, request: ValidateDBMetadataRequest) -> Reply:
    """`{apiVersionErrors: [{ns, code, codeName, errmsg}]}` for the indexes and views of a database, or of all.

    Without `strict` there are no errors. APIVersionError (322) for a version other than "1".
    """
    api = ApiParameters._make(_API.parse(request.api, [], None))
    if api.version != "1":
        raise CommandError(ErrorCode.APIVersionError, 'API version must be "1"')
    if request.database is not None:
        _check_database(request.database)
    errors: list[Value] = []
    if api.strict:
        for database in op.catalog.database_names() if request.database is None else [request.database]:
            for collection in op.collections(database):
                op.give_way()
                if request.collection is None or request.collection == collection.name:
                    _add_index_errors(collection, errors)
            for view in op.compute(partial(op.catalog.views, database)):
                op.give_way()
                if request.collection is None or request.collection == view.name:
                    _add_view_errors(view, errors)
    return {"apiVersionErrors": errors}


def _check_database(name: str) -> None:
    """InvalidNamespace (73), 13280 or 28539 for an invalid database name."""
    if name == "":
        raise CommandError(28539, "db name is empty")
    if "." in name or "\0" in name or len(encode_text(name)) > MAX_DATABASE_NAME_BYTES:
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid database name: '{name}'")
    if any(character in name for character in '/\\ "'):
        raise CommandError(13280, f"Invalid database name: '{name}'")


def _api_error(namespace: str, message: str) -> Value:
    return {
        "ns": namespace,
        "code": int(ErrorCode.APIStrictError),
        "codeName": ErrorCode.APIStrictError.name,
        "errmsg": message,
    }


def _add_index_errors(collection: Collection, errors: list[Value]) -> None:
    for index in collection.indexes:
        descriptor = index.descriptor
        unstable = any(isinstance(direction, str) and direction == "text" for direction in descriptor.directions)
        for option in _UNSTABLE_INDEX_OPTIONS:
            if get_value(descriptor.spec, option) is not MISSING:
                unstable = True
        if unstable:
            message = f"The index with name {index.name} is not allowed in API version 1."
            errors.append(_api_error(collection.namespace, message))


def _add_view_errors(view: View, errors: list[Value]) -> None:
    for stage in view.pipeline:
        assert isinstance(stage, bytes)
        name = first_field_name(stage)
        if not is_stable(name, get_value(stage, name)):
            errors.append(_api_error(view.namespace, f"stage {name} is not allowed in API Version 1"))
