"""The engine that is left at its calls: where, and what it answers then."""

import random
import time
from collections.abc import Callable

import pytest

from mongottl.document.interrupt import Undivided
from mongottl.exec.running.stack import Stacks, Steps, StepTimes
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import KeyRange
from tests.steps import counted
from tests.suspending import SuspendingEngine


class Store:
    """A suspending engine with one record, and an index with its key."""

    def __init__(self, rate: float = 1.0, seed: int = 1) -> None:
        self.stacks = Stacks(time.monotonic, StepTimes(together_s=0.0))
        self.engine = SuspendingEngine(ContractEngine(open_engine("memory:")), random.Random(seed), rate)
        self.engine.suspension.stacks = self.stacks
        with self.engine.unit_of_work() as unit:
            self.records = self.engine.create_record_store("records")
            self.index = self.engine.create_sorted_data("index", True)
            self.index.insert_one(b"a", self.records.insert_record(b"one", 1, 0))
            unit.commit()

    def steps(self, function: Callable[[], object]) -> Steps[object]:
        outcome = self.stacks.begin(function)
        assert isinstance(outcome, Steps)
        return outcome

    def drop(self) -> None:
        with self.engine.unit_of_work() as unit:
            self.engine.drop_ident("records")
            self.engine.drop_ident("index")
            unit.commit()


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_call_is_left_before_it_is_answered_and_after(store: Store) -> None:
    assert counted(store.stacks.begin(store.records.count)) == (1, 2)
    assert counted(store.stacks.begin(lambda: store.index.fetch_exact(store.records, b"a"))) == ((1, b"one", 1, 0), 2)
    assert store.engine.suspension.left == {"count": 2, "fetch_exact": 2}


def test_the_answer_is_of_one_instant_between(store: Store) -> None:
    steps = store.steps(store.records.count)
    next(steps)  # it was left before its answer
    with store.engine.unit_of_work() as unit:
        store.records.insert_record(b"two", 1, 0)
        unit.commit()
    next(steps)  # after it
    with store.engine.unit_of_work() as unit:
        store.records.insert_record(b"three", 1, 0)
        unit.commit()
    assert counted(steps) == (2, 0)
    assert store.records.count() == 3


def test_suspended_reads_of_a_dropped_store_find_nothing(store: Store) -> None:
    reads: list[Callable[[], object]] = [
        store.records.count,
        lambda: store.records.scan(0, 10),
        lambda: store.index.scan_fetch(store.records, KeyRange(b"", b"z"), None, 10),
        lambda: store.index.find_exact([b"a"]),
    ]
    waiting = [store.steps(read) for read in reads]
    for steps in waiting:
        next(steps)
    store.drop()
    assert [counted(steps)[0] for steps in waiting] == [0, ([], False), ([], False), []]


def test_units_of_work_and_undivided_blocks_are_not_left(store: Store) -> None:
    def write() -> int:
        with store.engine.unit_of_work() as unit:
            store.records.insert_record(b"two", 1, 0)
            assert len(store.records.scan(0, 10)[0]) == 2
            unit.commit()
        with Undivided():
            return store.records.count()

    assert counted(store.stacks.begin(write)) == (2, 1)  # before the unit begins
    assert store.engine.suspension.left == {"unit_of_work": 1}


def test_leaving_an_undivided_block_is_an_error(store: Store) -> None:
    def leave() -> None:
        with Undivided():
            store.stacks.give_way()

    with pytest.raises(AssertionError, match="cannot be left in an undivided block"):
        store.stacks.begin(leave)


def test_a_seed_chooses_the_calls(store: Store) -> None:
    def lefts(seed: int) -> list[int]:
        store = Store(0.5, seed)
        return [counted(store.stacks.begin(store.records.count))[1] for _ in range(20)]

    assert lefts(1) == lefts(1) != lefts(2)
    assert set(lefts(1)) == {0, 1, 2}


def test_calls_outside_of_operations_are_counted(store: Store) -> None:
    store.engine.suspension.outside.clear()
    assert store.records.count() == 1
    assert set(store.engine.suspension.outside) == {
        ("count", "tests.conformance.test_suspending.test_calls_outside_of_operations_are_counted")
    }
