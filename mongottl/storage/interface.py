"""The storage contract: record stores, sorted data and units of work, over bytes.

The layers above store documents and index entries through it, and do not depend on the engine. It does not depend on
BSON, the structure of KeyStrings, collections, time or trio. A document is bytes, a key is bytes compared as unsigned
bytes, an instant is a whole number of seconds that the caller computed.

    StorageEngine ──┬── RecordStore          record id → (document, _ts, ttl), and two expiry indexes over _ts and ttl
                    ├── SortedDataInterface  (key, record id) in order; unique or not
                    ├── catalog entries      name → bytes
                    ├── WriteUnitOfWork      all writes of one operation, or none
                    └── Isolation            snapshots, and transactions of several statements

Every call takes and returns whole batches, so that an engine behind a network can answer it in one round trip, and no
call keeps a statement open: to continue a scan, pass it the last position that it returned, even if others have
written meanwhile.

Calls that return records take two limits: `limit`, the number of records, and `max_bytes`, the total length of their
documents. The record that reaches `max_bytes` is the last one, so at least one record is returned if there is any, and
a batch exceeds `max_bytes` by less than one document. Scans return a pair: the batch, and whether there may be more
records after it. False means that the end was reached; with True there is at least one record. Do not conclude from
the length of a batch whether the end was reached.

What an engine must implement is abstract. The other methods are made of these: calls for one record or entry of those
for many, fetches of scans and lookups, counts of entries that are read. An engine overrides them where it has something
faster, and those that say "by default" where it has what they are about. `forwarding` has base classes for what wraps
an engine.

All calls but `flush` and `maintain` are made on one thread. All writes happen inside a unit of work; reads may happen
outside, and inside one they see its writes. `contract.ContractEngine` asserts all this.

`stores` has record stores and sorted data, `errors` what calls may raise.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType

from mypy_extensions import mypyc_attr

from mongottl.document.interrupt import UndividedGuard
from mongottl.storage.errors import ClaimOwner
from mongottl.storage.log import LogForm, StoreLog
from mongottl.storage.nodes import StoreNodes
from mongottl.storage.stores import (
    FIRST_DUE,
    DueRecords,
    KeyRange,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)
from mongottl.storage.waiting import Waiter


@mypyc_attr(allow_interpreted_subclasses=True)
class WriteUnitOfWork(ABC):
    """The writes of one operation: all of them after `commit`, none of them otherwise.

        with engine.unit_of_work() as unit:
            record_id = records.insert_record(document, ts, ttl)
            by_id.insert_one(key, record_id)
            unit.commit()

    Leaving the block without `commit`, by an exception or not, rolls back. Units do not nest. After `commit` the block
    must be left before anything else is written.

    alone: whether no other unit is open meanwhile. unsynced: whether the commit may be lost if the machine fails that
    keeps the data, where an engine can commit faster then. position: where it is in the engine's log, after the commit.
    """

    alone: bool = True
    unsynced: bool = False
    position: int = 0

    def log(self, form: LogForm) -> None:
        """Puts a form in the engine's log, with the position of the unit. RuntimeError without one."""
        raise RuntimeError("the storage engine has no log")

    def end_kept_forms(self, ends: list[bytes]) -> None:
        """Of the final unit of a transaction: puts what that has kept (`OpenTransaction.keep_forms`) in the log, after
        the forms that `log` has put there, and before those that follow. ends: what is appended to each."""
        raise RuntimeError("the storage engine has no log")

    @abstractmethod
    def commit(self) -> None:
        """Makes the writes visible to a later opening of the engine after a crash of this process (not of the
        machine: that needs `flush`). Raises WriteConflict; then everything is rolled back."""
        raise NotImplementedError

    @abstractmethod
    def on_commit(self, action: Callable[[], None]) -> None:
        """Calls `action` after the commit, in the order given."""
        raise NotImplementedError

    @abstractmethod
    def on_rollback(self, action: Callable[[], None]) -> None:
        """Calls `action` if the unit is rolled back, in reverse order: for changes of memory made before the commit."""
        raise NotImplementedError

    @abstractmethod
    def __enter__(self) -> "WriteUnitOfWork":
        raise NotImplementedError

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenSnapshot(ABC):
    """The data as of one moment, until it is closed. too_old: whether the engine has given it up."""

    @property
    @abstractmethod
    def too_old(self) -> bool:
        raise NotImplementedError

    @abstractmethod
    def records_at(self, store: RecordStore) -> RecordStore:
        """A record store of the engine as it was then, for reads. SnapshotTooOld, here or when it is read."""
        raise NotImplementedError

    @abstractmethod
    def entries_at(self, data: SortedDataInterface) -> SortedDataInterface:
        """A sorted data of the engine as it was then, for reads; it fetches from record stores of `records_at`.

        SnapshotTooOld, here or when it is read."""
        raise NotImplementedError

    @property
    def changed_names(self) -> frozenset[str]:
        """Of one that was found: the names of catalog entries that were made, changed, named or deleted after it."""
        return frozenset()

    def share(self, at: tuple[int, int]) -> None:
        """Has other servers find it by its cluster time, until it is closed. It may wait. By default there are none."""
        return

    @abstractmethod
    def close(self) -> None:
        """Ends it; may be called again. Does not wait."""
        raise NotImplementedError


