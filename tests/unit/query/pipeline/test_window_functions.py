"""What each window function gives, row by row, compared as BSON; frames and partitions themselves are test_window's."""

import datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.pipeline import ListSource, RunContext, drain, open_pipeline, parse_pipeline

INF = float("inf")
NAN = float("nan")
PARSE = ErrorCode.FailedToParse


def window(documents: list[dict[str, Any]], function: dict[str, Any], sort_by: object = None) -> list[Any]:
    """The function's value for each document, in the order of the results."""
    stage: dict[str, Any] = {"sortBy": {"t": 1} if sort_by is None else sort_by, "output": {"r": function}}
    if not stage["sortBy"]:
        del stage["sortBy"]
    specs = parse_pipeline([bson.encode({"$setWindowFields": stage})], ParseContext())
    found = drain(open_pipeline(specs, ListSource([bson.encode(doc) for doc in documents], 3), RunContext()))
    return [bson.decode(document)["r"] for document in found]


def check(
    documents: list[dict[str, Any]], function: dict[str, Any], expected: list[Any], sort_by: object = None
) -> None:
    found = window(documents, function, sort_by)
    assert bson.encode({"r": found}) == bson.encode({"r": expected}), found


def rows(values: list[Any]) -> list[dict[str, Any]]:
    """{t: 0, v: …}, {t: 1, v: …} …; `...` leaves `v` out."""
    return [{"t": t} if value is ... else {"t": t, "v": value} for t, value in enumerate(values)]


def at(hour: int, minute: int = 0) -> datetime.datetime:
    return datetime.datetime(2024, 3, 1, hour, minute)


@pytest.mark.parametrize(
    ("keys", "rank", "dense"),
    [
        ([1, 2, 2, 3], [1, 2, 2, 4], [1, 2, 2, 3]),
        ([5], [1], [1]),
        ([1, 1, 1], [1, 1, 1], [1, 1, 1]),
        ([1, 1.0, Int64(1), 2], [1, 1, 1, 4], [1, 1, 1, 2]),
        ([None, None, 0], [1, 1, 3], [1, 1, 2]),
        (["a", "b", "b"], [1, 2, 2], [1, 2, 2]),
        ([1, "a", {"x": 1}], [1, 2, 3], [1, 2, 3]),
        ([NAN, -INF, 0], [1, 2, 3], [1, 2, 3]),
        ([{"x": 1}, {"x": 1.0}, {"x": 2}], [1, 1, 3], [1, 1, 2]),
        ([-0.0, 0, Decimal128("0")], [1, 1, 1], [1, 1, 1]),
    ],
)
def test_ranks(keys: list[Any], rank: list[int], dense: list[int]) -> None:
    documents = [{"t": key} for key in keys]
    check(documents, {"$rank": {}}, rank)
    check(documents, {"$denseRank": {}}, dense)
    check(documents, {"$documentNumber": {}}, list(range(1, len(keys) + 1)))


def test_ranks_of_a_descending_order() -> None:
    documents = [{"t": t} for t in (1, 3, 3, 2)]
    check(documents, {"$rank": {}}, [1, 1, 3, 4], {"t": -1})
    check(documents, {"$denseRank": {}}, [1, 1, 2, 3], {"t": -1})


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"output": "$v", "by": 1, "default": "Not available"}, [2, None, None, 5, "Not available"]),
        ({"output": "$v", "by": -1}, [None, 1, 2, None, None]),
        ({"output": "$v", "by": 0}, [1, 2, None, None, 5]),
        ({"output": "$v", "by": 9}, [None] * 5),
        ({"output": "$v", "by": -9, "default": 0}, [0] * 5),
        ({"output": {"$add": ["$v", 10]}, "by": 1}, [12, None, None, 15, None]),
        ({"output": "const", "by": 4, "default": {"$add": [1, 2]}}, ["const", 3, 3, 3, 3]),
        ({"output": "$v", "by": 1.0}, [2, None, None, 5, None]),
        ({"output": "$v", "by": Int64(-4)}, [None, None, None, None, 1]),
        ({"output": "$v", "by": 4, "default": None}, [5, None, None, None, None]),
    ],
)
def test_shift(parameters: dict[str, Any], expected: list[Any]) -> None:
    check(rows([1, 2, None, ..., 5]), {"$shift": parameters}, expected)


