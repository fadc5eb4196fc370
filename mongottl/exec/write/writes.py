"""Inserting, updating and deleting records: documents, index entries, `_ts` and `ttl` in one unit of work.

An expired record that is not purged yet causes no duplicate key error: if it has a unique key that a write needs, it is
deleted first, and the write is tried again.
"""

from functools import partial
from typing import Final

from mongottl.catalog.collection import LONG_DOCUMENT_BYTES, Collection, CollectionIndex
from mongottl.catalog.validator import Validator
from mongottl.document.build import DocumentBuilder, encode_fields
from mongottl.document.interrupt import MANY_BYTES, check_interrupt, in_undivided
from mongottl.document.keystring import encode_value
from mongottl.document.types import (
    ARRAY,
    MAX_DOCUMENT_BYTES,
    OBJECT_ID,
    REGEX,
    STRING,
    TIMESTAMP,
    UNDEFINED,
    BinData,
    Value,
    type_name,
)
from mongottl.document.utf8 import encode_text
from mongottl.document.validate import check_depth
from mongottl.document.walk import ElementCursor, fields, find_field_at
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, WriteError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.stages.clustered_scan import check_nameable
from mongottl.exec.unit.write_unit import WriteUnit
from mongottl.exec.write.capped import make_room
from mongottl.exec.write.keys_ahead import MOST_OVERTAKEN, KeysAhead
from mongottl.exec.write.sharding import check_has_shard_key, check_keeps_shard_key
from mongottl.exec.write.validation import InvalidDocument, accepts, all_valid, check_document
from mongottl.query.update import UpdateDriver, with_timestamps
from mongottl.storage.errors import ClaimedByTransaction, DuplicateKey, MustBeAlone, WriteConflict
from mongottl.storage.stores import KeyEntry, NewRecord, Record, SortedDataInterface
from mongottl.ttl.policy import meaningful_ttl_s
from mongottl.versions import DOLLAR_FIELDS, SYNTAX

_MAX_CONFLICTS: Final = 100
_MAX_RECORD_ID_BYTES: Final = 8 * 1024 * 1024
_EMPTY_TIMESTAMP: Final = bytes(8)
# Where the name of a document's first field begins.
_FIRST_NAME_AT: Final = 5


def prepare_documents(op: OperationContext, collection: Collection | None, documents: list[bytes]) -> list[bytes]:
    """Documents that a client inserts, as they will be stored: see `prepare_document`."""
    return [prepare_document(op, collection, document) for document in documents]


def prepare_document(op: OperationContext, collection: Collection | None, document: bytes) -> bytes:
    """A document that a client inserts, as it will be stored: with `_id` as its first field.

    collection: None if it does not exist yet; a refused document does not make it.

    Empty timestamps among its root fields are replaced by new ones of the operation's time, unless its command keeps
    them. BSONObjectTooLarge (10334) beyond 16 MiB, InvalidIdField (53) for an `_id` of a type that is not allowed,
    BadValue (2) for two `_id` fields, Overflow (15) beyond 180 levels. BadValue (2) for a root field that begins with
    `$`, where the announced version stores none.
    """
    if len(document) < MANY_BYTES:
        return _prepared(op, collection, document)
    # A part of an evaluation: it may have millions of fields.
    return op.compute(partial(_prepared, op, collection, document))


def _prepared(op: OperationContext, collection: Collection | None, document: bytes) -> bytes:
    if op.service.refuses_dollar_fields:
        _check_root_names(op, document)
    if len(document) > op.service.bounds.max_document_bytes and not _takes_large_document(op, collection, document):
        text = f"object to insert too large. size in bytes: {len(document)}, max size: {MAX_DOCUMENT_BYTES}"
        error = WriteError(ErrorCode.BSONObjectTooLarge, text)
        raise op.service.dialect.document_too_large(len(document), error)
    if len(document) > op.service.bounds.deep_bytes:
        _check_levels(op, document)
    # As a number: a search for bytes by `in` costs an exception inside the interpreter.
    if TIMESTAMP in document and _EMPTY_TIMESTAMP in document and not op.write_options.keeps_empty_timestamps:
        document = with_timestamps(document, op.service.timestamps, op.now_ms)
    type_code, pos = find_field_at(document, 0, b"_id")
    if type_code == 0:
        return with_new_id(op, document)
    if type_code != OBJECT_ID:
        check_new_id(op, document, int(type_code), int(pos))
        if type_code in (ARRAY, REGEX, UNDEFINED):
            raise WriteError(ErrorCode.InvalidIdField, f"can't use a value of type {type_name(int(type_code))} for _id")
        check_id(document, int(type_code), int(pos))
    if document.rfind(b"_id\0") > _FIRST_NAME_AT and _has_two_ids(document):
        raise WriteError(ErrorCode.BadValue, "can't have multiple _id fields in one document")
    if document[_FIRST_NAME_AT : _FIRST_NAME_AT + 4] == b"_id\0":
        return document
    return _with_id_first(document)


