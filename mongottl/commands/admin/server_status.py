"""serverStatus: counters and the state of the server, in the sections that monitoring agents read.

What mongod reports of WiredTiger, tcmalloc and its lock manager has no counterpart, and is left out.

Source: MongoDB's "serverStatus" reference.
"""

import os
import sys
from typing import Annotated, Final, NamedTuple

from mongottl.build_info import is_compiled
from mongottl.catalog.namespace import SYSTEM_DATABASES
from mongottl.commands.access import on_cluster
from mongottl.commands.admin.handshake import replica_set_state
from mongottl.commands.admin.rw_concern_defaults import described_defaults
from mongottl.commands.registry import COMMANDS, Reply, command
from mongottl.commands.request import ONE, Field
from mongottl.config import VERSION
from mongottl.document.numbers import is_true
from mongottl.document.types import MISSING, Date, Int64, Value
from mongottl.document.walk import first_field_name
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.registry import RunningOperation
from mongottl.exec.state.metrics import UNKNOWN_COMMAND
from mongottl.exec.state.usage import LatencyGroup
from mongottl.exec.write.expiry import count_expired
from mongottl.storage.nodes import Node

# Fields that cannot be omitted.
_ALWAYS: Final = (*("host", "version", "process", "pid", "uptime", "uptimeMillis", "uptimeEstimate", "localTime"),)
_MB: Final = 1024 * 1024


class ServerStatusRequest(NamedTuple):
    command: Annotated[Value, Field("serverStatus", ONE)]


@command(
    "serverStatus",
    ServerStatusRequest,
    access=on_cluster("serverStatus"),
    help="Returns counters and the state of the server.",
    strict=False,
)
def server_status(op: OperationContext, request: ServerStatusRequest) -> Reply:
    """Those of mongod's sections that are supported, and `mongottl`: engine, dialect, timing wheel.

    Other fields of the command name sections: false omits a section, `mirroredReads: 1` includes that one.
    """
    if not op.service.dialect.describes_as_mongodb():
        return {}
    reply = describe_server(op)
    for name, included in op.command.extra_fields.items():
        if name not in _ALWAYS and not is_true(included):
            reply.pop(name, None)
    if is_true(op.command.extra_fields.get("mirroredReads", MISSING)):
        reply["mirroredReads"] = {"seen": Int64(0), "sent": Int64(0)}
    return reply


def describe_server(op: OperationContext) -> dict[str, Value]:
    """All sections that are included unless they are left out, with what the announced version knows of them."""
    sections = {**_process(op), **_load(op), **_storage(op), "metrics": _metrics(op), "mongottl": _own(op)}
    features = op.service.features
    if features is None:
        return sections
    known = features.known_fields("serverStatus", sections)
    for name, section in known.items():
        if isinstance(section, dict):
            known[name] = features.known_fields(f"serverStatus.{name}", section)
    return known


def _process(op: OperationContext) -> dict[str, Value]:
    service = op.service
    uptime_s = service.clock.monotonic_s() - service.started_monotonic_s
    return {
        "host": service.config.advertise_host or op.client.local,
        "version": service.config.full_version(),
        "process": _process_name(op),
        "pid": Int64(os.getpid()),
        "uptime": float(int(uptime_s)),
        "uptimeMillis": Int64(int(uptime_s * 1000)),
        "uptimeEstimate": Int64(int(uptime_s)),
        "localTime": Date(op.now_ms),
        "extra_info": _extra_info(),
        "mem": _memory(),
    }


def _process_name(op: OperationContext) -> str:
    """In the dialect `mongodb` the name by which monitoring agents know a server."""
    if op.service.config.is_sharded:
        return "mongos"
    return op.service.dialect.process_name