class KeptWrites(ABC):
    """What a transaction has written to a record store and its indexes, and the engine gets only when it commits.

    deleted: as the engine has them. old: what is replaced by `replacing`, likewise. inserted: without ids yet.
    All within `OpenTransaction.final_unit`; `load` comes first.
    """

    deleted: list[Record]
    old: list[Record]
    replacing: list[Record]
    inserted: list[NewRecord]

    @abstractmethod
    def load(self) -> None:
        """Reads what is deleted and replaced. SnapshotConflict if it is gone."""
        raise NotImplementedError

    @abstractmethod
    def remove_entries(self, data: SortedDataInterface) -> None:
        """Removes the entries that the transaction has removed."""
        raise NotImplementedError

    @abstractmethod
    def write_records(self) -> list[Record]:
        """Deletes, replaces and inserts the records; those that were written, with their ids."""
        raise NotImplementedError

    @abstractmethod
    def insert_entries(self, data: SortedDataInterface) -> None:
        """Inserts the entries that the transaction has added, after `write_records`."""
        raise NotImplementedError

    @abstractmethod
    def entries(self, data: SortedDataInterface) -> SortedDataInterface:
        """A sorted data of the engine for other entries that this commit inserts or removes."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenTransaction(ClaimOwner):
    """A transaction of several statements: it reads what was committed when it began, and what it has written itself.

        with transaction.statement() as unit:      the writes of one statement: all of them, or none
            transaction.own_records(store).insert_records(rows)
            transaction.own_entries(data).insert(entries)
            unit.commit()
        …
        with transaction.final_unit(engine) as unit:
            …                                      `kept_writes` of each record store, and what else belongs to it
            unit.commit()
        transaction.committed()
        transaction.release()                      also without a commit: then nothing of it remains

    What it has written nobody else sees before, and nobody else can write. Writes raise SnapshotConflict, and
    TransactionTooLarge.

    too_old: whether the engine has given up its snapshot. has_written: whether anything would be committed.
    keeps_writes: whether the engine gets them with the final unit alone, from `kept_writes`.
    """

    keeps_writes: bool = True

    @property
    @abstractmethod
    def too_old(self) -> bool:
        raise NotImplementedError

    @property
    @abstractmethod
    def has_written(self) -> bool:
        raise NotImplementedError

    @abstractmethod
    def statement(self) -> WriteUnitOfWork:
        """A unit of work for the writes of one statement, which is undone alone. An engine may wait here."""
        raise NotImplementedError

    @abstractmethod
    def records_view(self, store: RecordStore) -> RecordStore:
        """A record store of the engine as the transaction sees it, for reads."""
        raise NotImplementedError

    @abstractmethod
    def entries_view(self, data: SortedDataInterface) -> SortedDataInterface:
        """A sorted data of the engine as the transaction sees it, for reads; it fetches from `records_view`."""
        raise NotImplementedError

    @abstractmethod
    def own_records(self, store: RecordStore) -> RecordStore:
        """A record store of the engine for a statement that writes."""
        raise NotImplementedError

    @abstractmethod
    def own_entries(self, data: SortedDataInterface, complete: bool = True) -> SortedDataInterface:
        """A sorted data of the engine for a statement that writes. complete: whether it has the entries of all records;
        unique keys are not checked if not."""
        raise NotImplementedError

    @abstractmethod
    def final_unit(self, engine: "StorageEngine", alone: bool) -> WriteUnitOfWork:
        """The unit of work that commits the transaction, with whatever else is written in it. An engine may wait here.

        engine: that of the stores, which may be one that wraps this one. alone: whether it changes in memory what
        others read.
        """
        raise NotImplementedError

    def unit_beside(self, engine: "StorageEngine") -> WriteUnitOfWork:
        """A unit of work within a statement, which is committed whether or not the transaction is."""
        return engine.unit_of_work()

    @abstractmethod
    def kept_writes(self, store: RecordStore, between: Callable[[], None]) -> KeptWrites | None:
        """Within the final unit: what it has written to a record store and its indexes if the engine does not have it
        yet; None if it has, or if nothing was written there.

        between: called by the methods of what is returned between two parts of their work, of which none takes long.
        """
        raise NotImplementedError

    def keep_forms(self, forms: list[bytes]) -> None:
        """Keeps forms for the engine's log with what the transaction has written, so that they are not in memory until
        the commit. May wait. SnapshotConflict, RuntimeError without a log."""
        raise RuntimeError("the storage engine has no log")

    def committed(self) -> None:
        """Called once after the commit of the final unit."""
        return

    @abstractmethod
    def release(self) -> None:
        """Ends the transaction, of which nothing remains unless it was committed. May be called again; every other use
        is refused from then on. Does not wait."""
        raise NotImplementedError

    def after_end(self, action: Callable[[], None]) -> None:
        """Calls `action`, after `release`, as soon as others can write what it had: by default at once."""
        action()

    def await_end(self) -> None:
        """Waits, after `release`, until others can write what it had; some seconds at most."""
        return


class WatchedWrites(ABC):
    """The stores of the engine for a plain write while `Isolation.watches_writes`.

    Writes raise ClaimedByTransaction for what an open transaction has written.
    """

    @abstractmethod
    def records(self, store: RecordStore) -> RecordStore:
        raise NotImplementedError

    @abstractmethod
    def entries(self, data: SortedDataInterface) -> SortedDataInterface:
        raise NotImplementedError

    @abstractmethod
    def committed(self) -> None:
        """Called after the commit of the unit of work in which they were written."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Isolation(ABC):
    """Snapshots and transactions of one engine.

    Engines whose units of work run one after the other get theirs from `snapshot.isolation`.
    """

    @abstractmethod
    def open_snapshot(self) -> OpenSnapshot:
        """A snapshot of the present. An engine may wait here, or when it is read first."""
        raise NotImplementedError

    def find_snapshot(self, at: tuple[int, int]) -> OpenSnapshot | None:
        """The snapshot that another server has shared by this cluster time; it remains if that one closes it.

        It may wait. By default there is no other server.
        """
        return None

    @abstractmethod
    def begin_transaction(self) -> OpenTransaction:
        """A transaction with a snapshot of the present, or of its first read. Does not wait."""
        raise NotImplementedError

    @property
    def watches_writes(self) -> bool:
        """Whether plain writes must go through `watch`."""
        return False

    def watch(self) -> WatchedWrites:
        """For the writes of one plain unit of work."""
        raise RuntimeError("plain writes are not watched")

    @abstractmethod
    def count_claimed(self, ident: str) -> int:
        """How many records of a record store open transactions have written, at most."""
        raise NotImplementedError

    @abstractmethod
    def unclaimed(self, store: RecordStore, records: list[Record]) -> list[Record]:
        """Those of some records of the engine that no open transaction has written, in their order. It may wait."""
        raise NotImplementedError


