"""Counts and times of the operations on each collection, for `top` and `$collStats`' latencyStats.

Source: MongoDB's "top" reference, and `latencyStats` of "$collStats".
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

# The events of `top`; `_WRITE_EVENTS` are summed up as its writeLock, the others as its readLock.
EVENTS: Final = ("queries", "getmore", "insert", "update", "remove", "commands")
_WRITE_EVENTS: Final = ("insert", "update", "remove")
_EVENT_OF_COUNTER: Final = {
    "query": "queries",
    "getmore": "getmore",
    "insert": "insert",
    "update": "update",
    "delete": "remove",
    "command": "commands",
}
# The groups of latencyStats.
LatencyGroup: TypeAlias = Literal["reads", "writes", "commands"]
# Namespaces that are tracked; beyond that the oldest is dropped.
MAX_NAMESPACES: Final = 10_000


class Timing:
    """The number of operations and their total time in microseconds."""

    def __init__(self) -> None:
        self.count: int = 0
        self.micros: int = 0

    def add(self, micros: int) -> None:
        self.count += 1
        self.micros += micros

    def merge(self, other: "Timing") -> None:
        """Adds the operations of another one."""
        self.count += other.count
        self.micros += other.micros


class Latency(Timing):
    """A number of operations, their total time, and a histogram of their times.

    buckets: counts by the lower bound of each bucket in microseconds (`bucket_micros`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.buckets: dict[int, int] = {}

    def add(self, micros: int) -> None:
        self.count += 1
        self.micros += micros
        floor = bucket_micros(micros)
        self.buckets[floor] = self.buckets.get(floor, 0) + 1


def bucket_micros(micros: int) -> int:
    """The lower bound of the histogram's bucket: powers of two, and half-way between them from 2048 on."""
    if micros < 2:
        return 0
    power = 1 << (micros.bit_length() - 1)
    half = power + (power >> 1)
    return half if power >= 2048 and micros >= half else power


def next_bucket_micros(floor: int) -> int:
    """The lower bound of the bucket after that of `floor`, one of `bucket_micros`."""
    if floor < 2:
        return 2
    if floor < 2048:
        return 2 * floor
    return floor + (1 << (floor.bit_length() - 2))  # half of the power of two at or below it


class NamespaceUsage:
    """The usage of one collection or view since the server started."""

    def __init__(self) -> None:
        self.events: dict[str, Timing] = {event: Timing() for event in EVENTS}
        self.reads = Latency()
        self.writes = Latency()
        self.commands = Latency()

    def read_events(self) -> Timing:
        return self._sum(event for event in EVENTS if event not in _WRITE_EVENTS)

    def write_events(self) -> Timing:
        return self._sum(_WRITE_EVENTS)

    def all_events(self) -> Timing:
        return self._sum(EVENTS)

    def _sum(self, events: Iterable[str]) -> Timing:
        total = Timing()
        for event in events:
            total.count += self.events[event].count
            total.micros += self.events[event].micros
        return total


class UsageRegistry:
    """The usage of namespaces, as "database.collection"."""

    def __init__(self) -> None:
        self._namespaces: dict[str, NamespaceUsage] = {}
        # The time of reads, writes and commands on namespaces that are no longer tracked.
        self._earlier = (Timing(), Timing(), Timing())

    def record(self, namespace: str, latency: LatencyGroup, counter: str, micros: int) -> None:
        """Records a command on the namespace that has ended."""
        usage = self._namespaces.get(namespace)
        if usage is None:
            if len(self._namespaces) >= MAX_NAMESPACES:
                self.remove(next(iter(self._namespaces)))
            usage = NamespaceUsage()
            self._namespaces[namespace] = usage
        usage.events[_EVENT_OF_COUNTER[counter]].add(micros)
        if latency == "reads":
            usage.reads.add(micros)
        elif latency == "writes":
            usage.writes.add(micros)
        else:
            usage.commands.add(micros)

    def of(self, namespace: str) -> NamespaceUsage:
        """The usage of a namespace; all zeros if it was never used."""
        return self._namespaces.get(namespace) or NamespaceUsage()

    def remove(self, namespace: str) -> None:
        """Removes the usage of a namespace that was dropped."""
        usage = self._namespaces.pop(namespace, None)
        if usage is not None:
            for total, part in zip(self._earlier, (usage.reads, usage.writes, usage.commands), strict=True):
                total.merge(part)

    def totals(self) -> tuple[Timing, Timing, Timing]:
        """The reads, writes and commands on all namespaces since the server started, dropped ones included."""
        sums = (Timing(), Timing(), Timing())
        for earlier, total in zip(self._earlier, sums, strict=True):
            total.merge(earlier)
        for usage in self._namespaces.values():
            sums[0].merge(usage.reads)
            sums[1].merge(usage.writes)
            sums[2].merge(usage.commands)
        return sums
