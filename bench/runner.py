"""Runs the chosen workloads on each server in turn; a failure on one server does not end the runs on the others."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from pymongo.errors import ConfigurationError

from bench.load import Connection, Pinger
from bench.measure import Result, median_result
from bench.targets import DATABASE, Launcher, Target
from bench.workloads import WORKLOADS, Context, Workload

Report = Callable[[Result], None]


def groups(workloads: Sequence[Workload]) -> Iterator[list[Workload]]:
    """Groups the workloads: neighbours with the same fixture run on the same server, any other on one of its own."""
    group: list[Workload] = []
    for workload in workloads:
        alike = group and (workload.fixture, workload.durable) == (group[0].fixture, group[0].durable)
        if group and (workload.fixture is None or not alike):
            yield group
            group = []
        group.append(workload)
    if group:
        yield group


def run(
    launchers: Sequence[Launcher],
    workloads: Sequence[Workload],
    seconds: float,
    scale: float,
    rounds: int,
    report: Report,
    pinged: bool = False,
) -> list[Result]:
    """A result for each workload on each server: the medians of `rounds` runs, in which the servers take turns.

    report: called with the result of each single run as soon as it is there. pinged: with pings on another connection
    during each workload.
    """
    results: list[Result] = []
    for group in groups(workloads):
        runs: dict[tuple[str, str], list[Result]] = {}
        for _ in range(rounds):
            for result in _run_turns(launchers, [workload.name for workload in group], seconds, scale, pinged):
                report(result)
                runs.setdefault((result.workload, result.target), []).append(result)
        results.extend(median_result(of_one) for of_one in runs.values())
    return results


def _run_turns(
    launchers: Sequence[Launcher], names: list[str], seconds: float, scale: float, pinged: bool
) -> Iterator[Result]:
    """One group of workloads once on each server."""
    for launcher in launchers:
        if launcher.listens:
            yield from run_group(launcher, names, seconds, scale, pinged)
            continue
        # A library is measured in a process of its own; the figures are those of the library and of its caller.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield from pool.apply(_run_group_here, (launcher, names, seconds, scale))


def _run_group_here(launcher: Launcher, names: list[str], seconds: float, scale: float) -> list[Result]:
    return list(run_group(launcher, names, seconds, scale))


def run_group(
    launcher: Launcher, names: Sequence[str], seconds: float, scale: float, pinged: bool = False
) -> Iterator[Result]:
    """One group on one server. pinged: see `run`."""
    fit: list[Workload] = []
    for name in names:
        reason = WORKLOADS[name].unfit_reason(launcher)
        if reason is None:
            fit.append(WORKLOADS[name])
        else:
            yield Result(name, launcher.name, problem=f"skipped: {reason}")
    while fit:
        done = 0
        with closing(_run_from_start(launcher, fit, seconds, scale, pinged)) as results:
            for result in results:
                yield result
                done += 1
                if result.problem and result.problem.startswith("failed") and launcher.spawns:
                    break  # The server may still be busy with what it failed at: the rest gets a new one.
        fit = fit[done:]


def _run_from_start(
    launcher: Launcher, workloads: Sequence[Workload], seconds: float, scale: float, pinged: bool
) -> Generator[Result, None, None]:
    """Starts and fills a server, and runs the workloads on it; a result for each, even if one fails."""
    with tempfile.TemporaryDirectory(prefix="mongottl-bench-") as scratch, ExitStack() as stack:
        running: Target | None = None
        try:
            # What owns its process has no other.
            if not workloads[0].owns_process:
                data_dir = Path(scratch) / "data" if workloads[0].durable else None
                running = stack.enter_context(launcher.start(data_dir))
            ctx = Context(launcher, running, seconds, scale, Path(scratch))
            if not launcher.spawns:
                stack.callback(_drop_documents, ctx)
            fixture = workloads[0].fixture
            if fixture is not None:
                fixture(ctx)
        except Exception as error:
            for workload in workloads:
                yield _problem("not run", workload, launcher, error, running)
            return
        for workload in workloads:
            try:
                yield _run_pinged(workload, ctx) if pinged else workload.run(ctx)
            except ConfigurationError as error:
                yield _problem(
                    "skipped", workload, launcher, error, running
                )  # This driver does not speak to that server.
            except Exception as error:
                yield _problem("failed", workload, launcher, error, running)


def _run_pinged(workload: Workload, ctx: Context) -> Result:
    """Runs a workload with pings meanwhile, unless it has pings of its own, or no server that is there all the time."""
    if ctx.running is None:
        return workload.run(ctx)
    with Pinger(ctx.target.address()) as pinger:
        result = workload.run(ctx)
    return replace(result, extra={**pinger.figures(), **result.extra})


def _drop_documents(ctx: Context) -> None:
    """Removes the benchmark's documents from a server that was not started here."""
    with Connection(ctx.target.address()) as connection:
        connection.command({"dropDatabase": 1, "$db": DATABASE})


def _problem(outcome: str, workload: Workload, launcher: Launcher, error: Exception, running: Target | None) -> Result:
    end = running.exit_message() if running is not None else ""
    return Result(workload.name, launcher.name, problem=f"{outcome}: {type(error).__name__}: {str(error)[:400]}{end}")
