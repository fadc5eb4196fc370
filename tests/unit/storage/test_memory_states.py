"""Saved states of the memory engine beside a model: many blocks of records, several dicts of keys."""

import random

import pytest

from mongottl.storage.interface import SavedState, StorageEngine
from mongottl.storage.memory.engine import MemoryEngine
from mongottl.storage.stores import ExpiryIndex, KeyRange, Record, RecordStore, SortedDataInterface

END = b"\xff" * 9


class Failed(Exception):
    """Ends a unit of work without a commit."""


class World:
    """An engine with one store and two sorted data, and the same as dicts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.engine: StorageEngine = MemoryEngine()
        self.make()
        self.states: list[tuple[SavedState, dict[int, Record]]] = []

    @property
    def store(self) -> RecordStore:
        return self.engine.record_store("records")

    @property
    def unique(self) -> SortedDataInterface:
        return self.engine.sorted_data("unique", True)

    @property
    def plain(self) -> SortedDataInterface:
        return self.engine.sorted_data("plain", False)

    def make(self) -> None:
        """Makes the store and the sorted data, in place of those that there are."""
        with self.engine.unit_of_work() as unit:
            for ident in self.engine.idents():
                self.engine.drop_ident(ident)
            self.engine.create_record_store("records")
            self.engine.create_sorted_data("unique", True)
            self.engine.create_sorted_data("plain", False)
            unit.commit()
        self.records: dict[int, Record] = {}

    def change(self) -> None:
        """One unit of work, of which a few are rolled back."""
        before = dict(self.records)
        rolled_back = self.random.random() < 0.25
        try:
            with self.engine.unit_of_work() as unit:
                for _ in range(self.random.randint(1, 4)):
                    self.random.choice((self.insert, self.update, self.delete))()
                if rolled_back:
                    raise Failed
                unit.commit()
        except Failed:
            self.records = before

    def insert(self) -> None:
        count = self.random.choice((1, 10, 300, 5000))
        new = [
            (b"%d" % self.random.randint(0, 99), self.random.randint(0, 500), self.random.choice((0, -1, 5)))
            for _ in range(count)
        ]
        ids = self.store.insert_records(new)
        self.unique.insert([(b"%08d" % n, n) for n in ids])
        self.plain.insert(sorted((record[0], n) for n, record in zip(ids, new, strict=True)))
        self.records |= {n: (n, *record) for n, record in zip(ids, new, strict=True)}

    def pick(self) -> list[Record]:
        """Records that are near each other, or far."""
        if not self.records:
            return []
        ids = sorted(self.records)
        if self.random.random() < 0.5:
            start = self.random.randrange(len(ids))
            ids = ids[start : start + self.random.choice((1, 200, 4000))]
        else:
            ids = sorted(self.random.sample(ids, min(len(ids), self.random.choice((1, 20, 500)))))
        return [self.records[n] for n in ids]

    def update(self) -> None:
        old = self.pick()
        new = [(n, b"u%d" % self.random.randint(0, 9), ts + 1, ttl) for n, _, ts, ttl in old]
        self.store.update_records(old, new)
        self.plain.remove(sorted((record[1], record[0]) for record in old))
        self.plain.insert(sorted((record[1], record[0]) for record in new))
        self.records |= {record[0]: record for record in new}

    def delete(self) -> None:
        gone = self.pick()
        self.store.delete_records(gone)
        self.unique.remove([(b"%08d" % record[0], record[0]) for record in gone])
        self.plain.remove(sorted((record[1], record[0]) for record in gone))
        for record in gone:
            del self.records[record[0]]

    def check(self) -> None:
        ordered = sorted(self.records.values())
        assert self.store.scan(0, 10**6)[0] == ordered
        assert self.store.count() == len(ordered)
        assert self.store.size_bytes() == sum(len(record[1]) for record in ordered)
        wanted = [b"%08d" % n for n in self.records]
        entries = list(zip(wanted, self.records, strict=True))
        assert self.unique.scan(KeyRange(b"", END), None, 10**6)[0] == sorted(entries)
        assert self.unique.find_exact(wanted) == entries
        assert self.plain.scan(KeyRange(b"", END), None, 10**6)[0] == sorted(
            (record[1], record[0]) for record in ordered
        )
        due = sorted((r for r in ordered if r[3] == 0), key=lambda r: (r[2], r[0]))
        own = sorted((r for r in ordered if r[3] > 0), key=lambda r: (r[2] + r[3], r[0]))
        assert self.store.due(ExpiryIndex.BY_DEFAULT, 10**9, 10**6) == due
        assert self.store.due(ExpiryIndex.BY_OWN, 10**9, 10**6) == own


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_states_are_those_of_the_model(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        event = world.random.random()
        if event < 0.5:
            world.change()
        elif event < 0.55:
            world.make()
        elif event < 0.7:
            world.states.append((world.engine.save_state(), dict(world.records)))
        elif event < 0.9 and world.states:
            state, records = world.random.choice(world.states)
            world.engine.restore_state(state)
            world.records = dict(records)
            world.check()
        elif event < 0.95 and world.states:
            world.engine.release_state(world.states.pop(world.random.randrange(len(world.states)))[0])
        else:
            world.engine.drop_some(world.random.choice((10, 5000)))
    for state, records in world.states:
        world.engine.restore_state(state)
        world.records = dict(records)
        world.check()
        world.engine.release_state(state)
    while world.engine.drop_some(1000):
        pass
    assert world.engine.statistics()["dropped_idents"] == 0
    world.check()
