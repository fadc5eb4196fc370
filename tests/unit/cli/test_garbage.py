"""Full collections of garbage, which are made while nobody asks for anything."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from mongottl.cli.garbage import FullCollections


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
