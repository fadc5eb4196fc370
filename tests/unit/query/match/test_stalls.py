"""No query operator goes on for long without a check, whatever number of values, elements or fields a client sends.

Each registered operator has examples, or stands among those whose work does not grow with what a client sends.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.document.build import encode
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.match.describe_failure import describe_failure
from mongottl.query.match.registry import match_operators, root_operators
from tests.gaps import ELEMENTS, STALL_S, longest_stall_s, measured

pytestmark = pytest.mark.slow

LENGTH = ELEMENTS
TEXT_BYTES = 1 << 20
NUMBERS = [*range(LENGTH)]
FIELDS = [f"f{number}" for number in NUMBERS]
MANY_FIELDS = [f"f{number * 7919 % 1_000_003}" for number in range(10 * LENGTH)]
RING = [[number / LENGTH, 0.0] for number in range(LENGTH)] + [[1.0, 1.0], [0.0, 0.0]]
POLYGON = {"$geometry": {"type": "Polygon", "coordinates": [RING]}}
LONG: dict[str, Any] = {
    "a": NUMBERS,
    "docs": [{"n": number, "list": [number]} for number in NUMBERS],
    "words": [f"word{number * 7919 % LENGTH}" for number in NUMBERS],
    "nested": [[number, [number]] for number in NUMBERS],
    "wide": dict.fromkeys(FIELDS, 1),
    "text": "a b " * (TEXT_BYTES // 4),
    "binary": b"a" * TEXT_BYTES,
    "points": [[number / LENGTH, 0.5] for number in NUMBERS],
    "one": 1,
}

# By name, filters on documents with the field of `LONG` that they name first.
EXAMPLES: dict[str, list[Any]] = {
    "$all": [{"a": {"$all": [-1, -2]}}, {"one": {"$all": NUMBERS}}, {"a": {"$all": [-5, *NUMBERS[:50]]}}],
    "$and": [{"$and": [{"one": 1}] * LENGTH}, {"$and": [{"one": {"$gt": -number}} for number in NUMBERS]}],
    "$bitsAllClear": [{"a": {"$bitsAllClear": [*range(50)]}}, {"binary": {"$bitsAllClear": NUMBERS}}],
    "$bitsAllSet": [{"a": {"$bitsAllSet": 1 << 40}}, {"binary": {"$bitsAllSet": b"a" * LENGTH}}],
    "$bitsAnyClear": [{"a": {"$bitsAnyClear": [0]}}, {"binary": {"$bitsAnyClear": NUMBERS}}],
    "$bitsAnySet": [{"a": {"$bitsAnySet": 1 << 40}}, {"binary": {"$bitsAnySet": [7] * LENGTH}}],
    "$elemMatch": [
        {"a": {"$elemMatch": {"$gt": LENGTH, "$lt": 0}}},
        {"docs": {"$elemMatch": {"n": -1}}},
        {"nested": {"$elemMatch": {"$elemMatch": {"$lt": -1}}}},
    ],
    "$eq": [
        {"a": -1},
        {"a": [*range(LENGTH - 1), -1]},
        {"wide": dict.fromkeys(FIELDS, 2)},
        {"docs.n": -1},
        {"docs.list": -1},
        dict.fromkeys(FIELDS, 1),
        {"one": 1, "$or": [{f"x{number}.y": number} for number in NUMBERS]},
    ],
    "$exists": [{"docs.missing": {"$exists": True}}, {"wide.missing": {"$exists": True}}],
    "$expr": [{"$expr": {"$in": [-1, "$a"]}}, {"$expr": {"$eq": ["$wide", {}]}}],
    "$geoIntersects": [{"one": {"$geoIntersects": POLYGON}}],
    "$geoWithin": [
        {"points": {"$geoWithin": {"$polygon": RING[:100]}}},
        {"points": {"$geoWithin": {"$center": [[50, 50], 1]}}},
        {"one": {"$geoWithin": {"$polygon": RING}}},
    ],
    "$gt": [{"a": {"$gt": LENGTH}}, {"a": {"$gt": NUMBERS}}],
    "$gte": [{"a": {"$gte": LENGTH}}],
    "$in": [
        {"a": {"$in": [-1, -2]}},
        {"one": {"$in": [-number for number in NUMBERS]}},
        {"one": {"$in": FIELDS}},
        {"one": {"$in": [bson.Regex("a")] * (LENGTH // 10)}},
        {"one": {"$in": [[number] for number in NUMBERS]}},
        {"a": {"$in": [{"x": number} for number in NUMBERS]}},
    ],
    "$jsonSchema": [
        {"$jsonSchema": {"properties": {"a": {"items": {"bsonType": "int"}, "uniqueItems": True}}}},
        {"$jsonSchema": {"properties": {"docs": {"uniqueItems": True}}}},
        {"$jsonSchema": {"properties": {"wide": {"additionalProperties": {"bsonType": "int"}}}}},
        {"$jsonSchema": {"properties": {"wide": {"patternProperties": {"x$": {"bsonType": "string"}}}}}},
        {"$jsonSchema": {"properties": {"wide": {"required": FIELDS}}}},
        {"$jsonSchema": {"properties": {"wide": {"properties": {field: {"minimum": 0} for field in FIELDS[:20_000]}}}}},
        {"$jsonSchema": {"properties": {"one": {"enum": NUMBERS}}}},
        {"$jsonSchema": {"anyOf": [{"required": ["x"]}] * 20_000}},
        {"$jsonSchema": {"dependencies": {field: ["x"] for field in FIELDS[:20_000]}}},
        {"$jsonSchema": {"properties": {"text": {"maxLength": 5}}}},
        {"$jsonSchema": {"properties": {field: {} for field in MANY_FIELDS}, "additionalProperties": False}},
        {"$jsonSchema": {"patternProperties": {field: {} for field in MANY_FIELDS}}},
        {"$jsonSchema": {"properties": {"a": {"items": [{}] * 5 * LENGTH}}}},
        {"$jsonSchema": {"allOf": [{}] * 5 * LENGTH}},
        {"$jsonSchema": {"properties": {"one": {"enum": [dict.fromkeys(MANY_FIELDS, 1)]}}}},
    ],
    "$lt": [{"a": {"$lt": 0}}],
    "$lte": [{"a": {"$lte": -1}}],
    "$mod": [{"a": {"$mod": [7, 9]}}],
    "$ne": [{"a": {"$ne": -1}}],
    "$nin": [{"a": {"$nin": [-1, "x"]}}, {"one": {"$nin": NUMBERS[5:]}}],
    "$nor": [{"$nor": [{"one": -number} for number in NUMBERS[2:]]}],
    "$not": [{"a": {"$not": {"$lt": 0}}}, {"one": {"$not": {"$in": NUMBERS[5:]}}}],
    "$or": [
        {"$or": [{"one": -number} for number in NUMBERS[2:]]},
        {"$or": [{"one": {"$lt": -number}, "x": 1} for number in NUMBERS]},
        {"$or": [{"one": {"$gt": 3 * number + 5, "$lt": 3 * number + 6}} for number in NUMBERS]},
    ],
    "$regex": [
        {"words": {"$regex": "x$"}},
        {"text": {"$regex": "c"}},
        {"text": {"$regex": "(a|b| )*c"}},
        {"one": {"$regex": "(a|b)" * 5_000}},
    ],
    "$size": [{"a": {"$size": 1}}, {"docs.list": {"$size": 2}}],
    "$text": [],
    "$type": [{"a": {"$type": "string"}}, {"a": {"$type": ["string", "object"]}}],
    "$within": [{"points": {"$within": {"$box": [[50, 50], [51, 51]]}}}],
}
# Searched by an index, when planned: `fulltext` has tests of its own.
EXAMPLES.pop("$text")
# Parts of other operators, constants, and what runs as a script, in a process of its own.
CONSTANT = {
    *("$alwaysFalse", "$alwaysTrue", "$comment", "$geoNear", "$maxDistance", "$minDistance", "$near", "$nearSphere"),
    *("$options", "$sampleRate", "$text", "$where"),
}
CASES = {f"{name} {i}": each for name, examples in EXAMPLES.items() for i, each in enumerate(examples)}


@functools.cache
def document_with(fields: tuple[str, ...]) -> bytes:
    return bson.encode({name: LONG[name] for name in fields})


def test_every_operator_has_examples_or_takes_constant_time() -> None:
    assert not EXAMPLES.keys() & CONSTANT
    assert EXAMPLES.keys() | CONSTANT == {*match_operators.names(), *root_operators.names()}


@pytest.mark.parametrize("name", CASES)
def test_no_filter_stalls_others(name: str) -> None:
    assert longest_stall_s(computation(name)) <= STALL_S


@pytest.mark.parametrize("repeated", ["$regex", "$options"])
def test_fields_of_one_name_are_not_compared_with_each_other(repeated: str) -> None:
    """A document may have them, and the last `$options` belongs to each `$regex`."""
    stand_ins = [f"{number:0{len(repeated)}d}" for number in range(LENGTH // 4)]
    raw = bson.encode({"one": {**dict.fromkeys(stand_ins, ""), "$options": "", "$regex": "x"}})
    raw = re.sub(rb"[0-9]{%d}(?=\0)" % len(repeated), repeated.encode(), raw)
    assert longest_stall_s(lambda: parse_match(raw, ParseContext(1_700_000_000_123))) <= STALL_S


# Validators that refuse a document of `LONG`, and why the error says.
REFUSED: dict[str, Any] = {
    "a field of many": {"$jsonSchema": {"properties": {"wide": {"additionalProperties": False}}}},
    "fields by pattern": {"$jsonSchema": {"properties": {"wide": {"patternProperties": {"9$": {"minimum": 5}}}}}},
    "many fields": {
        "$jsonSchema": {"properties": {"wide": {"properties": {field: {"enum": []} for field in FIELDS[:2_000]}}}}
    },
    "missing fields": {"$jsonSchema": {"required": [f"x{number}" for number in NUMBERS]}},
    "equal elements": {"$jsonSchema": {"properties": {"ones": {"uniqueItems": True}}}},
    "different elements, and two equal ones": {"$jsonSchema": {"properties": {"last": {"uniqueItems": True}}}},
    "one of many schemas": {"$jsonSchema": {"anyOf": [{"required": ["x"]}] * 2_000}},
    "dependencies": {"$jsonSchema": {"properties": {"wide": {"dependencies": {field: ["x"] for field in FIELDS}}}}},
    "additional elements": {"$jsonSchema": {"properties": {"a": {"items": [{}], "additionalItems": False}}}},
    "all elements": {"a": {"$gt": LENGTH}},
    "all documents": {"docs.n": {"$lt": 0}},
    "alternatives": {"$or": [{"one": -number} for number in NUMBERS[2:2_000]]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_description_of_a_refused_document_stalls_others(name: str) -> None:
    validator = bson.encode(REFUSED[name])
    document = bson.encode({**LONG, "last": [*NUMBERS, 5], "ones": [1] * LENGTH})

    def describe() -> object:
        return encode(describe_failure(validator, document, 1_700_000_000_123))

    assert longest_stall_s(describe) <= STALL_S


ASKED: dict[str, Callable[[MatchExpression], object]] = {
    "index kinds": lambda tree: tree.index_kinds(),
    "scripts": lambda tree: tree.runs_scripts(),
}


@pytest.mark.parametrize("question", ASKED)
def test_questions_of_planning_about_each_part_of_a_filter_give_way(question: str) -> None:
    conditions = [{"$or": [{"a": number}, {"b": number}]} for number in range(10_000)]
    tree = parse_match(bson.encode({"$and": conditions}), ParseContext(1_700_000_000_123))
    with measured() as gaps:
        ASKED[question](tree)
    assert gaps.count > 5_000


def computation(name: str) -> Callable[[], object]:
    filter = CASES[name]
    raw = bson.encode(filter)
    text = repr(filter)[:2_000]
    document = document_with(
        tuple(name for name in LONG if f"'{name}'" in text or f"'{name}." in text or f"${name}" in text)
    )

    def compute() -> object:
        tree = parse_match(raw, ParseContext(1_700_000_000_123))
        return tree, tree.matches(document), tree.describe()

    return compute
