"""Information about the server: buildInfo, hostInfo, serverStatus, listCommands and others."""

import os
import sys
from functools import partial
from typing import Annotated, NamedTuple

from mongottl.build_info import is_compiled
from mongottl.commands.access import ANYONE, on_cluster
from mongottl.commands.crud.last_error import LAST_ERROR
from mongottl.commands.registry import COMMANDS, Reply, command
from mongottl.commands.request import ONE, Field
from mongottl.config import GIT_VERSION, SETTINGS, VERSION
from mongottl.document.bson_field import missing_field
from mongottl.document.build import encode
from mongottl.document.freeing import LongDict
from mongottl.document.types import MAX_DOCUMENT_BYTES, Date, Int64, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.query.expr.base import is_nullish
from mongottl.versions import COMMAND


class BuildInfoRequest(NamedTuple):
    command: Annotated[Value, Field("buildInfo", ONE)]


@command(
    "buildInfo",
    BuildInfoRequest,
    access=ANYONE,
    help="Returns the server's version and how it was built.",
    aliases=("buildinfo",),
    by_op_query=True,
    in_transaction=True,
    begins_transaction=False,
)
def build_info(op: OperationContext, request: BuildInfoRequest) -> Reply:
    version = op.service.config.full_version()
    numbers: list[Value] = [*map(int, version.split(".")), 0]
    if op.service.dialect.brief_build_info:
        return {
            "version": version,
            "versionArray": numbers,
            "bits": 64,
            "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
        }
    return {
        "version": version,
        "gitVersion": GIT_VERSION,
        "modules": [],
        "allocator": "system",
        "javascriptEngine": "none" if op.service.processes.scripts.why_none() else "quickjs",
        "sysInfo": "deprecated",
        "versionArray": numbers,
        "openssl": {"running": "disabled", "compiled": "disabled"},
        "buildEnvironment": {
            "target_arch": os.uname().machine if hasattr(os, "uname") else "",
            "target_os": sys.platform,
        },
        "bits": 64,
        "debug": False,
        "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
        "storageEngines": [op.service.engine.name],
        "mongottl": {"version": VERSION, "compiled": is_compiled()},
    }


class HostInfoRequest(NamedTuple):
    command: Annotated[Value, Field("hostInfo", ONE)]


@command(
    "hostInfo", HostInfoRequest, access=on_cluster("hostInfo"), help="Describes the machine on which the server runs."
)
def host_info(op: OperationContext, request: HostInfoRequest) -> Reply:
    import platform

    cores = os.cpu_count() or 1
    return {
        "system": {
            "currentTime": Date(op.now_ms),
            "hostname": platform.node(),
            "cpuAddrSize": 64,
            "memSizeMB": Int64(_memory_mb()),
            "memLimitMB": Int64(_memory_mb()),
            "numCores": cores,
            "numCoresAvailableToProcess": cores,
            "numPhysicalCores": cores,
            "numCpuSockets": 1,
            "numNumaNodes": 1,
            "cpuArch": platform.machine(),
            "numaEnabled": False,
        },
        "os": {"type": platform.system(), "name": platform.platform(), "version": platform.release()},
        "extra": {
            "versionString": platform.version(),
            "libcVersion": platform.libc_ver()[1],
            "kernelVersion": platform.release(),
            "pageSize": Int64(_system_value("SC_PAGE_SIZE")),
            "numPages": Int64(_system_value("SC_PHYS_PAGES")),
            "maxOpenFiles": Int64(_system_value("SC_OPEN_MAX")),
            "pythonVersion": platform.python_version(),
        },
    }


def _system_value(name: str) -> int:
    """A value of POSIX `sysconf`; 0 if not available."""
    try:
        return os.sysconf(name)
    except (AttributeError, ValueError, OSError):
        return 0


def _memory_mb() -> int:
    return _system_value("SC_PAGE_SIZE") * _system_value("SC_PHYS_PAGES") // (1024 * 1024)


class GetCmdLineOptsRequest(NamedTuple):
    command: Annotated[Value, Field("getCmdLineOpts", ONE)]


@command(
    "getCmdLineOpts",
    GetCmdLineOptsRequest,
    access=on_cluster("getCmdLineOpts"),
    help="Returns the settings with which the server was started.",
    admin_only=True,
)
def get_cmd_line_opts(op: OperationContext, request: GetCmdLineOptsRequest) -> Reply:
    config = op.service.config
    argv: list[Value] = ["mongottl"]
    for setting in SETTINGS:
        value = getattr(config, setting.field) if setting.on_command_line else None
        if value is True:
            argv.append(setting.option)
        elif value is not None and value is not False:
            argv.extend([setting.option, config.store_shown() if setting.field == "store" else str(value)])
    parsed: dict[str, Value] = {
        "net": {"bindIp": config.host, "port": config.port},
        "replication": {"replSet": config.replica_set},
        "storage": {"dbPath": config.data_dir or config.store_shown() or ":memory:"},
    }
    if config.auth:
        parsed["security"] = {"authorization": "enabled"}
    if config.enable_test_commands:
        parsed["setParameter"] = {"enableTestCommands": "1"}
        argv.extend(["--setParameter", "enableTestCommands=1"])
    return {"argv": argv, "parsed": parsed}


