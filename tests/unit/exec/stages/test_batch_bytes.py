"""Limits of batches in bytes: no cursor makes the server hold more than a page, and no unit of work writes more."""

import itertools
from typing import Any

import bson
import pytest

from mongottl.commands.crud.insert import INSERT_BYTES
from mongottl.exec.plan.planner import plan_query
from mongottl.exec.stages.stage import BATCH_BYTES
from mongottl.exec.write.expiry import PURGE_BYTES
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline.output import WRITE_BYTES
from mongottl.query.projection import parse_projection
from mongottl.query.sort import parse_sort
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import Record
from tests.running import Running

COUNT = 9
MEGABYTES = 4


def large(number: int, size: int = MEGABYTES << 20) -> dict[str, Any]:
    return {
        "_id": number,
        "n": number,
        "m": [number, number + 100],
        "t": "word",
        "loc": [number / 1000, 0.0],
        "pad": bytes(size),
    }


@pytest.fixture(params=["memory", "sqlite"])
def running(request: pytest.FixtureRequest) -> Running:
    return Running(open_engine(f"{request.param}:"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filter", "index"),
    [
        ({}, {}),
        ({"n": {"$gte": 0}}, {"n": 1}),
        ({"n": {"$in": list(range(COUNT))}}, {"n": 1}),
        ({"m": {"$gte": 0}}, {"m": -1}),
        ({"_id": {"$in": list(range(COUNT))}}, {}),
        ({"$text": {"$search": "word"}}, {"t": "text"}),
        ({"$or": [{"n": {"$lt": 4}}, {"n": {"$gte": 4}}]}, {"n": 1}),
    ],
)
def test_plans_read_batches_of_limited_size(running: Running, filter: dict[str, Any], index: dict[str, Any]) -> None:
    for number in range(COUNT):
        running.insert(large(number))
    if index:
        running.index(index, "index")
    op = running.op()
    stage = plan_query(op, running.collection(), parse_match(bson.encode(filter), ParseContext())).open()
    read: list[Record] = []
    while (batch := stage.next_batch(op)) is not None:
        assert sum([len(record[1]) for record in batch[:-1]]) < BATCH_BYTES
        read.extend(batch)
    assert sorted([record[0] for record in read]) == list(range(1, COUNT + 1))


@pytest.mark.parametrize("sort", [1, -1])
def test_covered_plans_read_batches_of_limited_size(running: Running, sort: int) -> None:
    for number in range(COUNT):
        running.insert({"_id": number, "text": str(number) * 10_000, "n": number % 2})
    running.index({"text": 1, "n": 1}, "index")
    op = running.op()
    match = parse_match(bson.encode({"text": {"$gte": ""}, "n": {"$gte": 0}}), ParseContext())
    plan = plan_query(op, running.collection(), match, sort=parse_sort(bson.encode({"text": sort})))
    plan.cover(parse_projection(bson.encode({"_id": 0, "text": 1}), ParseContext(), for_find=True))
    assert plan.covered
    stage = plan.open()
    stage.set_batch_bytes(25_000)
    read: list[Record] = []
    while (batch := stage.next_batch(op)) is not None:
        assert len(batch) <= 3
        read.extend(batch)
    assert [record[0] for record in read] == list(range(1, COUNT + 1))[::sort]


def write_units(running: Running) -> int:
    return running.engine.statistics()["commits"]


def test_inserts_are_cut_into_units_of_limited_size(running: Running) -> None:
    running.run({"create": "c"})
    size = INSERT_BYTES // 4
    for command in (
        {"insert": "c", "documents": [large(n, size) for n in range(20)]},
        {
            "bulkWrite": 1,
            "ops": [{"insert": 0, "document": large(n, size)} for n in range(100, 120)],
            "nsInfo": [{"ns": "test.c"}],
        },
    ):
        before = write_units(running)
        reply = running.run(command, "admin" if "bulkWrite" in command else "test")
        assert reply.get("n", reply.get("nInserted")) == 20
        assert write_units(running) - before == 5
    before = write_units(running)
    running.insert(*({"_id": f"small {n}"} for n in range(500)))
    assert write_units(running) - before == 1


@pytest.mark.parametrize("stage", [{"$out": "copy"}, {"$merge": "copy"}])
def test_output_stages_write_documents_of_limited_size_in_a_step(running: Running, stage: dict[str, Any]) -> None:
    size = WRITE_BYTES // 4
    running.insert(*(large(number, size) for number in range(20)))
    stored = [0]
    for _ in running.steps({"aggregate": "c", "pipeline": [stage], "cursor": {}}):
        stored.append(
            sum(found.store.count() for found in running.service.catalog.all_collections() if found.number) - 20
        )
    assert max(after - before for before, after in itertools.pairwise(stored)) == 4
    assert running.collection("copy").store.count() == 20


@pytest.mark.parametrize("ordered", [True, False])
def test_a_duplicate_in_a_later_unit_is_told_by_its_place(running: Running, ordered: bool) -> None:
    running.insert({"_id": 13})
    documents = [large(n, INSERT_BYTES // 4) for n in range(20)]
    reply = running.run({"insert": "c", "documents": documents, "ordered": ordered})
    assert [(error["index"], error["code"]) for error in reply["writeErrors"]] == [(13, 11000)]
    assert reply["n"] == (13 if ordered else 19)
    assert running.ids() == list(range(14 if ordered else 20))


def test_purges_delete_limited_batches(running: Running) -> None:
    running.run({"create": "c"})
    running.index({"_ts": 1}, "ttl", expireAfterSeconds=10)
    for number in range(8):
        running.insert(large(number, PURGE_BYTES // 2))
    running.advance(11)
    before = write_units(running)
    assert running.reap() == 8
    assert write_units(running) - before == 4
    assert running.collection().store.count() == 0
