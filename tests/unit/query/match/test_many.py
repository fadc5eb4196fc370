"""`$all` and `$and` of many conditions: what a few at a time would say."""

import random
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, ObjectId

from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.match.tree import MANY_CHILDREN, MatchDetails

OID = ObjectId(b"0123456789ab")
VALUES: list[Any] = [
    *range(20),
    2.5,
    Int64(2**40),
    "text",
    "",
    True,
    OID,
    datetime(2026, 1, 1, tzinfo=UTC),
    None,
    float("nan"),
    Decimal128("2.5"),
    [1, 2],
    {"x": 1},
]


def matches(filter: dict[str, Any], document: dict[str, Any]) -> bool:
    return parse_match(bson.encode(filter), ParseContext()).matches(bson.encode(document))


def all_of_few(values: list[Any], document: dict[str, Any], path: str) -> bool:
    return all(matches({path: {"$all": [value]}}, document) for value in values)


@pytest.mark.parametrize("seed", range(60))
def test_all(seed: int) -> None:
    chance = random.Random(seed)
    wanted = chance.sample(VALUES, MANY_CHILDREN + 2 + chance.randrange(8))
    reached = [value for value in VALUES if value in wanted or chance.random() < 0.5]
    if chance.random() < 0.6:
        reached.remove(chance.choice(reached))
    reached = [float(value) if type(value) is int and chance.random() < 0.3 else value for value in reached]
    chance.shuffle(reached)
    documents: list[tuple[str, dict[str, Any]]] = [
        ("a", {"a": reached}),
        ("a.b", {"a": [{"b": value} for value in reached]}),
        ("a.b", {"a": [{"b": reached[:5]}, {"b": reached[5:]}]}),
        ("a.0", {"a": [reached]}),
        ("a", {"a": 1}),
        ("a", {}),
    ]
    for path, document in documents:
        assert matches({path: {"$all": wanted}}, document) == all_of_few(wanted, document, path), (path, document)


def test_all_equal_numbers_are_one() -> None:
    wanted = [number for whole in range(12) for number in (whole, float(whole), Int64(whole))]
    assert matches({"a": {"$all": wanted}}, {"a": list(range(12))})
    assert not matches({"a": {"$all": wanted}}, {"a": list(range(11))})


def test_and_with_other_conditions() -> None:
    equalities: list[dict[str, Any]] = [{"a": value} for value in range(30)]
    full = {"a": list(range(30)), "b": 5, "c": [1, 2]}
    for others, expected in (([{"b": 5}, {"c": 2}], True), ([{"b": 6}], False), ([{"c": {"$gt": 2}}], False)):
        assert matches({"$and": [*equalities, *others]}, full) is expected
    assert matches({"x": {"$elemMatch": {"$and": equalities}}}, {"x": [{"a": 1}, full]})
    assert not matches({"x": {"$elemMatch": {"$and": equalities}}}, {"x": [{"a": 1}, {"a": list(range(29))}]})


def test_the_positional_index_is_that_of_the_last() -> None:
    tree = parse_match(bson.encode({"B": 7, "a": {"$all": list(range(40))}}), ParseContext())
    details = MatchDetails()
    shuffled = list(range(40))
    random.Random(1).shuffle(shuffled)
    assert tree.matches_positional(bson.encode({"a": shuffled, "B": [5, 7]}), details)
    assert details.array_index == shuffled.index(39)
    assert not tree.matches_positional(bson.encode({"a": shuffled[1:], "B": [5, 7]}), details)
    assert details.array_index == -1


@pytest.mark.slow
def test_twenty_thousand_in_a_hundred_thousand() -> None:
    document = {"a": list(range(100_000))}
    assert matches({"a": {"$all": list(range(40_000, 60_000))}}, document)
    assert not matches({"a": {"$all": list(range(90_000, 110_000))}}, document)
