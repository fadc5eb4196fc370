"""What has very many parts is freed in slices, whoever lets it go."""

import gc
import sys
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import pytest

from mongottl.document.freeing import (
    HEAVY,
    LONG,
    HeavyList,
    LongDict,
    LongList,
    LongSet,
    append_to,
    free_some,
    freed_in_slices,
    list_for,
    put_aside,
    put_aside_heavy,
)
from mongottl.document.interrupt import begin_evaluation, check_often, clear_check, give_way, set_check


class Counted:
    alive = 0

    def __init__(self) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


@pytest.fixture(autouse=True)
def nothing_aside() -> Iterator[None]:
    free_all()
    assert Counted.alive == 0
    yield
    free_all()
    assert Counted.alive == 0


def free_all() -> int:
    """The number of slices."""
    count = 0
    while free_some():
        count += 1
    return count


def objects(count: int) -> list[Counted]:
    return [Counted() for _ in range(count)]


def test_a_long_list_is_freed_in_slices() -> None:
    LongList(objects(50_000))
    left = []
    while free_some():
        left.append(Counted.alive)
    assert len(left) > 10
    assert left[-1] == 0
    assert all(before - after <= 50_000 // 10 for before, after in zip([50_000, *left], left, strict=False))


def test_a_short_one_is_freed_at_once() -> None:
    LongList(objects(LONG - 1))
    assert Counted.alive == 0
    assert not free_some()


def test_one_that_others_still_have_is_not_freed() -> None:
    kept = LongList(objects(LONG))
    also_kept = kept
    del kept
    assert not free_some()
    assert len(also_kept) == Counted.alive == LONG


@pytest.mark.slow
def test_a_long_list_of_long_lists() -> None:
    LongList(LongList(objects(2_000)) for _ in range(LONG))
    assert free_all() > LONG
    assert Counted.alive == 0


def test_a_long_list_of_short_lists_is_freed_in_smaller_slices() -> None:
    LongList(objects(100) for _ in range(LONG))
    assert free_some()
    assert Counted.alive > 100 * (LONG - 50)


def test_a_long_list_of_dicts_is_freed_in_smaller_slices() -> None:
    LongList({name: Counted() for name in range(100)} for _ in range(LONG))
    assert free_some()
    assert Counted.alive > 100 * (LONG - 50)


def test_a_long_set_is_freed_in_slices() -> None:
    LongSet(objects(50_000))
    assert Counted.alive == 50_000
    assert free_all() > 10


def test_a_long_dict_is_freed_in_slices() -> None:
    LongDict(dict(enumerate(objects(50_000))))
    assert Counted.alive == 50_000
    assert free_all() > 10


@pytest.mark.parametrize("kind", [list, set, deque])
def test_a_container_that_nobody_uses_any_more(
    kind: type[list[Counted]] | type[set[Counted]] | type[deque[Counted]],
) -> None:
    container = kind(objects(50_000))
    put_aside(container)
    assert Counted.alive == 50_000
    assert free_all() > 10
    assert not container


def test_a_dict_that_nobody_uses_any_more() -> None:
    table = dict(enumerate(objects(50_000)))
    put_aside(table)
    assert Counted.alive == 50_000
    assert free_all() > 10
    assert not table


def test_a_short_container_is_freed_with_its_last_reference() -> None:
    put_aside(objects(LONG - 1))
    assert Counted.alive == 0


def test_elements_with_many_parts() -> None:
    put_aside_heavy([objects(1000) for _ in range(20)], 1000)
    alive = [Counted.alive]
    while free_some():
        alive.append(Counted.alive)
    assert max(before - after for before, after in pairwise(alive)) == 1000


def test_a_short_list_whose_elements_have_many_parts() -> None:
    HeavyList(objects(HEAVY) for _ in range(20))
    alive = [Counted.alive]
    while free_some():
        alive.append(Counted.alive)
    assert alive[0] == 20 * HEAVY
    assert max(before - after for before, after in pairwise(alive)) <= 8 * HEAVY


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="other implementations examine everything")
@pytest.mark.parametrize("kind", [LongList, HeavyList, LongSet])
def test_the_garbage_collector_does_not_examine_it(kind: type[LongList] | type[LongSet]) -> None:
    values = kind(objects(LONG))
    assert not gc.is_tracked(values)
    del values
    assert not [each for each in gc.get_objects() if isinstance(each, kind)]


def test_lists_that_others_have_made() -> None:
    short = objects(3)
    assert freed_in_slices(short) is short
    long = freed_in_slices(objects(LONG))
    assert freed_in_slices(long) is long
    del long
    assert Counted.alive == LONG + 3


def test_lists_that_become_long() -> None:
    assert not isinstance(list_for(LONG - 1), LongList)
    assert isinstance(list_for(LONG), LongList)
    lists: dict[str, list[int]] = {}
    for number in range(2 * LONG):
        append_to(lists, "many", number)
    append_to(lists, "few", 1)
    assert lists == {"many": list(range(2 * LONG)), "few": [1]}
    assert isinstance(lists["many"], LongList)
    assert not isinstance(lists["few"], LongList)


def test_evaluations_free_what_they_let_go() -> None:
    check_often()
    set_check(lambda: None, monotonic_s=lambda: 0.0)
    begin_evaluation()
    try:
        LongList(objects(50_000))
        assert Counted.alive
        give_way(1_000)
        assert not Counted.alive
    finally:
        clear_check()
        check_often(False)
