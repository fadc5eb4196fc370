"""Stages while the data change between two batches."""

from typing import Any

import pytest

from mongottl.document.build import encode
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.stages.index_scan import PointLookup
from mongottl.exec.stages.stage import BATCH, PlanStage, SortStage
from mongottl.exec.unit.recovery_unit import uuid_text
from mongottl.exec.write.writes import delete_batch
from mongottl.query.context import ParseContext
from mongottl.query.projection import parse_projection
from tests.planning import Bench, Pattern, ids


@pytest.fixture
def bench() -> Bench:
    return Bench()


def fill(bench: Bench, count: int = 1000) -> None:
    bench.insert([{"_id": i, "a": i} for i in range(count)])


def first(bench: Bench, stage: PlanStage) -> list[object]:
    batch = stage.next_batch(bench.op)
    assert batch is not None
    return ids([record[1] for record in batch])


def test_a_call_does_a_bounded_amount_of_work(bench: Bench) -> None:
    bench.index([("a", 1)])
    fill(bench)
    scan = bench.plan({"b": 1}).open()
    assert scan.next_batch(bench.op) == []
    assert scan.examined == BATCH
    by_index = bench.plan({"a": {"$gte": 0}}).open()
    assert first(bench, by_index) == list(range(BATCH))
    assert by_index.examined == BATCH


def test_empty_ranges_are_bounded_too(bench: Bench) -> None:
    bench.index([("a", 1)])
    fill(bench, 10)
    stage = bench.plan({"a": {"$in": [*range(100, 200), 5]}}).open()
    assert first(bench, stage) == [5]
    assert stage.next_batch(bench.op) == []
    assert bench.drain(stage) == []


def test_inserted_and_deleted_between_batches(bench: Bench) -> None:
    fill(bench)
    stage = bench.plan({}).open()
    seen = first(bench, stage)
    delete_batch(bench.op, bench.collection, bench.collection.store.scan(200, 100)[0])
    bench.insert([{"_id": 1000}])
    seen += ids(bench.drain(stage))
    assert seen == [*range(BATCH), *range(300, 1001)]


def test_deleted_at_the_position_of_an_index_scan(bench: Bench) -> None:
    bench.index([("a", 1)])
    fill(bench)
    stage = bench.plan({"a": {"$gte": 10}}).open()
    seen = first(bench, stage)
    delete_batch(bench.op, bench.collection, bench.collection.store.scan(0, 400)[0])
    assert seen + ids(bench.drain(stage)) == [*range(10, 10 + BATCH), *range(400, 1000)]


@pytest.mark.parametrize("by_index", [False, True])
def test_collection_dropped(bench: Bench, by_index: bool) -> None:
    bench.index([("a", 1)])
    fill(bench)
    stage = bench.plan({"a": {"$gte": 0}}, hint="a_1" if by_index else {"$natural": 1}).open()
    first(bench, stage)
    bench.service.catalog.drop_collection(bench.collection)
    with pytest.raises(CommandError) as killed:
        stage.next_batch(bench.op)
    assert killed.value.code == ErrorCode.QueryPlanKilled
    assert killed.value.message == f"collection dropped. UUID {uuid_text(bench.collection.uuid.data)}"


def test_collection_replaced_by_a_renamed_one(bench: Bench) -> None:
    bench.index([("a", 1)])
    fill(bench)
    stage = bench.plan({"a": {"$gte": 0}}).open()
    first(bench, stage)
    other = bench.service.catalog.create_collection("db", "other")
    bench.service.catalog.rename_collection(other, "db", "c", bench.collection)
    with pytest.raises(CommandError) as killed:
        stage.next_batch(bench.op)
    assert killed.value.code == ErrorCode.QueryPlanKilled


def test_index_dropped(bench: Bench) -> None:
    index = bench.index([("a", 1)])
    other = bench.index([("b", 1)])
    fill(bench)
    stage = bench.plan({"a": {"$gte": 0}}).open()
    seen = first(bench, stage)
    bench.service.catalog.remove_indexes(bench.collection, [other])
    seen += first(bench, stage)
    assert seen == list(range(len(seen)))  # a slow machine's batches are smaller
    assert len(seen) <= 2 * BATCH
    bench.service.catalog.remove_indexes(bench.collection, [index])
    with pytest.raises(CommandError) as killed:
        stage.next_batch(bench.op)
    assert killed.value.code == ErrorCode.QueryPlanKilled
    assert killed.value.message == "index 'a_1' dropped"


def test_index_that_becomes_multikey_before_its_scan_begins(bench: Bench) -> None:
    """A `$lookup` is planned within an evaluation, which others may interrupt."""
    bench.index([("a", 1)])
    bench.insert([{"_id": 1, "a": 1}, {"_id": 2, "a": 3}])
    plan = bench.plan({"$and": [{"a": {"$gte": 2}}, {"a": {"$lte": 4}}]})
    bench.insert_one({"_id": 3, "a": [1, 5]})
    assert set(ids(bench.drain(plan.open()))) == {2, 3}  # it has no key in [2, 4]


