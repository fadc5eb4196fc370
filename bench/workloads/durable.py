"""Servers that keep their documents in files: workloads of `bulk`, and the latency of other clients during writes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from bench.load import Connection, Pinger
from bench.measure import Result
from bench.targets import DATABASE
from bench.workloads.bulk import load_million
from bench.workloads.registry import WORKLOADS, Context, Goal, workload

# In the order in which they run; the last one deletes everything. SQLite takes 0.4 µs to read a row, so a scan should
# not take much more.
_GOALS: dict[str, tuple[Goal, ...]] = {
    "scan-filter": (Goal("per_s", 1_200_000, at_least=True),),
    "read-all": (),
    "sort-unindexed-limit-100": (Goal("per_s", 1_000_000, at_least=True),),
    "count-filter": (Goal("per_s", 1_000_000, at_least=True),),
    "group": (Goal("per_s", 1_000_000, at_least=True),),
    "update-many-inc": (Goal("per_s", 60_000, at_least=True),),
    "delete-many": (Goal("per_s", 60_000, at_least=True),),
}


def _in_files(name: str, result_name: str) -> Callable[[Context], Result]:
    def run(ctx: Context) -> Result:
        return replace(WORKLOADS[name].run(ctx), workload=result_name)

    return run


for _name, _goals in _GOALS.items():
    _durable_name = f"{_name}-durable"
    workload(
        _durable_name,
        f"with --data-dir: {WORKLOADS[_name].help}",
        fixture=load_million,
        needs_socket=True,
        durable=True,
        goals=_goals,
    )(_in_files(_name, _durable_name))


_ROUNDS_BYTES = 1_000_000


@workload(
    "steady-writes-durable",
    "with --data-dir: inserts of 100 documents of 10 KB without a pause, through checkpoints; pings meanwhile",
    needs_socket=True,
    durable=True,
    goals=(Goal("ping_p99_ms", 20), Goal("ping_max_ms", 100)),
)
def steady_writes(ctx: Context) -> Result:
    """Writes about 256 MB without a pause, so that the server has to end its log while writers wait."""
    numbers = itertools.count()
    padding = b"x" * 10_000
    with Connection(ctx.target.address()) as connection:

        def call() -> int:
            documents = [{"_id": next(numbers), "padding": padding} for _ in range(_ROUNDS_BYTES // len(padding))]
            connection.command({"insert": "steady", "documents": documents, "$db": DATABASE})
            return len(documents)

        with Pinger(ctx.target.address()) as pinger:
            result = ctx.run_calls("steady-writes-durable", call, "doc")
        status = connection.command({"serverStatus": 1, "$db": "admin"})
        storage = status.get("mongottl", {}).get("storage", {})
        return replace(result, extra={**pinger.figures(), "long_logs_ended": float(storage.get("long_logs_ended", 0))})
