"""Others run beside commands, and beside the page, that go through very many collections or views."""

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from mongottl.catalog.catalog import new_uuid
from mongottl.catalog.collection import Collection
from mongottl.catalog.options import NO_OPTIONS
from mongottl.document.interrupt import check_often
from mongottl.exec.running.stack import Steps
from mongottl.server.web.figures import ShownCollections
from mongottl.storage.opening import open_engine
from tests.running import Running, hurried_clock
from tests.steps import run_to_end

# More than are sorted at once.
MANY = 9_000
# How often is the least that others run meanwhile: once for some thousand collections.
LEAST = 4


@pytest.fixture(scope="module")
def many() -> Iterator[Running]:
    """A server with many collections whose operations are left wherever they may."""
    made = Running(open_engine("memory:"), clock=hurried_clock(1.0))
    made.leaves_evaluations = True
    catalog = made.service.catalog
    store = catalog.create_collection("other", "c").store
    for number in range(MANY):
        name = f"c{(number * 7_919) % MANY:05}"
        catalog.attach(Collection("many", name, MANY + number, new_uuid(), NO_OPTIONS, store))
    yield made
    made.engine.close()


def times_left(outcome: Any) -> int:
    """How often an operation is left until it has ended."""
    assert isinstance(outcome, Steps)
    return sum(1 for _ in outcome)


def test_others_run_while_collections_are_sorted(many: Running) -> None:
    found: list[Collection] = []

    def list_them() -> None:
        op = many.op("many")
        many.service.stacks.carry(op)
        found.extend(op.collections("many"))

    assert times_left(many.service.stacks.begin(list_them)) >= LEAST
    names = [collection.name for collection in found]
    assert names == sorted(names)
    assert len(set(names)) == MANY


def test_others_run_while_the_page_looks_for_collections(many: Running) -> None:
    stacks = many.service.stacks
    assert times_left(stacks.begin(partial(stacks.compute_unknown, ShownCollections, many.service))) >= LEAST


def test_collections_are_freed_while_their_database_is_dropped() -> None:
    """To free a hundred thousand when the last one is dropped takes half a second."""
    running = Running(open_engine("memory:"))
    count = 40
    for number in range(count):
        running.run({"create": f"c{number}"})

    def living() -> int:
        return sum(isinstance(each, Collection) for each in gc.get_objects())

    before = living()
    steps = running.steps({"dropDatabase": 1})
    while len(running.service.catalog.collections("test")) > 2:
        next(steps)
    assert living() <= before - count // 2
    run_to_end(steps)
    running.engine.close()


def test_others_are_answered_while_a_view_is_compared_with_all_others() -> None:
    running = Running(open_engine("memory:"))
    running.leaves_evaluations = True
    for number in range(50):
        running.run({"create": f"v{number}", "viewOn": "c", "pipeline": []})
    asked = 0

    def answer_apart() -> None:
        nonlocal asked
        asked += 1

    running.service.stacks.answer_apart = answer_apart
    running.service.stacks.times.left_after_s = 0.0
    check_often()
    try:
        running.run({"create": "another", "viewOn": "v7", "pipeline": []})
    finally:
        check_often(False)
    assert asked >= 50
    running.engine.close()