def _load(op: OperationContext) -> dict[str, Value]:
    """Clients, their operations, and what these cost."""
    service = op.service
    metrics = service.metrics
    running = service.operations.all()
    reads, writes, commands = metrics.usage.totals()
    return {
        "asserts": {
            "regular": 0,
            "warning": 0,
            "msg": 0,
            "user": metrics.asserts_user,
            "internal": metrics.asserts_internal,
            "tripwire": 0,
            "rollovers": 0,
        },
        "connections": {
            "current": metrics.connections_current,
            "available": service.config.max_connections - metrics.connections_current,
            "totalCreated": metrics.connections_created,
            "rejected": metrics.connections_rejected,
            "active": len({op.client.connection_id, *(one.op.client.connection_id for one in running)}),
        },
        "globalLock": {
            "totalTime": Int64(int((service.clock.monotonic_s() - service.started_monotonic_s) * 1_000_000)),
            "currentQueue": _numbers(0, metrics.queued_writers, metrics.queued_writers),
            # This command is one of them.
            "activeClients": _numbers(_count(running, "reads"), _count(running, "writes"), len(running) + 1),
        },
        "network": {
            "bytesIn": Int64(metrics.bytes_in),
            "bytesOut": Int64(metrics.bytes_out),
            "numRequests": Int64(metrics.requests),
        },
        "locks": _locks(op),
        "opLatencies": {
            "reads": {"latency": Int64(reads.micros), "ops": Int64(reads.count)},
            "writes": {"latency": Int64(writes.micros), "ops": Int64(writes.count)},
            "commands": {"latency": Int64(commands.micros), "ops": Int64(commands.count)},
        },
        "opcounters": {name: Int64(count) for name, count in metrics.operations.items()},
        # This member replicates from no other.
        "opcountersRepl": dict.fromkeys(metrics.operations, Int64(0)),
        "logicalSessionRecordCache": {"activeSessionsCount": len(service.sessions)},
        "transactions": {
            name: Int64(count)
            for name, count in (service.sessions.retries.statistics() | service.transactions.statistics()).items()
        },
    }


def _locks(op: OperationContext) -> dict[str, Value]:
    """How often operations have used what mongod locks, by mode: "r" to read and "w" to write. Each operation runs by
    itself between its steps, so there is no lock that it could wait for but that of fsync, which `R` counts."""
    counts = op.service.metrics.operations
    writes = counts["insert"] + counts["update"] + counts["delete"]
    used: dict[str, Value] = {"r": Int64(sum(counts.values()) - writes), "w": Int64(writes)}
    everywhere: dict[str, Value] = {**used, "R": Int64(op.service.fsync_locks)}
    return {
        "Global": {"acquireCount": everywhere},
        "Database": {"acquireCount": used},
        "Collection": {"acquireCount": used},
    }


def _catalog_statistics(op: OperationContext) -> dict[str, Value]:
    """Number of collections and views, by kind; those of the server itself are internal."""
    counts = dict.fromkeys(
        ("collections", "capped", "clustered", "timeseries", "views", "internalCollections", "internalViews"), 0
    )
    for collection in op.catalog.all_collections():
        op.give_way()
        if collection.database in SYSTEM_DATABASES or collection.name.startswith("system."):
            counts["internalCollections"] += 1
            continue
        counts["collections"] += collection.time_series is None
        counts["timeseries"] += collection.time_series is not None
        counts["capped"] += collection.options.capped
        counts["clustered"] += collection.options.clustered_index is not None
    for database in op.catalog.database_names():
        views = op.catalog.view_count(database)
        counts["internalViews" if database in SYSTEM_DATABASES else "views"] += views
    return dict(counts)


def _storage(op: OperationContext) -> dict[str, Value]:
    service = op.service
    return {
        "catalogStats": _catalog_statistics(op),
        "defaultRWConcern": described_defaults(op),
        **({} if service.config.is_sharded else {"repl": replica_set_state(op)}),
        "security": {
            "SSLServerHasCertificateAuthority": service.config.tls_ca is not None,
            "authentication": {
                "mechanisms": {
                    name: {
                        "authenticate": {
                            "received": Int64(logins.received),
                            "successful": Int64(logins.successful),
                        }
                    }
                    for name, logins in sorted(service.metrics.logins.items())
                }
            },
        },
        "storageEngine": {
            "name": service.engine.name,
            "supportsCommittedReads": True,
            "supportsSnapshotReadConcern": True,
            "readOnly": False,
            "persistent": service.engine.persistent,
        },
    }


def _metrics(op: OperationContext) -> dict[str, Value]:
    service = op.service
    metrics = service.metrics
    cursors = service.cursors.all()
    query_stats = service.profiler.query_stats
    commands: dict[str, Value] = {}
    for name in sorted(metrics.commands):
        commands[name] = {
            "failed": Int64(metrics.failed_commands.get(name, 0)),
            "total": Int64(metrics.commands[name]),
        }
    commands[UNKNOWN_COMMAND] = Int64(metrics.failed_commands.get(UNKNOWN_COMMAND, 0))
    return {
        "commands": commands,
        "cursor": {
            "timedOut": Int64(service.cursors.timed_out_total),
            "totalOpened": Int64(service.cursors.opened_total),
            "open": {
                "noTimeout": Int64(sum(cursor.no_timeout for cursor in cursors)),
                "pinned": Int64(sum(cursor.in_use for cursor in cursors)),
                "total": Int64(len(cursors)),
            },
        },
        "document": {name: Int64(count) for name, count in metrics.documents.items()},
        # The only member of the replica set has nobody to wait for.
        "getLastError": {"wtime": {"num": 0, "totalMillis": 0}, "wtimeouts": Int64(0)},
        "operation": {"writeConflicts": Int64(metrics.write_conflicts)},
        "queryStats": {
            "numEvicted": Int64(query_stats.evicted_total),
            "numHmacApplicationErrors": Int64(0),
            "numQueryStatsStoreWriteErrors": Int64(query_stats.refused_total),
            "numRateLimitedRequests": Int64(query_stats.rate_limited_total),
            "queryStatsStoreSizeEstimateBytes": Int64(query_stats.bytes),
        },
        "ttl": {
            "passes": Int64(metrics.ttl_passes),
            "deletedDocuments": Int64(metrics.ttl_deleted_documents),
        },
    }