def test_index_that_becomes_multikey_under_a_scan(bench: Bench) -> None:
    bench.index([("a", 1)])
    fill(bench)
    stage = bench.plan({"a": {"$ne": 5000}}).open()
    first(bench, stage)
    # Keys within the ranges, although the document does not match any more; and two keys of one that does.
    bench.insert([{"_id": "no", "a": [2000, 5000]}, {"_id": "yes", "a": [2001, 2002]}])
    assert ids(bench.drain(stage))[-2:] == [999, "yes"]


LATE = [{"b": 900, "c": 9}, {"b": -1, "c": 2}]
ABOVE = [{"b": "x", "c": 2}, {"b": 1, "c": 3}]
NO_MATCH = [{"b": 901, "c": 9}, {"b": -2, "c": 3}]


@pytest.mark.parametrize(
    ("pattern", "filter", "sort", "late", "no_match"),
    [
        ([("a", 1)], {"a": {"$gt": 1, "$lt": 5000}}, None, [-1, 6000], [6001, 6002]),
        ([("a", -1)], {"a": {"$lt": 5000, "$gt": -1}}, None, [-5, 6000], [-6, -7]),
        ([("a", 1)], {"a": {"$gt": 1, "$lt": 5000}}, [("a", 1)], [-1, 6000], [6001, 6002]),
        ([("a", 1)], {"a": {"$lt": 5000, "$gt": -1}}, [("a", -1)], [-5, 6000], [-6, -7]),
        ([("l.c", 1), ("l.b", 1)], {"l.c": 2, "l.b": {"$gte": 0}}, None, ABOVE, NO_MATCH),
        ([("l.b", 1), ("l.c", 1)], {"l.b": {"$gte": 0}, "l.c": 2}, None, LATE, NO_MATCH),
        ([("l.b", 1), ("l.c", 1)], {"l.b": {"$in": list(range(1000))}, "l.c": 2}, None, LATE, NO_MATCH),
    ],
    ids=["range", "descending", "sorted", "backward", "point and range", "trailing", "points"],
)
@pytest.mark.parametrize("unique", [False, True])
def test_ranges_that_arrays_satisfy_by_several_elements_are_widened(
    bench: Bench, pattern: Pattern, filter: dict[str, Any], sort: Pattern | None, late: Any, no_match: Any, unique: bool
) -> None:
    bench.index(pattern, unique=unique)
    bench.insert([{"_id": i, "a": i, "l": {"b": i, "c": 2}} for i in range(1000)])
    stage = bench.plan(filter, sort).open()
    seen: list[Any] = first(bench, stage)
    root = pattern[0][0].partition(".")[0]
    bench.insert([{"_id": "late", root: late}, {"_id": "no", root: no_match}])
    seen += ids(bench.drain(stage))
    assert "late" in seen
    assert "no" not in seen
    found = [each for each in seen if each != "late"]
    expected: list[Any] = bench.find({**filter, "_id": {"$type": "int"}}, sort)
    assert (found if sort is not None else sorted(found)) == (expected if sort is not None else sorted(expected))


def test_covered_ranges_are_widened(bench: Bench) -> None:
    bench.index([("a", 1)])
    fill(bench)
    plan = bench.plan({"a": {"$gt": 1, "$lt": 5000}})
    plan.cover(parse_projection(encode({"_id": 0, "a": 1}), ParseContext(), for_find=True))
    stage = plan.open()
    assert plan.covered
    count = len(first(bench, stage))
    bench.insert([{"_id": "late", "a": [-1, 6000]}])
    assert count + len(bench.drain(stage)) == 999


def test_records_put_back_after_ranges_were_widened_are_returned_again(bench: Bench) -> None:
    bench.index([("a", 1)])
    fill(bench)
    stage = bench.plan({"a": {"$gt": 1, "$lt": 5000}}).open()
    seen = first(bench, stage)
    bench.insert([{"_id": "late", "a": [-1, 6000, 6001]}])
    batch = stage.next_batch(bench.op)
    assert batch
    assert stage.put_back(bench.op, batch[3:])
    seen += ids([record[1] for record in batch[:3]])
    assert seen + ids(bench.drain(stage)) == [*range(2, 1000), "late"]


def expiring(bench: Bench) -> None:
    bench.index([("_ts", 1)], expireAfterSeconds=100)
    bench.index([("a", 1)])
    bench.insert([{"_id": i, "a": i} for i in range(600)])
    bench.insert([{"_id": i, "a": i, "ttl": 10} for i in range(600, 900)])


@pytest.mark.parametrize("way", ["collection", "index", "points", "express"])
def test_expired_documents_are_not_given(bench: Bench, way: str) -> None:
    expiring(bench)
    filters: dict[str, dict[str, object]] = {
        "collection": {},
        "index": {"a": {"$gte": 0}},
        "points": {"_id": {"$in": [1, 700]}},
        "express": {"_id": 700},
    }
    filter = filters[way]
    before = bench.find(filter)
    bench.clock.advance(10)
    assert bench.find(filter) == [found for found in before if isinstance(found, int) and found < 600]
    bench.clock.advance(90)
    assert bench.find(filter) == []


