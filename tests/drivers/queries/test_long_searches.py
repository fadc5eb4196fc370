"""Regular expressions that take long: other clients are answered meanwhile, and what ends an operation ends them."""

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl

Documents = dict[str, Any]
PATIENCE_S = 60.0
# The library goes through the text once for each of its characters: it takes 20 minutes for this one.
TEXT = "a" * 1_000_000
PATTERN = "(?=.*b)a"
FIND = {"input": "$t", "regex": PATTERN}
# A search of this goes a million steps back from most places, which takes ten seconds, but is not too much for any.
LONG = ("a" * 20 + "X") * 1_000


@pytest.fixture
def db() -> Iterator[Database[Documents]]:
    with mongottl.start_server() as server, MongoClient[Documents](server.uri) as client:
        client.test.c.insert_one({"_id": 1, "t": TEXT})
        yield client.test


@pytest.mark.parametrize(
    "command",
    [
        {"find": "c", "filter": {"t": {"$regex": PATTERN}}},
        {"find": "c", "filter": {"$expr": {"$regexMatch": FIND}}},
        {"count": "c", "query": {"$or": [{"t": {"$regex": PATTERN}}, {"t": 1}]}},
        {"distinct": "c", "key": "_id", "query": {"t": {"$regex": PATTERN}}},
        {"update": "c", "updates": [{"q": {"t": {"$regex": PATTERN}}, "u": {"$set": {"x": 1}}}]},
        {
            "update": "c",
            "updates": [{"q": {}, "u": [{"$set": {"x": {"$regexFind": {"input": "$t", "regex": PATTERN}}}}]}],
        },
        {"update": "c", "updates": [{"q": {}, "u": {"$pull": {"array": {"$regex": PATTERN}}}}]},
        {"delete": "c", "deletes": [{"q": {"t": {"$regex": PATTERN}}, "limit": 1}]},
        {"findAndModify": "c", "query": {"t": {"$regex": PATTERN}}, "update": {"$set": {"x": 1}}},
        {"aggregate": "c", "pipeline": [{"$group": {"_id": {"$regexFindAll": FIND}}}]},
        {"insert": "checked", "documents": [{"t": TEXT}]},
        {"insert": "schema", "documents": [{"t": TEXT}]},
    ],
    ids=lambda command: next(iter(command)),
)
def test_a_time_limit_ends_it_while_others_are_answered(db: Database[Documents], command: Documents) -> None:
    db.create_collection("checked", validator={"t": {"$regex": PATTERN}})
    db.create_collection("schema", validator={"$jsonSchema": {"properties": {"t": {"pattern": PATTERN}}}})
    db.c.update_one({}, {"$set": {"array": [TEXT]}})
    codes: list[int | None] = []

    def run() -> None:
        try:
            db.command({**command, "maxTimeMS": 1_000, **({"cursor": {}} if "aggregate" in command else {})})
        except OperationFailure as failure:
            codes.append(failure.code)

    running = threading.Thread(target=run)
    running.start()
    answered = 0
    while running.is_alive():
        db.command("ping")
        answered += 1
    assert codes == [50]
    assert answered >= 10  # a search of one second would let one be answered before, and one after it


def test_killop_ends_it(db: Database[Documents]) -> None:
    codes: list[int | None] = []

    def run() -> None:
        try:
            list(db.c.find({"t": {"$regex": PATTERN}}, comment="long"))
        except OperationFailure as failure:
            codes.append(failure.code)

    running = threading.Thread(target=run)
    running.start()
    number = None
    while number is None:
        for operation in db.client.admin.command("currentOp")["inprog"]:
            if operation.get("command", {}).get("comment") == "long":
                number = operation["opid"]
    db.client.admin.command("killOp", op=number)
    running.join(PATIENCE_S)
    assert codes == [11601]


def test_more_searches_than_processes(db: Database[Documents]) -> None:
    """Those of one client have half of the processes; another one's are answered meanwhile."""
    codes: list[int | None] = []

    def run() -> None:
        try:
            list(db.c.find({"t": {"$regex": PATTERN}}, max_time_ms=3_000))
        except OperationFailure as failure:
            codes.append(failure.code)

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    db.d.insert_one({"t": "ab" * 5_000})
    assert db.d.count_documents({"t": {"$regex": "ab"}}) == 1
    for thread in threads:
        thread.join(PATIENCE_S)
    assert codes == [50] * 20
    # The processes are free again.
    assert db.d.count_documents({"t": {"$regex": "b.*b"}}) == 1


