"""getClusterParameter and setClusterParameter: their table of parameters over all BSON types."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from mongottl.commands.admin.cluster_parameters import _FIELDS
from mongottl.document.types import BOOL
from mongottl.exec.state.cluster_parameters import DEFAULTS
from tests.running import Running

SAMPLES: dict[str, Any] = {
    "double": 1.0,
    "string": "x",
    "object": {"a": 1},
    "array": [],
    "binData": Binary(bytes(16), 4),
    "objectId": ObjectId(),
    "bool": True,
    "date": datetime(2024, 1, 1, tzinfo=UTC),
    "null": None,
    "regex": Regex("a"),
    "javascript": Code("a"),
    "int": 1,
    "timestamp": Timestamp(1, 1),
    "long": Int64(1),
    "decimal": Decimal128("1"),
    "minKey": MinKey(),
    "maxKey": MaxKey(),
}


@pytest.fixture
def running() -> Running:
    return Running()


def given(running: Running, names: Any) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = running.run({"getClusterParameter": names}, "admin")["clusterParameters"]
    return parameters


def test_parameters_are_named_one_by_one_or_all(running: Running) -> None:
    options = {"_id": "changeStreamOptions", "preAndPostImages": {"expireAfterSeconds": "off"}}
    assert given(running, "changeStreamOptions") == [options]
    assert given(running, ["changeStreamOptions", "defaultMaxTimeMS", "changeStreamOptions"]) == [
        options,
        {"_id": "defaultMaxTimeMS", "readOperations": 0},
        options,
    ]
    assert [parameter["_id"] for parameter in given(running, "*")] == sorted(DEFAULTS)


@pytest.mark.parametrize(
    ("names", "code"),
    [("", 4), ("ChangeStreamOptions", 4), (["*"], 4), (["changeStreams", "x"], 4), ([], 2), ([None], 14), ([1], 14)],
)
def test_wrong_names(running: Running, names: Any, code: int) -> None:
    assert running.code({"getClusterParameter": names}, "admin") == code


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_types_of_names_and_of_parameters(running: Running, name: str) -> None:
    value = SAMPLES[name]
    if name not in ("string", "array"):
        assert running.code({"getClusterParameter": value}, "admin") == 14
    if name != "object":
        code = 40414 if name == "null" else 14
        assert running.code({"setClusterParameter": value}, "admin") == code
        assert running.code({"setClusterParameter": {"changeStreams": value}}, "admin") == 2
        assert running.code({"setClusterParameter": {"changeStreamOptions": {"preAndPostImages": value}}}, "admin") == 2
    for parameter, declared in _FIELDS.items():
        for field, type in declared.items():
            expected = ("bool",) if type.type_code == BOOL else ("int", "long", "double", "decimal")
            if name in (*expected, "null"):
                continue
            assert running.code({"setClusterParameter": {parameter: {field: value}}}, "admin") == 14, (parameter, field)


@pytest.mark.parametrize(
    ("parameter", "code"),
    [
        ({}, 4),
        ({"": {"x": 1}}, 4),
        ({"logLevel": {"verbosity": 1}}, 4),
        ({"changeStreams": {"expireAfterSeconds": 5}, "changeStreamOptions": {}}, 72),
        ({"changeStreamOptions": {"$x": 1}}, 52),
        ({"changeStreamOptions": {}}, 2),
        ({"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": 9}, "x": 1}}, 2),
        ({"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": "on"}}}, 2),
        ({"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": True}}}, 2),
        ({"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": 0}}}, 2),
        ({"changeStreams": {"expireAfterSeconds": 0}}, 2),
        ({"changeStreams": {"expireAfterSeconds": -1}}, 2),
        ({"changeStreams": {"seconds": 1}}, 40415),
        ({"defaultMaxTimeMS": {"readOperations": -1}}, 2),
        ({"fleCompactionOptions": {"maxCompactionSize": 2**31}}, 2),
    ],
)
def test_wrong_values(running: Running, parameter: dict[str, Any], code: int) -> None:
    assert running.code({"setClusterParameter": parameter}, "admin") == code


@pytest.mark.parametrize("seconds", [3600, Int64(3600), 3600.0, Decimal128("3600")])
def test_a_parameter_that_was_set_shows_when(running: Running, seconds: Any) -> None:
    running.run({"setClusterParameter": {"changeStreams": {"expireAfterSeconds": seconds}}}, "admin")
    [shown] = given(running, "changeStreams")
    assert isinstance(shown.pop("clusterParameterTime"), Timestamp)
    assert shown == {"_id": "changeStreams", "expireAfterSeconds": 3600}
    assert isinstance(shown["expireAfterSeconds"], Int64)


def test_a_field_that_is_not_given_gets_its_default(running: Running) -> None:
    running.run({"setClusterParameter": {"fleCompactionOptions": {"maxCompactionSize": 5}}}, "admin")
    running.run({"setClusterParameter": {"fleCompactionOptions": {"maxAnchorCompactionSize": 6}}}, "admin")
    [shown] = given(running, "fleCompactionOptions")
    assert (shown["maxCompactionSize"], shown["maxAnchorCompactionSize"]) == (256 << 20, 6)