@pytest.mark.parametrize(
    ("parameters", "values", "expected"),
    [
        # The prices on the page.
        ({"N": 2}, [13.0, 15.4, 12.0, 11.7], [13.0, 14.6, 12.866666666666667, 12.088888888888889]),
        ({"alpha": 0.75}, [13.0, 15.4, 12.0, 11.7], [13.0, 14.8, 12.7, 11.95]),
        ({"alpha": 0.75}, [82, 94, 112, 97.3], [82.0, 91.0, 106.75, 99.6625]),
        ({"N": 1}, [1, 2, 4], [1.0, 2.0, 4.0]),
        ({"alpha": 0.5}, [1, 3, 5], [1.0, 2.0, 3.5]),
        ({"alpha": 0.5}, [None, 4, ..., 8], [None, 4.0, None, 6.0]),
        ({"alpha": 0.5}, ["x", 4, True, 8], [None, 4.0, None, 6.0]),
        ({"alpha": Decimal128("0.5")}, [Decimal128("1"), Decimal128("3")], [Decimal128("1"), Decimal128("2.0")]),
        ({"alpha": Decimal128("0.5")}, [2, 4], [2.0, 3.0]),
        ({"alpha": 0.5}, [INF, 1], [INF, INF]),
        ({"N": 3.0}, [10, 20], [10.0, 15.0]),
    ],
)
def test_moving_average(parameters: dict[str, Any], values: list[Any], expected: list[Any]) -> None:
    check(rows(values), {"$expMovingAvg": {"input": "$v", **parameters}}, expected)


@pytest.mark.parametrize(
    ("values", "carried"),
    [
        ([500, None, 515, None, None, 485], [500, 500, 515, 515, 515, 485]),
        ([..., 1, ...], [None, 1, 1]),
        ([None, None], [None, None]),
        (["a", ..., None, "b"], ["a", "a", "a", "b"]),
        ([0, None], [0, 0]),
        ([False, None], [False, False]),
        ([[], None], [[], []]),
        ([{"a": None}, ...], [{"a": None}, {"a": None}]),
        ([NAN, None, 1], [NAN, NAN, 1]),
        ([Int64(1), Decimal128("2.0"), None], [Int64(1), Decimal128("2.0"), Decimal128("2.0")]),
    ],
)
def test_last_observation_carried_forward(values: list[Any], carried: list[Any]) -> None:
    check(rows(values), {"$locf": "$v"}, carried)


@pytest.mark.parametrize(
    ("points", "filled"),
    [
        ([(0, 500), (1, None), (2, None), (3, 515)], [500, 505.0, 510.0, 515]),
        ([(0, 0), (1, None), (4, 8)], [0, 2.0, 8]),
        ([(0, None), (1, 5), (2, None)], [None, 5, None]),
        ([(0, 1), (1, ...), (2, 2)], [1, 1.5, 2]),
        ([(0, None), (1, None)], [None, None]),
        ([(at(9), 10), (at(10), None), (at(13), 50)], [10, 20.0, 50]),
        ([(0, 1), (1, None), (2, Decimal128("2"))], [1, Decimal128("1.5"), Decimal128("2")]),
        ([(0.0, 10), (0.25, None), (1.0, 0)], [10, 7.5, 0]),
        ([(0, 4), (1, None), (2, 4), (3, None), (4, 8)], [4, 4.0, 4, 6.0, 8]),
        ([(-2, -1), (-1, None), (0, 1)], [-1, 0.0, 1]),
    ],
)
def test_linear_fill(points: list[tuple[Any, Any]], filled: list[Any]) -> None:
    documents = [{"t": t} if value is ... else {"t": t, "v": value} for t, value in points]
    check(documents, {"$linearFill": "$v"}, filled)