def test_the_server_stops_meanwhile() -> None:
    with mongottl.start_server() as server:
        client: MongoClient[Documents] = MongoClient(server.uri)
        client.test.c.insert_one({"_id": 1, "t": TEXT})
        failures: list[Exception] = []

        def run() -> None:
            try:
                list(client.test.c.find({"t": {"$regex": PATTERN}}, comment="long"))
            except Exception as failure:
                failures.append(failure)

        running = threading.Thread(target=run)
        running.start()
        while not any(
            operation.get("command", {}).get("comment") == "long"
            for operation in client.admin.command("currentOp")["inprog"]
        ):
            pass
    running.join(PATIENCE_S)
    client.close()
    assert len(failures) == 1


@pytest.mark.parametrize("count", [10, 20_000])
def test_all_matches(db: Database[Documents], count: int) -> None:
    db.words.insert_one({"t": "héllo wörld " * count})
    words = {"$regexFindAll": {"input": "$t", "regex": "(\\w)\\w* *"}}
    found: list[Documents] = next(iter(db.words.aggregate([{"$project": {"found": words}}])))["found"]
    assert found[:5] == [
        {"match": "h", "idx": 0, "captures": ["h"]},
        {"match": "llo ", "idx": 2, "captures": ["l"]},
        {"match": "w", "idx": 6, "captures": ["w"]},
        {"match": "rld ", "idx": 8, "captures": ["r"]},
        {"match": "h", "idx": 12, "captures": ["h"]},
    ]
    assert len(found) == 4 * count
    assert found[-1]["idx"] == 12 * count - 4


@pytest.mark.parametrize(
    "search",
    [
        lambda c: c.find({"t": {"$regex": "x.*yz"}}),
        lambda c: c.find({"t": {"$regex": "x.*yz"}, "k": {"$gte": 0}}),
        lambda c: c.find({"$or": [{"t": {"$regex": "x.*yz"}}, {"t": {"$regex": "x.*yzz"}}]}),
        lambda c: c.aggregate([{"$match": {"t": {"$regex": "x.*yz"}}}]),
        lambda c: c.aggregate([{"$match": {"$expr": {"$regexMatch": {"input": "$t", "regex": "x.*yz"}}}}]),
    ],
    ids=["find", "index", "or", "match", "expr"],
)
def test_many_long_texts(db: Database[Documents], search: Callable[[Any], Iterator[Documents]]) -> None:
    db.many.create_index("k")
    db.many.insert_many([{"k": i, "t": "x" * (i * 20) + ("yz" if i % 3 == 0 else "zy")} for i in range(1, 400)])
    assert sorted(document["k"] for document in search(db.many)) == [i for i in range(1, 400) if i % 3 == 0]


def test_where_is_asked_about_no_document_that_a_search_excludes(db: Database[Documents]) -> None:
    db.many.insert_many([{"a": "foo" + " " * 5_000} for _ in range(100)])
    db.many.insert_one({"_id": 1, "a": "needle" + " " * 5_000 + "x"})
    where = "function() { if (this.a[0] != 'n') throw 'asked'; return true; }"
    for search in ({"$regex": "needle.*x"}, {"$regex": "needle *x"}, {"$in": [re.compile("needle.*x")]}):
        assert [found["_id"] for found in db.many.find({"a": search, "$where": where})] == [1]
    either = {"$or": [{"a": {"$regex": "needle.*x"}}, {"a": {"$regex": "needle.*y"}}], "$where": where}
    assert [found["_id"] for found in db.many.find(either)] == [1]


@pytest.mark.parametrize(
    "validator",
    [{"a": {"$not": re.compile("(a+)+[bc]")}}, {"$jsonSchema": {"properties": {"a": {"pattern": "(a+)+[bc]"}}}}],
)
def test_others_write_while_a_validator_searches(db: Database[Documents], validator: Documents) -> None:
    db.create_collection("short", validator=validator)
    codes: list[int | None] = []

    def run() -> None:
        try:
            db.command({"insert": "short", "documents": [{"a": LONG}], "maxTimeMS": 1_000})
        except OperationFailure as failure:
            codes.append(failure.code)

    running = threading.Thread(target=run)
    running.start()
    written = 0
    while running.is_alive():
        db.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        written += 1
    assert codes == [50]
    assert written >= 10
