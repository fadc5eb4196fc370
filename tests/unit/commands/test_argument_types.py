"""Arguments of all BSON types to every field that is declared: tables say what is taken, and the server does so.

The fields of commands are those of the request classes, the options of stages those of `STAGE_OPTIONS`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument

from mongottl.commands import COMMANDS
from mongottl.commands import request as kinds
from mongottl.commands.admin import validate
from mongottl.commands.ddl import collection_options, collmod, create
from mongottl.commands.registry import CommandSpec
from mongottl.commands.request import Field, GenericArguments, fields_of
from mongottl.document.bson_field import STAGE_OPTIONS, OptionField
from mongottl.document.build import encode
from mongottl.document.types import DBPointer, Symbol, Undefined
from mongottl.document.types import type_name as name_of
from mongottl.errors import CommandError
from tests.running import Running

# A value of each type, by mongod's name of the type; types that PyMongo cannot encode are instances of our classes.
SAMPLES: dict[str, Any] = {
    "double": 1.0,
    "string": "x",
    "object": bson.encode({"a": 1}),
    "array": [],
    "binData": Binary(bytes(16), 4),
    "undefined": Undefined(),
    "objectId": ObjectId(),
    "bool": True,
    "date": None,
    "null": None,
    "regex": Regex("a"),
    "dbPointer": DBPointer("a", bytes(12)),
    "javascript": Code("a"),
    "symbol": Symbol("a"),
    "javascriptWithScope": Code("a", {}),
    "int": 1,
    "timestamp": Timestamp(1, 1),
    "long": Int64(1),
    "decimal": Decimal128("1"),
    "minKey": MinKey(),
    "maxKey": MaxKey(),
}
NUMBERS = {"double", "int", "long", "decimal"}
ABSENT = {"null", "undefined"}

# By kind of field: the accepted types, and the error code for all others.
TAKEN: dict[int, tuple[set[str], int]] = {
    kinds.COLLECTION: ({"string"}, 73),
    kinds.TEXT: ({"string"} | ABSENT, 14),
    kinds.DOCUMENT_FIELD: ({"object"} | ABSENT, 14),
    kinds.BOOL_FIELD: ({"bool"} | NUMBERS | ABSENT, 14),
    kinds.STRICT_BOOL: ({"bool"} | ABSENT, 14),
    kinds.GIVEN_BOOL: ({"bool", "undefined"}, 14),
    kinds.GIVEN_DOCUMENT: ({"object"}, 14),
    kinds.BOOL_OR_UUID: ({"bool", "binData"}, 14),
    kinds.WHOLE: (NUMBERS | ABSENT, 14),
    kinds.INTEGER: (NUMBERS | ABSENT, 14),
    kinds.NUMBER: (NUMBERS | ABSENT, 14),
    kinds.COUNT_LIMIT: (NUMBERS, 2),
    kinds.ARRAY_FIELD: ({"array"} | ABSENT, 14),
    kinds.DOCUMENTS: ({"array"} | ABSENT, 14),
    kinds.PIPELINE: ({"array"}, 14),
    kinds.GIVEN_DOCUMENTS: ({"array"}, 14),
    kinds.UUID: ({"binData"} | ABSENT, 14),
    kinds.INT32_FIELD: ({"int"} | ABSENT, 14),
    kinds.HINT: ({"string", "object"}, 9),
    kinds.PIPELINE_OR_DOCUMENT: ({"array", "object"}, 9),
}


def element(name: str, type_name: str) -> bytes:
    """An element of a document, of the type named."""
    if type_name == "date":
        return b"\x09" + name.encode() + b"\0" + bytes(8)
    value = SAMPLES[type_name]
    if isinstance(value, (Undefined, DBPointer, Symbol, bytes)) and not isinstance(value, Binary):
        return encode({name: value})[4:-1]
    return bson.encode({name: value})[4:-1]


def document(*elements: bytes) -> bytes:
    inner = b"".join(elements) + b"\0"
    return (len(inner) + 4).to_bytes(4, "little") + inner


def declared_fields() -> Iterator[tuple[CommandSpec, int, Field]]:
    for name in sorted({spec.name for spec in COMMANDS.values()}):
        spec = COMMANDS[name]
        for place, field in enumerate(fields_of(spec.request)):
            if field.kind in TAKEN:
                yield spec, place, field


@pytest.mark.parametrize(
    "spec, place, field", [pytest.param(*case, id=f"{case[0].name}.{case[2].name}") for case in declared_fields()]
)
def test_types_of_the_fields_of_commands(spec: CommandSpec, place: int, field: Field) -> None:
    """A required field that is null is missing (40414)."""
    taken, code = TAKEN[field.kind]
    fields = fields_of(spec.request)
    required = len(fields) - len(spec.request._field_defaults)
    others = [element(other.name, _right_type(other)) for at, other in enumerate(fields[:required]) if at != place]
    for type_name in SAMPLES:
        given = element(spec.name if place == 0 else field.name, type_name)
        elements = [given, *others] if place == 0 else [*others[:1], given, *others[1:]]
        try:
            spec.parser.parse(document(*elements), [], GenericArguments())
        except CommandError as error:
            missing = type_name in ABSENT and type_name in taken and place < required
            assert error.code == (40414 if missing else code), (type_name, error.message)
            assert missing or type_name not in taken or (type_name == "array" and code == 14), (type_name, error)
        else:
            assert type_name in taken, type_name


# Documents in fields of commands, by their request classes.
NESTED = {
    "collMod.changeStreamPreAndPostImages": collmod.ImagesChange,
    "collMod.timeseries": collmod.TimeSeriesChange,
    "create.changeStreamPreAndPostImages": create.ImagesOptions,
    "create.clusteredIndex": collection_options.ClusteredIndexOptions,
    "create.indexOptionDefaults": create.IndexOptionDefaults,
    "create.timeseries": collection_options.TimeSeriesOptions,
    "validateDBMetadata.apiParameters": validate.ApiParameters,
}


@pytest.mark.parametrize(
    "path, request_class, place",
    [
        pytest.param(path, request_class, place, id=f"{path}.{field.name}")
        for path, request_class in NESTED.items()
        for place, field in enumerate(fields_of(request_class))
    ],
)
def test_types_of_the_fields_of_documents_in_commands(path: str, request_class: type[Any], place: int) -> None:
    fields = fields_of(request_class)
    taken, code = TAKEN[fields[place].kind]
    required = len(fields) - len(request_class._field_defaults)
    others = [element(other.name, _right_type(other)) for at, other in enumerate(fields[:required]) if at != place]
    for type_name in SAMPLES:
        missing = type_name in ABSENT and place < required
        try:
            given = document(element(fields[place].name, type_name), *others)
            kinds.parser_for(path, request_class).parse(given, [], None)
        except CommandError as error:
            assert error.code == (40414 if missing else code) and (missing or type_name not in taken), type_name
        else:
            assert type_name in taken and not missing, type_name


# Fields that are checked one by one: a command with a value of each type, the types that it takes, the error code of
# null, None if it is taken, and that of the other types.
BY_HAND: dict[str, tuple[str, dict[str, Any], set[str], int | None, int]] = {
    "$planCacheStats.allHosts": (
        "allHosts",
        {"aggregate": "c", "pipeline": [{"$planCacheStats": {"allHosts": None}}], "cursor": {}},
        {"bool"},
        13111,
        13111,
    ),
    "collMod.expireAfterSeconds": ("expireAfterSeconds", {"collMod": "c", "expireAfterSeconds": None}, set(), 14, 14),
    "collMod.index.expireAfterSeconds": (
        "expireAfterSeconds",
        {"collMod": "c", "index": {"name": "a_1", "expireAfterSeconds": None}},
        NUMBERS,
        72,
        14,
    ),
    "collMod.index.hidden": (
        "hidden",
        {"collMod": "c", "index": {"name": "a_1", "hidden": None}},
        {"bool"} | NUMBERS,
        72,
        14,
    ),
    "collMod.index.prepareUnique": (
        "prepareUnique",
        {"collMod": "c", "index": {"name": "a_1", "prepareUnique": None}},
        {"bool"} | NUMBERS,
        72,
        14,
    ),
    "collStats.scale": ("scale", {"collStats": "c", "scale": None}, NUMBERS, None, 14),
    "create.storageEngine.wiredTiger.configString": (
        "configString",
        {"create": "d", "storageEngine": {"wiredTiger": {"configString": None}}},
        set(),
        14,
        14,
    ),
    "dropConnections.hostAndPort": ("hostAndPort", {"dropConnections": 1, "hostAndPort": None}, {"array"}, 40414, 14),
    "dropIndexes.index": ("index", {"dropIndexes": "c", "index": None}, set(), 14, 14),
    "getClusterParameter": ("getClusterParameter", {"getClusterParameter": None}, set(), 14, 14),
    "logRotate": ("logRotate", {"logRotate": None}, {"bool"} | NUMBERS, 14, 14),
}
# Values of these types are refused for what they say.
BY_HAND_REFUSED: dict[str, dict[str, int | None]] = {
    "$planCacheStats.allHosts": {"bool": 4503200},
    "collMod.expireAfterSeconds": dict.fromkeys({"string", *NUMBERS}, 72),
    "create.storageEngine.wiredTiger.configString": {"string": 2},
    "dropIndexes.index": {"string": 27, "object": None, "array": None},
    "getClusterParameter": {"string": 4, "array": 2},
    "logRotate": {"string": 4},
}


@pytest.mark.parametrize("path", BY_HAND)
def test_types_of_fields_that_are_checked_one_by_one(path: str) -> None:
    name, command, taken, null, code = BY_HAND[path]
    server = Running()
    server.index({"a": 1})
    for type_name in SAMPLES:
        refused = BY_HAND_REFUSED.get(path, {})
        expected = null if type_name == "null" else refused.get(type_name, code)
        if type_name == "undefined":
            continue  # as null, or as a value of another type, by the command
        if type_name in taken and type_name not in refused:
            expected = None
        database = "admin" if next(iter(command)) in ("logRotate", "dropConnections", "getClusterParameter") else "test"
        given: Any = RawBSONDocument(_with_element(bson.encode(command), name, element(name, type_name)))
        found: int | None = None
        try:
            server.run(given, database)
        except CommandError as error:
            found = error.code
        assert found == expected, type_name


def _with_element(command: bytes, name: str, given: bytes) -> bytes:
    """A document with another element in place of the one that is null, also in documents and arrays within it."""
    null = b"\x0a" + name.encode() + b"\0"

    def changed(value: bytes) -> bytes:
        elements: list[bytes] = []
        for key, raw in RawBSONDocument(value).items():
            if key == name and raw is None:
                elements.append(given)
            elif isinstance(raw, RawBSONDocument):
                elements.append(b"\x03" + key.encode() + b"\0" + changed(bytes(raw.raw)))
            elif isinstance(raw, list) and raw:
                inner = b"".join(
                    b"\x03" + str(at).encode() + b"\0" + changed(bytes(item.raw)) for at, item in enumerate(raw)
                )
                elements.append(b"\x04" + key.encode() + b"\0" + (len(inner) + 5).to_bytes(4, "little") + inner + b"\0")
            else:
                elements.append(bson.encode({key: raw})[4:-1])
        return document(*elements)

    assert null in command
    return changed(command)


def _right_type(field: Field) -> str:
    taken = TAKEN.get(field.kind, ({"string"}, 0))[0]
    return sorted(taken - ABSENT)[0]


# Options whose sample is of the right type, and refused for what it asks.
REFUSED_VALUES = {
    "targetAllNodes": 9,
    "allChangesForCluster": 72,
    "fullDocument": 2,
    "fullDocumentBeforeChange": 2,
    "resumeAfter": 40647,
    "startAfter": 40647,
    "showRawUpdateDescription": 115,
    "transformIdentifiers": 40415,
}


@pytest.mark.parametrize(
    "stage, option",
    [
        pytest.param(stage, option, id=f"{stage}.{option.name}")
        for stage in STAGE_OPTIONS
        for option in STAGE_OPTIONS[stage]
    ],
)
def test_types_of_the_options_of_stages(stage: str, option: OptionField) -> None:
    server = Running()
    for type_name in SAMPLES:
        argument = document(element(option.name, type_name))
        taken = type_name == name_of(option.type_code) or (option.null_is_absent and type_name in ABSENT)
        code = _code_of(server, stage, argument)
        expected = 14
        if taken:
            expected = 0 if type_name in ABSENT else REFUSED_VALUES.get(option.name, 0)
        assert code == expected, type_name


@pytest.mark.parametrize("stage", sorted(STAGE_OPTIONS))
def test_unknown_and_repeated_options_of_stages(stage: str) -> None:
    server = Running()
    option = STAGE_OPTIONS[stage][0]
    one = element(option.name, name_of(option.type_code))
    assert _code_of(server, stage, document(element("other", "bool"))) == 40415
    assert _code_of(server, stage, document(element("", "bool"))) == 40415
    assert _code_of(server, stage, document(element(option.name.upper(), "bool"))) == 40415
    assert _code_of(server, stage, document(one, one)) == 40413


def _code_of(server: Running, stage: str, argument: bytes) -> int:
    """The error code of a stage; 0 if it is executed."""
    collection: Any = {"$listSessions": "system.sessions", "$changeStream": "c"}.get(stage, 1)
    database = {"$listSessions": "config", "$changeStream": "test"}.get(stage, "admin")
    pipeline = [{stage: RawBSONDocument(argument)}]
    try:
        server.run({"aggregate": collection, "pipeline": pipeline, "cursor": {}}, database)
    except CommandError as error:
        return error.code
    return 0


def pipeline(*stages: dict[str, Any], over: Any = "c") -> dict[str, Any]:
    return {"aggregate": over, "pipeline": list(stages), "cursor": {}}


def lookup(**changed: Any) -> dict[str, Any]:
    return pipeline({"$lookup": {"from": "d", "localField": "a", "foreignField": "b", "as": "j", **changed}})


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (lookup(localField=1), 14),
        (lookup(foreignField=True), 14),
        (lookup(**{"as": []}), 14),
        (lookup(**{"as": None}), 40414),
        (lookup(localField=None), 9),
        (pipeline({"$lookup": {}}), 9),
        (lookup(localField="", foreignField=""), 9),
        (lookup(localField=None, foreignField=None, pipeline=[]), 0),
        (lookup(localField="", foreignField="", pipeline=[]), 0),
        (pipeline({"$group": {"_id": {"a": 1}}}), 17390),
        (pipeline({"$group": {"_id": {"a": False}}}), 17390),
        (pipeline({"$group": {"_id": {"a": {"$literal": 1}, "b": "$x", "c": None}}}), 0),
        (pipeline({"$group": {"_id": {"$literal": 1}}}), 0),
        (pipeline({"$sort": {"a": Decimal128("0.51")}}), 0),
        (pipeline({"$sort": {"a": Decimal128("-1.49")}}), 0),
        (pipeline({"$sort": {"a": Decimal128("0.5")}}), 15975),
        (pipeline({"$sort": {"a": Decimal128("1.5")}}), 15975),
        (pipeline({"$sort": {"a": 1.999}}), 0),
        (pipeline({"$sort": {"a": float("nan")}}), 15975),
        (pipeline({"$unwind": ""}), 28812),
        (pipeline({"$unwind": {"path": ""}}), 28812),
        (pipeline(over=1), 73),
        (pipeline({"$match": {}}, over=1), 73),
        (pipeline({"$documents": [{}]}, over=1), 0),
        (pipeline({"$documents": [{}]}, over=Decimal128("0.99999999999999999")), 0),
        (pipeline({"$documents": [{}]}, over=2), 2),
        (pipeline({"$documents": [{}]}, over=float("nan")), 2),
        (pipeline({"$documents": [{}]}, over=None), 73),
        (pipeline({"$documents": [{}]}, over=True), 73),
        ({"find": "c", "filter": None}, 14),
        ({"find": "$c"}, 73),
        ({"dbStats": 1, "freeStorage": "x"}, 14),
        ({"dbStats": 1, "freeStorage": Decimal128("0")}, 0),
        ({"getLog": None}, 40414),
        ({"connPoolStats": 1, "other": 1}, 0),
        ({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a", "hidden": 1}]}, 14),
        ({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a", "sparse": 1}]}, 0),
        ({"find": "c", "filter": {"$text": {"$search": "x", "$caseSensitive": 1}}}, 14),
        ({"create": "d", "collation": {}}, 40414),
        ({"create": "d", "collation": None}, 0),
        ({"create": "v", "viewOn": "c", "capped": True}, 72),
    ],
    ids=str,
)
def test_arguments_that_are_checked_one_by_one(command: dict[str, Any], code: int) -> None:
    server = Running()
    try:
        server.run(command)
    except CommandError as error:
        assert error.code == code, error.message
    else:
        assert code == 0


def test_groups_of_server_status_are_left_out_and_asked_for() -> None:
    server = Running()
    reply = server.run({"serverStatus": 1, "metrics": 0, "asserts": None, "host": 0, "mirroredReads": []})
    assert {"metrics", "asserts"}.isdisjoint(reply)
    assert {"host", "connections", "mirroredReads"} <= set(reply)
    assert "mirroredReads" not in server.run({"serverStatus": 1})


def test_a_clustered_collections_own_index_is_not_counted() -> None:
    server = Running()
    server.run({"create": "c", "clusteredIndex": {"key": {"_id": 1}, "unique": True}})
    same = {"createIndexes": "c", "indexes": [{"key": {"_id": 1}, "name": "other"}]}
    reply = server.run(same)
    assert (reply["numIndexesBefore"], reply["numIndexesAfter"]) == (0, 0)
    assert server.index({"a": 1})["numIndexesAfter"] == 1
    assert server.run({"dropIndexes": "c", "index": "a_1"})["nIndexesWas"] == 1


def test_partial_filters_whose_conditions_stand_in_another_order_are_the_same() -> None:
    server = Running()
    server.index({"a": 1}, partialFilterExpression={"$and": [{"a": 1}, {"b": 2}]})
    again = server.index({"a": 1}, partialFilterExpression={"$and": [{"b": 2}, {"a": 1}]})
    assert again["numIndexesAfter"] == again["numIndexesBefore"] == 2
    server.index({"c": 1}, partialFilterExpression={"a": {"$all": [1, 2]}})
    specification = {"key": {"d": 1}, "name": "d", "partialFilterExpression": {"a": {"$all": [Regex("x")]}}}
    assert server.code({"createIndexes": "c", "indexes": [specification]}) == 67


@pytest.mark.parametrize(
    ("specification", "code"),
    [
        ({"key": {"v": "text"}}, 72),
        ({"key": {"v": 1}, "sparse": True}, 72),
        ({"key": {"m": 1}, "sparse": True}, 0),
        ({"key": {"$**": 1}}, 7246201),
        ({"key": {"t": 1}, "expireAfterSeconds": 5}, 72),
        ({"key": {"v": "hashed"}}, 67),
        ({"key": {"m": "2d"}}, 0),
    ],
    ids=str,
)
def test_indexes_of_time_series_collections(specification: dict[str, Any], code: int) -> None:
    server = Running()
    server.run({"create": "c", "timeseries": {"timeField": "t", "metaField": "m"}})
    command = {"createIndexes": "c", "indexes": [{"name": "i", **specification}]}
    if code:
        assert server.code(command) == code
    else:
        server.run(command)


def test_find_and_modify_of_measurements() -> None:
    server = Running()
    server.run({"create": "c", "timeseries": {"timeField": "t", "metaField": "m"}})
    server.insert({"t": datetime(2024, 1, 1, tzinfo=UTC), "m": 1, "v": 1})
    assert server.code({"findAndModify": "c", "query": {"v": 1}, "update": {"$set": {"m": 2}}}) == 72
    assert server.run({"findAndModify": "c", "query": {"v": 1}, "remove": True})["lastErrorObject"] == {"n": 1}


def test_ids_of_a_clustered_collection_are_as_long_as_keys_may_be() -> None:
    server = Running()
    server.run({"create": "c", "clusteredIndex": {"key": {"_id": 1}, "unique": True}})
    limit = 8 * 1024 * 1024
    server.insert({"_id": "x" * (limit - 2)}, {"_id": Binary(bytes(limit - 7), 0)})
    reply = server.run({"insert": "c", "documents": [{"_id": "x" * (limit - 1)}]})
    assert reply["writeErrors"][0]["code"] == 5894900


def test_host_info_describes_the_system() -> None:
    reply = Running().run({"hostInfo": 1})
    for name in ("numPhysicalCores", "numCpuSockets", "numNumaNodes", "memSizeMB"):
        assert reply["system"][name] > 0
    for name in ("pageSize", "numPages", "maxOpenFiles"):
        assert reply["extra"][name] > 0


def test_buckets_with_an_output_of_nothing_are_counted() -> None:
    server = Running()
    server.insert({"a": 1}, {"a": 2})
    found = server.listed(pipeline({"$bucketAuto": {"groupBy": "$a", "buckets": 1, "output": {}}}))
    assert [document["count"] for document in found] == [2]
