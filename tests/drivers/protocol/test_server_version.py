"""`--server-version`: what the server announces, and that it refuses what that version of MongoDB does not have."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import SON

import mongottl
from mongottl.cli import main
from mongottl.config import COSMOS_VERSIONS, NEWEST_PATCHES, WIRE_VERSIONS
from tests.drivers.refusals import refusal
from tests.drivers.web.requests import ask, basic
from tests.on_nodes import no_balancer

pytestmark = no_balancer("mongos knows of balancers since 5.0")

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]

# PyMongo refuses servers before 4.4.
VERSIONS = ["4.4", "5.0", "6.0", "7.0", "8.0", "8.2"]


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Client]]:
    """A client of a server for each version."""
    with ExitStack() as stack:
        opened = {}
        for version in VERSIONS:
            server = stack.enter_context(mongottl.start_server(server_version=version))
            opened[version] = stack.enter_context(Client(server.uri))
            opened[version].test.coll.insert_one({"_id": 1, "a": [1, 2]})
        yield opened


@pytest.mark.parametrize("version", VERSIONS)
def test_hello_and_build_info_announce_the_version(clients: dict[str, Client], version: str) -> None:
    admin = clients[version].admin
    assert admin.command("hello")["maxWireVersion"] == WIRE_VERSIONS[version]
    info = admin.command("buildInfo")
    patch = NEWEST_PATCHES[version]
    assert info["version"] == f"{version}.{patch}"
    assert info["versionArray"] == [*(int(part) for part in version.split(".")), patch, 0]
    compatibility = admin.command("getParameter", featureCompatibilityVersion=1)["featureCompatibilityVersion"]
    assert compatibility["version"] == version


def test_older_versions_are_announced_to_other_drivers() -> None:
    for version in ("3.6", "4.0", "4.2"):
        with (
            mongottl.start_server(server_version=version) as server,
            Client(server.uri) as client,
            pytest.raises(pymongo.errors.ConfigurationError, match=f"reports wire version {WIRE_VERSIONS[version]},"),
        ):
            client.admin.command("ping")


@pytest.mark.parametrize(
    ("dialect", "version"),
    [("mongodb", version) for version in ("3.6", "4.0", "4.2", "8.2")]
    + [("cosmos", version) for version in COSMOS_VERSIONS],
)
def test_our_own_tools_and_the_page_do_not_depend_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dialect: str, version: str
) -> None:
    with mongottl.start_server(
        dialect=dialect,
        server_version=version,
        web_port=0,
        data_dir=str(tmp_path / "data"),
        auth=True,
        user="ann",
        password="secret",
    ) as server:
        uri = f"mongodb://ann:secret@127.0.0.1:{server.port}/"
        assert main(["ping", uri]) == 0
        assert main(["report", uri]) == (dialect == "mongodb")  # which counts no request units
        assert main(["backup", uri, str(tmp_path / "backup")]) == 0
        for path in ("/", "/metrics", "/readyz"):
            assert ask(server, path, basic("ann", "secret")).status == 200
    errors = capsys.readouterr().err
    assert errors.count("\n") == (dialect == "mongodb"), errors


def aggregate(*stages: Documents, **options: Any) -> SON[str, Any]:
    return SON([("aggregate", "coll"), ("pipeline", list(stages)), ("cursor", {}), *options.items()])


def computed(expression: Documents) -> SON[str, Any]:
    return aggregate({"$addFields": {"x": expression}})


def command(name: str, value: Any, **options: Any) -> SON[str, Any]:
    return SON([(name, value), *options.items()])


DENSIFY = {"$densify": {"field": "_id", "range": {"step": 1, "bounds": "full"}}}
JOIN = {"from": "coll", "pipeline": [{"$limit": 1}], "as": "x"}
INPUT = {"input": "$a", "p": [0.5], "method": "approximate"}
# The first version that has it, a command, and the code with which earlier versions refuse it.
CASES = [
    ("5.0", aggregate({"$lookup": {**JOIN, "localField": "a", "foreignField": "a"}}), 9),
    ("5.0", command("find", "coll", let={"x": 1}), 40415),
    ("5.0", command("ping", 1, apiVersion="1"), 40415),
    ("5.0", command("explain", {"find": "coll", "let": {"x": 1}}), 40415),
    ("5.0", aggregate({"$group": {"_id": None, "n": {"$count": {}}}}), 15952),
    ("5.0", aggregate({"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"r": {"$rank": {}}}}}), 40324),
    ("5.0", command("find", "coll", projection={"x": {"$getField": "a"}}), 31325),
    ("6.0", aggregate({"$fill": {"output": {"a": {"value": 1}}}}), 40324),
    ("6.0", computed({"$sortArray": {"input": "$a", "sortBy": 1}}), 168),
    ("6.0", computed({"$filter": {"input": "$a", "cond": True, "limit": 1}}), 40415),
    ("6.0", aggregate({"$lookup": {"from": "coll", "as": "x", "pipeline": [DENSIFY]}}), 40324),
    ("6.0", aggregate({"$unionWith": {"coll": "coll", "pipeline": [DENSIFY]}}), 40324),
    ("6.0", aggregate({"$facet": {"x": [{"$addFields": {"x": {"$firstN": {"input": "$a", "n": 1}}}}]}}), 168),
    ("6.0", command("find", "coll", filter={"$expr": {"$eq": [{"$minN": {"input": "$a", "n": 1}}, [1]]}}), 168),
    ("6.0", command("collMod", "coll", changeStreamPreAndPostImages={"enabled": False}), 40415),
    ("6.0", aggregate({"$changeStream": {"fullDocument": "whenAvailable"}}), 2),
    ("6.0", aggregate({"$changeStream": {"fullDocument": "required"}}), 2),
    ("6.0", aggregate({"$changeStream": {"fullDocumentBeforeChange": "whenAvailable"}}), 40415),
    ("6.0", aggregate({"$changeStream": {"showExpandedEvents": True}}), 40415),
    ("6.0", command("create", "images", changeStreamPreAndPostImages={"enabled": True}), 40415),
    ("7.0", aggregate({"$changeStream": {}}, {"$changeStreamSplitLargeEvent": {}}), 40324),
    ("7.0", computed({"$percentile": INPUT}), 168),
    ("7.0", aggregate({"$group": {"_id": None, "p": {"$percentile": INPUT}}}), 15952),
    ("7.0", command("createIndexes", "wild", indexes=[{"key": {"a": 1, "b.$**": 1}, "name": "w"}]), 67),
    ("8.0", command("distinct", "coll", key="a", hint="_id_"), 40415),
    (
        "8.0",
        command("update", "coll", updates=[{"q": {"_id": 9}, "u": {"$set": {"b": 1}}, "sort": {"_id": 1}}]),
        40415,
    ),
    ("8.2", computed({"$sigmoid": 1}), 168),
    ("8.0", command("insert", "coll", documents=[{"_id": 8}], bypassEmptyTsReplacement=True), 40415),
    ("8.2", command("find", "coll", rawData=False), 40415),
]


@pytest.mark.parametrize(("first", "request_", "code"), CASES)
def test_features_of_later_versions_are_refused(
    clients: dict[str, Client], first: str, request_: SON[str, Any], code: int
) -> None:
    for version in VERSIONS:
        known = VERSIONS.index(version) >= VERSIONS.index(first)
        if known:
            assert clients[version].test.command(request_.copy())["ok"] == 1
        else:
            assert refusal(clients[version].test, request_.copy()) == code


def test_commands_that_came_later_do_not_exist(clients: dict[str, Client]) -> None:
    request = command("bulkWrite", 1, ops=[{"insert": 0, "document": {}}], nsInfo=[{"ns": "test.bulk"}])
    for version in VERSIONS:
        if version in ("8.0", "8.2"):
            assert clients[version].admin.command(request.copy())["nInserted"] == 1
        else:
            assert refusal(clients[version].admin, request.copy()) == 59
            assert "bulkWrite" not in clients[version].admin.command("listCommands")["commands"]
    assert refusal(clients["6.0"].admin, {"moveCollection": "test.coll"}) == 59
    assert refusal(clients["8.0"].admin, {"moveCollection": "test.coll"}) == 115


def test_fields_of_change_events_that_came_later(clients: dict[str, Client]) -> None:
    for version in VERSIONS:
        options: dict[str, Any] = {} if version in ("4.4", "5.0") else {"show_expanded_events": True}
        collection = clients[version].test.events
        collection.insert_one({"_id": 1, "a": {"0": 1}})
        with collection.watch(max_await_time_ms=1, **options) as stream:
            collection.update_one({"_id": 1}, {"$set": {"a.0": 2}})
            event = next(stream)
        assert ("wallTime" in event) == bool(options)
        assert ("disambiguatedPaths" in event["updateDescription"]) == (bool(options) and version != "6.0")
        collection.drop()


def test_views_and_validators_have_the_version_too(clients: dict[str, Client]) -> None:
    database = clients["6.0"].test
    median = {"$median": {"input": "$a", "method": "approximate"}}
    assert refusal(database, {"create": "v", "viewOn": "coll", "pipeline": [{"$set": {"m": median}}]}) == 168
    assert refusal(database, {"create": "c", "validator": {"$expr": median}}) == 168
    database.create_collection("view", viewOn="coll", pipeline=[{"$match": {}}])
    assert list(database["view"].find()) == [{"_id": 1, "a": [1, 2]}]
    with pytest.raises(pymongo.errors.OperationFailure) as refused:
        list(database["view"].aggregate([{"$set": {"m": median}}]))
    assert refused.value.code == 168


def test_the_pipeline_of_merge_has_the_version_too(clients: dict[str, Client]) -> None:
    median = {"$median": {"input": "$a", "method": "approximate"}}
    merge = {"$merge": {"into": "merged", "whenMatched": [{"$set": {"m": median}}]}}
    for version, code in {"6.0": 168, "7.0": 0}.items():
        database = clients[version].test
        database.merged.insert_one({"_id": 1})
        assert refusal(database, aggregate(merge)) == code
        database.merged.drop()


def test_drivers_fall_back(clients: dict[str, Client]) -> None:
    """A driver asks the wire version what it may send."""
    old = clients["4.4"]
    with pytest.raises(pymongo.errors.InvalidOperation):
        old.bulk_write([pymongo.InsertOne({}, namespace="test.coll")])
    assert old.test.coll.estimated_document_count() == 1
    with old.start_session() as session, session.start_transaction():
        old.test.coll.update_one({"_id": 1}, [{"$set": {"b": 1}}], session=session)
