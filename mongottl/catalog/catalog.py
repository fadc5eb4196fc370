"""The catalog: every database and collection, in memory and in the storage engine.

A database exists while it has a collection. Each change is one unit of work of the engine, and is made in memory only
after the commit, so both always agree. An index that was still being built when the server stopped is not in the stored
catalog; its data is dropped at the next start. Keys of collated indexes that were made by another version of ICU are
rebuilt then (`rekeying`).
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from mongottl.catalog.array_paths import ARRAYS_SOMEWHERE, ArrayPaths
from mongottl.catalog.change_kinds import CREATE, CREATE_INDEXES, DROP, DROP_INDEXES, RENAME
from mongottl.catalog.collection import Collection, IndexEntry, index_ident, record_store_ident
from mongottl.catalog.index import IndexDescriptor, clustered_index_spec, id_index_spec
from mongottl.catalog.namespace import MAX_NAMESPACE_BYTES, check_database_name, check_new_collection_name
from mongottl.catalog.options import NO_OPTIONS, CollectionOptions
from mongottl.catalog.rekeying import rekey
from mongottl.catalog.view import SYSTEM_VIEWS, View, view_of
from mongottl.clock import Clock
from mongottl.document.build import encode, encode_fields
from mongottl.document.keystring import encode_value
from mongottl.document.types import MISSING, BinData, Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.icu import icu_version
from mongottl.storage.interface import (
    DataDirectoryError,
    Record,
    RecordStore,
    SortedDataInterface,
    StorageEngine,
    WriteUnitOfWork,
)

# Records read at once where all are wanted.
_RECORDS_PER_SCAN: Final = 256
_BYTES_PER_SCAN: Final = 16 << 20
# Names of dropped collections that are remembered for transactions that began before.
_DROPPED_NAMES: Final = 10_000


# The record store of `exec.operation.retryable_writes`, which belongs to no collection.
SESSIONS_IDENT: Final = "sessions"
# How the idents of the stored oplog begin (`oplog.rows`).
OPLOG_IDENT: Final = "oplog-"


def _name_of(view: View) -> str:
    return view.name


def new_uuid() -> bytes:
    """The 16 bytes of a random (version 4) UUID."""
    data = bytearray(os.urandom(16))
    data[6] = (data[6] & 0x0F) | 0x40
    data[8] = (data[8] & 0x3F) | 0x80
    return bytes(data)


def _stored_arrays(index: dict[str, Value]) -> ArrayPaths:
    """The multikey paths of an index in its catalog entry; entries of the oldest versions do not have the paths."""
    paths = index.get("multikeyPaths")
    if isinstance(paths, list):
        return ArrayPaths(frozenset([str(path) for path in paths]))
    return ARRAYS_SOMEWHERE if index["multikey"] else ArrayPaths(frozenset())


def _stored_type_bits(index: dict[str, Value]) -> int:
    """The type bits of an index in its catalog entry; -1 in entries of the oldest versions, which do not have them.

    Older versions called the field `kinds`; it is renamed when the entry is next written.
    """
    type_bits = index.get("typeBits", index.get("kinds"))
    return type_bits if isinstance(type_bits, int) else -1


# The unit of work of the change, its kind (`change_kinds`), collection, detail.
ChangeListener: TypeAlias = Callable[[WriteUnitOfWork, int, Collection, Value], None]


class Catalog:
    """Databases and collections by name. Names are checked by the callers (`catalog.namespace`).

    version: grows with each change of the collections, their names and their indexes.
    change_listener: is called for each change of a collection or its indexes, in its unit of work.
    """

    def __init__(self, engine: StorageEngine, clock: Clock | None = None, forbidden_in_names: str = "") -> None:
        self.engine = engine
        self._forbidden_in_names = forbidden_in_names
        self._clock = clock
        self._databases: dict[str, dict[str, Collection]] = {}
        self._by_number: dict[int, Collection] = {}
        self._last_number = 0
        self.version: int = 0
        # The version at which a namespace last lost its collection, for the latest of them.
        self._dropped: dict[str, int] = {}
        self.change_listener: ChangeListener | None = None
        self._load()

    def share(self, other: "Catalog") -> None:
        """Makes this catalog another view of the same collections, for lookups alone."""
        self.engine = other.engine
        self.version = other.version
        self._clock = other._clock
        self._forbidden_in_names = other._forbidden_in_names
        self._databases = other._databases
        self._by_number = other._by_number
        self._last_number = 0
        self._dropped = other._dropped
        self.change_listener = None

    def _tell(self, work: WriteUnitOfWork, kind: int, collection: Collection, detail: Value = None) -> None:
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
        known: set[str] = {SESSIONS_IDENT}
        outdated: list[tuple[Collection, IndexEntry]] = []
        temporary: list[str] = []
        for key, entry in self.engine.catalog_entries():
            if not key.isdigit():
                continue  # of the server itself
            if _is_temporary(entry):
                temporary.append(key)
                continue
            collection = self._loaded(entry, outdated)
            self._remember(collection)
            known.add(record_store_ident(collection.number))
            for index in collection.indexes:
                known.add(index.ident)
                self._count_ident(index.ident)  # a TTL setting has an ident, but no sorted data
        abandoned: list[str] = []
        for ident in self.engine.idents():
            self._count_ident(ident)
            if ident not in known and not ident.startswith(OPLOG_IDENT):
                abandoned.append(ident)
        if abandoned or temporary:
            with self.engine.unit_of_work() as work:
                for key in temporary:
                    self.engine.delete_catalog_entry(key)
                for ident in abandoned:
                    self.engine.drop_ident(ident)
                work.commit()
        for collection, index in outdated:
            with self.engine.unit_of_work() as work:
                rekey(self.engine, collection, index, index_ident(self._next_number()))
                self._put(collection, collection.entry_document())
                work.commit()

    def _loaded(self, entry: bytes, outdated: list[tuple[Collection, IndexEntry]]) -> Collection:
        """The collection of a stored catalog entry; appends indexes whose keys must be rebuilt to `outdated`.

        DataDirectoryError for a collation when ICU is not installed.
        """
        try:
            return self._read_entry(entry, outdated)
        except CommandError as error:
            raise DataDirectoryError(f"{get_value(entry, 'ns')}: {error.message}") from error

    def _read_entry(self, entry: bytes, outdated: list[tuple[Collection, IndexEntry]]) -> Collection:
        stored = dict(fields(entry))
        namespace = str(stored["ns"])
        database, _, name = namespace.partition(".")
        uuid = stored["uuid"]
        options = stored["options"]
        number = stored["number"]
        indexes = stored["indexes"]
        assert isinstance(uuid, BinData)
        assert isinstance(options, bytes)
        assert isinstance(number, int)
        assert isinstance(indexes, list)
        store = self.engine.record_store(record_store_ident(number))
        collection = Collection(database, name, number, uuid.data, CollectionOptions(options), store)
        loaded: list[IndexEntry] = []
        for item in indexes:
            assert isinstance(item, bytes)
            index = dict(fields(item))
            spec = index["spec"]
            assert isinstance(spec, bytes)
            descriptor = IndexDescriptor(spec)
            ident = str(index["ident"])
            data: SortedDataInterface | None = None
            if not descriptor.is_ttl_setting:
                unique = descriptor.unique or (descriptor.is_id and collection.has_unique_ids)
                data = self.engine.sorted_data(ident, unique)
            loaded.append(IndexEntry(descriptor, ident, data, True, _stored_arrays(index), _stored_type_bits(index)))
            if descriptor.collation is not None and data is not None and index.get("icu") != icu_version():
                outdated.append((collection, loaded[-1]))
        collection.set_indexes(loaded)
        return collection

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

    def lookup(self, database: str, name: str, time_series: bool = False) -> Collection | None:
        """The collection, or None if there is none of that name. CommandNotSupportedOnView (166) for a view.

        time_series: whether it may be a time series collection, which in mongod is a view over its buckets.
        """
        found = self.find(database, name)
        if isinstance(found, Collection) and found.time_series is not None and not time_series:
            raise CommandError(
                ErrorCode.CommandNotSupportedOnView, f"Namespace {found.namespace} is a timeseries collection"
            )
        if isinstance(found, View):
            raise CommandError(
                ErrorCode.CommandNotSupportedOnView, f"Namespace {found.namespace} is a view, not a collection"
            )
        return found

    def find(self, database: str, name: str) -> Collection | View | None:
        """The collection or view of that name, or None; for commands that accept views."""
        collections = self._databases.get(database)
        if collections is None:
            return None
        found = collections.get(name)
        return self.view(database, name) if found is None else found

    def view(self, database: str, name: str) -> View | None:
        """The view of that name, or None. InvalidViewDefinition (182) if its stored definition is not valid."""
        record = self.view_record(database, name)
        return None if record is None else view_of(database, record[1])

    def view_record(self, database: str, name: str) -> Record | None:
        """The record of `system.views` that defines a view."""
        if name == SYSTEM_VIEWS or len(name) > MAX_NAMESPACE_BYTES:
            return None
        return self.record_by_id(database, SYSTEM_VIEWS, f"{database}.{name}")

    def record_by_id(self, database: str, name: str, record_id: str) -> Record | None:
        """The record with this `_id` of a collection of the system, as it is now; None if there is none."""
        collections = self._databases.get(database)
        collection = None if collections is None else collections.get(name)
        index = None if collection is None else collection.id_index
        if collection is None or index is None or index.data is None:
            return None
        return index.data.fetch_exact(collection.store, encode_value(record_id))

    def version_of(self, database: str, name: str) -> tuple[int, int]:
        """Two numbers that change when records of the collection do, or when it is made or dropped."""
        collections = self._databases.get(database)
        collection = None if collections is None else collections.get(name)
        return (0, 0) if collection is None else (collection.number, collection.writes)

    def all_records(self, database: str, name: str) -> list[Record]:
        """The records of a collection of the system, as they are now; none if it does not exist."""
        collection = self._databases.get(database, {}).get(name)
        found: list[Record] = []
        position = 0
        while collection is not None:
            batch, more = collection.store.scan(position, _RECORDS_PER_SCAN, True, _BYTES_PER_SCAN)
            found.extend(batch)
            if not more:
                break
            position = batch[-1][0]
        return found

    def views(self, database: str) -> list[View]:
        """The database's views by name. InvalidViewDefinition (182) if a stored definition is not valid."""
        found = [view_of(database, record[1]) for record in self.all_records(database, SYSTEM_VIEWS)]
        return sorted(found, key=_name_of)

    def attach(self, collection: Collection) -> None:
        """Adds a collection whose records are elsewhere than in the engine; it is not stored, and has no indexes."""
        self._remember(collection)

    def by_number(self, number: int) -> Collection | None:
        return self._by_number.get(number)

    def database_names(self) -> list[str]:
        return sorted(self._databases)

    def database_spelled_otherwise(self, database: str) -> str | None:
        """An existing database whose name differs from `database` in case only, or None."""
        if database in self._databases:
            return None
        folded = database.lower()
        for name in self._databases:
            if name.lower() == folded:
                return name
        return None

    def collections(self, database: str) -> list[Collection]:
        """The database's collections by name; none if it does not exist."""
        collections = self._databases.get(database, {})
        return [collections[name] for name in sorted(collections)]

    def all_collections(self) -> list[Collection]:
        return list(self._by_number.values())

    def check_new_name(self, database: str, name: str) -> None:
        """InvalidNamespace (73) or DatabaseDifferCase (13297) unless a collection of this name may be made."""
        check_database_name(database)
        check_new_collection_name(database, name)
        for character in self._forbidden_in_names:
            if character in name:
                raise CommandError(ErrorCode.InvalidNamespace, "Collection name contains invalid character.")
        other = self.database_spelled_otherwise(database)
        if other is not None:
            raise CommandError(
                ErrorCode.DatabaseDifferCase,
                f"db already exists with different case already have: [{other}] trying to create [{database}]",
            )

    def create_collection(self, database: str, name: str, options: CollectionOptions = NO_OPTIONS) -> Collection:
        """Makes an empty collection with its `_id` index, or with those of a time series collection.

        The caller knows that the name is free, and has asked `check_new_name` whether it is allowed.
        """
        with self.engine.unit_of_work() as work:
            collection = self._made(database, name, options)
            self._put(collection, collection.entry_document())
            self._tell(work, CREATE, collection, _created(collection))
            work.commit()
        self._remember(collection)
        self._changed(collection)
        return collection

    def create_pending(self, database: str, name: str, options: CollectionOptions) -> Collection:
        """Makes a collection for a transaction: it is in no database until `publish`. After a crash its data is dropped
        at the next start, because the stored catalog does not have it."""
        with self.engine.unit_of_work() as work:
            collection = self._made(database, name, options)
            work.commit()
        collection.pending = True
        return collection

    def publish(self, collection: Collection, work: WriteUnitOfWork) -> None:
        """Stores a pending collection in the catalog, inside a unit of work; its name must be free. Once that has
        committed, `published` must be called."""
        self._put(collection, collection.entry_document())
        self._tell(work, CREATE, collection, _created(collection))
        built = [index for index in collection.indexes if not index.descriptor.is_id]
        if built:
            self._tell(work, CREATE_INDEXES, collection, _described(built))

    def published(self, collection: Collection) -> None:
        """Puts a collection that was stored by `publish` in its database."""
        collection.pending = False
        self._remember(collection)
        self._changed(collection)

    def drop_pending(self, collection: Collection) -> None:
        """Drops a collection that a transaction has created in vain."""
        with self.engine.unit_of_work() as work:
            for index in collection.writable_indexes:
                self.engine.drop_ident(index.ident)
            self.engine.drop_ident(record_store_ident(collection.number))
            work.commit()
        collection.dropped = True

    def _made(self, database: str, name: str, options: CollectionOptions) -> Collection:
        """A new collection with its stores and its first indexes. Inside a unit of work."""
        number = self._next_number()
        ident = index_ident(self._next_number())
        store = self.engine.create_record_store(record_store_ident(number))
        collection = Collection(database, name, number, new_uuid(), options, store)
        if collection.time_series is None:
            data = self.engine.create_sorted_data(ident, collection.has_unique_ids)
            clustered = options.clustered_index is not None
            spec = clustered_index_spec(options) if clustered else id_index_spec(collection.collation)
            indexes = [IndexEntry(IndexDescriptor(spec), ident, data, True)]
            if collection.shard_key is not None:
                indexes += [self._empty_index(spec) for spec in collection.shard_key.first_index_specs()]
            collection.set_indexes(indexes)
        else:
            self._make_time_series_indexes(collection, ident)
        for index in collection.indexes:
            index.since_ms = self._now_ms()
        return collection

    def _empty_index(self, spec: bytes) -> IndexEntry:
        """A new index of a new collection. Inside a unit of work."""
        descriptor = IndexDescriptor(spec)
        ident = index_ident(self._next_number())
        return IndexEntry(descriptor, ident, self.engine.create_sorted_data(ident, descriptor.unique), True)

    def _make_time_series_indexes(self, collection: Collection, ident: str) -> None:
        """Makes the index on meta field and time, and the one for expiry, if the options ask for them. Inside a unit of
        work."""
        series = collection.time_series
        assert series is not None
        made: list[IndexEntry] = []
        meta = series.meta_index_spec(collection.options.collation)
        if meta is not None:
            made.append(IndexEntry(IndexDescriptor(meta), ident, self.engine.create_sorted_data(ident, False), True))
        seconds = collection.options.expire_after_seconds
        if seconds is not None:
            expiry = index_ident(self._next_number())
            descriptor = IndexDescriptor(series.expiry_index_spec(seconds))
            made.append(IndexEntry(descriptor, expiry, self.engine.create_sorted_data(expiry, False), True))
        collection.set_indexes(made)

    def drop_collection(self, collection: Collection) -> None:
        """Drops a collection with its records and its indexes, including those that are being built."""
        with self.engine.unit_of_work() as work:
            self._delete_stored(collection)
            self._tell(work, DROP, collection)
            work.commit()
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
            self._put(collection, collection.entry_document(namespace=f"{database}.{name}", options=options))
            renamed: dict[str, Value] = {"to": {"db": database, "coll": name}}
            if replaced is not None:
                renamed["dropTarget"] = replaced.uuid
            self._tell(work, RENAME, collection, encode(renamed))
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

    def start_index(self, collection: Collection, descriptor: IndexDescriptor) -> IndexEntry:
        """Adds an index that is to be built; only `finish_indexes` stores it in the catalog."""
        ident = index_ident(self._next_number())
        data: SortedDataInterface | None = None
        if not descriptor.is_ttl_setting:
            with self.engine.unit_of_work() as work:
                data = self.engine.create_sorted_data(ident, descriptor.unique)
                work.commit()
        index = IndexEntry(descriptor, ident, data, False)
        index.since_ms = self._now_ms()
        index.build_uuid = BinData(new_uuid(), 4)
        collection.set_indexes([*collection.indexes, index])
        return index

    def finish_indexes(
        self, collection: Collection, built: list[IndexEntry], replaced: IndexEntry | None = None
    ) -> None:
        """Stores indexes that have been built, all or none; from now on plans use them.

        replaced: an existing index which the one index that was built replaces, or None.
        """
        indexes = collection.indexes
        if replaced is not None:
            others = [index for index in indexes if index not in built]
            indexes = [built[0] if index is replaced else index for index in others]
        stored = [index for index in indexes if index.ready or index in built]
        with self.engine.unit_of_work() as work:
            self._put(collection, collection.entry_document(indexes=stored))
            if replaced is not None:
                self.engine.drop_ident(replaced.ident)
            else:  # a replacement is told as a change of the index
                self._tell(work, CREATE_INDEXES, collection, _described(built))
            work.commit()
        for index in built:
            index.ready = True
        collection.set_indexes(indexes)
        self._changed(collection)

    def remove_indexes(self, collection: Collection, removed: list[IndexEntry]) -> None:
        """Drops indexes, including those that are being built."""
        kept = [index for index in collection.indexes if index not in removed]
        with self.engine.unit_of_work() as work:
            self._put(collection, collection.entry_document(indexes=[index for index in kept if index.ready]))
            for index in removed:
                if index.data is not None:
                    self.engine.drop_ident(index.ident)
            for index in removed:
                if index.ready:
                    self._tell(work, DROP_INDEXES, collection, _described([index]))
            work.commit()
        collection.set_indexes(kept)
        self._changed(collection)

    def abandon_indexes(self, collection: Collection, unfinished: list[IndexEntry]) -> None:
        """Removes unfinished indexes from memory; their data, which the engine failed to drop, is dropped at the next
        start."""
        collection.set_indexes([index for index in collection.indexes if index not in unfinished])

    def replace_descriptor(self, collection: Collection, index: IndexEntry, descriptor: IndexDescriptor) -> None:
        """Changes an index's options, as `collMod` does. Its keys are kept, unless it becomes the TTL setting on
        `_ts`."""
        changed = IndexEntry(descriptor, index.ident, index.data, index.ready, index.arrays, index.type_bits)
        if descriptor.is_ttl_setting:
            changed.data = None
        indexes = [changed if known is index else known for known in collection.indexes]
        with self.engine.unit_of_work() as work:
            self._put(collection, collection.entry_document(indexes=[known for known in indexes if known.ready]))
            if changed.data is not index.data:
                self.engine.drop_ident(index.ident)
            work.commit()
        if changed.data is index.data:
            # The same object, so that running scans of the index continue.
            index.descriptor = descriptor
            indexes = collection.indexes
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

    def record_multikey_change(self, collection: Collection, index: IndexEntry, work: WriteUnitOfWork) -> None:
        """Records the array paths and type bits of the last document that keys were made of, where any are new.

        Inside the unit of work of the write.
        """
        before = index.arrays
        type_bits = index.type_bits
        if index.keys.saw_array:
            index.arrays = ArrayPaths(before.paths | index.keys.array_paths)
        index.type_bits |= index.keys.type_bits
        collection.generation += 1
        if not index.ready or collection.pending:
            return  # `finish_indexes` or `publish` stores it
        work.on_rollback(partial(index.restore, before, type_bits))
        self._put(collection, collection.entry_document())

    def in_unit(self, action: Callable[[WriteUnitOfWork], None]) -> None:
        """Carries out an action in a unit of work of its own."""
        with self.engine.unit_of_work() as work:
            action(work)
            work.commit()

    def server_entry(self, name: str) -> bytes | None:
        """What the server itself has stored under a name, which is no number; None if nothing."""
        return dict(self.engine.catalog_entries()).get(name)

    def put_server_entry(self, name: str, entry: bytes) -> None:
        """Stores an entry of the server itself. Inside a unit of work."""
        self.engine.put_catalog_entry(name, entry)

    def save_server_entry(self, name: str, entry: bytes) -> None:
        """Stores an entry of the server itself, in a unit of work of its own."""
        with self.engine.unit_of_work() as work:
            self.engine.put_catalog_entry(name, entry)
            work.commit()

    def session_records(self) -> RecordStore:
        """The record store for what sessions remember, created if there is none."""
        if SESSIONS_IDENT in self.engine.idents():
            return self.engine.record_store(SESSIONS_IDENT)
        with self.engine.unit_of_work() as work:
            store = self.engine.create_record_store(SESSIONS_IDENT)
            work.commit()
        return store

    def _put(self, collection: Collection, entry: bytes) -> None:
        self.engine.put_catalog_entry(str(collection.number), entry)

    def _save(self, collection: Collection, entry: bytes) -> None:
        with self.engine.unit_of_work() as work:
            self._put(collection, entry)
            work.commit()

    def _delete_stored(self, collection: Collection) -> None:
        """Deletes all that the engine holds of a collection. Inside a unit of work."""
        self.engine.delete_catalog_entry(str(collection.number))
        for index in collection.writable_indexes:
            self.engine.drop_ident(index.ident)
        self.engine.drop_ident(record_store_ident(collection.number))

    def _mark_dropped(self, collection: Collection) -> None:
        """Removes a collection from the catalog after its deletion was committed; scans of it then fail."""
        self._forget(collection)
        self._note_dropped(collection.namespace)
        collection.dropped = True
        collection.generation += 1


def _created(collection: Collection) -> bytes:
    """What a create event tells of a new collection."""
    index = collection.id_index
    described: list[tuple[str, Value]] = [] if index is None else [("idIndex", index.descriptor.spec)]
    return encode_fields([*described, *fields(collection.options.listed)])


def _described(indexes: list[IndexEntry]) -> bytes:
    """What an event tells of indexes that were created or dropped."""
    return encode({"indexes": [index.descriptor.spec for index in indexes]})


def _is_temporary(entry: bytes) -> bool:
    options = get_value(entry, "options")
    return isinstance(options, bytes) and get_value(options, "temp") is True
