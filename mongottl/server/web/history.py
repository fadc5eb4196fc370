"""The last ten minutes of a server, which it keeps also while nobody looks: a point a second, by the machine's time.

    operations  │▁▂▂▇▂▁▁ … ▂│     each figure: its values in the last KEPT_S seconds, the newest at the end
    deleted     │▁▁▁▁▇▁▁ … ▁│
    budgets     of the dialect `cosmos`: request units, throttled statements, and how much there was to spend

Moving the server's clock moves no point. A point that comes late, because the server was busy, counts for all seconds
since the one before. Latencies are kept for the last minute.

A figure takes 8 bytes a point, 4.8 kB, and there are MAX_BUDGETS budgets of three figures at most, 0.3 MB: what is
spent of others is summed up. A point takes 15 µs, and 7 µs for each budget. Of the times of commands there are
`_LATENCIES` snapshots of histograms, in which those of commands that have not run meanwhile are the same objects:
0.3 MB where thirty commands run all the time.
"""

from array import array
from collections import deque
from typing import Final, NamedTuple

from mongottl.commands.dialect_hooks import hooks_of
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.state.observation import Observation, Spent
from mongottl.exec.state.request_units import HUNDREDTHS
from mongottl.server.web.figures import is_frozen

KEPT_S: Final = 600
# Budgets with points of their own. Another one takes the place of one of which nothing was spent in KEPT_S.
MAX_BUDGETS: Final = 20
# The name under which all others are summed up.
OTHERS: Final = ""
INTERVAL_S: Final = 1.0
# How many seconds there are between two snapshots of latencies, and how many of them are kept: a minute.
_LATENCIES_S: Final = 5
_LATENCIES: Final = 13
# Seconds by which a point precedes a whole second of the server's clock, when budgets of request units begin afresh:
# what is spent at once in a second is in its point then, although points come some milliseconds late.
_EARLY_MS: Final = 100
# The seconds between two points at least.
_LEAST_S: Final = 0.25


class Latencies(NamedTuple):
    """Histograms of the times of commands, by command, as they were at an instant. at_s: monotonic time."""

    at_s: float
    buckets: dict[str, dict[int, int]]


class Series:
    """The values of a figure in the last KEPT_S seconds, to two digits."""

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, value: float, seconds: int) -> None:
        """Adds the same value for a number of seconds."""
        self._values.extend([round(value, 2)] * seconds)
        del self._values[:-KEPT_S]

    def __len__(self) -> int:
        return len(self._values)

    def has_any(self) -> bool:
        """Whether one of the values is not zero."""
        return any(self._values)

    def last(self) -> float:
        return self._values[-1]

    def values(self) -> list[float]:
        """All, the newest at the end."""
        return self._values.tolist()


class BudgetSeries:
    """What was spent of a budget: request units a second, throttled statements a second, and request units per second
    that were provisioned, 0 where it was not provisioned then. seconds: how many were before it was first spent of."""

    def __init__(self, seconds: int) -> None:
        self.units = Series()
        self.throttled = Series()
        self.provisioned = Series()
        if seconds:
            self.add(0, 0, 0, seconds)

    def add(self, units: float, throttled: float, provisioned: float, seconds: int) -> None:
        self.units.add(units, seconds)
        self.throttled.add(throttled, seconds)
        self.provisioned.add(provisioned, seconds)

    def has_any(self) -> bool:
        """Whether anything was spent of it or refused."""
        return self.units.has_any() or self.throttled.has_any()


