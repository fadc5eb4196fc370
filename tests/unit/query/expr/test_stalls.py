"""No operator on values, or with operands, of which a client decides the number goes on for long without a check.

Each registered operator has examples, or stands among those whose work does not grow with what a client sends.
"""

import datetime
import functools
from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.document.walk import get_value
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression
from mongottl.query.expr.base import EXPRESSIONS, Constant, Expression, FunctionExpression
from mongottl.query.expr.path import FieldExpression
from mongottl.query.expr.percentile import parse_shares
from tests.gaps import ELEMENTS, STALL_S, longest_stall_s, measured

pytestmark = pytest.mark.slow

LENGTH = ELEMENTS
TEXT_BYTES = 1 << 20
NUMBERS = [*range(LENGTH)]
FIELDS = [f"f{number}" for number in NUMBERS]
NOW_MS = 1_700_000_000_123
DATE: Any = {"$toDate": {"$toLong": 1_700_000_000_000}}


def many(operand: object) -> list[object]:
    return [operand] * LENGTH


# By name, a list of expressions over the fields of `DOCUMENTS`.
EXAMPLES: dict[str, list[Any]] = {
    "$abs": ["$decimal"],
    "$add": [many("$one"), many(1), many("$decimal"), many("$double")],
    "$allElementsTrue": [["$ones"]],
    "$and": [many("$one"), many(1)],
    "$anyElementTrue": [["$zeros"]],
    "$arrayElemAt": [["$a", 1], ["$docs", -1]],
    "$arrayToObject": ["$pairs", "$keyed", [["$text", 1]]],
    "$avg": ["$a", "$doubles", "$decimals", many("$one")],
    "$binarySize": ["$text", "$accents", "$binary"],
    "$bitAnd": [many("$one")],
    "$bitOr": [many("$one")],
    "$bitXor": [many("$one")],
    "$bsonSize": ["$wide", "$$ROOT"],
    "$cmp": [["$a", "$b"], ["$docs", "$docs"], ["$wide", "$wide"], ["$nested", "$nested"], ["$text", "$text"]],
    "$concat": [
        ["$no UTF-8", "$no UTF-8"],
        ["$text"] * 400,
        ["$text", "$text"],
        many("$word"),
        many("w"),
        ["$accents", "$accents"],
    ],
    "$concatArrays": [["$a", "$a", "$a"], many("$short"), many([1])],
    "$convert": [
        {"input": "$digits", "to": "decimal", "onError": 0},
        {"input": "$digits", "to": "double", "onError": 0},
        {"input": "$digits", "to": "long", "onError": 0},
        {"input": "$text", "to": "date", "onError": 0},
        {"input": "$text", "to": "objectId", "onError": 0},
        {"input": "$text", "to": "binData", "format": "utf8", "onError": 0},
        {"input": "$digits", "to": "binData", "format": "base64", "onError": 0},
        {"input": "$digits", "to": "binData", "format": "hex", "onError": 0},
        {"input": "$binary", "to": "string", "format": "base64", "onError": 0},
        {"input": "$binary", "to": "string", "format": "hex", "onError": 0},
    ],
    "$dateFromString": [
        {"dateString": "$text", "onError": 0},
        {"dateString": "$digits", "onError": 0},
        {"dateString": "$digits", "format": "%Y-%m-%d", "onError": 0},
        {"dateString": "$text", "format": "%Y%m%d" * 10_000, "onError": 0},
        {"dateString": {"$concat": ["2024-01-31T12:00:00.", *["$digits"] * 4, "x"]}, "onError": 0},
    ],
    "$dateToString": [
        {"date": DATE, "format": "%Y-%m-%d %H:%M:%S" * 10_000, "timezone": "Europe/Paris"},
        {"date": DATE, "format": "x" * TEXT_BYTES},
    ],
    "$eq": [["$a", "$b"], ["$nested", "$nested"], ["$wide", "$wide"]],
    "$filter": [{"input": "$a", "cond": True}, {"input": "$a", "cond": {"$gt": ["$$this", 5]}}],
    "$first": ["$a", "$docs"],
    "$firstN": [{"input": "$a", "n": LENGTH}],
    "$function": [],
    "$getField": [{"input": "$wide", "field": FIELDS[-1]}, {"input": "$wide", "field": "missing"}],
    "$gt": [["$a", "$b"]],
    "$gte": [["$a", "$b"]],
    "$ifNull": [many("$missing"), many(None)],
    "$in": [[-1, "$a"], [-1, NUMBERS], ["$one", NUMBERS], ["$a", "$nested"], ["$text", ["$text", "$text"]]],
    "$indexOfArray": [["$a", -1], ["$docs", {"n": -1}]],
    "$indexOfBytes": [["$text", "c"], ["$accents", "c"]],
    "$indexOfCP": [["$text", "c"], ["$accents", "c"], ["$text", "$text"]],
    "$isArray": ["$a"],
    "$last": ["$a"],
    "$lastN": [{"input": "$a", "n": LENGTH}],
    "$let": [
        {"vars": dict.fromkeys(FIELDS, "$one"), "in": "$$f1"},
        {"vars": {"v" * TEXT_BYTES: 1}, "in": 1},
        {"vars": {}, "in": "$$" + "v" * TEXT_BYTES},
    ],
    "$literal": [NUMBERS, dict.fromkeys(FIELDS, 1), "a" * TEXT_BYTES],
    "$const": [NUMBERS, dict.fromkeys(FIELDS, 1)],
    "$lt": [["$a", "$b"]],
    "$lte": [["$a", "$b"]],
    "$ltrim": [{"input": "$text", "chars": "ab "}, {"input": "$spaces"}, {"input": "$accents", "chars": "é"}],
    "$map": [
        {"input": "$a", "in": 1},
        {"input": "$a", "in": {"$add": ["$$this", 1]}},
        {
            "input": "$a",
            "in": {"$dateToString": {"date": {"$toDate": {"$toLong": "$$this"}}, "timezone": "Japan"}},
        },
        {"input": "$docs", "in": "$$this.n"},
        {"input": "$a", "in": {"n": "$$this", "s": {"$toString": "$$this"}}},
        {"input": "$a", "in": {"$divide": [{"$toDecimal": "$$this"}, 7]}},
    ],
    "$max": ["$a", "$docs", many("$one")],
    "$maxN": [{"input": "$a", "n": LENGTH}, {"input": "$a", "n": 3}],
    "$median": [{"input": "$a", "method": "approximate"}, {"input": "$doubles", "method": "approximate"}],
    "$mergeObjects": ["$docs", ["$wide", "$wide"], many("$doc"), many({"a": 1})],
    "$min": ["$a", "$docs"],
    "$minN": [{"input": "$a", "n": LENGTH}, {"input": "$docs", "n": 1000}],
    "$multiply": [many("$one"), many(1), many("$decimal"), many(2.5)],
    "$ne": [["$a", "$b"]],
    "$not": ["$a"],
    "$objectToArray": ["$wide"],
    "$or": [many("$zero"), many(0)],
    "$percentile": [{"input": "$a", "p": [number / LENGTH for number in NUMBERS], "method": "approximate"}],
    "$range": [[0, 1_000_000]],
    "$reduce": [
        {"input": "$a", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}},
        {"input": "$a", "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}},
        {"input": "$a", "initialValue": "", "in": {"$concat": ["$$value", "w"]}},
        {"input": "$docs", "initialValue": {}, "in": {"$mergeObjects": ["$$value", "$$this"]}},
    ],
    "$regexFind": [{"input": "$text", "regex": "c"}, {"input": "$accents", "regex": "c"}],
    "$regexFindAll": [{"input": "$text", "regex": "b"}, {"input": "$accents", "regex": "(é)"}],
    "$regexMatch": [
        {"input": "$text", "regex": "c"},
        {"input": "$word", "regex": "(a|b)" * 5_000},
        {"input": "$word", "regex": "((?1)?" + "(?1)?" * 3_000 + "a)"},
        {"input": "$word", "regex": "(?R)?" * 400 + "a"},
    ],
    "$replaceAll": [
        {"input": "$text", "find": "a", "replacement": "c"},
        {"input": "$accents", "find": "é", "replacement": "e"},
        {"input": "$text", "find": "$text", "replacement": "$text"},
        {"input": "$text", "find": "a", "replacement": "$text"},
        {"input": "$no UTF-8", "find": "$broken", "replacement": "$text"},
        {"input": "$accents", "find": "", "replacement": "x"},
    ],
    "$replaceOne": [
        {"input": "$text", "find": "c", "replacement": "c"},
        {"input": "$dates", "find": "c", "replacement": "c"},
    ],
    "$reverseArray": ["$a"],
    "$rtrim": [{"input": "$text", "chars": "ab "}, {"input": "$spaces"}],
    "$setDifference": [["$a", [1]], ["$a", "$a"], ["$docs", "$docs"]],
    "$setEquals": [["$a", "$a"], many("$short")],
    "$setField": [{"input": "$wide", "field": "new", "value": 1}],
    "$setIntersection": [["$a", "$a"], many("$short")],
    "$setIsSubset": [["$a", "$a"]],
    "$setUnion": [["$a", "$b"], many("$short"), many([1])],
    "$size": ["$a"],
    "$slice": [["$a", LENGTH], ["$a", 5, LENGTH]],
    "$sortArray": [
        {"input": "$a", "sortBy": -1},
        {"input": "$docs", "sortBy": {"n": 1}},
        {"input": "$docs", "sortBy": dict.fromkeys(FIELDS[:50], 1)},
        {"input": ["$doc"], "sortBy": dict.fromkeys(FIELDS, 1)},
        {"input": ["$wide"], "sortBy": {f"x{field}": 1 for field in FIELDS}},
        {"input": "$words", "sortBy": 1},
    ],
    "$split": [["$no UTF-8", "$broken"], ["$text", " "], ["$accents", "é"], ["$text", "$text"]],
    "$stdDevPop": ["$a", many("$one")],
    "$stdDevSamp": ["$a"],
    "$strLenBytes": ["$no UTF-8", "$text", "$accents"],
    "$strLenCP": ["$no UTF-8", "$text", "$accents"],
    "$strcasecmp": [["$text", "$text"], ["$accents", "$accents"]],
    "$substr": [["$text", 0, TEXT_BYTES], ["$accents", 0, TEXT_BYTES]],
    "$substrBytes": [["$text", 0, TEXT_BYTES], ["$accents", 0, TEXT_BYTES]],
    "$substrCP": [["$text", 0, TEXT_BYTES], ["$accents", 1, TEXT_BYTES]],
    "$sum": ["$a", "$doubles", "$decimals", many("$one")],
    "$switch": [
        {"branches": [{"case": "$zero", "then": 1}] * LENGTH, "default": 0},
        {"branches": [{"case": 0, "then": 1}] * LENGTH, "default": 0},
    ],
    "$toBool": ["$a"],
    "$toDate": ["$text", "$digits"],
    "$toDecimal": ["$digits"],
    "$toDouble": [
        "$digits",
        {"$convert": {"input": {"$concat": ["+0x", "$digits", "g"]}, "to": "double", "onError": 0}},
    ],
    "$toHashedIndexKey": ["$a", "$text"],
    "$toInt": ["$digits", "$text"],
    "$toLong": ["$digits"],
    "$toLower": ["$text", "$accents"],
    "$toObjectId": ["$text"],
    "$toString": ["$binary", "$text"],
    "$toUUID": ["$text"],
    "$toUpper": ["$text", "$accents"],
    "$trim": [
        {"input": "$text", "chars": "ab "},
        {"input": "$spaces"},
        {"input": "$word", "chars": "$text"},
        {"input": "$no UTF-8", "chars": "$broken"},
    ],
    "$type": ["$a"],
    "$unsetField": [{"input": "$wide", "field": "f1"}],
    "$zip": [
        {"inputs": ["$a", "$a"]},
        {"inputs": ["$a", "$short"], "useLongestLength": True, "defaults": [1, 2]},
        {"inputs": many("$short")},
    ],
}
EXAMPLES.pop("$function")  # the time of scripts is limited, in processes of their own