@pytest.mark.parametrize(
    ("points", "slopes"),
    [
        ([(0, 1), (2, 5), (4, 5)], [None, 2.0, 0.0]),
        ([(0, 5)], [None]),
        ([(0, 1), (0, 2)], [None, None]),  # no time has passed
        ([(0, None), (1, 2), (2, ...)], [None, None, None]),
        ([(0, 1), (1, Decimal128("2"))], [None, Decimal128("1")]),
        ([(Decimal128("0"), 1), (2, 2)], [None, Decimal128("0.5")]),
        ([(0, Int64(2)), (1, Int64(1))], [None, -1.0]),
        ([(0, 0), (1, INF)], [None, INF]),
        ([(0.0, 0.5), (0.5, 1.5)], [None, 2.0]),
    ],
)
def test_derivative(points: list[tuple[Any, Any]], slopes: list[Any]) -> None:
    documents = [{"t": t} if value is ... else {"t": t, "v": value} for t, value in points]
    check(documents, {"$derivative": {"input": "$v"}, "window": {"documents": [-1, 0]}}, slopes)


@pytest.mark.parametrize(
    ("points", "areas"),
    [
        ([(0, 1), (2, 5), (4, 5)], [0, 6.0, 16.0]),
        ([(0, 5)], [0]),
        ([(0, 1), (0, 9)], [0, 0.0]),
        ([(0, 2), (1, None), (2, 2)], [0, 0, 4.0]),
        ([(0, Decimal128("1")), (1, 2)], [0, Decimal128("1.5")]),
        ([(0, -1), (1, 1)], [0, 0.0]),
        ([(0, Int64(1)), (1, Int64(1))], [0, 1.0]),
        ([(0, 0), (1, INF)], [0, INF]),
    ],
)
def test_integral(points: list[tuple[Any, Any]], areas: list[Any]) -> None:
    documents = [{"t": t, "v": value} for t, value in points]
    check(documents, {"$integral": {"input": "$v"}, "window": {"documents": ["unbounded", "current"]}}, areas)


@pytest.mark.parametrize(
    ("unit", "slope", "area"),
    [
        ("week", 120.0 * 24 * 7, 120 / (24 * 7)),
        ("day", 2880.0, 5.0),
        ("hour", 120.0, 120.0),
        ("minute", 2.0, 7200.0),
        ("second", 2 / 60, 432_000.0),
        ("millisecond", 2 / 60_000, 432_000_000.0),
    ],
)
def test_units_of_time(unit: str, slope: float, area: float) -> None:
    documents = [{"t": at(10), "v": 0}, {"t": at(11), "v": 120}, {"t": at(12), "v": 120}]
    derivative = {"$derivative": {"input": "$v", "unit": unit}, "window": {"range": [-1, 0], "unit": "hour"}}
    found = window(documents, derivative)
    assert found[0] is None
    assert found[1:] == pytest.approx([slope, 0.0])
    whole = window([*documents[:2], {"t": at(11, 30), "v": 120}], {"$integral": {"input": "$v", "unit": unit}})
    assert whole == pytest.approx([area] * 3)


@pytest.mark.parametrize(
    ("pairs", "population", "sample"),
    [
        ([(1, 2), (2, 4), (3, 6)], [0.0, 0.5, 4 / 3], [None, 1.0, 2.0]),
        ([(1, 1)], [0.0], [None]),
        ([(0, 1), (1, 0)], [0.0, -0.25], [None, -0.5]),
        ([(5, 1), (5, 9)], [0.0, 0.0], [None, 0.0]),
        ([("x", 1), (1, 1), (3, 3)], [None, 0.0, 1.0], [None, None, 2.0]),
        ([(None, 1), (1, ...)], [None, None], [None, None]),
        ([(1, 1), (True, 5), (3, 3)], [0.0, 0.0, 1.0], [None, None, 2.0]),
        ([(Int64(1), 1.0), (3, 3)], [0.0, 1.0], [None, 2.0]),
    ],
)
def test_covariance(pairs: list[tuple[Any, Any]], population: list[Any], sample: list[Any]) -> None:
    documents = [{"t": t, "x": x} if y is ... else {"t": t, "x": x, "y": y} for t, (x, y) in enumerate(pairs)]
    frame = {"documents": ["unbounded", "current"]}
    assert window(documents, {"$covariancePop": ["$x", "$y"], "window": frame}) == pytest.approx(population)
    assert window(documents, {"$covarianceSamp": ["$x", "$y"], "window": frame}) == pytest.approx(sample)


