import re
from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.exec.results.output import STAMPED_PER_STEP
from mongottl.exec.write.expiry import reap_due
from tests.running import Document, Running
from tests.steps import run_to_end


@pytest.fixture
def server() -> Running:
    running = Running()
    running.run({"insert": "source", "documents": [{"_id": 1, "a": 10}, {"_id": 2, "a": 20}]})
    return running


def aggregate(server: Running, *stages: object, **options: object) -> Document:
    return server.run({"aggregate": "source", "pipeline": list(stages), "cursor": {}, **options})


def refusal(server: Running, *stages: object) -> int:
    return server.refusal({"aggregate": "source", "pipeline": list(stages), "cursor": {}}).code


def found(server: Running, name: str = "target", database: str = "test") -> list[Document]:
    reply = server.run({"find": name, "sort": {"_id": 1}}, database)
    documents: list[Document] = reply["cursor"]["firstBatch"]
    return documents


def names(server: Running, database: str = "test") -> list[str]:
    reply = server.run({"listCollections": 1, "nameOnly": True}, database)
    return [entry["name"] for entry in reply["cursor"]["firstBatch"]]


def test_out_gives_an_empty_cursor_and_a_collection(server: Running) -> None:
    reply = aggregate(server, {"$match": {"_id": 2}}, {"$out": "target"})
    assert reply["cursor"]["firstBatch"] == []
    assert reply["cursor"]["id"] == 0
    assert found(server) == [{"_id": 2, "a": 20}]
    assert names(server) == ["source", "target"]


def test_out_of_nothing_makes_an_empty_collection(server: Running) -> None:
    aggregate(server, {"$match": {"_id": 9}}, {"$out": {"db": "other", "coll": "target"}})
    assert names(server, "other") == ["target"]
    assert found(server, "target", "other") == []


def test_out_replaces_documents_and_keeps_indexes(server: Running) -> None:
    server.run({"insert": "target", "documents": [{"_id": 5, "a": 1}]})
    index = {"key": {"a": 1}, "name": "a_1", "unique": True}
    server.run({"createIndexes": "target", "indexes": [index]})
    aggregate(server, {"$out": "target"})
    assert found(server) == [{"_id": 1, "a": 10}, {"_id": 2, "a": 20}]
    indexes = server.run({"listIndexes": "target"})["cursor"]["firstBatch"]
    assert [entry["name"] for entry in indexes] == ["_id_", "a_1"]
    assert found(server, "target") == [{"_id": 1, "a": 10}, {"_id": 2, "a": 20}]


def test_out_that_fails_leaves_everything_as_it_was(server: Running) -> None:
    server.run({"insert": "target", "documents": [{"_id": 5, "b": 1}]})
    server.run({"createIndexes": "target", "indexes": [{"key": {"b": 1}, "name": "b_1", "unique": True}]})
    with pytest.raises(CommandError) as caught:
        aggregate(server, {"$set": {"b": 7}}, {"$out": "target"})
    assert caught.value.code == 11000
    # The collection that mongod fills first, too, and of which it tells.
    where = r"test\.tmp\.agg_out\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12} index: b_1 dup key: \{ b: 7 \}"
    assert re.fullmatch(rf"E11000 duplicate key error collection: {where}", caught.value.message)
    assert found(server) == [{"_id": 5, "b": 1}]
    assert names(server) == ["source", "target"]


def test_out_to_its_own_source(server: Running) -> None:
    aggregate(server, {"$set": {"b": 1}}, {"$out": "source"})
    assert found(server, "source") == [{"_id": 1, "a": 10, "b": 1}, {"_id": 2, "a": 20, "b": 1}]


def test_out_keeps_the_lifetime_of_documents(server: Running) -> None:
    server.run({"insert": "target", "documents": [{"_id": 5}]})
    index = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10}
    server.run({"createIndexes": "target", "indexes": [index]})
    aggregate(server, {"$out": "target"})
    assert len(found(server)) == 2
    server.clock.advance(20)
    assert found(server) == []


