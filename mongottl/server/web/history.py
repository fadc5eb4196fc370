"""The last ten minutes of a server, which it keeps also while nobody looks: a point a second, by the machine's time.

    operations  │▁▂▂▇▂▁▁ … ▂│     each figure: its values in the last KEPT_S seconds, the newest at the end
    deleted     │▁▁▁▁▇▁▁ … ▁│

Moving the server's clock moves no point. A point that comes late, because the server was busy, counts for all seconds
since the one before. Latencies are kept for the last minute.

A figure takes 8 bytes a point, 4.8 kB; a point takes 15 µs. Of the times of commands there are `_LATENCIES` snapshots
of histograms, in which those of commands that have not run meanwhile are the same objects: 0.3 MB where thirty commands
run all the time.
"""

from array import array
from collections import deque
from typing import Final, NamedTuple

from mongottl.exec.operation.service import MS_PER_S, ServiceContext
from mongottl.server.web.figures import is_frozen

KEPT_S: Final = 600
INTERVAL_S: Final = 1.0
# How many seconds there are between two snapshots of latencies, and how many of them are kept: a minute.
_LATENCIES_S: Final = 5
_LATENCIES: Final = 13
# A point is added so long before a whole second of the server's clock, in which budgets of request units begin afresh:
# what is spent at once in a second is in its point then, although points come some milliseconds late.
_EARLY_MS: Final = 100
# The seconds between two points at least.
_LEAST_S: Final = 0.25


class Latencies(NamedTuple):
    """Histograms of the times of commands, by command, as they were at an instant. at_s: monotonic time."""

    at_s: float
    buckets: dict[str, dict[int, int]]


class Series:
    """The values of a figure in the last KEPT_S seconds."""

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, value: float, seconds: int) -> None:
        """Adds the same value for so many seconds."""
        self._values.extend([value] * seconds)
        del self._values[:-KEPT_S]

    def last(self) -> float:
        return round(self._values[-1], 2)

    def values(self) -> list[float]:
        """All, the newest at the end, to two digits."""
        return [round(value, 2) for value in self._values]


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
        self._at_s = service.clock.monotonic_s()
        self._operations_before = dict(service.metrics.operations)
        self._deleted_before = service.metrics.ttl_deleted_documents
        # By command, its histogram in the last snapshot.
        self._buckets: dict[str, dict[int, int]] = {}
        self._latencies: deque[Latencies] = deque(maxlen=_LATENCIES)
        self._keep_latencies()

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
        self.points += 1
        if self.points % _LATENCIES_S == 0:
            self._keep_latencies()

    def described(self) -> dict[str, object]:
        """All points: `{number, keptS, operations, deleted}`. number: of the newest one. operations, deleted: how many
        there were in a second, for each second, the newest at the end."""
        return {
            "number": self.points,
            "keptS": KEPT_S,
            "operations": self._operations.values(),
            "deleted": self._deleted.values(),
        }

    def last_point(self) -> dict[str, object] | None:
        """The newest point, `{number, seconds, operations, deleted}`; None before there is one. seconds: for how many
        seconds it counts."""
        if self.points == 0:
            return None
        return {
            "number": self.points,
            "seconds": self._seconds,
            "operations": self._operations.last(),
            "deleted": self._deleted.last(),
        }

    def latencies(self) -> tuple[Latencies, Latencies]:
        """The histograms of a minute ago, or of the server's start, and those of now."""
        return self._latencies[0], Latencies(self._service.clock.monotonic_s(), self._present_buckets())

    def _keep_latencies(self) -> None:
        self._buckets = self._present_buckets()
        self._latencies.append(Latencies(self._service.clock.monotonic_s(), self._buckets))

    def _present_buckets(self) -> dict[str, dict[int, int]]:
        """The histograms of now; that of a command which has not run since the last snapshot is the same object."""
        observation = self._service.observation
        assert observation is not None
        found: dict[str, dict[int, int]] = {}
        for name, times in observation.times.items():
            before = self._buckets.get(name)
            found[name] = before if before is not None and before == times.buckets else dict(times.buckets)
        return found
