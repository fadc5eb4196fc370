"""Server-side JavaScript: `$where`, `$function` and `$accumulator`."""

import datetime
import re
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

import mongottl
from mongottl.config import ServerConfig
from mongottl.javascript.library import missing_reason
from tests.on_nodes import own_parameters
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())

Documents = dict[str, Any]


@pytest.fixture
def numbers(database: Database[Documents]) -> Database[Documents]:
    database.c.insert_many([{"_id": i, "x": i, "y": 5 - i, "even": i % 2 == 0} for i in range(6)])
    return database


def refusal(database: Database[Documents], command: Documents) -> tuple[int, str]:
    """The code and the message of the error that answers a command."""
    with pytest.raises(OperationFailure) as caught:
        database.command(command)
    assert caught.value.details is not None
    return caught.value.details["code"], caught.value.details["errmsg"]


def ids(documents: Iterator[Documents] | Any) -> list[Any]:
    return [document["_id"] for document in documents]


@pytest.mark.parametrize(
    "code",
    [
        "this.x > this.y",
        "obj.x > obj.y;",
        "function() { return this.x > this.y; }",
        "  function () { return obj.x > obj.y }  ",
        "() => obj.x > obj.y",
        "var x = this.x; return x > this.y",
        "if (this.x > this.y) { return 'yes'; }",
        Code("function() { return this.x > this.y; }"),
    ],
)
def test_the_forms_of_where(numbers: Database[Documents], code: Any) -> None:
    assert ids(numbers.c.find({"$where": code})) == [3, 4, 5]


def test_where_beside_other_conditions(numbers: Database[Documents]) -> None:
    assert ids(numbers.c.find({"$where": "this.x > 1", "even": True})) == [2, 4]
    assert ids(numbers.c.find({"$or": [{"$where": "this.x == 1"}, {"y": 0}]})) == [1, 5]
    assert ids(numbers.c.find({"$nor": [{"$where": "this.x > 1"}]})) == [0, 1]


def test_where_in_every_command_with_a_filter(numbers: Database[Documents]) -> None:
    filter = {"$where": "this.x > 3"}
    assert numbers.command("count", "c", query=filter)["n"] == 2
    assert numbers.c.distinct("y", filter) == [0, 1]
    assert numbers.c.update_many(filter, {"$set": {"big": True}}).modified_count == 2
    assert numbers.c.update_one(filter, {"$set": {"big": 1}}).modified_count == 1
    assert numbers.c.find_one_and_update(filter, {"$set": {"found": True}})["_id"] == 4  # type: ignore[index]
    assert numbers.c.delete_one(filter).deleted_count == 1
    assert numbers.c.delete_many(filter).deleted_count == 1
    assert ids(numbers.c.find()) == [0, 1, 2, 3]


def test_where_comes_after_the_other_conditions(database: Database[Documents]) -> None:
    """It may count on them, wherever it stands."""
    database.c.insert_many([{"_id": i, "a": [1] * i} if i % 2 else {"_id": i} for i in range(100)])
    database.c.create_index("_id")
    script = {"$where": "this.a.length > 90"}
    for filter in (
        {**script, "a": {"$exists": True}},
        {"$and": [{"$or": [script, {"_id": -1}]}, {"a": {"$exists": True}}]},
    ):
        assert ids(database.c.find(filter)) == [91, 93, 95, 97, 99]
    assert ids(database.c.find({**script, "a": {"$exists": True}, "_id": {"$gt": 94}})) == [95, 97, 99]
    assert ids(database.c.find({**script, "a": {"$exists": True}, "_id": {"$in": [1, 93]}})) == [93]
    assert refusal(database, {"find": "c", "filter": script})[0] == 139


def test_documents_before_one_for_which_a_script_fails(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i, "a": []} for i in range(20)])
    database.c.insert_one({"_id": 20})
    with pytest.raises(OperationFailure), database.c.find({"$where": "this.a.length == 0"}, batch_size=5) as cursor:
        assert [next(cursor)["_id"] for _ in range(10)] == list(range(10))
        list(cursor)
    assert len(list(database.c.find({"$where": "this.a.length == 0"}).limit(5))) == 5


def test_where_goes_on_with_the_next_batch(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i} for i in range(500)])
    with database.c.find({"$where": "this._id % 2 == 0"}, batch_size=7) as cursor:
        assert ids(cursor) == list(range(0, 500, 2))


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ({"$where": 1}, "$where got bad type"),
        ({"$where": Code("true", {"x": 1})}, "scope"),
        ({"a": {"$elemMatch": {"$where": "true"}}}, "$elemMatch cannot contain $where"),
        ({"a": {"$elemMatch": {"$and": [{"$where": "true"}]}}}, "top-level document"),
        ({"a": {"$where": "true"}}, "unknown operator: $where"),
    ],
)
def test_where_operator_is_refused_below_the_top_level(
    database: Database[Documents], filter: Documents, message: str
) -> None:
    code, errmsg = refusal(database, {"find": "c", "filter": filter})
    assert code == 2
    assert message in errmsg