OWN_TTLS: list[int | None] = [None, None, 2, -1, 7]


def filled_for_out(default_s: int, count: int) -> Running:
    """A server whose `target` has a TTL; the documents of its `source` have none or one of OWN_TTLS."""
    running = Running()
    running.run({"insert": "target", "documents": [{"_id": "old", "ttl": -1}]})
    running.index({"_ts": 1}, on="target", expireAfterSeconds=default_s)
    documents: list[Document] = []
    for i in range(count):
        ttl = OWN_TTLS[i % len(OWN_TTLS)]
        documents.append({"_id": i} if ttl is None else {"_id": i, "ttl": ttl})
    if documents:
        running.insert(*documents, into="source")
    return running


@pytest.mark.parametrize("default_s", [1, 10, -1])
def test_documents_of_out_count_from_when_they_appear(default_s: int) -> None:
    count = STAMPED_PER_STEP - 1
    running = filled_for_out(default_s, count)
    taken_s = 0
    steps = running.steps({"aggregate": "source", "pipeline": [{"$out": "target"}], "cursor": {}})
    for _ in steps:
        running.advance(1)
        taken_s += 1
        reap_due(running.service)
        if taken_s % 3 == 1:
            assert running.listed({"find": "target"}) == [{"_id": "old", "ttl": -1}]
    assert taken_s > 5
    assert running.ids("target") == list(range(count))
    # From now on each one lives as long as one that is written now.
    for age_s in range(12):
        alive = [i for i in range(count) if lives(OWN_TTLS[i % len(OWN_TTLS)], default_s, age_s)]
        assert running.ids("target") == alive
        reap_due(running.service)
        assert running.collection("target").store.count() == len(alive)
        running.advance(1)


def lives(own_s: int | None, default_s: int, age_s: int) -> bool:
    ttl_s = default_s if own_s is None else own_s
    return ttl_s == -1 or age_s < ttl_s


def test_the_clock_may_move_while_out_sets_ts_again() -> None:
    count = 3 * STAMPED_PER_STEP
    running = filled_for_out(60, 0)
    running.insert(*({"_id": i} for i in range(count)), into="source")
    steps = running.steps({"aggregate": "source", "pipeline": [{"$out": "target"}], "cursor": {}})
    for _ in steps:
        running.advance(1)
    assert len(running.ids("target")) == count
    now_s = running.clock.now_ms() // 1000
    records, _ = running.collection("target").store.scan(0, count)
    # One second for each step, and one for the end of the scan.
    assert sorted({record[2] for record in records}) == [now_s - 3, now_s - 2, now_s - 1]


def test_a_ttl_that_changes_during_out_refuses_it() -> None:
    running = filled_for_out(10, 300)
    steps = running.steps({"aggregate": "source", "pipeline": [{"$out": "target"}], "cursor": {}})
    for _ in range(3):
        next(steps)
    index = {"keyPattern": {"_ts": 1}, "expireAfterSeconds": 20}
    running.run({"collMod": "target", "index": index})
    with pytest.raises(CommandError) as refused:
        run_to_end(steps)
    assert refused.value.code == 125
    assert running.ids("target") == ["old"]
    assert names(running) == ["source", "target"]


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (42, 16990),
        ([], 16990),
        ("", 73),
        (".a", 73),
        ("system.x", 17385),
        ({"db": "admin", "coll": "x"}, 31321),
        ({"db": "a b", "coll": "x"}, 73),
        ({"coll": "x"}, 40414),
        ({"db": None, "coll": "x"}, 40414),
        ({"db": 1, "coll": "x"}, 14),
        ({"db": "test", "coll": "x", "more": 1}, 40415),
        ({"db": "test", "coll": "x", "timeseries": 1}, 14),
        ({"db": "test", "coll": "x", "timeseries": {}}, 40414),
        ({"db": "test", "coll": "source", "timeseries": {"timeField": "t"}}, 7268700),
        ("x" * 300, 20),
    ],
)
def test_out_refuses(server: Running, argument: object, code: int) -> None:
    assert refusal(server, {"$out": argument}) == code
    assert names(server) == ["source"]


