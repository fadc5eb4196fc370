"""Snapshots and write sets on each engine, beside a slow, obvious model: whole copies of dicts and sets.

A machine makes plain writes, transactions' statements, commits and aborts, in any order, while several snapshots are
open. After every step each snapshot, each transaction and the engine itself must read what their copies have.

    records      documents of few different bytes
    by_parts     not unique, several entries for each document, so that the entries of a record are scattered
    by_head      unique, one entry for each document
    loose        unique, entries of any record id, also of ids without a record
"""

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mongottl.storage.interface import (
    MAX_RECORD_ID,
    NO_BYTE_LIMIT,
    DuplicateKey,
    FetchedEntry,
    IndexEntry,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
    StorageEngine,
    StorageError,
    WriteConflict,
)
from mongottl.storage.snapshot.claims import ClaimedByTransaction, Claims, SnapshotConflict
from mongottl.storage.snapshot.history import CommitImages, History, Snapshot
from mongottl.storage.snapshot.recording import RecordingEntries, RecordingRecords
from mongottl.storage.snapshot.views import PatchedRecords
from mongottl.storage.snapshot.write_set import FIRST_PROVISIONAL_ID, WriteSet

DATA = {"by_parts": False, "by_head": True, "loose": True}
HIGH = b"\xff"
KEYS = (b"", b"a", b"aa", b"ab", b"b", b"ba", b"bb", b"c", b"ca", HIGH)


def parts(document: bytes) -> set[bytes]:
    """The keys of a document in `by_parts`."""
    return {document[i : i + 2] for i in range(len(document))} or {b""}


@dataclass
class State:
    """What a reader sees."""

    records: dict[int, Record] = field(default_factory=dict)
    entries: dict[str, set[IndexEntry]] = field(default_factory=lambda: {ident: set() for ident in DATA})

    def copy(self) -> "State":
        return State(dict(self.records), {ident: set(entries) for ident, entries in self.entries.items()})


@dataclass(eq=False)
class Transaction:
    """The model of a write set. changes: each entry that it has added (True) or removed."""

    own: WriteSet
    number: int
    seen: State
    at_begin: State
    written: dict[int, None] = field(default_factory=dict)
    changes: dict[str, dict[IndexEntry, bool]] = field(default_factory=lambda: {ident: {} for ident in DATA})


@dataclass
class Shared:
    """What all writers share in the model. changed: the last commit that wrote a record."""

    present: State = field(default_factory=State)
    number: int = 0
    changed: dict[int, int] = field(default_factory=dict)
    record_owners: dict[int, Transaction] = field(default_factory=dict)
    key_owners: dict[tuple[str, bytes], Transaction] = field(default_factory=dict)


class Refused(Exception):
    """What the model expects instead of a write. kind: the error, with what it must say."""

    def __init__(self, *kind: Any) -> None:
        super().__init__(kind)
        self.kind = kind


class ModelRecords:
    """The writes of a record store in the model. new_ids: those that the real store has given."""

    def __init__(self, shared: Shared, state: State, transaction: Transaction | None, new_ids: list[int]) -> None:
        self.shared, self.state, self.transaction, self.new_ids = shared, state, transaction, new_ids

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        ids = [self.new_ids.pop(0) for _ in records]
        for record_id, record in zip(ids, records, strict=True):
            self._put(record_id, (record_id, *record))
        return ids

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        self._check(old)
        for record in new:
            self._put(record[0], record)

    def delete_records(self, records: list[Record]) -> None:
        self._check(records)
        for record in records:
            self._put(record[0], None)

    def _check(self, records: list[Record]) -> None:
        owners = self.shared.record_owners
        mine = self.transaction
        if mine is None:
            for record in records:
                if record[0] in owners:
                    raise Refused(ClaimedByTransaction, owners[record[0]].own)
        for record in records:
            record_id = record[0]
            if mine is not None and record_id < FIRST_PROVISIONAL_ID and owners.get(record_id) is not mine:
                if record_id in owners or self.shared.changed.get(record_id, 0) > mine.number:
                    raise Refused(SnapshotConflict)
                owners[record_id] = mine
            if self.state.records.get(record_id) != record:
                raise Refused(WriteConflict)

    def _put(self, record_id: int, record: Record | None) -> None:
        if self.transaction is not None:
            self.transaction.written[record_id] = None
        if record is None:
            del self.state.records[record_id]
        else:
            self.state.records[record_id] = record


