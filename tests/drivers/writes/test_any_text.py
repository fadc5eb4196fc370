"""Strings and field names that are not UTF-8 are stored and returned as they are, and fail no command.

Drivers do not send them, unless documents are raw BSON; PyMongo reads them with `unicode_decode_error_handler`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import json_util
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

import mongottl
from mongottl.cli import main
from mongottl.document.build import encode
from mongottl.document.types import JavaScript, Regex, Symbol
from mongottl.document.utf8 import decode_text
from mongottl.errors import ErrorCode
from mongottl.offline.check import DataCheck
from tests.drivers.wire_client import ANY_TEXT, AnyTextClient
from tests.on_nodes import own_profile

Document = dict[str, Any]
Client = pymongo.MongoClient[Document]
RAW = bson.CodecOptions(document_class=RawBSONDocument, unicode_decode_error_handler="surrogateescape")
BAD = decode_text(b"\xff\xfe")
STORED: Document = {
    "_id": BAD,
    "text": "a" + BAD + "é",
    BAD: {"n" + BAD: [BAD, {"x": BAD}]},
    "code": JavaScript(BAD),
    "scoped": JavaScript(BAD, encode({BAD: BAD})),
    "symbol": Symbol(BAD),
    "regex": Regex(BAD, ""),
}


def raw(document: Document) -> RawBSONDocument:
    return RawBSONDocument(encode(document), RAW)


def any_text(database: Database[Document], name: str = "c") -> Any:
    """A collection that reads strings of any bytes."""
    return database.get_collection(name, codec_options=ANY_TEXT)


def stored(database: Database[Document], filter: Document) -> bytes:
    """The bytes of the one document that matches."""
    found: list[Any] = list(database.get_collection("c", codec_options=RAW).find(raw(filter)))
    assert len(found) == 1
    return bytes(found[0].raw)


@pytest.fixture
def sender(server: mongottl.RunningServer) -> Iterator[AnyTextClient]:
    client = AnyTextClient(server.uri)
    yield client
    client.close()


def test_documents_are_returned_byte_by_byte(database: Database[Document]) -> None:
    database.c.insert_one(raw(STORED))
    assert stored(database, {"_id": BAD}) == encode(STORED)
    for filter in (
        {"text": STORED["text"]},
        {f"{BAD}.n{BAD}.x": BAD},
        {f"{BAD}.n{BAD}": {"$in": ["other", BAD]}},
        {"$expr": {"$eq": ["$_id", BAD]}},
    ):
        assert stored(database, filter) == encode(STORED)
    with pytest.raises(bson.errors.InvalidBSON):
        database.c.find_one()
    assert any_text(database).find_one()["text"] == STORED["text"]


def test_updates_keep_and_write_such_text(database: Database[Document]) -> None:
    document = {"_id": BAD, "text": "a" + BAD, BAD: [BAD]}
    database.c.insert_one(raw(document))
    database.c.update_one({}, {"$set": {"other": 1}})
    assert stored(database, {}) == encode({**document, "other": 1})
    database.c.update_one({}, {"$rename": raw({"other": "new" + BAD})})
    database.c.update_one({}, {"$set": raw({"set." + BAD: BAD}), "$push": raw({BAD: BAD})})
    changed = {"_id": BAD, "text": "a" + BAD, BAD: [BAD, BAD], "new" + BAD: 1, "set": {BAD: BAD}}
    assert stored(database, {}) == encode(changed)
    database.c.update_one({}, {"$unset": raw({BAD: 1, "set." + BAD: 1})})
    assert any_text(database).find_one() == {"_id": BAD, "text": "a" + BAD, "new" + BAD: 1, "set": {}}
    database.c.update_one({}, [raw({"$replaceWith": {"_id": "$_id", "v": {"$concat": ["$text", BAD]}}})])
    assert any_text(database).find_one() == {"_id": BAD, "v": "a" + BAD + BAD}


def test_pipelines_read_and_make_such_text(database: Database[Document]) -> None:
    database.c.insert_many([raw({"_id": BAD, "text": "a" + BAD}), {"_id": 2, "text": "a"}])
    found = any_text(database).aggregate(
        [{"$sort": {"text": -1}}, raw({"$project": {BAD: "$text", "size": {"$strLenBytes": "$text"}}})]
    )
    assert list(found) == [{"_id": BAD, BAD: "a" + BAD, "size": 3}, {"_id": 2, BAD: "a", "size": 1}]
    # Bytes that are a character together are that character.
    halves = raw({"v": {"$concat": [decode_text(b"\xc3"), decode_text(b"\xa9")]}})
    assert list(database.aggregate([{"$documents": [halves]}, {"$match": {"v": "é"}}])) == [{"v": "é"}]


def test_indexes_hold_such_text(database: Database[Document]) -> None:
    for keys, options in (
        ("u", {"unique": True, "sparse": True}),
        ("$**", {}),
        ([("h", "hashed")], {}),
        ([("t", "text")], {}),
        ("k", {"collation": {"locale": "en"}}),
    ):
        database.c.create_index(keys, **options)
    database.c.insert_one(raw({"_id": 1, **dict.fromkeys("uhkt", "x " + BAD), "w": {BAD: BAD}}))
    with pytest.raises(DuplicateKeyError):
        database.c.insert_one(raw({"_id": 2, "u": "x " + BAD}))
    database.c.insert_one({"_id": 3, "u": "x"})
    for filter in ({"u": "x " + BAD}, {"w." + BAD: BAD}, {"h": "x " + BAD}, {"$text": {"$search": "x"}}):
        assert [document["_id"] for document in any_text(database).find(raw(filter))] == [1]
    checked = database.command("validate", "c")
    assert (checked["valid"], checked["warnings"]) == (True, [])
    (warning,) = database.command("validate", "c", checkBSONConformance=True)["warnings"]
    assert "UTF-8" in warning


# In turn each "s" of a command becomes bytes that are no UTF-8: as a value, as a name, and as a part of either.
PIPELINES: list[list[Document]] = [
    [{"$group": {"_id": "$s", "s": {"$addToSet": "s"}}}, {"$sort": {"s": 1}}],
    [{"$lookup": {"from": "s", "localField": "s", "foreignField": "s", "as": "s"}}],
    [{"$facet": {"s": [{"$count": "s"}]}}, {"$unwind": "$s"}],
    [{"$s": {"s": "s"}}],
    [{"$merge": {"into": "s", "on": "s", "whenMatched": "s", "let": {"s": "s"}}}],
    [{"$setWindowFields": {"partitionBy": "$s", "output": {"s": {"$push": "s"}}}}],
    [{"$changeStream": {"fullDocument": "s", "resumeAfter": {"_data": "s"}}}],
    [{"$project": {"a": {"$toInt": "s"}}}],
    [{"$project": {"a": {"$toDate": "s"}}}],
    [{"$project": {"a": {"$dateToString": {"date": "$$NOW", "format": "s"}}}}],
    [{"$project": {"a": {"$getField": "s"}, "b": {"$let": {"vars": {"s": "s"}, "in": "$$s"}}}}],
]
COMMANDS: list[Document] = [
    {"insert": "c", "documents": [{"_id": "s", "s": ["s", {"s": "s"}]}], "comment": "s"},
    {"find": "c", "filter": {"a": "s", "b.s": {"$in": ["s", 5]}}, "sort": {"s": 1}, "hint": "s"},
    {
        "find": "c",
        "filter": {"s": {"$gt": "s"}},
        "projection": {"s": 1, "x": {"$concat": ["$s", "s"]}},
        "let": {"s": "s"},
    },
    {"find": "c", "filter": {"s": "s"}, "collation": {"locale": "en"}, "sort": {"a": 1}},
    {"find": "c", "filter": {"$jsonSchema": {"required": ["s"], "properties": {"s": {"pattern": "s", "enum": ["s"]}}}}},
    {"find": "c", "filter": {"$text": {"$search": "s", "$language": "s"}}},
    {"find": "c", "filter": {"$where": "s"}},
    {"find": "c", "min": {"a": "s"}, "max": {"a": "t"}, "hint": {"a": 1}, "readConcern": {"level": "s"}},
    {"update": "c", "updates": [{"q": {"a": "s"}, "u": {"$set": {"s": "s", "b.s": "s"}, "$rename": {"q": "s"}}}]},
    {
        "update": "c",
        "updates": [{"q": {"a": "s", "b.s": "s"}, "u": {"$push": {"s": {"$each": ["s"]}}}, "upsert": True}],
    },
    {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a.$[s].s": "s"}}, "arrayFilters": [{"s.x": "s"}]}]},
    {
        "update": "c",
        "updates": [{"q": {}, "u": [{"$set": {"s": {"$toUpper": "s"}}}, {"$unset": "s"}], "c": {"s": "s"}}],
    },
    {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"s": "s"}}}]},
    {"update": "c", "updates": [{"q": {}, "u": {"$s": {"s": "s"}}}]},
    {"findAndModify": "c", "query": {"s": "s"}, "update": {"s": "s"}, "sort": {"s": 1}, "fields": {"s": 1}},
    {"delete": "c", "deletes": [{"q": {"s": "s"}, "limit": 1, "hint": "s"}]},
    {"distinct": "c", "key": "s", "query": {"s": "s"}},
    {"createIndexes": "c", "indexes": [{"key": {"s": 1}, "name": "s", "partialFilterExpression": {"s": {"$gt": "s"}}}]},
    {
        "createIndexes": "c",
        "indexes": [{"key": {"s": "text"}, "name": "t", "language_override": "s", "weights": {"s": 3}}],
    },
    {"createIndexes": "c", "indexes": [{"key": {"$**": 1}, "name": "w", "wildcardProjection": {"s": 1}}]},
    {"createIndexes": "c", "indexes": [{"key": {"s": "s"}, "name": "k", "collation": {"locale": "s"}}]},
    {"dropIndexes": "c", "index": ["s"]},
    {"collMod": "c", "validator": {"s": "s"}, "validationAction": "s"},
    {"create": "s", "viewOn": "s", "pipeline": [{"$match": {"s": "s"}}], "comment": "s"},
    {"create": "s", "timeseries": {"timeField": "s", "metaField": "s", "granularity": "s"}},
    {"renameCollection": "s.s", "to": "s.s"},
    {"listCollections": 1, "filter": {"name": "s"}},
    {"mapReduce": "c", "map": 'function() { emit("s", "s") }', "reduce": "s", "out": "s", "scope": {"s": "s"}},
    {"explain": {"find": "c", "filter": {"s": "s"}, "sort": {"s": 1}}, "verbosity": "s"},
    {"explain": {"aggregate": "c", "pipeline": [{"$group": {"_id": "s", "s": {"$sum": "s"}}}], "cursor": {}}},
    {"hello": 1, "saslSupportedMechs": "s.s", "comment": "s", "compression": ["s"]},
    {"saslStart": 1, "mechanism": "s", "payload": "s"},
    {"createUser": "s", "pwd": "s", "roles": ["s", {"role": "s", "db": "s"}], "mechanisms": ["s"]},
    {"createUser": "x", "pwd": "s", "roles": [], "mechanisms": ["SCRAM-SHA-1"], "customData": {"s": "s"}},
    {"dropUser": "x"},
    {"createRole": "s", "privileges": [{"resource": {"db": "s", "collection": "s"}, "actions": ["s"]}], "roles": ["s"]},
    {"dropRole": "s"},
    {"usersInfo": {"user": "s", "db": "s"}, "filter": {"s": "s"}},
    {"getParameter": 1, "s": "s"},
    {"getLog": "s"},
    {"planCacheSetFilter": "c", "query": {"s": "s"}, "indexes": [{"s": 1}, "s"]},
    {"planCacheClear": "c"},
    {"applyOps": [{"op": "s", "ns": "test.s", "o": {"s": "s"}}]},
    {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"s": "s"}}], "nsInfo": [{"ns": "s.s"}]},
    {"killCursors": "s", "cursors": ["s"]},
    {"ping": 1, "s": "s", "writeConcern": {"w": "s"}, "lsid": {"id": "s"}, "$readPreference": {"mode": "s"}},
    {"s": "s"},
    *[{"aggregate": "c", "pipeline": stages, "cursor": {}} for stages in PIPELINES],
]


def altered(value: object, bad: str) -> Iterator[object]:
    """The value with one "s" replaced, for each of them: names, and texts, that are "s" or have it as a part."""
    if isinstance(value, dict):
        for name, member in value.items():
            if "s" in re.split(r"[.$\[\]]", name):
                yield {part.replace("s", bad) if part == name else part: value[part] for part in value}
            for changed in altered(member, bad):
                yield {**value, name: changed}
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for changed in altered(item, bad):
                yield [*value[:place], changed, *value[place + 1 :]]
    elif isinstance(value, str) and re.search(r"\bs\b", value):
        yield re.sub(r"\bs\b", bad, value)


def test_no_command_fails_on_such_text(database: Database[Document], sender: AnyTextClient) -> None:
    """Each is answered, by a result or by an error that has a code of its own."""
    database.c.insert_one(raw({"_id": BAD, "a": BAD, "b": {BAD: BAD}, BAD: [BAD]}))
    database.c.create_index("a")
    failed: list[tuple[object, object]] = []
    count = 0
    for command in COMMANDS:
        for changed in altered(command, BAD):
            assert isinstance(changed, dict)
            count += 1
            code, text = sender.refusal(changed, "admin" if "bulkWrite" in changed else database.name)
            if code == ErrorCode.InternalError:
                failed.append((changed, text))
    assert failed == []
    assert count > 150


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"find": BAD}, 73),
        ({"create": "x" + BAD}, 73),
        ({"find": "c", "filter": {"a": Regex(BAD, "")}}, 51091),
        ({"find": "c", "filter": {"a": {"$regex": "^a.*" + BAD}}}, 51091),
        ({"find": "c", "filter": {"$jsonSchema": {"properties": {"a": {"pattern": BAD}}}}}, 51091),
        ({"createUser": BAD, "pwd": "x", "roles": []}, 2),
        ({"createUser": "x", "pwd": BAD, "roles": [], "mechanisms": ["SCRAM-SHA-256"]}, 2),
    ],
)
def test_names_patterns_and_users_must_be_utf_8(sender: AnyTextClient, command: Document, code: int) -> None:
    assert sender.refusal(command)[0] == code


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$regexMatch": {"input": BAD, "regex": "a"}}, 51156),
        ({"$substrCP": [decode_text(b"\x80"), 1, 1]}, 34456),
        ({"$substrCP": [decode_text(b"\xff"), 1, 1]}, 34457),
        ({"$substrCP": [decode_text(b"a\x80"), 0, 2]}, 34458),
        ({"$substrCP": [decode_text(b"a\xf8"), 1, 1]}, 34459),
        ({"$trim": {"input": "a", "chars": decode_text(b"a\x80")}}, 5156305),
        ({"$ltrim": {"input": "a", "chars": decode_text(b"a\xe2\x82")}}, 5156304),
    ],
)
def test_operators_on_code_points_refuse_other_bytes(sender: AnyTextClient, expression: Document, code: int) -> None:
    command = {"aggregate": 1, "pipeline": [{"$documents": [{"v": expression}]}], "cursor": {}}
    assert sender.refusal(command)[0] == code


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ({"$strLenCP": decode_text(b"\x80a\xff")}, 2),
        ({"$substrCP": [decode_text(b"a\xc3b"), 1, 1]}, decode_text(b"\xc3b")),
        ({"$substrCP": [decode_text(b"ab\xff"), 1, 1]}, "b"),
        ({"$trim": {"input": BAD + "é" + BAD + "é", "chars": BAD + "é"}}, ""),
        ({"$rtrim": {"input": "é" + BAD + "aé", "chars": BAD + "é"}}, "é" + BAD + "a"),
        ({"$ltrim": {"input": BAD + "é" + BAD, "chars": BAD}}, "é" + BAD),
        ({"$split": ["é", decode_text(b"\xa9")]}, [decode_text(b"\xc3"), ""]),
        ({"$replaceAll": {"input": "é", "find": decode_text(b"\xa9"), "replacement": decode_text(b"\xa8")}}, "è"),
        ({"$replaceAll": {"input": "é", "find": "", "replacement": "X"}}, decode_text(b"X\xc3X\xa9X")),
        ({"$replaceOne": {"input": "é", "find": "", "replacement": "X"}}, "Xé"),
        ({"$strcasecmp": [BAD, "\U0001f600"]}, 1),
        ({"$toUpper": "a" + BAD}, "A" + BAD),
        ({"$function": {"body": "function(x) { return x }", "args": [{BAD: BAD}], "lang": "js"}}, {BAD: BAD}),
    ],
)
def test_operators_on_bytes_take_them_as_they_are(sender: AnyTextClient, expression: Document, value: object) -> None:
    command = {"aggregate": 1, "pipeline": [{"$documents": [{"v": expression}]}], "cursor": {}}
    assert sender.command(command)["cursor"]["firstBatch"] == [{"v": value}]


def test_no_pattern_matches_text_that_is_no_utf_8(database: Database[Document]) -> None:
    database.c.insert_many([raw({"_id": 1, "a": "abc" + BAD}), {"_id": 2, "a": "abc"}])
    for pattern in ("^abc", "bc", "a.c"):
        assert [document["_id"] for document in any_text(database).find({"a": {"$regex": pattern}})] == [2]


def test_change_streams_and_the_oplog_have_such_text(client: Client, database: Database[Document]) -> None:
    database.create_collection("c")
    with any_text(database).watch(full_document="updateLookup") as stream:
        database.c.insert_one(raw({"_id": BAD, BAD: BAD}))
        database.c.update_one(raw({"_id": BAD}), {"$set": raw({"x" + BAD: 1})})
        inserted, updated = next(stream), next(stream)
    assert inserted["fullDocument"] == {"_id": BAD, BAD: BAD}
    assert updated["documentKey"] == {"_id": BAD}
    assert updated["updateDescription"]["updatedFields"] == {"x" + BAD: 1}
    with any_text(database).watch(resume_after=inserted["_id"]) as stream:
        assert next(stream)["_id"] == updated["_id"]
    entry = any_text(client.local, "oplog.rs").find_one({"ns": f"{database.name}.c", "op": "i"})
    assert entry["o"] == {"_id": BAD, BAD: BAD}


@own_profile
def test_profile_and_explain_show_such_text(database: Database[Document], sender: AnyTextClient) -> None:
    database.c.insert_one({"a": 1})
    database.c.create_index("a")
    database.command("profile", 2)
    command = {"find": "c", "filter": {"a": {"$gt": BAD}}, "comment": "find it"}
    assert sender.refusal(command, database.name) == (0, "")
    database.command("profile", 0)
    entry = any_text(database, "system.profile").find_one({"command.comment": "find it"})
    assert entry["command"]["filter"] == command["filter"]
    explained = sender.command({"explain": command}, database.name)["queryPlanner"]
    assert explained["parsedQuery"] == {"a": {"$gt": BAD}}
    assert explained["winningPlan"]["inputStage"]["indexBounds"] == {"a": [f'("{BAD}", {{}})']}


def test_a_folder_and_its_backup_keep_such_text(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with mongottl.start_server(data_dir=str(data)) as server, Client(server.uri) as client:
        client.test.c.create_index("text")
        client.test.c.insert_one(raw(STORED))
        client.test.create_collection("capped", capped=True, size=10_000)
        client.test.capped.insert_one(raw(STORED))
    assert main(["backup", str(data), str(copy)]) == 0
    for folder in (data, copy):
        assert list(DataCheck(str(folder)).faults()) == []
        with mongottl.start_server(data_dir=str(folder)) as server, Client(server.uri) as client:
            assert stored(client.test, {"text": STORED["text"]}) == encode(STORED)
            assert any_text(client.test, "capped").count_documents(raw({"_id": BAD})) == 1


def test_a_dump_keeps_such_text(tmp_path: Path) -> None:
    folder = tmp_path / "dump" / "test"
    folder.mkdir(parents=True)
    (folder / "c.bson").write_bytes(encode(STORED))
    (folder / "c.metadata.json").write_text(json_util.dumps({"indexes": [], "options": {}}))
    with mongottl.start_server(load=str(tmp_path / "dump")) as server, Client(server.uri) as client:
        assert stored(client.test, {}) == encode(STORED)