def test_where_belongs_to_commands_alone(database: Database[Documents]) -> None:
    where = {"$where": "true"}
    pipelines: list[list[Documents]] = [
        [{"$match": where}],
        [{"$lookup": {"from": "c", "pipeline": [{"$match": where}], "as": "a"}}],
    ]
    for pipeline in pipelines:
        assert refusal(database, {"aggregate": "c", "pipeline": pipeline, "cursor": {}})[0] == 2
    database.command("create", "v", viewOn="c", pipeline=[])
    assert refusal(database, {"find": "v", "filter": where})[0] == 2
    assert refusal(database, {"listCollections": 1, "filter": where})[0] == 2


def call(database: Database[Documents], body: Any, *arguments: Any) -> Any:
    """The value that `$function` has for these arguments."""
    function = {"$function": {"body": body, "args": list(arguments), "lang": "js"}}
    [document] = database.aggregate([{"$documents": [{}]}, {"$project": {"value": function}}])
    return document.get("value")


def test_the_value_of_a_function(database: Database[Documents]) -> None:
    assert call(database, "function(x) { return x * 2; }", 5) == 10.0
    assert isinstance(call(database, "function(x) { return x; }", 5), float)
    assert call(database, "function(a, b) { return a + b; }", "x", "y") == "xy"
    assert call(database, Code("function() { return [1, {a: null}]; }")) == [1.0, {"a": None}]
    assert call(database, "function() { return NumberInt(3); }") == 3
    assert call(database, "function() { return NumberLong('9007199254740993'); }") == Int64(9007199254740993)
    assert call(database, "function() {}") is None


VALUES: dict[str, Any] = {
    "string": "ä\0\U0001f600",
    "double": 1.5,
    "negative zero": -0.0,
    "infinity": float("inf"),
    "long": Int64(2**60 + 1),
    "decimal": Decimal128("1.50"),
    "bool": True,
    "null": None,
    "date": datetime.datetime(2024, 2, 29, 12, 30, 15, 250000, tzinfo=datetime.UTC),
    "old date": datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    "object id": ObjectId("0123456789abcdef01234567"),
    "binary": Binary(b"\0\1\2\xff", 128),
    "uuid": Binary.from_uuid(uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    "timestamp": Timestamp(4294967295, 7),
    "regex": Regex("a/b.*", "im"),
    "code": Code("function() {}"),
    "min key": MinKey(),
    "max key": MaxKey(),
    "document": {"a": 1, "b": {"c": Int64(1)}, "__proto__": {"x": 1}},
    "array": ["a", [{"b": None}], ObjectId("0123456789abcdef01234567")],
    "reference": DBRef("c", ObjectId("0123456789abcdef01234567"), "d"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_passes_a_function_unchanged(database: Database[Documents], name: str) -> None:
    database.c.insert_one({"_id": 1, "v": VALUES[name]})
    function = {"$function": {"body": "function(d) { return d; }", "args": ["$$ROOT"], "lang": "js"}}
    [document] = database.c.aggregate([{"$replaceWith": function}])
    assert bson.encode(document) == bson.encode({"_id": 1, "v": VALUES[name]})


@pytest.mark.parametrize(
    ("value", "expression", "expected"),
    [
        (Int64(5), "v + 1", 6),
        (Int64(5), "v.toString()", "NumberLong(5)"),
        (Int64(2**60), "v.toString()", 'NumberLong("1152921504606846976")'),
        (Int64(2**40 + 3), "[v.top, v.bottom]", [256, 3]),
        (Decimal128("1.5"), "v.toString()", 'NumberDecimal("1.5")'),
        (ObjectId("0123456789abcdef01234567"), "v.str + v.valueOf().length", "0123456789abcdef0123456724"),
        (ObjectId("0123456789abcdef01234567"), "v.toString()", 'ObjectId("0123456789abcdef01234567")'),
        (ObjectId("65000000ffffffffffffffff"), "v.getTimestamp().getTime()", 0x65000000 * 1000),
        (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), "tojson(v)", 'ISODate("2024-01-02T00:00:00Z")'),
        (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), "v.getUTCFullYear()", 2024),
        (re.compile("^a", re.IGNORECASE), "v.test('Abc')", True),
        (b"\0\1\2", "v.len() + v.base64() + v.hex()", "3AAEC000102"),
        (Binary(b"\0" * 16, 4), "v.toString()", 'UUID("00000000-0000-0000-0000-000000000000")'),
        (Timestamp(3, 4), "v.t + v.i + tojson(v)", "7Timestamp(3, 4)"),
        (DBRef("c", 5), "v.$ref + v.getId() + (v instanceof DBRef)", "c5true"),
        (MinKey(), "v === MinKey", True),
        ({"a": [1, "b"]}, "tojsononeline(v)", '{ "a" : [ 1, "b" ] }'),
        ([3, 4], "Array.sum(v) + Array.avg(v)", 10.5),
        ("x", "[isString(v), isNumber(v), isObject(v), isObject({})]", [True, False, False, True]),
        ("x", "hex_md5(v)", "9dd4e461268c8034f5c8564e155c67a6"),
        ("x", "[typeof db, typeof require, typeof load, typeof performance]", ["undefined"] * 4),
        ("x", "version()", ServerConfig().full_version()),
        ("x", "HexData(0, '00ff')", b"\x00\xff"),
        ("x", "BinData(5, 'AP8=')", Binary(b"\x00\xff", 5)),
        ("x", "ISODate('2024-01-02T03:04:05.678+01:00').getTime()", 1704161045678),
        ("x", "(sleep(1), gc(), print(v), printjson({}), assert(true))", None),
    ],
)
def test_values_of_documents_in_scripts(
    database: Database[Documents], value: Any, expression: str, expected: Any
) -> None:
    assert call(database, f"function(v) {{ return {expression}; }}", {"$literal": value}) == expected


def test_fields_stay_integers_and_other_numbers_are_doubles(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1, "a": 1, "b": 2, "c": [3]})
    body = "function(d) { d.a = 7; d.b = 1.5; d.d = 4; return d; }"
    [document] = database.c.aggregate(
        [{"$replaceWith": {"$function": {"body": body, "args": ["$$ROOT"], "lang": "js"}}}]
    )
    assert document == {"_id": 1, "a": 7, "b": 1.5, "c": [3.0], "d": 4.0}
    types = {name: type(value) for name, value in document.items()}
    assert types == {"_id": int, "a": int, "b": float, "c": list, "d": float}


