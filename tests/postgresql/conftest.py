"""The cluster of a run, and a connection to a schema of the test's own."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from mongottl.storage.postgresql.local_cluster import LocalCluster
from tests import postgres

if TYPE_CHECKING:
    from mongottl.storage.postgresql.connection import Connection

_NUMBERS: Final = count(1)


class NotRun(pytest.Module):
    """A module of tests that need what is not installed."""

    def collect(self) -> NoReturn:
        pytest.skip(postgres.missing(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return NotRun.from_parent(parent, path=module_path) if postgres.missing() else None


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    folder = postgres.Folder()
    cluster = postgres.start_cluster(folder.path)
    yield cluster
    cluster.stop("immediate")
    folder.remove()


@pytest.fixture
def schema(cluster: LocalCluster) -> str:
    """The name of a schema of the test's own, which does not exist yet."""
    return f"test_{next(_NUMBERS)}"


@pytest.fixture
def connect_to(cluster: LocalCluster) -> Iterator[Callable[..., "Connection"]]:
    """Makes connections by a URI, the cluster's by default, which end with the test."""
    from mongottl.storage.postgresql.address import Address
    from mongottl.storage.postgresql.connection import Connection, SessionSettings, connect
    from mongottl.storage.waiting import BlockingWaiter, Waiter
    from tests.waiting import PATIENCE_S

    made: list[Connection] = []

    def make(
        uri: str | None = None, settings: SessionSettings | None = None, waiter: Waiter | None = None
    ) -> Connection:
        waiter = waiter or BlockingWaiter()
        until_s = waiter.monotonic_s() + PATIENCE_S
        made.append(connect(Address(uri or cluster.uri), settings or SessionSettings("public"), waiter, until_s))
        return made[-1]

    yield make
    for connection in made:
        connection.close()


@pytest.fixture
def connection(connect_to: Callable[..., "Connection"], schema: str) -> "Connection":
    """A connection whose schema is the test's own, with a table of numbers."""
    from mongottl.storage.postgresql.connection import SessionSettings
    from mongottl.storage.postgresql.statements import Statement

    made = connect_to(settings=SessionSettings(schema))
    made.run(
        [
            Statement("make_schema", f"CREATE SCHEMA {schema}").with_(),
            Statement("make_numbers", "CREATE TABLE numbers (n int8 PRIMARY KEY, b bytea)").with_(),
        ]
    )
    return made
