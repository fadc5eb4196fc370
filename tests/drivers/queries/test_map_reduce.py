"""mapReduce."""

from typing import Any

import pytest
from bson import Code, Int64
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from mongottl.javascript.library import missing_reason

pytestmark = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())

Documents = dict[str, Any]

MAP = "function() { emit(this.k, this.v); }"
REDUCE = "function(key, values) { return Array.sum(values); }"


@pytest.fixture
def numbers(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "k": "ab"[i % 2], "v": i, "tags": ["x", "y"][: i % 3]} for i in range(10)])
    return database


def map_reduce(database: Database[Documents], **options: Any) -> Documents:
    command = {"mapReduce": "c", "map": MAP, "reduce": REDUCE, "out": {"inline": 1}, **options}
    reply = database.command(command)
    return {name: value for name, value in reply.items() if name not in ("$clusterTime", "operationTime")}


def results(database: Database[Documents], **options: Any) -> dict[Any, Any]:
    """The values by key."""
    found = map_reduce(database, **options)["results"]
    assert all(set(result) == {"_id", "value"} for result in found)
    return {result["_id"]: result["value"] for result in found}


def code_of(database: Database[Documents], **options: Any) -> int:
    with pytest.raises(OperationFailure) as caught:
        map_reduce(database, **options)
    return caught.value.code or -1


def test_the_reply_has_the_results(numbers: Database[Documents]) -> None:
    reply = map_reduce(numbers)
    assert reply["ok"] == 1
    assert set(reply) == {"results", "ok"}
    assert sorted(reply["results"], key=lambda result: result["_id"]) == [
        {"_id": "a", "value": 20.0},
        {"_id": "b", "value": 25.0},
    ]
    assert results(numbers, map=Code(MAP), reduce=Code(REDUCE), jsMode=True, verbose=True) == {"a": 20.0, "b": 25.0}


def test_the_documents_that_are_mapped(numbers: Database[Documents]) -> None:
    assert results(numbers, query={"v": {"$gt": 4}}, sort={"v": -1}, limit=3) == {"b": 16.0, "a": 8.0}
    assert results(numbers, query={"k": "A"}, collation={"locale": "simple"}) == {}
    assert results(numbers, mapReduce="missing") == {}


def test_map_reduce_groups_the_emitted_values(numbers: Database[Documents]) -> None:
    assert results(numbers, map="function() { this.tags.forEach(function(tag) { emit(tag, 1); }); }") == {
        "x": 6,
        "y": 3,
    }
    [result] = map_reduce(numbers, map="function() { if (this.v > 8) emit({k: this.k}, [1]); }")["results"]
    assert result == {"_id": {"k": "b"}, "value": [1.0]}
    assert results(numbers, map="function() { if (this.v == 7) emit(undefined, null); }") == {None: None}
    assert results(numbers, map="function() {}") == {}
    long = "function() { emit(NumberLong(1), this.v == 1 ? NumberLong(5) : NumberLong(6)); }"
    reduce = "function(key, values) { return values[0]; }"
    [result] = map_reduce(numbers, map=long, reduce=reduce)["results"]
    assert isinstance(result["_id"], Int64)
    assert isinstance(result["value"], Int64)


def test_a_single_value_is_not_reduced(numbers: Database[Documents]) -> None:
    assert results(
        numbers, map="function() { emit(this._id, 1); }", reduce="function() { return -1; }"
    ) == dict.fromkeys(range(10), 1)


def test_many_values_are_reduced_in_parts(database: Database[Documents]) -> None:
    database.c.insert_many([{"k": i % 3, "v": 1} for i in range(6000)])
    assert results(database) == {0: 2000, 1: 2000, 2: 2000}


def test_finalize_and_scope(numbers: Database[Documents]) -> None:
    finalize = "function(key, value) { return {key: key, value: times * half(value)}; }"
    scope = {"times": 3, "half": Code("function(x) { return x / 2; }")}
    assert results(numbers, finalize=finalize, scope=scope) == {
        "a": {"key": "a", "value": 30.0},
        "b": {"key": "b", "value": 37.5},
    }
    counted = "function() { n++; emit(n, this.v); }"
    assert sorted(results(numbers, map=counted, scope={"n": 0})) == [1 + i for i in range(10)]


