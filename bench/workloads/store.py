"""mongottl on PostgreSQL: pings while PostgreSQL, or another one of its clients, keeps operations waiting."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.documents import id_of
from bench.load import Connection, Pinger, op_msg
from bench.measure import Result, process_tree
from bench.targets import DATABASE
from bench.workloads.point import POINTS, load_points
from bench.workloads.registry import Context, workload
from mongottl.storage.postgresql import local_cluster

_COLLECTION = "points"
_LEAST_STOP_S = 2.0


def _find(connection: Connection, number: int) -> int:
    """Reads a document by `_id`."""
    found = connection.command({"find": _COLLECTION, "filter": {"_id": id_of(number)}, "$db": DATABASE})
    return len(found["cursor"]["firstBatch"])


def _update(number: int) -> bytearray:
    """A request that changes a document."""
    update = {"q": {"_id": id_of(number)}, "u": {"$inc": {"visits": 1}}}
    return op_msg({"update": _COLLECTION, "updates": [update], "$db": DATABASE})


def _database(ctx: Context) -> Path:
    database = ctx.target.database
    assert database is not None
    return database


@contextmanager
def _all_locked(ctx: Context) -> Iterator[None]:
    """Another client of PostgreSQL holds the locks of all rows of documents, until the block is left."""
    import psycopg

    place = f"host={_database(ctx) / 'run'} user={local_cluster.USER} dbname={local_cluster.DATABASE}"
    with psycopg.connect(place) as session:
        session.execute("SELECT 1 FROM mongottl.records ORDER BY store, rid FOR UPDATE").fetchall()
        yield
        session.rollback()


@workload(
    "store-locked-rows",
    "reads by `_id` while an update waits for a row that another client of PostgreSQL has locked",
    fixture=load_points,
    needs_socket=True,
    needs_ttl=True,
    needs_postgresql=True,
)
def store_locked_rows(ctx: Context) -> Result:
    count = ctx.scaled(POINTS)
    with Connection(ctx.target.address()) as waiting, Connection(ctx.target.address()) as connection:
        with _all_locked(ctx):
            waiting.send(_update(1))

            def call() -> int:
                assert _find(connection, time.perf_counter_ns() % count) == 1
                return 1

            result = ctx.run_calls("store-locked-rows", call)
        waiting.receive()
    return result


@workload(
    "store-stopped",
    "pings while PostgreSQL is stopped by SIGSTOP, and reads and updates wait for it",
    fixture=load_points,
    needs_socket=True,
    needs_ttl=True,
    needs_postgresql=True,
)
def store_stopped(ctx: Context) -> Result:
    """`per_s` is the number of pings. At the end all that has waited is answered."""
    address = ctx.target.address()
    pid = ctx.target.database_pid
    assert pid is not None
    stopped = process_tree(pid)
    meter = ctx.meter()
    with Connection(address) as reading, Connection(address) as writing, Pinger(address) as pinger:
        meter.start()
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            reading.send(op_msg({"find": _COLLECTION, "filter": {"_id": id_of(2)}, "$db": DATABASE}))
            writing.send(_update(3))
            time.sleep(max(_LEAST_STOP_S, ctx.seconds))
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)
        resumed_s = time.perf_counter()
        reading.receive()
        writing.receive()
        used = meter.stop()
        assert _find(reading, 3) == 1
    figures = pinger.figures()
    figures["resumed_ms"] = (time.perf_counter() - resumed_s) * 1e3
    return ctx.result("store-stopped", used, int(figures["pings"]), [int(used.elapsed_s * 1e9)], extra=figures)