def _check_root_names(op: OperationContext, document: bytes) -> None:
    features = op.service.features
    cursor = ElementCursor(document, 0)
    while cursor.next():
        if document[cursor.name_start] == 0x24:  # "$"
            text = f"Document can't have $ prefixed field names: {cursor.name()}"
            what_helps = "" if features is None else features.advice(SYNTAX, DOLLAR_FIELDS)
            raise WriteError(ErrorCode.BadValue, text, advice=what_helps)


def with_new_id(op: OperationContext, document: bytes) -> bytes:
    """The document with a new ObjectId as its `_id`."""
    builder = DocumentBuilder()
    builder.append("_id", op.service.object_ids.generate(op.now_s))
    builder.append_raw_element(document[4:-1])
    return builder.finish()


def _has_two_ids(document: bytes) -> bool:
    cursor = ElementCursor(document, 0)
    found = 0
    while cursor.next():
        if cursor.name_is(b"_id"):
            found += 1
    return found > 1


def _with_id_first(document: bytes) -> bytes:
    builder = DocumentBuilder()
    rest: list[bytes] = []
    cursor = ElementCursor(document, 0)
    found = False
    while cursor.next():
        if not found and cursor.name_is(b"_id"):
            builder.append_raw_element(cursor.raw_element())
            found = True
        else:
            rest.append(cursor.raw_element())
    builder.append_raw_element(b"".join(rest))
    return builder.finish()


def _check_levels(op: OperationContext, document: bytes) -> None:
    """Overflow (15) beyond 180 levels of documents and arrays, or the error of a dialect that takes fewer."""
    try:
        check_depth(document, op.service.bounds.max_depth)
    except CommandError as error:
        raise op.service.dialect.document_too_deep(document, error) from None


def _takes_large_document(op: OperationContext, collection: Collection | None, document: bytes) -> bool:
    """Whether a collection takes a document that is longer than most may be."""
    has_large_documents = collection is None or collection.options.large_documents
    return len(document) <= op.service.dialect.max_document_bytes(has_large_documents)


def check_size(op: OperationContext, collection: Collection, document: bytes) -> None:
    """BSONObjectTooLarge (10334) for a document beyond 16 MiB, Overflow (15) beyond 180 levels; or the errors
    of the dialect.

    Also a short document is walked: what an update takes over from a damaged one, which an older folder has without a
    checksum, would be stored with a checksum that is right.
    """
    _check_levels(op, document)
    if len(document) > op.service.bounds.max_document_bytes and not _takes_large_document(op, collection, document):
        text = (
            f"BSONObj size: {len(document)} (0x{len(document):X}) is invalid. Size must be between 0 and"
            f" {MAX_DOCUMENT_BYTES}({MAX_DOCUMENT_BYTES // 1024 // 1024}MB)"
        )
        error = WriteError(ErrorCode.BSONObjectTooLarge, text)
        raise op.service.dialect.document_too_large(len(document), error)


def check_new_id(op: OperationContext, document: bytes, type_code: int, pos: int) -> None:
    """`Dialect.id_too_long` for a string that is too long for an `_id`. type_code, pos: of its value."""
    most = op.service.bounds.max_id_bytes
    if type_code == STRING and most > 0:
        length = int.from_bytes(document[pos : pos + 4], "little") - 1
        if length > most:
            raise op.service.dialect.id_too_long(length)


def check_id(document: bytes, type_code: int, pos: int) -> None:
    """InvalidIdField (53) for an array, regex or undefined; DollarPrefixedFieldName (52) for `$` fields in `_id`.

    type_code, pos: of the `_id` value.
    """
    if type_code in (ARRAY, REGEX, UNDEFINED):
        raise WriteError(
            ErrorCode.InvalidIdField,
            f"The '_id' value cannot be of type {type_name(type_code)}",
        )
    if type_code == 3:
        cursor = ElementCursor(document, pos)
        while cursor.next():
            if document[cursor.name_start : cursor.name_start + 1] == b"$" and not (
                cursor.name_is(b"$ref") or cursor.name_is(b"$id") or cursor.name_is(b"$db")
            ):
                raise WriteError(
                    ErrorCode.DollarPrefixedFieldName,
                    f"_id fields may not contain '$'-prefixed fields: {cursor.name()} is not valid for storage.",
                )


