"""What the page shows, as JSON texts that are made anew while somebody looks, and only then.

    status      every second: operations, latencies, connections, cursors, memory, request units, slow commands
    schedule    as often as its making allows: what expires when, for each collection

However many look, each text is made once. Counting what expires takes a twentieth of the time at most. A text that
cannot be made is `{"error": <why>}`, and is tried again.
"""

import json
import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, NamedTuple

import trio

from mongottl.catalog.collection import Collection
from mongottl.errors import ErrorCode, code_name
from mongottl.exec.operation.request_units import UnitsReport
from mongottl.exec.operation.service import MS_PER_S
from mongottl.exec.operation.usage import next_bucket_micros
from mongottl.exec.write.schedule import expires
from mongottl.server.shell import Shell
from mongottl.server.web.figures import (
    CollectionFigures,
    change_streams,
    clock_offset_ms,
    is_frozen,
    memory_bytes,
    now_s,
    oplog_window_s,
    read_collection,
    shown_collections,
    soonest,
)
from mongottl.storage.interface import EngineUnavailable
from mongottl.ttl.policy import NEVER, NO_TTL

# How often both texts are sent, and what the latencies and the line of operations go back to.
INTERVAL_S: Final = 1.0
KEPT_SAMPLES: Final = 61
# Of the time between two schedules, making them takes this part at most.
_SCHEDULE_PART: Final = 0.05
MAX_COLLECTIONS: Final = 200
MAX_PENDING: Final = 10_000_000
_MAX_COMMANDS: Final = 12
_MAX_CHARGES: Final = 20
_MAX_SLOW: Final = 20
_MAX_FAILURES: Final = 20
_MAX_ERRORS: Final = 3
_MICROS_PER_MS: Final = 1000

# The parts of the timeline, each with the seconds from now at which its bins end: twelve bins of 5 s, of 5 min (the
# first one without its first minute), and of 2 h (without its first hour). What is due after the last is `later`.
PARTS: Final[tuple[tuple[str, tuple[int, ...]], ...]] = (
    ("minute", tuple(range(5, 61, 5))),
    ("hour", tuple(range(300, 3601, 300))),
    ("day", tuple(range(7200, 86_401, 7200))),
)
_BIN_ENDS: Final = tuple(second for _, ends in PARTS for second in ends)


class _Sample(NamedTuple):
    """Counters at one instant. at_s: monotonic time. buckets: of the times of commands, by command."""

    at_s: float
    operations: dict[str, int]
    buckets: dict[str, dict[int, int]]


