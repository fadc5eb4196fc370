"""What an expression holds at once is bounded, however often it names a long field; what it lets go as it goes is not
counted."""

import tracemalloc
from typing import Any

import bson
import pytest

from mongottl.document.freeing import free_some
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression
from mongottl.query.expr.base import MAX_HELD_BYTES

MENTIONS = 100
LONG = 4 << 20
SHORT = 60_000
ELEMENTS = 2000
# What may be held besides: the document, a value that is made, and the result.
BESIDE_BYTES = 100 << 20
DOCUMENT = bson.encode(
    {
        "t": "x" * LONG,
        "wide": "x" * LONG + "\U0001f642",  # four bytes for each character in memory
        "b": b"x" * LONG,
        "d": {"t": "x" * LONG},
        "s": "x" * SHORT,
        "word": "x" * 1000,
        "a": ["y" * 2000] * ELEMENTS,
        "few": ["x" * (LONG // 4)] * 4,
    }
)
TIMES = {"$range": [0, MENTIONS]}
MANY_TIMES = {"$range": [0, 10_000]}
UPPER = {"$toUpper": "$t"}


def mentions(operand: object, count: int = MENTIONS) -> list[object]:
    return [operand] * count


def reduced(body: object, initial: object = (), count: object = TIMES) -> dict[str, object]:
    return {"$reduce": {"input": count, "initialValue": list(initial) if initial == () else initial, "in": body}}


def mapped(body: object) -> dict[str, object]:
    return {"$map": {"input": {"$range": [0, 63]}, "in": body}}


def nested(levels: int) -> object:
    node: object = "$t"
    for _ in range(levels):
        node = {"$eq": ["$t", node]}
    return node


def document_of(operand: object, count: int) -> dict[str, object]:
    return {f"f{number}": operand for number in range(count)}


def value_of(expression: Any, document: bytes = DOCUMENT) -> object:
    wrapped = bson.encode({"e": expression})
    return parse_expression(get_value(wrapped, "e"), ParseContext()).evaluate(EvaluationContext(document))


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(mentions("$t"), id="texts in an array"),
        pytest.param(mentions("$wide", 20), id="texts that are not ASCII"),
        pytest.param(mentions("$b"), id="binary data"),
        pytest.param(mentions("$d"), id="documents"),
        pytest.param(mentions("$d.t"), id="a path"),
        pytest.param(mentions("$a"), id="arrays"),
        pytest.param(mentions("$s", 10_000), id="many values that are short"),
        pytest.param(mentions([mentions("$s", 63)], 2 * 63), id="short lists of them"),
        pytest.param({"$size": mapped(mapped(mapped(mentions("$word", 63))))}, id="short lists in short lists"),
        pytest.param(mentions(["$t", "$t"]), id="arrays of texts"),
        pytest.param({"$concat": mentions("$t")}, id="$concat"),
        pytest.param({"$max": mentions(UPPER)}, id="texts that operators make"),
        pytest.param({"$setUnion": mentions("$a")}, id="$setUnion"),
        pytest.param({"$setEquals": mentions("$a")}, id="$setEquals"),
        pytest.param({"$concatArrays": mentions("$few")}, id="$concatArrays"),
        pytest.param({"$zip": {"inputs": mentions("$a")}}, id="$zip"),
        pytest.param({"$mergeObjects": mentions("$d")}, id="$mergeObjects"),
        pytest.param(nested(MENTIONS - 5), id="nested operators"),
        pytest.param({"$size": {"$map": {"input": TIMES, "in": "$t"}}}, id="$map of a field"),
        pytest.param({"$map": {"input": MANY_TIMES, "in": {"$concat": ["$s", "x"]}}}, id="$map of short texts"),
        pytest.param(reduced({"$concatArrays": ["$$value", [UPPER]]}), id="$reduce that appends"),
        pytest.param(reduced({"$concatArrays": [[UPPER], "$$value"]}), id="$reduce that puts before"),
        pytest.param(
            reduced({"$concatArrays": ["$$value", ["$s"]]}, count=MANY_TIMES), id="$reduce that appends short texts"
        ),
        pytest.param(
            reduced({"$let": {"vars": {"x": UPPER}, "in": {"$concatArrays": ["$$value", ["$$x"]]}}}),
            id="$reduce that appends a variable",
        ),
        pytest.param(
            reduced({"$setUnion": ["$$value", [{"$concat": ["$t", {"$toString": "$$this"}]}]]}),
            id="$reduce that unites sets",
        ),
        pytest.param({"$let": {"vars": document_of(UPPER, MENTIONS), "in": 1}}, id="variables"),
        pytest.param({"$let": {"vars": document_of("$s", 10_000), "in": 1}}, id="many variables"),
        pytest.param(
            {"$let": {"vars": {"x": "$t"}, "in": mentions({"$toUpper": "$$x"})}}, id="texts made of a variable"
        ),
        pytest.param(
            {"$let": {"vars": {"x": "$t"}, "in": mentions({"$split": ["$$x", ","]})}}, id="lists made of a variable"
        ),
        pytest.param(
            {"$let": {"vars": {"x": {"$range": [0, 50_000]}}, "in": mentions({"$reverseArray": "$$x"}, 200)}},
            id="copies of an array",
        ),
        pytest.param(document_of("$t", MENTIONS), id="a document"),
        pytest.param(document_of("$s", 10_000), id="a document of short texts"),
        pytest.param(mentions({"$range": [0, 300_000]}, 30), id="constants"),
    ],
)
def test_an_expression_that_would_hold_too_much_fails(expression: object) -> None:
    with pytest.raises(CommandError) as failure:
        value_of(expression)
    assert failure.value.code in (ErrorCode.ExceededMemoryLimit, 13548, 16493)
    while free_some():
        pass