def test_results_in_a_collection(numbers: Database[Documents]) -> None:
    def stored(database: Database[Documents]) -> list[Documents]:
        return list(database.out.find(sort=[("_id", 1)]))

    numbers.out.insert_many([{"_id": "a", "value": 1000}, {"_id": "z", "value": 1}])
    other = numbers.client[f"{numbers.name}_other"]
    try:
        assert map_reduce(numbers, out={"merge": "out"}) == {"result": "out", "ok": 1}
        both = [{"_id": "a", "value": 20}, {"_id": "b", "value": 25}]
        assert stored(numbers) == [*both, {"_id": "z", "value": 1}]
        assert map_reduce(numbers, out={"reduce": "out"})["result"] == "out"
        assert stored(numbers) == [{"_id": "a", "value": 40}, {"_id": "b", "value": 50}, {"_id": "z", "value": 1}]
        assert map_reduce(numbers, out="out")["result"] == "out"
        assert stored(numbers) == both
        assert map_reduce(numbers, out={"replace": "out", "db": other.name})["result"] == {
            "db": other.name,
            "collection": "out",
        }
        assert stored(other) == both
        finalize = "function(key, value) { return {total: value.total || value}; }"
        reduce = "function(key, values) { return Array.sum(values.map(function(v) { return v.total || v; })); }"
        for factor in (1, 2):
            map_reduce(numbers, reduce=reduce, finalize=finalize, out={"reduce": "totals"})
            assert numbers.totals.find_one("a") == {"_id": "a", "value": {"total": 20 * factor}}
        assert map_reduce(numbers, mapReduce="missing", out="out")["result"] == "out"
        assert stored(numbers) == []
    finally:
        numbers.client.drop_database(other.name)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"out": 1}, 2),
        ({"out": {}}, 2),
        ({"out": {"merge": "a", "reduce": "b"}}, 2),
        ({"out": {"merge": 1}}, 2),
        ({"out": {"merge": "a", "db": 1}}, 2),
        ({"out": {"merge": "a", "nonAtomic": False}}, 2),
        ({"out": {"merge": "a", "sharded": True}}, 2),
        ({"out": {"else": "a"}}, 2),
        ({"map": 1}, 2),
        ({"map": Code(MAP, {"x": 1})}, 2),
        ({"reduce": None}, 2),
        ({"finalize": 1}, 2),
        ({"query": {"$where": "true"}}, 2),
        ({"query": {"$or": 1}}, 2),
        ({"query": 1}, 14),
        ({"else": 1}, 40415),
        ({"map": "function() { x.y; }"}, 139),
        ({"map": "function() { emit(1); }"}, 139),
        ({"map": "function() { emit([1], 1); }", "out": "out"}, 53),
        ({"reduce": "function() { x.y; }"}, 139),
        ({"finalize": "function() { x.y; }"}, 139),
        ({"finalize": "function() { emit(1, 2); }"}, 139),
    ],
)
def test_errors(numbers: Database[Documents], options: Documents, code: int) -> None:
    assert code_of(numbers, **options) == code
    assert numbers.list_collection_names() == ["c"]


def test_missing_fields(database: Database[Documents]) -> None:
    for name in ("map", "reduce", "out"):
        command = {"mapReduce": "c", "map": MAP, "reduce": REDUCE, "out": {"inline": 1}}
        del command[name]
        with pytest.raises(OperationFailure) as caught:
            database.command(command)
        assert caught.value.code == 40414


def test_a_view_is_refused(numbers: Database[Documents]) -> None:
    numbers.command("create", "v", viewOn="c", pipeline=[])
    assert code_of(numbers, mapReduce="v") == 166


def test_a_transaction_is_refused(numbers: Database[Documents]) -> None:
    with numbers.client.start_session() as session:
        session.start_transaction()
        with pytest.raises(OperationFailure) as caught:
            numbers.command({"mapReduce": "c", "map": MAP, "reduce": REDUCE, "out": {"inline": 1}}, session=session)
        assert caught.value.code == 263
        session.abort_transaction()


def test_explain(numbers: Database[Documents]) -> None:
    command = {"mapReduce": "c", "map": MAP, "reduce": REDUCE, "out": "out", "query": {"v": {"$gt": 1}}}
    explained = numbers.command("explain", command, verbosity="executionStats")
    names = [next(iter(stage)) for stage in explained["stages"]]
    assert names == ["$cursor", "$project", "$unwind", "$group", "$out"]
    assert explained["stages"][3]["$group"]["value"]["$_internalJsReduce"]["eval"] == Code(REDUCE)
    assert "out" not in numbers.list_collection_names()


def test_the_time_limit_reaches_into_a_call(numbers: Database[Documents]) -> None:
    for name in ("map", "reduce", "finalize"):
        assert code_of(numbers, **{name: "function() { while (true); }"}, maxTimeMS=100) == 50


def test_privileges() -> None:
    with mongottl.start_server(auth=True, user="root", password="secret") as server:
        with MongoClient[Documents](server.uri) as root:
            root.d.c.insert_one({"k": 1, "v": 1})
            privilege = {"resource": {"db": "d", "collection": "c"}, "actions": ["find"]}
            root.d.command("createRole", "reader", privileges=[privilege], roles=[])
            root.d.command("createUser", "ann", pwd="apple", roles=["reader"])
        login: Any = {"username": "ann", "password": "apple", "authSource": "d"}
        with MongoClient[Documents]("127.0.0.1", server.port, **login) as ann:
            assert results(ann.d) == {1: 1.0}
            assert [document["v"] for document in ann.d.c.find({"$where": "this.v == 1"})] == [1]
            for out in ("out", {"merge": "out"}, {"reduce": "out"}):
                assert code_of(ann.d, out=out) == 13
            assert code_of(ann.d, mapReduce="other") == 13


def test_map_reduce_is_refused_without_scripting_and_by_cosmos() -> None:
    with mongottl.start_server(scripting=False) as server, MongoClient[Documents](server.uri) as client:
        assert code_of(client.d) == 115
    with mongottl.start_server(dialect="cosmos") as server, MongoClient[Documents](server.uri) as client:
        assert code_of(client.d) == 115
