import datetime
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.memory import OperationMemory
from mongottl.query.pipeline import ListSource, RunContext, drain, open_pipeline, parse_pipeline
from mongottl.query.pipeline.densify import DensifySource, DensifySpec

Documents = list[dict[str, Any]]
AT = datetime.datetime(2024, 1, 31)


def run(documents: Documents, *stages: dict[str, Any]) -> Documents:
    ctx = ParseContext(1_700_000_000_000, namespace="db.c")
    specs = parse_pipeline([bson.encode(stage) for stage in stages], ctx)
    raw = [bson.encode(document) for document in documents]
    return [bson.decode(document) for document in drain(open_pipeline(specs, ListSource(raw, 2), RunContext()))]


def refusal(*stages: dict[str, Any]) -> int:
    with pytest.raises(CommandError) as caught:
        run([{"t": 1}], *stages)
    return caught.value.code


def densify(documents: Documents, bounds: object, step: object = 1, **more: Any) -> Documents:
    unit = {"unit": more.pop("unit")} if "unit" in more else {}
    return run(documents, {"$densify": {"field": "t", "range": {"step": step, "bounds": bounds, **unit}, **more}})


def test_full() -> None:
    found = densify([{"_id": 2, "t": 4}, {"_id": 1, "t": 1}], "full")
    assert found == [{"_id": 1, "t": 1}, {"t": 2}, {"t": 3}, {"_id": 2, "t": 4}]


def test_values_off_the_steps_stay_and_steps_stay_where_they_are() -> None:
    assert [doc["t"] for doc in densify([{"t": 0}, {"t": 2.5}, {"t": 4}], "full", 2)] == [0, 2, 2.5, 4]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [([0, 4], [0, 1, 2, 3]), ([3, 5], [2, 3, 4]), ([-1, 1], [-1, 0, 2]), ([2, 2], [2]), ([1.5, 3], [1.5, 2, 2.5])],
)
def test_explicit_bounds(bounds: list[float], expected: list[float]) -> None:
    assert [doc["t"] for doc in densify([{"t": 2}], bounds)] == expected


def test_explicit_bounds_of_nothing() -> None:
    assert densify([], [0, 2]) == [{"t": 0}, {"t": 1}]
    assert densify([], "full") == []


def test_documents_without_the_field_pass() -> None:
    assert densify([{"t": 1}, {"x": 1}, {"t": None}, {"t": 3}], "full") == [
        {"x": 1},
        {"t": None},
        {"t": 1},
        {"t": 2},
        {"t": 3},
    ]


def test_partitions() -> None:
    documents: Documents = [{"p": "a", "t": 1}, {"p": "b", "t": 2}, {"p": "a", "t": 3}, {"p": "b", "t": 4}]
    by_partition = densify(documents, "partition", partitionByFields=["p"])
    pairs = [(doc["p"], doc["t"]) for doc in by_partition]
    assert pairs == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 2),
        ("b", 3),
        ("b", 4),
    ]
    everywhere = densify(documents, "full", partitionByFields=["p"])
    assert sorted((doc["p"], doc["t"]) for doc in everywhere) == [(p, t) for p in "ab" for t in (1, 2, 3, 4)]


def test_dates_beyond_all_dates() -> None:
    stage = {"field": "t", "range": {"step": 2**62, "unit": "millisecond", "bounds": "full"}}
    documents = [{"t": DatetimeMS(-(2**63))}, {"t": DatetimeMS(2**63 - 1)}]
    with pytest.raises(CommandError) as caught:
        run(documents, {"$densify": stage})
    assert caught.value.code == 5166406


def test_dates() -> None:
    start, end = datetime.datetime(2024, 1, 31), datetime.datetime(2024, 4, 30)
    found = densify([{"t": start}, {"t": end}], "full", unit="month")
    assert [doc["t"].day for doc in found] == [31, 29, 31, 30]


def test_more_than_a_batch() -> None:
    assert [doc["t"] for doc in densify([{"t": 0}, {"t": 1000}], "full")] == list(range(1001))