class Live:
    """The texts of one server. schedule: the latest, "" before the first; schedule_number: how many were made."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._samples: deque[_Sample] = deque(maxlen=KEPT_SAMPLES)
        self._status = ""
        # How often the page has moved the clock, and how often it had when `_status` was made.
        self.clock_changes = 0
        self._status_changes = 0
        self.schedule = ""
        self.schedule_number = 0
        self.viewers = 0
        # Why texts could not be made the last time, by name.
        self._failures: dict[str, str] = {}
        self._looked_at = trio.Event()
        self._outdated = trio.Event()
        self._made = trio.Event()

    @contextmanager
    def viewer(self) -> Iterator[None]:
        """While somebody looks."""
        self.viewers += 1
        self._looked_at.set()
        try:
            yield
        finally:
            self.viewers -= 1
            if self.viewers == 0:
                self._looked_at = trio.Event()

    async def run(self) -> None:
        """Makes schedules while somebody looks."""
        clock = self._shell.clock
        while True:
            await self._looked_at.wait()
            self._outdated = trio.Event()
            began_s = clock.monotonic_s()
            try:
                self.schedule = _as_json(await self._counted())
                self._failures.pop("schedule", None)
            except Exception as error:  # the server goes on, and the page says that it does not know
                self.schedule = self._failed("schedule", error)
            self.schedule_number += 1
            self._made.set()
            self._made = trio.Event()
            took_s = clock.monotonic_s() - began_s
            with trio.move_on_after(max(INTERVAL_S, took_s / _SCHEDULE_PART)):
                await self._outdated.wait()

    async def wait_for_schedule(self) -> None:
        """Waits until the next schedule is made."""
        await self._made.wait()

    def note_clock_change(self) -> None:
        """Has both texts made at once."""
        self.clock_changes += 1
        self._outdated.set()

    def status(self) -> str:
        """The present status."""
        at_s = self._shell.clock.monotonic_s()
        # A second, but for what a timer may come too early.
        is_due = not self._samples or at_s - self._samples[-1].at_s > 0.9 * INTERVAL_S
        if is_due:
            self._take_sample(at_s)
        if is_due or self._status_changes != self.clock_changes:
            self._status_changes = self.clock_changes
            try:
                self._status = _as_json(self._described())
                self._failures.pop("status", None)
            except Exception as error:
                self._status = self._failed("status", error)
        return self._status

    def time(self) -> str:
        """The status for those who may not see figures: the server's time, and whether it stands still."""
        return _as_json(self._described_time())

    def _described_time(self) -> dict[str, object]:
        service = self._shell.service
        return {
            "nowMs": service.clock.now_ms(),
            "frozen": is_frozen(service),
            "offsetMs": clock_offset_ms(service),
        }

    def _failed(self, name: str, error: Exception) -> str:
        """The text in place of one that could not be made. The reason is logged once, not every second."""
        is_internal = not isinstance(error, EngineUnavailable)
        why = "an internal error, of which the server's log says more" if is_internal else str(error)
        if self._failures.get(name) != why:
            self._failures[name] = why
            log = self._shell.log
            if is_internal:
                log.exception("network", "The page could not be made", error, part=name)
            else:
                log.error("storage", "The page could not be made", part=name, error=why)
        return _as_json({"error": why})

    def _take_sample(self, at_s: float) -> None:
        service = self._shell.service
        observation = service.observation
        assert observation is not None
        if self._samples and at_s - self._samples[-1].at_s > 5 * INTERVAL_S:
            self._samples.clear()  # nobody has looked meanwhile
        buckets = {name: dict(times.buckets) for name, times in observation.times.items()}
        self._samples.append(_Sample(at_s, dict(service.metrics.operations), buckets))

    def _described(self) -> dict[str, object]:
        service = self._shell.service
        metrics = service.metrics
        observation = service.observation
        assert observation is not None
        cursors = service.cursors.all()
        transactions = service.transactions.statistics()
        oldest_s, newest_s = oplog_window_s(service)
        storage = service.engine.statistics()
        report = service.request_units.report() if service.dialect.account is not None else None
        return {
            **self._described_time(),
            "uptimeS": int(service.clock.monotonic_s() - service.started_monotonic_s),
            "perSecond": self._rates(),
            "history": self._history(),
            "historyS": self._samples[-1].at_s - self._samples[0].at_s,
            "latencies": self._latencies(),
            "connections": metrics.connections_current,
            "activeConnections": len({one.op.client.connection_id for one in service.operations.all()}),
            "cursors": len(cursors),
            "changeStreams": change_streams(service),
            "transactions": transactions["currentOpen"],
            "sessions": len(service.sessions),
            "queued": metrics.queued_writers,
            "oplogWindowS": newest_s - oldest_s,
            "oplogBytes": service.oplog.size_bytes,
            "memoryBytes": memory_bytes()[0],
            "storageBytes": storage["database_bytes"],
            "logBytes": storage.get("log_bytes", 0),
            "failed": metrics.asserts_user,
            "errors": self._errors(),
            "failures": [
                {**failure._asdict(), "error": service.dialect.code_names.get(failure.code) or code_name(failure.code)}
                for failure in observation.failures()[:_MAX_FAILURES]
            ],
            "deletedDocuments": metrics.ttl_deleted_documents,
            "monitorEnabled": service.ttl_monitor_enabled,
            "charges": None if report is None else _charges(report),
            "slowMs": service.profiler.slow_ms,
            "slow": [
                {**kind.last._asdict(), "count": kind.times, "longest": kind.micros}
                for kind in observation.slow_kinds()[:_MAX_SLOW]
            ],
        }

    def _errors(self) -> list[dict[str, object]]:
        """The errors of commands by name, the most frequent ones, and before them those of the server itself."""
        service = self._shell.service
        observation = service.observation
        assert observation is not None
        names = service.dialect.code_names
        found: list[tuple[bool, int, str]] = []
        for code, count in observation.errors.items():
            found.append((code != ErrorCode.InternalError, -count, names.get(code) or code_name(code)))
        return [{"name": name, "count": -count} for _, count, name in sorted(found)[:_MAX_ERRORS]]

    def _rates(self) -> dict[str, float] | None:
        """Operations a second by kind, between the last two samples; None before there are two."""
        if len(self._samples) < 2:
            return None
        before, after = self._samples[-2], self._samples[-1]
        passed_s = after.at_s - before.at_s
        return {name: (count - before.operations[name]) / passed_s for name, count in after.operations.items()}

    def _history(self) -> list[float]:
        """All operations a second, from sample to sample."""
        found: list[float] = []
        for before, after in pairwise(self._samples):
            operations = sum(after.operations.values()) - sum(before.operations.values())
            found.append(operations / (after.at_s - before.at_s))
        return found

    def _latencies(self) -> list[dict[str, object]]:
        """The commands since the oldest sample, with their times, those that took most in all first.

        Times are in milliseconds, as `percentile_ms` estimates them.
        """
        if len(self._samples) < 2:
            return []
        before, after = self._samples[0], self._samples[-1]
        passed_s = after.at_s - before.at_s
        found: list[tuple[float, dict[str, object]]] = []
        for name, buckets in after.buckets.items():
            earlier = before.buckets.get(name, {})
            counts = {floor: count - earlier.get(floor, 0) for floor, count in sorted(buckets.items())}
            total = sum(counts.values())
            if total == 0:
                continue
            row: dict[str, object] = {"command": name, "count": total, "perSecond": total / passed_s}
            row |= {f"p{percent}": percentile_ms(counts, percent) for percent in (50, 95, 99)}
            found.append((-sum(floor * count for floor, count in counts.items()), row))
        return [row for _, row in sorted(found, key=_by_weight)[:_MAX_COMMANDS]]

    async def _counted(self) -> dict[str, object]:
        service = self._shell.service
        collections = shown_collections(service)
        rows: list[dict[str, object]] = []
        shown = await soonest(service, collections, MAX_COLLECTIONS)
        for collection in shown:
            if collection.dropped:
                continue
            begin_s = now_s(service)
            edges_s = [begin_s, *(begin_s + end for end in _BIN_ENDS)]
            figures = await read_collection(self._shell, collection, edges_s, MAX_PENDING)
            if figures is not None:
                rows.append(_row(figures))
        rows.sort(key=_due_rank)
        left_out = set(collections).difference(shown)
        return {
            "collections": rows,
            "omitted": len(left_out),
            "omittedExpiring": sum(expires(collection) for collection in left_out),
        }


