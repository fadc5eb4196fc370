"""How a dotted path reaches values through documents and arrays."""

from typing import Any

import bson
import pytest

from mongottl.query.context import ParseContext
from mongottl.query.match import MatchDetails, parse_match, parse_value_operators


def matches(filter: dict[str, Any], document: dict[str, Any]) -> bool:
    return parse_match(bson.encode(filter), ParseContext()).matches(bson.encode(document))


@pytest.mark.parametrize(
    ("filter", "document", "expected"),
    [
        ({"a.b": 1}, {"a": {"b": 1}}, True),
        ({"a.b": 1}, {"a": [{"b": 0}, {"b": [2, 1]}]}, True),
        ({"a.b": 1}, {"a": [[{"b": 1}]]}, False),  # no second level of arrays
        ({"a.b": [1]}, {"a": [{"b": [1]}]}, True),
        ({"a.b": None}, {}, True),
        ({"a.b": None}, {"a": 5}, True),
        ({"a.b": None}, {"a": []}, False),
        ({"a.b": None}, {"a": [1, 2]}, False),
        ({"a.b": None}, {"a": [{}, {"b": 1}]}, True),
        ({"a.b": {"$exists": False}}, {"a": [1, 2]}, True),
        ({"a.b": {"$exists": False}}, {"a": [{}, {"b": 1}]}, False),
        ({"a.b": {"$ne": 1}}, {"a": [{"b": 1}, {"b": 2}]}, False),
        ({"a.0": 1}, {"a": [1, 2]}, True),
        ({"a.1": 1}, {"a": [1, 2]}, False),
        ({"a.0": 1}, {"a": {"0": 1}}, True),
        ({"a.0": 1}, {"a": [{"0": 1}]}, True),  # the element's field of that name
        ({"a.0": 1}, {"a": [[1, 2]]}, False),  # the element by index is taken whole
        ({"a.0": [1, 2]}, {"a": [[1, 2]]}, True),
        ({"a.0.1": 2}, {"a": [[1, 2]]}, True),
        ({"a.0.b": 1}, {"a": [{"b": 1}, {"b": 2}]}, True),
        ({"a.1.b": 1}, {"a": [{"b": 1}, {"b": 2}]}, False),
        ({"a.0.b": 1}, {"a": [[{"b": 1}]]}, True),
        ({"a.00": 1}, {"a": [1]}, False),
        ({"a.b.c": 3}, {"a": [{"b": [{"c": 2}, {"c": 3}]}]}, True),
        ({"": 1}, {"": 1}, True),
        # A dot at the end: in an array the path ends there, in a document there may be a field without a name. As the
        # tests of mongo-java-server have it, which run against MongoDB.
        ({"a.": {"$exists": True}}, {"a": ["x"]}, True),
        ({"a.": {"$exists": True}}, {"a": []}, True),
        ({"a.": {"$exists": True}}, {"a": {"b": 1}}, False),
        ({"a.": {"$exists": True}}, {"a": 1}, False),
        ({"a.": {"$exists": True}}, {}, False),
        ({"a.": 1}, {"a": {"": 1}}, True),
        ({"a.": "x"}, {"a": ["x", "y"]}, True),
        ({"a.": ["x", "y"]}, {"a": ["x", "y"]}, True),
        ({"a.": 1}, {"a": [{"": 1}]}, False),
        ({"a.": {"$size": 2}}, {"a": ["x", "y"]}, True),
        ({"a.": {"$ne": "x"}}, {"a": ["x", "y"]}, False),
        ({"a.1.": {"$exists": True}}, {"a": [[1, 2], [3, 4]]}, True),
        ({"a.1.": 4}, {"a": [[1, 2], [3, 4]]}, True),
        ({"a.1.": {"$exists": True}}, {"a": ["x", "y"]}, False),
        ({"a.b.": 2}, {"a": [{"b": [1, 2]}]}, True),
        ({"a..": {"$exists": True}}, {"a": [[1]]}, False),
        ({".a": {"$exists": True}}, {"a": [1]}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({}, {"x": 1}, True),
    ],
)
def test_paths(filter: dict[str, Any], document: dict[str, Any], expected: bool) -> None:
    assert matches(filter, document) is expected


@pytest.mark.parametrize(
    ("filter", "document", "index"),
    [
        ({"a": 7}, {"a": [5, 7]}, 1),
        ({"a.": 7}, {"a": [5, 7]}, 1),
        ({"a": 7}, {"a": 7}, -1),
        ({"a": [5, 7]}, {"a": [5, 7]}, -1),
        ({"a.b": 2}, {"a": [{"b": 1}, {"b": [9, 2]}]}, 1),  # the outermost array counts
        ({"a.b": 2}, {"a": {"b": [9, 2]}}, 1),
        ({"a.1.b": 2}, {"a": [{}, {"b": [9, 9, 2]}]}, 2),  # an index named in the path is no traversal
        ({"a.1": 7}, {"a": [5, 7]}, -1),
        ({"a": {"$elemMatch": {"b": 1, "c": 1}}}, {"a": [{"b": 1}, {"b": 1, "c": 1}]}, 1),
        ({"a": {"$elemMatch": {"$gt": 5}}}, {"a": [1, 6]}, 1),
        ({"x.a": {"$elemMatch": {"$gt": 5}}}, {"x": [{"a": [1]}, {"a": [1, 6]}]}, 1),
        ({"a": 7, "b": 3}, {"a": [5, 7], "b": [3]}, 0),  # that of the last path counts
        ({"a": 7, "b": 3}, {"a": [5, 7], "b": 3}, 1),
        ({"$or": [{"a": 7}, {"a": 8}]}, {"a": [5, 7]}, 1),
        ({"a": {"$ne": 6}}, {"a": [5, 7]}, -1),
    ],
)
def test_positional_index(filter: dict[str, Any], document: dict[str, Any], index: int) -> None:
    details = MatchDetails()
    expression = parse_match(bson.encode(filter), ParseContext())
    assert expression.matches_positional(bson.encode(document), details)
    assert details.array_index == index


def test_the_details_are_empty_after_a_document_that_does_not_match() -> None:
    details = MatchDetails()
    expression = parse_match(bson.encode({"a": 7, "b": 1}), ParseContext())
    assert not expression.matches_positional(bson.encode({"a": [7, 7], "b": 2}), details)
    assert details.array_index == -1


@pytest.mark.parametrize(
    ("filter", "value", "expected"),
    [
        ({"x": {"$gt": 3}}, 4, True),
        ({"x": {"$gt": 3}}, [1, 5], True),
        ({"x": [1, 5]}, [1, 5], True),
        ({"x.b": 1}, {"b": 1}, True),
        ({"x.b": 1}, [{"b": 0}, {"b": 1}], True),
        ({"x.b": {"$exists": False}}, 5, True),
        ({"$or": [{"x": 1}, {"x": {"$gt": 8}}]}, 9, True),
        ({"$nor": [{"x": 1}]}, 1, False),
        ({"$and": [{"x.a": 1}, {"x.b": 2}]}, {"a": 1, "b": 2}, True),
    ],
)
def test_a_value_stands_for_the_first_component(filter: dict[str, Any], value: Any, expected: bool) -> None:
    raw = bson.encode({"v": value})
    expression = parse_match(bson.encode(filter), ParseContext())
    assert expression.matches_value(raw, raw[4], 7) is expected


def test_operators_without_a_path_judge_values() -> None:
    condition = parse_value_operators(bson.encode({"$gte": 3, "$ne": 5}), ParseContext())
    for value, expected in ((2, False), (3, True), (5, False), ([1, 4], True), ("x", False)):
        raw = bson.encode({"v": value})
        assert condition.matches_value(raw, raw[4], 7) is expected
    raw = bson.encode({"v": [1, 4]})
    assert not condition.matches_single(raw, raw[4], 7)
