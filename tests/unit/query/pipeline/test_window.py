import datetime
import math
import random
import statistics
from decimal import Decimal, localcontext
from typing import Any

import bson
import pytest
from bson import Decimal128

from mongottl.document.freeing import free_some
from mongottl.errors import CommandError
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext
from mongottl.query.memory import OperationMemory
from mongottl.query.pipeline import ListSource, RunContext, drain, open_pipeline, parse_pipeline
from mongottl.query.pipeline.window.frame import Partition
from mongottl.query.pipeline.window.function import parse_window_function
from mongottl.query.sort import parse_sort
from mongottl.query.spill import SpillStatistics

Documents = list[dict[str, Any]]


def run(documents: Documents, *stages: dict[str, Any]) -> Documents:
    ctx = ParseContext(1_700_000_000_000, namespace="db.c")
    specs = parse_pipeline([bson.encode(stage) for stage in stages], ctx)
    raw = [bson.encode(document) for document in documents]
    # The same specification twice: it keeps nothing of what it has seen.
    first = drain(open_pipeline(specs, ListSource(raw, 2), RunContext()))
    assert drain(open_pipeline(specs, ListSource(raw, 1), RunContext())) == first
    return [bson.decode(document) for document in first]


def window(documents: Documents, function: dict[str, Any], **stage: Any) -> list[Any]:
    """What one function gives, in the order of the results."""
    stage.setdefault("sortBy", {"t": 1})
    found = run(documents, {"$setWindowFields": {**stage, "output": {"r": function}}})
    return [document["r"] for document in found]


def refusal(function: object, **stage: Any) -> int:
    stage.setdefault("sortBy", {"t": 1})
    with pytest.raises(CommandError) as caught:
        run([{"t": 1, "v": 1}], {"$setWindowFields": {**stage, "output": {"r": function}}})
    return caught.value.code


FIVE: Documents = [{"t": t, "v": v} for t, v in [(3, 30), (1, 10), (5, 50), (2, 20), (4, 40)]]


@pytest.mark.parametrize(
    ("bounds", "sums"),
    [
        (["unbounded", "unbounded"], [150] * 5),
        (["unbounded", "current"], [10, 30, 60, 100, 150]),
        (["current", "unbounded"], [150, 140, 120, 90, 50]),
        ([-1, 1], [30, 60, 90, 120, 90]),
        ([1, 2], [50, 70, 90, 50, 0]),
        ([-9, -8], [0] * 5),
        ([0, 0], [10, 20, 30, 40, 50]),
        ([-1.0, bson.Int64(0)], [10, 30, 50, 70, 90]),
    ],
)
def test_documents(bounds: list[Any], sums: list[int]) -> None:
    assert window(FIVE, {"$sum": "$v", "window": {"documents": bounds}}) == sums


@pytest.mark.parametrize(
    ("bounds", "counts"),
    [
        ([-5, 5], [2, 2, 2, 2, 1]),
        (["unbounded", 0], [1, 2, 3, 4, 5]),
        (["current", "unbounded"], [5, 4, 3, 2, 1]),
        ([0.5, 3.5], [1, 0, 1, 0, 0]),
        ([-100, -50], [0] * 5),
    ],
)
def test_range(bounds: list[Any], counts: list[int]) -> None:
    documents: Documents = [{"t": t} for t in (0, 3, 10, 12, 20)]
    assert window(documents, {"$count": {}, "window": {"range": bounds}}) == counts


def test_range_takes_in_equals_on_both_sides() -> None:
    documents: Documents = [{"t": t} for t in (1, 1, 2)]
    assert window(documents, {"$count": {}, "window": {"range": ["unbounded", "current"]}}) == [2, 2, 3]


def test_range_in_months() -> None:
    days = [datetime.datetime(2024, 1, 31), datetime.datetime(2024, 2, 29), datetime.datetime(2024, 3, 31)]
    found = window([{"t": day} for day in days], {"$count": {}, "window": {"range": [-1, 0], "unit": "month"}})
    assert found == [1, 2, 2]


def test_partitions_come_sorted_and_do_not_mix() -> None:
    documents: Documents = [{"p": p, "t": t} for p, t in [("b", 1), ("a", 2), ("b", 0), ("a", 1)]]
    stage = {"partitionBy": "$p", "sortBy": {"t": 1}, "output": {"n.x": {"$documentNumber": {}}}}
    found = run(documents, {"$setWindowFields": stage})
    numbers = [(doc["p"], doc["t"], doc["n"]["x"]) for doc in found]
    assert numbers == [
        ("a", 1, 1),
        ("a", 2, 2),
        ("b", 0, 1),
        ("b", 1, 2),
    ]