@pytest.mark.parametrize("name", ["$covariancePop", "$covarianceSamp"])
@pytest.mark.parametrize("argument", ["$x", ["$x"], ["$x", "$x", "$x"], 1, {"a": 1}, None])
def test_covariance_of_other_than_two(name: str, argument: object) -> None:
    check([{"t": 1, "x": 1}, {"t": 2, "x": 2}], {name: argument}, [None, None])


@pytest.mark.parametrize(
    ("parameters", "values", "scaled"),
    [
        ({}, [1, 2, 3], [0.0, 0.5, 1.0]),
        ({"min": 0, "max": 100}, [1, 2, 3], [0.0, 50.0, 100.0]),
        ({"min": -1, "max": 1}, [10, 20], [-1.0, 1.0]),
        ({}, [7, 7], [0, 0]),
        ({"min": 2.5, "max": 5}, [7], [2.5]),
        ({}, [Int64(0), 0.5, 1], [0.0, 0.5, 1.0]),
        ({}, [-5, 5], [0.0, 1.0]),
        ({}, [Decimal128("0"), 4, 1], [Decimal128("0"), Decimal128("1"), Decimal128("0.25")]),
    ],
)
def test_min_max_scaler(parameters: dict[str, Any], values: list[Any], scaled: list[Any]) -> None:
    found = window(rows(values), {"$minMaxScaler": {"input": "$v", **parameters}})
    assert [type(value) for value in found] == [type(value) for value in scaled]
    assert [Decimal128(str(value)).to_decimal() for value in found] == [
        Decimal128(str(value)).to_decimal() for value in scaled
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ({"$sum": "$v"}, [10, 30, 20, 40, 40]),
        ({"$avg": "$v"}, [10.0, 15.0, 20.0, 40.0, 40.0]),
        ({"$min": "$v"}, [10, 10, 20, 40, 40]),
        ({"$max": "$v"}, [10, 20, 20, 40, 40]),
        ({"$first": "$v"}, [10, 10, 20, None, 40]),
        ({"$last": "$v"}, [10, 20, None, 40, None]),
        ({"$push": "$v"}, [[10], [10, 20], [20, None], [None, 40], [40]]),
        ({"$count": {}}, [1, 2, 2, 2, 2]),
        ({"$stdDevPop": "$v"}, [0, 5.0, 0, 0, 0]),
        ({"$stdDevSamp": "$v"}, [None, 7.0710678118654755, None, None, None]),
        ({"$minN": {"input": "$v", "n": 2}}, [[10], [10, 20], [20], [40], [40]]),
        ({"$maxN": {"input": "$v", "n": 2}}, [[10], [20, 10], [20], [40], [40]]),
        ({"$firstN": {"input": "$v", "n": 1}}, [[10], [10], [20], [None], [40]]),
        ({"$lastN": {"input": "$v", "n": 1}}, [[10], [20], [None], [40], [None]]),
        ({"$top": {"sortBy": {"v": -1}, "output": "$t"}}, [0, 1, 1, 3, 3]),
        ({"$bottom": {"sortBy": {"v": -1}, "output": "$t"}}, [0, 0, 2, 2, 4]),
        ({"$topN": {"sortBy": {"v": 1}, "output": "$t", "n": 1}}, [[0], [0], [2], [2], [4]]),
        ({"$bottomN": {"sortBy": {"v": 1}, "output": "$t", "n": 1}}, [[0], [1], [1], [3], [3]]),
        ({"$median": {"input": "$v", "method": "approximate"}}, [10.0, 10.0, 20.0, 40.0, 40.0]),
        (
            {"$percentile": {"input": "$v", "p": [1], "method": "approximate"}},
            [[10.0], [20.0], [20.0], [40.0], [40.0]],
        ),
        ({"$concatArrays": ["$t"]}, [[0], [0, 1], [1, 2], [2, 3], [3, 4]]),
    ],
)
def test_accumulators_over_two_documents(function: dict[str, Any], expected: list[Any]) -> None:
    check(rows([10, 20, None, 40, ...]), {**function, "window": {"documents": [-1, 0]}}, expected)


