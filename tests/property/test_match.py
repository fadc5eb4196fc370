"""The compiled matcher gives what a slow, obvious model over decoded documents gives.

The model below follows MongoDB's documented rules: it lists all values that a path reaches, and asks each of them.
"""

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

# --- the model ---

ABSENT: Any = object()


def reached(document: dict[str, Any], parts: list[str]) -> Iterator[Any]:
    return _descend(document.get(parts[0], ABSENT), parts[1:])


def _descend(value: Any, rest: list[str]) -> Iterator[Any]:
    if not rest:
        if isinstance(value, list):
            yield from value
        yield value
    elif isinstance(value, dict):
        yield from reached(value, rest)
    elif isinstance(value, list):
        yield from _elements(value, rest)
    else:
        yield ABSENT


def _elements(array: list[Any], rest: list[str]) -> Iterator[Any]:
    for index, element in enumerate(array):
        if isinstance(element, dict):
            yield from reached(element, rest)
        if rest[0] == str(index):
            if len(rest) == 1:
                yield element
            elif isinstance(element, dict):
                yield from reached(element, rest[1:])
            elif isinstance(element, list):
                yield from _elements(element, rest[1:])


def kind(value: Any) -> int:
    """MongoDB's order of types."""
    if isinstance(value, MinKey):
        return 0
    if value is None or value is ABSENT:
        return 1
    if isinstance(value, bool):
        return 7
    if isinstance(value, (int, float, Decimal128)):
        return 2
    kinds: list[tuple[type, int]] = [
        (str, 3),
        (dict, 4),
        (list, 5),
        (ObjectId, 6),
        (datetime.datetime, 8),
        (Timestamp, 9),
        (MaxKey, 10),
    ]
    return next(number for type_, number in kinds if isinstance(value, type_))


def order(a: Any, b: Any) -> int:
    if kind(a) != kind(b):
        return -1 if kind(a) < kind(b) else 1
    if isinstance(a, dict):
        for (name, x), (other, y) in zip(a.items(), b.items(), strict=False):
            if kind(x) != kind(y):
                return -1 if kind(x) < kind(y) else 1
            if name != other:
                return -1 if name.encode() < other.encode() else 1
            if order(x, y):
                return order(x, y)
        return (len(a) > len(b)) - (len(a) < len(b))
    if isinstance(a, list):
        for x, y in zip(a, b, strict=False):
            if order(x, y):
                return order(x, y)
        return (len(a) > len(b)) - (len(a) < len(b))
    if kind(a) in (0, 1, 10):
        return 0
    x, y = (v.to_decimal() if isinstance(v, Decimal128) else v for v in (a, b))
    if x != x or y != y:
        return int(y != y) - int(x != x) if (x != x) != (y != y) else 0
    left, right = [sortable(v) for v in (x, y)]
    return int(left > right) - int(left < right)


def sortable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def is_nan(value: Any) -> bool:
    if isinstance(value, Decimal128):
        return bool(value.to_decimal().is_nan())
    return isinstance(value, float) and value != value


def compares(name: str, value: Any, operand: Any) -> bool:
    if kind(value) != kind(operand) and not isinstance(operand, (MinKey, MaxKey)):
        return False
    if kind(value) == kind(operand) == 2 and is_nan(value) != is_nan(operand):
        return False
    sign = order(value, operand)
    return {
        "$eq": sign == 0, "$lt": sign < 0, "$lte": sign <= 0, "$gt": sign > 0, "$gte": sign >= 0
    }[name]  # fmt: skip


TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "object": dict, "array": list, "bool": bool, "objectId": ObjectId, "double": float
}  # fmt: skip


def holds(document: dict[str, Any], path: str, name: str, operand: Any) -> bool:
    """Whether one operator holds for a path."""
    values = list(reached(document, path.split(".")))
    if name == "$ne":
        return not holds(document, path, "$eq", operand)
    if name == "$nin":
        return not holds(document, path, "$in", operand)
    if name == "$not":
        return not all(holds(document, path, *item) for item in operand.items())
    if name == "$in":
        return any(compares("$eq", value, wanted) for value in values for wanted in operand)
    if name == "$all":
        return bool(operand) and all(holds(document, path, "$eq", wanted) for wanted in operand)
    if name == "$exists":
        return any(value is not ABSENT for value in values) == bool(operand)
    if name == "$type":
        return any(isinstance(value, TYPES[operand]) for value in values)
    if name == "$size":
        return any(isinstance(value, list) and len(value) == operand for value in _whole(document, path))
    if name == "$elemMatch":
        return any(isinstance(value, list) and _any_element(value, operand) for value in _whole(document, path))
    return any(compares(name, value, operand) for value in values)


def _whole(document: dict[str, Any], path: str) -> list[Any]:
    """The values at a path with the last arrays left whole: what a further, absent component would start from."""
    marked = {"root": document}
    parts = ["root", *path.split(".")]

    def walk(value: Any, rest: list[str]) -> Iterator[Any]:
        if not rest:
            yield value
        elif isinstance(value, dict):
            yield from walk(value.get(rest[0], ABSENT), rest[1:])
        elif isinstance(value, list):
            for index, element in enumerate(value):
                if isinstance(element, dict):
                    yield from walk(element.get(rest[0], ABSENT), rest[1:])
                if rest[0] == str(index) and (len(rest) == 1 or isinstance(element, (dict, list))):
                    yield from walk(element, rest[1:])

    return list(walk(marked, parts))


def _any_element(array: list[Any], condition: dict[str, Any]) -> bool:
    if next(iter(condition), "").startswith("$"):
        # A condition on values: arrays inside are not entered.
        return any(all(_single(element, *item) for item in condition.items()) for element in array)
    return any(isinstance(element, (dict, list)) and passes(_as_document(element), condition) for element in array)


def _as_document(element: Any) -> dict[str, Any]:
    return {str(i): v for i, v in enumerate(element)} if isinstance(element, list) else element


def _single(value: Any, name: str, operand: Any) -> bool:
    if name == "$ne":
        return not compares("$eq", value, operand)
    if name == "$in":
        return any(compares("$eq", value, wanted) for wanted in operand)
    return compares(name, value, operand)


def passes(document: dict[str, Any], filter: dict[str, Any]) -> bool:
    for name, operand in filter.items():
        if name == "$and":
            if not all(passes(document, clause) for clause in operand):
                return False
        elif name == "$or":
            if not any(passes(document, clause) for clause in operand):
                return False
        elif name == "$nor":
            if any(passes(document, clause) for clause in operand):
                return False
        elif isinstance(operand, dict) and next(iter(operand), "").startswith("$"):
            if not all(holds(document, name, *item) for item in operand.items()):
                return False
        elif not holds(document, name, "$eq", operand):
            return False
    return True


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