def test_too_many() -> None:
    argument = {"field": "t", "range": {"step": 1, "bounds": [0, 300]}}
    spec = parse_pipeline([bson.encode({"$densify": argument})], ParseContext(namespace="db.c"))[1]
    assert isinstance(spec, DensifySpec)
    assert len(drain(DensifySource(ListSource([]), spec, 1 << 20, OperationMemory(), 300))) == 300
    with pytest.raises(CommandError) as caught:
        drain(DensifySource(ListSource([]), spec, 1 << 20, OperationMemory(), 299))
    assert caught.value.code == 5897900


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ({}, 40414),
        ({"field": 1, "range": {}}, 14),
        ({"field": "$t", "range": {"step": 1, "bounds": "full"}}, 9),
        ({"field": "t", "range": {"step": 0, "bounds": "full"}}, 5733401),
        ({"field": "t", "range": {"step": "1", "bounds": "full"}}, 14),
        ({"field": "t", "range": {"step": 1, "bounds": [1, "x"]}}, 5733402),
        ({"field": "t", "range": {"step": 1, "bounds": "partition"}}, 5733408),
        ({"field": "t", "range": {"step": 1, "bounds": "full", "unit": "hour"}}, 6053600),
        ({"field": "t", "range": {"step": 1, "bounds": "full"}, "more": 1}, 40415),
        ({"field": "t", "range": 1}, 14),
        ({"field": "t", "range": {"bounds": "full"}}, 40414),
        ({"field": "t", "range": {"step": 1}}, 40414),
        ({"field": "t", "range": {"step": 1, "bounds": "all"}}, 5946800),
        ({"field": "t", "range": {"step": 1, "bounds": 5}}, 5946800),
        ({"field": "t", "range": {"step": 1, "bounds": [1]}}, 5733403),
        ({"field": "t", "range": {"step": 1, "bounds": [2, 1]}}, 5733404),
        ({"field": "t", "range": {"step": 1, "bounds": [AT, AT]}}, 5733501),
        ({"field": "t", "range": {"step": 1, "bounds": [AT, 1]}}, 5733402),
        ({"field": "t", "range": {"step": 1, "unit": "day", "bounds": [1, 2]}}, 5733402),
        ({"field": "t", "range": {"step": 1.5, "unit": "day", "bounds": "full"}}, 6586400),
        ({"field": "t", "range": {"step": 1, "unit": "days", "bounds": "full"}}, 9),
        ({"field": "t", "partitionByFields": "p", "range": {"step": 1, "bounds": "full"}}, 14),
        ({"field": "t", "partitionByFields": [1], "range": {"step": 1, "bounds": "full"}}, 14),
        ({"field": "t", "partitionByFields": ["$p"], "range": {"step": 1, "bounds": "full"}}, 9),
        ({"field": "t", "partitionByFields": ["t"], "range": {"step": 1, "bounds": "full"}}, 8993000),
        ({"field": "t.u", "partitionByFields": ["t"], "range": {"step": 1, "bounds": "full"}}, 8993000),
        ({"field": "t", "partitionByFields": ["t.u"], "range": {"step": 1, "bounds": "full"}}, 8993000),
    ],
)
def test_densify_refuses(argument: dict[str, Any], code: int) -> None:
    assert refusal({"$densify": argument}) == code


HOLES: Documents = [{"t": 3, "v": None, "p": 1}, {"t": 1, "v": 10, "p": 1}, {"t": 4, "v": 40, "p": 1}, {"t": 2, "p": 2}]


def test_fill_by_value_keeps_the_order() -> None:
    found = run(HOLES, {"$fill": {"output": {"v": {"value": {"$add": ["$t", 1]}}}}})
    assert [doc["v"] for doc in found] == [4, 10, 40, 3]


def test_fill_by_method() -> None:
    found = run(HOLES, {"$fill": {"sortBy": {"t": 1}, "output": {"v": {"method": "locf"}}}})
    assert [doc["v"] for doc in found] == [10, 10, 10, 40]
    stage = {"sortBy": {"t": 1}, "partitionByFields": ["p"], "output": {"v": {"method": "linear"}, "x": {"value": 0}}}
    found = run(HOLES, {"$fill": stage})
    assert [(doc["t"], doc["v"], doc["x"]) for doc in found] == [(1, 10, 0), (3, 30.0, 0), (4, 40, 0), (2, None, 0)]


def test_fill_by_an_expression_of_the_partition() -> None:
    for partition in ({"partitionBy": "$p"}, {"partitionBy": {"q": "$p"}}):
        found = run(HOLES, {"$fill": {**partition, "sortBy": {"t": 1}, "output": {"v": {"method": "locf"}}}})
        assert [(doc["t"], doc["v"]) for doc in found] == [(1, 10), (3, 10), (4, 40), (2, None)]
    found = run(HOLES, {"$fill": {"partitionByFields": [], "sortBy": {"t": 1}, "output": {"v": {"method": "locf"}}}})
    assert [doc["v"] for doc in found] == [10, 10, 10, 40]


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ({}, 40414),
        ({"output": {"v": {"method": "linear"}}}, 605001),
        ({"sortBy": {"t": 1}, "output": {"v": {"method": "none"}}}, 6050202),
        ({"output": {"v": {}}}, 6050203),
        ({"partitionBy": "$p", "partitionByFields": ["p"], "output": {"v": {"value": 1}}}, 6050204),
        ({"output": {"v": {"value": 1}}, "more": 1}, 40415),
        (1, 6050200),
        ({"output": 1}, 14),
        ({"output": {"v": 1}}, 14),
        ({"output": {"v": {"method": 1}}}, 14),
        ({"output": {"v": {"value": 1, "method": "locf"}}}, 6050203),
        ({"sortBy": 1, "output": {"v": {"value": 1}}}, 14),
        ({"partitionBy": "p", "output": {"v": {"value": 1}}}, 6050205),
        ({"partitionBy": 1, "output": {"v": {"value": 1}}}, 14),
        ({"partitionByFields": "p", "output": {"v": {"value": 1}}}, 14),
        ({"partitionByFields": [1], "output": {"v": {"value": 1}}}, 14),
        ({"partitionByFields": ["$p"], "output": {"v": {"value": 1}}}, 6050206),
    ],
)
def test_fill_refuses(argument: object, code: int) -> None:
    assert refusal({"$fill": argument}) == code