# A fixed number of operands, each a number, a date or the like; what yields them is another operator.
CONSTANT = {
    *("$acos", "$acosh", "$asin", "$asinh", "$atan", "$atan2", "$atanh", "$bitNot", "$ceil", "$cond", "$cos", "$cosh"),
    *("$dateAdd", "$dateDiff", "$dateFromParts", "$dateSubtract", "$dateToParts", "$dateTrunc", "$dayOfMonth"),
    *("$dayOfWeek", "$dayOfYear", "$degreesToRadians", "$divide", "$exp", "$floor", "$hour", "$isNumber"),
    *("$isoDayOfWeek", "$isoWeek", "$isoWeekYear", "$ln", "$log", "$log10", "$meta", "$millisecond", "$minute"),
    *("$mod", "$month", "$pow", "$radiansToDegrees", "$rand", "$round", "$second", "$sigmoid", "$sin", "$sinh"),
    *("$sqrt", "$subtract", "$tan", "$tanh", "$trunc", "$tsIncrement", "$tsSecond", "$week", "$year"),
}
# Scripts run in processes of their own, and their time is limited.
ELSEWHERE = {"$function"}
# Not operators: what stands in their place.
SYNTAX: dict[str, Any] = {
    "array of expressions": many("$one"),
    "array of constants": NUMBERS,
    "object of expressions": dict.fromkeys(FIELDS, "$one"),
    "object of constants": dict.fromkeys(FIELDS, 1),
    "path through an array": "$docs.n",
    "path of many names": "$" + ".".join(["a"] * 90),
    "nested arrays": "$nested",
}


