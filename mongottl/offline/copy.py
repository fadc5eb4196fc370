"""Copying the data of a stopped server from one store into another: `mongottl copy`.

    records, index entries     as they are, in batches; the ids of records become 1, 2, 3, …
    catalog entries            last, in one unit of work: until then the target is as empty as it was before
    oplog, sessions            not at all: change streams, and retries of writes from before, cannot go on

Any two engines have the same contract, so nothing here knows which they are.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from mongottl.catalog.collection import Collection, CollectionIndex, record_store_ident
from mongottl.catalog.entries import (
    OPLOG_IDENT,
    SESSIONS_IDENT,
    collection_entries,
    is_collection_key,
    stored_collection,
)
from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.errors import MongottlError
from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import KeyEntry, RecordStore, SortedDataInterface

# Records and entries of one unit of work, and their bytes.
_BATCH: Final = 1000
_BATCH_BYTES: Final = 4 << 20
# Entries of the server itself that speak of the oplog of their store.
_OF_THE_OPLOG: Final = ("oplog", "sessions")


class CopyError(MongottlError):
    """Nothing can be copied, or the copy is not what was copied."""


class CopiedCollection(NamedTuple):
    """One collection that was copied: its name, its numbers of documents and indexes, the bytes of its documents."""

    namespace: str
    documents: int
    indexes: int
    size: int


class _RecordIds:
    """What the record ids of a store have become. Both ascend, so a few bytes for each are enough."""

    def __init__(self) -> None:
        self._old: array[int] = array("q")
        self._new: array[int] = array("q")
        self._are_same = True

    def add(self, old: list[int], new: list[int]) -> None:
        self._old.extend(old)
        self._new.extend(new)
        self._are_same = self._are_same and old == new

    def new(self, old: int) -> int:
        """CopyError for the id of no record."""
        if self._are_same:
            return old
        place = bisect_left(self._old, old)
        if place == len(self._old) or self._old[place] != old:
            raise CopyError(f"an index entry names record {old}, which is not there; `mongottl check` says more")
        return self._new[place]


def copy_data(source: StorageEngine, target: StorageEngine) -> Iterator[CopiedCollection]:
    """Copies all collections, each of which is returned when it is done, and at the end what the catalog says of them.

    CopyError if the target has collections, or a copy differs; the errors of both engines.
    """
    if any(is_collection_key(key) for key, _ in target.catalog_entries()):
        raise CopyError("the target has collections; name one that is empty")
    _drop_leftovers(target)
    entries, temporary = collection_entries(source)
    for entry in entries.values():
        yield _copy_collection(stored_collection(source, entry, []), target)
    left = {*temporary, *_OF_THE_OPLOG}
    with target.unit_of_work() as work:
        for key, value in source.catalog_entries():
            if key not in left:
                target.put_catalog_entry(key, value)
        work.commit()
    target.flush()


def _drop_leftovers(target: StorageEngine) -> None:
    """Drops what an interrupted copy has left."""
    with target.unit_of_work() as work:
        for ident in target.idents():
            if ident != SESSIONS_IDENT and not ident.startswith(OPLOG_IDENT):
                target.drop_ident(ident)
        work.commit()
    while target.drop_some(_BATCH):
        pass


def _copy_collection(collection: Collection, target: StorageEngine) -> CopiedCollection:
    with target.unit_of_work() as work:
        if collection.shard_key is None:
            store = target.create_record_store(record_store_ident(collection.number))
        else:
            store = target.create_partitioned_store(record_store_ident(collection.number))
            store.partition_by(collection.shard_key.value_of)
        work.commit()
    ids = _copy_records(collection.store, store, target)
    indexes = 0
    for index in collection.indexes:
        indexes += 1
        if index.data is not None:
            _copy_entries(collection, index, index.data, ids, target)
    if (store.count(), store.size_bytes()) != (collection.store.count(), collection.store.size_bytes()):
        raise CopyError(f"the copy of {collection.namespace} differs from it; `mongottl check` says more")
    return CopiedCollection(collection.namespace, store.count(), indexes, store.size_bytes())


def _copy_records(source: RecordStore, store: RecordStore, target: StorageEngine) -> _RecordIds:
    ids = _RecordIds()
    after = 0
    more = True
    while more:
        records, more = source.scan(after, _BATCH, True, _BATCH_BYTES)
        if records:
            after = records[-1][0]
            with target.unit_of_work() as work:
                new = store.insert_records([(document, ts_s, ttl_s) for _, document, ts_s, ttl_s in records])
                work.commit()
            ids.add([record[0] for record in records], new)
            _maintain(target)
    return ids


def _copy_entries(
    collection: Collection, index: CollectionIndex, source: SortedDataInterface, ids: _RecordIds, target: StorageEngine
) -> None:
    with target.unit_of_work() as work:
        data = target.create_sorted_data(index.ident, source.unique, record_store_ident(collection.number))
        work.commit()
    copied = 0
    after: KeyEntry | None = None
    more = True
    while more:
        entries, more = source.scan(ALL_KEYS, after, _BATCH, _BATCH_BYTES)
        if entries:
            after = entries[-1]
            copied += len(entries)
            with target.unit_of_work() as work:
                data.insert([(key, ids.new(record_id)) for key, record_id in entries])
                work.commit()
            _maintain(target)
    if data.count_range(ALL_KEYS) != copied:
        raise CopyError(f"the copy of index {index.name} of {collection.namespace} differs from it")


def _maintain(engine: StorageEngine) -> None:
    if engine.maintenance_due:
        engine.maintain()
