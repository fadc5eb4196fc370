import pytest

from mongottl.exec.state.usage import LatencyGroup, UsageRegistry, bucket_micros, next_bucket_micros


@pytest.mark.parametrize(
    ("micros", "floor"),
    [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4), (1023, 512), (1024, 1024), (1600, 1024), (2048, 2048), (3071, 2048),
     (3072, 3072), (4096, 4096), (6144, 6144), (1 << 30, 1 << 30)],
)  # fmt: skip
def test_buckets(micros: int, floor: int) -> None:
    assert bucket_micros(micros) == floor


def test_buckets_follow_each_other() -> None:
    floor = 0
    while floor < 1 << 25:
        following = next_bucket_micros(floor)
        assert bucket_micros(following) == following
        assert bucket_micros(following - 1) == floor
        floor = following


def test_events_and_latencies() -> None:
    registry = UsageRegistry()
    noted: list[tuple[LatencyGroup, str, int]] = [
        ("reads", "query", 10),
        ("reads", "getmore", 5),
        ("writes", "insert", 100),
        ("writes", "command", 40),
        ("commands", "command", 7),
    ]
    for latency, counter, micros in noted:
        registry.record("db.c", latency, counter, micros)
    usage = registry.of("db.c")
    assert (usage.reads.count, usage.reads.micros) == (2, 15)
    assert (usage.writes.count, usage.writes.micros) == (2, 140)
    assert (usage.commands.count, usage.commands.micros) == (1, 7)
    assert usage.reads.buckets == {8: 1, 4: 1}
    total = usage.all_events()
    assert (total.count, total.micros) == (5, 162)
    assert usage.write_events().count == 1
    assert registry.of("db.other").all_events().count == 0
    registry.remove("db.c")
    assert registry.of("db.c").reads.count == 0


def test_usage_registry_bounds_the_number_of_collections() -> None:
    registry = UsageRegistry()
    for i in range(10_500):
        registry.record(f"db.c{i}", "reads", "query", 1)
    assert registry.of("db.c0").reads.count == 0
    assert registry.of("db.c10499").reads.count == 1
