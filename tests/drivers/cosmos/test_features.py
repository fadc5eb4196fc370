"""What each version of Cosmos DB has and refuses, by Microsoft's articles on the features that it supports."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import mongottl
from tests.drivers.wire_client import WireClient
from tests.on_nodes import own_account

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
        {"listCollections": 1, "nameOnly": True, "authorizedCollections": True},
        {"listIndexes": "coll"},
        {"dbStats": 1},
        {"collStats": "coll"},
        {"explain": {"find": "coll"}},
        {"whatsmyuri": 1},
        {"hello": 1},
        {"ping": 1},
        {"endSessions": []},
        {"killCursors": "coll", "cursors": []},
    ],
    ids=lambda command: next(iter(command)),
)
def test_commands_that_all_versions_have(accounts: dict[str, WireClient], version: str, command: Document) -> None:
    assert accounts[version].refusal(command) == (0, "")


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
        "atlasVersion",
        "thereIsNoSuchCommand",
    ],
)
def test_commands_that_no_version_has(accounts: dict[str, WireClient], version: str, name: str) -> None:
    assert accounts[version].refusal({name: 1}) == (115, f"Command {name} not supported.")


def test_transaction_commands_came_with_4_0(accounts: dict[str, WireClient], version: str) -> None:
    code, text = accounts[version].refusal({"commitTransaction": 1}, "admin")
    if version == "3.6":
        assert (code, text) == (115, "Command commitTransaction not supported.")
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


@pytest.mark.parametrize(
    ("matched", "code"),
    [("merge", 0), ("replace", 0), ([{"$set": {"b": 1}}], 0), ([{"$set": {"b": {"$rand": {}}}}], 168)],
)
def test_pipelines_of_merge(accounts: dict[str, WireClient], matched: str | list[Document], code: int) -> None:
    client = accounts["7.0"]
    client.command({"update": "merged", "updates": [{"q": {"_id": 1}, "u": {"_id": 1}, "upsert": True}]})
    assert client.refusal(aggregate({"$merge": {"into": "merged", "whenMatched": matched}}))[0] == code


@own_account
def test_missing_features_can_be_allowed(accounts: dict[str, WireClient]) -> None:
    client = accounts["6.0"]
    was = client.command({"configureCosmos": {"allow": ["missing-features"]}}, "admin")["was"]
    assert client.refusal({"connectionStatus": 1}) == (0, "")
    assert client.refusal({"atlasVersion": 1}) == (59, "no such command: 'atlasVersion'")
    assert client.refusal(aggregate({"$unionWith": "coll"})) == (0, "")
    assert client.refusal({"bulkWrite": 1}, "admin") == (115, "Command bulkWrite not supported.")
    client.command({"configureCosmos": was}, "admin")
    assert client.refusal({"connectionStatus": 1})[0] == 115


LATER = VERSIONS[2:]


@pytest.mark.parametrize(
    ("expression", "has"),
    [
        ({"$mergeObjects": [{}, {"b": 1}]}, VERSIONS),
        ({"$switch": {"branches": [{"case": True, "then": 1}]}}, VERSIONS),
        ({"$dateFromString": {"dateString": "2020-01-01"}}, VERSIONS),
        ({"$stdDevPop": [1, 2]}, VERSIONS),
        ({"$trim": {"input": "$s"}}, VERSIONS[1:]),
        ({"$toString": "$_id"}, VERSIONS[1:]),
        ({"$round": 1.5}, LATER),
        ({"$sin": 1}, LATER),
        ({"$regexMatch": {"input": "$s", "regex": "x"}}, LATER),
        ({"$dateDiff": {"startDate": "$$NOW", "endDate": "$$NOW", "unit": "day"}}, []),
        ({"$getField": "s"}, []),
        ({"$sortArray": {"input": "$a", "sortBy": 1}}, []),
        ({"$first": "$a"}, []),
        ({"$rand": {}}, []),
        ({"$function": {"body": "function() {}", "args": [], "lang": "js"}}, []),
        ({"$meta": "textScore"}, []),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_expressions(accounts: dict[str, WireClient], version: str, expression: Document, has: list[str]) -> None:
    refusal = accounts[version].refusal(aggregate({"$project": {"x": expression}}))
    if version in has:
        assert refusal == (0, "")
    else:
        name = next(iter(expression))
        assert refusal[0] in (168, 31325)
        assert f"expression '{name}'" in refusal[1] or f"expression {name}" in refusal[1]


def test_accumulators(accounts: dict[str, WireClient], version: str) -> None:
    listed = {"sum": {"$sum": 1}, "dev": {"$stdDevSamp": "$_id"}, "all": {"$mergeObjects": "$$ROOT"}}
    assert accounts[version].refusal(aggregate({"$group": {"_id": None, **listed}})) == (0, "")
    for name, argument in {"$count": {}, "$top": {"output": "$_id", "sortBy": {"_id": 1}}}.items():
        refusal = accounts[version].refusal(aggregate({"$group": {"_id": None, "x": {name: argument}}}))
        assert refusal == (15952, f"unknown group operator '{name}'")


@pytest.mark.parametrize("name", ["NOW", "CLUSTER_TIME"])
def test_variables(accounts: dict[str, WireClient], version: str, name: str) -> None:
    refusal = accounts[version].refusal(aggregate({"$addFields": {"x": f"$${name}"}}))
    assert refusal == ((0, "") if version in LATER else (17276, f"Use of undefined variable: {name}"))
    assert accounts[version].refusal(aggregate({"$addFields": {"x": "$$ROOT", "y": "$$REMOVE"}})) == (0, "")
    assert accounts[version].refusal(aggregate({"$addFields": {"x": "$$USER_ROLES"}}))[0] == 17276


@pytest.mark.parametrize(
    ("filter", "text"),
    [
        ({"a": {"$bitsAllSet": 1}}, "unknown operator: $bitsAllSet"),
        ({"a": {"$elemMatch": {"$bitsAnyClear": 1}}}, "unknown operator: $bitsAnyClear"),
        ({"$where": "true"}, "unknown top level operator: $where"),
        ({"$jsonSchema": {}}, "unknown top level operator: $jsonSchema"),
        ({"$text": {"$search": "x"}}, "unknown top level operator: $text"),
        ({"$or": [{"$sampleRate": 0.5}]}, "unknown top level operator: $sampleRate"),
        ({"p": {"$geoWithin": {"$center": [[0, 0], 1]}}}, "unknown geo specifier: $center"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value.rpartition(" ")[2],
)
def test_query_operators_that_no_version_has(
    accounts: dict[str, WireClient], version: str, filter: Document, text: str
) -> None:
    code, found = accounts[version].refusal({"find": "coll", "filter": filter})
    assert code == 2
    assert found.startswith(text)


@pytest.mark.parametrize(
    "filter",
    [
        {"a": {"$all": [1], "$size": 2, "$not": {"$mod": [7, 1]}}},
        {"s": {"$regex": "X", "$options": "i"}, "_id": {"$type": "int"}},
        {"$nor": [{"a": {"$exists": False}}], "$expr": {"$eq": ["$_id", 1]}, "$comment": "x"},
    ],
)
def test_query_operators_that_all_versions_have(
    accounts: dict[str, WireClient], version: str, filter: Document
) -> None:
    assert accounts[version].refusal({"find": "coll", "filter": filter}) == (0, "")


def test_push_all_is_still_there(accounts: dict[str, WireClient], version: str) -> None:
    client = accounts[version]
    client.command({"delete": "pushed", "deletes": [{"q": {}, "limit": 0}]})
    for values in ([1, 2], [], [3]):
        statement = {"q": {"_id": 1}, "u": {"$pushAll": {"a": values}}, "upsert": True}
        assert client.refusal({"update": "pushed", "updates": [statement]}) == (0, "")
    found = client.command({"find": "pushed"})["cursor"]["firstBatch"]
    assert found == [{"_id": 1, "a": [1, 2, 3]}]
    wrong = {"q": {"_id": 1}, "u": {"$pushAll": {"a": 1}}}
    assert client.refusal({"update": "pushed", "updates": [wrong]})[0] == 2


def test_nin_as_an_expression(accounts: dict[str, WireClient], version: str) -> None:
    """Articles: "Comparison expressions"."""
    client = accounts[version]
    for operands, expected in (([1, [1, 2]], False), ([3, [1, 2]], True), (["$_id", []], True)):
        reply = client.command(aggregate({"$limit": 1}, {"$project": {"_id": 0, "x": {"$nin": operands}}}))
        assert reply["cursor"]["firstBatch"] == [{"x": expected}]
    assert client.refusal(aggregate({"$project": {"x": {"$nin": [1, 2]}}}))[0] == 40081
    assert client.refusal(aggregate({"$project": {"x": {"$nin": [1]}}}))[0] == 16020


def test_nin_as_an_expression_is_not_mongodbs() -> None:
    nin: Document = {"x": {"$nin": [1, [1]]}}
    with mongottl.start_server() as server:
        client = WireClient(server.uri)
        refusals = [client.refusal(aggregate(stage)) for stage in ({"$project": nin}, {"$addFields": nin})]
        client.close()
    assert [code for code, _ in refusals] == [31325, 168]


def test_arrays_that_are_not_literals_compare(accounts: dict[str, WireClient], version: str) -> None:
    client = accounts[version]
    expressions: list[Document] = [
        {"$eq": ["$a", "$a"]},
        {"$in": [1, [1, 2]]},
        {"$gt": [{"$size": [[1]]}, 0]},
        {"$setEquals": [[], []]},
    ]
    for expression in expressions:
        assert client.refusal(aggregate({"$project": {"x": expression}})) == (0, "")


def test_push_all_is_not_mongodbs() -> None:
    with mongottl.start_server() as server:
        client = WireClient(server.uri)
        statement = {"q": {"_id": 1}, "u": {"$pushAll": {"a": [1]}}, "upsert": True}
        code, text = client.refusal({"update": "c", "updates": [statement]})
        client.close()
    assert (code, text.partition(".")[0]) == (9, "Unknown modifier: $pushAll")


def test_lookup_by_a_pipeline(accounts: dict[str, WireClient], version: str) -> None:
    client = accounts[version]
    plain = {"from": "coll", "localField": "a", "foreignField": "_id", "as": "x"}
    assert client.refusal(aggregate({"$lookup": plain})) == (0, "")
    by_pipeline = {"from": "coll", "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$id"]}}}], "as": "x"}
    assert client.refusal(aggregate({"$lookup": by_pipeline | {"let": {"id": "$_id"}}})) == (2, "let is not supported")
    assert client.refusal(aggregate({"$lookup": by_pipeline})) == (2, "pipeline is not supported")
    inside = aggregate({"$facet": {"x": [{"$lookup": by_pipeline | {"let": {"id": "$_id"}}}]}})
    assert client.refusal(inside) == (2, "let is not supported")


COLLATION = {"collation": {"locale": "en", "strength": 2}}


@pytest.mark.parametrize(
    "command",
    [
        {"find": "coll", **COLLATION},
        {"aggregate": "coll", "pipeline": [], "cursor": {}, **COLLATION},
        {"count": "coll", **COLLATION},
        {"distinct": "coll", "key": "a", **COLLATION},
        {"findAndModify": "coll", "query": {}, "remove": True, **COLLATION},
        {"update": "coll", "updates": [{"q": {}, "u": {"$set": {"b": 1}}, **COLLATION}]},
        {"delete": "coll", "deletes": [{"q": {"_id": 9}, "limit": 1, **COLLATION}]},
        {"create": "collated", **COLLATION},
        {"explain": {"find": "coll", **COLLATION}},
    ],
    ids=lambda command: next(iter(command)),
)
def test_there_are_no_collations(accounts: dict[str, WireClient], version: str, command: Document) -> None:
    assert accounts[version].refusal(command) == (2, "collation is not supported")


@pytest.mark.parametrize(
    "options",
    [
        {"capped": True, "size": 4096},
        {"viewOn": "coll", "pipeline": []},
        {"validator": {"a": 1}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_kinds_of_collections(accounts: dict[str, WireClient], version: str, options: Document) -> None:
    client = accounts[version]
    text = "Capped collectiosn are not supported." if "capped" in options else f"{next(iter(options))} is not supported"
    assert client.refusal({"create": "other", **options}) == (2, text)
    assert client.refusal({"create": "plain", "capped": False}) == (0, "")
    assert client.refusal({"drop": "plain"}) == (0, "")


@own_account
def test_update_pipelines(accounts: dict[str, WireClient], version: str) -> None:
    client = accounts[version]
    update = {"update": "coll", "updates": [{"q": {"_id": 9}, "u": [{"$set": {"b": 1}}]}]}
    modify = {"findAndModify": "coll", "query": {"_id": 9}, "update": [{"$set": {"b": 1}}]}
    requests: list[Document] = [update, modify, {"explain": update}, {"explain": modify}]
    for request in requests:
        assert client.refusal(request)[0] == 9
    was = client.command({"configureCosmos": {"allow": ["update-pipeline"]}}, "admin")["was"]
    for request in requests:
        assert client.refusal(request)[0] == (0 if version in LATER else 9)
    client.command({"configureCosmos": was}, "admin")
