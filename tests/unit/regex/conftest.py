"""Regular expressions without a server."""

import time
from collections.abc import Iterator, Sequence

import pytest

from mongottl.processes.pool import WorkerProcesses
from mongottl.regex.compiled import SearchElsewhere, set_search_elsewhere
from mongottl.regex.searching import PROGRAM, Search
from tests.unit.javascript.conftest import never_await, never_pause


class Elsewhere(SearchElsewhere):
    """Processes that searches of the present thread ask, without a server. asked: how many texts each request had."""

    def __init__(self, processes: WorkerProcesses) -> None:
        self._processes = processes
        self.asked: list[int] = []

    def _search(self) -> Search:
        return Search(self._processes, never_pause, never_await, time.monotonic)

    def search(self, pattern: bytes, options: str, subject: bytes, start: int, most: int) -> Sequence[int]:
        self.asked.append(1)
        return self._search().found(pattern, options, subject, start, most)

    def search_many(self, pattern: bytes, options: str, subjects: list[bytes]) -> bytes:
        self.asked.append(len(subjects))
        return self._search().found_in_each(pattern, options, subjects)


@pytest.fixture(scope="session")
def processes() -> Iterator[WorkerProcesses]:
    made = WorkerProcesses(PROGRAM, time.monotonic)
    yield made
    made.close()


@pytest.fixture
def elsewhere(processes: WorkerProcesses) -> Iterator[Elsewhere]:
    made = Elsewhere(processes)
    set_search_elsewhere(made)
    yield made
    set_search_elsewhere(None)
