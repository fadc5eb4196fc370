"""Updates and deletes of single documents by their `_id`s that follow one another in a batch, executed together.

    {_id: 1}  {_id: 2}  {_id: 3}  …  ──► one look into the index on `_id` ──► a unit of work for those that are updated,
                                                                              another for those that are inserted

Each unit of work has its commit: where the engine waits for a disk or for another machine, that is most of what a small
write takes. The statements name different `_id`s, so none of them changes what another one finds. What cannot be
written so is left to the caller, who executes it one by one, with the errors and the retries of single statements.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from mongottl.catalog.collection import Collection
from mongottl.errors import CommandError, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.unit.write_unit import living_now
from mongottl.exec.write.keys_ahead import KeysAhead
from mongottl.exec.write.modifying import (
    UpdateResult,
    document_of_upsert,
    result_of_upsert,
    store_together,
    updated_document,
)
from mongottl.exec.write.waiting import together
from mongottl.exec.write.writes import delete_batch, insert_batch
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression
from mongottl.query.update import UpdateDriver
from mongottl.storage.errors import CatalogChanged, DamagedRecord, DuplicateKey, WriteConflict
from mongottl.storage.stores import Record

T = TypeVar("T")

# The most bytes of documents that are found to be written together.
_MOST_BYTES = 16 << 20


class UpdateById:
    """One update. key: the key of the `_id` that it names in the index on `_id`. upsert: whether it inserts a document
    if there is none."""

    def __init__(
        self, key: bytes, match: MatchExpression, driver: UpdateDriver, context: ParseContext, upsert: bool
    ) -> None:
        self.key = key
        self.match = match
        self.driver = driver
        self.context = context
        self.upsert = upsert


class _Run:
    """Updates that one unit of work writes. positions: their places among all. records: those that they have found;
    none for upserts that insert."""

    def __init__(self, driver: UpdateDriver, is_insert: bool) -> None:
        self.driver = driver
        self.is_insert = is_insert
        self.positions: list[int] = []
        self.records: list[Record] = []

    def beginning(self, count: int) -> "_Run":
        """The first updates of a run that updates."""
        run = _Run(self.driver, False)
        run.positions = self.positions[:count]
        run.records = self.records[:count]
        return run

    def takes(self, driver: UpdateDriver, is_insert: bool) -> bool:
        """Whether an update belongs to this run: the oplog describes all of a unit in one way (`oplog.change`)."""
        if is_insert or self.is_insert:
            return is_insert and self.is_insert
        return driver.kind == self.driver.kind and driver.touched_paths == self.driver.touched_paths


def takes_together(collection: Collection) -> bool:
    """Whether statements that name documents of this collection by `_id` can be executed together."""
    if collection.id_index is None or collection.is_partitioned or collection.shard_key is not None:
        return False
    if collection.time_series is not None or collection.options.capped:
        return False  # an insert into a capped collection deletes what another statement may name
    return collection.validator is None or not collection.validator.is_long


def update_by_ids(
    op: OperationContext, collection: Collection, updates: list[UpdateById], first: int, ordered: bool
) -> list[UpdateResult]:
    """Executes the updates before the first that cannot be written together with its neighbours; their results.

    updates: with different keys, and drivers without positional operators. first: the position of the first one in its
    batch. ordered: whether each is to see what others had done when the ones before it were executed
    (`_may_be_overtaken`).
    """
    keys = [update.key for update in updates]

    def update() -> list[UpdateResult]:
        found = _found(op, collection, keys)
        if found is None:
            return []
        group = _Group(op, collection, updates, found, first)
        executed = group.execute(ordered and _may_be_overtaken(op))
        _note_lookups(op, collection, keys[:executed], found)
        return group.results[:executed]

    return _together(op, collection, update)


def _together(op: OperationContext, collection: Collection, execute: Callable[[], list[T]]) -> list[T]:
    """The results of a group. Empty if its statements are to be executed one by one."""

    def write() -> list[T]:
        return [] if collection.dropped or not takes_together(collection) else execute()

    return together(op, write) or []


def _may_be_overtaken(op: OperationContext) -> bool:
    """Whether others may change documents between the look for all and the commit of some.

    What is written is compared then. But a statement that writes nothing, since it has found nothing or changes
    nothing, would not know of a change that somebody made before an earlier statement: so it looks again.
    """
    return op.service.engine.suspends or op.was_left


def _found(op: OperationContext, collection: Collection, keys: list[bytes]) -> dict[bytes, Record] | None:
    """`living_by_ids`; None also where it fails, but for an interruption."""
    try:
        return living_by_ids(op, collection, keys)
    except CommandError as error:
        if is_interruption(error):
            raise
    except DamagedRecord:
        pass  # those before it can be executed
    return None


def _note_lookups(op: OperationContext, collection: Collection, keys: list[bytes], found: dict[bytes, Record]) -> None:
    """Counts what has been looked up for statements that were executed: for the log and for `$indexStats`."""
    assert collection.id_index is not None
    collection.id_index.accesses += len(keys)
    op.profile.lookups_by_id += len(keys)
    op.profile.found_by_id += sum([key in found for key in keys])


def _first_idle(writes: Iterable[bool], has_written: bool) -> int:
    """The place of the first statement that writes nothing after others that do; -1 if there is none."""
    for place, is_write in enumerate(writes):
        if is_write:
            has_written = True
        elif has_written:
            return place
    return -1


def living_by_ids(op: OperationContext, collection: Collection, keys: list[bytes]) -> dict[bytes, Record] | None:
    """The records with these keys of the index on `_id` that are not expired, by their keys; None if they are too large
    to be written together, or one of them is just being written: a transaction may replace a document by another."""
    index = collection.id_index
    assert index is not None
    unit = op.recovery_unit
    key_of_id = {record_id: key for key, record_id in unit.index(index).find_exact(keys)}
    stored, looked_up = unit.records(collection).find_records(list(key_of_id), _MOST_BYTES)
    if looked_up < len(key_of_id) or len(stored) < len(key_of_id):
        return None
    return {key_of_id[record[0]]: record for record in living_now(op.service, collection, stored)}


class _Group:
    """Updates that are being executed. found: the records that they have found, by key. first: the position of the
    first one in its batch. results: of each one, once it is executed."""

    def __init__(
        self,
        op: OperationContext,
        collection: Collection,
        updates: list[UpdateById],
        found: dict[bytes, Record],
        first: int,
    ) -> None:
        self._op = op
        self._collection = collection
        self._updates = updates
        self._found = found
        self._first = first
        self.results = [UpdateResult() for _ in updates]

    def execute(self, looks_again: bool) -> int:
        """Executes the updates before the first that cannot be written together with its neighbours; how many.

        looks_again: whether the first one that writes nothing after others that do ends the group. CatalogChanged: none
        of them is executed.
        """
        start = 0
        has_written = False
        runs, end = self._runs(looks_again)
        try:
            for run in runs:
                start = run.positions[0]
                if run.is_insert:
                    self._insert(run)
                    has_written = True
                    continue
                updated = [
                    updated_document(None, record, self._updates[position].driver)
                    for position, record in zip(run.positions, run.records, strict=True)
                ]
                idle = _first_idle(self._writes(run.records, updated), has_written) if looks_again else -1
                if idle >= 0:
                    end = run.positions[idle]
                    run = run.beginning(idle)
                    updated = updated[:idle]
                if updated and not self._update(run, updated):
                    return start
                if idle >= 0:
                    break
                has_written = has_written or any(modified for _, modified in updated)
        except CommandError as error:
            if start == 0 and is_interruption(error):
                raise
            return start
        except CatalogChanged:
            if start == 0:
                raise
            return start
        except (DuplicateKey, WriteConflict, DamagedRecord):
            return start
        return end

    def _runs(self, looks_again: bool) -> tuple[list[_Run], int]:
        """The units of work of these updates, in their order, without those that find nothing and insert nothing; and
        the end of the updates that these units execute: see `execute`."""
        runs: list[_Run] = []
        for position, update in enumerate(self._updates):
            record = self._found.get(update.key)
            if record is None and not update.upsert:
                if runs and looks_again:
                    return runs, position
                continue
            if not runs or not runs[-1].takes(update.driver, record is None):
                runs.append(_Run(update.driver, record is None))
            run = runs[-1]
            run.positions.append(position)
            if record is not None:
                run.records.append(record)
        return runs, len(self._updates)

    def _writes(self, records: list[Record], updated: list[tuple[bytes, bool]]) -> list[bool]:
        """Whether each of the records is written: also one that does not change, if its `_ts` is renewed."""
        refresh = self._op.service.config.refresh_on_noop
        now_s = self._op.service.now_s()
        return [
            modified or (refresh and record[2] != now_s) for record, (_, modified) in zip(records, updated, strict=True)
        ]

    def _update(self, run: _Run, updated: list[tuple[bytes, bool]]) -> bool:
        """Updates the records of a run, and notes the results; False if that fails for one of them. WriteConflict.

        updated: of each record the document, and whether it is another one."""
        op, collection = self._op, self._collection
        places = [self._first + position for position in run.positions]
        with KeysAhead() as ahead:
            if not store_together(op, collection, run.records, updated, run.driver, UpdateResult(), ahead, places):
                return False
        for position, (_, modified) in zip(run.positions, updated, strict=True):
            self.results[position].matched = 1
            self.results[position].modified = 1 if modified else 0
        return True

    def _insert(self, run: _Run) -> None:
        """Inserts the documents of a run of upserts, and notes the results. DuplicateKey, WriteConflict."""
        op, collection = self._op, self._collection
        documents: list[bytes] = []
        for position in run.positions:
            update = self._updates[position]
            documents.append(document_of_upsert(op, collection, update.driver, update.match, update.context))
        write = op.recovery_unit.retryable_write
        if write is not None:
            write.begin_together([self._first + position for position in run.positions])
        insert_batch(op, collection, documents)
        op.service.metrics.documents["inserted"] += len(documents)
        for position, document in zip(run.positions, documents, strict=True):
            self.results[position] = result_of_upsert(document)


def delete_by_ids(
    op: OperationContext, collection: Collection, keys: list[bytes], first: int, ordered: bool
) -> list[bool]:
    """Deletes the documents with these different keys of the index on `_id`, or with those before one that has to look
    again; of each whether there was one. Empty if they cannot be deleted together. first, ordered: see
    `update_by_ids`."""
    return _together(op, collection, lambda: _delete_by_ids(op, collection, keys, first, ordered))


def _delete_by_ids(
    op: OperationContext, collection: Collection, keys: list[bytes], first: int, ordered: bool
) -> list[bool]:
    """`delete_by_ids`. CatalogChanged: none of them is deleted."""
    found = _found(op, collection, keys)
    if found is None:
        return []
    if ordered and _may_be_overtaken(op):
        idle = _first_idle([key in found for key in keys], False)
        keys = keys if idle < 0 else keys[:idle]
    positions = [position for position, key in enumerate(keys) if key in found]
    try:
        if positions:
            write = op.recovery_unit.retryable_write
            if write is not None:
                write.begin_together([first + position for position in positions])
            delete_batch(op, collection, [found[keys[position]] for position in positions])
            op.service.metrics.documents["deleted"] += len(positions)
    except CommandError as error:
        if is_interruption(error):
            raise
        return []
    except CatalogChanged:
        raise
    except WriteConflict:
        return []
    _note_lookups(op, collection, keys, found)
    return [key in found for key in keys]
