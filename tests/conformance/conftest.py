"""The engines under test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mongottl.storage.contract import ContractEngine
from mongottl.storage.interface import StorageEngine, open_storage_engine

# By the name of the engine: with `-file` it gets a data directory. Each engine is tested by itself, and within a
# `ContractEngine`, which checks the contract at each call.
ENGINES = (
    "memory",
    "sqlite-memory",
    "sqlite-file",
    "contract-memory",
    "contract-sqlite-memory",
    "contract-sqlite-file",
)

Opener = Callable[[], StorageEngine]


def open_engine(kind: str, directory: Path) -> StorageEngine:
    if kind.startswith("contract-"):
        return ContractEngine(open_engine(kind.removeprefix("contract-"), directory))
    name, _, place = kind.partition("-")
    return open_storage_engine(name, str(directory) if place == "file" else None)


@pytest.fixture(params=ENGINES)
def engine_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine_opener() -> Callable[[str, Path], StorageEngine]:
    """Opens an engine of a kind over a directory."""
    return open_engine


@pytest.fixture
def engine(engine_kind: str, tmp_path: Path) -> Iterator[StorageEngine]:
    opened = open_engine(engine_kind, tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture(params=[kind for kind in ENGINES if kind.endswith("-file")])
def persistent(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens an engine over the same data each time."""

    def opener() -> StorageEngine:
        return open_engine(request.param, tmp_path / "data")

    return opener
