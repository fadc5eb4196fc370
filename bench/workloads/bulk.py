"""Commands on a whole collection of a million documents (scaled), one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from bench.collection import BulkCollection, LibraryCollection, WireCollection
from bench.documents import AMOUNT_LIMIT, GROUPS, make_document
from bench.load import Connection
from bench.measure import Result, ratio
from bench.targets import DATABASE
from bench.workloads.point import load_documents
from bench.workloads.registry import Context, Goal, workload

_MILLION = 1_000_000
_SMALL = _MILLION // 100
_BIG_COLLECTION = "million"
_SMALL_COLLECTION = "ten_thousand"


def big_count(ctx: Context) -> int:
    return ctx.scaled(_MILLION, least=10_000)


@contextmanager
def collection(ctx: Context, name: str = _BIG_COLLECTION) -> Iterator[BulkCollection]:
    if ctx.launcher.listens:
        with Connection(ctx.target.address()) as connection:
            yield WireCollection(connection, DATABASE, name)
    else:
        yield LibraryCollection(ctx.target.client()[DATABASE][name])


def load_million(ctx: Context) -> None:
    """1,000,000 and 10,000 documents (scaled alike), both with an index on `rank`."""
    count = big_count(ctx)
    for name, size in ((_BIG_COLLECTION, count), (_SMALL_COLLECTION, count // 100)):
        load_documents(ctx, name, size)
        with collection(ctx, name) as documents:
            documents.create_index("rank")


@workload(
    "scan-filter",
    "1,000,000 documents: two predicates without an index that match few",
    fixture=load_million,
    goals=(Goal("per_s", 1_000_000, at_least=True),),
)
def scan_filter(ctx: Context) -> Result:
    count = big_count(ctx)
    query = {"amount": {"$gt": AMOUNT_LIMIT * 0.999}, "address.city": "city-07"}
    expected = _rich_in_city_7(count)

    with collection(ctx) as documents:

        def call() -> int:
            found = len(documents.find(query))
            assert found == expected, f"{found} documents instead of {expected}"
            return count

        return ctx.run_calls("scan-filter", call, "doc")


@cache
def _rich_in_city_7(count: int) -> int:
    documents = (make_document(number, count) for number in range(count))
    return sum(1 for d in documents if d["amount"] > AMOUNT_LIMIT * 0.999 and d["address"]["city"] == "city-07")


@workload("read-all", "a cursor over 1,000,000 documents, read to its end without decoding them", fixture=load_million)
def read_all(ctx: Context) -> Result:
    count = big_count(ctx)

    with collection(ctx) as documents:

        def call() -> int:
            found = documents.read_to_end()
            assert found == count, f"{found} documents instead of {count}"
            return count

        return ctx.run_calls("read-all", call, "doc")


@workload("read-all-pymongo", "PyMongo: a find over 1,000,000 documents, read to its end", fixture=load_million)
def read_all_pymongo(ctx: Context) -> Result:
    count = big_count(ctx)
    documents = LibraryCollection(ctx.target.client()[DATABASE][_BIG_COLLECTION])

    def call() -> int:
        found = documents.read_to_end()
        assert found == count, f"{found} documents instead of {count}"
        return count

    return ctx.run_calls("read-all-pymongo", call, "doc")


@workload(
    "sort-indexed-limit-20",
    "sort by an indexed field, limit 20, over 1,000,000 documents; `ratio` to the same over 10,000",
    fixture=load_million,
    goals=(Goal("ratio", 1.5),),
)
def sort_indexed_limit_20(ctx: Context) -> Result:
    def measured(documents: BulkCollection) -> Result:
        def call() -> int:
            ranks = [document["rank"] for document in documents.find({}, {"rank": 1}, 20)]
            assert ranks == list(range(20)), ranks
            return 1

        return ctx.run_calls("sort-indexed-limit-20", call)

    with collection(ctx, _SMALL_COLLECTION) as documents:
        small = measured(documents)
    with collection(ctx) as documents:
        big = measured(documents)
    # By CPU time if it is known, since that does not depend on other processes.
    of_cpu = ratio(big.cpu_us, small.cpu_us) or ratio(big.p50_ms, small.p50_ms) or 0.0
    return replace(big, extra={"ratio": of_cpu, "p50_ms_10k": small.p50_ms or 0.0})


@workload("sort-unindexed-limit-100", "sort by a field without an index, limit 100", fixture=load_million)
def sort_unindexed_limit_100(ctx: Context) -> Result:
    count = big_count(ctx)

    with collection(ctx) as documents:

        def call() -> int:
            amounts = [document["amount"] for document in documents.find({}, {"amount": -1}, 100)]
            assert len(amounts) == 100 and amounts == sorted(amounts, reverse=True)
            return count

        return ctx.run_calls("sort-unindexed-limit-100", call, "doc")


@workload("count-filter", "count, by aggregate as drivers do, with a filter that matches half", fixture=load_million)
def count_filter(ctx: Context) -> Result:
    count = big_count(ctx)

    with collection(ctx) as documents:

        def call() -> int:
            found = documents.count({"amount": {"$lt": AMOUNT_LIMIT / 2}})
            assert 0.45 < found / count < 0.55, found
            return count

        return ctx.run_calls("count-filter", call, "doc")


@workload("group", "aggregate: $match half, $group into 100 with two sums", fixture=load_million)
def group(ctx: Context) -> Result:
    count = big_count(ctx)
    pipeline: list[dict[str, Any]] = [
        {"$match": {"amount": {"$lt": AMOUNT_LIMIT / 2}}},
        {"$group": {"_id": "$group", "n": {"$sum": 1}, "total": {"$sum": "$amount"}}},
    ]

    with collection(ctx) as documents:

        def call() -> int:
            groups = documents.aggregate(pipeline)
            assert len(groups) == GROUPS, len(groups)
            return count

        return ctx.run_calls("group", call, "doc")


@workload(
    "update-many-inc",
    "an update with multi and $inc, a tenth of the documents at a time; per updated document",
    fixture=load_million,
)
def update_many_inc(ctx: Context) -> Result:
    count = big_count(ctx)
    tenths = itertools.cycle(range(10))

    with collection(ctx) as documents:

        def call() -> int:
            tenth = next(tenths) * GROUPS // 10
            query = {"group": {"$gte": tenth, "$lt": tenth + GROUPS // 10}}
            modified = documents.update_many(query, {"$inc": {"visits": 1}})
            assert 0.05 < modified / count < 0.2, modified
            return modified

        return ctx.run_calls("update-many-inc", call, "doc")


@workload(
    "delete-many",
    "a delete of a tenth of the documents at a time, to the last; per deleted document",
    fixture=load_million,
)
def delete_many(ctx: Context) -> Result:
    """Must be the last workload on its collection, since it deletes all documents."""
    meter = ctx.meter()
    latencies_ns: list[int] = []
    deleted = 0
    with collection(ctx) as documents:
        meter.start()
        for tenth in range(10):
            before_ns = meter.elapsed_ns()
            deleted += documents.delete_many({"group": {"$lt": (tenth + 1) * GROUPS // 10}})
            latencies_ns.append(meter.elapsed_ns() - before_ns)
        used = meter.stop()
    assert deleted == big_count(ctx), deleted
    return ctx.result("delete-many", used, deleted, latencies_ns, "doc")