def _counted(counts: tuple[int, int, int]) -> dict[str, Value]:
    used, idle, waiting = counts
    return {"used": used, "idle": idle, "waiting": waiting}


def _own(op: OperationContext) -> dict[str, Value]:
    service = op.service
    expired = count_expired(service, op.catalog.all_collections(), op.give_way)
    nodes = service.engine.nodes
    return {
        # Which of the servers with the same store this is, and all of them.
        **({} if nodes is None else {"node": nodes.number, "nodes": list(map(_node, nodes.latest))}),
        "version": VERSION,
        "compiled": is_compiled(),
        "engine": service.engine.name,
        "dialect": service.dialect.name,
        "wheel": dict(service.expiry.wheel.statistics()),
        "storage": dict(service.engine.statistics()),
        "expiredNotPurged": Int64(expired),
        # What running operations hold, the most that they held, and how often one was refused more.
        "operationMemory": {
            "bytes": Int64(service.operation_memory.held_bytes),
            "mostBytes": Int64(service.operation_memory.most_bytes),
            "refused": Int64(service.operation_memory.refused_total),
        },
        # Processes that run JavaScript, and search for regular expressions; and operations that wait for one.
        "scripts": _counted(service.processes.scripts.counts()),
        "searches": _counted(service.processes.searches.counts()),
        # What idle cursors hold in memory and in files, and how many were closed to make room.
        "cursors": {
            "bytes": Int64(service.cursors.counted_bytes),
            "fileBytes": Int64(service.cursors.counted_file_bytes),
            "closed": Int64(service.cursors.ended_total),
        },
        "incomingMessages": {
            "bytes": Int64(op.service.metrics.incoming_bytes),
            "waiting": op.service.metrics.incoming_waiting,
            "closed": Int64(op.service.metrics.incoming_closed),
        },
    }


def _node(node: Node) -> dict[str, Value]:
    """A server with the same store. expiresInMillis: when others take it for dead unless it renews its place."""
    host, _, port = node.address.rpartition(":")
    return {
        "node": node.number,
        "host": host,
        "port": int(port or 0),
        "pid": Int64(node.pid),
        "topology": node.topology,
        "state": node.state,
        "catalogVersion": Int64(node.version),
        "since": Date(node.since_ms),
        "expiresInMillis": Int64(node.lease_ms),
        "duties": node.has_duties,
    }


def _numbers(readers: int, writers: int, total: int) -> dict[str, Value]:
    return {"total": total, "readers": readers, "writers": writers}


def _count(running: list[RunningOperation], latency: LatencyGroup) -> int:
    """How many operations have commands of this group."""
    return sum(COMMANDS[first_field_name(one.body)].latency == latency for one in running)


def _extra_info() -> dict[str, Value]:
    """What the operating system counts for this process. Times are in microseconds."""
    try:
        import resource
    except ImportError:  # Windows
        return {"note": "fields vary by platform"}
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "note": "fields vary by platform",
        "user_time_us": Int64(int(used.ru_utime * 1_000_000)),
        "system_time_us": Int64(int(used.ru_stime * 1_000_000)),
        # macOS counts bytes, Linux kilobytes.
        "maximum_resident_set_kb": Int64(used.ru_maxrss // 1024 if sys.platform == "darwin" else used.ru_maxrss),
        "input_blocks": Int64(used.ru_inblock),
        "output_blocks": Int64(used.ru_oublock),
        "page_reclaims": Int64(used.ru_minflt),
        "page_faults": Int64(used.ru_majflt),
        "voluntary_context_switches": Int64(used.ru_nvcsw),
        "involuntary_context_switches": Int64(used.ru_nivcsw),
    }


def _memory() -> dict[str, Value]:
    """Memory of this process in MB; 0 where the system does not give it."""
    virtual = resident = 0
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = statm.read().split()
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        virtual, resident = int(pages[0]) * page_bytes // _MB, int(pages[1]) * page_bytes // _MB
    except OSError:
        pass
    return {"bits": 64, "resident": resident, "virtual": virtual, "supported": True}