# As documents have it, bytes that are no UTF-8 take its place.
BROKEN = "\u00a4".encode()
SHORT: dict[str, Any] = {
    "one": 1,
    "zero": 0,
    "short": [1],
    "word": "ab",
    "broken": BROKEN.decode(),
    "doc": {"a": 1},
    "double": 1.5,
    "decimal": bson.Decimal128("1.5"),
}
LONG: dict[str, Any] = {
    "a": NUMBERS,
    "b": [*range(LENGTH - 1), -1],
    "ones": [1] * LENGTH,
    "zeros": [0] * LENGTH,
    "doubles": [number / 7 for number in NUMBERS],
    "decimals": [bson.Decimal128(str(number)) for number in NUMBERS],
    "dates": [datetime.datetime(2024, 1, 31, tzinfo=datetime.UTC)] * LENGTH,
    "docs": [{"n": number, f"f{number % 1000}": number} for number in NUMBERS],
    "pairs": [[field, 1] for field in FIELDS],
    "keyed": [{"k": field, "v": 1} for field in FIELDS],
    "nested": [[number, [number]] for number in NUMBERS],
    "words": [f"word{number * 7919 % LENGTH}" for number in NUMBERS],
    "wide": dict.fromkeys(FIELDS, 1),
    "text": "a b " * (TEXT_BYTES // 4),
    "spaces": " " * TEXT_BYTES,
    "digits": "1" * TEXT_BYTES,
    "accents": "éa" * (TEXT_BYTES // 3),
    "no UTF-8": BROKEN.decode() * (TEXT_BYTES // 2),
    "binary": b"a" * TEXT_BYTES,
}


@functools.cache
def document_with(fields: tuple[str, ...]) -> bytes:
    return bson.encode({**SHORT, **{name: LONG[name] for name in fields}}).replace(BROKEN, b"\xff\xff")


def document_of(expression: object) -> bytes:
    """A document with the long fields that the expression reads, and no other, so that none is searched through."""
    text = repr(expression)[:2_000]
    return document_with(tuple(name for name in LONG if f"'${name}'" in text or f"'${name}." in text))


def test_every_operator_has_examples_or_takes_constant_time() -> None:
    assert not EXAMPLES.keys() & CONSTANT
    assert EXAMPLES.keys() | CONSTANT | ELSEWHERE == set(EXPRESSIONS.names())


CASES = {
    **{f"{name} {i}": {name: each} for name, examples in EXAMPLES.items() for i, each in enumerate(examples)},
    **SYNTAX,
}


@pytest.mark.parametrize("name", CASES)
def test_no_operator_stalls_others(name: str) -> None:
    assert longest_stall_s(computation(name)) <= STALL_S


def computation(name: str) -> Callable[[], object]:
    raw = bson.encode({"v": CASES[name]})
    document = document_of(CASES[name])

    def compute() -> object:
        tree = parse_expression(get_value(raw, "v"), ParseContext(NOW_MS))
        return tree, tree.evaluate(EvaluationContext(document))

    return compute


# Of trees that others have parsed, which takes longer than what is computed of them.
MANY: int = 500_000


def test_the_fields_that_many_operands_read_stall_nobody() -> None:
    operands: list[Expression] = [FieldExpression(f"f{number}") for number in range(MANY)]
    node = FunctionExpression("$and", len, operands)
    assert longest_stall_s(node.dependencies) <= STALL_S


def test_of_the_fields_that_name_a_type_convert_decodes_two() -> None:
    to = {**dict.fromkeys(FIELDS, 1), "type": "int"}
    raw = bson.encode({"v": {"$convert": {"input": "$one", "to": {"$literal": to}}}})
    node = parse_expression(get_value(raw, "v"), ParseContext(NOW_MS))
    with measured() as gaps:
        assert node.evaluate(EvaluationContext(document_with(()))) == 1
    assert gaps.count < 1_000


def test_many_shares_of_a_percentile_stall_nobody() -> None:
    shares = Constant([0.5] * MANY)
    assert longest_stall_s(lambda: parse_shares(shares)) <= STALL_S


def test_a_long_text_to_convert_is_matched_in_parts() -> None:
    raw = bson.encode({"v": {"$convert": {"input": "$text", "to": "binData", "format": "base64url"}}})
    node = parse_expression(get_value(raw, "v"), ParseContext(NOW_MS))
    document = bson.encode({"text": "a" * (1 << 22)})
    with measured() as gaps:
        node.evaluate(EvaluationContext(document))
    assert gaps.count >= 32