def test_functions_in_expressions(numbers: Database[Documents]) -> None:
    def function(body: str, *arguments: str) -> Documents:
        return {"$function": {"body": body, "args": list(arguments), "lang": "js"}}

    odd = function("function(x) { return x % 2 == 1; }", "$x")
    assert ids(numbers.c.find({"$expr": odd})) == [1, 3, 5]
    assert ids(numbers.c.aggregate([{"$match": {"$expr": odd}}])) == [1, 3, 5]
    [found] = numbers.c.find({"_id": 2}, {"p": function("function(x, y) { return x + ':' + y; }", "$x", "$y")})
    assert found == {"_id": 2, "p": "2:3"}
    numbers.c.update_one({"_id": 2}, [{"$set": {"z": function("function(x) { return x + 1; }", "$x")}}])
    assert numbers.c.find_one(2)["z"] == 3.0  # type: ignore[index]
    numbers.c.update_many({}, [{"$set": {"w": function("function(x) { return -x; }", "$x")}}])
    assert [document["w"] for document in numbers.c.find()] == [0, -1, -2, -3, -4, -5]
    numbers.command(
        "create", "v", viewOn="c", pipeline=[{"$project": {"t": function("function(x) { return 10 * x; }", "$x")}}]
    )
    assert [document["t"] for document in numbers.v.find({"t": {"$gt": 30}})] == [40, 50]
    joined = {
        "from": "c",
        "let": {"x": "$x"},
        "pipeline": [{"$match": {"$expr": function("function(a, b) { return a == b + 1; }", "$x", "$$x")}}],
        "as": "next",
    }
    assert [ids(document["next"]) for document in numbers.c.aggregate([{"$lookup": joined}])] == [
        [1],
        [2],
        [3],
        [4],
        [5],
        [],
    ]


def test_functions_are_refused_in_validators(database: Database[Documents]) -> None:
    function = {"$function": {"body": "function() { return true; }", "args": [], "lang": "js"}}
    assert refusal(database, {"create": "c", "validator": {"$expr": function}})[0] == 2


def test_args_must_be_an_array(database: Database[Documents]) -> None:
    database.c.insert_one({"x": 1})
    function = {"$function": {"body": "function() {}", "args": "$x", "lang": "js"}}
    assert refusal(database, {"aggregate": "c", "pipeline": [{"$set": {"y": function}}], "cursor": {}})[0] == 31266


