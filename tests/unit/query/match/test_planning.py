"""What the planner and the writes ask a filter: ranges, `_id` lookups, equalities for an upsert."""

from typing import Any

import bson
import pytest
from bson import SON, Decimal128, MaxKey, MinKey, Regex

from mongottl.document.compare import (
    BRACKET_BINARY,
    BRACKET_DATE,
    BRACKET_NUMBER,
    BRACKET_STRING,
)
from mongottl.document.types import MISSING, Date
from mongottl.document.types import Regex as StoredRegex
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, equality_fields, id_equality, parse_match, simple_id_filter
from mongottl.query.match.interval import BracketEnd, BracketStart, Interval
from mongottl.query.match.tree import NotExpression, PathExpression

NAN = float("nan")
LOWEST = float("-inf")


def parse(filter: dict[str, Any]) -> MatchExpression:
    return parse_match(bson.encode(filter), ParseContext())


def ranges(condition: Any) -> list[Interval] | None:
    expression = parse({"a": condition})
    assert isinstance(expression, (PathExpression, NotExpression))
    return expression.intervals()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (5, [Interval(5, True, 5, True)]),
        (None, [Interval(None, True, None, True, exact=False)]),
        ({"$gt": 5}, [Interval(5, False, BracketEnd(BRACKET_NUMBER), True)]),
        ({"$lte": 5}, [Interval(LOWEST, True, 5, True)]),
        ({"$lt": NAN}, []),
        ({"$lte": Decimal128("NaN")}, [Interval(NAN, True, NAN, True)]),
        ({"$lt": "m"}, [Interval(BracketStart(BRACKET_STRING), True, "m", False)]),
        ({"$gte": Decimal128("2")}, [Interval(2, True, BracketEnd(BRACKET_NUMBER), True)]),
        ({"$gt": MinKey()}, [Interval(MinKey(), False, MaxKey(), True)]),
        ({"$lt": MinKey()}, []),
        ({"$in": [3, 1, "x", 1]}, [Interval(v, True, v, True) for v in (1, 3, "x")]),
        ({"$ne": 5}, [Interval(MinKey(), True, 5, False), Interval(5, False, MaxKey(), True)]),
        (
            {"$nin": [1, "x"]},
            [
                Interval(MinKey(), True, 1, False),
                Interval(1, False, "x", False),
                Interval("x", False, MaxKey(), True),
            ],
        ),
        (
            {"$not": {"$gt": 5}},
            [Interval(MinKey(), True, 5, True), Interval(BracketEnd(BRACKET_NUMBER), True, MaxKey(), True)],
        ),
        ({"$ne": None}, None),
        ({"$ne": [1]}, None),
        ({"$exists": True}, [Interval(MinKey(), True, MaxKey(), True, exact=False)]),
        ({"$exists": False}, [Interval(None, True, None, True, exact=False)]),
        (
            Regex("^ab"),
            [
                Interval("ab", True, "ac", False, exact=False),
                Interval(StoredRegex("^ab"), True, StoredRegex("^ab"), True, exact=False),
            ],
        ),
        ({"$type": "date"}, [Interval(BracketStart(BRACKET_DATE), True, BracketEnd(BRACKET_DATE), True, exact=False)]),
        ({"$mod": [2, 0]},
         [Interval(BracketStart(BRACKET_NUMBER), True, BracketEnd(BRACKET_NUMBER), True, exact=False)]),
        (
            {"$bitsAllSet": 1},
            [
                Interval(BracketStart(bracket), True, BracketEnd(bracket), True, exact=False)
                for bracket in (BRACKET_NUMBER, BRACKET_BINARY)
            ],
        ),
        ({"$elemMatch": {"$gt": 1, "$lt": 5}}, [Interval(1, False, 5, False, exact=False)]),
        ({"$elemMatch": {"$gt": 5, "$lt": 1}}, []),
        ({"$eq": [1]}, [Interval(MinKey(), True, MaxKey(), True, exact=False)]),
    ],
)  # fmt: skip
def test_intervals(condition: Any, expected: list[Interval] | None) -> None:
    assert ranges(condition) == expected


@pytest.mark.parametrize(
    ("filter", "value"),
    [
        ({"_id": 5}, 5),
        ({"_id": {"$eq": "x"}}, "x"),
        ({"_id": {}}, bson.encode({})),
        ({"_id": {"k": 1}}, bson.encode({"k": 1})),
        ({"_id": None}, None),
        ({"_id": Date(3)}, Date(3)),
        ({}, MISSING),
        ({"x": 5}, MISSING),
        ({"_id": 5, "x": 1}, MISSING),
        ({"_idx": 5}, MISSING),
        ({"_id": [1]}, MISSING),
        ({"_id": {"$eq": [1]}}, MISSING),
        ({"_id": Regex("x")}, MISSING),
        ({"_id": {"$gt": 5}}, MISSING),
        ({"_id": {"$eqx": 5}}, MISSING),
        ({"_id": {"$eq": 5, "$gt": 1}}, MISSING),
        ({"$and": [{"_id": 5}]}, MISSING),
    ],
)
def test_id_equality(filter: dict[str, Any], value: Any) -> None:
    plain = {name: bson.datetime_ms.DatetimeMS(v.ms) if isinstance(v, Date) else v for name, v in filter.items()}
    raw = bson.encode(plain)
    found = id_equality(raw)
    assert found == value or found is value
    assert (simple_id_filter(raw)[0] == 0) == (value is MISSING)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"a": 1, "b": {"$gt": 2}, "c.d": {"$eq": 3}}, [("a", 1), ("c.d", 3)]),
        ({"$and": [{"a": 1}, {"$and": [{"b": 2}]}]}, [("a", 1), ("b", 2)]),
        ({"a": {"$in": [1]}, "b": {"$in": [1, 2]}}, [("a", 1)]),
        ({"a": {"$all": [4]}}, [("a", 4)]),
        ({"$or": [{"a": 1}]}, [("a", 1)]),
        ({"$or": [{"a": 1}, {"b": 1}]}, []),
        ({"$nor": [{"a": 1}], "b": {"$not": {"$eq": 2}}}, []),
        ({"a": Regex("x")}, []),
        ({"a": None}, [("a", None)]),
    ],
)
def test_equality_fields(filter: dict[str, Any], expected: list[tuple[str, Any]]) -> None:
    assert [(path.dotted, value) for path, value in equality_fields(parse(filter))] == expected


@pytest.mark.parametrize(
    ("filter", "words"),
    [
        ({"$and": [{"a": 1}, {"a": 2}]}, "cannot infer query fields to set, path 'a' is matched twice"),
        ({"a": {"$all": [1, 2]}}, "cannot infer query fields to set, path 'a' is matched twice"),
        (SON([("a", 1), ("a.b", 2)]), "cannot infer query fields to set, both paths 'a' and 'a.b' are matched"),
    ],
)
def test_conflicting_equalities(filter: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError) as caught:
        equality_fields(parse(filter))
    assert (caught.value.code, caught.value.message) == (54, words)
