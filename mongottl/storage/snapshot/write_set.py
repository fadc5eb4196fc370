"""The writes of one transaction before its commit: patches over its snapshot, statement by statement.

    own = WriteSet(snapshot, claims)
    with own.statement() as unit:          the writes of one statement: all of them, or none
        own.own_records(store).insert_records(rows)
        own.own_entries(data).insert(entries)
        unit.commit()
    …
    with own.final_unit(engine) as unit:   the engine is given what is in `records` and `entries` (`replay`)
        …
    own.committed()
    own.release()

Inserted records get provisional ids, above every id of an engine and in the order of insertion; the commit exchanges
them for the engine's own.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeVar

from mongottl.document.freeing import LONG, put_aside
from mongottl.document.interrupt import begin_undivided, end_undivided
from mongottl.storage.errors import DuplicateKey, SnapshotConflict, TransactionTooLarge, WriteConflict
from mongottl.storage.interface import KeptWrites, OpenTransaction, StorageEngine, WriteUnitOfWork
from mongottl.storage.snapshot.claims import Claims
from mongottl.storage.snapshot.history import CommitImages, Snapshot
from mongottl.storage.snapshot.patches import FIRST_PROVISIONAL_ID, EntryPatch, RecordPatch
from mongottl.storage.snapshot.replay import ReplayedWrites
from mongottl.storage.snapshot.views import PatchedEntries, PatchedRecords, entries_at, records_at
from mongottl.storage.stores import KeyEntry, NewRecord, Record, RecordStore, SortedDataInterface

T = TypeVar("T")

MAX_WRITE_SET_BYTES: Final = 256 * 1024 * 1024
# Memory of a written record or entry in addition to its document or key.
_OVERHEAD_BYTES: Final = 200


def _nothing() -> None:
    pass


def _emptied(values: list[T]) -> list[T]:
    """An empty list in place of one that is not used any more."""
    if len(values) < LONG:
        values.clear()
        return values
    put_aside(values)
    return []


class WriteSet(OpenTransaction):
    """What one transaction has written so far. records, entries: the patches by ident.

    stores, sorted_data: the engine's, of these idents. released: whether the transaction has ended.
    """

    def __init__(self, snapshot: Snapshot, claims: Claims, max_bytes: int = MAX_WRITE_SET_BYTES) -> None:
        super().__init__()
        self.snapshot: Final = snapshot
        self.claims: Final = claims
        self.records: Final[dict[str, RecordPatch]] = {}
        self.entries: Final[dict[str, EntryPatch]] = {}
        self.stores: Final[dict[str, RecordStore]] = {}
        self.sorted_data: Final[dict[str, SortedDataInterface]] = {}
        self.bytes: int = 0
        self._max_bytes = max_bytes
        self._next_id: int = FIRST_PROVISIONAL_ID
        # What the open statement has changed: patch, id or entry, whether there was an image, and which.
        self._record_undo: list[tuple[RecordPatch, int, bool, Record | None]] = []
        self._entry_undo: list[tuple[EntryPatch, KeyEntry, bool, bool]] = []
        self._bytes_before: int = 0
        # Of the commit. Only other snapshots need them, but then the history must number this commit.
        self._images = CommitImages()
        self._between: Callable[[], None] = _nothing

    @property
    def too_old(self) -> bool:
        return self.snapshot.too_old

    @property
    def has_written(self) -> bool:
        return self.bytes > 0

    def _require_open(self) -> None:
        if self.released:
            raise RuntimeError("a write set is used after its transaction has ended")

    def statement(self) -> "StatementUnit":
        """A unit of work that puts its writes here."""
        self._require_open()
        return StatementUnit(self)

    def records_view(self, store: RecordStore) -> RecordStore:
        """A record store of the engine as the transaction sees it, for reads."""
        self._require_open()
        base = records_at(store, self.snapshot)
        patch = self.records.get(store.ident)
        return base if patch is None else PatchedRecords(base, patch)

    def entries_view(self, data: SortedDataInterface) -> SortedDataInterface:
        """A sorted data of the engine as the transaction sees it, for reads."""
        self._require_open()
        base = entries_at(data, self.snapshot)
        patch = self.entries.get(data.ident)
        return base if patch is None else PatchedEntries(base, patch)

    def own_records(self, store: RecordStore) -> "OwnRecords":
        """A record store of the engine for a statement that writes."""
        self._require_open()
        ident = store.ident
        patch = self.records.get(ident)
        if patch is None:
            patch = self.records[ident] = RecordPatch()
            self.stores[ident] = store
        return OwnRecords(records_at(store, self.snapshot), patch, self)

    def own_entries(self, data: SortedDataInterface, complete: bool = True) -> "OwnEntries":
        """A sorted data of the engine for a statement that writes. complete: whether it has the entries of all records;
        unique keys are not checked if not."""
        self._require_open()
        ident = data.ident
        patch = self.entries.get(ident)
        if patch is None:
            patch = self.entries[ident] = EntryPatch()
            self.sorted_data[ident] = data
        return OwnEntries(entries_at(data, self.snapshot), patch, self, data, data.unique and complete)

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def claim_record(self, ident: str, record_id: int) -> None:
        """SnapshotConflict if the record was written after the snapshot, or another transaction has it."""
        self._require_open()
        if record_id >= FIRST_PROVISIONAL_ID or self.claims.record_owner(ident, record_id) is self:
            return
        if self.snapshot.changed(ident, record_id):
            raise SnapshotConflict("the record was written after the snapshot")
        self.claims.claim_record(ident, record_id, self)

    def claim_key(self, ident: str, key: bytes) -> None:
        """SnapshotConflict if another transaction has written this unique key."""
        self._require_open()
        if self.claims.key_owner(ident, key) is self:
            return
        self.claims.claim_key(ident, key, self)

    def put_record(self, patch: RecordPatch, record_id: int, image: Record | None) -> None:
        """Sets a record of the transaction; None deletes it. TransactionTooLarge."""
        self._require_open()
        self._record_undo.append((patch, record_id, record_id in patch.images, patch.images.get(record_id)))
        patch.add(record_id, image)
        self._grow(0 if image is None else len(image[1]))

    def put_entry(self, patch: EntryPatch, entry: KeyEntry, present: bool) -> None:
        """Adds or removes an entry of the transaction. TransactionTooLarge."""
        self._require_open()
        self._entry_undo.append((patch, entry, entry in patch.images, patch.images.get(entry, False)))
        patch.add(entry, present)
        self._grow(len(entry[0]))

    def _grow(self, size: int) -> None:
        self.bytes += size + _OVERHEAD_BYTES
        if self.bytes > self._max_bytes:
            raise TransactionTooLarge(f"the writes of a transaction exceed {self._max_bytes >> 20} MiB")

    def begin_statement(self) -> None:
        self._bytes_before = self.bytes

    def keep_statement(self) -> None:
        """Keeps what the open statement has written."""
        self._record_undo = _emptied(self._record_undo)
        self._entry_undo = _emptied(self._entry_undo)

    def undo_statement(self) -> None:
        """Takes back what the open statement has written. Its claims remain until the transaction ends."""
        for patch, record_id, known, image in reversed(self._record_undo):
            if known:
                patch.images[record_id] = image
            else:
                patch.discard(record_id)
        for entries, entry, known, present in reversed(self._entry_undo):
            if known:
                entries.images[entry] = present
            else:
                entries.discard(entry)
        self.bytes = self._bytes_before
        self.keep_statement()

    def final_unit(self, engine: StorageEngine, alone: bool) -> WriteUnitOfWork:
        return engine.unit_of_work()

    def kept_writes(self, store: RecordStore, between: Callable[[], None]) -> KeptWrites | None:
        patch = self.records.get(store.ident)
        if patch is None or not patch.order:
            return None
        self._between = between
        images = self._images if self.snapshot.history.open_snapshots > 1 else None
        return ReplayedWrites(store, patch, self.entries, images, between)

    def committed(self) -> None:
        self.snapshot.history.append(self._images, self._between)
        self._images.let_go()

    def release(self) -> None:
        if self.released:
            return
        self.released = True
        self.claims.release(self)
        self.snapshot.close()
        for patch in self.records.values():
            patch.let_go()
        for entries in self.entries.values():
            entries.let_go()
        self.records.clear()
        self.entries.clear()
        self.stores.clear()
        self.sorted_data.clear()
        self._run_release_actions()


class OwnRecords(PatchedRecords):
    """The records that a transaction sees, for one of its statements that writes them."""

    def __init__(self, base: RecordStore, patch: RecordPatch, own: WriteSet) -> None:
        super().__init__(base, patch)
        self._own = own

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        ids: list[int] = []
        for document, ts, ttl in records:
            record_id = self._own.new_id()
            self._own.put_record(self.patch, record_id, (record_id, document, ts, ttl))
            ids.append(record_id)
        return ids

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        for before, after in zip(old, new, strict=True):
            self._claim(before)
            self._own.put_record(self.patch, after[0], after)

    def delete_records(self, records: list[Record]) -> None:
        for record in records:
            self._claim(record)
            self._own.put_record(self.patch, record[0], None)

    def _claim(self, record: Record) -> None:
        self._own.claim_record(self.ident, record[0])
        if self.find_record(record[0]) != record:
            raise WriteConflict(f"record {record[0]} is not as it was read")


class OwnEntries(PatchedEntries):
    """The entries that a transaction sees, for one of its statements that writes them. raw: the engine's."""

    def __init__(
        self,
        base: SortedDataInterface,
        patch: EntryPatch,
        own: WriteSet,
        raw: SortedDataInterface,
        unique: bool,
    ) -> None:
        super().__init__(base, patch)
        self.unique = unique
        self._own = own
        self._raw = raw

    def insert(self, entries: list[KeyEntry]) -> None:
        if self.unique:
            self._check_unique(entries)
        for entry in entries:
            self._own.put_entry(self.patch, entry, True)

    def remove(self, entries: list[KeyEntry]) -> None:
        for entry in entries:
            if self.unique:
                self._own.claim_key(self.ident, entry[0])
            self._own.put_entry(self.patch, entry, False)

    def _check_unique(self, entries: list[KeyEntry]) -> None:
        """DuplicateKey if the transaction sees the key at another record, SnapshotConflict if it exists unseen."""
        added: dict[bytes, int] = {}
        for position, (key, record_id) in enumerate(entries):
            other = added.setdefault(key, record_id)
            for _, holder in self.find_exact([key]):
                if holder != record_id:
                    other = holder
            if other != record_id:
                raise DuplicateKey(key, other, position)
            self._own.claim_key(self.ident, key)
            for entry in self._raw.find_exact([key]):
                if entry[1] != record_id and self.patch.images.get(entry, True):
                    raise SnapshotConflict("the unique key was added after the snapshot")


class StatementUnit(WriteUnitOfWork):
    """A unit of work of a transaction: its writes are put in the write set by `commit`, or taken back."""

    def __init__(self, own: WriteSet) -> None:
        self._own = own
        self._committed = False
        self._commit_actions: list[Callable[[], None]] = []
        self._rollback_actions: list[Callable[[], None]] = []
        self._suspended = False

    def __enter__(self) -> WriteUnitOfWork:
        self._own.begin_statement()
        self._suspended = begin_undivided()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._committed:
                self._own.undo_statement()
                for action in reversed(self._rollback_actions):
                    action()
        finally:
            end_undivided(self._suspended)

    def commit(self) -> None:
        self._committed = True
        self._own.keep_statement()
        for action in self._commit_actions:
            action()

    def on_commit(self, action: Callable[[], None]) -> None:
        self._commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self._rollback_actions.append(action)
