"""The cost of expiry: when documents are written, while they wait for it, and when they are deleted.

The server's virtual clock is moved (`advanceClock`), so no workload waits until a document is due.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

from bson import ObjectId, encode

from bench.documents import Encoder, id_of, make_document
from bench.load import Connection, LoadPool, Pinger, op_msg, patched_request
from bench.measure import Meter, Reading, Result, median_ratio, memory_bytes
from bench.targets import DATABASE, Target
from bench.workloads.registry import Context, Goal, workload

_BATCH = 1000
_DEFAULT_TTL_S = 100_000  # More than any run lasts: nothing expires before the clock is advanced.
_PAIRS = 16
_SLICE_BATCHES = 15
_SLICE_ONES = 3000
_ONES_CONNECTIONS = 16
_PENDING = 10_000_000
_PENDING_SECONDS = 100_000
_DUE = 1_000_000
_SETTLE_S = 2.0


def _create_ttl_index(connection: Connection, collection: str) -> None:
    index = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": _DEFAULT_TTL_S}
    connection.command({"createIndexes": collection, "indexes": [index], "$db": DATABASE})


def _interleaved(ctx: Context, name: str, unit: str, insert: Callable[[str], tuple[int, list[int]]]) -> Result:
    """Inserts slices into a plain collection and a TTL one in turn (plain, TTL, TTL, plain, …).

    insert: fills one slice of the named collection; returns its units and the commands' latencies. `ratio` is the
    median of CPU per unit, TTL to plain, over neighbouring slices; the other figures are those of the TTL slices.
    """
    with Connection(ctx.target.address()) as connection:
        _create_ttl_index(connection, "with_ttl")
    for collection in ("plain", "with_ttl"):
        insert(collection)  # The first slice makes the collection and warms the code.
    by_collection: dict[str, list[tuple[Reading, int, list[int]]]] = {"plain": [], "with_ttl": []}
    meter = ctx.meter()
    for pair in range(_PAIRS):
        order = ("plain", "with_ttl") if pair % 2 == 0 else ("with_ttl", "plain")
        for collection in order:
            meter.start()
            units, latencies_ns = insert(collection)
            by_collection[collection].append((meter.stop(), units, latencies_ns))

    def cost_us(run: tuple[Reading, int, list[int]]) -> float:
        reading, units, _ = run
        # Without the server's process id its CPU time is unknown, so elapsed time is used instead.
        spent_s = reading.elapsed_s if reading.server_cpu_s is None else reading.server_cpu_s
        return spent_s / units * 1e6

    plain_us = [cost_us(run) for run in by_collection["plain"]]
    ttl_us = [cost_us(run) for run in by_collection["with_ttl"]]
    ttl_runs = by_collection["with_ttl"]
    total = Reading(
        sum(run[0].elapsed_s for run in ttl_runs),
        None if ctx.target.pid is None else sum(run[0].server_cpu_s or 0.0 for run in ttl_runs),
        sum(run[0].client_cpu_s for run in ttl_runs),
        ttl_runs[-1][0].peak_bytes,
    )
    extra = {
        "ratio": median_ratio(list(zip(plain_us, ttl_us, strict=True))),
        "plain_us": statistics.median(plain_us),
        "ttl_us": statistics.median(ttl_us),
    }
    latencies_ns = [latency for run in ttl_runs for latency in run[2]]
    return ctx.result(name, total, sum(run[1] for run in ttl_runs), latencies_ns, unit, extra)


@workload(
    "ttl-insert-many",
    "insert batches of 1000 into a TTL collection; `ratio` of CPU to a plain one",
    needs_socket=True,
    needs_ttl=True,
    goals=(Goal("ratio", 1.15),),
)
def ttl_insert_many(ctx: Context) -> Result:
    encoder = Encoder(1 << 30)
    numbers = {"plain": itertools.count(step=_BATCH), "with_ttl": itertools.count(step=_BATCH)}
    batches = max(1, round(_SLICE_BATCHES * min(1.0, ctx.scale * 10)))
    with LoadPool(ctx.target.address(), 1) as pool:

        def insert(collection: str) -> tuple[int, list[int]]:
            def request() -> bytearray:
                first = next(numbers[collection])
                batch = [encoder.encode(number) for number in range(first, first + _BATCH)]
                return op_msg({"insert": collection, "ordered": True, "$db": DATABASE}, "documents", batch)

            reading = pool.run(request, lambda reply: reply["n"] == _BATCH, seconds=60, at_most=batches)
            return reading.commands * _BATCH, list(reading.latencies_ns)

        return _interleaved(ctx, "ttl-insert-many", "doc", insert)


@workload(
    "ttl-insert-one",
    "16 connections: insert one document into a TTL collection; `ratio` of CPU to a plain one",
    needs_socket=True,
    needs_ttl=True,
    goals=(Goal("ratio", 1.15),),
)
def ttl_insert_one(ctx: Context) -> Result:
    numbers = itertools.count()
    commands = max(100, round(_SLICE_ONES * min(1.0, ctx.scale * 10)))
    requests = {
        collection: patched_request(_insert_one_body(collection), numbers.__next__)
        for collection in ("plain", "with_ttl")
    }
    with LoadPool(ctx.target.address(), _ONES_CONNECTIONS) as pool:

        def insert(collection: str) -> tuple[int, list[int]]:
            reading = pool.run(requests[collection], lambda reply: reply["n"] == 1, seconds=60, at_most=commands)
            return reading.commands, list(reading.latencies_ns)

        return _interleaved(ctx, "ttl-insert-one", "op", insert)


def _insert_one_body(collection: str) -> Callable[[ObjectId], dict[str, object]]:
    document = make_document(1, 1_000_000)
    return lambda n: {"insert": collection, "documents": [{**document, "_id": n}], "$db": DATABASE}


@workload(
    "ttl-purge",
    "1,000,000 documents due at once: documents purged per second, and pings on another connection meanwhile",
    needs_socket=True,
    needs_ttl=True,
    goals=(Goal("per_s", 200_000, at_least=True), Goal("ping_p99_ms", 10)),
    store_goals=(Goal("per_s", 40_000, at_least=True),),
)
def ttl_purge(ctx: Context) -> Result:
    return _purge(ctx, "ttl-purge", Encoder(ctx.scaled(_DUE, least=1000)).batches(_BATCH))


@workload(
    "ttl-purge-own",
    "the same with a `ttl` in each document, over 1,000 distinct seconds",
    needs_socket=True,
    needs_ttl=True,
    goals=(Goal("per_s", 200_000, at_least=True), Goal("ping_p99_ms", 10)),
    store_goals=(Goal("per_s", 40_000, at_least=True),),
)
def ttl_purge_own(ctx: Context) -> Result:
    count = ctx.scaled(_DUE, least=1000)
    return _purge(ctx, "ttl-purge-own", _with_ttl(count, 1000, _DEFAULT_TTL_S - 1000))


def _with_ttl(count: int, distinct: int, least_s: int) -> Iterator[list[bytes]]:
    """Small documents whose `ttl` takes `distinct` values from `least_s` on."""
    for first in range(0, count, _BATCH):
        numbers = range(first, min(first + _BATCH, count))
        yield [encode({"_id": id_of(n), "ttl": least_s + n % distinct, "name": f"user-{n:08d}"}) for n in numbers]


def _purge(ctx: Context, name: str, batches: Iterator[list[bytearray]] | Iterator[list[bytes]]) -> Result:
    """`per_s`: documents purged, from the request to advance the clock until its reply. `ping_*`: meanwhile."""
    meter = ctx.meter()
    with Connection(ctx.target.address()) as busy:
        _create_ttl_index(busy, "due")
        count = busy.insert(DATABASE, "due", batches)
        pinger = Pinger(ctx.target.address())
        meter.start()
        with pinger:
            # The server answers when everything due is reaped.
            deleted = busy.command({"advanceClock": _DEFAULT_TTL_S + 3600, "$db": "admin"})["ttlDeleted"]
        used = meter.stop()
        left = busy.command({"count": "due", "$db": DATABASE})["n"]
    assert deleted == count and left == 0, f"{deleted} of {count} documents deleted, {left} left"
    return ctx.result(name, used, count, [int(used.elapsed_s * 1e9)], "doc", pinger.figures())


@workload(
    "ttl-pending",
    "10,000,000 documents in --data-dir that wait for 100,000 distinct seconds: memory they add after a restart",
    needs_socket=True,
    needs_ttl=True,
    owns_process=True,
    goals=(Goal("added_mb", 50),),
)
def ttl_pending(ctx: Context) -> Result:
    """`per_s`, `cpu_us` and the peak are those of the inserts before the restart."""
    count = ctx.scaled(_PENDING, least=1000)
    distinct = min(count, _PENDING_SECONDS)
    empty_dir, full_dir = ctx.scratch / "empty", ctx.scratch / "full"
    with ctx.launcher.start(empty_dir) as target:
        empty_mb = _settled_mb(target)
    with ctx.launcher.start(full_dir) as target:
        meter = Meter(target.pid)
        with Connection(target.address()) as connection:
            _create_ttl_index(connection, "pending")
            meter.start()
            connection.insert(DATABASE, "pending", _with_ttl(count, distinct, 1_000_000))
            used = meter.stop()
        filled_mb = _settled_mb(target)
    started_s = time.perf_counter()
    with ctx.launcher.start(full_dir) as target:
        restart_ms = (time.perf_counter() - started_s) * 1e3
        full_mb = _settled_mb(target)
        with Connection(target.address()) as connection:
            # Read one document by `_id`, to check that they are stored, without reading all of them into memory.
            found = connection.command({"find": "pending", "filter": {"_id": id_of(count - 1)}, "$db": DATABASE})
            assert len(found["cursor"]["firstBatch"]) == 1
    extra = {
        "added_mb": full_mb - empty_mb,
        "empty_mb": empty_mb,
        "full_mb": full_mb,
        "before_restart_mb": filled_mb,
        "restart_ms": restart_ms,
    }
    return ctx.result("ttl-pending", used, count, [int(used.elapsed_s * 1e9)], "doc", extra)


def _settled_mb(target: Target) -> float:
    """Resident memory when the start-up and the last write are behind it."""
    time.sleep(_SETTLE_S)
    assert target.pid is not None
    return memory_bytes(target.pid, "VmRSS") / 1e6