def insert_batch(
    op: OperationContext, collection: Collection, documents: list[bytes], passed: Validator | None = None
) -> None:
    """Inserts prepared documents in one unit of work, all or none, also where `check_interrupt` ends the operation.

    passed: the validator that has let them pass already.

    The engine's DuplicateKey, or DocumentValidationFailure (121) if the validator refuses one of them: the caller then
    inserts one by one.
    """
    with KeysAhead() as ahead:
        for document in documents:
            if len(document) >= collection.ahead_bytes:
                ahead.make(collection.writable_indexes, document)
        validator = collection.validator
        if validator is not None and validator is not passed:
            passed = _validated_one_by_one(op, collection, documents, validator)
        try:
            _insert_batch(op, collection, documents, passed)
        except MustBeAlone:
            _insert_batch(op, collection, documents, validator)


def _validated_one_by_one(
    op: OperationContext, collection: Collection, documents: list[bytes], validator: Validator
) -> Validator | None:
    """Checks documents before there is a unit of work if one of them takes long, so that others run meanwhile. The
    validator that they have passed; None if another has taken its place, or if none takes long. The error is that of
    `insert_batch`."""
    if op.write_options.bypass_validation or not any(validator.takes_long(document) for document in documents):
        return None
    for document in documents:
        if collection.validator is not validator:
            return None
        if not accepts(op, validator, document):
            raise WriteError(ErrorCode.DocumentValidationFailure, "Document failed validation")
        if not in_undivided():  # `$out` has such a block around the insertion of its documents
            op.give_way()
    return validator


def _insert_batch(
    op: OperationContext, collection: Collection, documents: list[bytes], passed: Validator | None
) -> None:
    """passed: the validator that has let the documents pass."""
    ttls = [_ttl_of(op, document) for document in documents]
    unit = op.recovery_unit.write(collection)  # before all else: the collection may be changed until it has one
    if collection.time_series is not None:
        for document in documents:
            collection.time_series.check(document)
    if collection.shard_key is not None:
        for document in documents:
            check_has_shard_key(op, collection.shard_key, document)
    validator = collection.validator
    if validator is not None and validator is not passed and not all_valid(op, collection, documents):
        raise WriteError(ErrorCode.DocumentValidationFailure, "Document failed validation")
    ts_s = unit.now_s
    _insert_rows(op, unit, documents, [(documents[i], ts_s, ttls[i]) for i in range(len(documents))])


def _ttl_of(op: OperationContext, document: bytes) -> int:
    """`meaningful_ttl_s` of a document before there is a unit of work; others may run."""
    if len(document) < MANY_BYTES:
        return int(meaningful_ttl_s(document))
    return op.compute(lambda: int(meaningful_ttl_s(document)))


def insert_copies(op: OperationContext, collection: Collection, rows: list[NewRecord]) -> None:
    """Inserts copies of records in one unit of work, all or none. They keep their `_ts` and `ttl`."""
    documents = [row[0] for row in rows]
    try:
        _insert_rows(op, op.recovery_unit.write(collection), documents, rows)
    except MustBeAlone:
        _insert_rows(op, op.recovery_unit.write(collection), documents, rows)


def _insert_rows(op: OperationContext, unit: WriteUnit, documents: list[bytes], rows: list[NewRecord]) -> None:
    """Inserts rows and their index entries. documents: the documents of the rows."""
    collection = unit.collection
    if collection.clustering is not None:
        for document in documents:
            _check_record_id(document)
    capped = collection.options.capped
    with unit:
        rids = unit.records.insert_records(rows)
        for index in collection.writable_indexes:
            _insert_keys(unit, index, documents, rids)
        if capped:
            make_room(unit)
        unit.record_inserted(rows)
        unit.commit()


def _check_record_id(document: bytes) -> None:
    """5894900 for an `_id` that is too long to be the record id of a clustered collection in mongod."""
    if len(document) <= _MAX_RECORD_ID_BYTES:
        return
    cursor = ElementCursor(document, 0)
    while cursor.next():
        if cursor.name_is(b"_id") and _record_id_bytes(cursor.decoded()) > _MAX_RECORD_ID_BYTES:
            raise WriteError(5894900, f"Size of RecordId is above limit of {_MAX_RECORD_ID_BYTES} bytes")


