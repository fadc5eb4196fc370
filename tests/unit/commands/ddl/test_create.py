"""The options of `create`, as mongod 8.2 accepts and refuses them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from tests.running import START_MS, Running

NAN = float("nan")
INF = float("inf")
CLUSTERED: dict[str, Any] = {"key": {"_id": 1}, "unique": True}
ID_INDEX: dict[str, Any] = {"key": {"_id": 1}, "name": "_id_"}


@pytest.fixture
def running() -> Running:
    return Running()


def shown(running: Running) -> dict[str, Any]:
    options: dict[str, Any] = running.listed({"listCollections": 1})[0]["options"]
    return options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"validator": {"a": 1}}, {"validator": {"a": 1}}),
        (
            {"validationAction": "warn", "validator": {"a": 1}, "validationLevel": "moderate"},
            {"validator": {"a": 1}, "validationLevel": "moderate", "validationAction": "warn"},
        ),
        ({"validationAction": "errorAndLog"}, {"validationAction": "errorAndLog"}),
        ({"validationLevel": "off"}, {"validationLevel": "off"}),
        ({"storageEngine": {"wiredTiger": {"configString": ""}}},) * 2,
        ({"indexOptionDefaults": {"storageEngine": {"wiredTiger": {}}}},) * 2,
        # The names that serverStatus may announce.
        ({"storageEngine": {"memory": {}}},) * 2,
        ({"storageEngine": {"sqlite": {"configString": ""}}},) * 2,
        ({"indexOptionDefaults": {"storageEngine": {"memory": {}}}},) * 2,
        ({"changeStreamPreAndPostImages": {"enabled": True}}, {"changeStreamPreAndPostImages": {"enabled": True}}),
        ({"temp": True}, {"temp": True}),
    ],
)
def test_options_are_shown_in_mongods_order(
    running: Running, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    running.run({"create": "c", **options})
    assert list(shown(running).items()) == list(expected.items())
    running.run({"create": "c", **options})
    assert running.code({"create": "c", **options, "validator": {"other": 1}}) == 48
    assert running.code({"create": "c"}) == 48


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"capped": True}, 72),
        ({"capped": None, "size": 4096}, 72),
        ({"capped": NAN}, 72),
        ({"capped": True, "size": 0.9}, 2),
        ({"capped": True, "size": Decimal128("0.5")}, 2),
        ({"capped": True, "size": 2**50 + 1}, 2),
        ({"capped": True, "size": INF}, 2),
        ({"capped": True, "size": None}, 72),
        ({"capped": True, "size": True}, 14),
        ({"capped": True, "size": 1, "max": 2**31}, 2),
        ({"validator": [{"a": 1}]}, 14),
        ({"validator": {"$where": "true"}}, 2),
        ({"validator": {"$text": {"$search": "x"}}}, 2),
        ({"validator": {"$or": [{"a": {"$not": {"$near": [0, 0]}}}]}}, 5626500),
        ({"validator": {"a": {"$elemMatch": {"b": {"$nearSphere": [0, 0]}}}}}, 5626500),
        ({"validator": {"a": {"$badOp": 1}}}, 2),
        ({"validator": {"$expr": {"$badOp": 1}}}, 168),
        ({"validator": {"$jsonSchema": {"unknown": 1}}}, 9),
        ({"validationLevel": "Strict"}, 2),
        ({"validationLevel": ""}, 2),
        ({"validationLevel": 1}, 14),
        ({"validationAction": "log"}, 2),
        ({"viewOn": ""}, 2),
        ({"viewOn": "$a"}, 73),
        ({"viewOn": ".a"}, 73),
        ({"viewOn": 1}, 14),
        ({"viewOn": "d", "pipeline": [1]}, 14),
        ({"viewOn": "d", "idIndex": ID_INDEX}, 72),
        ({"expireAfterSeconds": 1}, 72),
        ({"storageEngine": {"wiredTiger": 1}}, 2),
        ({"storageEngine": {"other": {}}}, 72),
        ({"storageEngine": 1}, 14),
        ({"indexOptionDefaults": {"unknown": 1}}, 40415),
        ({"changeStreamPreAndPostImages": {"unknown": 1}}, 40415),
        ({"changeStreamPreAndPostImages": {"enabled": "x"}}, 14),
        ({"temp": "x"}, 14),
        ({"autoIndexId": False}, 72),
    ],
)
def test_options_that_are_refused(running: Running, options: dict[str, Any], code: int) -> None:
    assert running.code({"create": "c", **options}) == code


@pytest.mark.parametrize(
    ("time_series", "code"),
    [
        (1, 14),
        ({}, 40414),
        ({"timeField": None}, 40414),
        ({"timeField": 1}, 14),
        ({"timeField": "a.b"}, 72),
        ({"timeField": "a\0b"}, 2),
        ({"timeField": "t", "metaField": "a.b"}, 72),
        ({"timeField": "t", "metaField": "_id"}, 72),
        ({"timeField": "t", "metaField": "t"}, 72),
        ({"timeField": "t", "granularity": "days"}, 2),
        ({"timeField": "t", "granularity": 1}, 14),
        ({"timeField": "t", "bucketRoundingSeconds": 300}, 72),
        ({"timeField": "t", "bucketMaxSpanSeconds": 300}, 72),
        ({"timeField": "t", "bucketMaxSpanSeconds": 300, "bucketRoundingSeconds": 600}, 72),
        ({"timeField": "t", "bucketMaxSpanSeconds": 0, "bucketRoundingSeconds": 0}, 2),
        ({"timeField": "t", "bucketMaxSpanSeconds": NAN, "bucketRoundingSeconds": NAN}, 2),
        ({"timeField": "t", "bucketMaxSpanSeconds": 31_536_001, "bucketRoundingSeconds": 31_536_001}, 2),
        ({"timeField": "t", "bucketMaxSpanSeconds": "1", "bucketRoundingSeconds": 1}, 14),
        ({"timeField": "t", "granularity": "seconds", "bucketRoundingSeconds": 1, "bucketMaxSpanSeconds": 1}, 72),
        ({"timeField": "t", "unknown": 1}, 40415),
    ],
)
def test_time_series_options_that_are_refused(running: Running, time_series: Any, code: int) -> None:
    assert running.code({"create": "c", "timeseries": time_series}) == code


@pytest.mark.parametrize(
    "other",
    [
        {"capped": True, "size": 1},
        {"validator": {"a": 1}},
        {"validationLevel": "strict"},
        {"validationAction": "error"},
        {"idIndex": ID_INDEX},
        {"clusteredIndex": CLUSTERED},
        {"expireAfterSeconds": -1},
        {"expireAfterSeconds": START_MS // 1000 + 1},
    ],
)
def test_create_refuses_options_beside_time_series(running: Running, other: dict[str, Any]) -> None:
    assert running.code({"create": "c", "timeseries": {"timeField": "t"}, **other}) == 72


@pytest.mark.parametrize(
    ("clustered", "other", "code"),
    [
        (True, {}, 5979703),
        (1.0, {}, 5979703),
        (None, {}, 14),
        ("x", {}, 14),
        ([CLUSTERED], {}, 14),
        ({"unique": True}, {}, 40414),
        ({"key": {"_id": 1}}, {}, 40414),
        ({"key": {"_id": 1}, "unique": None}, {}, 40414),
        ({"key": 1, "unique": True}, {}, 14),
        ({"key": {"x": 1}, "unique": True}, {}, 197),
        ({"key": {"_id": -1}, "unique": True}, {}, 197),
        ({"key": {"_id": 1}, "unique": False}, {}, 5979700),
        ({"key": {"_id": 1}, "unique": "yes"}, {}, 14),
        ({**CLUSTERED, "v": 1}, {}, 5979704),
        ({**CLUSTERED, "v": NAN}, {}, 5979704),
        ({**CLUSTERED, "name": 1}, {}, 14),
        ({**CLUSTERED, "unknown": 1}, {}, 40415),
        (CLUSTERED, {"capped": True, "size": 4096}, 6049200),
        (False, {"capped": True, "size": 4096}, 6049200),
        (CLUSTERED, {"viewOn": "d", "pipeline": []}, 6026500),
        (CLUSTERED, {"max": 100}, 6049204),
        (CLUSTERED, {"idIndex": ID_INDEX}, 72),
    ],
)
def test_clustered_indexes_that_are_refused(running: Running, clustered: Any, other: dict[str, Any], code: int) -> None:
    assert running.code({"create": "c", "clusteredIndex": clustered, **other}) == code


def test_validators_have_no_place_among_mongods_own_data(running: Running) -> None:
    for database, name in (("test", "system.js"), ("admin", "c"), ("local", "c"), ("config", "c")):
        assert running.code({"create": name, "validator": {"a": 1}}, database) == 72
    running.run({"create": "c", "validator": {}}, "admin")


def test_options_survive_in_the_catalogue(running: Running) -> None:
    running.run({"create": "c", "validator": {"a": {"$gt": Int64(1)}}})
    again = Running(engine=running.engine)
    assert shown(again) == {"validator": {"a": {"$gt": 1}}}
    assert again.run({"insert": "c", "documents": [{"a": 1}]})["writeErrors"][0]["code"] == 121


KEY_ID = Binary(b"k" * 16, 4)
TEXT_QUERY: dict[str, Any] = {
    "queryType": "suffixPreview",
    "strMinQueryLength": 1,
    "strMaxQueryLength": 9,
    "caseSensitive": True,
    "diacriticSensitive": False,
}


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ({"keyId": "k"}, 14),
        ({"keyId": Binary(b"k" * 16, 3)}, 14),
        ({"keyId": Binary(b"k" * 15, 4)}, 207),
        ({"keyId": Binary(b"k" * 17, 4)}, 207),
        ({"keyId": Binary(b"", 4)}, 207),
        ({"path": "a\0b"}, 2),
        ({"path": None}, 40414),
        ({"path": ""}, 6316402),
        ({"path": "_id"}, 6316403),
        ({"bsonType": "null"}, 6338406),
        ({"bsonType": "text"}, 2),
        ({"unknown": 1}, 40415),
        ({"queries": None}, 14),
        ({"queries": 1}, 14),
        ({"queries": []}, 9783412),
        ({"queries": {}}, 40414),
        ({"bsonType": "string", "queries": {"queryType": "like"}}, 2),
        ({"bsonType": "int", "queries": TEXT_QUERY}, 9783400),
        ({"bsonType": "string", "queries": without(TEXT_QUERY, "strMinQueryLength")}, 9783402),
        ({"bsonType": "string", "queries": without(TEXT_QUERY, "strMaxQueryLength")}, 9783403),
        ({"bsonType": "string", "queries": without(TEXT_QUERY, "caseSensitive")}, 9783404),
        ({"bsonType": "string", "queries": without(TEXT_QUERY, "diacriticSensitive")}, 9783405),
        ({"bsonType": "string", "queries": {**TEXT_QUERY, "strMinQueryLength": 10}}, 9783406),
        ({"bsonType": "string", "queries": {**TEXT_QUERY, "strMinQueryLength": 0}}, 2),
        ({"bsonType": "string", "queries": {**TEXT_QUERY, "caseSensitive": 1}}, 14),
        ({"bsonType": "string", "queries": [TEXT_QUERY, {"queryType": "equality"}]}, 9783414),
        ({"bsonType": "string", "queries": [TEXT_QUERY, TEXT_QUERY, TEXT_QUERY]}, 9783413),
        ({"bsonType": "string", "queries": {"queryType": "range"}}, 6775201),
        ({"bsonType": "int", "queries": {"queryType": "range", "min": 5, "max": 5}}, 6720005),
        ({"bsonType": "int", "queries": {"queryType": "range", "min": Int64(1)}}, 7018200),
        ({"bsonType": "int", "queries": {"queryType": "range", "sparsity": 0}}, 2),
        ({"bsonType": "int", "queries": {"queryType": "range", "contention": 0.5}}, 9),
        ({"bsonType": "int", "queries": {"queryType": "range", "trimFactor": 32}}, 8574000),
        ({"bsonType": "int", "queries": {"queryType": "range", "min": 0, "max": 7, "trimFactor": 3}}, 8574000),
        ({"bsonType": "int", "queries": {"queryType": "range", "max": Int64(1)}}, 7018201),
        ({"bsonType": "double", "queries": {"queryType": "range", "min": 1.0, "max": 2.0}}, 6967100),
        ({"bsonType": "double", "queries": {"queryType": "equality"}}, 6338405),
        ({"bsonType": "int", "queries": {"queryType": "equality", "trimFactor": 1}}, 8574104),
        ({"queries": {"queryType": "equality"}}, 6412601),
        ({"bsonType": "string", "queries": {**TEXT_QUERY, "sparsity": 1}}, 10774911),
        ({"bsonType": "string", "queries": {**TEXT_QUERY, "queryType": "substringPreview"}}, 9783407),
        (
            {
                "bsonType": "string",
                "queries": [TEXT_QUERY, {**TEXT_QUERY, "queryType": "prefixPreview", "caseSensitive": False}],
            },
            9783409,
        ),
    ],
)
def test_encrypted_fields(running: Running, field: dict[str, Any], code: int) -> None:
    described = {"path": "a", "keyId": KEY_ID, **field}
    assert running.code({"create": "c", "encryptedFields": {"fields": [described]}}) == code


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"bsonType": "string", "queries": {"queryType": "equality"}},
        {"bsonType": "string", "queries": [TEXT_QUERY, {**TEXT_QUERY, "queryType": "prefixPreview"}]},
        {"bsonType": "int", "queries": {"queryType": "range", "min": 0, "max": 100, "trimFactor": 6}},
    ],
)
def test_encrypted_fields_are_listed_and_hold_binary_values(running: Running, field: dict[str, Any]) -> None:
    described = {"path": "a", "keyId": KEY_ID, **field}
    options = {"encryptedFields": {"fields": [described]}, "validator": {"b": 1}}
    running.run({"create": "c", **options})
    assert shown(running)["encryptedFields"] == options["encryptedFields"]
    running.run({"create": "c", **options})

    def written(document: dict[str, Any]) -> int:
        reply = running.run({"insert": "c", "documents": [document]})
        return int(reply["writeErrors"][0]["code"]) if "writeErrors" in reply else 0

    assert written({"b": 1}) == 0
    assert written({"b": 1, "a": Binary(b"\x10", 6)}) == 0
    assert written({"b": 1, "a": "plain"}) == 121
    assert written({"b": 2}) == 121
    encrypted = {"insert": "c", "documents": [{"b": 1}], "encryptionInformation": {"type": 1, "schema": {}}}
    assert running.code(encrypted) == 115


# One value of each BSON type that a driver can send, by the type's alias.
OF_EACH_TYPE: dict[str, Any] = {
    "double": 1.0,
    "string": "x",
    "object": {},
    "array": [],
    "binData": Binary(b"k" * 16, 0),
    "UUID": KEY_ID,
    "objectId": ObjectId(),
    "bool": True,
    "date": datetime(2026, 1, 1, tzinfo=UTC),
    "null": None,
    "regex": Regex("x"),
    "dbPointer": DBRef("c", ObjectId()),
    "javascript": Code("x"),
    "javascriptWithScope": Code("x", {"a": 1}),
    "int": 1,
    "timestamp": Timestamp(1, 1),
    "long": Int64(1),
    "decimal": Decimal128("1"),
    "minKey": MinKey(),
    "maxKey": MaxKey(),
}
NUMBERS: tuple[str, ...] = ("double", "int", "long", "decimal", "null")
SUBSTRING_QUERY: dict[str, Any] = {**TEXT_QUERY, "queryType": "substringPreview", "strMaxLength": 9}


def with_option(name: str, value: Any) -> dict[str, Any]:
    return {"fields": [], name: value}


def with_field(name: str, value: Any) -> dict[str, Any]:
    return {"fields": [{"path": "a", "keyId": KEY_ID, name: value}]}


def with_range(name: str, value: Any) -> dict[str, Any]:
    query = {"queryType": "range", name: value}
    return {"fields": [{"path": "a", "keyId": KEY_ID, "bsonType": "int", "queries": query}]}


def with_text(name: str, value: Any) -> dict[str, Any]:
    query = {**SUBSTRING_QUERY, name: value}
    return {"fields": [{"path": "a", "keyId": KEY_ID, "bsonType": "string", "queries": query}]}


@pytest.mark.parametrize(
    ("place", "name", "accepted", "refused", "otherwise"),
    [
        # Types that are taken, types with codes of their own, and the code of all the others.
        (with_option, "fields", ("array",), {"null": 40414}, 14),
        (with_option, "escCollection", ("null",), {"string": 7406900}, 14),
        (with_option, "eccCollection", ("string", "null"), {}, 14),
        (with_option, "ecocCollection", ("null",), {"string": 7406902}, 14),
        (with_option, "strEncodeVersion", ("int", "null"), {}, 14),
        (with_option, "unknown", (), {}, 40415),
        (with_field, "path", ("string",), {"null": 40414}, 14),
        (with_field, "keyId", ("UUID",), {"null": 40414}, 14),
        (with_field, "bsonType", ("null",), {"string": 2}, 14),
        (with_field, "queries", (), {"object": 40414, "dbPointer": 40415, "array": 9783412}, 14),
        (with_field, "unknown", (), {}, 40415),
        (with_range, "queryType", (), {"null": 40414, "string": 2}, 14),
        (with_range, "contention", NUMBERS, {}, 14),
        (with_range, "sparsity", NUMBERS, {}, 14),
        (with_range, "precision", NUMBERS, {}, 14),
        (with_range, "trimFactor", NUMBERS, {}, 14),
        (with_range, "min", ("int", "null"), {}, 7018200),
        (with_range, "max", ("int", "null"), {}, 7018201),
        (with_range, "unknown", (), {}, 40415),
        (with_text, "strMinQueryLength", NUMBERS[:-1], {"null": 9783402}, 14),
        (with_text, "strMaxQueryLength", NUMBERS[:-1], {"null": 9783403}, 14),
        (with_text, "strMaxLength", (), dict.fromkeys(NUMBERS[:-1], 9783408) | {"null": 9783407}, 14),
        (with_text, "caseSensitive", ("bool",), {}, 14),
        (with_text, "diacriticSensitive", ("bool",), {}, 14),
    ],
)
def test_encrypted_fields_of_each_type(
    running: Running,
    place: Callable[[str, Any], dict[str, Any]],
    name: str,
    accepted: tuple[str, ...],
    refused: dict[str, int],
    otherwise: int,
) -> None:
    for kind, value in OF_EACH_TYPE.items():
        command = {"create": "c", "encryptedFields": place(name, value)}
        if kind in accepted:
            running.run(command)
            running.run({"drop": "c"})
        else:
            assert (kind, running.code(command)) == (kind, refused.get(kind, otherwise))


def test_encrypted_fields_are_made_with_the_collection_and_always_checked(running: Running) -> None:
    encrypted = {"fields": [{"path": "a.b", "keyId": KEY_ID}]}
    for option in ({"validationLevel": "off"}, {"validationLevel": "moderate"}, {"validationAction": "warn"}):
        assert running.code({"create": "c", "encryptedFields": encrypted, **option}) == 2
    running.run({"create": "c", "encryptedFields": encrypted, "validationAction": "errorAndLog"})
    for option in ({"validationLevel": "off"}, {"validationLevel": "moderate"}, {"validationAction": "warn"}):
        assert running.code({"collMod": "c", **option}) == 2
    running.run({"collMod": "c", "validationLevel": "strict", "validationAction": "error", "validator": {"b": 1}})
    assert running.code({"collMod": "c", "encryptedFields": encrypted}) == 40415


@pytest.mark.parametrize(
    ("index", "code"),
    [
        ({"key": {"a": 1}}, 6346502),
        ({"key": {"x": 1, "a.b": -1}}, 6346502),
        ({"key": {"a.b.c": 1}}, 6346502),
        ({"key": {"x": 1}, "expireAfterSeconds": 5}, 6346501),
    ],
)
def test_indexes_that_encrypted_collections_cannot_have(running: Running, index: dict[str, Any], code: int) -> None:
    running.run({"create": "c", "encryptedFields": {"fields": [{"path": "a.b", "keyId": KEY_ID}]}})
    running.run({"createIndexes": "c", "indexes": [{"key": {"ab": 1, "a.c": 1}, "name": "other"}]})
    assert running.code({"createIndexes": "c", "indexes": [{**index, "name": "i"}]}) == code


def test_coll_mod_makes_a_ttl_index_of_an_encrypted_collection(running: Running) -> None:
    """As in MongoDB, which asks of createIndexes alone whether the collection is encrypted."""
    running.run({"create": "c", "encryptedFields": {"fields": [{"path": "a.b", "keyId": KEY_ID}]}})
    running.run({"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x"}]})
    reply = running.run({"collMod": "c", "index": {"keyPattern": {"x": 1}, "expireAfterSeconds": 5}})
    assert reply["expireAfterSeconds_new"] == 5


def test_create_refuses_contradictory_encrypted_fields(running: Running) -> None:
    def code(*fields: tuple[str, int], **names: str) -> int:
        described = [{"path": path, "keyId": Binary(bytes([key]) * 16, 4)} for path, key in fields]
        return running.code({"create": "c", "encryptedFields": {"fields": described, **names}})

    assert code(("a", 1), ("a", 2)) == 6338402
    assert code(("a.b", 1), ("a", 2)) == 6338403
    assert code(("a", 1), ("b", 1)) == 6338401
    assert code(("a", 1), escCollection="state") == 7406900
    assert code(("a", 1), ecocCollection="state") == 7406902
    assert running.code({"create": "c", "encryptedFields": {}}) == 40414
    assert running.code({"create": "c", "encryptedFields": {"fields": []}, "capped": True, "size": 1}) == 6367301
    assert running.code({"create": "c", "encryptedFields": {"fields": []}, "viewOn": "d"}) == 6346401


@pytest.mark.parametrize(
    "options",
    [
        {"capped": True, "size": 4096, "max": 100},
        {"validator": {"a": {"$exists": True}}},
        {"validationLevel": "strict", "validationAction": "error"},
    ],
    ids=str,
)
def test_views_ignore_options_of_stored_documents(running: Running, options: dict[str, Any]) -> None:
    running.run({"create": "v", "viewOn": "c", **options})
    [listed] = running.listed({"listCollections": 1, "filter": {"name": "v"}})
    assert listed["options"] == {"viewOn": "c", "pipeline": []}


def test_null_elements_of_arrays_of_documents_are_skipped(running: Running) -> None:
    running.run({"create": "v", "viewOn": "c", "pipeline": [None, {"$match": {"x": 1}}, None]})
    [listed] = running.listed({"listCollections": 1, "filter": {"name": "v"}})
    assert listed["options"]["pipeline"] == [{"$match": {"x": 1}}]
