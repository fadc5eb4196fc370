"""Keys of long documents are made before the unit of work that writes them, and are those that are made within it."""

from typing import Any

import bson
import pytest

from mongottl.catalog.collection import CollectionIndex
from mongottl.document.interrupt import in_undivided
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.running.stack import Steps
from mongottl.exec.write.keys_ahead import KeysAhead
from mongottl.exec.write.writes import insert_document, prepare_document
from mongottl.storage.opening import open_engine
from tests.gaps import measured
from tests.planning import Bench, Pattern
from tests.running import Running, hurried_clock

pytestmark = pytest.mark.slow

FILLER = "x" * (1 << 20)
DOCUMENT: dict[str, Any] = {
    "_id": 1,
    "a": [1, "x", None, {"b": 2}],
    "b": {"c": [1, 2]},
    "text": ["apple pear", "plum"],
    "place": {"type": "Point", "coordinates": [1, 2]},
    "filler": FILLER,
}
PATTERNS: list[tuple[Pattern, dict[str, Any]]] = [
    ([("a", 1)], {}),
    ([("b.c", -1), ("_id", 1)], {"unique": True}),
    ([("a", 1)], {"partialFilterExpression": bson.encode({"_id": 1})}),
    ([("a", 1)], {"partialFilterExpression": bson.encode({"_id": 2})}),
    ([("$**", 1)], {"wildcardProjection": bson.encode({"filler": 0})}),
    ([("text", "text")], {}),
    ([("_id", "hashed")], {}),
    ([("place", "2dsphere")], {}),
    ([("missing", 1)], {"sparse": True}),
]


def noted(index: CollectionIndex) -> tuple[bool, set[str], int]:
    return index.keys.saw_array, set(index.keys.array_paths), int(index.keys.type_bits)


@pytest.mark.parametrize(("pattern", "options"), PATTERNS)
def test_keys_made_ahead_are_the_same(pattern: Pattern, options: dict[str, Any]) -> None:
    document = bson.encode(DOCUMENT)
    index, other = (Bench().index(pattern, **options) for _ in range(2))
    wanted = other.keys_of(document)
    with KeysAhead() as ahead:
        assert ahead.lacks([index], document)
        ahead.make([index], document)
        assert not ahead.lacks([index], document)
        assert index.made_ahead
        assert index.keys_of(document) == wanted
        assert noted(index) == noted(other)
        assert index.became_multikey() == other.became_multikey()
    assert not index.made_ahead


def test_another_document_has_keys_of_its_own() -> None:
    index = Bench().index([("a", 1)])
    with KeysAhead() as ahead:
        ahead.make([index], bson.encode(DOCUMENT))
        assert len(index.keys_of(bson.encode({"a": [1, 2], "filler": FILLER}))) == 2


def test_parallel_arrays_are_refused_where_they_are_written() -> None:
    bench = Bench()
    bench.index([("a", 1), ("b.c", 1)])
    with pytest.raises(CommandError) as caught:
        bench.insert_one(DOCUMENT)
    assert caught.value.code == ErrorCode.CannotIndexParallelArrays
    assert bench.find({}) == []
    assert not any(index.made_ahead for index in bench.collection.indexes)


def test_keys_of_places_are_made_ahead_for_shorter_documents() -> None:
    """A polygon of a few thousand corners takes longer than a megabyte of anything else."""
    bench = Bench()
    place, other = bench.index([("place", "2dsphere")]), bench.index([("a", 1)])
    document = bson.encode({**DOCUMENT, "filler": "x" * (1 << 15)})
    with KeysAhead() as ahead:
        assert ahead.lacks([place, other], document)
        assert not ahead.lacks([other], document)
        ahead.make([place, other], document)
        assert place.made_ahead
        assert not other.made_ahead
        assert not ahead.lacks([place, other], document)


def test_short_documents_are_left_to_the_unit_of_work() -> None:
    index = Bench().index([("a", 1)])
    short = bson.encode({"a": 1})
    with KeysAhead() as ahead:
        assert not ahead.lacks([index], short)
        ahead.make([index], short)
        assert not index.made_ahead


def test_others_may_run_while_keys_are_made() -> None:
    bench = Bench()
    bench.index([("a", 1)])
    op = bench.op
    document = prepare_document(op, bench.collection, bson.encode({"_id": 1, "a": [*range(50_000)], "filler": FILLER}))
    with measured(evaluates=False) as gaps:
        insert_document(op, bench.collection, document)
    assert gaps.count > 20
    assert not in_undivided()
    assert bench.find({"a": 49_999}) == [1]


LONG = {"_id": 1, "a": [{"b": number} for number in range(2_000)], "n": 0, "filler": FILLER}
INDEX = {"createIndexes": "c", "indexes": [{"key": {"a.b": 1}, "name": "made"}]}
CHANGE = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}


@pytest.mark.parametrize(
    ("command", "indexed"),
    [
        ({"update": "c", "updates": [{"q": {"n": {"$gte": 0}}, "u": {"$set": {"a.7.b": -1}}}]}, True),
        ({"update": "c", "updates": [{"q": {"n": {"$gte": 0}}, "u": {"$set": {"a.7.b": -1}}, "multi": True}]}, True),
        ({"delete": "c", "deletes": [{"q": {"n": {"$gte": 0}}, "limit": 1}]}, True),
        ({"delete": "c", "deletes": [{"q": {"n": {"$gte": 0}}, "limit": 0}]}, True),
        (INDEX, False),
    ],
)
def test_writers_of_short_keys_do_not_overtake_a_write_for_ever(command: dict[str, Any], indexed: bool) -> None:
    """Whenever the command is left, another client changes the document, so that keys made ahead are of no use."""

    def begun() -> tuple[Running, Steps[dict[str, Any]]]:
        running = Running(open_engine("memory:"), clock=hurried_clock(0.001))
        running.leaves_evaluations = True
        if indexed:
            running.run(INDEX)
        running.run({"insert": "c", "documents": [LONG]})
        return running, running.steps(command)

    alone = sum(1 for _ in begun()[1])
    running, steps = begun()
    changes = 0
    for _ in steps:
        changes += running.run(CHANGE)["n"]
        assert changes < 4 * alone
    assert changes > 0
    assert running.run({"validate": "c", "full": True})["valid"]
