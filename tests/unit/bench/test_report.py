"""Ratios and goals in the benchmark's tables."""

from bench.cli import chosen_workloads
from bench.measure import Result
from bench.report import cpu_ratio, ratio_table, speed_ratio, table, verdicts
from bench.runner import groups
from bench.workloads import Goal


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
