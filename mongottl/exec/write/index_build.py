"""Building indexes over collections that are in use.

The records are read in the order of their ids, in batches, and other operations run between two batches. The build and
the writes follow one rule (`CollectionIndex.covers_record`), so that the index is exact at the end:

    record id   1 ............ built_through ............ build_end ............►
                the build is     the build will visit      newer than the build:
                done with them;  them: writes leave        writes maintain
                writes maintain  the index alone           the index

`build_end` is the highest id at the start, so the build ends however fast new records come.

An unfinished index is in the collection's list of indexes but not in the stored catalog: after a crash the next start
drops its data.

Where several servers have the same store (`CollectionIndex.builder`) it is in the stored catalog. All of them maintain
it for all records, and the build begins when they do: it adds the entries that are missing, and holds the records, so
that no other server changes one between the reading of it and the end of the unit that adds its keys.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.index_kinds import BTREE
from mongottl.document.interrupt import Undivided, begin_evaluation, end_evaluation
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.stage import FIRST_BATCH, next_batch_size
from mongottl.exec.unit.write_unit import WriteUnit
from mongottl.exec.write.keys_ahead import MOST_OVERTAKEN, KeysAhead
from mongottl.exec.write.waiting import await_transaction
from mongottl.exec.write.writes import duplicate_key_error
from mongottl.storage.errors import (
    CatalogChanged,
    ClaimedByTransaction,
    DuplicateKey,
    EngineUnavailable,
    MustBeAlone,
    WriteConflict,
)
from mongottl.storage.stores import MAX_RECORD_ID, Record

# Records of one batch: one or two milliseconds for one index.
BUILD_BATCH: Final = 256
# Bytes of documents in one batch; the last document may exceed it.
BUILD_BYTES: Final = 4 << 20
# Write conflicts of one batch after which the build fails.
MAX_CONFLICTS: Final = 100
# How often at once it is tried to remove unfinished indexes while other servers change the catalog.
_DISCARDS: Final = 20


def build_indexes(
    op: OperationContext,
    collection: Collection,
    descriptors: list[IndexDescriptor],
    batch: int = BUILD_BATCH,
    replaced: CollectionIndex | None = None,
) -> list[CollectionIndex]:
    """Builds indexes in one pass over the collection, all or none: `start_indexes`, then `finish_build`."""
    started = start_indexes(op, collection, descriptors, replaced)
    finish_build(op, collection, started, batch, replaced)
    return started


def start_indexes(
    op: OperationContext,
    collection: Collection,
    descriptors: list[IndexDescriptor],
    replaced: CollectionIndex | None = None,
) -> list[CollectionIndex]:
    """Adds indexes that are to be built, all or none, by `finish_build`, which must follow.

    The caller has checked that they may be created, in the undivided block in which it calls this, or they replace
    an index: `replaced`. IndexBuildAborted (276) if that, or the collection, was dropped meanwhile.
    """
    started: list[CollectionIndex] = []
    try:
        with Undivided():
            _check_wanted(collection, [] if replaced is None else [replaced])
            started = op.catalog.start_indexes(collection, descriptors)
            last, _ = op.recovery_unit.records(collection).scan(MAX_RECORD_ID, 1, False)
            for index in started:
                index.build_end = last[0][0] if last else 0
    except BaseException:
        _discard(op, collection, started)
        raise
    return started


def finish_build(
    op: OperationContext,
    collection: Collection,
    started: list[CollectionIndex],
    batch: int = BUILD_BATCH,
    replaced: CollectionIndex | None = None,
    dropped: Sequence[str] = (),
) -> None:
    """Fills indexes that `start_indexes` has added, and makes them ready.

    batch: maximum records between two steps; fewer if their keys are slow to generate. replaced: an existing index that
    the only new one replaces. dropped: names of existing indexes that are dropped in the unit of work that stores the
    new ones; a new one may have such a name.
    DuplicateKeyError (11000) where unexpired documents share a unique key; CannotIndexParallelArrays (171);
    IndexBuildAborted (276) if one of them, or the collection, is dropped meanwhile; MaxTimeMSExpired (50).
    Nothing of them is left after an error.
    """
    op.builds_on = collection
    try:
        built = [index for index in started if index.has_keys]
        if built:
            if built[0].builder:
                _await_others(op, collection, built)
            _fill(op, collection, built, batch)
        while not _finish(op, collection, started, replaced, dropped):
            op.check_interrupt()
    except BaseException:
        _discard(op, collection, started)
        raise
    finally:
        op.builds_on = None


def _finish(
    op: OperationContext,
    collection: Collection,
    started: list[CollectionIndex],
    replaced: CollectionIndex | None,
    dropped: Sequence[str],
) -> bool:
    """Makes indexes ready that are filled. False if another server has changed the catalog meanwhile: then the next
    block begins with what it has made of it."""
    try:
        with Undivided():
            _check_wanted(collection, started if replaced is None else [*started, replaced])
            old = [index for index in collection.indexes if index.name in dropped and index not in started]
            op.catalog.finish_indexes(collection, started, replaced, old)
        return True
    except (CatalogChanged, ClaimedByTransaction):
        return False


def _await_others(op: OperationContext, collection: Collection, indexes: list[CollectionIndex]) -> None:
    """Returns when all servers of the store maintain the indexes. All that they have written before the build reads."""
    nodes = op.service.engine.nodes
    assert nodes is not None
    nodes.settle()
    with Undivided():
        _check_wanted(collection, indexes)
        last, _ = op.recovery_unit.records(collection).scan(MAX_RECORD_ID, 1, False)
        for index in indexes:
            index.build_end = last[0][0] if last else 0


def _discard(op: OperationContext, collection: Collection, started: list[CollectionIndex]) -> None:
    """Removes unfinished indexes. Where that fails, and the stored catalog has them, `clear_up` does so later."""
    left: list[CollectionIndex] = []
    with suppress(EngineUnavailable):
        for _ in range(_DISCARDS):
            with suppress(WriteConflict), Undivided():
                left = [index for index in started if index in collection.indexes and not collection.dropped]
                if left:
                    op.catalog.remove_indexes(collection, left)
                return
    if left and left[0].builder:
        op.service.left_indexes.update([index.ident for index in left])
    else:
        with Undivided():
            op.catalog.abandon_indexes(collection, left)


def _fill(op: OperationContext, collection: Collection, indexes: list[CollectionIndex], batch: int) -> None:
    build_end = indexes[0].build_end
    built_through = 0
    conflicts = 0
    # How often the keys of the batch's long documents were made ahead; more than once if others have changed these.
    overtaken = 0
    # Keys of text, geospatial and wildcard indexes take a hundred times as long as those of a number.
    costly = any(index.descriptor.kind is not BTREE for index in indexes)
    size = min(batch, FIRST_BATCH) if costly else batch
    with KeysAhead() as ahead:
        while built_through < build_end:
            started_s = op.service.clock.monotonic_s()
            added = False
            conflict: WriteConflict | None = None
            with Undivided():  # what is read is in the index before others can change it
                _check_wanted(collection, indexes)
                records, _ = op.recovery_unit.records(collection).scan(built_through, size, True, BUILD_BYTES)
                if not records:
                    return  # all remaining records were deleted
                missing: list[bytes] = []
                if overtaken <= MOST_OVERTAKEN:
                    missing = [record[1] for record in records if ahead.lacks(indexes, record[1])]
                if not missing:
                    try:
                        _add_batch(op, collection, indexes, records)
                        added = True
                    except WriteConflict as raised:
                        conflict = raised
                if added:
                    conflicts = 0
                    built_through = records[-1][0]
                    for index in indexes:
                        if not index.builder:
                            index.built_through = built_through
            if added:
                size = min(batch, next_batch_size(op, size, started_s))
                ahead.forget()
                overtaken = 0
            # Not in smaller parts where others have changed the catalog: the engine holds that off from the next unit.
            if conflict is not None and not await_transaction(op, conflict):
                conflicts += 1
                if conflicts > MAX_CONFLICTS:
                    raise conflict
            overtaken += bool(missing)
            for document in missing:
                ahead.make(indexes, document)
            op.give_way()
            op.check_interrupt()


def _check_wanted(collection: Collection, indexes: list[CollectionIndex]) -> None:
    """IndexBuildAborted (276) if the collection or an index was dropped meanwhile."""
    if collection.dropped:
        raise CommandError(ErrorCode.IndexBuildAborted, _failed(collection, "the collection was dropped"))
    for index in indexes:
        if index not in collection.indexes:
            raise CommandError(ErrorCode.IndexBuildAborted, _failed(collection, f"index '{index.name}' was dropped"))


def _failed(collection: Collection, reason: str) -> str:
    return f"Index build failed: Collection {collection.namespace} :: caused by :: {reason}"


def _add_batch(
    op: OperationContext, collection: Collection, indexes: list[CollectionIndex], records: list[Record]
) -> None:
    """Adds the keys of a batch to all indexes, in one unit of work. WriteConflict: the caller reads the batch again."""
    unit = op.recovery_unit.write(collection)
    try:
        with unit:
            op.service.engine.require_room()
            if indexes[0].builder:
                unit.records.hold_records(records)
            batch = _Batch(unit, indexes, records)
            batch.make_keys()
            batch.add_keys()
            unit.commit()
    except CommandError as error:
        if is_interruption(error):
            raise
        text = _failed(collection, error.message)
        if isinstance(error, DuplicateKeyError):
            # A long key is described by who replies: nobody else runs here.
            raise DuplicateKeyError(error.code, text, error.details, error.key_value, error.describe) from None
        raise CommandError(error.code, text, error.details) from None


class _Batch:
    """Records whose keys are added to indexes under construction, inside a unit of work.

    An expired record is deleted if it has no valid keys, or the unique key of another record. Other expired records are
    indexed too, since they become visible again if TTL is turned off.
    """

    def __init__(self, unit: WriteUnit, indexes: list[CollectionIndex], records: list[Record]) -> None:
        self._unit = unit
        self._indexes = indexes
        self._records = records
        self._positions = {record[0]: position for position, record in enumerate(records)}
        # For each index, the keys of each record; empty for records that were deleted before.
        self._keys: list[list[list[bytes]]] = []
        self._deleted: set[int] = set()

    def make_keys(self) -> None:
        """Generates all keys. Raises the error of `CollectionIndex.keys_of` if a record that is not expired has none,
        and those of `check_interrupt`: the words of 16 MB of text take seconds, and an error ends the unit of work."""
        begun = begin_evaluation()
        try:
            self._make_keys()
        finally:
            if begun:
                end_evaluation()

    def _make_keys(self) -> None:
        wanted: MustBeAlone | None = None
        for index in self._indexes:
            is_noted = False
            keys_of: list[list[bytes]] = []
            for record in self._records:
                keys: list[bytes] = []
                if record[0] not in self._deleted:
                    try:
                        keys = index.keys_of(record[1])
                        if index.became_multikey() and not is_noted:
                            try:
                                self._unit.record_multikey_change(index)
                            except MustBeAlone as raised:
                                # Of all indexes at once, not of one of them at each attempt.
                                wanted, is_noted = raised, True
                    except CommandError as error:
                        if is_interruption(error) or not self._unit.is_expired(record):
                            raise
                        self._delete(record)
                keys_of.append(keys)
            self._keys.append(keys_of)
        if wanted is not None:
            raise wanted

    def add_keys(self) -> None:
        """Inserts the entries. DuplicateKeyError (11000) if two records that are not expired share a unique key."""
        for number, index in enumerate(self._indexes):
            entries: list[tuple[bytes, int]] = []
            for record, keys in zip(self._records, self._keys[number], strict=True):
                if record[0] not in self._deleted:
                    for key in keys:
                        entries.append((key, record[0]))
            try:
                self._unit.index(index).insert(entries)
            except DuplicateKey:
                self._add_singly(number)

    def _add_singly(self, number: int) -> None:
        """Adds an index's keys record by record; deletes expired records that have the key of another record."""
        unit = self._unit
        index = self._indexes[number]
        data = unit.index(index)
        for record, keys in zip(self._records, self._keys[number], strict=True):
            while record[0] not in self._deleted:
                try:
                    data.insert([(key, record[0]) for key in keys])
                    break
                except DuplicateKey as duplicate:
                    existing = unit.records.find_record(duplicate.existing_record_id)
                    if existing is not None and unit.is_expired(existing):
                        self._delete(existing)
                    elif unit.is_expired(record):
                        self._delete(record)
                    else:
                        raise duplicate_key_error(
                            unit.service, unit.collection, index, record[1], duplicate.key
                        ) from None

    def _delete(self, record: Record) -> None:
        """Deletes an expired record, with the entries that this unit has added for it.

        `WriteUnit.delete` does not remove them, because the unfinished indexes do not cover the record yet.
        """
        unit = self._unit
        unit.delete([record], expired=True)
        self._deleted.add(record[0])
        position = self._positions.get(record[0], -1)
        if position < 0:
            return
        for index, keys_of in zip(self._indexes, self._keys, strict=False):
            unit.index(index).remove([(key, record[0]) for key in keys_of[position]])
