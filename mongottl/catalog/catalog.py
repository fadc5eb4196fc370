"""The catalog: every database and collection, in memory and in the storage engine.

A database exists while it has a collection. Each change is one unit of work of the engine, and is made in memory only
after the commit, so both always agree. An index that was still being built when the server stopped is not in the stored
catalog; its data is dropped at the next start. Keys of collated indexes that were made by another version of ICU are
rebuilt then (`rekeying`).
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from mongottl.catalog.array_paths import ArrayPaths
from mongottl.catalog.change_kinds import CREATE, CREATE_INDEXES, DROP, DROP_INDEXES, RENAME
from mongottl.catalog.collection import (
    Collection,
    CollectionIndex,
    IndexMarks,
    index_ident,
    record_store_ident,
)
from mongottl.catalog.entries import (
    OPLOG_IDENT,
    SESSIONS_IDENT,
    collection_entries,
    collection_key,
    is_collection_key,
    stored_collection,
)
from mongottl.catalog.index import IndexDescriptor, clustered_index_spec, id_index_spec
from mongottl.catalog.named_collections import NamedCollections
from mongottl.catalog.options import NO_OPTIONS, CollectionOptions
from mongottl.catalog.rekeying import rekey
from mongottl.clock import Clock
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import MISSING, BinData, Value
from mongottl.document.walk import fields
from mongottl.storage.errors import DiskFull
from mongottl.storage.interface import StorageEngine, WriteUnitOfWork
from mongottl.storage.nodes import CatalogChange
from mongottl.storage.stores import RecordStore

# Names of dropped collections that are remembered for transactions that began before.
_DROPPED_NAMES: Final = 10_000
# `Collection.writes` of collections that a restored state brings back: more than they can have had.
_WRITES_PER_RESTORE: Final = 1 << 40


def new_uuid() -> bytes:
    """The 16 bytes of a random (version 4) UUID."""
    data = bytearray(os.urandom(16))
    data[6] = (data[6] & 0x0F) | 0x40
    data[8] = (data[8] & 0x3F) | 0x80
    return bytes(data)


# The unit of work of the change, its kind (`change_kinds`), collection, detail.
ChangeListener: TypeAlias = Callable[[WriteUnitOfWork, int, Collection, Value], None]


class Refreshed:
    """What other servers have done. gone: the collections that they have dropped. renamed: the names that collections
    had before. changed: those that they have made, renamed, or given other options or indexes; not where they have only
    found that an index is multikey."""

    def __init__(self) -> None:
        self.gone: list[Collection] = []
        self.renamed: list[str] = []
        self.changed: list[Collection] = []


class Catalog(NamedCollections):
    """Databases and collections by name. Names are checked by the callers (`catalog.namespace`).

    version: grows with each change of the collections, their names and their indexes.
    large_documents: whether new collections have the option of this name.
    change_listener: is called for each change of a collection or its indexes, in its unit of work.
    """

    def __init__(self, engine: StorageEngine, clock: Clock | None = None) -> None:
        super().__init__()
        self.engine = engine
        self.large_documents = False
        self._clock = clock
        self._last_number = 0
        self.version: int = 0
        # The version at which a namespace last lost its collection, for the latest of them.
        self._dropped: dict[str, int] = {}
        # How many saved states were restored.
        self._restores: int = 0
        self.change_listener: ChangeListener | None = None
        self._load()

    def share(self, other: "Catalog") -> None:
        """Makes this catalog another view of the same collections, for lookups alone."""
        self.engine = other.engine
        self.version = other.version
        self._clock = other._clock
        self.naming = other.naming
        self.large_documents = other.large_documents
        self._databases = other._databases
        self._by_number = other._by_number
        self._last_number = 0
        self._restores = 0
        self._dropped = other._dropped
        self.change_listener = None

    def _notify(self, work: WriteUnitOfWork, kind: int, collection: Collection, detail: Value = None) -> None:
        if self.change_listener is not None:
            self.change_listener(work, kind, collection, detail)

    def was_dropped_since(self, namespace: str, version: int) -> bool:
        """Whether a collection of this name was dropped or renamed after a version; certain for the latest ones."""
        return self._dropped.get(namespace, 0) > version

    def _changed(self, collection: Collection) -> None:
        self.version += 1
        collection.changed_at = self.version

    def _note_dropped(self, namespace: str) -> None:
        self.version += 1
        self._dropped.pop(namespace, None)
        self._dropped[namespace] = self.version
        if len(self._dropped) > _DROPPED_NAMES:
            del self._dropped[next(iter(self._dropped))]

    def _load(self) -> None:
        outdated: list[tuple[Collection, CollectionIndex]] = []
        entries, temporary = collection_entries(self.engine)
        for entry in entries.values():
            self._remember(stored_collection(self.engine, entry, outdated))
        nodes = self.engine.nodes
        if nodes is not None and nodes.found_others:
            # What is not in use here may be in use there.
            for ident in self.engine.idents():
                self._count_ident(ident)
            return
        self._drop_abandoned(temporary)
        for collection in self.all_collections():
            unfinished = [known for known in collection.indexes if not known.ready]
            if unfinished:
                self.remove_indexes(collection, unfinished)
            if collection.held_by:
                self.set_holder(collection, 0)
        for collection, index in outdated:
            with self.engine.unit_of_work() as work:
                rekey(self.engine, collection, index, index_ident(self._next_number()))
                self._put(collection, collection.entry_document())
                work.commit()

    def reload(self, before: dict[str, bytes], changed: set[str]) -> list[str]:
        """Makes the catalog what the engine has after a saved state was restored; the namespaces that are gone.

        Collections whose entries are the same keep their objects. Numbers that were given since are not given again.

        before: the engine's catalog entries until then. changed: the idents whose contents may differ. No index may be
        under construction, and no transaction in progress.
        """
        self._restores += 1
        self.version += 1
        entries, temporary = collection_entries(self.engine)
        replaced: dict[int, Collection] = {}
        for collection in self.all_collections():
            key = collection_key(collection.number)
            old = before.get(key)
            if old is None:
                continue  # attached
            if entries.get(key) == old and self._has_same_stores(collection):
                del entries[key]
                if collection.store.ident in changed:
                    collection.writes += 1
                    collection.generation += 1
                    collection.evicted_through = 0
            else:
                replaced[collection.number] = collection
                self._forget(collection)
                collection.mark_dropped()
        for entry in entries.values():
            collection = stored_collection(self.engine, entry, [])
            collection.writes = self._restores * _WRITES_PER_RESTORE
            collection.changed_at = self.version
            previous = replaced.get(collection.number)
            if previous is not None:
                collection.take_statistics(previous)
            self._remember(collection)
        self._drop_abandoned(temporary)
        return [c.namespace for c in replaced.values() if self._databases.get(c.database, {}).get(c.name) is None]

    def refresh(self, change: CatalogChange, pause: Callable[[], None]) -> "Refreshed":
        """Makes the catalog what the engine has after other servers have changed that.

        What is there keeps its objects, and changes as by commands of this server: so operations go on, or fail, as
        beside those. Indexes that are being built here stay. pause: called after each entry that is parsed, which
        takes a tenth of a millisecond.
        """
        self.version += 1
        refreshed = Refreshed()
        renamed: list[tuple[Collection, str, str]] = []
        new: list[Collection] = []
        replaced = {*change.made} & {*change.dropped}
        for key, before in change.before.items():
            if not is_collection_key(key):
                continue
            collection = self._by_number.get(int(key))
            entry = self.engine.catalog_entry(key)
            if collection is None:
                if entry is not None:
                    new.append(stored_collection(self.engine, entry, []))
                    pause()
            elif entry is None:
                refreshed.gone.append(collection)
                self._mark_dropped(collection)
            elif entry != before or (replaced and _uses(collection, replaced)):
                found = stored_collection(self.engine, entry, [], collection.options)
                pause()
                if found.uuid != collection.uuid:
                    # It was lost with a primary before another server knew of it, which has given its number again.
                    refreshed.gone.append(collection)
                    self._mark_dropped(collection)
                    new.append(found)
                    continue
                if found.namespace != collection.namespace:
                    renamed.append((collection, found.database, found.name))
                    refreshed.renamed.append(collection.namespace)
                    self._forget(collection)
                    self._note_dropped(collection.namespace)
                if collection.take_stored(found) or found.namespace != collection.namespace:
                    refreshed.changed.append(collection)
                else:
                    collection.generation += 1
        for collection, database, name in renamed:
            collection.rename(database, name)
            self._remember(collection)
        for collection in new:
            refreshed.changed.append(collection)
            self._remember(collection)
        for collection in refreshed.changed:
            self._changed(collection)
        for ident in change.made:
            self._count_ident(ident)
        return refreshed

    def unowned_idents(self) -> list[str]:
        """The engine's stores that belong to no collection which it knows."""
        known: set[str] = {SESSIONS_IDENT}
        for collection in self._by_number.values():
            known.add(record_store_ident(collection.number))
            known.update([index.ident for index in collection.indexes])
        return [ident for ident in self.engine.idents() if ident not in known and not ident.startswith(OPLOG_IDENT)]

    def temporary_idents(self) -> list[str]:
        """The record stores of temporary collections, such as that of `$out`: whoever has made one renames or drops it
        soon, if that server runs. Who has started meanwhile does not know the collection."""
        return [record_store_ident(int(key)) for key in collection_entries(self.engine)[1]]

    def drop_left(self, idents: list[str]) -> None:
        """Drops stores that belong to no collection, and temporary collections with theirs."""
        left = set(idents)
        unknown: list[str] = []
        for key in collection_entries(self.engine)[1]:
            collection = self._by_number.get(int(key))
            if record_store_ident(int(key)) not in left:
                continue
            if collection is None:
                unknown.append(key)
            else:
                left -= {collection.store.ident, *[index.ident for index in collection.indexes]}
                self.drop_collection(collection)
        if left or unknown:
            with self.engine.unit_of_work() as work:
                for key in unknown:
                    self.engine.delete_catalog_entry(key)
                for ident in sorted(left):
                    self.engine.drop_ident(ident)
                work.commit()

    def _has_same_stores(self, collection: Collection) -> bool:
        """Whether the engine still has the stores that a collection of the catalog reads, and all indexes are ready."""
        engine = self.engine
        if collection.store is not engine.record_store(record_store_ident(collection.number)):
            return False
        for index in collection.indexes:
            data = index.data
            if not index.ready or (data is not None and engine.sorted_data(index.ident, data.unique) is not data):
                return False
        return True

    def _drop_abandoned(self, temporary: list[str]) -> None:
        """Deletes these catalog entries, and the idents that belong to no collection."""
        for collection in self._by_number.values():
            for index in collection.indexes:
                self._count_ident(index.ident)  # a TTL setting has an ident, but no sorted data
        for ident in self.engine.idents():
            self._count_ident(ident)
        abandoned = self.unowned_idents()
        if abandoned or temporary:
            with self.engine.unit_of_work() as work:
                for key in temporary:
                    self.engine.delete_catalog_entry(key)
                for ident in abandoned:
                    self.engine.drop_ident(ident)
                work.commit()

    def _count_ident(self, ident: str) -> None:
        number = ident.rpartition("_")[2]
        if number.isdigit():
            self._last_number = max(self._last_number, int(number))

    def _remember(self, collection: Collection) -> None:
        self._databases.setdefault(collection.database, {})[collection.name] = collection
        self._by_number[collection.number] = collection
        self._last_number = max(self._last_number, collection.number)

    def _forget(self, collection: Collection) -> None:
        collections = self._databases[collection.database]
        del collections[collection.name]
        del self._by_number[collection.number]
        if not collections:
            del self._databases[collection.database]

    def _now_ms(self) -> int:
        """Wall time in ms; 0 without a clock."""
        return 0 if self._clock is None else self._clock.now_ms()

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def attach(self, collection: Collection) -> None:
        """Adds a collection whose records are elsewhere than in the engine; it is not stored, and has no indexes."""
        self._remember(collection)

    def create_collection(
        self, database: str, name: str, options: CollectionOptions = NO_OPTIONS, uuid: bytes | None = None
    ) -> Collection:
        """Makes an empty collection with its `_id` index, or with those of a time series collection.

        uuid: its UUID, which no collection has; None for a new one. The caller knows that the name is free, and has
        asked `check_new_name` whether it is allowed.
        """
        with self.engine.unit_of_work() as work:
            collection = self._made(database, name, options, uuid)
            self._put_named(collection, collection.entry_document(), collection.namespace)
            self._notify(work, CREATE, collection, _created(collection))
            work.commit()
        self._remember(collection)
        self._changed(collection)
        return collection

    def create_pending(
        self, database: str, name: str, options: CollectionOptions, uuid: bytes | None = None
    ) -> Collection:
        """Makes a collection for a transaction: it is in no database until `publish`. After a crash its data is dropped
        at the next start, because the stored catalog does not have it."""
        with self.engine.unit_of_work() as work:
            collection = self._made(database, name, options, uuid)
            work.commit()
        collection.pending = True
        return collection

    def publish(self, collection: Collection, work: WriteUnitOfWork) -> None:
        """Stores a pending collection in the catalog, inside a unit of work; its name must be free. Once that has
        committed, `published` must be called."""
        self._put_named(collection, collection.entry_document(), collection.namespace)
        self._notify(work, CREATE, collection, _created(collection))
        built = [index for index in collection.indexes if not index.descriptor.is_id]
        if built:
            self._notify(work, CREATE_INDEXES, collection, _described(built))

    def published(self, collection: Collection) -> None:
        """Puts a collection that was stored by `publish` in its database."""
        collection.pending = False
        self._remember(collection)
        self._changed(collection)

    def drop_pending(self, collection: Collection) -> None:
        """Drops a collection that a transaction has created in vain."""
        engine = self.engine

        def drop(_: WriteUnitOfWork) -> None:
            idents = [*[index.ident for index in collection.writable_indexes], record_store_ident(collection.number)]
            if engine.shared_nodes is not None:
                # Other servers have dropped them if they have taken this one for dead.
                there = set(engine.idents())
                idents = [ident for ident in idents if ident in there]
            for ident in idents:
                engine.drop_ident(ident)

        self.in_unit_from_reserve(drop)
        collection.mark_dropped()

    def _made(self, database: str, name: str, options: CollectionOptions, uuid: bytes | None = None) -> Collection:
        """A new collection with its stores and its first indexes. Inside a unit of work. DiskFull."""
        self.engine.require_room()
        if self.large_documents:
            options = options.with_large_documents()
        number = self._next_number()
        ident = index_ident(self._next_number())
        if options.shard_key:
            store = self.engine.create_partitioned_store(record_store_ident(number))
        else:
            store = self.engine.create_record_store(record_store_ident(number))
        collection = Collection(database, name, number, uuid or new_uuid(), options, store)
        if collection.time_series is None:
            data = self.engine.create_sorted_data(ident, collection.has_unique_ids, store.ident)
            clustered = options.clustered_index is not None
            spec = clustered_index_spec(options) if clustered else id_index_spec(collection.collation)
            indexes = [CollectionIndex(IndexDescriptor(spec), ident, data, True)]
            if collection.shard_key is not None:
                indexes += [self._empty_index(spec, store.ident) for spec in collection.shard_key.first_index_specs()]
            collection.set_indexes(indexes)
        else:
            self._make_time_series_indexes(collection, ident)
        for index in collection.indexes:
            index.since_ms = self._now_ms()
        return collection

    def _empty_index(self, spec: bytes, beside: str) -> CollectionIndex:
        """A new index of a new collection. Inside a unit of work. beside: the ident of its records."""
        descriptor = IndexDescriptor(spec)
        ident = index_ident(self._next_number())
        data = self.engine.create_sorted_data(ident, descriptor.unique, beside)
        return CollectionIndex(descriptor, ident, data, True)

    def _make_time_series_indexes(self, collection: Collection, ident: str) -> None:
        """Makes the index on meta field and time, and the one for expiry, if the options ask for them. Inside a unit of
        work."""
        series = collection.time_series
        assert series is not None
        made: list[CollectionIndex] = []
        beside = collection.store.ident
        meta = series.meta_index_spec(collection.options.collation)
        if meta is not None:
            data = self.engine.create_sorted_data(ident, False, beside)
            made.append(CollectionIndex(IndexDescriptor(meta), ident, data, True))
        seconds = collection.options.expire_after_seconds
        if seconds is not None:
            expiry = index_ident(self._next_number())
            descriptor = IndexDescriptor(series.expiry_index_spec(seconds))
            data = self.engine.create_sorted_data(expiry, False, beside)
            made.append(CollectionIndex(descriptor, expiry, data, True))
        collection.set_indexes(made)

    def drop_collection(self, collection: Collection) -> None:
        """Drops a collection with its records and its indexes, including those that are being built."""

        def drop(work: WriteUnitOfWork) -> None:
            self._delete_stored(collection)
            self._notify(work, DROP, collection)

        self.in_unit_from_reserve(drop)
        self._mark_dropped(collection)

    def rename_collection(self, collection: Collection, database: str, name: str, replaced: Collection | None) -> None:
        """Gives a collection another name, dropping the one that had it (`dropTarget`) in the same unit of work.

        A temporary collection is no longer temporary under its new name.
        """
        options = collection.options
        if options.temporary:
            options = options.with_options({"temp": MISSING})
        with self.engine.unit_of_work() as work:
            if replaced is not None:
                self._delete_stored(replaced)
            namespace = f"{database}.{name}"
            self._put_named(collection, collection.entry_document(namespace=namespace, options=options), namespace)
            renamed: dict[str, Value] = {"to": {"db": database, "coll": name}}
            if replaced is not None:
                renamed["dropTarget"] = replaced.uuid
            self._notify(work, RENAME, collection, encode(renamed))
            work.commit()
        if options is not collection.options:
            collection.set_options(options)
        if replaced is not None:
            self._mark_dropped(replaced)
        self._forget(collection)
        self._note_dropped(collection.namespace)
        collection.rename(database, name)
        collection.generation += 1
        self._remember(collection)
        self._changed(collection)

    def start_indexes(self, collection: Collection, descriptors: Sequence[IndexDescriptor]) -> list[CollectionIndex]:
        """Adds indexes that are to be built, all or none; only `finish_indexes` stores them in the catalog.

        In one unit of work: a store with several servers has each of them learn each change of the catalog.
        CannotCreateIndex (67) for a unique one without the shard key where the engine keeps partitions apart.
        """
        for descriptor in descriptors:
            if descriptor.unique and collection.shard_key is not None and collection.is_partitioned:
                collection.shard_key.check_unique_index(descriptor)
        nodes = self.engine.shared_nodes
        builder = 0 if nodes is None else nodes.number
        started = [CollectionIndex(each, index_ident(self._next_number()), None, False) for each in descriptors]
        with_data = [index for index in started if not index.descriptor.is_ttl_setting]
        if with_data:
            with self.engine.unit_of_work() as work:
                self.engine.require_room()
                beside = collection.store.ident
                for index in with_data:
                    index.data = self.engine.create_sorted_data(index.ident, index.descriptor.unique, beside)
                if builder and not collection.pending:
                    for index in with_data:
                        index.announce(builder)
                    stored = [known for known in collection.indexes if known.is_stored]
                    self._put(collection, collection.entry_document(indexes=[*stored, *with_data]))
                work.commit()
        for index in started:
            index.since_ms = self._now_ms()
            index.build_uuid = BinData(new_uuid(), 4)
        collection.set_indexes([*collection.indexes, *started])
        return started

    def finish_indexes(
        self,
        collection: Collection,
        built: list[CollectionIndex],
        replaced: CollectionIndex | None = None,
        dropped: Sequence[CollectionIndex] = (),
    ) -> None:
        """Stores indexes that have been built, all or none; from now on plans use them.

        replaced: an existing index which the one index that was built replaces, or None. dropped: indexes that are
        dropped in the same unit of work.
        """
        indexes = [index for index in collection.indexes if index not in dropped]
        if replaced is not None:
            others = [index for index in indexes if index not in built]
            indexes = [built[0] if index is replaced else index for index in others]
        stored = [index for index in indexes if index.is_stored or index in built]
        with self.engine.unit_of_work() as work:
            self._put(collection, collection.entry_document(indexes=stored, built=built))
            if replaced is not None:
                self.engine.drop_ident(replaced.ident)
            else:  # a replacement is reported as a change of the index
                self._drop_in(work, collection, dropped)
                self._notify(work, CREATE_INDEXES, collection, _described(built))
            work.commit()
        for index in built:
            index.ready = True
            index.builder = 0
        for index in dropped if replaced is None else [replaced]:
            index.dropped = True
        collection.set_indexes(indexes)
        self._changed(collection)

    def remove_indexes(self, collection: Collection, removed: list[CollectionIndex]) -> None:
        """Drops indexes, including those that are being built."""
        kept = [index for index in collection.indexes if index not in removed]

        def remove(work: WriteUnitOfWork) -> None:
            self._put(collection, collection.entry_document(indexes=[index for index in kept if index.is_stored]))
            self._drop_in(work, collection, removed)

        self.in_unit_from_reserve(remove)
        for index in removed:
            index.dropped = True
        collection.set_indexes(kept)
        self._changed(collection)

    def _drop_in(self, work: WriteUnitOfWork, collection: Collection, removed: Sequence[CollectionIndex]) -> None:
        """Drops the stored data of indexes, and reports the drop of those that were ready."""
        for index in removed:
            if index.data is not None:
                self.engine.drop_ident(index.ident)
        for index in removed:
            if index.ready:
                self._notify(work, DROP_INDEXES, collection, _described([index]))

    def abandon_indexes(self, collection: Collection, unfinished: list[CollectionIndex]) -> None:
        """Removes unfinished indexes from memory; their data, which the engine failed to drop, is dropped at the next
        start."""
        for index in unfinished:
            index.dropped = True
        collection.set_indexes([index for index in collection.indexes if index not in unfinished])

    def replace_descriptor(self, collection: Collection, index: CollectionIndex, descriptor: IndexDescriptor) -> None:
        """Changes an index's options, as `collMod` does. Its keys are kept, unless it becomes the TTL setting on
        `_ts`."""
        changed = CollectionIndex(descriptor, index.ident, index.data, index.ready, index.arrays, index.type_bits)
        if descriptor.is_ttl_setting:
            changed.data = None
        indexes = [changed if known is index else known for known in collection.indexes]
        with self.engine.unit_of_work() as work:
            self._put(collection, collection.entry_document(indexes=[known for known in indexes if known.is_stored]))
            if changed.data is not index.data:
                self.engine.drop_ident(index.ident)
            work.commit()
        if changed.data is index.data:
            # The same object, so that running scans of the index continue.
            index.descriptor = descriptor
            indexes = collection.indexes
        else:
            index.dropped = True
        collection.set_indexes(indexes)

    def set_options(self, collection: Collection, options: CollectionOptions) -> None:
        """Changes the options of a collection, as `collMod` does. A clustered collection's `expireAfterSeconds` is also
        that of its index."""
        clustering = collection.clustering
        if clustering is None:
            self._save(collection, collection.entry_document(options=options))
        else:
            before = clustering.descriptor
            clustering.descriptor = IndexDescriptor(clustered_index_spec(options))
            try:
                self._save(collection, collection.entry_document(options=options))
            except BaseException:
                clustering.descriptor = before
                raise
            collection.set_indexes(collection.indexes)
        collection.set_options(options)

    def set_holder(self, collection: Collection, holder: int) -> None:
        """Notes which of several servers copies a collection, to which nobody writes meanwhile: its number, or 0."""
        before = collection.held_by
        collection.held_by = holder
        try:
            self._save(collection, collection.entry_document())
        except BaseException:
            collection.held_by = before
            raise

    def record_multikey_change(self, collection: Collection, index: CollectionIndex, work: WriteUnitOfWork) -> None:
        """Records the array paths and type bits of the last document that keys were made of, where any are new.

        Inside the unit of work of the write.
        """
        before = index.arrays
        type_bits = index.type_bits
        if index.keys.saw_array:
            index.arrays = ArrayPaths(before.paths | index.keys.array_paths)
        index.type_bits |= index.keys.type_bits
        collection.generation += 1
        if not index.is_stored or collection.pending:
            return  # `finish_indexes` or `publish` stores it
        work.on_rollback(partial(index.restore, before, type_bits))
        self._put(collection, collection.entry_document())

    def note_marks(self, collection: Collection, index: CollectionIndex) -> None:
        """Notes what `record_multikey_change` would record, for `publish_marks`."""
        paths = frozenset(index.keys.array_paths) if index.keys.saw_array else frozenset()
        collection.unpublished.append(IndexMarks(index, paths, index.keys.type_bits))

    def publish_marks(self, collection: Collection) -> None:
        """Stores what is noted of a collection's indexes before the documents that it is about are written: other
        servers read by it, who would find them by the old marks otherwise. In a unit of work of its own."""
        marks = collection.unpublished
        with self.engine.unit_of_work() as work:
            for mark in marks:
                index = mark.index
                work.on_rollback(partial(index.restore, index.arrays, index.type_bits))
                index.arrays = ArrayPaths(index.arrays.paths | mark.array_paths)
                index.type_bits |= mark.type_bits
            collection.generation += 1
            if not collection.dropped:
                self._put(collection, collection.entry_document())
            work.commit()
        collection.unpublished = [mark for mark in collection.unpublished if mark not in marks]

    def in_unit(self, action: Callable[[WriteUnitOfWork], None]) -> None:
        """Carries out an action in a unit of work of its own."""
        with self.engine.unit_of_work() as work:
            action(work)
            work.commit()

    def in_unit_from_reserve(self, action: Callable[[WriteUnitOfWork], None]) -> None:
        """`in_unit` for an action that deletes, or replaces an entry by one of its length: on a full disk it is carried
        out again, once, in the room that the engine keeps for it. DiskFull if that is used up."""
        try:
            self.in_unit(action)
        except DiskFull:
            if not self.engine.make_room():
                raise
            self.in_unit(action)

    def server_entry(self, name: str) -> bytes | None:
        """What the server itself has stored under a name, which is no number; None if nothing."""
        return self.engine.catalog_entry(name)

    def put_server_entry(self, name: str, entry: bytes) -> None:
        """Stores an entry of the server itself. Inside a unit of work."""
        self.engine.put_catalog_entry(name, entry)

    def save_server_entry(self, name: str, entry: bytes) -> None:
        """Stores an entry of the server itself, in a unit of work of its own."""

        def save(work: WriteUnitOfWork) -> None:
            self.engine.put_catalog_entry(name, entry)

        self.in_unit_from_reserve(save)

    def session_records(self) -> RecordStore:
        """The record store for what sessions remember, created if there is none."""
        if SESSIONS_IDENT in self.engine.idents():
            return self.engine.record_store(SESSIONS_IDENT)
        with self.engine.unit_of_work() as work:
            store = self.engine.create_record_store(SESSIONS_IDENT)
            work.commit()
        return store

    def _put(self, collection: Collection, entry: bytes) -> None:
        self.engine.put_catalog_entry(collection_key(collection.number), entry)

    def _put_named(self, collection: Collection, entry: bytes, namespace: str) -> None:
        """`_put` of a collection that is new or gets another name. Inside a unit of work."""
        self._put(collection, entry)
        self.engine.name_entry(collection_key(collection.number), namespace)

    def _save(self, collection: Collection, entry: bytes) -> None:
        with self.engine.unit_of_work() as work:
            self._put(collection, entry)
            work.commit()

    def _delete_stored(self, collection: Collection) -> None:
        """Deletes all that the engine holds of a collection. Inside a unit of work."""
        self.engine.delete_catalog_entry(collection_key(collection.number))
        for index in collection.writable_indexes:
            self.engine.drop_ident(index.ident)
        self.engine.drop_ident(record_store_ident(collection.number))

    def _mark_dropped(self, collection: Collection) -> None:
        """Removes a collection from the catalog after its deletion was committed; scans of it then fail."""
        self._forget(collection)
        self._note_dropped(collection.namespace)
        collection.mark_dropped()


def _uses(collection: Collection, idents: set[str]) -> bool:
    """Whether one of these stores is that of a collection or of one of its indexes."""
    return record_store_ident(collection.number) in idents or any(index.ident in idents for index in collection.indexes)


def _created(collection: Collection) -> bytes:
    """The details of a new collection in its `create` event."""
    index = collection.id_index
    described: list[tuple[str, Value]] = [] if index is None else [("idIndex", index.descriptor.spec)]
    return encode_fields([*described, *fields(collection.options.listed)])


def _described(indexes: list[CollectionIndex]) -> bytes:
    """The details of indexes in the event of their creation or drop."""
    return encode({"indexes": [index.descriptor.spec for index in indexes]})
