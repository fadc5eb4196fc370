"""Which seeds are simulated, and many of them at once in processes of their own.

`MONGOTTL_SIMULATION_SEEDS=700-710` chooses the seeds of every simulation, so a seed that has failed can be run again;
`MONGOTTL_SIMULATION_TURNS=6000` how long each run is. A thousand runs with the suspending engine take half an hour:

    MONGOTTL_SIMULATION_SEEDS=1-1000 pytest tests/simulation -k "short and suspending"
"""

import multiprocessing
import os
import shutil
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import trio._core._run as trio_scheduler

from mongottl.build_info import is_compiled
from mongottl.document.interrupt import check_often

# The seeds of short runs: interpreted, the server takes too long for all of them.
MANY: Final = "1-200" if is_compiled() else "1-100"
# Those of short runs with a suspending engine, in which a command takes many turns.
MANY_SUSPENDING: Final = "1-40" if is_compiled() else "1-20"

# A simulation: a seed, an empty folder and the number of turns; how often things happened in it.
Simulation: TypeAlias = Callable[[int, Path, int], "Counter[str]"]


def seeds(default: str) -> list[int]:
    first, _, last = os.environ.get("MONGOTTL_SIMULATION_SEEDS", default).partition("-")
    return list(range(int(first), int(last or first) + 1))


def turns(default: int) -> int:
    return int(os.environ.get("MONGOTTL_SIMULATION_TURNS", default))


@contextmanager
def scheduled_by(seed: int) -> Iterator[None]:
    """Has trio choose the order of tasks by the seed: of those that can run at once it takes every second time the last
    one first, by a generator of its own, so that runs of one seed would differ. It has no public setting for that.

    Evaluations check after each unit of work whether they are left, however short they are.
    """
    check_often()
    trio_scheduler._r.seed(seed)
    usual = trio_scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    trio_scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    try:
        yield
    finally:
        trio_scheduler._ALLOW_DETERMINISTIC_SCHEDULING = usual  # type: ignore[misc]
        trio_scheduler._r.seed()
        check_often(False)


class Outcome:
    """Of one run. error: its traceback, or None."""

    def __init__(self, seed: int, counts: "Counter[str]", error: str | None) -> None:
        self.seed = seed
        self.counts = counts
        self.error = error


def run_seed(simulation: Simulation, seed: int, folder: Path, length: int) -> Outcome:
    """One run. What Python would only print, an exception where none can be raised, fails it, too."""
    unraisable: list[str] = []
    usual_hook = sys.unraisablehook
    sys.unraisablehook = lambda info: unraisable.extend(
        traceback.format_exception(info.exc_type, info.exc_value, info.exc_traceback)
    )
    folder.mkdir()
    counts: Counter[str] = Counter()
    error = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            counts = simulation(seed, folder, length)
    except Exception:
        error = traceback.format_exc()
    finally:
        sys.unraisablehook = usual_hook
    shutil.rmtree(folder)
    if unraisable:
        error = (error or "") + "".join(unraisable)
    return Outcome(seed, counts, error)


def run_seeds(simulation: Simulation, numbers: list[int], folder: Path, length: int) -> "Counter[str]":
    """Runs every seed, side by side on all processors, and adds up what happened. Fails with the seeds that failed."""
    counts: Counter[str] = Counter()
    failed: list[Outcome] = []
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        runs = [processes.submit(run_seed, simulation, seed, folder / str(seed), length) for seed in numbers]
        for run in runs:
            outcome = run.result()
            counts += outcome.counts
            if outcome.error is not None:
                failed.append(outcome)
    told = "\n".join(f"seed {outcome.seed}, {length} turns:\n{outcome.error}" for outcome in failed[:5])
    assert not failed, f"the seeds {[outcome.seed for outcome in failed]} failed\n{told}"
    return counts


def check_happened(counts: "Counter[str]", numbers: list[int], expected: Iterable[str], seldom: str) -> None:
    """Fails if something never happened that does in this number of runs.

    seldom: what happens only in 500 of them. That an operation is left is not expected without a suspending engine.
    """
    if len(numbers) >= 200:
        unlikely = {"left"} if len(numbers) >= 500 else {"left", seldom}
        assert all(counts[what] for what in expected if what not in unlikely), counts