def _as_json(values: dict[str, object]) -> str:
    return json.dumps(values, separators=(",", ":"))


def _row(figures: CollectionFigures) -> dict[str, object]:
    """One collection of the schedule: counts of its documents by the parts of the timeline, and their rules."""
    collection = figures.collection
    due = figures.due
    row: dict[str, object] = {
        "database": collection.database,
        "collection": collection.name,
        "documents": figures.documents,
        "sizeBytes": figures.size_bytes,
        "rules": _rules(collection),
        "purged": collection.purged_documents,
    }
    if due:
        place = 1
        for name, ends in PARTS:
            row[name] = due[place : place + len(ends)]
            place += len(ends)
        row["later"] = due[place]
        row["expired"] = due[0]
        row["pending"] = sum(due[1:])
        # Instants, in milliseconds since 1970.
        row["nextDueMs"] = None if figures.next_due_s is None else figures.next_due_s * MS_PER_S
        row["oldestDueMs"] = None if figures.first_due_s is None or not due[0] else figures.first_due_s * MS_PER_S
    return row


def _due_rank(row: dict[str, object]) -> tuple[bool, float]:
    """Puts what expires next first, before it what has expired and waits, and last what cannot expire."""
    due_ms = row.get("oldestDueMs") or row.get("nextDueMs")
    return not row["rules"], due_ms if isinstance(due_ms, int) else math.inf


def _rules(collection: Collection) -> list[dict[str, object]]:
    """By which rules the documents of a collection expire. seconds: after their last write, or after their date."""
    found: list[dict[str, object]] = []
    if collection.default_ttl_s != NO_TTL:
        default_s = collection.default_ttl_s
        found.append({"kind": "default", "seconds": None if default_s == NEVER else default_s})
    for index in collection.date_ttl_indexes:
        descriptor = index.descriptor
        found.append({"kind": "date", "field": descriptor.paths[0].dotted, "seconds": descriptor.expire_after_s})
    return found


def _charges(report: UnitsReport) -> dict[str, object]:
    rows = [row._asdict() for row in report.rows[:_MAX_CHARGES]]
    return {
        "total": report.total,
        "requests": report.requests,
        "throttled": report.throttled,
        "rows": rows,
        "omitted": len(report.rows) - len(rows),
    }


def percentile_ms(counts: dict[int, int], percent: int) -> float:
    """The time that so many percent of operations did not exceed, in milliseconds: an estimate, as if the times in a
    bucket were spread evenly over it.

    counts: by the lower bound of the histogram's buckets in microseconds, ascending; not all zero.
    """
    wanted = sum(counts.values()) * percent / 100
    total = 0
    for floor, count in counts.items():
        if count and total + count >= wanted:
            width = next_bucket_micros(floor) - floor
            return (floor + width * (wanted - total) / count) / _MICROS_PER_MS
        total += count
    raise ValueError("there are no operations")


def _by_weight(item: tuple[float, dict[str, object]]) -> float:
    return item[0]
