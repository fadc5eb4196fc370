"""Long lists are made of others in parts, and are freed in slices."""

import pytest

from mongottl.document.freeing import LONG, LongList
from mongottl.document.long_lists import part_of, with_more

SIZES = (0, 1, LONG - 1, LONG, LONG + 1, 5000)


@pytest.mark.parametrize("more", SIZES)
@pytest.mark.parametrize("size", SIZES)
def test_with_more(size: int, more: int) -> None:
    values = with_more(list(range(size)), list(range(size, size + more)))
    assert values == list(range(size + more))
    assert isinstance(values, LongList) == (size + more >= LONG)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 3), (5, 600), (0, 5000), (1, 4999), (4990, 9000), (0, LONG)])
def test_part_of(start: int, end: int) -> None:
    values = list(range(5000))
    part = part_of(values, start, end)
    assert part == values[start:end]
    assert part is not values
