"""The parts of a measurement: CPU time and memory of a process from /proc, percentiles, ratios, and `Result`.

Linux only: the CPU clock of another process and VmHWM are read from the kernel. It depends on no workload or server.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that at least `percent` per cent of them do not exceed (nearest rank).

    percent: above 0, at most 100. ValueError without values.
    """
    if not values:
        raise ValueError("a percentile of no values")
    if not 0 < percent <= 100:
        raise ValueError(f"{percent} is not a percentage above 0")
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of second / first over interleaved pairs, so that a slow change of the machine's speed cancels out."""
    return statistics.median(second / first for first, second in pairs)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """The quotient; None if either is unknown, or if the denominator is 0."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def process_tree(pid: int) -> list[int]:
    """The process and its living descendants. Empty when it is gone."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat_fields(int(entry.name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    if not Path(f"/proc/{pid}").exists():
        return []
    tree = [pid]
    for parent in tree:
        tree.extend(children.get(parent, []))
    return tree


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on; the second, the name, may itself hold blanks."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, its threads (dead ones too) and its descendants.

    From the process's own CPU clock, because utime and stime in /proc count in steps of 10 ms. Its id is made as
    clock_getcpuclockid(3) makes it on Linux.
    """
    total = 0.0
    for member in process_tree(pid):
        fields = _stat_fields(member)
        if fields is None:
            continue
        reaped_children = (int(fields[13]) + int(fields[14])) / _TICKS_PER_S
        try:
            own = time.clock_gettime((~member << 3) | 2)
        except OSError:
            own = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        total += own + reaped_children
    return total


def memory_bytes(pid: int, what: str) -> int:
    """Sum over the process tree of a size of /proc/PID/status: "VmRSS" (resident now) or "VmHWM" (its peak)."""
    total = 0
    for member in process_tree(pid):
        try:
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(what + ":"):
                total += int(line.split()[1]) * 1024
    return total


def reset_peak(pid: int) -> None:
    """Makes VmHWM start again from what is resident now. Not permitted for another user's process: then it stays."""
    for member in process_tree(pid):
        try:
            Path(f"/proc/{member}/clear_refs").write_text("5")
        except OSError:
            continue


@dataclass(frozen=True)
class Reading:
    """The figures of one interval: elapsed and CPU times in seconds, peak memory in bytes; None if unknown.

    server_cpu_s: with that of the database which keeps the server's data. database_cpu_s: that alone; None without one.
    """

    elapsed_s: float
    server_cpu_s: float | None
    client_cpu_s: float
    peak_bytes: int | None
    database_cpu_s: float | None = None


class Meter:
    """Reads the clocks of the server (None: its process is unknown) and of this process, the client.

    database_pid: of a database that keeps the server's data, None if there is none.
    """

    def __init__(self, pid: int | None, database_pid: int | None = None) -> None:
        self._pid = pid
        self._database_pid = database_pid
        self._server_cpu_s = 0.0
        self._database_cpu_s = 0.0
        self._client_cpu_s = 0.0
        self._started_s = 0.0

    def start(self) -> None:
        if self._pid is not None:
            reset_peak(self._pid)
            self._server_cpu_s = cpu_seconds(self._pid)
        if self._database_pid is not None:
            self._database_cpu_s = cpu_seconds(self._database_pid)
        self._client_cpu_s = time.process_time()
        self._started_s = time.perf_counter()

    def elapsed_ns(self) -> int:
        """Nanoseconds since `start`."""
        return int((time.perf_counter() - self._started_s) * 1e9)

    def stop(self) -> Reading:
        elapsed_s = time.perf_counter() - self._started_s
        client_cpu_s = time.process_time() - self._client_cpu_s
        if self._pid is None:
            return Reading(elapsed_s, None, client_cpu_s, None)
        server_cpu_s = cpu_seconds(self._pid) - self._server_cpu_s
        database_cpu_s: float | None = None
        if self._database_pid is not None:
            database_cpu_s = cpu_seconds(self._database_pid) - self._database_cpu_s
            server_cpu_s += database_cpu_s
        return Reading(elapsed_s, server_cpu_s, client_cpu_s, memory_bytes(self._pid, "VmHWM"), database_cpu_s)


@dataclass(frozen=True)
class Result:
    """One workload on one server. Figures that make no sense for a workload are None.

    unit: what `per_s` and `cpu_us` count: "op" or "doc".
    cpu_us: server CPU per unit, in microseconds, with that of a database that keeps its data. p50_ms, p99_ms: of whole
        commands, as the client saw them.
    client_share: CPU the client used per second of the run; near 1 the client may be the bottleneck, and `per_s` says
        less about the server than `cpu_us` does.
    extra: figures of this workload alone, by name with unit.
    problem: why there are no figures ("skipped: ..." or "failed: ...").
    """

    workload: str
    target: str
    unit: str = "op"
    per_s: float | None = None
    cpu_us: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    peak_mb: float | None = None
    client_share: float | None = None
    extra: dict[str, float] = field(default_factory=dict)
    problem: str | None = None

    def figure(self, name: str) -> float | None:
        """A figure by its name, or by that of an extra one. `units_per_cpu_s` is 1,000,000 / `cpu_us`."""
        if name == "units_per_cpu_s":
            return 1e6 / self.cpu_us if self.cpu_us else None
        if name in self.extra:
            return self.extra[name]
        value: float | None = getattr(self, name, None)
        return value


def median_result(runs: Sequence[Result]) -> Result:
    """One result for several runs of one workload on one server: the median of each figure that every run has.

    If a run failed or was skipped, the result is that run. ValueError without runs.
    """
    if not runs:
        raise ValueError("a median of no runs")
    for run in runs:
        if run.problem:
            return run

    def median(name: str) -> float | None:
        values = [value for run in runs if (value := run.figure(name)) is not None]
        return statistics.median(values) if len(values) == len(runs) else None

    shared = [name for name in runs[0].extra if all(name in run.extra for run in runs)]
    extra = {name: statistics.median(run.extra[name] for run in runs) for name in shared}
    return replace(
        runs[0],
        per_s=median("per_s"),
        cpu_us=median("cpu_us"),
        p50_ms=median("p50_ms"),
        p99_ms=median("p99_ms"),
        peak_mb=median("peak_mb"),
        client_share=median("client_share"),
        extra=extra,
    )
