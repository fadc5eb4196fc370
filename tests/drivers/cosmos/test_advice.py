"""What the log says about a refusal of the dialect `cosmos`: who follows it gets the command through.

Each way that an advice names by an option or an index is followed: a server that is started so takes the command.
"""

import json
import re
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import bson
import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl
from mongottl.errors import CommandError, ErrorCode
from mongottl.server.error_replies import error_reply
from tests.drivers.cosmos.test_refusals import (
    REFUSED_BY_STORES,
    RETRYABLE,
    SAMPLES,
    Client,
    Sample,
    Shop,
    filled,
    insert,
)
from tests.drivers.wire_client import WireClient
from tests.on_nodes import of_replica_set, own_fail_points, own_log

Request = Callable[[Shop, mongottl.RunningServer], object]
_OPTION = re.compile(r"--([a-z-]+) ([\w.-]*\w)")
_INDEX = re.compile(r"create the index \{(.*?)\}")
_FIELD = re.compile(r"(?:'([^']+)'|(\w+)): (-?1)")
# Options that take several values.
_LISTS = ("cosmos_allow", "cosmos_capability")


class Wire(NamedTuple):
    """As `Sample`, for versions that PyMongo does not speak to. setup: commands that are run before."""

    code: int
    request: dict[str, Any]
    setup: tuple[dict[str, Any], ...] = ()


class Refused(NamedTuple):
    """advice: of each line of the log about a refusal. details: of the error."""

    advice: list[str]
    details: dict[str, Any]


