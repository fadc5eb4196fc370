"""Ratios and goals in the benchmark's tables."""

import sys
from pathlib import Path

import pytest

from bench.cli import chosen_workloads
from bench.measure import Result
from bench.peers import FERRETDB_VERSION, server_command
from bench.report import STORE, cpu_ratio, ratio_table, speed_ratio, table, verdicts
from bench.runner import groups
from bench.targets import MongottlLauncher
from bench.workloads import WORKLOADS, Goal


def test_ratios_say_how_many_times_better_the_main_server_is() -> None:
    main = Result("ping-64", "mongottl", per_s=300.0, cpu_us=10.0)
    peer = Result("ping-64", "other", per_s=100.0, cpu_us=40.0)
    assert speed_ratio(main, peer) == 3
    assert cpu_ratio(main, peer) == 4
    assert ratio_table([main, peer], "mongottl").splitlines()[2].split("|")[4].strip() == "3 / 4"


def test_without_units_per_second_latency_is_compared() -> None:
    main = Result("startup", "mongottl", p50_ms=200.0)
    assert speed_ratio(main, Result("startup", "other", p50_ms=500.0)) == 2.5


def test_verdicts_name_goals_that_are_met_and_missed() -> None:
    assert "met" in verdicts(Result("find-by-id-64", "mongottl", cpu_us=49.0))[0]
    assert "MISSED" in verdicts(Result("find-by-id-64", "mongottl", cpu_us=51.0))[0]
    assert verdicts(Result("find-by-id-64", "other", cpu_us=51.0)) == []
    assert Goal("per_s", 10, at_least=True).is_met(10) and not Goal("per_s", 10, at_least=True).is_met(9)


def test_on_postgresql_other_goals_count_and_pings_are_fast() -> None:
    slow = Result("ttl-purge", STORE, per_s=39_000.0, extra={"ping_p99_ms": 19.0})
    assert [line.split(": ")[1].split(" ")[0] for line in verdicts(slow)] == ["MISSED", "met"]
    assert verdicts(Result("find-by-id-64", STORE, cpu_us=1000.0)) == []


def test_workloads_for_postgresql_are_skipped_elsewhere() -> None:
    workload = WORKLOADS["store-stopped"]
    assert workload.unfit_reason(MongottlLauncher(sys.executable, on_postgresql=True)) is None
    assert workload.unfit_reason(MongottlLauncher(sys.executable)) == "is for mongottl on PostgreSQL (--store)"


def test_ferretdb_on_postgresql_is_the_same_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / f"mongottl-peers/ferretdb-{FERRETDB_VERSION}"
    folder.mkdir(parents=True)
    command = server_command("ferretdb-postgresql", 27018, tmp_path / "scratch")
    assert command[0] == str(folder / "ferretdb")
    assert f"--postgresql-url=postgres://mongottl@/postgres?host={tmp_path}/scratch/postgresql/run" in command


def test_skipped_workloads_say_why_in_the_table() -> None:
    text = table([Result("ttl-purge", "other", problem="skipped: has no TTL")], "mongottl")
    assert "skipped: has no TTL" in text


def test_workloads_with_one_fixture_share_a_server() -> None:
    names = [[w.name for w in group] for group in groups(chosen_workloads(["ping-64", "find-*", "insert-one-*"]))]
    assert names == [
        ["ping-64"],
        ["find-by-id-64", "find-by-id-pymongo"],
        ["insert-one-64"],
        ["insert-one-pymongo"],
    ]
