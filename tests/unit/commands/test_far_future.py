"""Commands when the clock is beyond the year 2106, the maximum of a timestamp."""

from typing import Any

import pytest
from bson import Timestamp

from tests.running import Running

END = 2**32 - 1


@pytest.fixture
def running() -> Running:
    made = Running()
    made.clock.set_wall(7_500_000_000_000)
    return made


def test_timestamps_stop_at_the_last_second(running: Running) -> None:
    # The making of the collection, the insert and the update are a tick each.
    running.insert({"_id": 1, "t": Timestamp(0, 0)})
    modified = {"$currentDate": {"at": {"$type": "timestamp"}, "on": True}}
    assert running.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": modified}]})["nModified"] == 1
    pipeline = [{"$set": {"cluster": "$$CLUSTER_TIME", "now": "$$NOW"}}]
    [found] = running.listed({"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    assert (found["t"], found["at"], found["cluster"]) == (Timestamp(END, 1), Timestamp(END, 2), Timestamp(END, 3))
    assert found["on"].year == found["now"].year == 2207


@pytest.mark.parametrize(
    ("command", "database"),
    [
        ({"hello": 1}, "test"),
        ({"serverStatus": 1}, "test"),
        ({"startSession": 1}, "test"),
        ({"setDefaultRWConcern": 1, "defaultReadConcern": {"level": "local"}}, "admin"),
        (
            {"createIndexes": "c", "indexes": [{"key": {"_ts": 1}, "name": "t", "expireAfterSeconds": 9}]},
            "test",
        ),
        ({"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"ttl": 2**31 - 1}}, "upsert": True}, "test"),
    ],
)
def test_commands_go_on(running: Running, command: dict[str, Any], database: str) -> None:
    running.run(command, database)


def test_hello_tells_the_last_second(running: Running) -> None:
    running.insert({"_id": 1})
    assert running.run({"hello": 1})["lastWrite"]["opTime"]["ts"] == Timestamp(END, 2)
