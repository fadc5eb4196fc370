"""`/metrics`: what the server knows, in Prometheus's text format or OpenMetrics, by the library prometheus_client.

A scrape reads all values in the server's loop, collection by collection, and then makes the text in another thread, so
that no command waits for it. Nothing is kept from one scrape to the next.
"""

from collections.abc import Iterable
from typing import Final

import trio
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    UntypedMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from mongottl.build_info import is_compiled
from mongottl.config import VERSION
from mongottl.errors import code_name
from mongottl.exec.service.service import MS_PER_S, ServiceContext
from mongottl.exec.state.usage import Latency
from mongottl.server.shell import Shell
from mongottl.server.web import metric_table as table
from mongottl.server.web.figures import (
    CollectionFigures,
    change_streams,
    clock_offset_ms,
    is_frozen,
    lag_s,
    measure_oplog,
    memory_bytes,
    now_s,
    oplog_window_s,
    read_collection,
    shown_collections,
)
from mongottl.storage.nodes import CURRENT, NODE_STATES

# Collections in one scrape: each has some ten lines.
MAX_COLLECTIONS: Final = 500
MAX_PENDING: Final = 1_000_000
# Pairs of command and namespace whose request units have a series of their own.
_MAX_CHARGES: Final = 500
_MICROS_PER_S: Final = 1_000_000
_MB: Final = 1 << 20
# The bounds of histograms, in microseconds: 64 µs to 16.8 s.
_BOUNDS_MICROS: Final = tuple(1 << power for power in range(6, 25))
_TYPES: Final = {
    table.GAUGE: GaugeMetricFamily,
    table.COUNTER: CounterMetricFamily,
    table.UNTYPED: UntypedMetricFamily,
}


async def exposition(shell: Shell, accept: str) -> tuple[bytes, str]:
    """The metrics, and their content type. accept: the header of the request, which chooses the format."""
    snapshot = Snapshot()
    await _read_collections(shell, snapshot)
    await measure_oplog(shell)
    _read_server(shell, snapshot)
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(snapshot)
    ProcessCollector(registry=registry)
    return await trio.to_thread.run_sync(encode, registry), content_type


