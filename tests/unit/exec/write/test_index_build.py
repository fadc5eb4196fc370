"""Index builds with concurrent writes: the index is exact at the end, and nothing of it remains after a failure."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Wait
from mongottl.exec.write.index_build import BUILD_BATCH, build_indexes
from mongottl.storage.stores import KeyRange
from tests.gaps import MAX_GAP_S, measured
from tests.running import Document, Running
from tests.steps import begin

A_1 = {"key": {"a": 1}, "name": "a_1"}
UNIQUE = {**A_1, "unique": True}


def create(*specs: Document) -> Document:
    return {"createIndexes": "c", "indexes": list(specs)}


def entries_of(collection: Collection, name: str) -> list[tuple[bytes, int]]:
    index = collection.index_named(name)
    assert index is not None
    assert index.data is not None
    return index.data.scan(KeyRange(b"", b"\xff" * 8), None, 1_000_000)[0]


def expected_entries(collection: Collection, name: str) -> list[tuple[bytes, int]]:
    index = collection.index_named(name)
    assert index is not None
    return sorted(
        (key, record[0]) for record in collection.store.scan(0, 1_000_000)[0] for key in index.keys_of(record[1])
    )


def assert_exact(collection: Collection, name: str) -> None:
    assert entries_of(collection, name) == expected_entries(collection, name)


def assert_nothing_left(running: Running) -> None:
    """Asserts that only the index on `_id` exists, in memory and in storage."""
    assert running.index_names() == ["_id_"]
    assert len(running.engine.idents()) == 2


@pytest.fixture
def running() -> Running:
    return Running()


def test_an_index_over_existing_documents(running: Running) -> None:
    running.insert(*({"_id": i, "a": i % 7} for i in range(3 * BUILD_BATCH + 5)))
    reply = running.run(create(A_1))
    assert reply == {"numIndexesBefore": 1, "numIndexesAfter": 2, "createdCollectionAutomatically": False}
    assert_exact(running.collection(), "a_1")
    assert running.listed({"find": "c", "filter": {"a": 3}, "hint": "a_1", "limit": 1})


def test_the_build_gives_way_between_bounded_batches(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(4 * BUILD_BATCH)))
    steps = running.steps(create(A_1))
    assert len(list(steps)) >= 4  # more on a slow machine, where batches become smaller


@pytest.mark.parametrize("lives_s", [1_000, 1])
def test_the_words_of_one_long_text_are_interrupted(running: Running, lives_s: int) -> None:
    """Also those of an expired document, which is deleted where it has no valid keys, but not for this."""
    running.insert({"_id": 1, "text": "some words and others " * 20_000, "ttl": lives_s})
    running.index({"_ts": 1}, "ttl", expireAfterSeconds=1_000)
    running.clock.advance(10)
    with pytest.raises(CommandError) as caught, measured(3, evaluates=False) as gaps:
        list(running.steps(create({"key": {"text": "text"}, "name": "words"})))
    assert caught.value.code == ErrorCode.MaxTimeMSExpired
    assert caught.value.message == "the operation is to end"
    assert gaps.longest_s <= MAX_GAP_S
    assert running.index_names() == ["_id_", "ttl"]
    assert running.collection().store.scan(0, 10)[0]
    running.run(create({"key": {"text": "text"}, "name": "words"}))
    assert_exact(running.collection(), "words")


def test_a_build_ends_however_fast_new_documents_come(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(BUILD_BATCH + 1)))
    steps = running.steps(create(A_1))
    number = 10_000
    for _ in range(3):
        if next(steps, "end") == "end":
            break
        running.insert(*({"_id": number + i, "a": i} for i in range(2 * BUILD_BATCH)))
        number += 2 * BUILD_BATCH
    assert next(steps, "end") == "end"
    assert_exact(running.collection(), "a_1")


def test_several_indexes_are_built_in_one_pass(running: Running) -> None:
    running.insert(*({"_id": i, "a": i, "b": [i, i + 1]} for i in range(2 * BUILD_BATCH)))
    steps = running.steps(create(A_1, {"key": {"b": -1}, "name": "b"}, {"key": {"a": 1, "b": 1}, "name": "ab"}))
    assert len(list(steps)) >= 2
    for name in ("a_1", "b", "ab"):
        assert_exact(running.collection(), name)
    assert [index.multikey for index in running.collection().indexes] == [False, False, True, True]


def test_partial_and_sparse_indexes_leave_documents_out(running: Running) -> None:
    running.insert({"_id": 1, "a": 1}, {"_id": 2, "a": 9}, {"_id": 3})
    running.index({"a": 1}, "partial", partialFilterExpression={"a": {"$gt": 5}})
    running.index({"a": 1}, "sparse", sparse=True)
    collection = running.collection()
    assert [rid for _, rid in entries_of(collection, "partial")] == [2]
    assert [rid for _, rid in entries_of(collection, "sparse")] == [1, 2]


def test_an_index_serves_no_reads_before_it_is_ready(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(2 * BUILD_BATCH)))
    steps = running.steps(create(A_1))
    next(steps)
    assert running.ids(filter={"a": BUILD_BATCH + 5}) == [BUILD_BATCH + 5]
    list(steps)
    assert running.ids(filter={"a": BUILD_BATCH + 5}) == [BUILD_BATCH + 5]


# Unique indexes.


def test_living_documents_that_share_a_unique_key_abort_the_build(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(BUILD_BATCH)), {"_id": "x", "a": 5})
    with pytest.raises(CommandError) as caught:
        running.run(create(UNIQUE, {"key": {"b": 1}, "name": "b_1"}))
    assert caught.value.code == 11000
    assert "E11000 duplicate key error collection: test.c index: a_1 dup key: { a: 5 }" in caught.value.message
    assert set(caught.value.details) == {"keyPattern", "keyValue"}
    assert_nothing_left(running)
    running.run({"delete": "c", "deletes": [{"q": {"_id": "x"}, "limit": 1}]})
    running.run(create(UNIQUE))
    assert_exact(running.collection(), "a_1")


def test_missing_fields_share_the_key_null(running: Running) -> None:
    running.insert({"_id": 1}, {"_id": 2, "a": None})
    assert running.code(create(UNIQUE)) == 11000
    running.run(create({**UNIQUE, "sparse": True, "name": "sparse"}))


def test_expired_documents_give_way(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=-1)
    running.insert({"_id": 1, "a": 1, "ttl": 5}, {"_id": 2, "a": 2, "ttl": 5}, {"_id": 3, "a": 3})
    running.insert({"_id": 4, "a": 1}, {"_id": 5, "a": 3, "ttl": 5}, {"_id": 6, "a": 1, "ttl": 5})
    running.insert({"_id": 7, "a": 8, "ttl": 5})
    assert running.code(create(UNIQUE)) == 11000
    running.advance(5)
    running.run(create({"key": {"b": 1}, "name": "b_1"}, UNIQUE, {"key": {"c": 1}, "name": "c_1"}))
    collection = running.collection()
    for name in ("b_1", "a_1", "c_1"):
        assert_exact(collection, name)
    # Expired documents with a needed key were deleted; the others stay and are indexed, since TTL may be turned off.
    assert [record[0] for record in collection.store.scan(0, 100)[0]] == [2, 3, 4, 7]
    assert running.service.metrics.ttl_deleted_documents == 3
    running.run({"dropIndexes": "c", "index": "_ts_1"})
    assert running.ids(filter={"a": 2}) == [2]


def test_many_expired_documents_with_one_key_give_way(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=5)
    running.insert(*({"_id": i, "a": 1} for i in range(2 * BUILD_BATCH)))
    running.advance(5)
    running.run(create(UNIQUE))
    assert running.collection().store.count() == 1
    assert_exact(running.collection(), "a_1")


def test_a_writer_that_breaks_a_unique_index_under_construction_gets_the_error(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(2 * BUILD_BATCH)))
    steps = running.steps(create(UNIQUE))
    next(steps)
    reply = running.run({"insert": "c", "documents": [{"_id": "x", "a": 1}]})
    assert [error["code"] for error in reply["writeErrors"]] == [11000]
    change = {"q": {"_id": 3}, "u": {"$set": {"a": 4}}}
    assert running.run({"update": "c", "updates": [change]})["writeErrors"][0]["code"] == 11000
    list(steps)
    assert_exact(running.collection(), "a_1")


def test_a_new_document_that_clashes_with_one_not_reached_yet_aborts_the_build(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(2 * BUILD_BATCH)))
    steps = running.steps(create(UNIQUE))
    next(steps)
    running.insert({"_id": "x", "a": 2 * BUILD_BATCH - 1})
    with pytest.raises(CommandError) as caught:
        list(steps)
    assert caught.value.code == 11000
    assert_nothing_left(running)


# Builds that fail.


def test_parallel_arrays_abort_the_build(running: Running) -> None:
    running.insert({"_id": 1, "a": [1], "b": [2]})
    assert running.code(create({"key": {"a": 1, "b": 1}, "name": "ab"})) == 171
    assert_nothing_left(running)


def half_built(running: Running, max_time_ms: int = 0) -> Any:
    running.insert(*({"_id": i, "a": i} for i in range(2 * BUILD_BATCH)))
    steps = running.steps(create(A_1, {"key": {"_ts": 1}, "name": "ttl", "expireAfterSeconds": 1}), "test", max_time_ms)
    next(steps)
    return steps


def test_a_killed_build_leaves_nothing(running: Running) -> None:
    steps = half_built(running)
    steps.close()
    assert_nothing_left(running)
    assert running.collection().default_ttl_s == 0


def test_a_build_stops_at_its_time_limit(running: Running) -> None:
    steps = half_built(running, 1)
    running.service.clock.monotonic_s = lambda: 1e9  # type: ignore[method-assign]
    with pytest.raises(CommandError) as caught:
        list(steps)
    assert caught.value.code == 50
    assert_nothing_left(running)


def test_dropping_the_collection_ends_the_build(running: Running) -> None:
    steps = half_built(running)
    running.run({"drop": "c"})
    running.insert({"_id": "new"})
    with pytest.raises(CommandError) as caught:
        list(steps)
    assert caught.value.code == 276
    assert_nothing_left(running)


def test_dropping_the_index_ends_the_build(running: Running) -> None:
    steps = half_built(running)
    assert running.index_names() == ["_id_", "a_1", "ttl"]
    assert running.run({"dropIndexes": "c", "index": "a_1"})["nIndexesWas"] == 3
    with pytest.raises(CommandError) as caught:
        list(steps)
    assert caught.value.code == 276
    assert_nothing_left(running)


def test_emptying_the_collection_meanwhile_is_no_error(running: Running) -> None:
    steps = half_built(running)
    running.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
    list(steps)
    assert entries_of(running.collection(), "a_1") == []


def two_builds(running: Running, command: Document) -> tuple[Steps[Document], Steps[Document]]:
    """A build of `a_1` after its first step, and the steps of a second command that builds it, too."""
    running.insert(*({"_id": i, "a": i} for i in range(2 * BUILD_BATCH)))
    first = running.steps(create(A_1))
    next(first)
    return first, running.steps(command)


def test_a_second_build_of_the_same_index_waits_for_the_first(running: Running) -> None:
    first, second = two_builds(running, create(A_1, {"key": {"b": 1}, "name": "b_1"}))
    assert isinstance(next(second), Wait)
    assert isinstance(next(second), Wait)
    list(first)
    list(second)
    assert running.index_names() == ["_id_", "a_1", "b_1"]
    assert_exact(running.collection(), "a_1")


def test_second_build_takes_over_when_the_first_is_closed(running: Running) -> None:
    first, second = two_builds(running, create(A_1))
    next(second)
    first.close()
    list(second)
    assert_exact(running.collection(), "a_1")


def test_builds_end_when_the_collection_is_dropped(running: Running) -> None:
    first, second = two_builds(running, create(A_1))
    next(second)
    running.run({"drop": "c"})
    for steps in (first, second):
        with pytest.raises(CommandError) as caught:
            list(steps)
        assert caught.value.code == 276


# Documents for which no keys can be generated.

# An index, a document that it refuses, and the error code.
REFUSED: list[tuple[Document, Document, int]] = [
    ({"key": {"a": 1, "b": 1}, "name": "i"}, {"a": [1, 2], "b": [1, 2]}, 171),
    ({"key": {"a": "hashed"}, "name": "i"}, {"a": [1, 2]}, 16766),
    ({"key": {"a": "2dsphere"}, "name": "i"}, {"a": {"type": "Point", "coordinates": ["x"]}}, 16755),
    ({"key": {"a": "text"}, "name": "i"}, {"a": "tea", "language": 7}, 17261),
]


@pytest.mark.parametrize(("spec", "document", "code"), REFUSED, ids=[str(code) for _, _, code in REFUSED])
class TestRefusedDocuments:
    def test_unexpired_documents_abort_the_build(
        self, running: Running, spec: Document, document: Document, code: int
    ) -> None:
        running.insert({"_id": 1}, {"_id": 2, **document})
        assert running.code(create(spec)) == code
        assert_nothing_left(running)

    def test_expired_ones_do_not(self, running: Running, spec: Document, document: Document, code: int) -> None:
        running.index({"_ts": 1}, expireAfterSeconds=-1)
        running.insert({"_id": 1}, {"_id": 2, "ttl": 5, **document}, {"_id": 3, "ttl": 5}, {"_id": 4})
        running.advance(5)
        running.run(create({"key": {"x": 1}, "name": "before"}, spec, {"key": {"y": 1}, "name": "behind"}))
        for name in ("before", "i", "behind"):
            assert_exact(running.collection(), name)
        assert running.ids() == [1, 4]
        # The other expired document is indexed, since it becomes visible again if TTL is turned off.
        running.run({"dropIndexes": "c", "index": "_ts_1"})
        assert running.ids() == [1, 3, 4]

    def test_unindexable_documents_can_be_deleted_before_the_build_reads_them(
        self, running: Running, spec: Document, document: Document, code: int
    ) -> None:
        running.insert(*({"_id": i} for i in range(BUILD_BATCH)), {"_id": "x", **document}, {"_id": "y", **document})
        steps = running.steps(create(spec))
        next(steps)
        assert running.run({"delete": "c", "deletes": [{"q": {"_id": "x"}, "limit": 1}]}) == {"n": 1}
        assert running.run({"delete": "c", "deletes": [{"q": {"_id": {"$gt": ""}}, "limit": 0}]}) == {"n": 1}
        list(steps)
        assert_exact(running.collection(), "i")

    def test_unindexable_documents_can_be_reaped_before_the_build_reads_them(
        self, running: Running, spec: Document, document: Document, code: int
    ) -> None:
        running.index({"_ts": 1}, expireAfterSeconds=-1)
        running.insert(*({"_id": i} for i in range(BUILD_BATCH)), {"_id": "x", "ttl": 5, **document})
        steps = running.steps(create(spec))
        next(steps)
        running.advance(5)
        assert running.reap() == 1
        list(steps)
        assert_exact(running.collection(), "i")

    def test_unindexable_documents_are_evicted_from_a_capped_collection_during_a_build(
        self, running: Running, spec: Document, document: Document, code: int
    ) -> None:
        running.run({"create": "c", "capped": True, "size": 1_000_000, "max": BUILD_BATCH + 10})
        running.insert({"_id": "x", **document}, *({"_id": i} for i in range(BUILD_BATCH)))
        # A build that has not read its first batch.
        running.service.catalog.start_indexes(running.collection(), [parse_index_spec(bson.encode(spec))])
        running.collection().indexes[-1].build_end = BUILD_BATCH + 1
        running.insert(*({"_id": 1000 + i} for i in range(20)))
        assert "x" not in running.ids()
        assert {rid for _, rid in entries_of(running.collection(), "i")} <= set(range(BUILD_BATCH + 2, 1000))


def test_documents_that_expire_during_a_build_do_not_make_it_fail(running: Running) -> None:
    """Two documents with one unique key, the later of which expires before the build reads it."""
    running.index({"_ts": 1}, expireAfterSeconds=-1)
    running.insert({"_id": "kept", "a": 5000}, *({"_id": i, "a": i} for i in range(BUILD_BATCH)))
    running.insert({"_id": "x", "a": 5000, "ttl": 5}, {"_id": "y", "a": 6000})
    steps = running.steps(create(UNIQUE))
    next(steps)
    running.advance(5)
    list(steps)
    assert_exact(running.collection(), "a_1")
    assert running.ids(filter={"_id": {"$type": "string"}}) == ["kept", "y"]


def test_a_quorum_is_not_asked_for_where_all_documents_are_expired(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=5)
    running.insert({"_id": 1}, {"_id": 2})
    command = {**create(A_1), "commitQuorum": 2}
    assert running.code(command) == 278
    running.advance(5)
    running.run(command)


def test_documents_that_expire_are_no_violations_of_uniqueness(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=-1)
    running.index({"a": 1})
    running.insert({"_id": "x", "a": 5000, "ttl": 5}, {"_id": "y", "a": 5000})
    running.insert(*({"_id": i, "a": i} for i in range(2 * BUILD_BATCH)))
    running.run({"collMod": "c", "index": {"name": "a_1", "prepareUnique": True}})
    command = {"collMod": "c", "index": {"name": "a_1", "unique": True}}
    assert running.code(command) == 359
    steps = running.steps(command)
    next(steps)
    running.advance(5)
    list(steps)
    assert running.ids(filter={"a": 5000}) == ["y"]


# The index is exact, whatever is written between its steps.

VALUES = st.one_of(st.integers(0, 6), st.none(), st.lists(st.integers(0, 6), max_size=3))


def _insert(running: Running, target: int, value: Any) -> Document:
    return {"insert": "c", "documents": [{"_id": 1000 + target, "a": value}]}


def _update(running: Running, target: int, value: Any) -> Document:
    return {"update": "c", "updates": [{"q": {"_id": target}, "u": {"$set": {"a": value}}}]}


def _update_many(running: Running, target: int, value: Any) -> Document:
    return {"update": "c", "updates": [{"q": {"_id": {"$gt": target}}, "u": {"$set": {"a": value}}, "multi": True}]}


def _delete(running: Running, target: int, value: Any) -> Document:
    return {"delete": "c", "deletes": [{"q": {"_id": target}, "limit": 1}]}


def _age(running: Running, target: int, value: Any) -> Document:
    running.advance(1)
    return {"update": "c", "updates": [{"q": {"_id": target}, "u": {"$set": {"ttl": 1}}}]}


WRITES: list[Callable[[Running, int, Any], Document]] = [_insert, _update, _update_many, _delete, _age]
STEP = st.lists(st.tuples(st.sampled_from(WRITES), st.integers(0, 12), VALUES), max_size=3)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    documents=st.lists(VALUES, max_size=12),
    writes=st.lists(STEP, max_size=6),
    unique=st.booleans(),
    partial=st.booleans(),
    reaped=st.booleans(),
)
def test_an_index_is_exact_whatever_is_written_meanwhile(
    documents: list[Any], writes: list[list[tuple[Any, int, Any]]], unique: bool, partial: bool, reaped: bool
) -> None:
    running = Running()
    try:
        running.index({"_ts": 1}, expireAfterSeconds=-1)
        running.insert({"_id": "first", "a": 100}, *({"_id": i, "a": value} for i, value in enumerate(documents)))
        spec: Document = {**A_1, "unique": unique}
        if partial:
            spec["partialFilterExpression"] = {"a": {"$gte": 2}}
        specs = [parse_index_spec(bson.encode(spec))]
        steps = begin(running.service, lambda: build_indexes(running.op(), running.collection(), specs, 2))
        try:
            for batch in writes:
                next(steps)
                for write, target, value in batch:
                    running.run(write(running, target, value))
                if reaped:
                    running.reap()
            list(steps)
        except StopIteration:
            pass
        except CommandError as error:
            assert error.code == 11000
            assert unique
            assert running.index_names() == ["_id_", "_ts_1"]
            assert len(running.engine.idents()) == 2
            index = CollectionIndex(parse_index_spec(bson.encode(spec)), "", None, False)
            found = [index.keys_of(bson.encode(document)) for document in running.listed({"find": "c"})]
            keys = [key for keys in found for key in keys]
            assert len(set(keys)) < len(keys)
            return
        assert_exact(running.collection(), "a_1")
        built = running.collection().index_named("a_1")
        assert built is not None
        assert built.ready
        assert built.multikey or all(len(built.keys_of(r[1])) <= 1 for r in running.collection().store.scan(0, 1000)[0])
    finally:
        running.engine.close()