def test_ranks() -> None:
    documents: Documents = [{"t": t} for t in (1, 2, 2, 3)]
    assert window(documents, {"$rank": {}}) == [1, 2, 2, 4]
    assert window(documents, {"$denseRank": {}}) == [1, 2, 2, 3]
    assert window(documents, {"$documentNumber": {}}) == [1, 2, 3, 4]


def test_shift() -> None:
    assert window(FIVE, {"$shift": {"output": "$v", "by": 1}}) == [20, 30, 40, 50, None]
    assert window(FIVE, {"$shift": {"output": "$v", "by": -2, "default": "no"}}) == ["no", "no", 10, 20, 30]


def test_derivative_and_integral() -> None:
    frame = {"documents": [-1, 0]}
    documents: Documents = [{"t": t, "v": v} for t, v in [(0, 1), (2, 5), (4, 5)]]
    assert window(documents, {"$derivative": {"input": "$v"}, "window": frame}) == [None, 2.0, 0.0]
    assert window(documents, {"$integral": {"input": "$v"}, "window": frame}) == [0, 6.0, 10.0]
    assert window(documents, {"$integral": {"input": "$v"}}) == [16.0] * 3
    times = [datetime.datetime(2024, 1, 1, hour) for hour in (0, 1, 3)]
    timed: Documents = [{"t": t, "v": v} for t, v in zip(times, [0, 60, 180], strict=True)]
    assert window(timed, {"$derivative": {"input": "$v", "unit": "minute"}, "window": frame}) == [None, 1.0, 1.0]
    assert window(timed, {"$integral": {"input": "$v", "unit": "hour"}}) == [270.0] * 3


def test_moving_average() -> None:
    documents: Documents = [{"t": t, "v": v} for t, v in enumerate([10, 20, None, 40])]
    assert window(documents, {"$expMovingAvg": {"input": "$v", "N": 3}}) == [10, 15.0, None, 27.5]
    assert window(documents, {"$expMovingAvg": {"input": "$v", "alpha": 0.75}}) == [10, 17.5, None, 34.375]


def test_fills() -> None:
    documents: Documents = [{"t": t, "v": v} for t, v in [(0, None), (1, 10), (2, None), (5, 30), (6, None)]]
    assert window(documents, {"$locf": "$v"}) == [None, 10, 10, 30, 30]
    assert window(documents, {"$linearFill": "$v"}) == [None, 10, 15.0, 30, None]


def test_covariance() -> None:
    documents: Documents = [{"t": t, "x": t, "y": 2 * t} for t in (1, 2, 3)] + [{"t": 4, "x": "no", "y": 1}]
    assert window(documents, {"$covariancePop": ["$x", "$y"]}) == pytest.approx([4 / 3] * 4)
    assert window(documents, {"$covarianceSamp": ["$x", "$y"]}) == pytest.approx([2.0] * 4)
    assert window(documents[:1], {"$covarianceSamp": ["$x", "$y"]}) == [None]
    assert window(documents, {"$covariancePop": "$x"}) == [None] * 4


def test_covariance_of_a_moving_frame_forgets_infinities_and_rounds_as_it_goes() -> None:
    inf = float("inf")
    documents = [{"x": x, "y": y} for x, y in ((1, 10), (2, 20), (inf, 30), (4, 40), (5, 50))]
    found = window(documents, {"$covariancePop": ["$x", "$y"], "window": {"documents": [-1, 1]}})
    assert found == [2.5, inf, inf, inf, 2.5000000000000107]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1.0, float("inf")), (2.0, 1.0), (3.0, 2.0)], "inf"),
        ([(float("-inf"), 1.0), (2.0, 1.0), (3.0, 2.0)], "-inf"),
        ([(float("inf"), float("-inf")), (2.0, 1.0), (3.0, 2.0)], "nan"),
        ([(float("inf"), 1.0), (float("-inf"), 1.0), (3.0, 2.0), (4.0, 2.0)], "nan"),
        ([(float("inf"), 1.0), (2.0, 1.0)], "0.0"),
        ([(float("inf"), 1.0)], "None"),
        ([(1, 2.0), (1, 2.0)], "0.0"),
        ([(Decimal128("1"), 2.0), (2.0, 4), (3, 6), (4, Decimal128("8"))], "2.50000000000000"),
        ([(Decimal128("1"), Decimal128("2"))], "0.0"),
        ([(Decimal128("42.5"), Decimal128("99.9"))] * 3, "0E+12"),
    ],
)
def test_covariance_corners(pairs: list[tuple[Any, Any]], expected: str) -> None:
    documents = [{"x": x, "y": y} for x, y in pairs]
    assert str(window(documents, {"$covariancePop": ["$x", "$y"]})[-1]) == expected


