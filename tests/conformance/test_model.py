"""Random operations on each engine and on the slow, obvious model beside it: dicts, and lists sorted at every call."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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

from mongottl.storage.errors import DuplicateKey
from mongottl.storage.interface import SavedState, StorageEngine, WriteUnitOfWork
from mongottl.storage.stores import (
    MAX_RECORD_ID,
    ExpiryIndex,
    KeyEntry,
    KeyRange,
    Record,
    RecordStore,
    SortedDataInterface,
)

documents = st.binary(max_size=6)
seconds = st.integers(0, 12)
ttls = st.sampled_from([0, 0, -1, 1, 2, 5])
# Few different keys, so that they collide, and some that are prefixes of others.
keys = st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"ab", b"b", b"\x80", b"\xff"])
record_ids = st.integers(1, 12)
entries = st.lists(st.tuples(keys, record_ids), max_size=6)
limits = st.integers(1, 7)


class EngineMachine(RuleBasedStateMachine):
    kind = ""
    opener: Callable[[str, Path], StorageEngine]

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.engine: StorageEngine = self.opener(self.kind, self.directory / "data")
        self.unit: WriteUnitOfWork | None = None
        self.records: dict[int, Record] = {}
        self.last_id = 0
        self.plain: set[KeyEntry] = set()
        self.unique: dict[bytes, int] = {}
        self.saved: tuple[dict[int, Record], set[KeyEntry], dict[bytes, int], int] = ({}, set(), {}, 0)
        self.states: list[tuple[SavedState, tuple[dict[int, Record], set[KeyEntry], dict[bytes, int], int]]] = []

    @initialize()
    def create(self) -> None:
        with self.engine.unit_of_work() as unit:
            self.engine.create_record_store("records")
            self.engine.create_sorted_data("plain", False)
            self.engine.create_sorted_data("unique", True)
            unit.commit()

    def teardown(self) -> None:
        if self.unit is not None:
            self.leave(commit=False)
        self.engine.close()
        shutil.rmtree(self.directory)

    @property
    def store(self) -> RecordStore:
        return self.engine.record_store("records")

    @property
    def plain_data(self) -> SortedDataInterface:
        return self.engine.sorted_data("plain", False)

    @property
    def unique_data(self) -> SortedDataInterface:
        return self.engine.sorted_data("unique", True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """In the open unit of work, or in one of its own."""
        if self.unit is not None:
            yield
        else:
            with self.engine.unit_of_work() as unit:
                yield
                unit.commit()

    @precondition(lambda self: self.unit is None)
    @rule()
    def enter(self) -> None:
        self.saved = (dict(self.records), set(self.plain), dict(self.unique), self.last_id)
        self.unit = self.engine.unit_of_work()
        self.unit.__enter__()

    @precondition(lambda self: self.unit is not None)
    @rule(commit=st.booleans())
    def leave(self, commit: bool) -> None:
        assert self.unit is not None
        if commit:
            self.unit.commit()
        else:
            # Ids of a unit that was not committed may be used again after a restart.
            self.records, self.plain, self.unique, self.last_id = self.saved
        self.unit.__exit__(None, None, None)
        self.unit = None

    @precondition(lambda self: self.unit is None and self.engine.saves_states)
    @rule()
    def save_state(self) -> None:
        model = (dict(self.records), set(self.plain), dict(self.unique), self.last_id)
        self.states.append((self.engine.save_state(), model))

    @precondition(lambda self: self.unit is None and self.states)
    @rule(number=st.integers(0, 20))
    def restore_state(self, number: int) -> None:
        state, (records, plain, unique, last_id) = self.states[number % len(self.states)]
        self.engine.restore_state(state)
        self.records, self.plain, self.unique, self.last_id = dict(records), set(plain), dict(unique), last_id

    @precondition(lambda self: self.unit is None and self.states)
    @rule(number=st.integers(0, 20))
    def release_state(self, number: int) -> None:
        self.engine.release_state(self.states.pop(number % len(self.states))[0])

    @precondition(lambda self: self.unit is None and self.kind.endswith("-file"))
    @rule(flush=st.booleans())
    def reopen(self, flush: bool) -> None:
        if flush:
            self.engine.flush()
        self.engine.close()
        self.engine = self.opener(self.kind, self.directory / "data")

    @precondition(lambda self: self.unit is None and self.kind.endswith("-file"))
    @rule()
    def crash(self) -> None:
        """Goes on with the files as they are now."""
        survivor = self.directory / "survivor"
        shutil.copytree(self.directory / "data", survivor)
        self.engine.close()
        shutil.rmtree(self.directory / "data")
        survivor.rename(self.directory / "data")
        self.engine = self.opener(self.kind, self.directory / "data")

    @rule(new=st.lists(st.tuples(documents, seconds, ttls), max_size=5), one=st.booleans())
    def insert_records(self, new: list[tuple[bytes, int, int]], one: bool) -> None:
        with self.writing():
            if one:
                ids = [self.store.insert_record(*record) for record in new]
            else:
                ids = self.store.insert_records(new)
        assert len(ids) == len(new)
        for record_id, record in zip(ids, new, strict=True):
            assert record_id > self.last_id
            self.last_id = record_id
            self.records[record_id] = (record_id, *record)

    def pick(self, data: st.DataObject) -> list[Record]:
        if not self.records:
            return []
        ids = data.draw(st.lists(st.sampled_from(sorted(self.records)), unique=True, max_size=6))
        return [self.records[record_id] for record_id in ids]

    @rule(data=st.data(), one=st.booleans())
    def delete_records(self, data: st.DataObject, one: bool) -> None:
        gone = self.pick(data)
        with self.writing():
            if one:
                for record in gone:
                    self.store.delete_record(record)
            else:
                self.store.delete_records(gone)
        for record in gone:
            del self.records[record[0]]

    @rule(data=st.data(), document=documents, ts=seconds, ttl=ttls, one=st.booleans())
    def update_records(self, data: st.DataObject, document: bytes, ts: int, ttl: int, one: bool) -> None:
        old = self.pick(data)
        new = [(record[0], document, ts, ttl) for record in old]
        with self.writing():
            if one:
                for before, after in zip(old, new, strict=True):
                    self.store.update_record(before, after)
            else:
                self.store.update_records(old, new)
        for record in new:
            self.records[record[0]] = record

    @rule(new=entries)
    def insert_plain(self, new: list[KeyEntry]) -> None:
        with self.writing():
            self.plain_data.insert(new)
        self.plain.update(new)

    @rule(new=entries, one=st.booleans())
    def insert_unique(self, new: list[KeyEntry], one: bool) -> None:
        for batch in [[entry] for entry in new] if one else [new]:
            expected = dict(self.unique)
            refused: tuple[bytes, int, int] | None = None
            for position, (key, record_id) in enumerate(batch):
                if expected.setdefault(key, record_id) != record_id:
                    refused = (key, expected[key], position)
                    break
            with self.writing():
                try:
                    if one:
                        self.unique_data.insert_one(*batch[0])
                    else:
                        self.unique_data.insert(batch)
                except DuplicateKey as error:
                    assert (error.key, error.existing_record_id, error.position) == refused
                else:
                    assert refused is None
                    self.unique = expected

    @rule(gone=entries, one=st.booleans())
    def remove(self, gone: list[KeyEntry], one: bool) -> None:
        with self.writing():
            for data in (self.plain_data, self.unique_data):
                if one:
                    for entry in gone:
                        data.remove_one(*entry)
                else:
                    data.remove(gone)
        self.plain.difference_update(gone)
        self.unique = {key: rid for key, rid in self.unique.items() if (key, rid) not in set(gone)}

    @rule(low=keys, high=keys, limit=limits, forward=st.booleans(), unique=st.booleans(), data=st.data())
    def scan_entries(
        self, low: bytes, high: bytes, limit: int, forward: bool, unique: bool, data: st.DataObject
    ) -> None:
        model: list[KeyEntry] = list(self.unique.items()) if unique else list(self.plain)
        found = self.unique_data if unique else self.plain_data
        inside = sorted([entry for entry in model if low <= entry[0] < high], reverse=not forward)
        assert found.count_range(KeyRange(low, high)) == len(inside)
        ascending = inside if forward else inside[::-1]
        assert found.entry_at(KeyRange(low, high), None, limit) == (ascending[limit] if limit < len(inside) else None)
        assert found.scan(KeyRange(low, high, forward), None, limit)[0] == inside[:limit]
        if low < high:
            after = data.draw(st.tuples(keys.filter(lambda key: low <= key < high) | st.just(low), record_ids))
            rest = [entry for entry in inside if (entry > after if forward else entry < after)]
            assert found.scan(KeyRange(low, high, forward), after, limit)[0] == rest[:limit]

    @rule(wanted=st.lists(keys, unique=True))
    def find_entries(self, wanted: list[bytes]) -> None:
        assert self.unique_data.find_exact(wanted) == [(key, self.unique[key]) for key in wanted if key in self.unique]
        assert self.plain_data.find_exact(wanted) == [e for key in wanted for e in sorted(self.plain) if e[0] == key]

    @rule(after=st.integers(0, 30), limit=limits)
    def scan_records(self, after: int, limit: int) -> None:
        ordered = sorted(self.records.values())
        assert self.store.scan(after, limit)[0] == [record for record in ordered if record[0] > after][:limit]
        below = [record for record in reversed(ordered) if record[0] < after]
        assert self.store.scan(after, limit, False)[0] == below[:limit]

    @rule(wanted=st.lists(st.integers(1, 30), max_size=8))
    def find_records(self, wanted: list[int]) -> None:
        assert self.store.find_records(wanted)[0] == [self.records[n] for n in wanted if n in self.records]

    @rule(now=seconds, limit=limits)
    def due(self, now: int, limit: int) -> None:
        by_default = sorted((r for r in self.records.values() if r[3] == 0), key=lambda r: (r[2], r[0]))
        by_own = sorted((r for r in self.records.values() if r[3] > 0), key=lambda r: (r[2] + r[3], r[0]))
        default_due = [r for r in by_default if r[2] <= now]
        own_due = [r for r in by_own if r[2] + r[3] <= now]
        assert self.store.due(ExpiryIndex.BY_DEFAULT, now, limit) == default_due[:limit]
        assert self.store.due(ExpiryIndex.BY_OWN, now, limit) == own_due[:limit]
        assert self.store.count_due(ExpiryIndex.BY_DEFAULT, now) == len(default_due)
        assert self.store.count_due(ExpiryIndex.BY_OWN, now) == len(own_due)
        assert (
            self.store.due_seconds(ExpiryIndex.BY_DEFAULT, now, limit)
            == sorted({r[2] for r in by_default if r[2] > now})[:limit]
        )
        assert (
            self.store.due_seconds(ExpiryIndex.BY_OWN, now, limit)
            == sorted({r[2] + r[3] for r in by_own if r[2] + r[3] > now})[:limit]
        )

    @invariant()
    def counters_are_exact(self) -> None:
        if "records" in self.engine.idents():
            assert self.store.count() == len(self.records)
            assert self.store.size_bytes() == sum(len(record[1]) for record in self.records.values())
            assert self.store.scan(MAX_RECORD_ID, 100, False)[0] == sorted(self.records.values(), reverse=True)[:100]


@pytest.mark.slow
def test_an_engine_is_its_model(engine_kind: str, engine_opener: Callable[[str, Path], StorageEngine]) -> None:
    machine = type("Machine", (EngineMachine,), {"kind": engine_kind, "opener": staticmethod(engine_opener)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