def _record_id_bytes(value: Value) -> int:
    """The size of an `_id` in mongod's KeyString: a string's length plus 2, binary data's length plus 7."""
    if isinstance(value, str):
        return len(encode_text(value)) + 2
    if isinstance(value, BinData):
        return len(value.data) + 7
    return len(encode_value(value))


def _insert_keys(unit: WriteUnit, index: CollectionIndex, documents: list[bytes], rids: list[int]) -> None:
    data = unit.index(index)
    entries: list[tuple[bytes, int]] = []
    size = 0
    for document, rid in zip(documents, rids, strict=True):
        size += len(document) * index.descriptor.key_weight
        if size >= LONG_DOCUMENT_BYTES:
            size = 0
            check_interrupt()
        if not index.covers_record(rid):
            continue
        for key in index.keys_of(document):
            entries.append((key, rid))
        if index.became_multikey():
            unit.record_multikey_change(index)
    if index.descriptor.prepare_unique:
        _refuse_duplicates(data, entries)
    data.insert(entries)
    unit.passed_keys(len(entries))


def insert_document(
    op: OperationContext, collection: Collection, document: bytes, passed: Validator | None = None
) -> None:
    """Inserts one prepared document. passed: the validator that has let it pass already.

    DuplicateKeyError (11000) if a record that is not expired has one of its unique keys, DocumentValidationFailure
    (121); ClaimedByTransaction.
    """
    if len(document) < collection.ahead_bytes:
        _insert_document(op, collection, document, passed)
        return
    with KeysAhead() as ahead:
        ahead.make(collection.writable_indexes, document)
        _insert_document(op, collection, document, passed)


def _insert_document(op: OperationContext, collection: Collection, document: bytes, passed: Validator | None) -> None:
    ttl_s = _ttl_of(op, document)
    capped = collection.options.capped
    unlogged: InvalidDocument | None = None
    for _ in range(_MAX_CONFLICTS):
        validator = collection.validator
        if validator is not None and validator is not passed and validator.takes_long(document):
            unlogged = check_document(op, collection, document)
            passed = validator
        unit = op.recovery_unit.write(collection)  # first: the collection may be changed until it has one
        if collection.time_series is not None:
            collection.time_series.check(document)
        if collection.shard_key is not None:
            check_has_shard_key(op, collection.shard_key, document)
        validator = collection.validator
        if validator is not None and validator is not passed:
            if validator.takes_long(document):
                continue  # it is a new one
            unlogged = check_document(op, collection, document)
            passed = validator
        if collection.clustering is not None:
            _check_record_id(document)
        try:
            with unit:
                rid = unit.records.insert_record(document, unit.now_s, ttl_s)
                for index in collection.writable_indexes:
                    if index.covers_record(rid):
                        keys = index.keys_of(document)
                        if index.became_multikey():
                            unit.record_multikey_change(index)
                        _insert_or_explain(unit, index, document, keys, rid)
                if capped:
                    make_room(unit)
                unit.record_inserted([(document, unit.now_s, ttl_s)])
                unit.commit()
        except _ExpiredDuplicate as duplicate:
            remove_expired(op, collection, duplicate.record)
            continue
        except ClaimedByTransaction:
            raise
        except WriteConflict:
            continue
        if unlogged is not None:
            unlogged.complete()
        return
    raise CommandError(ErrorCode.WriteConflict, "Too many conflicts with other writes; try again")


class _ExpiredDuplicate(Exception):
    """A unique key that a write needs belongs to an expired record, which must be deleted first."""

    def __init__(self, record: Record) -> None:
        self.record = record


def _insert_or_explain(unit: WriteUnit, index: CollectionIndex, document: bytes, keys: list[bytes], rid: int) -> None:
    """Adds index entries; a duplicate becomes _ExpiredDuplicate or a DuplicateKeyError that names key and value."""
    collection = unit.collection
    data = unit.index(index)
    try:
        if index.descriptor.prepare_unique:
            _refuse_duplicates(data, [(key, rid) for key in keys])
        if len(keys) == 1:
            data.insert_one(keys[0], rid)
        elif keys:
            data.insert([(key, rid) for key in keys])
            unit.passed_keys(len(keys))
    except DuplicateKey as duplicate:
        existing = unit.records.find_record(duplicate.existing_record_id)
        if existing is not None and unit.is_expired(existing):
            raise _ExpiredDuplicate(existing) from None
        if index.descriptor.clustered:
            check_nameable(document)
        raise duplicate_key_error(unit.service, collection, index, document, duplicate.key) from None