class ModelEntries:
    """The writes of sorted data in the model."""

    def __init__(self, shared: Shared, state: State, transaction: Transaction | None, ident: str) -> None:
        self.shared, self.transaction, self.ident = shared, transaction, ident
        self.unique = DATA[ident]
        self.held = state.entries[ident]

    def insert(self, entries: list[IndexEntry]) -> None:
        if self.unique:
            self._check_claims(entries)
            holders = dict(self.held)
            for position, (key, record_id) in enumerate(entries):
                if holders.setdefault(key, record_id) != record_id:
                    raise Refused(DuplicateKey, key, holders[key], position)
                self._claim(key)
                if self.transaction is not None:
                    for other in self.shared.present.entries[self.ident]:
                        hidden = not self.transaction.changes[self.ident].get(other, True)
                        if other[0] == key and other[1] != record_id and not hidden:
                            raise Refused(SnapshotConflict)
        for entry in entries:
            self._put(entry, True)

    def remove(self, entries: list[IndexEntry]) -> None:
        if self.unique:
            self._check_claims(entries)
            for key, _ in entries:
                self._claim(key)
        for entry in entries:
            self._put(entry, False)

    def _check_claims(self, entries: list[IndexEntry]) -> None:
        for key, _ in entries:
            owner = self.shared.key_owners.get((self.ident, key))
            if owner is not None and self.transaction is None:
                raise Refused(ClaimedByTransaction, owner.own)

    def _claim(self, key: bytes) -> None:
        if self.transaction is not None:
            owner = self.shared.key_owners.setdefault((self.ident, key), self.transaction)
            if owner is not self.transaction:
                raise Refused(SnapshotConflict)

    def _put(self, entry: IndexEntry, present: bool) -> None:
        if self.transaction is not None:
            self.transaction.changes[self.ident][entry] = present
        if present:
            self.held.add(entry)
        else:
            self.held.discard(entry)


@dataclass
class Stores:
    """A record store and its sorted data: an engine's, a view's, or the model's."""

    records: Any
    entries: dict[str, Any]


Write = Callable[[Stores], object]


def insert_documents(new: list[NewRecord], one: bool) -> Write:
    def write(stores: Stores) -> list[int]:
        if one and not isinstance(stores.records, ModelRecords):
            ids = [stores.records.insert_record(*record) for record in new]
        else:
            ids = stores.records.insert_records(new)
        for record_id, (document, _, _) in zip(ids, new, strict=True):
            stores.entries["by_parts"].insert([(key, record_id) for key in sorted(parts(document))])
            stores.entries["by_head"].insert([(document[:2], record_id)])
        return list(ids)

    return write


def update_documents(old: list[Record], new: list[Record], one: bool) -> Write:
    def write(stores: Stores) -> None:
        if one and not isinstance(stores.records, ModelRecords) and len(old) == 1:
            stores.records.update_record(old[0], new[0])
        else:
            stores.records.update_records(old, new)
        for (record_id, before, _, _), (_, after, _, _) in zip(old, new, strict=True):
            gone, added = parts(before) - parts(after), parts(after) - parts(before)
            stores.entries["by_parts"].remove([(key, record_id) for key in sorted(gone)])
            stores.entries["by_parts"].insert([(key, record_id) for key in sorted(added)])
            if before[:2] != after[:2]:
                stores.entries["by_head"].remove([(before[:2], record_id)])
                stores.entries["by_head"].insert([(after[:2], record_id)])

    return write