AVERAGE = {
    "$accumulator": {
        "init": "function() { return {count: 0, sum: 0}; }",
        "accumulate": "function(state, x) { return {count: state.count + 1, sum: state.sum + x}; }",
        "accumulateArgs": ["$x"],
        "merge": "function(a, b) { return {count: a.count + b.count, sum: a.sum + b.sum}; }",
        "finalize": "function(state) { return state.sum / state.count; }",
        "lang": "js",
    }
}


def test_an_accumulator(numbers: Database[Documents]) -> None:
    groups = numbers.c.aggregate([{"$group": {"_id": "$even", "average": AVERAGE}}, {"$sort": {"_id": 1}}])
    assert list(groups) == [{"_id": False, "average": 3.0}, {"_id": True, "average": 2.0}]
    buckets = numbers.c.aggregate(
        [{"$bucket": {"groupBy": "$x", "boundaries": [0, 2, 6], "output": {"average": AVERAGE}}}]
    )
    assert list(buckets) == [{"_id": 0, "average": 0.5}, {"_id": 2, "average": 3.5}]
    automatic = numbers.c.aggregate([{"$bucketAuto": {"groupBy": "$x", "buckets": 2, "output": {"average": AVERAGE}}}])
    assert [bucket["average"] for bucket in automatic] == [1.0, 4.0]


def test_an_accumulator_of_many_documents(database: Database[Documents]) -> None:
    database.c.insert_many([{"x": i} for i in range(1000)])
    [group] = database.c.aggregate([{"$group": {"_id": None, "average": AVERAGE}}])
    assert group["average"] == 499.5


def test_an_accumulator_starts_from_the_key_of_its_group(numbers: Database[Documents]) -> None:
    accumulator = {
        "init": "function(even, start) { return start + (even ? 100 : 0); }",
        "initArgs": ["$even", 1],
        "accumulate": "function(state, x) { return state + x; }",
        "accumulateArgs": ["$x"],
        "merge": "function(a, b) { return a + b; }",
        "lang": "js",
    }
    groups = numbers.c.aggregate(
        [{"$group": {"_id": {"even": "$even"}, "n": {"$accumulator": accumulator}}}, {"$sort": {"_id": 1}}]
    )
    # In $group, initArgs is evaluated on the key of the group.
    assert [group["n"] for group in groups] == [10.0, 107.0]


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("function() { return a.b; }", 139, "ReferenceError: a is not defined"),
        ("function() { throw new TypeError('no'); }", 139, "TypeError: no"),
        ("function() { throw 'no'; }", 139, "uncaught exception: no"),
        ("function() { throw {a: 1}; }", 139, 'uncaught exception: { "a" : 1 }'),
        ("function() { const e = new Error('no'); e.code = 11000; throw e; }", 11000, "no"),
        ("function() { assert(false, 'so'); }", 139, "assert failed : so"),
        ("function( {", 139, "SyntaxError"),
        ("function() { const a = {}; a.a = a; return a; }", 17279, "cycle"),
        ("function() { return {'a\\0b': 1}; }", 139, "null char"),
        ("function() { return new Date(NaN); }", 139, "invalid Date"),
        ("function() { return Symbol('x'); }", 139, "symbol"),
        ("function() { function f() { return f() + 1; } return f(); }", 139, "stack"),
        ("function() { const a = []; for (;;) a.push('x'.repeat(1000) + a.length); }", 139, "memory"),
        ("function() { emit(1, 2); }", 139, "emit"),
        ("function() { Array.prototype.map = JSON.stringify = Object.keys = null; return {a: [1]}; }", 0, ""),
    ],
)
def test_errors_of_scripts(database: Database[Documents], body: str, code: int, message: str) -> None:
    if not code:
        assert call(database, body) == {"a": [1]}
        return
    with pytest.raises(OperationFailure) as caught:
        call(database, body)
    assert caught.value.code == code
    assert message in str(caught.value)
    assert call(database, "function() { return typeof leaked; }") == "undefined"


def test_scripts_of_two_operations_share_nothing(database: Database[Documents]) -> None:
    assert call(database, "function() { leaked = 1; Array.prototype.leaked = 1; return 1; }") == 1
    assert call(database, "function() { return [typeof leaked, typeof [].leaked]; }") == ["undefined", "undefined"]


def test_an_error_is_one_of_its_statement(numbers: Database[Documents]) -> None:
    with pytest.raises(WriteError) as caught:
        numbers.c.update_many({"$where": "a.b"}, {"$set": {"z": 1}})
    assert caught.value.code == 139


