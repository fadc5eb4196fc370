"""Building indexes over collections that are in use.

The records are read in the order of their ids, in batches, and others run between two batches. Both sides keep to one
rule (`IndexEntry.covers_record`), so that the index is exact at the end:

    record id   1 ............ built_through ............ build_end ............►
                the build is     the build will visit      newer than the build:
                done with them;  them: writes leave        writes maintain
                writes maintain  the index alone           the index

`build_end` is the highest id at the start, so the build ends however fast new records come.

An unfinished index is in the collection's list but not in the stored catalogue: a crash leaves nothing of it but data
that the next start drops.
"""

from typing import TYPE_CHECKING, Final

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.index_kinds import BTREE
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode
from mongottl.exec.expiry import delete_records
from mongottl.exec.stages import FIRST_BATCH, next_batch_size
from mongottl.exec.writes import duplicate_key_error
from mongottl.storage.interface import (
    MAX_RECORD_ID,
    DuplicateKey,
    EngineUnavailable,
    Record,
    WriteConflict,
    WriteUnitOfWork,
)
from mongottl.ttl.policy import is_expired

if TYPE_CHECKING:
    from mongottl.exec.context import OperationContext, Steps

# Records of one batch: a millisecond or two for one index.
BUILD_BATCH: Final = 256


def build_indexes(
    op: "OperationContext",
    collection: Collection,
    descriptors: list[IndexDescriptor],
    batch: int = BUILD_BATCH,
    replaced: IndexEntry | None = None,
) -> "Steps[list[IndexEntry]]":
    """Builds indexes in one pass over the collection, all or none; the caller knows that they may be made.

    batch: records between two steps at most; fewer where their keys take long. replaced: an index that the only new
    one takes the place of.
    DuplicateKeyError (11000) where living documents share a unique key; CannotIndexParallelArrays (171);
    IndexBuildAborted (276) if one of them, or the collection, is dropped meanwhile; MaxTimeMSExpired (50).
    Nothing of them is left after an error.
    """
    started: list[IndexEntry] = []
    try:
        for descriptor in descriptors:
            started.append(op.catalog.start_index(collection, descriptor))
        op.service.note_write()
        built = [index for index in started if index.data is not None]
        if built:
            yield from _fill(op, collection, built, batch)
        if replaced is not None and replaced not in collection.indexes:
            raise CommandError(ErrorCode.IndexBuildAborted, _failed(collection, f"{replaced.name} was dropped"))
        op.catalog.finish_indexes(collection, started, replaced)
    except BaseException:
        _discard(op, collection, started)
        raise
    op.service.note_write()
    return started


def _discard(op: "OperationContext", collection: Collection, started: list[IndexEntry]) -> None:
    left = [index for index in started if index in collection.indexes]
    if not left or collection.dropped:
        return
    try:
        op.catalog.remove_indexes(collection, left)
    except (EngineUnavailable, WriteConflict):
        op.catalog.abandon_indexes(collection, left)
    op.service.note_write()


def _fill(op: "OperationContext", collection: Collection, indexes: list[IndexEntry], batch: int) -> "Steps[None]":
    last = collection.store.scan(MAX_RECORD_ID, 1, False)
    build_end = last[0][0] if last else 0
    for index in indexes:
        index.build_end = build_end
    built_through = 0
    # Keys of a text, a geometry or a whole document cost a hundred times those of a number.
    costly = any(index.descriptor.kind is not BTREE for index in indexes)
    size = min(batch, FIRST_BATCH) if costly else batch
    while built_through < build_end:
        started_s = op.service.clock.monotonic_s()
        records = collection.store.scan(built_through, size)
        if not records:
            return  # what was left of them has been deleted
        _add_batch(op, collection, indexes, records)
        built_through = records[-1][0]
        for index in indexes:
            index.built_through = built_through
        size = min(batch, next_batch_size(op, size, started_s))
        yield None
        op.check_interrupt()
        _check_wanted(collection, indexes)


def _check_wanted(collection: Collection, indexes: list[IndexEntry]) -> None:
    """IndexBuildAborted (276) if the collection or an index was dropped while others ran."""
    for index in indexes:
        if collection.dropped or index not in collection.indexes:
            raise CommandError(
                ErrorCode.IndexBuildAborted, _failed(collection, f"index '{index.name}' or its collection was dropped")
            )


def _failed(collection: Collection, reason: str) -> str:
    return f"Index build failed: Collection {collection.namespace} :: caused by :: {reason}"


def _add_batch(
    op: "OperationContext", collection: Collection, indexes: list[IndexEntry], records: list[Record]
) -> None:
    """Adds the keys of a batch to all indexes, in one unit of work."""
    purged = 0
    try:
        with op.service.engine.unit_of_work() as work:
            for index in indexes:
                gone = _add_keys(op, work, collection, index, records)
                if gone:
                    records = [record for record in records if record[0] not in gone]
                    purged += len(gone)
            work.commit()
    except CommandError as error:
        kind = DuplicateKeyError if isinstance(error, DuplicateKeyError) else CommandError
        raise kind(error.code, _failed(collection, error.message), error.details) from None
    op.service.metrics.ttl_deleted_documents += purged
    op.service.note_write()


def _add_keys(
    op: "OperationContext", work: WriteUnitOfWork, collection: Collection, index: IndexEntry, records: list[Record]
) -> set[int]:
    """Adds the keys of some records; the ids of expired records that stood in the way, and which it has deleted."""
    data = index.data
    assert data is not None
    entries: list[tuple[bytes, int]] = []
    keys_of: list[list[bytes]] = []
    for record in records:
        keys = index.keys_of(record[1])
        if index.saw_news():
            op.catalog.note_news(collection, index, work)
        keys_of.append(keys)
        for key in keys:
            entries.append((key, record[0]))
    try:
        data.insert(entries)
    except DuplicateKey:
        return _add_keys_singly(op, collection, index, records, keys_of)
    return set()


def _add_keys_singly(
    op: "OperationContext",
    collection: Collection,
    index: IndexEntry,
    records: list[Record],
    keys_of: list[list[bytes]],
) -> set[int]:
    """The same record by record. Of two that share a key an expired one gives way; DuplicateKeyError if none is."""
    data = index.data
    assert data is not None
    default_ttl_s = collection.default_ttl_s
    gone: set[int] = set()
    for record, keys in zip(records, keys_of, strict=True):
        while record[0] not in gone:
            try:
                data.insert([(key, record[0]) for key in keys])
                break
            except DuplicateKey as duplicate:
                existing = collection.store.find_record(duplicate.existing_record_id)
                if existing is not None and is_expired(existing[2], existing[3], default_ttl_s, op.now_s):
                    corpse = existing
                elif is_expired(record[2], record[3], default_ttl_s, op.now_s):
                    corpse = record
                else:
                    raise duplicate_key_error(collection, index, record[1], duplicate.key) from None
                delete_records(op.service, collection, [corpse])
                gone.add(corpse[0])
    return gone