def delete_documents(gone: list[Record], one: bool) -> Write:
    def write(stores: Stores) -> None:
        if one and not isinstance(stores.records, ModelRecords) and len(gone) == 1:
            stores.records.delete_record(gone[0])
        else:
            stores.records.delete_records(gone)
        for record_id, document, _, _ in gone:
            stores.entries["by_parts"].remove([(key, record_id) for key in sorted(parts(document))])
            stores.entries["by_head"].remove([(document[:2], record_id)])

    return write


def change_loose(entries: list[IndexEntry], insert: bool, one: bool) -> Write:
    def write(stores: Stores) -> None:
        data = stores.entries["loose"]
        if one and len(entries) == 1 and not isinstance(data, ModelEntries):
            (data.insert_one if insert else data.remove_one)(*entries[0])
        else:
            (data.insert if insert else data.remove)(entries)

    return write


def replay(own: WriteSet, images: CommitImages) -> dict[int, int]:
    """Carries out a write set in the engine's open unit of work; the ids that its new records have got."""
    ids: dict[int, int] = {}
    for ident, patch in own.records.items():
        base = own.snapshot_records(own.stores[ident])
        stored = RecordingRecords(own.stores[ident], images, None)
        for record_id in patch.order:
            image = patch.images[record_id]
            if record_id >= FIRST_PROVISIONAL_ID:
                if image is not None:
                    ids[record_id] = stored.insert_record(*image[1:])
                continue
            before = base.find_record(record_id)
            assert before is not None
            if image is None:
                stored.delete_record(before)
            else:
                stored.update_record(before, image)
    for ident, changes in own.entries.items():
        data = RecordingEntries(own.sorted_data[ident], images, None)
        for present in (False, True):
            chosen = [
                (key, ids.get(number, number))
                for key, number in changes.order
                if changes.images[key, number] is present
            ]
            (data.insert if present else data.remove)([e for e in chosen if e[1] < FIRST_PROVISIONAL_ID])
    return ids


