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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mongottl.storage.errors import (
    ClaimedByTransaction,
    DuplicateKey,
    SnapshotConflict,
    SnapshotTooOld,
    StorageError,
    TransactionTooLarge,
    WriteConflict,
)
from mongottl.storage.interface import StorageEngine
from mongottl.storage.snapshot.claims import Claims
from mongottl.storage.snapshot.history import CommitImages, History, Snapshot
from mongottl.storage.snapshot.patches import FIRST_PROVISIONAL_ID
from mongottl.storage.snapshot.recording import RecordingEntries, RecordingRecords
from mongottl.storage.snapshot.views import PatchedRecords, records_at
from mongottl.storage.snapshot.write_set import WriteSet
from mongottl.storage.stores import (
    MAX_RECORD_ID,
    NO_BYTE_LIMIT,
    ExpiryIndex,
    FetchedEntry,
    KeyEntry,
    KeyRange,
    NewRecord,
    Record,
    RecordStore,
    SortedDataInterface,
)

DATA = {"by_parts": False, "by_head": True, "loose": True}
HIGH = b"\xff"
KEYS = (b"", b"a", b"aa", b"ab", b"b", b"bd", b"c", b"ca", b"d", b"dc", HIGH)


def parts(document: bytes) -> set[bytes]:
    """The keys of a document in `by_parts`."""
    return {document[i : i + 2] for i in range(len(document))} or {b""}


@dataclass
class State:
    """What a reader sees."""

    records: dict[int, Record] = field(default_factory=dict)
    entries: dict[str, set[KeyEntry]] = field(default_factory=lambda: {ident: set() for ident in DATA})

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
    changes: dict[str, dict[KeyEntry, bool]] = field(default_factory=lambda: {ident: {} for ident in DATA})


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

    def insert(self, entries: list[KeyEntry]) -> None:
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

    def remove(self, entries: list[KeyEntry]) -> None:
        if self.unique:
            self._check_claims(entries)
            for key, _ in entries:
                self._claim(key)
        for entry in entries:
            self._put(entry, False)

    def _check_claims(self, entries: list[KeyEntry]) -> None:
        for key, _ in entries:
            owner = self.shared.key_owners.get((self.ident, key))
            if owner is not None and self.transaction is None:
                raise Refused(ClaimedByTransaction, owner.own)

    def _claim(self, key: bytes) -> None:
        if self.transaction is not None:
            owner = self.shared.key_owners.setdefault((self.ident, key), self.transaction)
            if owner is not self.transaction:
                raise Refused(SnapshotConflict)

    def _put(self, entry: KeyEntry, present: bool) -> None:
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


def change_loose(entries: list[KeyEntry], insert: bool, one: bool) -> Write:
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
        base = records_at(own.stores[ident], own.snapshot)
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
        assert view.count_due(ExpiryIndex.BY_DEFAULT, now) == len(by_default)
        assert view.count_due(ExpiryIndex.BY_OWN, now) == len(by_own)
        for rows, expected in (
            (view.due(ExpiryIndex.BY_DEFAULT, now, self.limit, self.max_bytes), by_default),
            (view.due(ExpiryIndex.BY_OWN, now, self.limit, self.max_bytes), by_own),
        ):
            self.batch(rows, None, expected, lambda record: len(record[1]))
        assert view.due(ExpiryIndex.BY_DEFAULT, now, 100) == by_default
        assert view.due(ExpiryIndex.BY_OWN, now, 100) == by_own

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
            assert view.count_range(KeyRange(low, high)) == len(inside)
            edges = [(key, n) for key in (low, *keys) for n in (1, 7, FIRST_PROVISIONAL_ID) if low <= key < high]
            for forward in (True, False):
                for after in [None, *self.positions(inside), *self.positions(edges)]:
                    self.scan(view, low, high, after, forward, inside, fetch)

    def scan(
        self,
        view: SortedDataInterface,
        low: bytes,
        high: bytes,
        after: KeyEntry | None,
        forward: bool,
        inside: list[KeyEntry],
        fetch: bool,
    ) -> None:
        rest = [e for e in inside if after is None or (e > after if forward else e < after)]
        if not forward:
            rest.reverse()
        rows, more = view.scan(KeyRange(low, high, forward), after, self.limit, self.max_bytes)
        self.batch(rows, more, rest, lambda entry: len(entry[0]))
        if forward:
            for number in {0, 1, len(rest) - 1, len(rest)} - {-1}:
                expected = rest[number] if number < len(rest) else None
                assert view.entry_at(KeyRange(low, high), after, number) == expected
        if fetch:
            held = self.state.records
            joined: list[FetchedEntry] = [(key, *held[number]) for key, number in rest if number in held]
            fetched, more = view.scan_fetch(
                self.stores.records, KeyRange(low, high, forward), after, self.limit, self.max_bytes
            )
            self.batch(fetched, more, joined, lambda row: len(row[2]))