class History:
    """points: how many were added so far. rates: operations a second by kind, at the last point; None before it."""

    def __init__(self, service: ServiceContext) -> None:
        self._service = service
        self.points = 0
        self.rates: dict[str, float] | None = None
        # For how many seconds the last point counts.
        self._seconds = 0
        self._operations = Series()
        self._deleted = Series()
        # By holder (`throughput.Budget`).
        self._budgets: dict[str, BudgetSeries] = {}
        self._at_s = service.clock.monotonic_s()
        self._operations_before = dict(service.metrics.operations)
        self._deleted_before = service.metrics.ttl_deleted_documents
        # By command, its histogram in the last snapshot.
        self._buckets: dict[str, dict[int, int]] = {}
        self._latencies: deque[Latencies] = deque(maxlen=_LATENCIES)
        self._keep_latencies()

    def _observation(self) -> Observation:
        observation = self._service.observation
        assert observation is not None
        return observation

    def wait_s(self) -> float:
        """Seconds until the next point."""
        if is_frozen(self._service):
            return INTERVAL_S
        left_s = (-_EARLY_MS - self._service.clock.now_ms()) % MS_PER_S / MS_PER_S
        return left_s if left_s >= _LEAST_S else left_s + INTERVAL_S

    def add_point(self) -> None:
        """Adds what has happened since the point before."""
        metrics = self._service.metrics
        at_s = self._service.clock.monotonic_s()
        passed_s = max(at_s - self._at_s, 0.001)
        self._seconds = min(KEPT_S, max(1, round(passed_s)))
        operations, deleted = dict(metrics.operations), metrics.ttl_deleted_documents
        before = self._operations_before
        self.rates = {name: (count - before[name]) / passed_s for name, count in operations.items()}
        # Not divided by `passed_s`, so that the sum of the points is exact.
        self._operations.add((sum(operations.values()) - sum(before.values())) / self._seconds, self._seconds)
        self._deleted.add((deleted - self._deleted_before) / self._seconds, self._seconds)
        self._at_s, self._operations_before, self._deleted_before = at_s, operations, deleted
        self._add_spent(self._observation().take_spent())
        self.points += 1
        if self.points % _LATENCIES_S == 0:
            self._keep_latencies()

    def described(self) -> tuple[dict[str, object], list[dict[str, object]]]:
        """All points: `{number, keptS, operations, deleted}` and a list of `{holder, units, throttled, provisioned}`.

        number: of the newest one. operations, deleted and what a budget has: how much there was in a second, for each
        second, the newest at the end.
        """
        description: dict[str, object] = {
            "number": self.points,
            "keptS": KEPT_S,
            "operations": self._operations.values(),
            "deleted": self._deleted.values(),
        }
        budgets: list[dict[str, object]] = [
            {
                "holder": holder,
                "units": budget.units.values(),
                "throttled": budget.throttled.values(),
                "provisioned": budget.provisioned.values(),
            }
            for holder, budget in self._budgets.items()
        ]
        return description, budgets

    def last_point(self) -> dict[str, object] | None:
        """The newest point, `{number, seconds, operations, deleted, budgets: [{holder, …}]}`, with numbers where
        `described` has lists; None before there is one. seconds: for how many it counts."""
        if self.points == 0:
            return None
        return {
            "number": self.points,
            "seconds": self._seconds,
            "operations": self._operations.last(),
            "deleted": self._deleted.last(),
            "budgets": [
                {
                    "holder": holder,
                    "units": budget.units.last(),
                    "throttled": budget.throttled.last(),
                    "provisioned": budget.provisioned.last(),
                }
                for holder, budget in self._budgets.items()
            ],
        }

    def _add_spent(self, spent: dict[str, Spent]) -> None:
        """Adds to the last point what was spent of budgets."""
        new = [holder for holder in spent if holder not in self._budgets]
        room = self._room(spent, len(new)) if new else 0
        for holder in new[:room]:
            self._budgets[holder] = BudgetSeries(len(self._operations) - self._seconds)
        left = [spent[holder] for holder in new[room:]]
        others = Spent(sum([one.hundredths for one in left]), sum([one.throttled for one in left]))
        if OTHERS not in self._budgets and left:
            self._budgets[OTHERS] = BudgetSeries(len(self._operations) - self._seconds)
        for holder, budget in self._budgets.items():
            hundredths, throttled = others if holder == OTHERS else spent.get(holder, Spent(0, 0))
            units = hundredths / HUNDREDTHS / self._seconds
            provisioned = hooks_of(self._service).units_per_s(self._service, holder)
            budget.add(units, throttled / self._seconds, provisioned, self._seconds)

    def _room(self, spent: dict[str, Spent], wanted: int) -> int:
        """For how many other budgets there is room, `wanted` at most. If there is too little it forgets those of
        which nothing was spent in KEPT_S."""
        room = MAX_BUDGETS - len(self._budgets) + (OTHERS in self._budgets)
        if room < wanted:
            for holder, budget in list(self._budgets.items()):
                if room < wanted and holder not in spent and holder != OTHERS and not budget.has_any():
                    del self._budgets[holder]
                    room += 1
        return min(room, wanted)

    def latencies(self) -> tuple[Latencies, Latencies]:
        """The histograms of a minute ago, or of the server's start, and those of now."""
        return self._latencies[0], Latencies(self._service.clock.monotonic_s(), self._present_buckets())

    def _keep_latencies(self) -> None:
        self._buckets = self._present_buckets()
        self._latencies.append(Latencies(self._service.clock.monotonic_s(), self._buckets))

    def _present_buckets(self) -> dict[str, dict[int, int]]:
        """The histograms of now; that of a command which has not run since the last snapshot is the same object."""
        observation = self._observation()
        found: dict[str, dict[int, int]] = {}
        for name, times in observation.times.items():
            before = self._buckets.get(name)
            found[name] = before if before is not None and before == times.buckets else dict(times.buckets)
        return found
