"""A server of each storage engine with its collections, made once for all tests."""

import contextlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.database import Database

from tests.volume.documents import SHAPES
from tests.volume.watching import FIGURES, Connection, Documents, Volume, Watched

# Of a message of 48 MB: as it came, its documents, and several times that for what is freed late.
LOAD_MB = 300
# Of the documents of a data folder: by default it would grow to an eighth of the machine's memory while tests run.
CACHE_MB = 64
# Of all tests: what the allocator keeps for the next one, 250 to 500 MB after readers that are slow, by the order in
# which their replies are freed. Half of them leaving a page of 16 MiB would be far more.
LEFT_MB = 600


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engines(name): a test that one storage engine is enough for")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What does not depend on the storage engine is tested with one: the whole must not take long."""
    left_out: list[pytest.Item] = []
    for item in items:
        marker = item.get_closest_marker("engines")
        if (
            marker is not None
            and isinstance(item, pytest.Function)
            and item.callspec.params["volume"] not in marker.args
        ):
            left_out.append(item)
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session", params=["memory", "sqlite"])
def volume(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volume]:
    folder: Path = tmp_path_factory.mktemp("volume")
    options: list[str] = []
    if request.param == "sqlite":
        options = ["--data-dir", str(folder / "data"), "--cache-memory-mb", str(CACHE_MB)]
    server = Watched(folder / "log", *options)
    try:
        loaded = Volume(server, request.param)
        with contextlib.closing(Connection(server.uri)) as connection:
            for shape in SHAPES:
                stored_mb = loaded.stored_mb(shape.count * (shape.size_bytes + 150))
                with server.watched(LOAD_MB + stored_mb, loaded.write_stall_s(shape.size_bytes)):
                    connection.insert("volume", shape.name, shape.documents())
        loaded.loaded_bytes = server.memory_bytes()
        yield loaded
    finally:
        server.stop()


@pytest.fixture
def scratch(volume: Volume) -> Iterator[Database[Documents]]:
    """A database of its own for each test that writes."""
    name = f"scratch_{uuid.uuid4().hex[:12]}"
    yield volume.client[name]
    volume.client.drop_database(name)


@pytest.fixture(autouse=True)
def clean(volume: Volume) -> Iterator[None]:
    """Fails a test that left a cursor open or memory taken, or met an InternalError."""
    before = volume.client.admin.command("serverStatus")
    yield
    after = volume.client.admin.command("serverStatus")
    assert after["metrics"]["cursor"]["open"]["total"] == 0, "a cursor was left open"
    assert after["asserts"]["internal"] == before["asserts"]["internal"], "an InternalError was answered, see the log"
    left_mb = volume.left_mb()
    if FIGURES:
        print(f"{left_mb:.0f} MB more than at first", file=sys.stderr)
    assert left_mb <= LEFT_MB, f"the server holds {left_mb:.0f} MB more than before the first test"
