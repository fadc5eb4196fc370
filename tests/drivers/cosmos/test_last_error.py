"""getLastError, which tells what became of the last request of its connection: in the dialect `cosmos`, and in versions
of MongoDB that are announced before 5.1.

Microsoft's articles on the features list it for every version. The reply is that of MongoDB's reference.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import mongottl
from tests.drivers.wire_client import WireClient
from tests.on_nodes import own_fail_points

Document = dict[str, Any]
ASK: Document = {"getLastError": 1, "w": 1, "wtimeout": 0}


@pytest.fixture
def client(cosmos: mongottl.RunningServer) -> Iterator[WireClient]:
    with closing(WireClient(cosmos.uri)) as connected:
        yield connected
        connected.command({"dropDatabase": 1})


def last(client: WireClient) -> Document:
    reply = client.command(ASK)
    assert reply.pop("ok") == 1
    assert isinstance(reply.pop("connectionId"), int)
    return {name: value for name, value in reply.items() if name not in ("$clusterTime", "operationTime")}


def test_writes_without_reply(client: WireClient) -> None:
    """What the command is for: with `w: 0` their replies tell nothing."""
    unacknowledged: Document = {"writeConcern": {"w": 0}}
    insert: Document = {"insert": "c", "documents": [{"_id": 1}], **unacknowledged}
    client.command(insert)
    assert last(client) == {"n": 0, "err": None}
    client.command(insert)
    failed = last(client)
    assert (failed["n"], failed["code"], failed["codeName"]) == (0, 11000, "DuplicateKey")
    assert failed["err"].startswith("E11000 duplicate key error collection: test.c.")
    assert last(client) == failed
    client.command({"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}, "multi": True}], **unacknowledged})
    assert last(client) == {"updatedExisting": True, "n": 1, "err": None}
    client.command({"delete": "c", "deletes": [{"q": {}, "limit": 0}], **unacknowledged})
    assert last(client) == {"n": 1, "err": None}


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"update": "c", "updates": [{"q": {"_id": 7}, "u": {"$set": {"a": 1}}}]}, {"updatedExisting": False, "n": 0}),
        (
            {"update": "c", "updates": [{"q": {"_id": 7}, "u": {"$set": {"a": 1}}, "upsert": True}]},
            {"updatedExisting": False, "upserted": 7, "n": 1},
        ),
        (
            {"findAndModify": "c", "query": {"_id": 8}, "update": {"a": 1}, "upsert": True},
            {"updatedExisting": False, "upserted": 8, "n": 1},
        ),
        ({"findAndModify": "c", "query": {"_id": 9}, "remove": True}, {"n": 0}),
        ({"find": "c"}, {"n": 0}),
        ({"create": "other"}, {"n": 0}),
    ],
)
def test_get_last_error_after_a_successful_command(client: WireClient, request_: Document, told: Document) -> None:
    client.command(request_)
    assert last(client) == {**told, "err": None}


@own_fail_points
def test_errors_of_commands(client: WireClient, cosmos: mongottl.RunningServer) -> None:
    client.command({"find": "c", "sort": {"a": "up"}})
    assert last(client)["code"] == 15974
    client.command({"collMod": "c"})
    assert last(client) == {
        "n": 0,
        "err": "Command collMod not supported.",
        "code": 115,
        "codeName": "CommandNotSupported",
    }
    with cosmos.throttle("insert", times=1):
        client.command({"insert": "c", "documents": [{"_id": 1}]})
    assert last(client)["codeName"] == "RequestRateTooLarge"
    client.command({"find": "c"})
    assert last(client) == {"n": 0, "err": None}


def test_each_connection_has_its_own(client: WireClient, cosmos: mongottl.RunningServer) -> None:
    client.command({"find": "c", "sort": {"a": "up"}})
    with closing(WireClient(cosmos.uri)) as other:
        assert last(other) == {"n": 0, "err": None}
    assert last(client)["code"] == 15974


@pytest.mark.parametrize("version", ["3.6", "4.0", "4.2", "5.0", "6.0", "7.0"])
def test_every_version_has_it(version: str) -> None:
    with (
        mongottl.start_server(dialect="cosmos", server_version=version) as server,
        closing(WireClient(server.uri)) as client,
    ):
        assert last(client) == {"n": 0, "err": None}


@pytest.mark.parametrize("version", ["3.6", "4.4", "5.0", "6.0", "8.2"])
def test_mongodb_5_1_has_removed_it(version: str) -> None:
    with mongottl.start_server(server_version=version) as server, closing(WireClient(server.uri)) as client:
        listed = client.command({"listCommands": 1})["commands"]
        if version in ("6.0", "8.2"):
            assert client.command(ASK)["code"] == 59
            assert "getLastError" not in listed
            return
        assert "getLastError" in listed
        assert last(client) == {"n": 0, "err": None}
        client.command({"insert": "c", "documents": [{"_id": 1}]})
        assert last(client) == {"n": 0, "err": None}
        client.command({"insert": "c", "documents": [{"_id": 1}], "writeConcern": {"w": 0}})
        failed = last(client)
        assert (failed["n"], failed["code"], failed["codeName"]) == (0, 11000, "DuplicateKey")
        assert last(client) == failed
        client.command({"update": "c", "updates": [{"q": {"_id": 2}, "u": {"a": 1}, "upsert": True}]})
        assert last(client) == {"updatedExisting": False, "upserted": 2, "n": 1, "err": None}
