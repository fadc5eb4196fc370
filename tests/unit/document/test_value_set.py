"""Values without duplicates, in one dictionary and divided among many."""

import gc

import pytest
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from mongottl.document.keystring import encode_value
from mongottl.document.types import Value
from mongottl.document.value_set import ValueSet

# From some of these numbers on a set is divided.
SIZES = (0, 1, 16383, 16384, 16385, 40_000)
values = st.lists(st.one_of(st.integers(-5, 5), st.sampled_from([1.0, 2.5, "a", "b", None, True])))


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


@pytest.mark.slow
def test_long_sets_are_as_short_ones() -> None:
    for size in SIZES:
        numbers: list[Value] = [*range(size)]
        found = set_of(numbers[::-1])
        assert len(found) == size
        assert found.in_order() == set_of(numbers).in_order() == numbers
        assert not any(found.add(float(number)) for number in range(0, size, 7)), "equal values are there"
        assert not found.has(size), size
        for other in SIZES:
            others = set_of([*range(other)])
            assert found.has_all(others) == (other <= size)
            assert found.shared_with(others).in_order() == numbers[: min(size, other)]
        assert found.add(-1) and found.has(-1.0)


def test_the_order_of_a_long_set_is_a_list_of_its_own() -> None:
    """Also where the values have been added in order."""
    found = set_of([*range(40_000)])
    found.in_order().append("more")
    assert len(found) == 40_000 and found.in_order() == [*range(40_000)]


def test_the_garbage_collector_does_not_visit_the_values_of_a_long_set() -> None:
    """It would visit those of a new set all at once: a million of them for 84 ms, in one of its short collections."""
    gc.collect()
    gc.freeze()
    try:
        found = set_of([Int64(number) for number in range(40_000)])
        examined = [container for container in gc.get_objects() if isinstance(container, list | dict)]
        assert sum(map(len, examined)) < 10_000
    finally:
        gc.unfreeze()
    assert len(found) == 40_000