def lines_of(text: str) -> list[dict[str, Any]]:
    """The log's lines about refusals."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if line["msg"] == "Command refused"]


def attempt(
    sample: Sample | Wire, server: mongottl.RunningServer, key: list[tuple[str, int]] | None = None
) -> dict[str, Any] | None:
    """The error of a sample; None if it passes. key: of an index that is created before."""
    if isinstance(sample, Wire):
        with closing(WireClient(server.uri)) as wire:
            for command in sample.setup:
                assert wire.refusal(command, "shop") == (0, "")
            if key is not None:
                assert wire.refusal(indexed(dict(key)), "shop") == (0, "")
            reply = wire.command(sample.request, "shop")
        return None if reply["ok"] and "writeErrors" not in reply else reply
    with Client(server.uri) as client:
        sample.setup(client.shop)
        if key is not None:
            client.shop.orders.create_index(key)
        try:
            sample.request(client.shop, server)
        except OperationFailure as error:
            assert error.details is not None
            return dict(error.details)
    return None


def refused(sample: Sample | Wire, settings: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> Refused:
    """What the log and the client are told of a sample that is refused."""
    capfd.readouterr()
    with mongottl.start_server(log_format="json", **settings) as server:
        details = attempt(sample, server)
    assert details is not None
    failed = details["writeErrors"][0] if "writeErrors" in details else details
    assert failed["code"] == sample.code
    lines = lines_of(capfd.readouterr().err)
    return Refused([line["attr"]["advice"] for line in lines], details)


def follow(way: str, sample: Sample | Wire, settings: dict[str, Any]) -> None:
    """Starts a server as one way of an advice says, which takes the sample."""
    given = dict(settings)
    for option, value in _OPTION.findall(way):
        field = option.replace("-", "_")
        given[field] = (*given.get(field, ()), value) if field in _LISTS else value
    key = _INDEX.search(way)
    fields = None
    if key is not None:
        fields = [(quoted or plain, int(direction)) for quoted, plain, direction in _FIELD.findall(key[1])]
    with mongottl.start_server(**given) as server:
        assert attempt(sample, server, fields) is None, way


def follow_all(advice: str, sample: Sample | Wire, settings: dict[str, Any]) -> int:
    """Follows each way of an advice that names an option or an index; how many there are."""
    ways = [way for way in advice.rstrip(".").split(", or ") if _OPTION.search(way) or _INDEX.search(way)]
    for way in ways:
        follow(way, sample, settings)
    return len(ways)


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        pytest.param(name, sample, id=f"{name}-{number}", marks=REFUSED_BY_STORES.get(name, ()))
        for name, samples in SAMPLES.items()
        for number, sample in enumerate(samples)
    ],
)
def test_the_log_names_what_helps_and_the_reply_does_not(
    name: str, sample: Sample, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"dialect": "cosmos", "cosmos_capability": sample.capabilities}
    found = refused(sample, settings, capfd)
    [advice] = found.advice
    assert f"allow it with --cosmos-allow {name}" in advice
    assert follow_all(advice, sample, settings) >= 1
    check_reply(found.details)


def check_reply(details: dict[str, Any]) -> None:
    """Whether an error has the fields that errors have, and none of its advice."""
    if "code" in details and "ok" in details:
        assert list(details)[:4] == ["ok", "errmsg", "code", "codeName"]
        assert set(details) <= {"ok", "errmsg", "code", "codeName", "errorLabels", "$clusterTime", "operationTime"}
    for entry in details.get("writeErrors", [details]):
        assert set(entry) >= {"code", "errmsg"} and "advice" not in entry
        assert not re.search(r"--\w|create the index|allow it", entry["errmsg"])


def test_the_reply_is_the_same_with_an_advice() -> None:
    plain = CommandError(ErrorCode.BadValue, "no", {"more": 1}, ("Label",))
    advised = CommandError(ErrorCode.BadValue, "no", {"more": 1}, ("Label",), advice="do this")
    assert bson.encode(error_reply(advised)) == bson.encode(error_reply(plain))


class Case:
    """advice: has these words. settings: besides the dialect."""

    def __init__(self, sample: Sample | Wire, advice: str, **settings: Any) -> None:
        self.sample = sample
        self.advice = advice
        self.settings = settings


def sorted_by(*fields: tuple[str, int], **filter: Any) -> Request:
    return lambda shop, server: list(shop.orders.find(filter).sort(list(fields)))


def retried(shop: Shop, server: mongottl.RunningServer) -> None:
    with Client(server.uri, retryWrites=True) as client:
        client.shop.things.insert_one({"_id": 1})


def with_unique(shop: Shop) -> None:
    action = {"customAction": "CreateCollection", "collection": "orders"}
    indexes = [{"key": {"_id": 1}, "name": "_id_1"}, {"key": {"a": 1}, "name": "a_1", "unique": True}]
    shop.command({**action, "indexes": indexes})


def metered(shop: Shop) -> None:
    """A collection with little throughput, of which some is used."""
    shop.command({"customAction": "CreateCollection", "collection": "orders", "offerThroughput": 400})


def spent(shop: Shop, server: mongottl.RunningServer) -> None:
    """More than 400 request units in a second of a clock that stands still."""
    for number in range(4):
        shop.orders.insert_one({"_id": number, "text": "x" * 100_000})


def wire(code: int, *commands: dict[str, Any]) -> Wire:
    return Wire(code, commands[-1], commands[:-1])


def pipeline(*stages: dict[str, Any]) -> dict[str, Any]:
    return {"aggregate": "orders", "pipeline": list(stages), "cursor": {}}


def indexed(key: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"createIndexes": "orders", "indexes": [{"key": key, "name": "x", **options}]}


def found(filter: dict[str, Any], **fields: Any) -> Wire:
    return wire(2, {"find": "orders", "filter": filter, **fields})


ONE = {"insert": "orders", "documents": [{"_id": 1, "a": [1]}]}
DATE_TTL = indexed({"a": 1}, expireAfterSeconds=60)
REPLACED = {"update": "orders", "updates": [{"q": {}, "u": [{"$set": {"a": 1}}]}]}
GRAPH = {"from": "orders", "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "all"}
ANY_WITH_CONDITION = pipeline({"$match": {"a": 1}}, {"$limit": 1}, {"$project": {"_id": 0, "v": None}})
RANKED = {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"n": {"$rank": {}}}}}
RETRIED = {
    "insert": "orders",
    "documents": [{"_id": 2}],
    "lsid": {"id": bson.Binary(b"1" * 16, 4)},
    "txnNumber": bson.Int64(1),
}
WAYS = {
    "retryable-write": Case(Sample(2, retried), f"set --cosmos-capability {RETRYABLE}."),
    "retryable-write-3.6": Case(wire(2, RETRIED), f"{RETRYABLE} and --server-version 4.0.", server_version="3.6"),
    "large-document": Case(Sample(16, insert({"text": "x" * 3_000_000})), "EnableMongo16MBDocumentSupport"),
    "ttl": Case(wire(2, DATE_TTL), "set --cosmos-capability EnableTtlOnCustomPath."),
    "ttl-4.0": Case(wire(2, DATE_TTL), "EnableTtlOnCustomPath and --server-version 4.2.", server_version="4.0"),
    "ttl-continuous": Case(
        wire(2, DATE_TTL), "EnableTtlOnCustomPath and --cosmos-backup periodic.", cosmos_backup="continuous"
    ),
    "nested-index": Case(wire(115, indexed({"a.b": 1, "c": 1})), "EnableUniqueCompoundNestedDocs"),
    "partial-unique": Case(
        wire(115, indexed({"a": 1}, unique=True, partialFilterExpression={"b": 1})),
        "set --cosmos-capability EnablePartialUniqueIndex, or allow it with --cosmos-allow index-kinds.",
    ),
    "frozen-index": Case(
        wire(13, ONE, indexed({"a": 1}, unique=True)), "late-unique-index", cosmos_backup="continuous"
    ),
    "frozen-drop": Case(
        Sample(13, lambda shop, server: shop.orders.drop_index("a_1"), with_unique),
        "set --cosmos-backup periodic.",
        cosmos_backup="continuous",
    ),
    "wildcard-4.2": Case(
        wire(67, indexed({"a": 1, "b.$**": 1})), "index-kinds and --server-version 7.0.", server_version="4.2"
    ),
    "projection-4.0": Case(
        wire(40415, indexed({"$**": 1}, wildcardProjection={"a": 1})),
        "index-kinds and --server-version 4.2.",
        server_version="4.0",
    ),
    "time-series-4.0": Case(
        wire(40415, {"create": "points", "timeseries": {"timeField": "at"}}),
        "missing-features and --server-version 5.0.",
        server_version="4.0",
    ),
    "hashed-4.2": Case(
        wire(115, indexed({"a": 1, "b": "hashed"})), "index-kinds and --server-version 5.0.", server_version="4.2"
    ),
    "sort-downward": Case(Sample(2, sorted_by(("a", -1)), filled), "create the index {a: -1}, or"),
    "sort-several": Case(Sample(2, sorted_by(("a", 1), ("b", -1)), filled), "create the index {a: 1, b: -1}, or"),
    "sort-path": Case(Sample(2, sorted_by(("a.b", 1)), filled), "create the index {'a.b': 1}, or"),
    "sort-nested": Case(
        Sample(2, sorted_by(("a.b", 1), ("c", 1)), filled),
        "set --cosmos-capability EnableUniqueCompoundNestedDocs and create the index {'a.b': 1, c: 1}, or",
    ),
    "sort-beside": Case(
        Sample(2, sorted_by(("a", 1), ("b", 1), t=5), lambda shop: shop.orders.create_index([("a", 1), ("b", 1)])),
        "create the index {t: 1, a: 1, b: 1}, or",
        cosmos_refuse=("filtered-compound-sort",),
    ),
    "sort-wide": Case(
        Sample(2, sorted_by(*((f"f{n}", 1) for n in range(9))), filled), "No index can serve this sort: allow"
    ),
    "sort-deep": Case(Sample(2, sorted_by(("a.b.c.d.e.f.g", 1)), filled), "No index can serve this sort: allow"),
    "sort-dollar": Case(wire(2, ONE, pipeline({"$sort": {"$a": 1}})), "No index can serve this sort: allow"),
    "sort-in-pipeline": Case(wire(2, ONE, pipeline({"$sort": {"a": 1}})), "create the index {a: 1}, or"),
    "distinct": Case(
        Sample(
            17217,
            lambda shop, server: shop.orders.distinct("text"),
            lambda shop: [shop.orders.insert_one({"text": str(n) + "x" * 1_500_000}) for n in range(4)],
        ),
        "size-limits",
    ),
    "hostInfo": Case(wire(115, {"hostInfo": 1}), "--cosmos-allow hostInfo.", server_version="3.6"),
    "null-projection": Case(wire(1, ANY_WITH_CONDITION), "--cosmos-allow null-projection.", server_version="4.2"),
    "stage-before": Case(
        wire(40324, pipeline({"$graphLookup": GRAPH})), "missing-features, or set --server-version 4.0."
    ),
    "stage-later": Case(
        wire(40324, ONE, pipeline({"$merge": "copies"})),
        "missing-features and --server-version 4.2, or set --server-version 4.2.",
        server_version="3.6",
    ),
    "stage-unlisted": Case(
        wire(40324, pipeline({"$unionWith": "orders"})),
        "missing-features and --server-version 5.0.",
        server_version="4.2",
    ),
    "expression": Case(
        wire(168, ONE, pipeline({"$set": {"b": {"$bitAnd": [1, 3]}}})), "--server-version 7.0.", server_version="6.0"
    ),
    "projection": Case(
        wire(31325, ONE, {"find": "orders", "projection": {"b": {"$sortArray": {"input": "$a", "sortBy": 1}}}}),
        "the expression $sortArray",
    ),
    "accumulator": Case(
        wire(15952, ONE, pipeline({"$group": {"_id": None, "n": {"$count": {}}}})), "the accumulator $count"
    ),
    "window-function": Case(wire(40324, ONE, pipeline(RANKED)), "the stage $setWindowFields"),
    "variable": Case(wire(17276, ONE, pipeline({"$addFields": {"at": "$$NOW"}})), "NOW", server_version="4.0"),
    "shape": Case(found({"a": {"$geoWithin": {"$box": [[0, 0], [1, 1]]}}}), "the geospatial shape $box"),
    "operator": Case(found({"a": {"$bitsAllSet": 1}}), "the query operator $bitsAllSet"),
    "option": Case(
        wire(40415, {"find": "orders", "let": {"a": 1}}), "set --server-version 5.0 or later.", server_version="4.2"
    ),
    "update-pipeline-4.0": Case(
        wire(9, ONE, REPLACED), "--cosmos-allow update-pipeline and --server-version 4.2.", server_version="4.0"
    ),
    "throughput": Case(Sample(16500, spent, metered), "--cosmos-throughput metered", cosmos_throughput="enforced"),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in WAYS.items()])
def test_each_way_of_an_advice_helps(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    settings = {"dialect": "cosmos", **case.settings}
    found = refused(case.sample, settings, capfd)
    [advice] = found.advice
    assert case.advice in advice
    assert follow_all(advice, case.sample, settings) >= 1
    check_reply(found.details)


@pytest.mark.parametrize(
    ("name", "sample", "advice"),
    [
        ("hello", wire(115, {"hello": 1}), "Some accounts have no hello: use isMaster"),
        ("missing-collection", wire(26, {"find": "orders"}), "There is no such collection: create it first"),
    ],
)
def test_advice_on_optional_refusals_names_cosmos_refuse(
    name: str, sample: Wire, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """To allow it as well is an error of settings."""
    found = refused(sample, {"dialect": "cosmos", "cosmos_refuse": (name,)}, capfd)
    assert found.advice == [f"{advice}, or take {name} out of --cosmos-refuse."]
    with mongottl.start_server(dialect="cosmos") as server:
        assert attempt(sample, server) is None


@pytest.mark.parametrize(
    ("version", "sample", "advice"),
    [
        (
            "4.2",
            wire(40324, pipeline({"$unionWith": "orders"})),
            "MongoDB has the stage $unionWith since 4.4: set --server-version 4.4 or later.",
        ),
        (
            "5.0",
            wire(40324, {"aggregate": 1, "pipeline": [{"$documents": []}], "cursor": {}}),
            "MongoDB has the stage $documents since 5.1: set --server-version 6.0 or later.",
        ),
        (
            "4.0",
            wire(9, ONE, REPLACED),
            "MongoDB has updates by a pipeline since 4.2: set --server-version 4.2 or later.",
        ),
        (
            "4.2",
            wire(40415, {"find": "orders", "let": {"a": 1}}),
            "MongoDB has find.let since 5.0: set --server-version 5.0 or later.",
        ),
        (
            "4.4",
            wire(40415, {"ping": 1, "apiVersion": "1"}),
            "MongoDB has apiVersion since 5.0: set --server-version 5.0 or later.",
        ),
        (
            "4.4",
            wire(2, {"insert": "orders", "documents": [{"$a": 1}]}),
            "MongoDB has stored fields that begin with $ since 5.0: set --server-version 5.0 or later.",
        ),
        (
            "4.4",
            wire(52, ONE, {"update": "orders", "updates": [{"q": {}, "u": {"$set": {"b": {"$c": 1}}}}]}),
            "MongoDB has stored fields that begin with $ since 5.0: set --server-version 5.0 or later.",
        ),
        (
            "5.0",
            wire(2, pipeline({"$changeStream": {"fullDocument": "whenAvailable"}})),
            "MongoDB has post-images in change streams since 6.0: set --server-version 6.0 or later.",
        ),
        (
            "3.6",
            wire(334, {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=ann,r=abc"}),
            "MongoDB has the login mechanism SCRAM-SHA-256 since 4.0: set --server-version 4.0 or later.",
        ),
        pytest.param(
            "6.0",
            wire(48, {"create": "orders"}, {"create": "orders"}),
            "MongoDB has create of what exists with the same options since 7.0: set --server-version 7.0 or later.",
            marks=of_replica_set,  # a mongos has it since 4.0
        ),
        (
            "6.0",
            wire(67, indexed({"a": 1, "b.$**": 1})),
            "MongoDB has compound wildcard indexes since 7.0: set --server-version 7.0 or later.",
        ),
        (
            "4.4",
            wire(59, {"moveRange": "shop.orders"}),
            "mongottl does not support it, either: no setting changes that.",
        ),
    ],
)
def test_an_announced_version_that_lacks_something(
    version: str, sample: Wire, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found = refused(sample, {"server_version": version}, capfd)
    assert found.advice == [advice]
    if "saslStart" not in sample.request:  # which there is no user for
        follow_all(advice, sample, {})
    check_reply(found.details)


@pytest.mark.parametrize(
    ("sample", "advice"),
    [
        (wire(115, {"replSetFreeze": 1}), "mongottl does not support it, either: no setting changes that."),
        (wire(40324, pipeline({"$search": {}})), "mongottl does not support it, either: no setting changes that."),
        (wire(115, {"atlasVersion": 1}), None),
        (found({"a": {"$no": 1}}), None),
        (wire(115, indexed({"a": "no"})), None),
        (
            wire(115, {"bulkWrite": 1, "ops": [], "nsInfo": []}),
            "Cosmos DB 7.0 does not have the command bulkWrite: no setting changes that.",
        ),
        (
            wire(2, {"customAction": "CreateCollection", "collection": "orders", "offerThroughput": 1}),
            "MongoDB has no such command to fall back on: no setting changes that.",
        ),
    ],
)
def test_errors_of_mongodb_have_no_advice(sample: Wire, advice: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    """What MongoDB does not have either is an error, and no refusal."""
    found = refused(sample, {"dialect": "cosmos"}, capfd)
    assert found.advice == ([] if advice is None else [advice])


@own_log
def test_a_line_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    """It is a warning, which a quiet server logs, too, and comes once for what is repeated."""
    with mongottl.start_server(dialect="cosmos", log_format="json") as server, Client(server.uri) as client:
        for name in ("orders", "orders", "carts"):
            for _ in range(20):
                client.shop[name].insert_one({})
                with pytest.raises(OperationFailure):
                    list(client.shop[name].find().sort("at"))
        with pytest.raises(OperationFailure):
            client.shop.carts.insert_many([{"_id": "x" * 1024}, {"_id": "y" * 1024}, {"_id": 1}], ordered=False)
    lines = lines_of(capfd.readouterr().err)
    assert [line["s"] for line in lines] == ["W"] * 3
    assert [line["attr"] for line in lines] == [
        *(
            {
                "command": "find",
                "ns": namespace,
                "error": "BadValue",
                "advice": "No index serves this sort: create the index {at: 1}, or allow it with --cosmos-allow"
                " sort-without-index.",
            }
            for namespace in ("shop.orders", "shop.carts")
        ),
        {
            "command": "insert",
            "ns": "shop.carts",
            "error": "BadValue",
            "advice": "The _id has more than 1023 bytes: allow it with --cosmos-allow size-limits.",
        },
    ]


def test_a_read_only_key(capfd: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shop", log_format="json") as server:
        assert server.read_only_uri is not None
        with Client(server.read_only_uri) as client, pytest.raises(OperationFailure) as caught:
            client.shop.orders.insert_one({})
    assert caught.value.code == 13
    [line] = lines_of(capfd.readouterr().err)
    assert line["attr"]["advice"] == ("The client has logged in with the read-only key: use the account's other key.")


@own_fail_points
def test_a_fail_point(capfd: pytest.CaptureFixture[str]) -> None:
    """Statements of a batch that fail are told as commands are."""
    with (
        mongottl.start_server(dialect="cosmos", log_format="json") as server,
        Client(server.uri) as client,
        server.throttle("insert", times=2),
        pytest.raises(pymongo.errors.BulkWriteError),
    ):
        client.shop.orders.insert_many([{"_id": 1}, {"_id": 2}], ordered=False)
    [line] = lines_of(capfd.readouterr().err)
    assert line["attr"]["command"] == "insert" and line["attr"]["ns"] == "shop.orders"
    assert line["attr"]["advice"] == "The fail point cosmosThrottle is set: switch it off by configureFailPoint."