def _refuse_duplicates(data: SortedDataInterface, entries: list[tuple[bytes, int]]) -> None:
    """DuplicateKey for a key that another record has, in an index with `prepareUnique`, which may have duplicates."""
    held: dict[bytes, list[int]] = {}
    for key, rid in data.find_exact(list({key: True for key, _ in entries})):
        held.setdefault(key, []).append(rid)
    for position, (key, rid) in enumerate(entries):
        others = held.setdefault(key, [])
        for other in others:
            if other != rid:
                raise DuplicateKey(key, other, position)
        others.append(rid)


def remove_expired(op: OperationContext, collection: Collection, record: Record) -> None:
    """Deletes an expired record now instead of waiting for the reaper; no effect if it has changed meanwhile.

    ClaimedByTransaction.
    """
    unit = op.recovery_unit.write(collection)
    try:
        with unit:
            unit.delete([record], expired=True)
            unit.commit()
    except ClaimedByTransaction:
        raise
    except WriteConflict:
        return


def duplicate_key_error(
    service: ServiceContext, collection: Collection, index: CollectionIndex, document: bytes, key: bytes
) -> DuplicateKeyError:
    """The dialect's error of a key that another document has."""
    values = index.keys.values_of_key(document, key)
    pattern: list[tuple[str, Value]] = fields(index.descriptor.key)
    key_value = encode_fields([(name, value) for (name, _), value in zip(pattern, values, strict=True)])
    return service.dialect.duplicate_key(collection, index, key_value)


def update_record(
    op: OperationContext,
    collection: Collection,
    old: Record,
    document: bytes,
    by_server: bool = False,
    driver: UpdateDriver | None = None,
) -> Record:
    """Replaces a record's document; `_ts` becomes the time of the write. The new record.

    by_server: whether the server itself writes the document, which may then exceed the size limit of clients.
    driver: the update that made it, for the oplog.

    DuplicateKeyError (11000) if another record that is not expired has one of the new unique keys,
    DocumentValidationFailure (121) if the collection's validator refuses the changed document, WriteConflict if the
    record has changed or expired since it was read.
    """
    if not by_server:
        check_size(op, collection, document)
    if collection.shard_key is not None:
        replaces = driver is not None and driver.kind == "replacement"
        check_keeps_shard_key(op, collection, collection.shard_key, old[1], document, replaces)
    ttl_s = int(meaningful_ttl_s(document))
    passed: Validator | None = None
    unlogged: InvalidDocument | None = None
    changes = document != old[1]
    for _ in range(_MAX_CONFLICTS):
        validator = collection.validator
        if changes and validator is not None and validator is not passed and _takes_long(validator, old[1], document):
            unlogged = check_document(op, collection, document, old[1])
            passed = validator
        unit = op.recovery_unit.write(collection)
        if op.was_left:
            _check_unexpired(unit, [old])
        validator = collection.validator
        if changes and validator is not None and validator is not passed:
            if _takes_long(validator, old[1], document):
                continue  # it is a new one
            unlogged = check_document(op, collection, document, old[1])
            passed = validator
        new: Record = (old[0], document, unit.now_s, ttl_s)
        try:
            with unit:
                unit.records.update_record(old, new)
                if changes:
                    for index in collection.writable_indexes:
                        if index.covers_record(old[0]):
                            _move_keys(unit, index, old, document)
                unit.record_updated([old[1]], [(document, new[2], ttl_s)], driver)
                unit.commit()
        except _ExpiredDuplicate as duplicate:
            remove_expired(op, collection, duplicate.record)
            continue
        if unlogged is not None:
            unlogged.complete()
        return new
    raise CommandError(ErrorCode.WriteConflict, "Too many conflicts with expired documents; try again")


def _takes_long(validator: Validator, before: bytes, after: bytes) -> bool:
    return validator.takes_long(before) or validator.takes_long(after)


