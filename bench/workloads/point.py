"""Commands on single documents, and inserts: the cost of a message, of a look-up and of a write.

The forms "-64" use 64 raw-socket connections and show what the server can do; "-pymongo" uses one client, as users do.
"""

from __future__ import annotations

import itertools
import random

from bson import encode

from bench.documents import Encoder, id_of, make_document
from bench.load import Connection, constant_request, op_msg, patched_request
from bench.measure import Result
from bench.targets import DATABASE
from bench.workloads.registry import Context, Goal, workload

CONNECTIONS = 64
POINTS = 100_000
_POINTS_COLLECTION = "points"
_BATCH = 1000
_INSERT_CONNECTIONS = 4
_SEED = 4


def load_points(ctx: Context) -> None:
    """100,000 documents (scaled) numbered from 0."""
    load_documents(ctx, _POINTS_COLLECTION, ctx.scaled(POINTS))


def load_documents(ctx: Context, collection: str, count: int) -> None:
    """Fills a collection as fast as the server allows."""
    if ctx.launcher.listens:
        with Connection(ctx.target.address()) as connection:
            connection.insert(DATABASE, collection, Encoder(count).batches(_BATCH))
        return
    documents = ctx.target.client()[DATABASE][collection]
    for first in range(0, count, _BATCH):
        documents.insert_many([make_document(n, count) for n in range(first, min(first + _BATCH, count))])


@workload("ping-64", "64 connections: ping, the price of a message", needs_socket=True)
def ping_64(ctx: Context) -> Result:
    request = constant_request({"ping": 1, "$db": "admin"})
    return ctx.run_load("ping-64", CONNECTIONS, request, lambda reply: True)


@workload(
    "find-by-id-64",
    "64 connections: find one document by `_id`",
    fixture=load_points,
    needs_socket=True,
    goals=(Goal("cpu_us", 50),),
)
def find_by_id_64(ctx: Context) -> Result:
    count, random_numbers = ctx.scaled(POINTS), random.Random(_SEED)
    request = patched_request(
        lambda n: {"find": _POINTS_COLLECTION, "filter": {"_id": n}, "limit": 1, "singleBatch": True, "$db": DATABASE},
        lambda: int(random_numbers.random() * count),
    )
    return ctx.run_load("find-by-id-64", CONNECTIONS, request, lambda reply: len(reply["cursor"]["firstBatch"]) == 1)


@workload("find-by-id-pymongo", "PyMongo: find_one by `_id`", fixture=load_points)
def find_by_id_pymongo(ctx: Context) -> Result:
    count, random_numbers = ctx.scaled(POINTS), random.Random(_SEED)
    documents = ctx.target.client()[DATABASE][_POINTS_COLLECTION]

    def call() -> int:
        number = int(random_numbers.random() * count)
        found = documents.find_one({"_id": id_of(number)})
        assert found is not None and found["name"] == f"user-{number:08d}"
        return 1

    return ctx.run_calls("find-by-id-pymongo", call)


@workload(
    "update-one-by-id-64", "64 connections: $inc in one document by `_id`", fixture=load_points, needs_socket=True
)
def update_one_by_id_64(ctx: Context) -> Result:
    count, random_numbers = ctx.scaled(POINTS), random.Random(_SEED)
    request = patched_request(
        lambda n: {
            "update": _POINTS_COLLECTION,
            "updates": [{"q": {"_id": n}, "u": {"$inc": {"visits": 1}}}],
            "$db": DATABASE,
        },
        lambda: int(random_numbers.random() * count),
    )
    return ctx.run_load("update-one-by-id-64", CONNECTIONS, request, lambda reply: reply["nModified"] == 1)


@workload("update-one-by-id-pymongo", "PyMongo: update_one by `_id` with $inc", fixture=load_points)
def update_one_by_id_pymongo(ctx: Context) -> Result:
    count, random_numbers = ctx.scaled(POINTS), random.Random(_SEED)
    documents = ctx.target.client()[DATABASE][_POINTS_COLLECTION]

    def call() -> int:
        outcome = documents.update_one({"_id": id_of(int(random_numbers.random() * count))}, {"$inc": {"visits": 1}})
        assert outcome.modified_count == 1
        return 1

    return ctx.run_calls("update-one-by-id-pymongo", call)


@workload(
    "update-batch",
    "4 connections: batches of 1000 updates by `_id`, each with $inc",
    fixture=load_points,
    needs_socket=True,
)
def update_batch(ctx: Context) -> Result:
    count, random_numbers = ctx.scaled(POINTS), random.Random(_SEED)

    def request() -> bytearray:
        numbers = random_numbers.sample(range(count), _BATCH)
        statements = [encode({"q": {"_id": id_of(number)}, "u": {"$inc": {"visits": 1}}}) for number in numbers]
        return op_msg({"update": _POINTS_COLLECTION, "ordered": True, "$db": DATABASE}, "updates", statements)

    return ctx.run_load(
        "update-batch", _INSERT_CONNECTIONS, request, lambda reply: reply["nModified"] == _BATCH, "update", _BATCH
    )


@workload("insert-one-64", "64 connections: insert one document", needs_socket=True, goals=(Goal("cpu_us", 80),))
def insert_one_64(ctx: Context) -> Result:
    request = patched_request(
        lambda n: {"insert": "ones", "documents": [{**make_document(1, 1_000_000), "_id": n}], "$db": DATABASE},
        itertools.count().__next__,
    )
    return ctx.run_load("insert-one-64", CONNECTIONS, request, lambda reply: reply["n"] == 1)


@workload("insert-one-pymongo", "PyMongo: insert_one")
def insert_one_pymongo(ctx: Context) -> Result:
    documents = ctx.target.client()[DATABASE]["ones"]
    numbers = itertools.count()

    def call() -> int:
        documents.insert_one(make_document(next(numbers), 1_000_000))
        return 1

    return ctx.run_calls("insert-one-pymongo", call)


@workload(
    "insert-many",
    "4 connections: insert batches of 1000 documents of 150 bytes",
    needs_socket=True,
    goals=(Goal("units_per_cpu_s", 150_000, at_least=True),),
    store_goals=(Goal("per_s", 100_000, at_least=True),),
)
def insert_many(ctx: Context) -> Result:
    encoder = Encoder(1 << 30)
    numbers = itertools.count(step=_BATCH)

    def request() -> bytearray:
        first = next(numbers)
        batch = [encoder.encode(number) for number in range(first, first + _BATCH)]
        return op_msg({"insert": "many", "ordered": True, "$db": DATABASE}, "documents", batch)

    return ctx.run_load("insert-many", _INSERT_CONNECTIONS, request, lambda reply: reply["n"] == _BATCH, "doc", _BATCH)


@workload("insert-many-pymongo", "PyMongo: insert_many of 1000 documents of 150 bytes")
def insert_many_pymongo(ctx: Context) -> Result:
    documents = ctx.target.client()[DATABASE]["many"]
    numbers = itertools.count(step=_BATCH)

    def call() -> int:
        first = next(numbers)
        documents.insert_many([make_document(number, 1 << 30) for number in range(first, first + _BATCH)])
        return _BATCH

    return ctx.run_calls("insert-many-pymongo", call, "doc")
