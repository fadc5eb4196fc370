"""Shapes of queries: short whatever their queries have, and made without a long step."""

from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.exec.plan.plan_cache import QueryShape
from mongottl.exec.plan.shape import (
    expression_shape,
    filter_shape,
    order_shape,
    plan_shape_hash,
    planned_filter_shape,
    projection_shape,
    query_shape_hash,
    stage_shape,
)
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from tests.gaps import STALL_S, longest_stall_s

LENGTH = 200_000
NAMES = [f"f{number * 7919 % 1_000_003}" for number in range(LENGTH)]
LONG_NAME = "x" * 100_000
# The longest shape that is not a hash.
SHORT = 5_000


def nested(levels: int, inner: Any, around: Callable[[Any], Any]) -> Any:
    for _ in range(levels):
        inner = around(inner)
    return inner


def planned(filter: dict[str, Any]) -> str:
    return planned_filter_shape(bson.encode(filter))


LONG: dict[str, Callable[[], str]] = {
    "path": lambda: filter_shape(bson.encode({LONG_NAME: 1})),
    "conditions of a path": lambda: filter_shape(
        bson.encode({LONG_NAME: {f"${number}": 1 for number in range(1_000)}})
    ),
    "branches": lambda: filter_shape(bson.encode({"$or": [{f"a{number}": number} for number in range(10_000)]})),
    "levels": lambda: filter_shape(bson.encode(nested(40, {LONG_NAME: 1}, lambda inner: {"a": {"$elemMatch": inner}}))),
    "levels of expressions": lambda: expression_shape(
        bson.encode({"a": nested(80, "$" + LONG_NAME, lambda inner: {"$not": [inner]})})
    ),
    "planned levels": lambda: planned(nested(60, {LONG_NAME: 1}, lambda inner: {"$nor": [inner]})),
    "types": lambda: filter_shape(bson.encode({"a": {"$type": ["int"] * 1_000}})),
    "schema": lambda: filter_shape(bson.encode({"$jsonSchema": {"required": [LONG_NAME]}})),
    "stage": lambda: stage_shape(bson.encode({"$project": {LONG_NAME: 1}})),
    "order": lambda: order_shape(bson.encode({LONG_NAME: 1})),
    "kinds of elements": lambda: filter_shape(
        bson.encode({"a": [nested(number, [], lambda inner: [inner]) for number in range(150)]})
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_shapes_are_short(name: str) -> None:
    assert len(LONG[name]()) <= SHORT


def test_a_shape_that_is_kept_for_a_query_of_many_parts_is_short() -> None:
    filter = {"$or": [{f"a{number}": number} for number in range(10_000)]}
    match = parse_match(bson.encode(filter), ParseContext(1_700_000_000_123))
    shape = QueryShape(projection=bson.encode({LONG_NAME: 1}))
    assert len(shape.quick_key(match)) <= SHORT
    assert len(shape.text(match.describe())) <= 3 * SHORT


@pytest.mark.parametrize("number", [2, 1_000])
def test_planned_shapes_depend_on_no_order_and_written_ones_do(number: int) -> None:
    names = NAMES[:number]
    one, other = bson.encode(dict.fromkeys(names, 1)), bson.encode(dict.fromkeys(names[::-1], 1))
    different = bson.encode(dict.fromkeys([*names[1:], "another"], 1))
    for shape in (planned_filter_shape, projection_shape):
        assert shape(one) == shape(other) != shape(different)
    for written in (filter_shape, order_shape):
        assert written(one) != written(other)


def test_long_names_that_differ_have_different_shapes() -> None:
    for kind in (filter_shape, planned_filter_shape, order_shape, projection_shape, expression_shape, stage_shape):
        assert kind(bson.encode({LONG_NAME + "a": 1})) != kind(bson.encode({LONG_NAME + "b": 1}))


def test_hashes_are_those_of_all_parts() -> None:
    assert query_shape_hash(["a", "b"]) != query_shape_hash(["ab"])
    assert query_shape_hash(["ä" * 100_000, "b"]) != query_shape_hash(["ä" * 100_000, "c"])
    assert query_shape_hash(["a"] * 1_000) != query_shape_hash(["a"] * 1_001)
    assert plan_shape_hash(["a", "b"]) == query_shape_hash(["a", "b"])[:8] == "7E18F737"


MADE: dict[str, tuple[Callable[[bytes], object], Callable[[], dict[str, Any]]]] = {
    "projection": (projection_shape, lambda: dict.fromkeys(NAMES, 1)),
    "fields": (planned_filter_shape, lambda: dict.fromkeys(NAMES, 1)),
    "conditions": (planned_filter_shape, lambda: {"a": {"$" + name: 1 for name in NAMES}}),
    "types": (filter_shape, lambda: {"a": {"$type": [*range(1, 19)] * 50_000}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_shapes_of_many_parts_are_made_without_a_long_step(name: str) -> None:
    shape, query = MADE[name]
    raw = bson.encode(query())
    assert longest_stall_s(lambda: shape(raw)) <= STALL_S
