"""Long lists are sorted as Python sorts them, in short parts."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from mongottl.build_info import is_compiled
from mongottl.document import sorting
from mongottl.document.keystring import encode_value
from mongottl.document.sorting import sort_in_parts, sorted_by_comparison, sorted_by_keys

LISTS: dict[str, Callable[[int], list[Any]]] = {
    "random": lambda count: [random.random() for _ in range(count)],
    "ascending": lambda count: list(range(count)),
    "descending": lambda count: list(range(count, 0, -1)),
    "few values": lambda count: [random.randrange(5) for _ in range(count)],
    "one value": lambda count: [7] * count,
    "one value and others": lambda count: [random.choice([7, random.random() * 14]) for _ in range(count)],
    "pairs": lambda count: [(random.randrange(100).to_bytes(2, "big"), i) for i in range(count)],
    "sorted but for the last": lambda count: [*range(1, count), 0],
}


@pytest.mark.parametrize("count", [0, 1, 8192, 8193, 50_000])
@pytest.mark.parametrize("kind", LISTS)
def test_sort_in_parts_sorts_like_sorted(kind: str, count: int) -> None:
    values = LISTS[kind](count)
    assert sort_in_parts(list(values)) == sorted(values)


def test_equal_values_stay_in_their_order() -> None:
    values = [random.choice([1, 1.0, 2, 2.0, random.random() * 3]) for _ in range(50_000)]
    assert [repr(value) for value in sort_in_parts(list(values))] == [repr(value) for value in sorted(values)]


@pytest.mark.skipif(is_compiled(), reason="give_way cannot be replaced in compiled code")
@pytest.mark.parametrize("kind", LISTS)
def test_no_part_is_long(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two checks there is less than an eighth of the work."""
    weights: list[int] = []
    monkeypatch.setattr(sorting, "give_way", weights.append)
    sort_in_parts(LISTS[kind](200_000))
    assert sum(weights) >= 200_000
    assert max(weights) < 200_000 / 8


@pytest.mark.parametrize("count", [0, 1, 2, 300, 50_000])
def test_values_are_sorted_by_their_keys(count: int) -> None:
    values = [(random.randrange(200), number) for number in range(count)]
    keys = [encode_value(value[0]) for value in values]
    assert sorted_by_keys(values, keys) == sorted(values)


@pytest.mark.parametrize("count", [0, 1, 2, 512, 513, 1025, 5000])
@pytest.mark.parametrize("kind", ["random", "few values", "sorted but for the last"])
def test_values_are_sorted_by_a_comparison_as_by_sorted(kind: str, count: int) -> None:
    """Equal ones stay in their order."""
    values = [(value, number) for number, value in enumerate(LISTS[kind](count))]
    ordered = sorted_by_comparison(list(values), lambda a, b: (a[0] > b[0]) - (a[0] < b[0]))
    assert ordered == sorted(values, key=lambda value: value[0])
