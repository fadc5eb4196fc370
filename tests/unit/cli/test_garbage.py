"""Full collections of garbage, which are made while nobody asks for anything."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from mongottl.cli.garbage import FullCollections, NewObjects


class Ring:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.ring = self


@pytest.fixture
def old_garbage() -> Iterator[weakref.ref[Ring]]:
    """A cycle without other references that only a full collection finds."""
    gc.collect()
    gc.freeze()  # the objects of all tests need not be examined
    ring = Ring()
    gc.collect(1)
    gc.collect(1)
    found = weakref.ref(ring)
    del ring
    gc.collect(1)
    assert found() is not None
    yield found
    gc.unfreeze()


def test_a_full_collection_waits_until_nobody_asks_for_anything(old_garbage: weakref.ref[Ring]) -> None:
    collections = FullCollections(due_after=1)
    gc.collect(1)
    assert not collections.look(requests=1, is_busy=False), "there was one since the look before"
    assert not collections.look(requests=2, is_busy=False)
    assert not collections.look(requests=2, is_busy=True)
    assert old_garbage() is not None
    assert collections.look(requests=2, is_busy=False)
    assert old_garbage() is None


def test_a_full_collection_is_made_only_if_there_is_much_to_examine() -> None:
    collections = FullCollections(due_after=2)
    assert not collections.look(requests=0, is_busy=False)
    gc.collect(1)
    assert not collections.look(requests=0, is_busy=False)
    gc.collect(1)
    assert collections.look(requests=0, is_busy=False)
    assert not collections.look(requests=0, is_busy=False), "nothing is new"


def test_new_objects_are_examined_although_as_many_are_freed() -> None:
    """Python examines none then, until there are very many."""
    gc.collect()
    gc.freeze()  # the objects of all tests need not be examined
    gc.disable()  # and Python is to make no collection of its own
    try:
        rings: list[weakref.ref[Ring]] = []
        new = NewObjects()
        for _ in range(3):
            for _ in range(100):
                ring = Ring()
                rings.append(weakref.ref(ring))
                del ring
            new.examine()
            assert not any(found() for found in rings)
        assert new.collections == 1, "one of three is of the second generation, as by the thresholds"
        assert new.allocated >= 300
    finally:
        gc.enable()
        gc.unfreeze()


def test_collections_of_new_objects_make_no_full_one_due() -> None:
    new = NewObjects()
    collections = FullCollections(due_after=5, new=new)
    collections.look(requests=0, is_busy=False)
    for _ in range(30):
        new.examine()
    assert new.collections >= 9
    assert not collections.look(requests=0, is_busy=False)
    new.allocated += 5 * 15_000
    assert collections.look(requests=0, is_busy=False)
