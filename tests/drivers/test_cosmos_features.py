"""What each version of Cosmos DB has and refuses, by Microsoft's articles on the features that it supports."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import mongottl
from tests.drivers.wire_client import WireClient

Document = dict[str, Any]

VERSIONS = ["3.6", "4.0", "4.2", "5.0", "6.0", "7.0"]


@pytest.fixture(scope="module")
def accounts() -> Iterator[dict[str, WireClient]]:
    """A client of a server for each version."""
    with ExitStack() as stack:
        opened = {}
        for version in VERSIONS:
            server = stack.enter_context(mongottl.start_server(dialect="cosmos", server_version=version))
            client = WireClient(server.uri)
            stack.callback(client.close)
            client.command({"insert": "coll", "documents": [{"_id": 1, "a": [1, 2], "s": " x "}]})
            opened[version] = client
        yield opened


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def aggregate(*stages: Document) -> Document:
    return {"aggregate": "coll", "pipeline": list(stages), "cursor": {}}


# A command that every version has, as the articles say; and that of each kind which none has.
@pytest.mark.parametrize(
    "command",
    [
        {"find": "coll"},
        {"count": "coll"},
        {"distinct": "coll", "key": "a"},
        {"findAndModify": "coll", "query": {"_id": 5}, "remove": True},
        {"listCollections": 1},
        {"listIndexes": "coll"},
        {"dbStats": 1},
        {"collStats": "coll"},
        {"explain": {"find": "coll"}},
        {"hostInfo": 1},
        {"whatsmyuri": 1},
        {"hello": 1},
        {"ping": 1},
        {"endSessions": []},
        {"killCursors": "coll", "cursors": []},
    ],
    ids=lambda command: next(iter(command)),
)
def test_commands_that_all_versions_have(accounts: dict[str, WireClient], version: str, command: Document) -> None:
    database = "admin" if "hostInfo" in command else "test"
    assert accounts[version].refusal(command, database) == (0, "")


@pytest.mark.parametrize(
    "name",
    [
        "collMod",
        "connectionStatus",
        "mapReduce",
        "renameCollection",
        "profile",
        "validate",
        "startSession",
        "createUser",
        "replSetGetStatus",
        "moveChunk",
        "eval",
        "getPrevError",
        "copydb",
    ],
)
def test_commands_that_no_version_has(accounts: dict[str, WireClient], version: str, name: str) -> None:
    assert accounts[version].refusal({name: 1}) == (115, f"Command {name} not supported")


def test_transaction_commands_came_with_4_0(accounts: dict[str, WireClient], version: str) -> None:
    code, text = accounts[version].refusal({"commitTransaction": 1}, "admin")
    if version == "3.6":
        assert (code, text) == (115, "Command commitTransaction not supported")
    else:
        assert code not in (59, 115)


GRAPH = {"from": "coll", "startWith": "$a", "connectFromField": "a", "connectToField": "_id", "as": "x"}


@pytest.mark.parametrize(
    ("stage", "has"),
    [
        ({"$addFields": {"b": 1}}, VERSIONS),
        ({"$facet": {"x": [{"$count": "n"}]}}, VERSIONS),
        ({"$sortByCount": "$s"}, VERSIONS),
        ({"$graphLookup": GRAPH}, ["3.6", "4.0"]),
        ({"$set": {"b": 1}}, VERSIONS[2:]),
        ({"$replaceWith": {"b": 1}}, VERSIONS[2:]),
        ({"$merge": "other"}, VERSIONS[2:]),
        ({"$bucketAuto": {"groupBy": "$_id", "buckets": 2}}, []),
        ({"$collStats": {"count": {}}}, []),
        ({"$indexStats": {}}, []),
        ({"$unionWith": "coll"}, []),
        ({"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"r": {"$rank": {}}}}}, []),
        ({"$documents": [{"a": 1}]}, []),
        ({"$search": {}}, []),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_stages(accounts: dict[str, WireClient], version: str, stage: Document, has: list[str]) -> None:
    refusal = accounts[version].refusal(aggregate(stage))
    if version in has:
        assert refusal == (0, "")
    else:
        assert refusal == (40324, f"Unrecognized pipeline stage name: {next(iter(stage))}")


def test_stages_within_stages(accounts: dict[str, WireClient]) -> None:
    assert accounts["7.0"].refusal(aggregate({"$facet": {"x": [{"$unionWith": "coll"}]}}))[0] == 40324


def test_what_is_missing_can_be_allowed(accounts: dict[str, WireClient]) -> None:
    client = accounts["6.0"]
    was = client.command({"configureCosmos": {"allow": ["missing-features"]}}, "admin")["was"]
    assert client.refusal({"connectionStatus": 1}) == (0, "")
    assert client.refusal(aggregate({"$unionWith": "coll"})) == (0, "")
    assert client.refusal({"bulkWrite": 1}, "admin") == (115, "Command bulkWrite not supported")
    client.command({"configureCosmos": was}, "admin")
    assert client.refusal({"connectionStatus": 1})[0] == 115
