"""The process itself: its start-up time, and its CPU and memory when idle."""

from __future__ import annotations

import resource
import statistics
import time
from contextlib import ExitStack

from bench.load import Connection
from bench.measure import Result, cpu_seconds, memory_bytes
from bench.targets import Target
from bench.workloads.registry import Context, Goal, workload

_STARTS = 9
_SETTLE_S = 1.0
_IDLE_CONNECTIONS = 1000
_IDLE_S = 5.0


def _resident_mb(target: Target) -> float:
    assert target.pid is not None
    return memory_bytes(target.pid, "VmRSS") / 1e6


@workload(
    "startup",
    "from starting the process to its first answered ping (median of 9), and memory one second later",
    needs_socket=True,
    owns_process=True,
    goals=(Goal("p50_ms", 250), Goal("idle_mb", 45)),
)
def startup(ctx: Context) -> Result:
    times_ms: list[float] = []
    cpu_ms: list[float] = []
    resident_mb: list[float] = []
    for attempt in range(_STARTS):
        started_s = time.perf_counter()
        with ctx.launcher.start() as target:
            times_ms.append((time.perf_counter() - started_s) * 1e3)
            assert target.pid is not None
            cpu_ms.append(cpu_seconds(target.pid) * 1e3)
            if attempt < 3:  # Memory differs little between starts, and each measurement takes a second.
                time.sleep(_SETTLE_S)
                resident_mb.append(_resident_mb(target))
    return Result(
        "startup",
        ctx.launcher.name,
        p50_ms=statistics.median(times_ms),
        p99_ms=max(times_ms),
        extra={"idle_mb": statistics.median(resident_mb), "cpu_ms": statistics.median(cpu_ms)},
    )


@workload(
    "idle-1000",
    "1,000 idle connections: CPU used over 5 seconds, and memory",
    needs_socket=True,
    goals=(Goal("cpu_ms_per_s", 1),),
)
def idle_1000(ctx: Context) -> Result:
    allow_open_files(_IDLE_CONNECTIONS + 200)
    with ExitStack() as stack:
        for _ in range(_IDLE_CONNECTIONS):
            connection = stack.enter_context(Connection(ctx.target.address()))
            connection.command({"ping": 1, "$db": "admin"})
        time.sleep(_SETTLE_S)
        meter = ctx.meter()
        meter.start()
        time.sleep(_IDLE_S)
        used = meter.stop()
    extra: dict[str, float] = {}
    if used.server_cpu_s is not None:
        extra["cpu_ms_per_s"] = used.server_cpu_s / used.elapsed_s * 1e3
    return Result(
        "idle-1000",
        ctx.target.name,
        peak_mb=None if used.peak_bytes is None else used.peak_bytes / 1e6,
        extra=extra,
    )


def allow_open_files(count: int) -> None:
    """Raises this process's limit of open files, as far as its hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