class GetLogRequest(NamedTuple):
    command: Annotated[Value, Field("getLog", ONE)]


@command(
    "getLog",
    GetLogRequest,
    access=on_cluster("getLog"),
    help="Returns the latest log lines ('global') or the start-up warnings.",
    admin_only=True,
)
def get_log(op: OperationContext, request: GetLogRequest) -> Reply:
    if is_nullish(request.command):
        raise missing_field("getLog.getLog")
    if request.command == "*":
        return {"names": ["global", "startupWarnings"]}
    if not isinstance(request.command, str):
        raise CommandError(ErrorCode.TypeMismatch, "Argument to getLog must be of type String")
    lines = op.service.hooks.log_lines(request.command)
    if lines is None:
        raise CommandError(ErrorCode.OperationFailed, f"No log named '{request.command}'")
    return {"totalLinesWritten": len(lines), "log": list(lines)}


class ListCommandsRequest(NamedTuple):
    command: Annotated[Value, Field("listCommands", ONE)]


@command("listCommands", ListCommandsRequest, access=ANYONE, help="Lists the commands of this server.", strict=False)
def list_commands(op: OperationContext, request: ListCommandsRequest) -> Reply:
    """Modules of commands that were not needed yet are imported in steps: anybody may ask for the list, also before a
    login, and all of them together take a tenth of a second."""
    features = op.service.features
    described: dict[str, Value] = {}
    for name in sorted(COMMANDS):
        if not COMMANDS.is_imported(name):
            op.give_way()
        spec = COMMANDS[name]
        if features is not None and features.lacks(COMMAND, name):
            continue
        if name == LAST_ERROR and not op.service.dialect.has_last_errors:
            continue
        if name == spec.name and (not spec.test_only or op.service.config.enable_test_commands):
            described[name] = {
                "help": spec.help,
                "requiresAuth": False,
                "secondaryOk": not spec.writes,
                "adminOnly": spec.admin_only,
                "apiVersions": ["1"] if spec.stable else [],
                "deprecatedApiVersions": [],
            }
    return {"commands": described}


class ConnPoolStatsRequest(NamedTuple):
    command: Annotated[Value, Field("connPoolStats", ONE)]


@command(
    "connPoolStats",
    ConnPoolStatsRequest,
    access=on_cluster("connPoolStats"),
    help="Returns statistics of connections to other servers; this server has none.",
    strict=False,
)
def conn_pool_stats(op: OperationContext, request: ConnPoolStatsRequest) -> Reply:
    return {
        "numClientConnections": 0,
        "numAScopedConnections": 0,
        "totalInUse": 0,
        "totalAvailable": 0,
        "totalLeased": 0,
        "totalCreated": 0,
        "totalRefreshing": 0,
        "replicaSetMatchingStrategy": "disabled",
        "pools": {},
        "hosts": {},
        "replicaSets": {},
    }


class LockInfoRequest(NamedTuple):
    command: Annotated[Value, Field("lockInfo", ONE)]


@command(
    "lockInfo",
    LockInfoRequest,
    access=on_cluster("serverStatus"),
    help="Lists the locks that are held: by fsync, and on collections that are copied.",
    admin_only=True,
)
def lock_info(op: OperationContext, request: LockInfoRequest) -> Reply:
    """`{lockInfo: [{resourceId, granted: [{mode, …}], pending: []}]}`. Other commands hold no locks: they run in steps,
    one at a time."""
    service = op.service
    locks: list[Value] = []
    if service.fsync_locks:
        locks.append(_described_lock("Global", "", "S", service.fsync_locks))
    locks += [_described_lock("Collection", namespace, "X", 1) for namespace in sorted(service.exclusive)]
    return {"lockInfo": locks}


def _described_lock(resource: str, name: str, mode: str, holders: int) -> dict[str, Value]:
    """A lock as lockInfo lists it. name: of the collection, "" for the lock on everything."""
    granted: list[Value] = [
        {"mode": mode, "convertMode": "NONE", "enqueueAtFront": False, "compatibleFirst": False} for _ in range(holders)
    ]
    return {"resourceId": f"{{{resource}, {name or 1}}}", "granted": granted, "pending": []}


class TopRequest(NamedTuple):
    command: Annotated[Value, Field("top", ONE)]


@command(
    "top",
    TopRequest,
    access=on_cluster("top"),
    help="Returns how often each collection is used, and for how long.",
    admin_only=True,
    strict=False,
)
def top(op: OperationContext, request: TopRequest) -> Reply:
    """`{totals: {note, "db.collection": {total: {time, count}, readLock, writeLock, queries, getmore, …}}}`.

    time: in microseconds, since the server started or the collection was created.
    """
    registry = op.service.metrics.usage
    totals: dict[str, Value] = LongDict({"note": "all times in microseconds"})
    for database in [*op.catalog.database_names()]:
        for place in op.compute(partial(op.catalog.places, database)):
            op.give_way()
            usage = registry.of(place.namespace)
            timings = {
                "total": usage.all_events(),
                "readLock": usage.read_events(),
                "writeLock": usage.write_events(),
                **usage.events,
            }
            totals[place.namespace] = encode(
                {
                    event: {"time": Int64(timing.micros), "count": Int64(timing.count)}
                    for event, timing in timings.items()
                }
            )
    return {"totals": totals}