class Check:
    """Compares what a view reads with a state, at positions and limits that the step chooses."""

    def __init__(self, stores: Stores, state: State, chance: random.Random, samples: int) -> None:
        self.stores, self.state, self.chance, self.samples = stores, state, chance, samples
        self.limit = chance.choice((1, 1, 2, 3, 5, 100))
        self.max_bytes = chance.choice((1, 2, 3, 5, 9, NO_BYTE_LIMIT, NO_BYTE_LIMIT))

    def all(self, fetch_loose: bool) -> None:
        self.records()
        self.due()
        for ident in DATA:
            self.entries(ident, ident != "loose" or fetch_loose)

    def batch(self, rows: list[Any], more: bool | None, expected: list[Any], size: Callable[[Any], int]) -> None:
        """The law of limits; more: None for reads that do not say."""
        assert rows == expected[: len(rows)]
        assert len(rows) <= self.limit
        assert not rows or sum(map(size, rows[:-1])) < self.max_bytes
        assert rows or not expected
        if more is not None:
            assert rows or not more
            assert more or len(rows) == len(expected)

    def positions(self, all_positions: list[Any]) -> list[Any]:
        if len(all_positions) <= self.samples:
            return all_positions
        return self.chance.sample(all_positions, self.samples)

    def records(self) -> None:
        view: RecordStore = self.stores.records
        held = self.state.records
        assert view.count() == len(held)
        assert view.size_bytes() == sum(len(record[1]) for record in held.values())
        ids = sorted(held)
        around = sorted({near for n in ids for near in (n - 1, n, n + 1) if near > 0} | {1, 13, FIRST_PROVISIONAL_ID})
        for record_id in self.positions(around):
            assert view.find_record(record_id) == held.get(record_id)
        wanted = self.chance.choices(around, k=self.chance.randrange(9))
        found, size, looked_up = [], 0, 0
        for record_id in wanted:
            looked_up += 1
            if record_id in held:
                found.append(held[record_id])
                size += len(held[record_id][1])
                if size >= self.max_bytes:
                    break
        assert view.find_records(wanted, self.max_bytes) == (found, looked_up)
        for forward in (True, False):
            for after in self.positions([0, MAX_RECORD_ID, *around]):
                rest = [held[n] for n in sorted(ids, reverse=not forward) if (n > after if forward else n < after)]
                rows, more = view.scan(after, self.limit, forward, self.max_bytes)
                self.batch(rows, more, rest, lambda record: len(record[1]))
            walked: list[Record] = []
            after, more = 0 if forward else MAX_RECORD_ID, True
            while more:
                rows, more = view.scan(after, self.limit, forward, self.max_bytes)
                walked += rows
                after = rows[-1][0] if rows else after
            assert walked == sorted(held.values(), reverse=not forward)

    def due(self) -> None:
        view: RecordStore = self.stores.records
        held = self.state.records.values()
        now = self.chance.randrange(13)
        by_default = sorted([r for r in held if r[3] == 0 and r[2] <= now], key=lambda r: (r[2], r[0]))
        by_own = sorted([r for r in held if r[3] > 0 and r[2] + r[3] <= now], key=lambda r: (r[2] + r[3], r[0]))
        assert view.count_due_by_default(now) == len(by_default)
        assert view.count_due_by_own(now) == len(by_own)
        for rows, expected in (
            (view.due_by_default(now, self.limit, self.max_bytes), by_default),
            (view.due_by_own(now, self.limit, self.max_bytes), by_own),
        ):
            self.batch(rows, None, expected, lambda record: len(record[1]))
        assert view.due_by_default(now, 100) == by_default
        assert view.due_by_own(now, 100) == by_own

    def entries(self, ident: str, fetch: bool) -> None:
        view: SortedDataInterface = self.stores.entries[ident]
        assert (view.ident, view.unique) == (ident, DATA[ident])
        held = sorted(self.state.entries[ident])
        keys = self.chance.sample(KEYS, 4)
        assert view.find_exact(keys) == [entry for key in keys for entry in held if entry[0] == key]
        if view.unique and fetch:
            for key in keys:
                found = [self.state.records.get(number) for k, number in held if k == key]
                assert view.fetch_exact(self.stores.records, key) == (found[0] if found else None)
        for low, high in ((b"", b"\xff\xff"), tuple(self.chance.sample(KEYS, 2))):
            inside = [entry for entry in held if low <= entry[0] < high]
            assert view.count_range(low, high) == len(inside)
            edges = [(key, n) for key in (low, *keys) for n in (1, 7, FIRST_PROVISIONAL_ID) if low <= key < high]
            for forward in (True, False):
                for after in [None, *self.positions(inside), *self.positions(edges)]:
                    self.scan(view, low, high, after, forward, inside, fetch)

    def scan(
        self,
        view: SortedDataInterface,
        low: bytes,
        high: bytes,
        after: IndexEntry | None,
        forward: bool,
        inside: list[IndexEntry],
        fetch: bool,
    ) -> None:
        rest = [e for e in inside if after is None or (e > after if forward else e < after)]
        if not forward:
            rest.reverse()
        rows, more = view.scan(low, high, after, self.limit, forward, self.max_bytes)
        self.batch(rows, more, rest, lambda entry: len(entry[0]))
        if forward:
            for number in {0, 1, len(rest) - 1, len(rest)} - {-1}:
                expected = rest[number] if number < len(rest) else None
                assert view.entry_behind(low, high, after, number) == expected
        if fetch:
            held = self.state.records
            joined: list[FetchedEntry] = [(key, *held[number]) for key, number in rest if number in held]
            fetched, more = view.scan_fetch(self.stores.records, low, high, after, self.limit, forward, self.max_bytes)
            self.batch(fetched, more, joined, lambda row: len(row[2]))


