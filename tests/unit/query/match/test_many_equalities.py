"""`$or` and `$nor` with many equalities on one path, which are tested together, match what few of them match."""

from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId

from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match

OID = ObjectId()
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, Int64(1), 1.0, Decimal128("1.00"), 2.5, Decimal128("2.5"), float("nan"), Int64(2**60),
    float(2**60), "", "a", "A", "ab", OID, {}, {"x": 1}, {"x": 1.0}, [], [1], [1, 2], [[1]], Binary(b"a"), b"",
]  # fmt: skip
DOCUMENTS: list[Any] = [
    {},
    *({"a": value} for value in VALUES),
    {"a": [5, "a"]},
    {"a": [{"b": 1}, {"b": 7}]},
    {"a": {"b": "a"}},
]


def parsed(filter: dict[str, Any]) -> MatchExpression:
    return parse_match(bson.encode(filter), ParseContext())


@pytest.mark.parametrize("path", ["a", "a.b", "a.0"])
@pytest.mark.parametrize("operator", ["$or", "$nor"])
def test_each_value(operator: str, path: str) -> None:
    padding = [{path: f"none {number}"} for number in range(40)]
    for value in VALUES:
        many = parsed({operator: [*padding, {path: value}]})
        few = parsed({operator: [{path: value}, {"z": {"$exists": True}}]})
        for document in DOCUMENTS:
            raw = bson.encode(document)
            assert many.matches(raw) == few.matches(raw), (value, document)


def test_other_branches_and_paths() -> None:
    branches = [{"a": number} for number in range(30)] + [{"b": number} for number in range(30)]
    match = parsed({"$or": [*branches, {"a": {"$gt": 100}}, {"c": 1}]})
    for document in ({"a": 29}, {"b": 0}, {"a": 101}, {"c": 1}, {"a": 50, "b": [99, 7]}):
        assert match.matches(bson.encode(document))
    for document in ({"a": 30}, {"b": -1}, {"a": 100}, {"c": 2}, {}):
        assert not match.matches(bson.encode(document))


def test_values_of_arrays_without_a_path() -> None:
    """The conditions of `$pull` are on the element itself."""
    match = parsed({"list": {"$elemMatch": {"$or": [{"x": number} for number in range(40)]}}})
    assert match.matches(bson.encode({"list": [{"x": 77}, {"x": 39}]}))
    assert not match.matches(bson.encode({"list": [{"x": 77}]}))
