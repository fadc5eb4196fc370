"""A server of each storage engine with its collections, made once for all tests."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.database import Database

from tests.volume.documents import SHAPES
from tests.volume.watching import Connection, Documents, Volume, Watched

# Of a message of 48 MB: as it came, its documents, and several times that for what is freed late.
LOAD_MB = 300


@pytest.fixture(scope="session", params=["memory", "sqlite"])
def volume(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volume]:
    folder: Path = tmp_path_factory.mktemp("volume")
    options = ["--data-dir", str(folder / "data")] if request.param == "sqlite" else []
    server = Watched(folder / "log", *options)
    try:
        loaded = Volume(server, request.param)
        with contextlib.closing(Connection(server.uri)) as connection:
            for shape in SHAPES:
                stored_mb = loaded.stored_mb(shape.count * (shape.size_bytes + 150))
                with server.watched(LOAD_MB + stored_mb):
                    connection.insert("volume", shape.name, shape.documents())
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
    """Fails a test that left a cursor open or met an InternalError."""
    before = volume.client.admin.command("serverStatus")
    yield
    after = volume.client.admin.command("serverStatus")
    assert after["metrics"]["cursor"]["open"]["total"] == 0, "a cursor was left open"
    assert after["asserts"]["internal"] == before["asserts"]["internal"], "an InternalError was answered, see the log"