@pytest.mark.parametrize(
    ("function", "sort_by", "code"),
    [
        ({"$denseRank": {"a": 1}}, {"t": 1}, 5371603),
        ({"$documentNumber": 1}, {"t": 1}, 5371603),
        ({"$documentNumber": {}, "window": {"documents": [0, 0]}}, {"t": 1}, 5371601),
        ({"$denseRank": {}}, {"t": 1, "u": 1}, 5371602),
        ({"$documentNumber": {}}, {}, 5371602),
        ({"$shift": {"output": 1}}, {"t": 1}, PARSE),
        ({"$shift": {"output": 1, "by": 1.5}}, {"t": 1}, PARSE),
        ({"$shift": {"output": 1, "by": "$v"}}, {"t": 1}, PARSE),
        ({"$shift": {"output": 1, "by": 1, "default": "$v"}}, {"t": 1}, PARSE),
        ({"$shift": {"output": 1, "by": 1}, "window": {"documents": [0, 0]}}, {"t": 1}, PARSE),
        ({"$expMovingAvg": {"input": 1, "N": 0}}, {"t": 1}, PARSE),
        ({"$expMovingAvg": {"input": 1, "N": 2, "alpha": 0.5}}, {"t": 1}, PARSE),
        ({"$expMovingAvg": {"input": 1, "alpha": 0}}, {"t": 1}, PARSE),
        ({"$expMovingAvg": {"N": 2}}, {"t": 1}, PARSE),
        ({"$expMovingAvg": {"input": 1, "N": 2}}, {}, PARSE),
        ({"$linearFill": "$v", "window": {"documents": [0, 0]}}, {"t": 1}, PARSE),
        ({"$linearFill": "$v"}, {}, 605001),
        ({"$linearFill": "$s"}, {"t": 1}, ErrorCode.TypeMismatch),
        ({"$linearFill": "$v"}, {"same": 1}, 6050106),
        ({"$linearFill": "$v"}, {"s": 1}, 605001),
        ({"$derivative": {"input": "$v"}, "window": {"documents": [-1, 0]}}, {}, PARSE),
        ({"$derivative": {"input": "$v", "unit": "month"}, "window": {"documents": [-1, 0]}}, {"d": 1}, 5490710),
        ({"$derivative": {"input": "$v", "unit": "hour"}, "window": {"documents": [-1, 0]}}, {"t": 1}, 5624900),
        ({"$derivative": {"input": "$v"}, "window": {"documents": [-1, 0]}}, {"d": 1}, 5624901),
        ({"$derivative": {"input": "$s"}, "window": {"documents": [-1, 0]}}, {"t": 1}, 5624903),
        ({"$integral": {"input": "$v", "unit": "hour"}}, {"t": 1}, 5423901),
        ({"$integral": {"input": "$v"}}, {"d": 1}, 5423902),
        ({"$integral": {"input": "$s"}}, {"t": 1}, 5423900),
        ({"$integral": {"unit": "hour"}}, {"d": 1}, PARSE),
        ({"$integral": {"input": "$v", "unit": "fortnight"}}, {"d": 1}, PARSE),
        ({"$minMaxScaler": {"input": "$s"}}, {"t": 1}, 10487001),
        ({"$minMaxScaler": {"input": "$v", "min": 1}}, {"t": 1}, PARSE),
        ({"$minMaxScaler": {"input": "$v", "min": 2, "max": 1}}, {"t": 1}, PARSE),
    ],
)
def test_refusals(function: dict[str, Any], sort_by: dict[str, Any], code: int) -> None:
    documents = [{"t": t, "v": t, "s": "x", "same": 1, "d": at(t)} for t in (1, 2, 3)]
    with pytest.raises(CommandError) as caught:
        window(documents, function, sort_by)
    assert caught.value.code == code