class Snapshot(Collector):
    """The values of one scrape, by the rows of the table."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def collect(self) -> Iterable[Metric]:
        return self._families.values()

    def add(self, name: str, value: float, *labels: str) -> None:
        """Adds a value of the metric of this name, with the values of its labels."""
        family = self._families.get(name)
        if family is None:
            row = table.BY_NAME[name]
            family = _TYPES[row.kind](name, row.help, labels=row.labels)
            self._families[name] = family
        assert isinstance(family, (GaugeMetricFamily, CounterMetricFamily, UntypedMetricFamily))
        family.add_metric(labels, value)

    def add_info(self, name: str, values: dict[str, str]) -> None:
        row = table.BY_NAME[name]
        self._families[name] = InfoMetricFamily(name, row.help, value=values)

    def add_histogram(self, name: str, times: Latency, *labels: str) -> None:
        family = self._families.get(name)
        if family is None:
            row = table.BY_NAME[name]
            family = HistogramMetricFamily(name, row.help, labels=row.labels)
            self._families[name] = family
        assert isinstance(family, HistogramMetricFamily)
        buckets = [(f"{bound / _MICROS_PER_S:g}", float(count)) for bound, count in _cumulated(times)]
        family.add_metric(labels, [*buckets, ("+Inf", float(times.count))], times.micros / _MICROS_PER_S)


def _cumulated(times: Latency) -> list[tuple[int, int]]:
    """The bounds of a histogram with how many operations took less time."""
    counts = sorted(times.buckets.items())
    found: list[tuple[int, int]] = []
    total = place = 0
    for bound in _BOUNDS_MICROS:
        while place < len(counts) and counts[place][0] < bound:
            total += counts[place][1]
            place += 1
        found.append((bound, total))
    return found


async def _read_collections(shell: Shell, snapshot: Snapshot) -> None:
    service = shell.service
    collections = (await shown_collections(shell)).collections
    snapshot.add("mongottl_collections_omitted", max(0, len(collections) - MAX_COLLECTIONS))
    databases: dict[str, list[int]] = {}
    first_due: list[int] = []
    for number, collection in enumerate(collections):
        if collection.dropped:
            continue
        is_shown = number < MAX_COLLECTIONS
        figures = await read_collection(shell, collection, [now_s(service)] if is_shown else [], MAX_PENDING)
        if figures is None:
            continue
        if is_shown:
            _add_collection(snapshot, figures)
        else:
            await trio.lowlevel.checkpoint()
        if figures.first_due_s is not None:
            first_due.append(figures.first_due_s)
        sums = databases.setdefault(collection.database, [0, 0, 0, 0])
        for place, value in enumerate((1, figures.documents, figures.size_bytes, figures.indexes)):
            sums[place] += value
    for database, sums in sorted(databases.items()):
        snapshot.add("mongodb_dbstats_collections", sums[0], database)
        snapshot.add("mongodb_dbstats_objects", sums[1], database)
        snapshot.add("mongodb_dbstats_dataSize", sums[2], database)
        snapshot.add("mongodb_dbstats_indexes", sums[3], database)
    snapshot.add("mongottl_ttl_lag_seconds", lag_s(service, min(first_due, default=None)))


def _add_collection(snapshot: Snapshot, figures: CollectionFigures) -> None:
    place = (figures.collection.database, figures.collection.name)
    snapshot.add("mongodb_collstats_storageStats_count", figures.documents, *place)
    snapshot.add("mongodb_collstats_storageStats_size", figures.size_bytes, *place)
    snapshot.add("mongodb_collstats_storageStats_nindexes", figures.indexes, *place)
    if figures.due:
        snapshot.add("mongottl_ttl_expired_documents", figures.due[0], *place)
        snapshot.add("mongottl_ttl_pending_documents", sum(figures.due[1:]), *place)
        snapshot.add("mongottl_ttl_purged_documents", figures.collection.purged_documents, *place)
    if figures.next_due_s is not None:
        snapshot.add("mongottl_ttl_next_due_timestamp_seconds", figures.next_due_s, *place)


def _read_server(shell: Shell, snapshot: Snapshot) -> None:
    """Everything but the collections; it takes no time that grows with the data."""
    service = shell.service
    config = service.config
    add = snapshot.add
    add("mongodb_up", 1)
    add("mongodb_ss_uptime", int(service.clock.monotonic_s() - service.started_monotonic_s))
    snapshot.add_info(
        "mongottl_build",
        {
            "version": VERSION,
            "server_version": config.announced_version(),
            "engine": service.engine.name,
            "dialect": service.dialect.name,
            "compiled": str(is_compiled()).lower(),
        },
    )
    _add_nodes(service, snapshot)
    _add_load(shell, snapshot)
    _add_cursors(shell, snapshot)
    _add_commands(shell, snapshot)
    resident, virtual = memory_bytes()
    add("mongodb_ss_mem_resident", resident // _MB)
    add("mongodb_ss_mem_virtual", virtual // _MB)
    oldest_s, newest_s = oplog_window_s(service)
    add("mongodb_mongod_replset_oplog_head_timestamp", newest_s)
    add("mongodb_mongod_replset_oplog_tail_timestamp", oldest_s)
    add("mongodb_oplog_stats_count", service.oplog.count)
    add("mongodb_oplog_stats_size", service.oplog.size_bytes)
    add("mongodb_oplog_stats_maxSize", config.oplog_size_mb * _MB)
    add("mongodb_ss_metrics_ttl_deletedDocuments", service.metrics.ttl_deleted_documents)
    add("mongodb_ss_metrics_ttl_passes", service.metrics.ttl_passes)
    add("mongottl_ttl_monitor_enabled", service.expiry.is_enabled)
    entries = service.expiry.wheel.statistics()["entries"]
    assert isinstance(entries, int)
    add("mongottl_ttl_wheel_entries", entries)
    storage = service.engine.statistics()
    add("mongottl_commits", storage["commits"])
    add("mongottl_storage_size_bytes", storage["database_bytes"])
    add("mongottl_storage_log_size_bytes", storage.get("log_bytes", 0))
    snapshot.add_histogram("mongottl_fsync_duration_seconds", shell.durability.flush_times)
    add("mongottl_clock_offset_seconds", clock_offset_ms(service) / MS_PER_S)
    add("mongottl_clock_frozen", is_frozen(service))


def _add_nodes(service: ServiceContext, snapshot: Snapshot) -> None:
    """The servers of the store, of which this one is one; without a store it is the only one."""
    nodes = service.engine.nodes
    seen = [] if nodes is None else nodes.latest
    number = 0 if nodes is None else nodes.number
    address = next((node.address for node in seen if node.number == number), "")
    snapshot.add_info("mongottl_node", {"node": str(number), "address": address})
    states = [node.state for node in seen] or [CURRENT]
    for state in NODE_STATES:
        snapshot.add("mongottl_nodes", states.count(state), state)


def _add_load(shell: Shell, snapshot: Snapshot) -> None:
    """Operations, connections and what they cost."""
    service = shell.service
    metrics = service.metrics
    for name, count in metrics.operations.items():
        snapshot.add("mongodb_ss_opcounters", count, name)
    for name, timing in zip(("reads", "writes", "commands"), metrics.usage.totals(), strict=True):
        snapshot.add("mongodb_ss_opLatencies_latency", timing.micros, name)
        snapshot.add("mongodb_ss_opLatencies_ops", timing.count, name)
    connections = {
        "current": metrics.connections_current,
        "available": service.config.max_connections - metrics.connections_current,
        "totalCreated": metrics.connections_created,
        "rejected": metrics.connections_rejected,
        "active": len({one.op.client.connection_id for one in service.operations.all()}),
    }
    for name, count in connections.items():
        snapshot.add("mongodb_ss_connections", count, name)
    snapshot.add("mongodb_ss_network_bytesIn", metrics.bytes_in)
    snapshot.add("mongodb_ss_network_bytesOut", metrics.bytes_out)
    snapshot.add("mongodb_ss_network_numRequests", metrics.requests)
    snapshot.add("mongodb_ss_asserts", metrics.asserts_user, "user")
    snapshot.add("mongodb_ss_asserts", metrics.asserts_internal, "internal")
    for name, count in metrics.documents.items():
        snapshot.add("mongodb_ss_metrics_document", count, name)
    snapshot.add("mongodb_ss_metrics_operation_writeConflicts", metrics.write_conflicts)
    snapshot.add("mongodb_ss_globalLock_currentQueue", metrics.queued_writers, "writers")
    snapshot.add("mongodb_ss_globalLock_currentQueue", metrics.queued_writers, "total")


def _add_cursors(shell: Shell, snapshot: Snapshot) -> None:
    """Cursors, sessions and transactions."""
    service = shell.service
    cursors = service.cursors.all()
    snapshot.add("mongodb_ss_metrics_cursor_open", len(cursors), "total")
    snapshot.add("mongodb_ss_metrics_cursor_open", sum(cursor.in_use for cursor in cursors), "pinned")
    snapshot.add("mongodb_ss_metrics_cursor_open", sum(cursor.no_timeout for cursor in cursors), "noTimeout")
    snapshot.add("mongodb_ss_metrics_cursor_timedOut", service.cursors.timed_out_total)
    snapshot.add("mongodb_ss_metrics_cursor_totalOpened", service.cursors.opened_total)
    snapshot.add("mongottl_change_streams", change_streams(service))
    snapshot.add("mongodb_ss_logicalSessionRecordCache_activeSessionsCount", len(service.sessions))
    counts = service.sessions.retries.statistics() | service.transactions.statistics()
    for name, count in counts.items():
        if f"mongodb_ss_transactions_{name}" in table.BY_NAME:
            snapshot.add(f"mongodb_ss_transactions_{name}", count)


def _add_commands(shell: Shell, snapshot: Snapshot) -> None:
    """Times, errors and charges of commands."""
    service = shell.service
    observation = service.observation
    assert observation is not None
    for name, times in sorted(observation.times.items()):
        snapshot.add_histogram("mongottl_command_duration_seconds", times, name)
    for metric, counts in (
        ("mongottl_command_errors", observation.errors),
        ("mongottl_statement_errors", observation.statement_errors),
    ):
        for code, count in sorted(counts.items()):
            snapshot.add(metric, count, str(code), code_name(code))
    snapshot.add("mongottl_slow_threshold_seconds", service.profiler.slow_micros / _MICROS_PER_S)
    for row in service.request_units.report().rows[:_MAX_CHARGES]:
        database, _, collection = row.namespace.partition(".")
        snapshot.add("mongottl_request_units", row.charge, row.command, database, collection)
        if row.throttled:
            snapshot.add("mongottl_throttled_statements", row.throttled, row.command, database, collection)