@pytest.mark.parametrize("name", ["$out", "$merge"])
def test_only_as_the_last_stage(server: Running, name: str) -> None:
    assert refusal(server, {name: "target"}, {"$limit": 1}) == 40601
    assert refusal(server, {"$unionWith": {"coll": "source", "pipeline": [{name: "target"}]}}) == 31441
    assert names(server) == ["source"]


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ({}, [{"_id": 1, "x": 9, "a": 10}, {"_id": 2, "a": 20}]),
        ({"whenMatched": "replace"}, [{"_id": 1, "a": 10}, {"_id": 2, "a": 20}]),
        ({"whenMatched": "keepExisting"}, [{"_id": 1, "x": 9, "a": 0}, {"_id": 2, "a": 20}]),
        ({"whenNotMatched": "discard"}, [{"_id": 1, "x": 9, "a": 10}]),
        ({"whenMatched": [{"$set": {"n": "$$new.a"}}]}, [{"_id": 1, "x": 9, "a": 0, "n": 10}, {"_id": 2, "a": 20}]),
        (
            {"whenMatched": [{"$set": {"n": "$$v"}}], "let": {"v": {"$add": ["$a", 1]}}, "whenNotMatched": "discard"},
            [{"_id": 1, "x": 9, "a": 0, "n": 11}],
        ),
    ],
)
def test_merge_modes(server: Running, modes: Document, expected: list[Document]) -> None:
    server.run({"insert": "target", "documents": [{"_id": 1, "x": 9, "a": 0}]})
    assert aggregate(server, {"$merge": {"into": "target", **modes}})["cursor"]["firstBatch"] == []
    assert [bson.encode(document) for document in found(server)] == [bson.encode(document) for document in expected]


@pytest.mark.parametrize(
    ("modes", "code", "expected"),
    [
        ({"whenMatched": "fail"}, 11000, [{"_id": 1, "x": 9}, {"_id": 2, "a": 20}]),
        ({"whenNotMatched": "fail"}, 13113, [{"_id": 1, "x": 9, "a": 10}]),
        (
            # A variable without a value is not defined, whether or not a document matches.
            {"whenMatched": [{"$set": {"n": "$$v"}}], "let": {"v": "$none"}},
            17276,
            [{"_id": 1, "x": 9}],
        ),
        ({"whenMatched": [{"$set": {"_id": 7}}]}, 66, [{"_id": 1, "x": 9}, {"_id": 2, "a": 20}]),
    ],
)
def test_merge_writes_what_can_be_written_and_then_fails(
    server: Running, modes: Document, code: int, expected: list[Document]
) -> None:
    server.run({"insert": "target", "documents": [{"_id": 1, "x": 9}]})
    assert refusal(server, {"$merge": {"into": "target", **modes}}) == code
    assert found(server) == expected


@pytest.mark.parametrize("otherwise", ["insert", "discard", "fail"])
@pytest.mark.parametrize(
    ("pipeline", "code"),
    [([{"$sort": {"a": 1}}], 72), ([{"$unheardOf": 1}], 40324), ([{"$set": {"a": {"$unheardOf": 1}}}], 168)],
    ids=["stage", "unknown stage", "unknown expression"],
)
def test_merge_checks_its_pipeline_also_where_nothing_matches(
    server: Running, pipeline: list[Document], code: int, otherwise: str
) -> None:
    """As mongo-java-server's tests have it, which run against MongoDB. Without results nothing is checked."""
    stage = {"$merge": {"into": "target", "whenMatched": pipeline, "whenNotMatched": otherwise}}
    assert refusal(server, stage) == code
    server.run({"create": "target"})
    assert refusal(server, stage) == code
    assert found(server) == []
    assert aggregate(server, {"$match": {"_id": "none"}}, stage)["cursor"]["firstBatch"] == []