def test_documents_that_expire_between_batches(bench: Bench) -> None:
    expiring(bench)
    scan = bench.plan({}).open()
    by_index = bench.plan({"a": {"$gte": 0}}).open()
    first(bench, scan)
    first(bench, by_index)
    bench.clock.advance(10)
    assert ids(bench.drain(scan)) == list(range(BATCH, 600))
    assert ids(bench.drain(by_index)) == list(range(BATCH, 600))


def test_documents_that_expire_while_they_wait_in_a_sort(bench: Bench) -> None:
    expiring(bench)
    stage = bench.plan({}, [("a", -1), ("b", 1)]).open()
    while not (batch := stage.next_batch(bench.op)):
        assert batch is not None
    assert ids([record[1] for record in batch]) == list(range(899, 899 - BATCH, -1))
    bench.clock.advance(10)
    assert ids(bench.drain(stage)) == list(range(599, -1, -1))


def sorting(bench: Bench, sort: Pattern, **options: Any) -> SortStage:
    stage = bench.plan({}, sort, **options).open()
    assert isinstance(stage, SortStage)
    return stage


def test_sort_in_several_runs(bench: Bench) -> None:
    bench.insert([{"_id": i, "a": i * 7919 % 1000, "b": i % 3} for i in range(1000)])
    by_b = sorted(range(1000), key=lambda i: (i % 3, i))
    stage = sorting(bench, [("b", 1)])
    stage.sorter.run_length = 100
    assert ids(bench.drain(stage)) == by_b
    stage = sorting(bench, [("b", 1)], limit=700)
    stage.sorter.run_length = 100
    assert ids(bench.drain(stage)) == by_b[:700]
    assert bench.find({}, [("a", -1)], skip=5, limit=3) == bench.find({}, [("a", -1)])[5:8]


def test_sort_keeps_what_it_needs_only(bench: Bench) -> None:
    fill(bench, 2000)
    stage = bench.plan({}, [("a", -1), ("b", 1)], limit=5).open()
    assert ids(bench.drain(stage)) == [1999, 1998, 1997, 1996, 1995]
    node = stage.node()
    assert node.described()["limitAmount"] == 5


def test_sort_memory(bench: Bench) -> None:
    fill(bench)
    bench.op.service.limits.sort_bytes = 1000
    on_disk = sorting(bench, [("b", 1), ("a", -1)])
    found = ids(bench.drain(on_disk))
    bench.op.service.limits.sort_bytes = 100 << 20
    in_memory = sorting(bench, [("b", 1), ("a", -1)])
    assert found == ids(bench.drain(in_memory))
    counters = on_disk.node().counters.extra
    assert counters["usedDisk"] is True
    assert counters["spilledRecords"] == 1000
    assert in_memory.node().counters.extra["usedDisk"] is False
    bench.op.service.limits.sort_bytes = 1000
    with pytest.raises(CommandError) as refused:
        bench.drain(sorting(bench, [("b", 1)], allow_disk_use=False))
    assert refused.value.code == ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed
    assert refused.value.message == (
        "Sort exceeded memory limit of 1000 bytes, but did not opt in to external sorting."
    )
    bench.op.service.limits.sort_bytes = 100_000
    few = sorting(bench, [("a", -1), ("b", 1)], allow_disk_use=False, limit=2)
    assert ids(bench.drain(few)) == [999, 998]


def test_uses_of_an_index_are_counted_once_per_run(bench: Bench) -> None:
    index = bench.index([("a", 1)])
    fill(bench)
    plan = bench.plan({"a": {"$gte": 0}})
    assert index.accesses == 0
    assert plan.winning.stage == "FETCH"
    assert index.accesses == 0
    bench.drain(plan.open())
    assert index.accesses == 1


def test_closed_stages_end(bench: Bench) -> None:
    fill(bench, 10)
    stage = bench.plan({}, [("b", 1)]).open()
    stage.next_batch(bench.op)
    stage.close()
    stage.close()
    assert stage.next_batch(bench.op) is None


@pytest.mark.parametrize("direction", [1, -1])
def test_many_ids_are_read_in_order_in_parts(direction: int) -> None:
    """Some are given twice, some are missing, and the parts do not divide their number."""
    bench = Bench()
    bench.insert([{"_id": number} for number in range(0, 3000, 2)])
    wanted = [*range(2500, 0, -1), *range(100)]
    plan = bench.plan({"_id": {"$in": wanted}}, [("_id", direction)])
    assert bench.find({"_id": {"$in": wanted}}, [("_id", direction)]) == [*range(0, 2501, 2)][::direction]
    assert isinstance(plan.open(), PointLookup)