def test_min_max_scaler() -> None:
    assert window(FIVE, {"$minMaxScaler": {"input": "$v"}}) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert window(FIVE[:1], {"$minMaxScaler": {"input": "$v", "min": 5, "max": 10}}) == [5]


def test_accumulators_by_name() -> None:
    frame = {"documents": [-1, 0]}
    assert window(FIVE, {"$push": "$v", "window": frame})[1] == [10, 20]
    assert window(FIVE, {"$addToSet": ["$v"], "window": frame})[0] == [[10]]
    assert window(FIVE, {"$first": "$none", "window": frame})[0] is None
    assert window(FIVE, {"$topN": {"n": 1, "sortBy": {"v": -1}, "output": "$v"}, "window": frame})[2] == [30]
    infinite: Documents = [{"t": 0, "v": float("inf")}, {"t": 1, "v": 10}, {"t": 2, "v": 20}]
    assert window(infinite, {"$stdDevPop": "$v", "window": frame}) == [None, None, 5.0]


@pytest.mark.parametrize("odd", [1e200, -1e155, 1e-170])
@pytest.mark.parametrize("name", ["$stdDevPop", "$stdDevSamp"])
def test_a_deviation_does_not_depend_on_whether_something_was_removed(name: str, odd: float) -> None:
    """Also of numbers whose squares are no doubles."""
    frame = {"documents": [-1, 0]}
    documents: Documents = [{"t": t, "v": value} for t, value in enumerate([odd, 0.0, 5.0, odd, 0.0, 5.0, 5.0])]
    first, *others = window(documents, {name: "$v", "window": frame})[1:]
    assert others[2] == first and others[0] == others[3] > 2 and others[4] == 0.0


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (1, 9),
        ({}, 9),
        ({"$nothing": 1}, 9),
        ({"$mergeObjects": "$v"}, 9),
        ({"$sum": 1, "$avg": 1}, 9),
        ({"$sum": 1, "window": 1}, 9),
        ({"$sum": 1, "window": {"documents": [1]}}, 9),
        ({"$sum": 1, "window": {"documents": [0.5, 1]}}, 9),
        ({"$sum": 1, "window": {"documents": [1, 0]}}, 5339900),
        ({"$sum": 1, "window": {"range": [1, 0]}}, 5339900),
        ({"$sum": 1, "window": {"range": ["x", 0]}}, 9),
        ({"$sum": 1, "window": {"documents": [0, 0], "range": [0, 0]}}, 9),
        ({"$sum": 1, "window": {"range": [0, 0], "unit": "hour"}}, 5429513),
        ({"$rank": 1}, 5371603),
        ({"$rank": {}, "window": {}}, 5371601),
        ({"$shift": {"by": 1}}, 9),
        ({"$expMovingAvg": {"input": 1}}, 9),
        ({"$expMovingAvg": {"input": 1, "alpha": 1}}, 9),
        ({"$derivative": {"input": 1}}, 9),
        ({"$locf": 1, "window": {}}, 9),
    ],
)
def test_refusals(function: object, code: int) -> None:
    assert refusal(function) == code


@pytest.mark.parametrize(
    ("function", "sort_by", "code"),
    [
        ({"$sum": 1, "window": {"documents": [0, 0]}}, None, 5339901),
        ({"$sum": 1, "window": {"range": [0, 0]}}, None, 5339902),
        ({"$sum": 1, "window": {"range": [0, 0]}}, {"a": 1, "b": 1}, 5339902),
        ({"$sum": 1, "window": {"range": [0, 0]}}, {"t": -1}, 8947401),
        ({"$sum": 1, "window": {"range": [0, 0]}}, {"x": 1}, 5429414),
        ({"$rank": {}}, None, 5371602),
        ({"$rank": {}}, {"a": 1, "b": 1}, 5371602),
        ({"$shift": {"output": 1, "by": 1}}, None, 9),
    ],
)
def test_refusals_by_order(function: object, sort_by: object, code: int) -> None:
    assert refusal(function, sortBy=sort_by) == code


