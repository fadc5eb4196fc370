"""The query language over a million small documents (scaled), with pings on another connection meanwhile.

A goal in `p50_ms` is for a whole command over all of them, so it is meaningful only at scale 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from bson import encode

from bench.documents import AMOUNT_LIMIT, GROUPS, id_of, make_document
from bench.load import Connection, Pinger
from bench.measure import Result
from bench.targets import DATABASE
from bench.workloads.bulk import big_count, collection, load_million
from bench.workloads.registry import Context, Goal, workload

_PING_GOAL = Goal("ping_p99_ms", 20)
_JOINED = 100_000
_ORDERS, _CUSTOMERS = "orders", "customers"
_ARRAYS_COLLECTION = "arrays"
_ELEMENTS = 5
_TAGS = 50
_BATCH = 1000


def _measured(ctx: Context, name: str, call: Callable[[], int]) -> Result:
    """Measures repeated calls of `call`, with pings meanwhile if there is a server."""
    if not ctx.launcher.listens:
        return ctx.run_calls(name, call, "doc")
    with Pinger(ctx.target.address()) as pinger:
        result = ctx.run_calls(name, call, "doc")
    return replace(result, extra=pinger.figures())


def load_documents_anew(ctx: Context) -> None:
    """A fixture of its own, since the last workload on the other one deletes everything."""
    load_million(ctx)


@workload(
    "match-group",
    "1,000,000 documents: $match nine tenths, $group by a field with $sum and $avg",
    fixture=load_documents_anew,
    goals=(Goal("p50_ms", 1200), _PING_GOAL),
)
def match_group(ctx: Context) -> Result:
    count = big_count(ctx)
    pipeline: list[dict[str, Any]] = [
        {"$match": {"amount": {"$lt": AMOUNT_LIMIT * 0.9}}},
        {"$group": {"_id": "$group", "total": {"$sum": "$amount"}, "mean": {"$avg": "$amount"}}},
    ]

    with collection(ctx) as documents:

        def call() -> int:
            groups = documents.aggregate(pipeline)
            assert len(groups) == GROUPS, len(groups)
            return count

        return _measured(ctx, "match-group", call)


@workload(
    "sort-top-100",
    "aggregate: $sort by a field without an index, $limit 100, over 1,000,000 documents",
    fixture=load_documents_anew,
    goals=(Goal("p50_ms", 1000), _PING_GOAL),
)
def sort_top_100(ctx: Context) -> Result:
    count = big_count(ctx)

    with collection(ctx) as documents:

        def call() -> int:
            top = documents.aggregate([{"$sort": {"amount": -1}}, {"$limit": 100}])
            amounts = [document["amount"] for document in top]
            assert len(amounts) == 100 and amounts == sorted(amounts, reverse=True)
            return count

        return _measured(ctx, "sort-top-100", call)


@workload(
    "or-filter",
    "a filter with $or of four regular expressions and ranges, over 1,000,000 documents",
    fixture=load_documents_anew,
    goals=(Goal("per_s", 600_000, at_least=True), _PING_GOAL),
)
def or_filter(ctx: Context) -> Result:
    """Few documents match, so that nearly all are tried against all four, and the reply is small."""
    count = big_count(ctx)
    query = {
        "$or": [
            {"name": {"$regex": "^user-0{4}7"}},
            {"amount": {"$gte": AMOUNT_LIMIT * 0.9999}},
            {"address.city": {"$regex": "y-99$"}},
            {"address.zip": {"$gt": 20_000, "$lt": 20_010}},
        ]
    }
    expected = _or_matches(count)

    with collection(ctx) as documents:

        def call() -> int:
            found = len(documents.find(query))
            assert found == expected, f"{found} documents instead of {expected}"
            return count

        return _measured(ctx, "or-filter", call)


@cache
def _or_matches(count: int) -> int:
    def matches(document: dict[str, Any]) -> bool:
        return (
            re.search("^user-0{4}7", document["name"]) is not None
            or document["amount"] >= AMOUNT_LIMIT * 0.9999
            or 20_000 < document["address"]["zip"] < 20_010
        )

    return sum(1 for number in range(count) if matches(make_document(number, count)))


@workload(
    "update-many-inc-pinged",
    "an update with multi and $inc of 100,000 of 1,000,000 documents; per updated document",
    fixture=load_documents_anew,
    goals=(Goal("per_s", 60_000, at_least=True), _PING_GOAL),
)
def update_many_inc_pinged(ctx: Context) -> Result:
    count = big_count(ctx)
    query = {"group": {"$lt": GROUPS // 10}}

    with collection(ctx) as documents:

        def call() -> int:
            modified = documents.update_many(query, {"$inc": {"visits": 1}})
            assert 0.05 < modified / count < 0.2, modified
            return modified

        return _measured(ctx, "update-many-inc-pinged", call)


def load_joined(ctx: Context) -> None:
    """100,000 orders and as many customers (scaled); `number` of a customer is indexed, and each has one order."""
    count = ctx.scaled(_JOINED)
    _load(ctx, _ORDERS, ({"_id": id_of(n), "customer": n * 7919 % count, "amount": n % 97} for n in range(count)))
    _load(ctx, _CUSTOMERS, ({"_id": id_of(n), "number": n, "name": f"customer-{n:08d}"} for n in range(count)))
    with collection(ctx, _CUSTOMERS) as customers:
        customers.create_index("number")


@workload(
    "lookup-indexed",
    "$lookup of 100,000 documents by an indexed field into 100,000, and their $sum; per outer document",
    fixture=load_joined,
    goals=(Goal("p50_ms", 3000), _PING_GOAL),
)
def lookup_indexed(ctx: Context) -> Result:
    count = ctx.scaled(_JOINED)
    join = {"from": _CUSTOMERS, "localField": "customer", "foreignField": "number", "as": "joined"}
    pipeline: list[dict[str, Any]] = [
        {"$lookup": join},
        {"$group": {"_id": None, "joined": {"$sum": {"$size": "$joined"}}}},
    ]

    with collection(ctx, _ORDERS) as orders:

        def call() -> int:
            groups = orders.aggregate(pipeline)
            assert groups[0]["joined"] == count, groups
            return count

        return _measured(ctx, "lookup-indexed", call)


def load_arrays(ctx: Context) -> None:
    """1,000,000 documents (scaled), each with an array of five strings."""
    count = big_count(ctx)

    def document(n: int) -> dict[str, Any]:
        return {"_id": id_of(n), "tags": [f"tag-{(n * 31 + place * 7) % _TAGS:02d}" for place in range(_ELEMENTS)]}

    _load(ctx, _ARRAYS_COLLECTION, (document(n) for n in range(count)))


@workload(
    "unwind-group",
    "$unwind of arrays of five and $group by their elements, over 1,000,000 documents",
    fixture=load_arrays,
    goals=(Goal("p50_ms", 5000), _PING_GOAL),
)
def unwind_group(ctx: Context) -> Result:
    count = big_count(ctx)
    pipeline: list[dict[str, Any]] = [{"$unwind": "$tags"}, {"$group": {"_id": "$tags", "n": {"$sum": 1}}}]

    with collection(ctx, _ARRAYS_COLLECTION) as documents:

        def call() -> int:
            groups = documents.aggregate(pipeline)
            assert sum(group["n"] for group in groups) == count * _ELEMENTS, len(groups)
            return count

        return _measured(ctx, "unwind-group", call)


def _load(ctx: Context, name: str, documents: Iterator[dict[str, Any]]) -> None:
    if not ctx.launcher.listens:
        ctx.target.client()[DATABASE][name].insert_many(documents)
        return
    with Connection(ctx.target.address()) as connection:
        connection.insert(DATABASE, name, _batches(documents))


def _batches(documents: Iterator[dict[str, Any]]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for document in documents:
        batch.append(encode(document))
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
