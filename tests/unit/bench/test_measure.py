"""The statistics that the benchmark's claims rest on."""

import os

import pytest

from bench.measure import Meter, Result, cpu_seconds, median_ratio, median_result, memory_bytes, percentile, ratio


def test_percentile_is_the_nearest_rank() -> None:
    values = [15.0, 20.0, 35.0, 40.0, 50.0]
    assert [percentile(values, p) for p in (5, 20, 30, 40, 50, 99, 100)] == [15, 15, 20, 20, 35, 50, 50]


def test_percentile_does_not_depend_on_order() -> None:
    values = [float(n * 37 % 1000) for n in range(1000)]
    assert percentile(values, 99) == 989
    assert percentile(values, 50) == 499


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 1) == percentile([7.0], 99) == 7


@pytest.mark.parametrize("percent", [0, -1, 100.5])
def test_percentile_refuses_what_is_no_percentage(percent: float) -> None:
    with pytest.raises(ValueError, match="percentage"):
        percentile([1.0], percent)


def test_percentile_refuses_no_values() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_median_ratio_cancels_a_machine_that_slows_down() -> None:
    pairs = [(speed, 1.1 * speed) for speed in (1.0, 2.0, 4.0, 8.0)]
    assert median_ratio([*pairs, (1.0, 50.0)]) == pytest.approx(1.1)


def test_ratio_is_none_where_a_side_is_unknown_or_zero() -> None:
    assert ratio(6.0, 3.0) == 2
    assert ratio(None, 3.0) is None
    assert ratio(6.0, None) is None
    assert ratio(6.0, 0.0) is None


def test_figures_are_found_by_name() -> None:
    result = Result("w", "t", cpu_us=20.0, extra={"added_mb": 3.5})
    assert result.figure("cpu_us") == 20
    assert result.figure("units_per_cpu_s") == 50_000
    assert result.figure("added_mb") == 3.5
    assert result.figure("p99_ms") is None


def test_meter_sees_the_work_of_a_process() -> None:
    pid = os.getpid()
    before_s = cpu_seconds(pid)
    meter = Meter(pid)
    meter.start()
    # Long enough that what a busy machine adds to either of the two clocks does not count.
    while cpu_seconds(pid) - before_s < 0.4:
        sum(range(1000))
    reading = meter.stop()
    assert reading.server_cpu_s is not None
    assert 0 < reading.server_cpu_s <= reading.elapsed_s * 8
    assert reading.server_cpu_s == pytest.approx(reading.client_cpu_s, rel=0.5, abs=0.005)
    assert reading.peak_bytes is not None
    assert reading.peak_bytes >= memory_bytes(pid, "VmRSS") * 0.5


def test_meter_without_a_process_knows_only_the_client() -> None:
    meter = Meter(None)
    meter.start()
    reading = meter.stop()
    assert reading.server_cpu_s is None
    assert reading.peak_bytes is None
    assert reading.elapsed_s >= 0


def test_a_median_result_has_the_median_of_each_figure() -> None:
    runs = [
        Result("find", "mongottl", per_s=per_s, cpu_us=cpu_us, extra={"pings": pings, "only_once": 1.0})
        for per_s, cpu_us, pings in ((10.0, 9.0, 1.0), (30.0, 1.0, 5.0), (20.0, 5.0, 3.0))
    ]
    runs[1].extra.pop("only_once")
    merged = median_result(runs)
    assert (merged.per_s, merged.cpu_us, merged.p50_ms) == (20.0, 5.0, None)
    assert merged.extra == {"pings": 3.0}


def test_a_median_result_tells_of_a_run_that_failed() -> None:
    runs = [Result("find", "mongottl", per_s=1.0), Result("find", "mongottl", problem="failed: no")]
    assert median_result(runs).problem == "failed: no"


def test_a_median_of_no_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="no runs"):
        median_result([])


def test_cpu_of_a_database_is_counted_with_its_servers() -> None:
    meter = Meter(os.getpid(), os.getpid())
    meter.start()
    sum(range(1_000_000))
    used = meter.stop()
    assert used.server_cpu_s is not None and used.database_cpu_s is not None
    assert 0 < used.database_cpu_s < used.server_cpu_s
    meter = Meter(os.getpid())
    meter.start()
    assert meter.stop().database_cpu_s is None