def update_records(
    op: OperationContext, unit: WriteUnit, changes: list[tuple[Record, bytes]], driver: UpdateDriver | None
) -> None:
    """Replaces the documents of several records, all or none, in `unit`, which it begins and commits.

    driver: the update that has made the documents, for the oplog; None if they replace the others.

    DuplicateKeyError (11000), DocumentValidationFailure (121), or WriteConflict if one of them has changed or expired
    since it was read, or if an expired record has a key that is needed: the caller then updates one by one.
    """
    if not changes:
        return
    collection = unit.collection
    if op.was_left:
        _check_unexpired(unit, [record for record, _ in changes])
    if collection.shard_key is not None:
        for record, document in changes:
            check_keeps_shard_key(op, collection, collection.shard_key, record[1], document, False)
    if collection.validator is not None:
        changed = [document for record, document in changes if document != record[1]]
        if not all_valid(op, collection, changed):
            raise WriteError(ErrorCode.DocumentValidationFailure, "Document failed validation")
    old: list[Record] = []
    new: list[Record] = []
    rows: list[NewRecord] = []
    now_s = unit.now_s
    for record, document in changes:
        check_size(op, collection, document)
        ttl_s = int(meaningful_ttl_s(document))
        old.append(record)
        new.append((record[0], document, now_s, ttl_s))
        rows.append((document, now_s, ttl_s))
    with unit:
        unit.records.update_records(old, new)
        for index in collection.writable_indexes:
            _move_all_keys(unit, index, changes)
        unit.record_updated([record[1] for record in old], rows, driver)
        unit.commit()


def _move_all_keys(unit: WriteUnit, index: CollectionIndex, changes: list[tuple[Record, bytes]]) -> None:
    """`_move_keys` of several records. All at once, unless one may need a key that another one frees: that is for their
    order to say."""
    is_unique = index.descriptor.unique or index.descriptor.prepare_unique
    gone: list[KeyEntry] = []
    fresh: list[KeyEntry] = []
    size = 0
    for record, document in changes:
        size += len(document) * index.descriptor.key_weight
        if size >= LONG_DOCUMENT_BYTES:
            size = 0
            check_interrupt()
        if document == record[1] or not index.covers_record(record[0]):
            continue
        if is_unique:
            try:
                _move_keys(unit, index, record, document)
            except _ExpiredDuplicate:
                raise WriteConflict("an expired document is in the way") from None
        else:
            removed, added = _moved_keys(unit, index, record, document)
            gone += [(key, record[0]) for key in removed]
            fresh += [(key, record[0]) for key in added]
    if gone:
        unit.index(index).remove(gone)
    if fresh:
        unit.index(index).insert(fresh)
    unit.passed_keys(len(gone) + len(fresh))


def _move_keys(unit: WriteUnit, index: CollectionIndex, old: Record, document: bytes) -> None:
    """Removes the index entries that only the old document has, and inserts those that only the new one has."""
    gone, fresh = _moved_keys(unit, index, old, document)
    if gone:
        unit.index(index).remove([(key, old[0]) for key in gone])
        unit.passed_keys(len(gone))
    if fresh:
        _insert_or_explain(unit, index, document, fresh, old[0])


def _moved_keys(
    unit: WriteUnit, index: CollectionIndex, old: Record, document: bytes
) -> tuple[list[bytes], list[bytes]]:
    """The keys that only the old document has, and those that only the new one has."""
    if index.has_same_keys(old[1], document):
        return [], []
    before = index.keys_of(old[1])
    after = index.keys_of(document)
    unit.passed_keys(len(before) + len(after))
    if index.became_multikey():
        unit.record_multikey_change(index)
    if before == after:
        return [], []
    known = set(before)
    return list(known.difference(after)), [key for key in after if key not in known]


def delete_batch(op: OperationContext, collection: Collection, records: list[Record], overtaken: int = 0) -> None:
    """Deletes records in one unit of work. WriteConflict if one of them has changed or expired since it was read.

    overtaken: how often others have changed them before this delete could.
    """
    with KeysAhead() as ahead:
        if overtaken < MOST_OVERTAKEN:
            for record in records:
                if len(record[1]) >= collection.ahead_bytes:
                    ahead.make(collection.writable_indexes, record[1])
        _delete_batch(op, collection, records)


def _delete_batch(op: OperationContext, collection: Collection, records: list[Record]) -> None:
    unit = op.recovery_unit.write(collection)
    if op.was_left:
        _check_unexpired(unit, records)
    with unit:
        unit.delete(records)
        unit.commit()


def _check_unexpired(unit: WriteUnit, records: list[Record]) -> None:
    """WriteConflict if one of these records has expired since it was read, as it may have if others have run. Writing
    them finds out whether they have changed."""
    for record in records:
        if unit.is_expired(record):
            raise WriteConflict("the document has expired")
