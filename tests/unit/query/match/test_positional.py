"""Which array index a match records for the positional `$`."""

from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import check_operators, parse_match
from mongottl.query.match.tree import MatchDetails

DOCUMENT = {"a": [10, 20, 30], "b": [30, 10, 20], "c": [{"l": [1, 2]}, {"l": [2, 1]}], "n": [[5, 6], [6, 5]]}


def index_of(filter: dict[str, Any]) -> int:
    details = MatchDetails()
    assert parse_match(bson.encode(filter), ParseContext()).matches_positional(bson.encode(DOCUMENT), details)
    return int(details.array_index)


@pytest.mark.parametrize(
    ("filter", "index"),
    [
        ({"a": 20}, 1),
        ({"c.l": 1}, 0),
        ({"a": {"$elemMatch": {"$gt": 10}}}, 1),
        ({"a.0": 10}, -1),
        ({"a.2": 30}, -1),
        ({"c.0.l": 2}, 1),  # of the array below the element that the path names
        ({"c.1.l.0": 2}, -1),
        ({"n.1": {"$elemMatch": {"$lt": 6}}}, 1),
        ({"a.0": 10, "b": 20}, 2),
        ({"$or": [{"a": 20}, {"b": 20}]}, -1),
        ({"a": [10, 20, 30]}, -1),
    ],
)
def test_index(filter: dict[str, Any], index: int) -> None:
    assert index_of(filter) == index


@pytest.mark.parametrize(
    ("one", "other", "index"),
    [
        ({"a": 20}, {"b": 20}, 2),  # of leaves of one kind, the one with the last path
        ({"a": {"$gt": 20}}, {"b": 20}, 2),  # equalities come before ranges
        ({"a": 20}, {"b": {"$elemMatch": {"$eq": 20}}}, 1),  # $elemMatch comes before equalities
        ({"a": {"$gte": 20}}, {"b": {"$lt": 20}}, 1),
        ({"a": {"$in": [20, 30]}}, {"b": {"$mod": [20, 0]}}, 1),
        ({"a": {"$type": "int"}}, {"b": {"$in": [20]}}, 0),
    ],
)
def test_order_of_predicates_does_not_matter(one: dict[str, Any], other: dict[str, Any], index: int) -> None:
    assert index_of({**one, **other}) == index
    assert index_of({**other, **one}) == index
    assert index_of({"$and": [other, one]}) == index


def test_order_does_not_matter_among_many() -> None:
    many = [{"$and": [{"c.l": {"$ne": n}}]} for n in range(100, 130)]
    assert index_of({"$and": [{"a": 20}, {"b": 20}, *many]}) == 2
    assert index_of({"$and": [{"b": 20}, *many, {"a": 20}]}) == 2


@pytest.mark.parametrize(
    ("filter", "code"),
    [
        ({"$expr": True}, 224),
        ({"$or": [{"a": 1}, {"$expr": True}]}, 224),
        ({"$jsonSchema": {}}, 224),
        ({"$where": "1"}, 2),
        ({"$text": {"$search": "x"}}, 2),
        ({"a": {"$not": {"$near": [1, 1]}}}, 5626500),
    ],
)
def test_operators_that_plain_filters_may_not_use(filter: dict[str, Any], code: int) -> None:
    with pytest.raises(CommandError) as refused:
        check_operators(bson.encode(filter), plain=True)
    assert refused.value.code == code


def test_values_are_not_taken_for_operators() -> None:
    check_operators(bson.encode({"a": {"$eq": {"$expr": 1}}, "b": {"$in": [{"$text": 1}]}}), plain=True)
    check_operators(bson.encode({"$expr": True, "$jsonSchema": {}}))
