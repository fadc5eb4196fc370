"""One collection in memory: its record store, its indexes, its options, its TTL default."""

from typing import TYPE_CHECKING, Final

from mongottl.catalog.array_paths import NO_ARRAYS, ArrayPaths
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.index_kinds import BTREE
from mongottl.catalog.keys import KeyGenerator, MadeKeys, check_count
from mongottl.catalog.options import CollectionOptions
from mongottl.catalog.plan_memory import PlanMemory
from mongottl.catalog.shard_key import PARTITION_ID_INDEX, ShardKey
from mongottl.catalog.time_series import TimeSeries
from mongottl.catalog.validator import Validator, validator_of
from mongottl.catalog.view import SYSTEM_VIEWS
from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.interrupt import UndividedEvaluation
from mongottl.document.types import BinData, Int64, Value
from mongottl.document.walk import find_field_at, skip_value
from mongottl.query.collation import parse_collation
from mongottl.query.icu import icu_version
from mongottl.storage.stores import MAX_RECORD_ID, RecordStore, SortedDataInterface
from mongottl.ttl.policy import NO_TTL

if TYPE_CHECKING:
    from mongottl.query.match import MatchExpression

# Making the keys of a document that is at least this long can be interrupted.
LONG_DOCUMENT_BYTES: Final = 64 * 1024
# Longer than any document.
_NEVER_AHEAD: Final = 1 << 30


