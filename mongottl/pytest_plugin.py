"""pytest fixtures that come with the installed package.

def test_session_expires(mongottl_uri, mongottl_clock):
    sessions = pymongo.MongoClient(mongottl_uri).shop.sessions
    sessions.create_index("_ts", expireAfterSeconds=3600)
    sessions.insert_one({"_id": 1})
    mongottl_clock.advance(3600)
    assert sessions.find_one() is None

"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mongottl.server.thread import RunningServer, ServerClock


@pytest.fixture
def mongottl_server() -> Iterator["RunningServer"]:
    """A new server in memory, with a clock that can be moved; it starts in some milliseconds."""
    import mongottl

    with mongottl.start_server() as server:
        yield server


@pytest.fixture
def mongottl_cosmos() -> Iterator["RunningServer"]:
    """A new server of the dialect `cosmos`, in memory: it refuses what Azure Cosmos DB refuses, and has `throttle` and
    `request_units`."""
    import mongottl

    with mongottl.start_server(dialect="cosmos") as server:
        yield server


@pytest.fixture
def mongottl_uri(mongottl_server: "RunningServer") -> str:
    """The connection string of `mongottl_server`."""
    return mongottl_server.uri


@pytest.fixture
def mongottl_clock(mongottl_server: "RunningServer") -> "ServerClock":
    """The clock of `mongottl_server`: `advance(seconds)`, `freeze()`, `now()`."""
    return mongottl_server.clock
