"""The declaration of workloads, and the context that each gets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.load import Check, LoadPool, Request
from bench.measure import Meter, Reading, Result, percentile
from bench.targets import Launcher, Target

_WARM_UP_SHARE = 0.3
_LEAST_OPERATIONS = 3
_MOST_SLOW_S = 60.0


@dataclass(frozen=True)
class Context:
    """launcher, running: the kind of server, and the one that runs; None for a workload that owns its process.

    seconds: how long to measure. scale: factor on numbers of documents. scratch: a folder that is deleted afterwards.
    """

    launcher: Launcher
    running: Target | None
    seconds: float
    scale: float
    scratch: Path

    @property
    def target(self) -> Target:
        if self.running is None:
            raise ValueError("a workload that owns its process has no other one to use")
        return self.running

    def scaled(self, count: int, least: int = 100) -> int:
        return max(least, round(count * self.scale))

    @property
    def warm_up_s(self) -> float:
        """Long enough to fill caches; a peer that compiles at run time needs longer runs (`--seconds`)."""
        return self.seconds * _WARM_UP_SHARE

    def meter(self) -> Meter:
        return Meter(self.target.pid, self.target.database_pid)

    def run_load(
        self, name: str, connections: int, request: Request, check: Check, unit: str = "op", per: int = 1
    ) -> Result:
        """Warms up, then measures, many connections in a closed loop. per: units (documents) in each command."""
        meter = self.meter()
        with LoadPool(self.target.address(), connections) as pool:
            pool.run(request, check, seconds=self.warm_up_s)
            meter.start()
            reading = pool.run(request, check, seconds=self.seconds)
            used = meter.stop()
        return self.result(name, used, reading.commands * per, list(reading.latencies_ns), unit)

    def run_calls(self, name: str, call: Callable[[], int], unit: str = "op") -> Result:
        """Warms up, then measures, one caller. call: does one command, returns how many units it was.

        At least three commands are measured, unless they take more than a minute.
        """
        warm_until_s = time.perf_counter() + self.warm_up_s
        while True:
            call()
            if time.perf_counter() >= warm_until_s:
                break
        meter = self.meter()
        latencies_ns: list[int] = []
        units = 0
        meter.start()
        started_s = time.perf_counter()
        while True:
            before_ns = time.perf_counter_ns()
            units += call()
            latencies_ns.append(time.perf_counter_ns() - before_ns)
            elapsed_s = time.perf_counter() - started_s
            if elapsed_s > _MOST_SLOW_S or (elapsed_s > self.seconds and len(latencies_ns) >= _LEAST_OPERATIONS):
                break
        return self.result(name, meter.stop(), units, latencies_ns, unit)

    def result(
        self,
        name: str,
        used: Reading,
        units: int,
        latencies_ns: list[int],
        unit: str = "op",
        extra: dict[str, float] | None = None,
    ) -> Result:
        figures = dict(extra or {})
        if used.database_cpu_s is not None:
            figures["postgresql_cpu_us"] = used.database_cpu_s / units * 1e6
        return Result(
            workload=name,
            target=self.launcher.name,
            unit=unit,
            per_s=units / used.elapsed_s,
            cpu_us=None if used.server_cpu_s is None else used.server_cpu_s / units * 1e6,
            p50_ms=percentile(latencies_ns, 50) / 1e6,
            p99_ms=percentile(latencies_ns, 99) / 1e6,
            peak_mb=None if used.peak_bytes is None else used.peak_bytes / 1e6,
            client_share=used.client_cpu_s / used.elapsed_s if self.launcher.listens else None,
            extra=figures,
        )


@dataclass(frozen=True)
class Goal:
    """The project's own target for a figure (a name of `Result.figure`)."""

    figure: str
    limit: float
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{self.figure} {'≥' if self.at_least else '≤'} {self.limit:,.10g}"


Run = Callable[[Context], Result]
Load = Callable[[Context], None]


@dataclass(frozen=True)
class Workload:
    """fixture: fills the server; workloads with the same one run on the same server, in the order of their declaration.

    needs_socket: not for a library. needs_ttl: only where mongottl's TTL and clock are. owns_process: starts servers of
    its own, so not for one that runs already. durable: the server keeps its documents in files. needs_postgresql: only
    where PostgreSQL keeps mongottl's data. goals: from the project's own targets; store_goals: those on PostgreSQL.
    """

    name: str
    help: str
    run: Run
    fixture: Load | None = None
    needs_socket: bool = False
    needs_ttl: bool = False
    owns_process: bool = False
    durable: bool = False
    needs_postgresql: bool = False
    goals: tuple[Goal, ...] = field(default=())
    store_goals: tuple[Goal, ...] = field(default=())

    def unfit_reason(self, launcher: Launcher) -> str | None:
        """Why this server cannot run it, or None."""
        if self.needs_socket and not launcher.listens:
            return "no server: it runs in the client's process"
        if self.needs_ttl and not launcher.has_ttl():
            return "has no TTL by `_ts` and no virtual clock"
        if self.owns_process and not launcher.spawns:
            return "needs to start the server itself"
        if self.needs_postgresql and not (launcher.on_postgresql and launcher.has_ttl()):
            return "is for mongottl on PostgreSQL (--store)"
        if self.durable and not launcher.has_ttl():
            return "keeps its documents where it likes"
        if self.durable and not launcher.spawns:
            return "needs a server that is started with a data folder"
        return None


WORKLOADS: dict[str, Workload] = {}


def workload(
    name: str,
    help: str,
    *,
    fixture: Load | None = None,
    needs_socket: bool = False,
    needs_ttl: bool = False,
    owns_process: bool = False,
    durable: bool = False,
    needs_postgresql: bool = False,
    goals: tuple[Goal, ...] = (),
    store_goals: tuple[Goal, ...] = (),
) -> Callable[[Run], Run]:
    """Declares the decorated function as the workload of that name."""

    def declare(run: Run) -> Run:
        if name in WORKLOADS:
            raise ValueError(f"two workloads are called {name}")
        WORKLOADS[name] = Workload(
            name,
            help,
            run,
            fixture,
            needs_socket,
            needs_ttl,
            owns_process,
            durable,
            needs_postgresql,
            goals,
            store_goals,
        )
        return run

    return declare
