from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Regex

from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match

Matching = Callable[[dict[str, Any], list[Any]], list[Any]]
Refusal = Callable[[dict[str, Any]], tuple[int, str]]


@pytest.mark.parametrize(
    ("filter", "values", "found"),
    [
        ({"$and": [{"a": {"$gt": 1}}, {"a": {"$lt": 4}}]}, [1, 2, 3, 4, [0, 5]], [2, 3, [0, 5]]),
        ({"$and": [{}]}, [1, ...], [1, ...]),
        ({"$or": [{"a": 1}, {"a": "x"}]}, [1, "x", 2], [1, "x"]),
        ({"$nor": [{"a": 1}, {"a": "x"}]}, [1, "x", 2, ...], [2, ...]),
        ({"$nor": [{}]}, [1, ...], []),
        ({"a": {"$not": {"$gt": 2}}}, [1, 3, "x", ..., [1, 3]], [1, "x", ...]),
        ({"a": {"$not": {"$gt": 1, "$lt": 3}}}, [0, 2, 5], [0, 5]),
        ({"a": {"$not": Regex("^x")}}, ["xy", "y", 1], ["y", 1]),
        ({"a": {"$not": {"$regex": "^x", "$options": "i"}}}, ["Xy", "y"], ["y"]),
        ({"a": {"$not": {"$not": {"$eq": 1}}}}, [1, 2, [1, 2]], [1, [1, 2]]),
        ({"a": {"$not": {"$elemMatch": {"$gt": 5}}}}, [[6], [1], 9], [[1], 9]),
        ({"a": {"$not": {"$in": [1, 2]}}}, [1, 3], [3]),
        ({"$comment": "why", "a": 1}, [1, 2], [1]),
        ({"$alwaysTrue": 1}, [1, ...], [1, ...]),
        ({"$alwaysFalse": 1.0}, [1, ...], []),
        ({"$or": [{"$alwaysFalse": 1}, {"a": 1}]}, [1, 2], [1]),
    ],
)
def test_logical(matching: Matching, filter: dict[str, Any], values: list[Any], found: list[Any]) -> None:
    assert matching(filter, values) == found


@pytest.mark.parametrize(
    ("filter", "code", "words"),
    [
        ({"$and": {"a": 1}}, 2, "$and must be an array"),
        ({"$or": []}, 2, "$and/$or/$nor must be a nonempty array"),
        ({"$nor": [1]}, 2, "$or/$and/$nor entries need to be full objects"),
        ({"a": {"$not": 1}}, 2, "$not needs a regex or a document"),
        ({"a": {"$not": {}}}, 2, "$not cannot be empty"),
        ({"a": {"$not": {"b": 1}}}, 2, "unknown operator: b"),
        ({"a": {"$or": [{"b": 1}]}}, 2, "unknown operator: $or"),
        ({"$alwaysTrue": 2}, 9, "$alwaysTrue must be an integer value of 1"),
        (
            {"$foo": 1},
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' symbol, "
            "consider using $getField or $setField.",
        ),
        ({"$where": "true"}, 2, "$where is not allowed in this context"),
        ({"$sampleRate": 1.5}, 2, "numeric argument to $sampleRate must be in [0, 1]"),
        ({"$sampleRate": "x"}, 2, "argument to $sampleRate must be a numeric type"),
    ],
)
def test_refused(refusal: Refusal, filter: dict[str, Any], code: int, words: str) -> None:
    assert refusal(filter) == (code, words)


def _nested(levels: int) -> dict[str, Any]:
    filter: dict[str, Any] = {"a": 1}
    for _ in range(levels):
        filter = {"$nor": [filter]}
    return filter


def test_depth_is_limited(refusal: Refusal) -> None:
    parse_match(bson.encode(_nested(99)), ParseContext())
    assert refusal(_nested(100)) == (2, "exceeded maximum query tree depth of 100")


@pytest.mark.parametrize(
    ("filter", "described"),
    [
        ({}, {}),
        ({"a": 1}, {"a": {"$eq": 1}}),
        ({"$and": [{"a": 1}]}, {"a": {"$eq": 1}}),
        ({"a": 1, "$and": [{"b": 2}, {"$and": [{"c": 3}]}]},
         {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 2}}, {"c": {"$eq": 3}}]}),
        ({"a": {"$gt": 1, "$lt": 5}}, {"$and": [{"a": {"$gt": 1}}, {"a": {"$lt": 5}}]}),
        ({"a": {"$ne": 1}}, {"a": {"$not": {"$eq": 1}}}),
        ({"a": {"$nin": [2, 1]}}, {"a": {"$not": {"$in": [1, 2]}}}),
        ({"a": {"$in": [7]}}, {"a": {"$eq": 7}}),
        ({"a": {"$in": []}}, {"$alwaysFalse": 1}),
        ({"a": {"$all": [1, 2]}}, {"$and": [{"a": {"$eq": 1}}, {"a": {"$eq": 2}}]}),
        ({"a": {"$exists": False}}, {"a": {"$not": {"$exists": True}}}),
        ({"$or": [{"a": 1}, {"$or": [{"b": 1}, {"c": 1}]}]},
         {"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}, {"c": {"$eq": 1}}]}),
        ({"$or": [{"a": 1}, {}]}, {}),
        ({"a": {"$not": {"$gt": 1, "$lt": 5}}}, {"a": {"$not": {"$gt": 1, "$lt": 5}}}),
        ({"a": {"$elemMatch": {"$gt": 1, "$lt": 5}}}, {"a": {"$elemMatch": {"$gt": 1, "$lt": 5}}}),
        ({"a": {"$elemMatch": {"b": 1}}}, {"a": {"$elemMatch": {"b": {"$eq": 1}}}}),
        ({"a": {"$type": "number"}}, {"a": {"$type": ["number"]}}),
        ({"a": {"$type": ["string", 1, -1]}}, {"a": {"$type": [1, 2, -1]}}),
        ({"a": Regex("x", "i")}, {"a": {"$regex": "x", "$options": "i"}}),
        ({"a": {"$bitsAllSet": 5}}, {"a": {"$bitsAllSet": [0, 2]}}),
        ({"a": {"$mod": [3.7, 1]}}, {"a": {"$mod": [3, 1]}}),
    ],
)  # fmt: skip
def test_describe_gives_the_simplified_form(filter: dict[str, Any], described: dict[str, Any]) -> None:
    assert parse_match(bson.encode(filter), ParseContext()).describe() == described


def test_sample_rate_takes_about_its_share(matching: Matching) -> None:
    taken = len(matching({"$sampleRate": 0.25}, list(range(2000))))
    assert 400 < taken < 600
    assert matching({"$sampleRate": 0}, [1, 2]) == []
    assert matching({"$sampleRate": 1}, [1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ({"$gt": ["$a", 2]}, [3, "x"]),
        ("$a", [3, "x", 1]),
        ({"$eq": ["$a", "$$bound"]}, [1]),
        (True, [3, "x", 1, 0, None, ...]),
    ],
)
def test_expr(expression: Any, found: list[Any]) -> None:
    filter = parse_match(bson.encode({"$expr": expression}), ParseContext(let={"bound": 1}))
    values = [3, "x", 1, 0, None, ...]
    assert [v for v in values if filter.matches(bson.encode({} if v is ... else {"a": v}))] == found