class SavedState:
    """All that an engine has at one time: what `save_state` returns and `restore_state` brings back."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StorageEngine(ABC):
    """All record stores and sorted data, each under an ident, a name that the catalog makes, and the catalog
    entries."""

    name: str

    @property
    def suspends(self) -> bool:
        """Whether calls may wait, while other operations run."""
        return False

    def wait_by(self, waiter: Waiter, present: Callable[[], object]) -> None:
        """Has calls wait by `waiter` from now on; before, they block the thread. By default no call waits.

        present: an object for the operation that runs now, which is the same as long as that runs; None outside of
        operations.
        """
        return

    @property
    def persistent(self) -> bool:
        """Whether the data is still there after the end of this process."""
        return False

    @property
    def folder(self) -> str | None:
        """The folder with the stored database, in which what belongs to it is kept, too; None if there is none."""
        return None

    @abstractmethod
    def unit_of_work(self) -> WriteUnitOfWork:
        """A new unit of work, which begins when its block is entered. An engine that must wait before one can begin
        waits here, never where the block is entered."""
        raise NotImplementedError

    @property
    @abstractmethod
    def isolation(self) -> Isolation:
        """Snapshots and transactions; the same object each time."""
        raise NotImplementedError

    def concurrent_unit_of_work(self) -> WriteUnitOfWork:
        """A unit of work that may be open beside those of other operations, where the engine can have several: of one
        that changes nothing in memory which others read, but by `on_commit`.

        A key of a unique sorted data that another record has may then be found out at the commit alone, which raises
        WriteConflict; DuplicateKey is raised by the unit that the same operation begins next.
        """
        return self.unit_of_work()

    def exclusive_unit_of_work(self, store: RecordStore) -> WriteUnitOfWork:
        """A unit of work of which the same holds where several servers have the data: beside it there is no other one
        that was begun so for this record store, on any of them. What it inserts there follows all that is there."""
        return self.unit_of_work()

    @property
    def log(self) -> StoreLog | None:
        """The log that it keeps itself; by default it has none."""
        return None

    @property
    def nodes(self) -> StoreNodes | None:
        """The servers that have the data open, where there may be several; by default there is none but this one."""
        return None

    @property
    def shared_nodes(self) -> StoreNodes | None:
        """`nodes` where others may have a place beside this server; else None."""
        nodes = self.nodes
        return nodes if nodes is not None and nodes.is_shared else None

    @property
    def may_lose_commits(self) -> bool:
        """Whether acknowledged commits may be lost when another machine takes the place of one that fails; by default
        none does."""
        return False

    def ping(self) -> None:
        """Asks what keeps the data for an answer; by default that needs none. StoreUnreachable after a second."""
        return

    def undivided_guard(self) -> UndividedGuard | None:
        """What keeps undivided blocks what they are, for an engine that suspends."""
        return None

    @abstractmethod
    def set_commit_listener(self, listener: Callable[[], None]) -> None:
        """Has `listener` called after every commit, before the commit actions of the unit of work, and never after a
        rollback. There is one listener: it replaces the one set before. It must not raise."""
        raise NotImplementedError

    def set_pause(self, pause: Callable[[], None]) -> None:
        """Has `pause` called between two parts of what takes the engine long within a unit of work: of a long list of
        rows, of a long document. What it calls must not use the engine. By default it is not called."""
        return

    @abstractmethod
    def idents(self) -> list[str]:
        """All idents, in no order."""
        raise NotImplementedError

    @abstractmethod
    def create_record_store(self, ident: str, is_log: bool = False) -> RecordStore:
        """A new, empty record store. `ident` must not exist. Inside a unit of work.

        is_log: whether most units of work add a record to it right before they commit, so that the engine may keep
        with such a record what it would otherwise store elsewhere.
        """
        raise NotImplementedError

    def create_partitioned_store(self, ident: str) -> RecordStore:
        """The same, of records with a partition key, by which an engine may keep them apart: those with one value of it
        are read and written together. By default it does not."""
        return self.create_record_store(ident)

    @abstractmethod
    def record_store(self, ident: str) -> RecordStore:
        """The record store of that ident, which must exist; the same object each time."""
        raise NotImplementedError

    @abstractmethod
    def create_sorted_data(self, ident: str, unique: bool, beside: str = "") -> SortedDataInterface:
        """A new, empty sorted data. `ident` must not exist. Inside a unit of work.

        beside: the ident of the record store whose records its entries are of, for an engine that keeps both at one
        place; empty if there is none.
        """
        raise NotImplementedError

    @abstractmethod
    def sorted_data(self, ident: str, unique: bool) -> SortedDataInterface:
        """The sorted data of that ident, which must exist and have been created with the same `unique`."""
        raise NotImplementedError

    def count_due(self, wanted: Sequence[DueRecords]) -> list[int]:
        """How many records of each record store `RecordStore.count_due` would count together, by the seconds of its
        expiry indexes; 0 for a store that is gone. A store in another process answers for many at once
        (STORES_AT_ONCE)."""
        return [
            sum([self.record_store(ident).count_due(index, until_s) for index, until_s in seconds.items()])
            for ident, seconds in wanted
        ]

    def have_due(self, wanted: Sequence[DueRecords]) -> list[bool]:
        """Whether each record store has records that `RecordStore.due` would give, as `count_due`."""
        return [
            any(
                self.record_store(ident).due_entries(index, FIRST_DUE, until_s, 1) for index, until_s in seconds.items()
            )
            for ident, seconds in wanted
        ]

    def have_keys(self, wanted: Sequence[tuple[str, bool, KeyRange]]) -> list[bool]:
        """Whether sorted data, each given by its ident and whether it is unique, have entries in ranges, as
        `count_due`."""
        return [
            self.sorted_data(ident, unique).first_with_entries([key_range]) >= 0 for ident, unique, key_range in wanted
        ]

    @abstractmethod
    def drop_ident(self, ident: str) -> None:
        """Drops the ident, which must exist; its name can be used again at once. Inside a unit of work.

        The space of a large one is freed by `drop_some`.
        """
        raise NotImplementedError

    def drop_some(self, limit: int) -> bool:
        """Frees the space of about `limit` rows of dropped idents; True while there is more to do. By default an engine
        frees all when it drops.

        Outside units of work. Call it repeatedly, with other work in between, until it returns False, also after
        opening the engine.
        """
        return False

    def set_cache_bytes(self, most_bytes: int) -> None:
        """How much memory the engine may take to keep records that it has read from the stored database."""
        return

    def forget_cached(self, ident: str, after: int, count: int) -> None:
        """Has the first `count` records of a record store with ids above `after` read from the stored database when
        they are asked for next, though the engine may keep them in memory."""
        return

    @property
    def stored_bytes(self) -> int:
        """The length of the stored database; 0 if it is kept in memory."""
        return 0

    @property
    def unused_bytes(self) -> int:
        """How much of the stored database holds nothing; 0 if it is kept in memory. New records use it first."""
        return 0

    @property
    def must_rewrite(self) -> bool:
        """Whether `reclaim_some` gives nothing back before `rewrite` was called once."""
        return False

    def reclaim_some(self, limit: int, keep_bytes: int = 0) -> int:
        """Gives up to `limit` pages of unused space back to the system, until `keep_bytes` are left; how many bytes
        that were. 0 if there is nothing more to give back, or if it cannot be now: a copy is being made, the disk is
        full, or the database must be rewritten. The file becomes shorter at the next `maintain`, which is then due.

        Outside units of work. Takes 10 to 200 µs a page.
        """
        return 0

    def rewrite(self, proceed: Callable[[], None]) -> int:
        """Writes the stored database anew without unused space, so that `reclaim_some` works from then on; how many
        bytes became free.

        May be called on any thread, and takes long. Reads go on meanwhile; a unit of work that begins fails with
        EngineUnavailable, so the caller holds writers off. proceed: called often; what it raises ends the work, with
        nothing changed. DiskFull if there is no room for two copies of the content. 0 if it was rewritten already.
        """
        return 0

    def clear(self) -> None:
        """Drops every ident and every catalog entry. Inside a unit of work."""
        for ident in self.idents():
            self.drop_ident(ident)
        for key, _ in self.catalog_entries():
            self.delete_catalog_entry(key)

    @property
    def saves_states(self) -> bool:
        """Whether `save_state`, `restore_state` and `release_state` can be called."""
        return False

    def save_state(self) -> SavedState:
        """The state of all idents and catalog entries, which later writes do not change. Outside units of work.

        Takes a time that does not depend on the number of records. RuntimeError unless `saves_states`.
        """
        raise RuntimeError(f"the storage engine {self.name} saves no states")

    def restore_state(self, state: SavedState) -> set[str]:
        """Brings all idents and catalog entries back to a saved state, which can be restored again; the idents whose
        contents may have changed. Outside units of work. It cannot be undone.

        Record stores and sorted data that exist both before and in the state keep their objects. Record ids that were
        given since the state was saved may be given again. The space of what is not in the state is freed by
        `drop_some`. Takes a time that does not depend on the number of records.
        """
        raise RuntimeError(f"the storage engine {self.name} saves no states")

    def release_state(self, state: SavedState) -> None:
        """Gives up a state, which cannot be restored any more. Space that only it needed is freed by `drop_some`."""
        raise RuntimeError(f"the storage engine {self.name} saves no states")

    @abstractmethod
    def catalog_entries(self) -> list[tuple[str, bytes]]:
        """All catalog entries, ordered by the UTF-8 bytes of their keys."""
        raise NotImplementedError

    @abstractmethod
    def catalog_entry(self, key: str) -> bytes | None:
        """The catalog entry of a key; None if there is none. Takes a time that does not grow with their number."""
        raise NotImplementedError

    @abstractmethod
    def put_catalog_entry(self, key: str, value: bytes) -> None:
        """Adds or replaces an entry. Inside a unit of work."""
        raise NotImplementedError

    def name_entry(self, key: str, name: str) -> None:
        """Gives an entry a name that no other one has until that is deleted or gets another. Inside the unit of work
        that has put the entry. CatalogChanged, at the latest by its commit, if another server has given that name to
        one; by default there is no other server."""
        return

    @abstractmethod
    def delete_catalog_entry(self, key: str) -> None:
        """Deletes an entry, if it exists. Inside a unit of work."""
        raise NotImplementedError

    @property
    @abstractmethod
    def committed_number(self) -> int:
        """The number of the last commit; commits are numbered from 1 when the engine is opened."""
        raise NotImplementedError

    @property
    def durable_number(self) -> int:
        """The last commit that is known to survive a power failure, with all commits before it. By default commits
        need no `flush`: what is committed is as safe as it gets."""
        return self.committed_number

    @property
    def failed(self) -> bool:
        """Whether a flush has failed. From then on the engine refuses commits and flushes, and accepts reads only."""
        return False

    @property
    def disk_full(self) -> bool:
        """Whether a write has found the disk full, and there is no room yet. What deletes can still be written, from a
        reserve; `require_room` refuses the rest."""
        return False

    def require_room(self) -> None:
        """To be called before a commit that stores something new: DiskFull while the disk is full, unless there is
        room again. Inside a unit of work, which can then only be rolled back, or outside."""
        return

    def make_room(self) -> bool:
        """To be called when a unit of work that only deletes, or replaces entries by others of their length, has failed
        with DiskFull: whether there is room for it now, so that it should be repeated."""
        return False

    def flush(self) -> None:
        """Makes all commits before the call durable: `durable_number` is then at least `committed_number` at the time
        of the call. May be called on any thread, and may take long.

        After one failure every further flush and write fails with EngineUnavailable, because the operating system may
        have dropped the data that it could not write, and reports that only once.
        """
        return

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` should be called soon."""
        return False

    @property
    def writers_should_wait(self) -> bool:
        """Whether the engine's log has grown long and cannot be ended while units of work keep beginning.

        A server then begins no unit of work until the next `maintain` has returned. A unit that begins nevertheless
        does not wait, but `maintain` then has to be repeated.
        """
        return False

    def maintain(self) -> None:
        """Does the engine's background work, if any is due. May be called on any thread, on the engine's own thread
        only outside units of work, and may take long. Only the size of logs depends on it."""
        return

    @property
    def can_copy(self) -> bool:
        """Whether there is a stored database that `copy_to` can copy."""
        return False

    def copy_to(self, path: str, proceed: Callable[[], None]) -> None:
        """Writes a copy of the stored database, as of one moment after the call, to a new file.

        Units of work go on meanwhile. May be called on any thread, and may take long. proceed: called often; what it
        raises ends the copy, whose file the caller removes then. EngineUnavailable if the copy fails. RuntimeError
        unless `can_copy`.
        """
        raise RuntimeError(f"the storage engine {self.name} has no stored database to copy")

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Counters and sizes for `serverStatus`, by names that end in their unit; at least `commits` and
        `database_bytes`."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Makes all commits durable and releases the data directory. May be called again."""
        raise NotImplementedError
