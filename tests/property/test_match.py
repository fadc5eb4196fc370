"""The compiled matcher gives what a slow, obvious model over decoded documents gives."""

import datetime
from collections.abc import Iterator
from typing import Any

import bson
import pytest
from bson import Decimal128, MaxKey, MinKey, ObjectId, Timestamp
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mongottl.document.types import Value
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchDetails, parse_match
from mongottl.query.match.interval import Interval, complement, intersection, union
from mongottl.query.match.parser import parse_document
from tests.match_model import ABSENT, TYPES, order, passes, reached

# --- random documents and filters ---
#
# Operands are mostly taken out of the documents themselves, so that conditions do hold now and then.

scalars: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, 2),
    st.sampled_from([0.0, -0.0, 1.5, float("nan"), Decimal128("1.5"), Decimal128("NaN"), Decimal128("2")]),
    st.sampled_from([bson.Int64(1), bson.Int64(2**60), 2**53 + 1, float(2**53), "", "a", "b", "é", "\U0001f600"]),
    st.sampled_from([None, True, False, MinKey(), MaxKey(), ObjectId(b"0" * 12), ObjectId(b"1" * 12)]),
    st.sampled_from([datetime.datetime(2024, 1, 1), datetime.datetime(1969, 1, 1), Timestamp(1, 1)]),
)
names = st.sampled_from(["a", "b", "0"])
shallow: st.SearchStrategy[Any] = st.one_of(
    scalars, st.lists(scalars, max_size=2), st.dictionaries(names, scalars, max_size=2)
)
values: st.SearchStrategy[Any] = st.one_of(
    scalars,
    st.lists(shallow, max_size=3),
    st.lists(st.dictionaries(names, shallow, min_size=1, max_size=2), max_size=3),
    st.dictionaries(names, st.one_of(shallow, st.lists(shallow, max_size=2)), max_size=2),
)
documents = st.fixed_dictionaries({"a": values}, optional={"b": values})


def paths_of(value: Any, depth: int = 3) -> Iterator[str]:
    """Every path that leads somewhere in a document, with and without the indexes of arrays."""
    if depth == 0:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from (f"{name}.{rest}" for rest in paths_of(inner, depth - 1))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield str(index)
            yield from (f"{index}.{rest}" for rest in paths_of(inner, depth - 1))
            if isinstance(inner, dict):
                yield from paths_of(inner, depth)


def conditions(operands: st.SearchStrategy[Any], nested: bool = True) -> st.SearchStrategy[Any]:
    """What may stand behind a path."""
    comparison = st.builds(
        lambda name, operand: {name: operand}, st.sampled_from(["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]), operands
    )
    membership = st.builds(
        lambda name, operand: {name: operand},
        st.sampled_from(["$in", "$nin", "$all"]),
        st.lists(operands, max_size=3),
    )
    plain: list[st.SearchStrategy[Any]] = [
        comparison,
        membership,
        operands,
        st.builds(lambda x, y: {**x, **y}, comparison, comparison),
        st.builds(lambda flag: {"$exists": flag}, st.booleans()),
        st.builds(lambda name: {"$type": name}, st.sampled_from(sorted(TYPES))),
        st.builds(lambda size: {"$size": size}, st.integers(0, 3)),
    ]
    if not nested:
        return st.one_of(plain)
    element = st.one_of(
        st.dictionaries(st.sampled_from(["$gt", "$lte", "$ne", "$eq"]), operands, min_size=1, max_size=2),
        st.builds(
            lambda path, inner: {path: inner}, st.sampled_from(["a", "b", "0", "b.0"]), conditions(operands, False)
        ),
        st.builds(lambda wanted: {"$in": wanted}, st.lists(operands, max_size=3)),
    )
    return st.one_of(
        *plain,
        st.builds(lambda inner: {"$elemMatch": inner}, element),
        st.builds(lambda inner: {"$not": inner}, st.one_of(comparison, membership)),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A few documents, and a few filters on each of them."""
    collection = draw(st.lists(documents, min_size=1, max_size=4))
    known = sorted({path for document in collection for path in paths_of(document)})

    def leaf() -> dict[str, Any]:
        path = draw(st.one_of(st.sampled_from(known), st.sampled_from(["a.b", "a.0", "c"])))
        there = [
            value for document in collection for value in reached(document, path.split(".")) if value is not ABSENT
        ]
        operands = st.one_of(st.sampled_from(there), shallow) if there else shallow
        return {path: draw(conditions(operands))}

    filters: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 6))):
        filter = leaf()
        if draw(st.integers(0, 2)) == 0:
            name = draw(st.sampled_from(["$and", "$or", "$nor"]))
            filter = {name: [filter] + [leaf() for _ in range(draw(st.integers(0, 2)))]}
        filters.append(filter)
    return collection, filters


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(case=cases())
def test_the_matcher_agrees_with_the_model(case: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    collection, filters = case
    context = ParseContext()
    details = MatchDetails()
    for filter in filters:
        raw_filter = bson.encode(filter)
        expression = parse_match(raw_filter, context)
        as_written = parse_document(raw_filter, context)
        for document in collection:
            raw = bson.encode(document)
            expected = passes(document, filter)
            event("matches" if expected else "does not match")
            assert expression.matches(raw) is expected
            assert as_written.matches(raw) is expected, "simplifying changed the meaning"
            assert expression.matches_positional(raw, details) is expected


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(case=cases())
def test_a_wrapped_value_matches_as_the_value_does(case: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    """`matches_value` is `matches` on {first component: value}."""
    collection, filters = case
    for filter in filters:
        for path, operand in filter.items():
            if path.startswith("$"):
                continue
            expression = parse_match(bson.encode({path: operand}), ParseContext())
            for value in collection[0].values():
                raw = bson.encode({path.split(".")[0]: value})
                assert expression.matches_value(raw, raw[4], raw.index(0, 5) + 1) is expression.matches(raw)


# --- intervals ---

points = st.sampled_from([MinKey(), -1, 0, 1.5, 3, "", "a", "b", True, MaxKey()])
intervals = st.builds(Interval, points, st.booleans(), points, st.booleans())


def contains(interval: Interval, value: Value) -> bool:
    low = order(value, interval.low)
    high = order(value, interval.high)
    return (low > 0 or (low == 0 and interval.low_inclusive)) and (high < 0 or (high == 0 and interval.high_inclusive))


@given(first=st.lists(intervals, max_size=3), second=st.lists(intervals, max_size=3), value=points)
def test_interval_algebra(first: list[Interval], second: list[Interval], value: Value) -> None:
    a = union(first)
    b = union(second)
    in_a = any(contains(interval, value) for interval in first)
    in_b = any(contains(interval, value) for interval in second)
    assert sum(contains(interval, value) for interval in a) == int(in_a), "disjoint, and nothing lost"
    assert sum(contains(interval, value) for interval in intersection(a, b)) == int(in_a and in_b)
    rest = complement(a)
    assert rest is not None
    assert sum(contains(interval, value) for interval in rest) == int(not in_a)