class CollectionIndex:
    """An index of a collection, with its data.

    data: its entries; None for the TTL setting on `_ts`, which has none.
    arrays: where documents have or had arrays on the index's paths, so that one document may have several keys.
    type_bits: the BSON types of the indexed values, where keys do not have them (`document.key_reader`); -1: not known.
    ready: False while it is being built. Plans do not use it then, and writes maintain it only for records that the
    build has read, up to `built_through`, and for those that it will not read, above `build_end`. Record ids ascend, so
    the latter were inserted after the build began; the build ends, however many are inserted.
    builder: the server that builds it, where several have the same store: it is in the stored catalog then, and all of
    them maintain it for all records; else 0.
    dropped: whether its data is gone; scans that read it then fail.
    made_ahead: keys of long documents that operations are about to write.
    """

    def __init__(
        self,
        descriptor: IndexDescriptor,
        ident: str,
        data: SortedDataInterface | None,
        ready: bool,
        arrays: ArrayPaths = NO_ARRAYS,
        type_bits: int = 0,
    ) -> None:
        self.descriptor = descriptor
        self.ident = ident
        self.data = data
        self.arrays = arrays
        self.type_bits = type_bits
        self.ready = ready
        self.dropped = False
        # The id of the index build.
        self.build_uuid: Value = None
        self.built_through: int = 0
        self.build_end: int = MAX_RECORD_ID
        self.builder: int = 0
        self.keys: KeyGenerator = descriptor.key_generator()
        self.made_ahead: list[MadeKeys] = []
        self.accesses: int = 0
        # When the index was created, hidden or unhidden, which resets the count of accesses; 0: before the server
        # started.
        self.since_ms: int = 0

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def multikey(self) -> bool:
        """Whether any document has or had an array on the index's paths."""
        return self.arrays.found

    @property
    def has_keys(self) -> bool:
        """Whether the index has entries; the TTL setting on `_ts` has none."""
        return self.data is not None

    @property
    def has_unique_keys(self) -> bool:
        """Whether no two records have the same key."""
        return self.data is not None and self.data.unique

    @property
    def sorted_data(self) -> SortedDataInterface:
        """The entries of an index that has keys (`has_keys`)."""
        data = self.data
        assert data is not None
        return data

    def became_multikey(self) -> bool:
        """Whether the last document that keys were made of has an array or a type bit that is not recorded yet."""
        if self.keys.saw_array and not self.arrays.holds(self.keys.array_paths):
            return True
        return self.keys.type_bits | self.type_bits != self.type_bits

    def restore(self, arrays: ArrayPaths, type_bits: int) -> None:
        """Undoes `record_multikey_change` of a write that was rolled back."""
        self.arrays = arrays
        self.type_bits = type_bits

    def covers_record(self, rid: int) -> bool:
        """Whether a write of this record must maintain the index."""
        return self.ready or rid <= self.built_through or rid > self.build_end

    def has_same_keys(self, before: bytes, after: bytes) -> bool:
        """True if two documents have the same bytes in all indexed fields, and so the same keys. After False, the keys
        may still be equal, and must be made and compared."""
        roots = self.keys.roots
        if not roots or self.descriptor.partial_match is not None:
            return False
        for root in roots:
            old_type, old_at = find_field_at(before, 0, root)
            new_type, new_at = find_field_at(after, 0, root)
            if old_type != new_type:
                return False
            if old_type != 0:
                old_end = skip_value(before, old_type, old_at)
                if before[old_at:old_end] != after[new_at : skip_value(after, new_type, new_at)]:
                    return False
        return True

    def keys_of(self, document: bytes) -> list[bytes]:
        """The document's keys; none if a partial index leaves it out. CannotBuildIndexKeys (201) for too many.

        Those of a long document can be interrupted, as the words of 16 MB of text take seconds: the errors of
        `check_interrupt`, also in a unit of work, which they end. No other operation runs meanwhile, since all make
        keys by the same generator.
        """
        partial = self.descriptor.partial_match
        if self._is_short(document):
            return self.keys_by(self.keys, document, partial)
        made = self._made_of(document)
        if made is not None:
            return self.keys.adopt(made)
        with UndividedEvaluation():
            return self.keys_by(self.keys, document, partial)

    def finds_made(self, document: bytes) -> bool:
        """Whether the document's keys were made ahead."""
        return self._made_of(document) is not None

    def _made_of(self, document: bytes) -> MadeKeys | None:
        for made in self.made_ahead:
            if made.document == document:
                return made
        return None

    def keys_by(self, generator: KeyGenerator, document: bytes, partial: "MatchExpression | None") -> list[bytes]:
        """`keys_of` by a generator of this index, which notes the document's arrays and types. partial: the filter of a
        partial index."""
        if partial is not None and not partial.matches(document):
            generator.begin()
            return []
        keys = generator.keys_of(document)
        check_count(len(keys))
        return keys

    def takes(self, document: bytes) -> bool:
        """Whether the index has keys of a document, as all but partial indexes have of every document."""
        partial = self.descriptor.partial_match
        if partial is None or self._is_short(document):
            return partial is None or partial.matches(document)
        with UndividedEvaluation():
            return partial.matches(document)

    def _is_short(self, document: bytes) -> bool:
        return len(document) < LONG_DOCUMENT_BYTES and len(document) < self.descriptor.ahead_bytes

    def announce(self, builder: int) -> None:
        """Notes which of several servers builds it."""
        self.builder = builder
        self.built_through = MAX_RECORD_ID

    @property
    def is_stored(self) -> bool:
        """Whether the stored catalog has it."""
        return self.ready or self.builder > 0

    def entry_document(self, is_ready: bool) -> dict[str, Value]:
        entry: dict[str, Value] = {
            "spec": self.descriptor.spec,
            "ident": self.ident,
            "multikey": self.multikey,
            "multikeyPaths": sorted(self.arrays.paths),
            "typeBits": Int64(self.type_bits),
        }
        if self.descriptor.collation is not None:
            entry["icu"] = icu_version()  # of its keys
        if not is_ready:
            entry["builder"] = Int64(self.builder)
        return entry


class IndexMarks:
    """What documents that are about to be written add to what is known of an index: see there."""

    def __init__(self, index: CollectionIndex, array_paths: frozenset[str], type_bits: int) -> None:
        self.index = index
        self.array_paths = array_paths
        self.type_bits = type_bits


