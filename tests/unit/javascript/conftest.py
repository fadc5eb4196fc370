"""Scripts without a server."""

import time
from collections.abc import Callable, Iterator

import pytest

from mongottl.javascript.library import missing_reason
from mongottl.javascript.scripts import PROGRAM, Scripts
from mongottl.processes.conversation import Pause
from mongottl.processes.pool import Turn, WorkerProcesses

MakeScripts = Callable[..., Scripts]


def never_pause(seconds: float, file: int, to_write: bool) -> bool:
    return False


def never_await(seconds: float, turn: Turn) -> bool:
    return False


class Elapsed:
    """Elapsed time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


# By the clock. Scripts have a lower priority than what else runs on this machine, which may leave them little of it.
LONG_LIMIT_MS = 120_000


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def processes(elapsed: Elapsed) -> Iterator[WorkerProcesses]:
    if missing_reason():
        pytest.skip(missing_reason())
    made = WorkerProcesses(PROGRAM, elapsed.monotonic_s)
    yield made
    made.close()


@pytest.fixture
def make(processes: WorkerProcesses) -> MakeScripts:
    """Makes the scripts of an operation that cannot let others run, unless it is given a `pause`."""

    def make(
        check: Callable[[], None] = lambda: None,
        log: Callable[[str], None] = lambda line: None,
        call_limit_ms: int = LONG_LIMIT_MS,
        pause: Pause = never_pause,
    ) -> Scripts:
        scripts = Scripts(processes, pause, never_await, time.monotonic, log, 0, "8.2.0", call_limit_ms)
        scripts.check = check
        return scripts

    return make


@pytest.fixture
def scripts(make: MakeScripts) -> Scripts:
    return make()
