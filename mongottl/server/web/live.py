"""What the page shows, as JSON texts that are made while somebody looks, and only then.

    status      every second: operations, latencies, connections, cursors, memory, request units, slow commands
    schedule    as often as its making allows: what expires when, for each collection
    history     at the beginning: the last ten minutes, second by second, which `history` keeps also while nobody looks

However many look, each text is made once. Counting what expires takes a twentieth of the time at most. A text that
cannot be made is `{"error": <why>}`, and is tried again.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from mongottl.catalog.collection import Collection
from mongottl.errors import ErrorCode, code_name
from mongottl.exec.service.service import MS_PER_S
from mongottl.exec.state.request_units import UnitsReport
from mongottl.exec.state.usage import next_bucket_micros
from mongottl.exec.write.schedule import expires
from mongottl.server.shell import Shell
from mongottl.server.web.figures import (
    CollectionFigures,
    change_streams,
    clock_offset_ms,
    is_frozen,
    measure_oplog,
    memory_bytes,
    now_s,
    oplog_window_s,
    read_collection,
    shown_collections,
    soonest,
)
from mongottl.server.web.history import INTERVAL_S, History
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.nodes import Node
from mongottl.ttl.policy import NEVER, NO_TTL

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


class Live:
    """The texts of one server. schedule: the latest, "" before the first. schedule_number, status_number: how many were
    made. news: set when there is another text to send; then a new event takes its place."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.history = History(shell.service)
        self._status = ""
        self.status_number = 0
        # How often the page has moved the clock; with the number of points of the history, what `_status` was made of.
        self._clock_changes = 0
        self._status_made_of = (-1, -1)
        self.schedule = ""
        self.schedule_number = 0
        self.viewers = 0
        # Why texts could not be made the last time, by name.
        self._failures: dict[str, str] = {}
        self._looked_at = trio.Event()
        self._outdated = trio.Event()
        self.news = trio.Event()

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
        """Makes schedules while somebody looks, and keeps the history."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._make_schedules)
            nursery.start_soon(self._keep_history)

    async def _keep_history(self) -> None:
        """Adds a point a second. With it a server that nobody uses wakes 1.2 times a second instead of 0.2 times, and
        takes 0.35 ms of CPU a second instead of 0.07, most of it trio's, to wake."""
        while True:
            await trio.sleep(self.history.wait_s())
            self.history.add_point()
            if self.viewers:
                self._wake_viewers()

    def _wake_viewers(self) -> None:
        self.news.set()
        self.news = trio.Event()

    async def _make_schedules(self) -> None:
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
            self._wake_viewers()
            took_s = clock.monotonic_s() - began_s
            with trio.move_on_after(max(INTERVAL_S, took_s / _SCHEDULE_PART)):
                await self._outdated.wait()

    def note_clock_change(self) -> None:
        """Has both texts made at once."""
        self._clock_changes += 1
        self._outdated.set()
        self._wake_viewers()

    def status(self) -> str:
        """The present status."""
        made_of = (self.history.points, self._clock_changes)
        if self._status_made_of != made_of:
            self._status_made_of = made_of
            self.status_number += 1
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

    async def all_history(self) -> str:
        """All points of the history. It lets other tasks run in between, since each budget takes a millisecond."""
        description, budgets = self.history.described()
        texts: list[str] = []
        for budget in budgets:
            texts.append(_as_json(budget))
            await trio.lowlevel.checkpoint()
        return f'{_as_json(description)[:-1]},"budgets":[{",".join(texts)}]}}'

    def _described(self) -> dict[str, object]:
        service = self._shell.service
        metrics = service.metrics
        observation = service.observation
        assert observation is not None
        cursors = service.cursors.all()
        transactions = service.transactions.statistics()
        oldest_s, newest_s = oplog_window_s(service)
        storage = service.engine.statistics()
        nodes = service.engine.nodes
        report = service.request_units.report() if service.dialect.charges_requests else None
        return {
            **self._described_time(),
            "uptimeS": int(service.clock.monotonic_s() - service.started_monotonic_s),
            "perSecond": self.history.rates,
            "point": self.history.last_point(),
            **self._latencies(),
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
            "monitorEnabled": service.expiry.is_enabled,
            "nodes": [] if nodes is None else [_node(node, nodes.number) for node in nodes.latest],
            "charges": None if report is None else _charges(report),
            "throughput": service.dialect.throughput_mode(),
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

    def _latencies(self) -> dict[str, object]:
        """`{latencies, latenciesS}`: the commands of the last minute, or since the server's start, with their times,
        those that took most in all first; and how many seconds that is.

        Times are in milliseconds, as `percentile_ms` estimates them.
        """
        before, after = self.history.latencies()
        passed_s = max(after.at_s - before.at_s, 0.001)
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
        rows = [row for _, row in sorted(found, key=_by_weight)[:_MAX_COMMANDS]]
        return {"latencies": rows, "latenciesS": passed_s}

    async def _counted(self) -> dict[str, object]:
        service = self._shell.service
        await measure_oplog(self._shell)
        all_shown = await shown_collections(self._shell)
        rows: list[dict[str, object]] = []
        shown = await soonest(service, all_shown.collections, MAX_COLLECTIONS)
        for collection in shown:
            if collection.dropped:
                continue
            begin_s = now_s(service)
            edges_s = [begin_s, *(begin_s + end for end in _BIN_ENDS)]
            figures = await read_collection(self._shell, collection, edges_s, MAX_PENDING)
            if figures is not None:
                rows.append(_row(figures))
        rows.sort(key=_due_rank)
        return {
            "collections": rows,
            "omitted": len(all_shown.collections) - len(shown),
            "omittedExpiring": max(0, all_shown.expiring - sum(expires(collection) for collection in shown)),
        }


def _node(node: Node, own: int) -> dict[str, object]:
    """A server of the store. own: the number of this one."""
    return {
        "node": node.number,
        "isOwn": node.number == own,
        "address": node.address,
        "pid": node.pid,
        "state": node.state,
        "catalogVersion": node.version,
        "sinceMs": node.since_ms,
        "leaseMs": node.lease_ms,
        "duties": node.has_duties,
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
    """The time that `percent` of operations did not exceed, in milliseconds: an estimate, as if the times in a
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
