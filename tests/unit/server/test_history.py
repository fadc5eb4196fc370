"""The history of the page: points by the machine's time, how far they go back, and the memory that they take."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mongottl.catalog.throughput import Throughput
from mongottl.clock import Clock, VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.observation import Observation
from mongottl.server.web.history import KEPT_S, MAX_BUDGETS, OTHERS, History
from mongottl.storage.opening import open_engine


class Machine(Clock):
    """A machine whose time passes when a test says so."""

    def __init__(self) -> None:
        self.elapsed_s = 1000.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.elapsed_s * 1000)

    def monotonic_s(self) -> float:
        return self.elapsed_s


class Setup:
    def __init__(self) -> None:
        self.machine = Machine()
        self.clock = VirtualClock(self.machine)
        self.service = ServiceContext(ServerConfig(dialect="cosmos"), self.clock, open_engine("memory:"))
        self.observation = Observation()
        self.service.observation = self.observation
        self.history = History(self.service)

    def next_point(self, late_s: float = 0.0) -> float:
        """Lets time pass until the next point, and adds it. Returns how long that took."""
        passed_s = self.history.wait_s() + late_s
        self.machine.elapsed_s += passed_s
        self.history.add_point()
        return passed_s

    def values(self, figure: str) -> list[float]:
        found = self.history.described()[0][figure]
        assert isinstance(found, list)
        return found


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_each_second_of_the_server_clock_has_one_history_point(setup: Setup) -> None:
    setup.next_point()
    assert setup.clock.now_ms() % 1000 == 900
    for number in range(5):
        setup.machine.elapsed_s += 0.1  # a whole second of the server's clock, in which budgets begin afresh
        setup.service.metrics.operations["insert"] += number
        setup.next_point()
    assert setup.values("operations") == [0, 0, 1, 2, 3, 4]
    assert setup.history.points == 6


def test_moving_the_server_s_clock_moves_no_point(setup: Setup) -> None:
    setup.next_point()
    for seconds in (86_400.3, -3600.7, 0.25, 0.05):
        setup.clock.advance(seconds)
        setup.service.metrics.ttl_deleted_documents += 7
        assert 0.25 <= setup.next_point() < 1.25
        assert setup.clock.now_ms() % 1000 == 900
    setup.clock.freeze(True)
    setup.service.metrics.ttl_deleted_documents += 2
    assert [setup.next_point() for _ in range(3)] == [1.0] * 3
    assert setup.values("deleted") == [0, 7, 7, 7, 7, 2, 0, 0]


def test_a_late_point_counts_for_the_seconds_since_the_one_before(setup: Setup) -> None:
    setup.next_point()
    setup.service.metrics.operations["query"] += 8
    setup.next_point(late_s=3.2)
    assert setup.values("operations") == [0, 2, 2, 2, 2]
    assert setup.history.last_point() == {"number": 2, "seconds": 4, "operations": 2, "deleted": 0, "budgets": []}
    assert setup.history.rates is not None and setup.history.rates["query"] == pytest.approx(8 / 4.2)
    setup.service.metrics.operations["query"] += 6000
    setup.next_point(late_s=100_000)
    assert setup.values("operations") == [10] * KEPT_S


def test_ten_minutes_are_kept(setup: Setup) -> None:
    for number in range(KEPT_S + 50):
        setup.service.metrics.operations["command"] += number
        setup.next_point()
    assert KEPT_S == 600
    assert setup.values("operations") == list(range(50, KEPT_S + 50))


def budgets(setup: Setup) -> dict[str, Any]:
    """By holder: request units a second, throttled statements a second, and what was provisioned."""
    found = setup.history.described()[1]
    return {str(budget["holder"]): (budget["units"], budget["throttled"], budget["provisioned"]) for budget in found}


def test_history_records_spending_and_throttling_of_budgets(setup: Setup) -> None:
    setup.next_point()
    for hundredths, throttled in ((150, 0), (50, 1)):
        setup.observation.spend("shop.carts", hundredths, throttled)
    setup.next_point()
    setup.service.databases.put("shop", Throughput(1000))
    setup.observation.spend("shop", 300, 0)
    setup.next_point()
    setup.observation.spend("shop", 800, 4)
    setup.next_point(late_s=1)
    # Collections of `shop` share its budget now, and what was before it was first spent of is not known.
    assert budgets(setup) == {
        "shop.carts": ([0, 2, 0, 0, 0], [0, 1, 0, 0, 0], [0, 400, 0, 0, 0]),
        "shop": ([0, 0, 3, 4, 4], [0, 0, 0, 2, 2], [0, 0, 1000, 1000, 1000]),
    }
    point = setup.history.last_point()
    assert point is not None and point["seconds"] == 2
    assert point["budgets"] == [
        {"holder": "shop.carts", "units": 0, "throttled": 0, "provisioned": 0},
        {"holder": "shop", "units": 4, "throttled": 2, "provisioned": 1000},
    ]


def test_of_many_budgets_the_others_are_summed_up(setup: Setup) -> None:
    for number in range(MAX_BUDGETS + 3):
        setup.observation.spend(f"shop.c{number}", 100 * number, 1)
    setup.next_point()
    assert len(budgets(setup)) == MAX_BUDGETS + 1
    assert budgets(setup)[OTHERS][:2] == ([20 + 21 + 22], [3])
    for _ in range(KEPT_S - 1):
        setup.observation.spend("shop.c1", 100, 0)
        setup.observation.spend("shop.new", 100, 0)
        setup.next_point()
    assert "shop.new" not in budgets(setup) and "shop.c0" in budgets(setup)
    # Nothing was spent of the first one for ten minutes now: the new one takes its place.
    for _ in range(2):
        setup.observation.spend("shop.new", 700, 0)
        setup.next_point()
    assert "shop.c0" not in budgets(setup) and len(budgets(setup)) == MAX_BUDGETS + 1
    assert budgets(setup)["shop.new"][0] == [0] * (KEPT_S - 1) + [7]
    assert budgets(setup)[OTHERS][0] == [1] * (KEPT_S - 2) + [7, 0]


def test_latencies_go_back_a_minute(setup: Setup) -> None:
    setup.observation.record("insert", 100)
    for _ in range(59):
        setup.next_point()
    before, after = setup.history.latencies()
    assert before.buckets == {} and after.buckets == {"insert": {64: 1}}
    setup.observation.record("insert", 100)
    for _ in range(60):
        setup.next_point()
    before, after = setup.history.latencies()
    assert 60 <= after.at_s - before.at_s < 66
    assert before.buckets == {"insert": {64: 1}} and after.buckets == {"insert": {64: 2}}


@contextmanager
def measured_bytes(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[0] < most
    finally:
        tracemalloc.stop()


def test_history_takes_little_memory(setup: Setup) -> None:
    """Thirty commands that run all the time, whose times are in twenty buckets each."""
    for command in range(30):
        for power in range(20):
            setup.observation.record(f"command{command}", 1 << power)
    for _ in range(10):
        setup.next_point()
    with measured_bytes(1_000_000):
        for number in range(KEPT_S + 20):
            for place in range(30):
                setup.observation.spend(f"shop.c{number + place}", 100, 1)
            setup.service.metrics.operations["insert"] += 1000
            setup.service.metrics.ttl_deleted_documents += 1000
            for command in range(30):
                setup.observation.record(f"command{command}", 1000)
            setup.next_point()


def test_while_nothing_runs_snapshots_are_shared(setup: Setup) -> None:
    for command in range(30):
        setup.observation.record(f"command{command}", 1000)
    for _ in range(10):
        setup.next_point()
    with measured_bytes(60_000):
        for _ in range(3 * KEPT_S):
            setup.next_point()