class Collection:
    """A collection of documents.

    number: unique among the collections of this server since it was created; names it in the timing wheel.
    options: those of `create`, with the changes of `collMod`. collation: the default of operations; never changed.
    default_ttl_s: seconds of the `_ts` index, NEVER or NO_TTL.
    validator: what documents must match to be written, or None. time_series: None for any other collection.
    writable_indexes: those with keys, ready or being built; a write maintains them all. ahead_bytes: the least one
    of theirs (`IndexDescriptor.ahead_bytes`).
    evicted_through: the newest record that a capped collection has lost to newer ones since the server started.
    scans, tailable_scans: how many times it was read from end to end, and how many of these by tailable cursors.
    clustering: the index on `_id` if that is the collection's natural order, else None.
    shard_key: None for a collection that is not sharded; never changed. is_partitioned: whether the engine keeps
    documents apart by its value (`RecordStore.is_partitioned`).
    id_index: the index on `_id`, by which a record is found by one key; None if `_id` is not unique.
    partition_index: then the index on (shard key, `_id`), which is unique.
    writes: changes each time that records were written, so that a long operation can notice it.
    purged_documents: how many expired documents were deleted since the server started.
    changed_at: the version of the catalog with its latest change of name or indexes. pending: whether it was created by
    a transaction that has not committed, and is in no database yet.
    writes_alone: whether its units of work are alone, where an engine can have several open; next_alone: the next one.
    is_built_for_all: whether one of several servers builds an index, which all of them maintain.
    unpublished: what `Catalog.publish_marks` has to store of indexes before the next write.
    held_by: the server that copies it, where several have the same store: nobody writes to it meanwhile; else 0.
    """

    def __init__(
        self, database: str, name: str, number: int, uuid: bytes, options: CollectionOptions, store: RecordStore
    ) -> None:
        self.database = database
        self.name = name
        self.namespace = f"{database}.{name}"
        self.number = number
        self.uuid = BinData(uuid, 4)
        self.options = options
        self.collation: Collation | None = None if options.collation is None else parse_collation(options.collation)
        self.validator: Validator | None = validator_of(options)
        self.time_series: TimeSeries | None = None if options.time_series is None else TimeSeries(options.time_series)
        self.shard_key: ShardKey | None = ShardKey(options.shard_key) if options.shard_key else None
        self.store = store
        self.is_partitioned: bool = self.shard_key is not None and store.is_partitioned
        if self.shard_key is not None:
            store.partition_by(self.shard_key.value_of)
        self.indexes: list[CollectionIndex] = []
        self.writable_indexes: list[CollectionIndex] = []
        self.ahead_bytes: int = _NEVER_AHEAD
        self.date_ttl_indexes: list[CollectionIndex] = []
        self.default_ttl_s: int = NO_TTL
        self.id_index: CollectionIndex | None = None
        self.partition_index: CollectionIndex | None = None
        self.clustering: CollectionIndex | None = None
        self.dropped = False
        self.scans: int = 0
        self.tailable_scans: int = 0
        self.generation: int = 0
        self.plan_memory = PlanMemory()
        self.evicted_through: int = 0
        self.writes: int = 0
        # How many of these writes only deleted expired documents.
        self.purges: int = 0
        self.purged_documents: int = 0
        self.changed_at: int = 0
        self.pending = False
        self.writes_alone = False
        self.next_alone = False
        self.is_built_for_all = False
        self.unpublished: list[IndexMarks] = []
        self.held_by: int = 0

    def take_statistics(self, other: "Collection") -> None:
        """Continues the statistics and index filters of an object that this one replaces."""
        self.purged_documents = other.purged_documents
        self.scans = other.scans
        self.tailable_scans = other.tailable_scans
        self.plan_memory.filters = other.plan_memory.filters
        for index in self.indexes:
            known = other.index_named(index.name)
            if known is not None and known.ident == index.ident:
                index.accesses = known.accesses
                index.since_ms = known.since_ms

    def take_stored(self, stored: "Collection") -> bool:
        """Takes over options and indexes that another server has given it. stored: the collection as it is stored now.
        Indexes that are there keep their objects, and so do those that are being built here. Whether anything has
        changed but that indexes are multikey."""
        changed = stored.options.raw != self.options.raw
        if changed:
            self.set_options(stored.options)
        if stored.held_by != self.held_by:
            changed = True
            self.held_by = stored.held_by
        known = {index.ident: index for index in self.indexes}
        indexes: list[CollectionIndex] = []
        for index in stored.indexes:
            kept = known.get(index.ident)
            if kept is None or kept.data is not index.data:
                changed = True
                indexes.append(index)
                continue
            del known[index.ident]
            changed = changed or kept.descriptor.spec != index.descriptor.spec or (index.ready and not kept.ready)
            kept.descriptor = index.descriptor
            kept.arrays = ArrayPaths(kept.arrays.paths | index.arrays.paths)
            kept.type_bits |= index.type_bits
            if index.ready:
                kept.ready = True
            indexes.append(kept)
        for index in known.values():
            if index.is_stored:
                changed = True
                index.dropped = True
            else:
                indexes.append(index)
        self.set_indexes(indexes)
        return changed

    def mark_dropped(self) -> None:
        """After its deletion was committed: scans of it then fail."""
        self.dropped = True
        self.generation += 1
        for index in self.writable_indexes:
            index.dropped = True

    def set_indexes(self, indexes: list[CollectionIndex]) -> None:
        """Sets the list of indexes, and all attributes that are computed from it."""
        self.indexes = indexes
        self.writable_indexes = [index for index in indexes if index.data is not None]
        self.ahead_bytes = min([index.descriptor.ahead_bytes for index in self.writable_indexes], default=_NEVER_AHEAD)
        self.date_ttl_indexes = [
            index
            for index in indexes
            # MongoDB accepts the option on other kinds of index, but does not delete by them.
            if index.descriptor.expire_after_s is not None and index.descriptor.kind is BTREE
        ]
        self.default_ttl_s = NO_TTL
        self.id_index = None
        self.partition_index = None
        self.clustering = None
        self.is_built_for_all = any(index.builder > 0 for index in indexes)
        self.generation += 1
        self._note_alone()
        for index in indexes:
            if index.descriptor.is_ttl_setting and index.ready:
                self.default_ttl_s = index.descriptor.default_ttl_s
            if index.name == PARTITION_ID_INDEX:
                self.partition_index = index
            if index.descriptor.is_id and self.has_unique_ids:
                self.id_index = index
                if index.descriptor.clustered:
                    self.clustering = index

    def _note_alone(self) -> None:
        """What a write of a capped collection displaces, and duplicates that `prepareUnique` refuses, are looked for
        where no engine keeps others from writing meanwhile. Of users, roles and views all servers have to hear."""
        prepares = any(index.descriptor.prepare_unique for index in self.indexes)
        self.writes_alone = bool(self.options.capped or self.time_series is not None or prepares or self.announced_as)

    def set_options(self, options: CollectionOptions) -> None:
        """Sets the options, and all attributes that are computed from them."""
        self.validator = validator_of(options)
        self.time_series = None if options.time_series is None else TimeSeries(options.time_series)
        self.options = options
        self.generation += 1
        self._note_alone()

    @property
    def announced_as(self) -> str:
        """The entry of the server itself in the catalog that each write changes, where several servers share a store:
        by that all hear of it, and a view gets no name that another server gives to a collection. "" if none."""
        if self.name == SYSTEM_VIEWS:
            return "views"
        if self.database == "admin" and (self.name == "system.users" or self.name == "system.roles"):
            return "accounts"
        return ""

    @property
    def has_unique_ids(self) -> bool:
        """Whether no two documents have the same `_id`: not where that holds for each shard key value alone."""
        return self.shard_key is None or self.shard_key.ids_are_unique

    @property
    def counted_indexes(self) -> list[CollectionIndex]:
        """The indexes that replies count: those that clients see, without the clustered index."""
        return [index for index in self.listed_indexes if not index.descriptor.clustered]

    @property
    def listed_indexes(self) -> list[CollectionIndex]:
        """The indexes that clients see."""
        if self.time_series is None and self.shard_key is None:
            return self.indexes
        return [index for index in self.indexes if not index.descriptor.internal]

    def index_named(self, name: str) -> CollectionIndex | None:
        for index in self.indexes:
            if index.name == name:
                return index
        return None

    def rename(self, database: str, name: str) -> None:
        self.database = database
        self.name = name
        self.namespace = f"{database}.{name}"

    def entry_document(
        self,
        namespace: str | None = None,
        indexes: list[CollectionIndex] | None = None,
        options: CollectionOptions | None = None,
        built: list[CollectionIndex] | None = None,
    ) -> bytes:
        """The stored catalog entry of this collection, or of one with this namespace, these indexes and options. built:
        those that become ready."""
        if indexes is None:
            indexes = [index for index in self.indexes if index.is_stored]
        entry: dict[str, Value] = {
            "ns": self.namespace if namespace is None else namespace,
            "number": self.number,
            "uuid": self.uuid,
            "options": (self.options if options is None else options).raw,
            "indexes": [
                index.entry_document(index.ready or (built is not None and index in built)) for index in indexes
            ],
        }
        if self.held_by:
            entry["heldBy"] = Int64(self.held_by)
        return encode(entry)


def record_store_ident(number: int) -> str:
    return f"collection_{number}"


def index_ident(number: int) -> str:
    return f"index_{number}"