@pytest.mark.parametrize(
    "expression",
    [
        mentions("$t"),
        {"$concat": mentions("$t")},
        mentions("$s", 10_000),
        document_of("$t", MENTIONS),
        {"$map": {"input": MANY_TIMES, "in": {"$concat": ["$s", "x"]}}},
        reduced({"$concatArrays": ["$$value", [UPPER]]}),
        reduced({"$concatArrays": [[UPPER], "$$value"]}),
    ],
)
def test_an_expression_fails_before_it_takes_more_memory(expression: object) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CommandError):
            value_of(expression)
        assert tracemalloc.get_traced_memory()[1] < MAX_HELD_BYTES + BESIDE_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$add": mentions({"$strLenBytes": "$t"})}, MENTIONS * LONG),
        ({"$size": [mentions({"$strLenBytes": UPPER})]}, MENTIONS),
        ({"$and": mentions({"$eq": ["$t", UPPER]})}, False),
        ({"$size": {"$map": {"input": TIMES, "in": {"$strLenBytes": UPPER}}}}, MENTIONS),
        ({"$size": {"$filter": {"input": TIMES, "cond": {"$gt": [{"$strLenBytes": "$t"}, 5]}}}}, MENTIONS),
        ({"$size": [mentions({"$slice": ["$a", 1]})]}, MENTIONS),
        ({"$size": [mentions({"$arrayElemAt": ["$few", 0]})]}, MENTIONS),
        ({"$size": {"$map": {"input": TIMES, "in": {"$slice": ["$a", 1]}}}}, MENTIONS),
        (reduced({"$add": ["$$value", {"$strLenBytes": "$t"}]}, 0), MENTIONS * LONG),
        ({"$strLenBytes": reduced({"$cond": [{"$gt": ["$$this", -1]}, UPPER, "$$value"]}, "")}, LONG),
        (
            {
                "$size": reduced(
                    {
                        "$cond": [
                            {"$gt": [{"$size": "$$value"}, 3]},
                            [],
                            {"$concatArrays": ["$$value", [UPPER]]},
                        ]
                    }
                )
            },
            MENTIONS % 5,
        ),
        ({"$let": {"vars": {"x": "$t"}, "in": {"$size": [mentions({"$strLenBytes": "$$x"})]}}}, MENTIONS),
    ],
)
def test_values_that_are_let_go_do_not_count(expression: object, expected: object) -> None:
    assert value_of(expression) == expected