documents = st.text("abc", max_size=4).map(str.encode)
new_records = st.tuples(documents, st.integers(0, 12), st.sampled_from([0, 0, -1, 1, 2, 5]))
loose_entries = st.lists(
    st.tuples(st.sampled_from(KEYS[:-1]), st.integers(1, 6) | st.just(FIRST_PROVISIONAL_ID - 1)), min_size=1, max_size=3
)


class SnapshotMachine(RuleBasedStateMachine):
    kind = ""
    opener: Callable[[str, Path], StorageEngine]
    samples = 2

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.engine: StorageEngine = self.opener(self.kind, self.directory / "data")
        self.claims = Claims()
        self.shared = Shared()
        self.readers: list[tuple[Snapshot, State]] = []
        self.transactions: list[Transaction] = []
        self.chance = random.Random(1)

    @initialize(max_bytes=st.sampled_from([1 << 30, 1 << 30, 4000]), seed=st.integers(0, 999))
    def create(self, max_bytes: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.history = History(max_bytes)
        with self.engine.unit_of_work() as unit:
            self.engine.create_record_store("records")
            for ident, unique in DATA.items():
                self.engine.create_sorted_data(ident, unique)
            unit.commit()

    def teardown(self) -> None:
        for transaction in list(self.transactions):
            self.end(transaction)
        for snapshot, _ in self.readers:
            snapshot.close()
        if hasattr(self, "history"):
            assert (self.history.bytes, self.history.recording, self.history.open_snapshots) == (0, False, 0)
            assert not self.history.record_logs and not self.history.entry_logs and not self.claims.any
        self.engine.close()
        shutil.rmtree(self.directory)

    def engine_stores(self) -> Stores:
        return Stores(
            self.engine.record_store("records"),
            {ident: self.engine.sorted_data(ident, unique) for ident, unique in DATA.items()},
        )

    def recording_stores(self, images: CommitImages) -> Stores:
        stores = self.engine_stores()
        return Stores(
            RecordingRecords(stores.records, images, self.claims),
            {ident: RecordingEntries(data, images, self.claims) for ident, data in stores.entries.items()},
        )

    def views(self, own: WriteSet) -> Stores:
        stores = self.engine_stores()
        return Stores(
            own.records_view(stores.records),
            {ident: own.entries_view(data) for ident, data in stores.entries.items()},
        )

    def writing_views(self, own: WriteSet) -> Stores:
        stores = self.engine_stores()
        return Stores(
            own.own_records(stores.records), {ident: own.own_entries(data) for ident, data in stores.entries.items()}
        )

    def draw_write(self, data: st.DataObject, state: State) -> Write:
        """A write by someone who sees `state`."""
        kind = data.draw(st.sampled_from(["insert", "insert", "update", "update", "delete", "loose", "loose"]))
        one = data.draw(st.booleans())
        if kind == "insert" or (kind != "loose" and not state.records):
            return insert_documents(data.draw(st.lists(new_records, min_size=1, max_size=3)), one)
        if kind == "loose":
            return change_loose(data.draw(loose_entries), data.draw(st.booleans()), one)
        ids = data.draw(st.lists(st.sampled_from(sorted(state.records)), unique=True, min_size=1, max_size=3))
        old = [state.records[record_id] for record_id in ids]
        if data.draw(st.integers(0, 9)) == 9:
            old[-1] = (old[-1][0], old[-1][1] + b"?", 0, 0)  # not as stored
        if kind == "delete":
            return delete_documents(old, one)
        new = [(record_id, *data.draw(new_records)) for record_id in ids]
        return update_documents(old, new, one)

    def carry_out(
        self, write: Write, stores: Stores, state: State, transaction: Transaction | None
    ) -> Exception | None:
        """Carries out a write on real stores and in the model, which must agree; how both have refused it."""
        error: Exception | None = None
        try:
            write(stores)
        except StorageError as raised:
            error = raised
        new_ids = [record[0] for record in stores.records.scan(0, 1000)[0] if record[0] not in state.records]
        model = Stores(
            ModelRecords(self.shared, state, transaction, new_ids),
            {ident: ModelEntries(self.shared, state, transaction, ident) for ident in DATA},
        )
        try:
            write(model)
        except Refused as refused:
            assert isinstance(error, refused.kind[0]), (error, refused.kind)
            if isinstance(error, DuplicateKey):
                assert (error.key, error.existing_record_id, error.position) == refused.kind[1:]
            if isinstance(error, ClaimedByTransaction):
                assert error.owner is refused.kind[1]
            return refused
        assert error is None, error
        return None

    @rule(data=st.data(), commit=st.integers(0, 4), writes=st.integers(1, 3), always=st.booleans())
    def write(self, data: st.DataObject, commit: int, writes: int, always: bool) -> None:
        """A plain unit of work. always: through recording stores even if nothing needs them."""
        images = CommitImages()
        state = self.shared.present.copy()
        needed = self.history.recording or self.claims.any
        with self.engine.unit_of_work() as unit:
            stores = self.recording_stores(images) if needed or always else self.engine_stores()
            for _ in range(writes):
                write = self.draw_write(data, state)
                if self.carry_out(write, stores, state, None) is not None:
                    return
            Check(stores, state, self.chance, self.samples).all(False)
            if commit == 0:
                return
            unit.commit()
        self.committed(images, state)

    def committed(self, images: CommitImages, state: State) -> None:
        self.history.append(images)
        shared = self.shared
        shared.number += 1
        for record_id in shared.present.records.keys() | state.records.keys():
            if record_id in images.records.get("records", {}):
                shared.changed[record_id] = shared.number
            else:
                assert not self.history.recording or shared.present.records.get(record_id) == state.records.get(
                    record_id
                )
        shared.present = state
        expired = [reader for reader in self.readers if reader[0].too_old]
        for reader in expired:
            self.readers.remove(reader)
        for transaction in [t for t in self.transactions if t.own.snapshot.too_old]:
            expired.append((transaction.own.snapshot, transaction.seen))
            self.end(transaction)
        still_open = [snapshot.number for snapshot, _ in self.readers] + [
            t.own.snapshot.number for t in self.transactions
        ]
        if expired and still_open:
            assert max(snapshot.number for snapshot, _ in expired) <= min(still_open)

    @precondition(lambda self: len(self.readers) < 2)
    @rule()
    def open_snapshot(self) -> None:
        self.readers.append((self.history.open(), self.shared.present.copy()))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def close_snapshot(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        self.readers.remove(reader)
        reader[0].close()
        reader[0].close()

    @precondition(lambda self: len(self.transactions) < 3)
    @rule()
    def begin(self) -> None:
        present = self.shared.present
        own = WriteSet(self.history.open(), self.claims)
        self.transactions.append(Transaction(own, self.shared.number, present.copy(), present.copy()))

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), commit=st.integers(0, 3), writes=st.integers(1, 3))
    def statement(self, data: st.DataObject, commit: int, writes: int) -> None:
        transaction = data.draw(st.sampled_from(self.transactions))
        own = transaction.own
        before = patches(own), own.bytes
        saved = transaction.seen.copy(), dict(transaction.written), {i: dict(c) for i, c in transaction.changes.items()}
        kept = False
        with own.statement() as unit:
            for _ in range(writes):
                write = self.draw_write(data, transaction.seen)
                if self.carry_out(write, self.writing_views(own), transaction.seen, transaction) is not None:
                    break
            else:
                if commit > 0:
                    unit.commit()
                    kept = True
        if not kept:
            transaction.seen, transaction.written, transaction.changes = saved
            assert (patches(own), own.bytes) == before

    def end(self, transaction: Transaction) -> None:
        self.transactions.remove(transaction)
        ended: list[bool] = []
        transaction.own.on_release(lambda: ended.append(True))
        transaction.own.release()
        transaction.own.release()
        assert ended == [True]
        shared = self.shared
        shared.record_owners = {n: owner for n, owner in shared.record_owners.items() if owner is not transaction}
        shared.key_owners = {key: owner for key, owner in shared.key_owners.items() if owner is not transaction}

    @precondition(lambda self: self.transactions)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.transactions)))

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), commit=st.integers(0, 4))
    def commit(self, data: st.DataObject, commit: int) -> None:
        """Commits a transaction, or ends it because the engine's unit was rolled back."""
        transaction = data.draw(st.sampled_from(self.transactions))
        images = CommitImages()
        state = self.shared.present.copy()
        with self.engine.unit_of_work() as unit:
            ids = replay(transaction.own, images)
            if commit > 0:
                unit.commit()
        if commit > 0:
            assert list(ids) == [n for n in transaction.seen.records if n >= FIRST_PROVISIONAL_ID]
            for record_id in transaction.written:
                stored_id = ids.get(record_id, record_id)
                record = transaction.seen.records.get(record_id)
                if record is not None:
                    state.records[stored_id] = (stored_id, *record[1:])
                else:
                    state.records.pop(stored_id, None)
            for ident, changes in transaction.changes.items():
                held = state.entries[ident]
                for (key, record_id), added in changes.items():
                    (held.add if added else held.discard)((key, ids.get(record_id, record_id)))
            self.committed(images, state)
        if transaction in self.transactions:
            self.end(transaction)

    @invariant()
    def every_reader_sees_its_own(self) -> None:
        if not hasattr(self, "history"):
            return
        self.check_history()
        self.check_claims()
        Check(self.engine_stores(), self.shared.present, self.chance, self.samples).all(False)
        for snapshot, state in self.readers:
            views = self.views(WriteSet(snapshot, Claims()))
            Check(views, state, self.chance, self.samples).all(isinstance(views.records, PatchedRecords))
        for transaction in self.transactions:
            views = self.views(transaction.own)
            Check(views, transaction.seen, self.chance, self.samples).all(isinstance(views.records, PatchedRecords))
            # Each statement begins at the same snapshot, whatever the ones before have written.
            at_begin = self.views(WriteSet(transaction.own.snapshot, Claims()))
            Check(at_begin, transaction.at_begin, self.chance, 1).records()

    def check_history(self) -> None:
        history = self.history
        numbers = [s.number for s, _ in self.readers] + [t.own.snapshot.number for t in self.transactions]
        assert history.open_snapshots == len(numbers)
        assert history.recording == bool(numbers)
        logs: list[list[Any]] = [*history.record_logs.values(), *history.entry_logs.values()]
        for log in logs:
            assert all(first[0] <= second[0] for first, second in pairwise(log))
            assert min(numbers) < log[0][0] <= log[-1][0] <= history.number
        assert (history.bytes > 0) == bool(logs)

    def check_claims(self) -> None:
        shared = self.shared
        assert self.claims.any == bool(shared.record_owners or shared.key_owners)
        for record_id in range(1, max([*shared.record_owners, 1]) + 1):
            owner = shared.record_owners.get(record_id)
            assert self.claims.record_owner("records", record_id) is (None if owner is None else owner.own)
        for ident in DATA:
            for key in KEYS:
                owner = shared.key_owners.get((ident, key))
                assert self.claims.key_owner(ident, key) is (None if owner is None else owner.own)


def patches(own: WriteSet) -> tuple[dict[str, Any], dict[str, Any]]:
    """Copies of the patches of a write set that change anything."""
    return (
        {ident: (dict(patch.images), list(patch.order)) for ident, patch in own.records.items() if patch.order},
        {ident: (dict(patch.images), list(patch.order)) for ident, patch in own.entries.items() if patch.order},
    )


@pytest.mark.slow
def test_snapshots_and_transactions_read_what_they_must(
    engine_kind: str, engine_opener: Callable[[str, Path], StorageEngine]
) -> None:
    machine = type("Machine", (SnapshotMachine,), {"kind": engine_kind, "opener": staticmethod(engine_opener)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=16 if engine_kind == "memory" else 5,
            stateful_step_count=25,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
