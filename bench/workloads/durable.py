"""Workloads of `bulk` once more, on a server that keeps its documents in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.measure import Result
from bench.workloads.bulk import load_million
from bench.workloads.registry import WORKLOADS, Context, Goal, workload

# In the order of their run: the last one deletes everything. SQLite takes 0.4 µs for a row that is read, and a scan is
# not to take much more.
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