RUNAWAYS = [
    "while (true);",
    "try { while (true); } catch (e) { return true; }",
    "new Array(5e8).fill(0)",  # a single call, in which QuickJS checks no limits
    "/(a+)+$/.test('a'.repeat(100) + 'b')",
    "Error.prototype.toString = function() { while (true); }; while (true);",
]


@pytest.mark.parametrize("code", RUNAWAYS)
def test_max_time_ends_a_running_call(numbers: Database[Documents], code: str) -> None:
    with pytest.raises(OperationFailure) as caught:
        list(numbers.c.find({"$where": code}, max_time_ms=100))
    assert caught.value.code in (50, 139)


def test_others_run_meanwhile_and_kill_op_ends_it(numbers: Database[Documents]) -> None:
    failures: list[OperationFailure] = []

    def run() -> None:
        try:
            numbers.c.update_many({"$where": "while (true);"}, {"$set": {"z": 1}}, comment="runaway")
        except OperationFailure as failure:
            failures.append(failure)

    runaway = threading.Thread(target=run)
    runaway.start()
    opid = None
    while opid is None:
        for operation in numbers.client.admin.command("currentOp")["inprog"]:
            if operation.get("command", {}).get("comment") == "runaway":
                opid = operation["opid"]
    for i in range(50):
        numbers.c.update_one({"_id": 5}, {"$set": {"seen": i}})
        assert numbers.c.find_one(5)["seen"] == i  # type: ignore[index]
    numbers.client.admin.command("killOp", op=opid)
    runaway.join(PATIENCE_S)
    assert [failure.code for failure in failures] == [11601]


@own_parameters
def test_a_limit_of_each_call(database: Database[Documents]) -> None:
    """The setting is mongod's."""
    admin = database.client.admin
    before = admin.command({"setParameter": 1, "internalQueryJavaScriptFnTimeoutMillis": 100})["was"]
    try:
        with pytest.raises(OperationFailure) as caught:
            call(database, "function() { while (true); }")
        assert caught.value.code == 139
        assert "time limit" in str(caught.value)
    finally:
        admin.command({"setParameter": 1, "internalQueryJavaScriptFnTimeoutMillis": before})
    assert before == 60_000


def test_dates_follow_the_servers_clock() -> None:
    with mongottl.start_server() as server, MongoClient[Documents](server.uri) as client:
        server.clock.advance(365 * 24 * 3600)
        [found] = client.d.aggregate(
            [
                {"$documents": [{}]},
                {"$set": {"v": {"$function": {"body": "function() { return new Date(); }", "args": [], "lang": "js"}}}},
                {"$project": {"apart": {"$dateDiff": {"startDate": "$v", "endDate": "$$NOW", "unit": "hour"}}}},
            ]
        )
        assert found["apart"] in (-1, 0, 1)


def test_scripting_can_be_turned_off() -> None:
    with mongottl.start_server(scripting=False) as server, MongoClient[Documents](server.uri) as client:
        code, errmsg = refusal(client.d, {"find": "c", "filter": {"$where": "true"}})
        assert (code, errmsg) == (2, "$where is not supported: JavaScript is turned off (--no-scripting)")
        function = {"$function": {"body": "function() {}", "args": [], "lang": "js"}}
        code, errmsg = refusal(client.d, {"aggregate": "c", "pipeline": [{"$set": {"a": function}}], "cursor": {}})
        assert (code, errmsg) == (115, "$function is not supported: JavaScript is turned off (--no-scripting)")


def test_explain_shows_the_code(numbers: Database[Documents]) -> None:
    plan = numbers.c.find({"$where": "this.x > 1"}).explain()
    assert plan["queryPlanner"]["parsedQuery"] == {"$where": Code("this.x > 1")}
    assert plan["executionStats"]["nReturned"] == 4


def test_stored_functions(numbers: Database[Documents]) -> None:
    """Those of the database, as they are at the beginning of an operation, or of a batch of a cursor."""
    numbers["system.js"].insert_many(
        [
            {"_id": "half", "value": Code("function(x) { return x / times; }")},
            {"_id": "times", "value": 2},
            {"_id": 5, "value": 2},
            {"_id": "none"},
        ]
    )
    assert ids(numbers.c.find({"$where": "half(this.x) == 2"})) == [4]
    assert call(numbers, "function(x) { return [half(x), typeof none]; }", 5) == [2.5, "undefined"]
    with numbers.c.find({"$where": "half(this.x) >= 1"}, batch_size=2) as cursor:
        assert ids(cursor) == [2, 3, 4, 5]
    numbers["system.js"].delete_one({"_id": "half"})
    assert call(numbers, "function() { return typeof half; }") == "undefined"