def new_record(chance: random.Random) -> NewRecord:
    document = "".join(chance.choices("abcd", k=chance.choice((0, 1, 2, 3, 3, 4, 4))))
    return document.encode(), chance.randrange(13), chance.choice((0, 0, -1, 1, 2, 5))


class Machine:
    """An engine with its snapshots and transactions, and the model of them. Each step is drawn from a seed."""

    def __init__(self, engine: StorageEngine, max_bytes: int) -> None:
        self.engine = engine
        self.history = History(max_bytes)
        self.claims = Claims()
        self.shared = Shared()
        self.readers: list[tuple[Snapshot, State]] = []
        self.transactions: list[Transaction] = []
        self.samples = 2
        self.loose = False  # whether the last write was one of `change_loose`, which a unit survives
        self.chance = random.Random(0)
        with self.engine.unit_of_work() as unit:
            self.engine.create_record_store("records")
            for ident, unique in DATA.items():
                self.engine.create_sorted_data(ident, unique)
            unit.commit()

    def step(self, seed: int) -> None:
        self.chance = random.Random(seed)
        steps: list[tuple[Callable[[], None], int]] = [(self.write, 8)]
        if len(self.readers) < 2:
            steps.append((self.open_snapshot, 3))
        if len(self.transactions) < 3:
            steps.append((self.begin, 3))
        if self.readers:
            steps.append((self.close_snapshot, 1))
        if self.transactions:
            steps += [(self.statement, 10), (self.commit, 2), (self.abort, 1)]
        (step,) = self.chance.choices([step for step, _ in steps], [weight for _, weight in steps])
        step()
        self.every_reader_sees_its_own()

    def close(self) -> None:
        for transaction in list(self.transactions):
            self.end(transaction)
        for snapshot, _ in self.readers:
            snapshot.close()
        assert (self.history.bytes, self.history.recording, self.history.open_snapshots) == (0, False, 0)
        assert not self.history.record_logs and not self.history.entry_logs and not self.claims.any

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

    def draw_write(self, state: State) -> Write:
        """A write by someone who sees `state`."""
        chance = self.chance
        kind = chance.choice(("insert", "insert", "update", "update", "delete", "loose", "loose"))
        one = chance.random() < 0.5
        self.loose = kind == "loose"
        if self.loose:
            ids = (1, 2, 3, 4, FIRST_PROVISIONAL_ID - 1)
            entries = [(chance.choice(KEYS[:-1]), chance.choice(ids)) for _ in range(chance.choice((1, 1, 2, 3)))]
            return change_loose(entries, chance.random() < 0.6, one)
        if kind == "insert" or not state.records:
            return insert_documents([new_record(chance) for _ in range(chance.choice((1, 1, 2, 3)))], one)
        ids_there = sorted(state.records)
        old = [state.records[n] for n in chance.sample(ids_there, min(len(ids_there), chance.choice((1, 1, 2, 3))))]
        if chance.random() < 0.05:
            old[-1] = (old[-1][0], old[-1][1] + b"?", 0, 0)  # not as stored
        if kind == "delete":
            return delete_documents(old, one)
        new = [(record[0], *new_record(chance)) for record in old]
        if chance.random() < 0.5:
            new = [
                (n, before[1][:2] + after[2:], ts, ttl) for before, (n, after, ts, ttl) in zip(old, new, strict=True)
            ]
        return update_documents(old, new, one)

    def carry_out(self, write: Write, stores: Stores, state: State, transaction: Transaction | None) -> bool:
        """Carries out a write on real stores and in the model, which must agree; whether the unit may go on."""
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
            return isinstance(error, DuplicateKey) and self.loose
        assert error is None, error
        return True

    def write(self) -> None:
        """A plain unit of work, sometimes through recording stores though nothing needs them."""
        commit, always = self.chance.random() < 0.8, self.chance.random() < 0.3
        writes = self.chance.choice((1, 1, 1, 2, 3))
        images = CommitImages()
        state = self.shared.present.copy()
        needed = self.history.recording or self.claims.any
        with self.engine.unit_of_work() as unit:
            stores = self.recording_stores(images) if needed or always else self.engine_stores()
            for _ in range(writes):
                write = self.draw_write(state)
                if not self.carry_out(write, stores, state, None):
                    return
            Check(stores, state, self.chance, self.samples).all(False)
            if not commit:
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
        for snapshot, _ in expired:
            with pytest.raises(SnapshotTooOld):
                snapshot.records_at("records")
            with pytest.raises(SnapshotTooOld):
                snapshot.entries_at("loose")
        still_open = [snapshot.number for snapshot, _ in self.readers] + [
            t.own.snapshot.number for t in self.transactions
        ]
        if expired and still_open:
            assert max(snapshot.number for snapshot, _ in expired) <= min(still_open)

    def open_snapshot(self) -> None:
        self.readers.append((self.history.open(), self.shared.present.copy()))

    def close_snapshot(self) -> None:
        reader = self.chance.choice(self.readers)
        self.readers.remove(reader)
        reader[0].close()
        reader[0].close()

    def begin(self) -> None:
        present = self.shared.present
        own = WriteSet(self.history.open(), self.claims)
        self.transactions.append(Transaction(own, self.shared.number, present.copy(), present.copy()))

    def statement(self) -> None:
        """A statement of a transaction, kept or taken back."""
        transaction = self.chance.choice(self.transactions)
        keep = self.chance.random() < 0.8
        own = transaction.own
        before = patches(own), own.bytes
        saved = transaction.seen.copy(), dict(transaction.written), {i: dict(c) for i, c in transaction.changes.items()}
        kept = False
        with own.statement() as unit:
            for _ in range(self.chance.choice((1, 1, 2, 3))):
                write = self.draw_write(transaction.seen)
                if not self.carry_out(write, self.writing_views(own), transaction.seen, transaction):
                    break
            else:
                if keep:
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

    def abort(self) -> None:
        self.end(self.chance.choice(self.transactions))

    def commit(self) -> None:
        """Commits a transaction, or ends it because the engine's unit was rolled back."""
        transaction = self.chance.choice(self.transactions)
        commit = self.chance.random() < 0.8
        images = CommitImages()
        state = self.shared.present.copy()
        with self.engine.unit_of_work() as unit:
            ids = replay(transaction.own, images)
            if commit:
                unit.commit()
        if commit:
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

    def every_reader_sees_its_own(self) -> None:
        self.check_history()
        self.check_claims()
        Check(self.engine_stores(), self.shared.present, self.chance, self.samples).all(False)
        # Some are passed over, so that a snapshot does not read the history commit by commit.
        for snapshot, state in self.readers:
            if self.chance.random() < 0.6:
                views = self.views(WriteSet(snapshot, Claims()))
                Check(views, state, self.chance, self.samples).all(isinstance(views.records, PatchedRecords))
        for transaction in self.transactions:
            if self.chance.random() < 0.6:
                views = self.views(transaction.own)
                Check(views, transaction.seen, self.chance, self.samples).all(isinstance(views.records, PatchedRecords))
                # What its statements have written has not changed the snapshot.
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
    @settings(
        max_examples=30 if engine_kind == "memory" else 4,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(
        st.lists(st.integers(0, (1 << 32) - 1), min_size=20, max_size=40),
        st.sampled_from([1 << 30, 1 << 30, 4000]),
    )
    def run(seeds: list[int], max_bytes: int) -> None:
        directory = Path(tempfile.mkdtemp())
        engine = engine_opener(engine_kind, directory / "data")
        machine = Machine(engine, max_bytes)
        for seed in seeds:
            machine.step(seed)
        machine.close()
        engine.close()
        shutil.rmtree(directory)

    run()


def filled(engine: StorageEngine, count: int) -> tuple[RecordStore, SortedDataInterface]:
    """A store with the records 1 to `count`, and unique sorted data with an entry for each."""
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("keys", True)
        ids = store.insert_records([(b"document %03d" % n, n, 0) for n in range(1, count + 1)])
        data.insert([(b"%03d" % n, n) for n in ids])
        unit.commit()
    return store, data


def images_of(*sizes: int) -> CommitImages:
    """Images of records with documents of these lengths."""
    images = CommitImages()
    for number, size in enumerate(sizes, 1):
        images.add_record("records", number, (number, b"x" * size, 0, 0))
    return images


def updated(engine: StorageEngine, history: History, claims: Claims, record_id: int, document: bytes) -> Record:
    """A plain update of one record, which is committed; the new record."""
    images = CommitImages()
    with engine.unit_of_work() as unit:
        store = RecordingRecords(engine.record_store("records"), images, claims)
        old = store.find_record(record_id)
        assert old is not None
        store.update_record(old, (record_id, document, *old[2:]))
        unit.commit()
    history.append(images)
    return (record_id, document, *old[2:])


def test_nothing_is_recorded_while_no_snapshot_is_open() -> None:
    history = History()
    history.append(images_of(10))
    assert (history.recording, history.number, history.bytes, history.record_logs) == (False, 0, 0, {})


def test_images_are_dropped_with_the_oldest_snapshot_that_needs_them() -> None:
    history = History()
    first, same = history.open(), history.open()
    history.append(images_of(100))
    one = history.bytes
    assert one > 100
    second = history.open()
    history.append(images_of(100, 100))
    third = history.open()
    history.append(images_of(100))
    assert history.bytes == 4 * one
    second.close()
    assert history.bytes == 4 * one  # an older one needs them still
    first.close()
    assert history.bytes == 4 * one  # and one as old
    same.close()
    assert (history.bytes, [image[0] for image in history.record_logs["records"]]) == (one, [3])
    assert third.records_at("records") is not None
    third.close()
    assert (history.bytes, history.recording, history.record_logs) == (0, False, {})
    assert history.open().records_at("records") is None


def test_the_oldest_snapshot_is_too_old_when_the_history_exceeds_its_bound() -> None:
    history = History(2000)
    first, same = history.open(), history.open()
    history.append(images_of(700))
    second = history.open()
    history.append(images_of(700))
    assert [snapshot.too_old for snapshot in (first, same, second)] == [False, False, False]
    history.append(images_of(700))
    assert [snapshot.too_old for snapshot in (first, same, second)] == [True, True, False]
    assert (history.bytes < 2000, history.open_snapshots) == (True, 1)
    for snapshot in (first, same):
        with pytest.raises(SnapshotTooOld):
            snapshot.changed("records", 1)
    patch = second.records_at("records")
    assert patch is not None and patch.order == [1]
    history.append(images_of(3000))  # more than is kept for any snapshot
    assert [snapshot.too_old for snapshot in (first, same, second)] == [True, True, True]
    assert (history.bytes, history.recording) == (0, False)
    second.close()


def test_a_closed_snapshot_is_not_read() -> None:
    """Not as the present either: a command may still run that began to read it."""
    history = History()
    closed, other = history.open(), history.open()
    assert closed.records_at("records") is None
    closed.close()
    history.append(images_of(100))
    reads: list[Callable[[], object]] = [
        lambda: closed.records_at("records"),
        lambda: closed.entries_at("keys"),
        lambda: closed.changed("records", 1),
    ]
    for read in reads:
        with pytest.raises(SnapshotTooOld):
            read()
    assert other.changed("records", 1)
    other.close()


def test_a_statement_that_makes_a_write_set_too_large_is_undone(engine: StorageEngine) -> None:
    store, data = filled(engine, 2)
    own = WriteSet(History().open(), Claims(), 2000)
    with own.statement() as unit:
        own.own_records(store).insert_record(b"x" * 500, 1, 0)
        unit.commit()
    before = patches(own), own.bytes
    undone: list[int] = []
    with pytest.raises(TransactionTooLarge), own.statement() as unit:
        unit.on_rollback(lambda: undone.append(1))
        unit.on_rollback(lambda: undone.append(2))
        unit.on_commit(lambda: undone.append(3))
        own.own_entries(data).insert([(b"x", 1)])
        own.own_records(store).insert_record(b"x" * 1000, 1, 0)
    assert ((patches(own), own.bytes), undone) == (before, [2, 1])
    with own.statement() as unit:
        unit.on_commit(lambda: undone.append(3))
        own.own_records(store).insert_record(b"x" * 500, 1, 0)
        unit.commit()
    assert (own.records_view(store).count(), undone) == (4, [2, 1, 3])


def test_undoing_a_statement_restores_what_earlier_ones_have_written(engine: StorageEngine) -> None:
    store, data = filled(engine, 3)
    own = WriteSet(History().open(), Claims())
    with own.statement() as unit:
        records, keys = own.own_records(store), own.own_entries(data)
        records.update_record((1, b"document 001", 1, 0), (1, b"first", 1, 0))
        records.delete_record((2, b"document 002", 2, 0))
        added = records.insert_record(b"added", 4, 5)
        keys.remove([(b"002", 2)])
        keys.insert([(b"002", added)])
        unit.commit()
    before = patches(own), own.bytes
    with own.statement():
        records, keys = own.own_records(store), own.own_entries(data)
        records.update_record((1, b"first", 1, 0), (1, b"second", 1, 0))
        records.update_record((1, b"second", 1, 0), (1, b"third", 1, 0))
        records.delete_record((added, b"added", 4, 5))
        records.delete_record((3, b"document 003", 3, 0))
        again = records.insert_record(b"again", 4, 5)
        assert again > added
        keys.remove([(b"002", added), (b"003", 3), (b"none", 9)])
        keys.insert([(b"002", again), (b"003", again), (b"none", again)])
        assert keys.find_exact([b"002"]) == [(b"002", again)]
    assert (patches(own), own.bytes) == before
    assert own.entries_view(data).find_exact([b"002", b"003", b"none"]) == [(b"002", added), (b"003", 3)]


def test_the_first_writer_wins(engine: StorageEngine) -> None:
    store, data = filled(engine, 4)
    history, claims = History(), Claims()
    first, second = WriteSet(history.open(), claims), WriteSet(history.open(), claims)
    old = (1, b"document 001", 1, 0)
    with first.statement() as unit:
        first.own_records(store).update_record(old, (1, b"first", 1, 0))
        first.own_entries(data).insert_one(b"key", 1)
        unit.commit()
    with pytest.raises(SnapshotConflict), second.statement():
        second.own_records(store).delete_record(old)
    with pytest.raises(SnapshotConflict), second.statement():
        second.own_entries(data).insert_one(b"key", 2)
    with pytest.raises(SnapshotConflict), second.statement():
        second.own_entries(data).remove_one(b"key", 1)
    with pytest.raises(ClaimedByTransaction) as claimed, engine.unit_of_work():
        RecordingRecords(store, CommitImages(), claims).update_record(old, old)
    assert claimed.value.owner is first
    with pytest.raises(ClaimedByTransaction) as claimed, engine.unit_of_work():
        RecordingEntries(data, CommitImages(), claims).insert_one(b"key", 2)
    assert claimed.value.owner is first
    first.release()
    assert not claims.any
    # What was claimed in vain may be written, but not what a commit has written since.
    updated(engine, history, claims, 2, b"plain")
    with second.statement() as unit:
        second.own_records(store).delete_record(old)
        unit.commit()
    with pytest.raises(SnapshotConflict), second.statement():
        second.own_records(store).delete_record((2, b"document 002", 2, 0))
    assert second.records_view(store).find_record(2) == (2, b"document 002", 2, 0)
    third = WriteSet(history.open(), claims)
    with third.statement() as unit:
        third.own_records(store).delete_record((2, b"plain", 2, 0))
        unit.commit()
    second.release()
    assert claims.record_owner("records", 1) is None and claims.record_owner("records", 2) is third
    third.release()
    assert (claims.any, history.recording) == (False, False)


def test_a_unique_key_that_was_added_after_the_snapshot_is_a_conflict(engine: StorageEngine) -> None:
    _, data = filled(engine, 2)
    history, claims = History(), Claims()
    own = WriteSet(history.open(), claims)
    images = CommitImages()
    with engine.unit_of_work() as unit:
        recording = RecordingEntries(data, images, claims)
        recording.remove([(b"001", 1)])
        recording.insert([(b"001", 2), (b"new", 1)])
        unit.commit()
    history.append(images)
    keys = own.own_entries(data)
    with pytest.raises(DuplicateKey) as duplicate, own.statement():
        keys.insert([(b"first", 3), (b"001", 3)])
    assert (duplicate.value.existing_record_id, duplicate.value.position) == (1, 1)
    assert not own.entries["keys"].order
    with pytest.raises(SnapshotConflict), own.statement():
        keys.insert([(b"new", 3)])
    own.release()


def test_scans_pass_over_many_records_that_are_gone(engine: StorageEngine) -> None:
    store, data = filled(engine, 60)
    own = WriteSet(History().open(), Claims())
    with own.statement() as unit:
        gone = [(n, b"document %03d" % n, n, 0) for n in range(6, 56)]
        own.own_records(store).delete_records(gone)
        own.own_entries(data).remove([(b"%03d" % record[0], record[0]) for record in gone])
        unit.commit()
    records, keys = own.records_view(store), own.entries_view(data)
    # A batch may be shorter than its limit, but is not empty.
    for limit in (1, 3, 100):
        assert records.scan(5, limit)[0][0][0] == 56
        assert records.scan(56, limit, False)[0][0][0] == 5
        assert keys.scan(KeyRange(b"", b"~"), (b"005", 5), limit)[0][0] == (b"056", 56)
        assert keys.scan(KeyRange(b"", b"~", False), (b"056", 56), limit)[0][0] == (b"005", 5)
        assert keys.scan_fetch(records, KeyRange(b"", b"~"), (b"005", 5), limit)[0][0][1] == 56
        assert keys.scan_fetch(records, KeyRange(b"", b"~", False), (b"056", 56), limit)[0][0][1] == 5
    assert [record[0] for record in records.due(ExpiryIndex.BY_DEFAULT, 100, 7)] == [1, 2, 3, 4, 5, 56, 57]
    assert keys.entry_at(KeyRange(b"", b"~"), None, 6) == (b"057", 57)
    assert keys.count_range(KeyRange(b"", b"~")) == 10