def test_partitions_by_arrays_are_refused() -> None:
    with pytest.raises(CommandError) as caught:
        window([{"p": [1]}], {"$sum": 1}, partitionBy="$p")
    assert caught.value.code == 14


def test_output_fields_keep_their_place_or_come_behind() -> None:
    one = {"$sum": 1}
    documents: Documents = [{"_id": 1, "a": 5, "b": {"x": 5, "y": 6}, "c": [1]}]
    output = {"b.z": one, "d.e": one, "a": one, "c.f": one, "b.x": one, "d.g": one}
    [found] = run(documents, {"$setWindowFields": {"output": output}})
    assert list(found) == ["_id", "a", "b", "c", "d"]
    assert found == {"_id": 1, "a": 1, "b": {"x": 1, "y": 6, "z": 1}, "c": {"f": 1}, "d": {"e": 1, "g": 1}}


WHOLE: list[Any] = [1, -7, bson.Int64(5), bson.Int64(2**62), 2**31 - 1]
NUMBERS: list[Any] = [*WHOLE, 2.5, -0.0, 1e-9, 0.1, 1e15, None, "text", True]
INEXACT: list[Any] = [*NUMBERS, math.nan, math.inf, -math.inf, Decimal128("1.25"), Decimal128("NaN"), 1e300, 5e-324]
BOUNDS: list[list[Any]] = [[-13, 2], [0, 15], [-19, -2], [2, 40], [-3, 2], [-1, "unbounded"], ["current", "unbounded"]]


def values_of(values: list[Any], seed: int) -> Documents:
    """Documents of which some have no value; those that are inexact come here and there."""
    numbers = random.Random(seed)
    few = [value for value in values if value not in NUMBERS]
    documents: Documents = []
    for t in range(60):
        value = numbers.choice(few if few and numbers.random() < 0.1 else [one for one in values if one in NUMBERS])
        documents.append({"t": t} if numbers.random() < 0.1 else {"t": t, "v": value})
    return documents


def exact(value: Any) -> str:
    """With its type, and with the sign of zero."""
    return f"{type(value).__name__} {value!r}"


@pytest.mark.parametrize("name", ["$sum", "$avg", "$count", "$min", "$max", "$first", "$last"])
@pytest.mark.parametrize("values", [WHOLE, NUMBERS, INEXACT])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_values_that_leave_a_frame_are_removed(name: str, values: list[Any], bounds: list[Any]) -> None:
    """As if each frame were computed anew, which is so for an argument that has a random number in it."""
    argument = {} if name == "$count" else "$v"
    again = {"$cond": [{"$gte": [{"$rand": {}}, 0]}, "$v", None]}
    for seed in range(4):
        documents = values_of(values, seed)
        removing = window(documents, {name: argument, "window": {"documents": bounds}})
        if name in ("$count", "$first", "$last"):
            gathered = window(documents, {"$push": {"x": "$v"}, "window": {"documents": bounds}})
            found = [[pair.get("x") for pair in pairs] for pairs in gathered]
            if name == "$count":
                anew: list[Any] = [len(frame) for frame in found]
            else:
                anew = [frame[0 if name == "$first" else -1] if frame else None for frame in found]
        else:
            anew = window(documents, {name: again, "window": {"documents": bounds}})
        assert [exact(value) for value in removing] == [exact(value) for value in anew]


def deviation(name: str, frame: list[Any]) -> float | int | None:
    """Of the numbers of a frame, rounded once; by Python's own statistics."""
    numbers = [
        float(value.to_decimal()) if isinstance(value, Decimal128) else float(value)
        for value in frame
        if isinstance(value, (int, float, Decimal128)) and not isinstance(value, bool)
    ]
    if not all(map(math.isfinite, numbers)) or len(numbers) < (1 if name == "$stdDevPop" else 2):
        return None
    return statistics.pstdev(numbers) if name == "$stdDevPop" else statistics.stdev(numbers)


@pytest.mark.parametrize("name", ["$stdDevPop", "$stdDevSamp"])
@pytest.mark.parametrize("values", [WHOLE, NUMBERS, [value for value in INEXACT if value != 1e300]])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_values_that_leave_a_frame_leave_its_deviation(name: str, values: list[Any], bounds: list[Any]) -> None:
    for seed in range(2):
        documents = values_of(values, seed)
        found = window(documents, {name: "$v", "window": {"documents": bounds}})
        gathered = window(documents, {"$push": {"x": "$v"}, "window": {"documents": bounds}})
        expected = [deviation(name, [pair.get("x") for pair in pairs]) for pairs in gathered]
        for one, other in zip(found, expected, strict=True):
            assert one == (other if other is None else pytest.approx(other, rel=1e-9))


