"""Results as a table for people (Markdown, so that it can be pasted) and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.measure import Result, ratio
from bench.workloads import WORKLOADS, Goal

# The name of mongottl on PostgreSQL, and what holds there during each workload.
STORE = "mongottl-store"
PING_GOAL = Goal("ping_p99_ms", 20)
_COLUMNS = (
    "workload",
    "server",
    "per second",
    "server CPU µs",
    "p50 ms",
    "p99 ms",
    "peak MB",
    "speed ×",
    "CPU ×",
    "notes",
)


def speed_ratio(main: Result, peer: Result) -> float | None:
    """How many times as fast main is: by units per second, else by median latency."""
    return ratio(main.per_s, peer.per_s) or ratio(peer.p50_ms, main.p50_ms)


def cpu_ratio(main: Result, peer: Result) -> float | None:
    """The peer's CPU time for the same work, divided by that of main."""
    return ratio(peer.cpu_us, main.cpu_us)


def verdicts(result: Result) -> list[str]:
    """Whether each goal of the workload was reached; only mongottl has goals, with others on PostgreSQL."""
    workload = WORKLOADS[result.workload]
    goals = {"mongottl": workload.goals, STORE: (*workload.store_goals, PING_GOAL)}.get(result.target, ())
    lines = []
    for goal in goals:
        value = result.figure(goal.figure)
        if value is not None:
            lines.append(f"goal {goal}: {'met' if goal.is_met(value) else 'MISSED'} ({_number(value)})")
    return lines


def table(results: Sequence[Result], main_name: str) -> str:
    """A Markdown table; the ratios say how many times better the main server is than the one of the row."""
    mains = {result.workload: result for result in results if result.target == main_name}
    rows: list[tuple[str, ...]] = [_COLUMNS]
    order = {name: place for place, name in enumerate(WORKLOADS)}
    for result in sorted(results, key=lambda result: order[result.workload]):
        rows.append(_row(result, mains.get(result.workload), main_name))
    return _markdown(rows)


def _row(result: Result, main: Result | None, main_name: str) -> tuple[str, ...]:
    notes: list[str] = []
    if result.problem:
        notes.append(result.problem.replace("\n", " ").replace("|", "/")[:160])
    notes += [f"{name} {_number(value)}" for name, value in result.extra.items()]
    if result.client_share is not None and result.client_share > 0.8 and result.per_s is not None:
        notes.append(f"client busy {result.client_share:.0%}")
    is_main = result.target == main_name
    if is_main:
        notes += verdicts(result)
    compared = None if is_main or main is None else main
    return (
        result.workload,
        result.target,
        f"{_number(result.per_s)} {result.unit}s" if result.per_s is not None else "",
        _number(result.cpu_us),
        _number(result.p50_ms),
        _number(result.p99_ms),
        _number(result.peak_mb),
        _times(speed_ratio(compared, result) if compared else None),
        _times(cpu_ratio(compared, result) if compared else None),
        "; ".join(notes),
    )


def ratio_table(results: Sequence[Result], main_name: str) -> str:
    """One row per workload, one column per peer: speed ratio / CPU ratio."""
    peers = list(dict.fromkeys(result.target for result in results if result.target != main_name))
    by_key = {(result.workload, result.target): result for result in results}
    rows: list[tuple[str, ...]] = [("workload", f"{main_name}, per second", "CPU µs", *peers)]
    for name in dict.fromkeys(result.workload for result in results):
        main = by_key.get((name, main_name))
        if main is None:
            continue
        cells = [_ratio_cell(main, by_key.get((name, peer))) for peer in peers]
        speed = _number(main.per_s) if main.per_s is not None else f"{_number(main.p50_ms)} ms" if main.p50_ms else ""
        rows.append((name, speed, _number(main.cpu_us), *cells))
    return _markdown(rows)


def _ratio_cell(main: Result, peer: Result | None) -> str:
    if peer is None or peer.problem:
        return "–" if peer is None or not peer.problem else peer.problem.split(":")[0]
    speed, cpu = speed_ratio(main, peer), cpu_ratio(main, peer)
    return f"{_times(speed) or '–'} / {_times(cpu) or '–'}"


def as_json(results: Iterable[Result], settings: Mapping[str, object], servers: Mapping[str, str]) -> str:
    document = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cores": os.cpu_count(),
            "processor": _processor(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "settings": dict(settings),
        "servers": dict(servers),
        "results": [asdict(result) for result in results],
    }
    return json.dumps(document, indent=2) + "\n"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def _number(value: float | None) -> str:
    """Three significant digits below a thousand, whole numbers above."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