def test_merge_on_other_fields_needs_a_unique_index(server: Running) -> None:
    stage = {"$merge": {"into": "target", "on": ["k", "a"], "whenMatched": "merge"}}
    server.run({"insert": "target", "documents": [{"_id": 7, "a": 10, "k": 1}]})
    prepare: tuple[Document, ...] = ({"$unset": "_id"}, {"$set": {"k": 1, "new": True}})
    assert refusal(server, *prepare, stage) == 51183
    server.run({"createIndexes": "target", "indexes": [{"key": {"a": -1, "k": 1}, "name": "i", "unique": True}]})
    aggregate(server, *prepare, stage)
    documents = found(server)
    assert documents[0] == {"_id": 7, "a": 10, "k": 1, "new": True}
    assert isinstance(documents[1]["_id"], bson.ObjectId)
    assert refusal(server, {"$set": {"k": [1]}}, stage) == 51185


def test_merge_takes_expired_documents_for_absent(server: Running) -> None:
    server.run({"insert": "target", "documents": [{"_id": 1, "x": 9}]})
    index = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10}
    server.run({"createIndexes": "target", "indexes": [index]})
    server.clock.advance(20)
    aggregate(server, {"$merge": "target"})
    assert found(server) == [{"_id": 1, "a": 10}, {"_id": 2, "a": 20}]


def test_merge_restarts_lifetimes(server: Running) -> None:
    server.run({"insert": "target", "documents": [{"_id": 1, "x": 9}]})
    index = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10}
    server.run({"createIndexes": "target", "indexes": [index]})
    server.clock.advance(8)
    aggregate(server, {"$match": {"_id": 1}}, {"$merge": "target"})
    server.clock.advance(8)
    assert found(server) == [{"_id": 1, "x": 9, "a": 10}]


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (1, 14),
        ("", 73),
        ({}, 40414),
        ({"into": ""}, 5786800),
        ({"into": None}, 51178),
        ({"into": {"db": "x"}}, 5786801),
        ({"into": {"db": 1, "coll": "x"}}, 14),
        ({"into": "system.x"}, 31319),
        ({"into": {"db": "local", "coll": "x"}}, 31320),
        ({"into": "x", "on": 1}, 51186),
        ({"into": "x", "on": []}, 51187),
        ({"into": "x", "on": [1]}, 51134),
        ({"into": "x", "on": ["a", "a"]}, 31465),
        ({"into": "x", "whenMatched": 1}, 51191),
        ({"into": "x", "whenMatched": "Merge"}, 2),
        ({"into": "x", "whenMatched": [1]}, 14),
        ({"into": "x", "whenNotMatched": "no"}, 2),
        ({"into": "x", "whenNotMatched": 1}, 14),
        ({"into": "x", "let": {}}, 51199),
        ({"into": "x", "let": 1}, 14),
        ({"into": "x", "whenMatched": [], "let": {"new": 1}}, 51273),
        ({"into": "x", "whenMatched": "fail", "whenNotMatched": "discard"}, 51181),
        ({"into": "x", "more": 1}, 40415),
    ],
)
def test_merge_refuses(server: Running, argument: Any, code: int) -> None:
    assert refusal(server, {"$merge": argument}) == code
    assert names(server) == ["source"]


def test_explain_checks_but_does_not_write(server: Running) -> None:
    aggregate(server, {"$merge": "target"}, explain=True)
    aggregate(server, {"$out": "target"}, explain=True)
    assert names(server) == ["source"]
    for stage in ({"$merge": "target"}, {"$out": "target"}):
        explained = {"aggregate": "source", "pipeline": [stage], "cursor": {}}
        for verbosity in ("executionStats", "allPlansExecution"):
            assert server.refusal({"explain": explained, "verbosity": verbosity}).code == 51029
        server.run({"explain": explained, "verbosity": "queryPlanner"})
    assert names(server) == ["source"]
    refused = {"$merge": {"into": "target", "on": "a"}}
    assert server.refusal({"aggregate": "source", "pipeline": [refused], "explain": True}).code == 51183
