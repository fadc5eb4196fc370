"""Values without duplicates, in one set of Python's and divided among several."""

import gc

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from mongottl.document.keystring import encode_value
from mongottl.document.types import Symbol, Value
from mongottl.document.value_set import ValueSet

# From some of these numbers on a set is freed in slices, and divided.
SIZES = (0, 1, 511, 512, 262_144)
numbers = st.one_of(st.integers(-5, 5), st.sampled_from([1.0, 2.5, -0.0, float("inf"), Int64(2), Int64(2**60)]))
others = st.sampled_from(["a", "b", None, True, float("nan"), Decimal128("2.5"), Decimal128("4"), Symbol("a"), [1], []])
values = st.one_of(st.lists(numbers), st.lists(st.one_of(numbers, others)))


def set_of(array: list[Value]) -> ValueSet:
    found = ValueSet(None)
    found.add_all(array)
    return found


def first_of_equal(array: list[Value]) -> list[Value]:
    """The model: in order, of values that compare equal the first."""
    first: dict[bytes, Value] = {}
    for value in array:
        first.setdefault(encode_value(value), value)
    return [first[key] for key in sorted(first)]


@given(values)
def test_of_equal_values_the_first_stays(array: list[Value]) -> None:
    found = set_of(array)
    assert list(map(repr, found.in_order())) == list(map(repr, first_of_equal(array)))
    assert len(found) == len(first_of_equal(array))


@given(values, values)
def test_sets_are_compared_by_their_values(left: list[Value], right: list[Value]) -> None:
    shared = set_of(left).shared_with(set_of(right))
    others = {encode_value(value) for value in right}
    assert shared.in_order() == [value for value in first_of_equal(left) if encode_value(value) in others]
    assert set_of(right).has_all(set_of(left)) == (len(shared) == len(set_of(left)))


@given(values, others, values)
def test_each_value_is_found_and_added_once(array: list[Value], value: Value, more: list[Value]) -> None:
    found = set_of(array)
    assert found.has(value) == (encode_value(value) in map(encode_value, array))
    assert found.add(value) != (encode_value(value) in map(encode_value, array))
    found.add_all(more)
    assert list(map(repr, found.in_order())) == list(map(repr, first_of_equal([*array, value, *more])))


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, "text"])
def test_long_sets_are_as_short_ones(first: Value) -> None:
    """first: a value that comes before all others of the set, or after them."""
    for size in SIZES:
        whole: list[Value] = [*range(1, size)]
        found = set_of([*whole[::-1], first])
        assert len(found) == max(1, size)
        in_order = first_of_equal([*whole, first])
        assert found.in_order() == set_of([first, *whole]).in_order() == in_order
        assert not any(found.add(float(number)) for number in range(1, size, 7)), "equal values are there"
        assert not found.has(size + 1), size
        for other in (size // 2 + 1, size + 2):
            shorter = set_of([*range(1, other)])
            assert found.has_all(shorter) == (other <= max(1, size))
            assert found.shared_with(shorter).in_order() == whole[: other - 1]
            assert shorter.has_all(found) is False
        assert found.add(-1) and found.has(-1.0)


def test_the_order_of_a_long_set_is_a_list_of_its_own() -> None:
    """Also where the values have been added in order."""
    found = set_of([*range(300_000)])
    found.in_order().append("more")
    assert len(found) == 300_000 and found.in_order() == [*range(300_000)]


def test_the_garbage_collector_does_not_visit_the_values_of_a_long_set() -> None:
    """It would visit those of a new set all at once: a million of them for 84 ms, in one of its short collections."""
    gc.collect()
    gc.freeze()
    try:
        found = set_of([Int64(number) for number in range(300_000)])
        examined = [container for container in gc.get_objects() if isinstance(container, list | dict)]
        assert sum(map(len, examined)) < 10_000
    finally:
        gc.unfreeze()
    assert len(found) == 300_000