def test_a_deviation_is_that_of_the_frame_alone() -> None:
    """What was in it before leaves no trace, not even of rounding; of one value it is an int."""
    few = [1.0, 2.0, 4.0, 4.0] * 20
    values = [1e16, 3.0, -1e200, *few, 1.7e308, -1.7e308, *few]
    documents: Documents = [{"t": t, "v": value} for t, value in enumerate(values)]
    frame = {"documents": [1 - len(few), 0]}
    found = window(documents, {"$stdDevPop": "$v", "window": frame})
    assert found[len(few) + 2] == found[-1] == statistics.pstdev(few)
    assert window(documents, {"$stdDevSamp": "$v", "window": frame})[-1] == statistics.stdev(few)
    assert found[len(few) + 4] == math.inf  # as where nothing was removed: their squares are no doubles
    lonely: Documents = [{"t": t, "v": value} for t, value in enumerate([1, 2, *["x"] * 200])]
    found = window(lonely, {"$stdDevPop": "$v", "window": frame})
    assert found[len(few) - 1 :][:3] == [0.5, 0, None]
    assert [type(value) for value in found[len(few) - 1 :][:3]] == [float, int, type(None)]


def test_deviations_are_rounded_once() -> None:
    """Also those that are hardly more than halfway between two doubles."""
    numbers = random.Random(7)
    values = [1e300, *(float(numbers.getrandbits(30)) for _ in range(4000))]
    documents: Documents = [{"t": t, "v": value} for t, value in enumerate(values)]
    found = window(documents, {"$stdDevPop": "$v", "window": {"documents": [-15, 0]}})
    with localcontext(prec=60):
        for position in range(20, len(values)):
            frame = [int(value) for value in values[position - 15 : position + 1]]
            exact = Decimal(16 * sum(value * value for value in frame) - sum(frame) ** 2).sqrt() / 16
            assert found[position] == float(exact)


def test_extremes_of_a_moving_frame_compare_by_the_collation() -> None:
    documents = [{"t": t, "v": text} for t, text in enumerate(["b", "B", "a", "A", "c", "C"])]
    ctx = ParseContext(0, namespace="db.c", collation=parse_collation(bson.encode({"locale": "en", "strength": 2})))
    output = {name: {name: "$v", "window": {"range": [-1, 0]}} for name in ("$min", "$max")}
    output = {name[1:]: function for name, function in output.items()}
    specs = parse_pipeline([bson.encode({"$setWindowFields": {"sortBy": {"t": 1}, "output": output}})], ctx)
    raw = [bson.encode(document) for document in documents]
    found = [bson.decode(document) for document in drain(open_pipeline(specs, ListSource(raw, 2), RunContext()))]
    assert "".join(document["min"] for document in found) == "bbaaAc"
    assert "".join(document["max"] for document in found) == "bbBacc"


@pytest.mark.parametrize("name", ["$sum", "$avg", "$min", "$max", "$first", "$last", "$stdDevPop", "$stdDevSamp"])
def test_a_moving_frame_evaluates_each_document_a_few_times(name: str) -> None:
    """Not as often as there are frames that have it."""
    pattern = parse_sort(bson.encode({"t": 1}))
    spec = parse_window_function(
        "r", bson.encode({name: "$v", "window": {"documents": [-500, 500]}}), pattern, ParseContext(0, namespace="db.c")
    )
    partition = Partition(pattern, 100 << 20, None, SpillStatistics(), OperationMemory())
    for t in range(2000):
        partition.add(bson.encode({"v": t * 7919 % 2000}), b"")
    spec.begin(partition)
    steps = 0
    for position in range(2000):
        spec.value(partition, position, EvaluationContext())
        steps += spec.steps
    assert steps < 4 * 2000 + 10


def test_the_documents_of_a_partition_are_freed_in_slices() -> None:
    while free_some():
        pass  # what tests before have let go
    partition = Partition(None, 100 << 20, None, SpillStatistics(), OperationMemory())
    for t in range(60_000):
        partition.add(bson.encode({"t": t}), b"")
    partition.close()
    slices = 0
    while free_some():
        slices += 1
    assert slices > 50
