"""The engines under test."""

import hashlib
import random
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from mongottl.exec.running.stack import Stacks, StepTimes
from mongottl.storage.contract import ContractEngine
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from tests.least_engine import LeastEngine
from tests.on_store import PREFIX, with_schema
from tests.postgres import missing
from tests.steps import run_to_end
from tests.suspending import SuspendingEngine

# By the name of the engine: with `-file` it gets a data directory. Each engine is tested by itself, and within a
# `ContractEngine`, which checks the contract at each call. With `suspending-` the test runs as an operation that is
# left at every call, before it is answered and after. `least-` has only the abstract methods of the engine named after
# it, and makes the others of these, as the contract's classes do.
ENGINES = (
    "memory",
    "sqlite-memory",
    "sqlite-file",
    "contract-memory",
    "contract-sqlite-memory",
    "contract-sqlite-file",
    "contract-least-memory",
    "suspending-contract-memory",
    *(() if missing() else ("postgresql", "contract-postgresql")),
)
# On which the tests of suspending engines run.
STACKS: Final = Stacks(time.monotonic, StepTimes(together_s=0.0))

Opener = Callable[[], StorageEngine]


def open_kind(kind: str, directory: Path) -> StorageEngine:
    if kind.startswith("suspending-"):
        suspending = SuspendingEngine(open_kind(kind.removeprefix("suspending-"), directory), random.Random(1), 1.0)
        suspending.suspension.stacks = STACKS
        return suspending
    if kind.startswith("contract-"):
        return ContractEngine(open_kind(kind.removeprefix("contract-"), directory))
    if kind.startswith("least-"):
        return LeastEngine(open_kind(kind.removeprefix("least-"), directory))
    name, _, place = kind.partition("-")
    if name == "postgresql":
        return open_engine(with_schema(f"{PREFIX}{hashlib.sha256(bytes(directory)).hexdigest()[:12]}"))
    return open_engine(f"{name}:{directory if place == 'file' else ''}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    function = pyfuncitem.obj
    kinds = pyfuncitem.callspec.params.values() if hasattr(pyfuncitem, "callspec") else []
    if any(isinstance(kind, str) and kind.startswith("suspending-") for kind in kinds):
        pyfuncitem.obj = lambda **arguments: run_to_end(STACKS.begin(lambda: function(**arguments)))
    try:
        return (yield)
    finally:
        pyfuncitem.obj = function


@pytest.fixture(params=ENGINES)
def engine_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine_opener() -> Callable[[str, Path], StorageEngine]:
    """Opens an engine of a kind over a directory."""
    return open_kind


@pytest.fixture
def engine(engine_kind: str, tmp_path: Path) -> Iterator[StorageEngine]:
    opened = open_kind(engine_kind, tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture(params=[kind for kind in ENGINES if kind.endswith("-file")])
def persistent(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens an engine over the same data each time."""

    def opener() -> StorageEngine:
        return open_kind(request.param, tmp_path / "data")

    return opener
