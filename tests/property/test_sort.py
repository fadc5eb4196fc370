"""Sort keys against the rules as laws: fan-out over arrays is the first of the keys of the elements."""

import functools
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.document.build import encode
from mongottl.document.compare import compare_values
from mongottl.document.keystring import encode_key
from mongottl.document.types import MISSING, Undefined, Value
from mongottl.document.walk import get_value
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.sorter import Sorter

pytestmark = pytest.mark.slow

SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.integers(-2, 2), st.sampled_from([0.5, 1.0, "", "x", None, True]), st.builds(Undefined)
)
OBJECTS: st.SearchStrategy[Value] = st.dictionaries(st.sampled_from(["x", "y", "1"]), SCALARS, max_size=3).map(encode)
# What an array of elements that are no arrays themselves may hold.
ELEMENTS = st.one_of(SCALARS, OBJECTS, OBJECTS)
NESTED = st.recursive(ELEMENTS, lambda values: st.lists(values, max_size=3), max_leaves=5)
DIRECTIONS = st.sampled_from([1, -1])


def pattern(specification: dict[str, int]) -> SortPattern:
    return parse_sort(encode(dict(specification)))


def values_at(value: Value, path: list[str]) -> list[Value]:
    """All values that a path of plain names gives, by the documented rules, on decoded values."""
    if not path:
        if isinstance(value, list):
            return list(value) if value else [Undefined()]
        return [None] if value is MISSING else [value]
    if isinstance(value, list):
        below = [values_at(item, path) if isinstance(item, bytes) else [None] for item in value]
        return [one for found in below for one in found] if below else [None]
    if isinstance(value, bytes):
        return values_at(get_value(value, path[0]), path[1:])
    return [None]


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b"]), NESTED, max_size=2), st.sampled_from(["a", "a.x", "b"]), DIRECTIONS)
def test_one_path_sorts_by_its_first_value(fields: dict[str, Value], path: str, direction: int) -> None:
    document = encode(fields)
    values = sorted(values_at(document, path.split(".")), key=functools.cmp_to_key(compare_values))
    expected = values[0] if direction == 1 else values[-1]
    assert pattern({path: direction}).sort_key(document) == encode_key([expected], [direction == -1])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(ELEMENTS, min_size=1, max_size=4),
    SCALARS,
    st.dictionaries(st.sampled_from(["a", "a.x", "a.y", "b", "c"]), DIRECTIONS, min_size=1),
)
def test_an_array_sorts_by_the_first_of_its_elements(
    elements: list[Value], other: Value, directions: dict[str, int]
) -> None:
    sort = pattern(directions)
    keys = [sort.sort_key(encode({"a": element, "b": other})) for element in elements]
    assert sort.sort_key(encode({"a": elements, "b": other})) == min(keys)
    if "a" not in directions:
        assert sort.sort_key(encode({"b": other, "a": [*elements, []]})) == min(
            [*keys, sort.sort_key(encode({"b": other}))]
        )


@settings(deadline=None)
@given(
    st.lists(st.one_of(SCALARS, st.lists(ELEMENTS, max_size=3)), max_size=4),
    st.integers(0, 4),
    DIRECTIONS,
)
def test_a_number_in_a_path_is_the_place_in_the_array(elements: list[Value], place: int, direction: int) -> None:
    at_place: Value = elements[place] if place < len(elements) else None
    placed = pattern({f"a.{place}": direction}).sort_key(encode({"a": elements}))
    assert placed == pattern({"a": direction}).sort_key(encode({"a": at_place}))


@settings(deadline=None)
@given(st.lists(st.tuples(NESTED, SCALARS), max_size=12), DIRECTIONS, DIRECTIONS, st.integers(1, 6))
def test_a_sorter_with_a_limit_gives_the_first_of_the_sorted_documents(
    rows: list[tuple[Value, Value]], first: int, second: int, limit: int
) -> None:
    documents = [encode({"_id": i, "a": a, "b": b}) for i, (a, b) in enumerate(rows)]
    sort = pattern({"a.x": first, "b": second})
    sorter = Sorter(limit, 1 << 20, None)
    for document in documents:
        sorter.add(sort.sort_key(document), document)
    sorter.finish()
    ordered = sort.sort(documents)
    assert [entry[2] for entry in sorter.take(limit)] == ordered[:limit]
    assert sorted(documents) == sorted(ordered)
    for left, right in itertools.pairwise(ordered):
        left_key, right_key = sort.sort_key(left), sort.sort_key(right)
        assert left_key < right_key or (left_key == right_key and documents.index(left) < documents.index(right))
