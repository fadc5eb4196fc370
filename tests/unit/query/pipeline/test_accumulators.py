"""Every accumulator of `$group` over the values of one group, compared as BSON; frames are test_window_functions's."""

from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.pipeline import ListSource, RunContext, drain, open_pipeline, parse_pipeline

NAN = float("nan")
INF = float("inf")
PERCENTILE = {"input": "$v", "method": "approximate"}


def group(documents: list[dict[str, Any]], accumulator: object) -> list[bytes]:
    specs = parse_pipeline([bson.encode({"$group": {"_id": None, "x": accumulator}})], ParseContext())
    return drain(open_pipeline(specs, ListSource([bson.encode(doc) for doc in documents], 2), RunContext()))


def check(documents: list[dict[str, Any]], accumulator: object, expected: object) -> None:
    found = group(documents, accumulator)
    if isinstance(expected, float) and expected != expected:
        value = bson.decode(found[0])["x"]
        assert isinstance(value, float)
        assert value != value
        return
    assert found == [bson.encode({"_id": None, "x": expected})], bson.decode(found[0])


def holding(values: list[Any]) -> list[dict[str, Any]]:
    """A document for each value; `...` is one without the field."""
    return [{} if value is ... else {"v": value} for value in values]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("$avg", [10, 25, 5], 40 / 3),
        ("$avg", [1, "x", None, ..., True, [5]], 1.0),
        ("$avg", ["x", ...], None),
        ("$avg", [1, Decimal128("2")], Decimal128("1.5")),
        ("$avg", [Int64(2**63 - 1), Int64(2**63 - 1)], 9223372036854775807.0),
        ("$avg", [INF, 1], INF),
        ("$avg", [INF, -INF], NAN),
        ("$avg", [NAN, 1], NAN),
        ("$avg", [-0.0], 0.0),
        ("$sum", [2**31 - 1, 1], Int64(2**31)),
        ("$sum", [Int64(2**63 - 1), 1], 2.0**63),
        ("$sum", [..., "x"], 0),
        ("$sum", [0.1, 0.2, 0.3], 0.6),
        ("$sum", [1, Decimal128("0.50")], Decimal128("1.50")),
        ("$sum", [[1, 2], 3], 3),
        ("$first", [1, 2], 1),
        ("$first", [None, 2], None),
        ("$first", [..., 2], None),
        ("$first", [[1, 2], 3], [1, 2]),
        ("$first", [Decimal128("1.0")], Decimal128("1.0")),
        ("$last", [1, 2], 2),
        ("$last", [1, None], None),
        ("$last", [1, ...], None),
        ("$last", [1, {"a": 1}], {"a": 1}),
        ("$last", [1, Int64(1)], Int64(1)),
        ("$last", [5], 5),
        ("$min", [3, 1, 2], 1),
        ("$min", [None, ..., 2], 2),
        ("$min", [None, ...], None),
        ("$min", ["a", 2, [0]], 2),
        ("$min", [NAN, 1], NAN),
        ("$min", [2, 2.0], 2),
        ("$max", [3, 1, 2], 3),
        ("$max", [None, ..., -2], -2),
        ("$max", [...], None),
        ("$max", ["a", 2, DatetimeMS(0)], DatetimeMS(0)),
        ("$max", [NAN, -INF], -INF),
        ("$max", [[1], [0, 9]], [1]),
        ("$push", [1, ..., None, [2]], [1, None, [2]]),
        ("$push", [...], []),
        ("$addToSet", [1, 1.0, Int64(1)], [1]),
        ("$addToSet", [..., ...], []),
        ("$mergeObjects", [{"a": 1}, {"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        ("$mergeObjects", [None, ..., {"a": 1}], {"a": 1}),
        ("$mergeObjects", [..., None], {}),
        ("$mergeObjects", [{"a": {"x": 1}}, {"a": {"y": 2}}], {"a": {"y": 2}}),
        ("$mergeObjects", [{"a": 1}, {"a": None}], {"a": None}),
        ("$stdDevPop", [2, 4], 1.0),
        ("$stdDevPop", [5], 0.0),
        ("$stdDevPop", [2, "x", None, ..., 4, [9]], 1.0),
        ("$stdDevPop", ["x", ...], None),
        ("$stdDevPop", [Decimal128("2"), Int64(4)], 1.0),
        ("$stdDevPop", [1, INF], NAN),
        ("$stdDevPop", [85, 90, 71], 8.04155872120988),
        ("$stdDevPop", [3, 3, 3], 0.0),
        ("$stdDevSamp", [2, 4], 1.4142135623730951),
        ("$stdDevSamp", [5], None),
        ("$stdDevSamp", [5, "x"], None),
        ("$stdDevSamp", [...], None),
        ("$stdDevSamp", [1, 2, 3], 1.0),
        ("$stdDevSamp", [1, None, 3.0, ...], 1.4142135623730951),
        ("$stdDevSamp", [Decimal128("1"), 2, Int64(3)], 1.0),
        ("$stdDevSamp", [7, 7], 0.0),
        ("$stdDevSamp", [NAN, 1], NAN),
        ("$concatArrays", [[1], [2, [3]], []], [1, 2, [3]]),
        ("$concatArrays", [..., [1]], [1]),
        ("$concatArrays", [...], []),
        ("$concatArrays", [[None], [None]], [None, None]),
        ("$concatArrays", [["a", "b"], ["a"]], ["a", "b", "a"]),
        ("$setUnion", [[1], [1.0, Int64(1)]], [1]),
        ("$setUnion", [..., [1]], [1]),
        ("$setUnion", [...], []),
        ("$setUnion", [[[1]], [[1]]], [[1]]),
    ],
)
def test_of_one_expression(name: str, values: list[Any], expected: object) -> None:
    check(holding(values), {name: "$v"}, expected)


# The scores of one game, on the pages of the ranked accumulators.
GAME = [
    {"player": "A", "score": 31},
    {"player": "B", "score": 33},
    {"player": "C", "score": 99},
    {"player": "D", "score": 1},
]
FALLING = {"sortBy": {"score": -1}, "output": ["$player", "$score"]}


@pytest.mark.parametrize(
    ("accumulator", "expected"),
    [
        ({"$top": FALLING}, ["C", 99]),
        ({"$bottom": FALLING}, ["D", 1]),
        ({"$topN": {**FALLING, "n": 3}}, [["C", 99], ["B", 33], ["A", 31]]),
        ({"$bottomN": {**FALLING, "n": 3}}, [["B", 33], ["A", 31], ["D", 1]]),
        ({"$firstN": {"input": ["$player", "$score"], "n": 3}}, [["A", 31], ["B", 33], ["C", 99]]),
        ({"$lastN": {"input": ["$player", "$score"], "n": 3}}, [["B", 33], ["C", 99], ["D", 1]]),
        ({"$maxN": {"input": ["$score", "$player"], "n": 3}}, [[99, "C"], [33, "B"], [31, "A"]]),
        ({"$minN": {"input": ["$score", "$player"], "n": 3}}, [[1, "D"], [31, "A"], [33, "B"]]),
        ({"$top": {"sortBy": {"none": 1, "player": -1}, "output": "$player"}}, "D"),
        ({"$bottom": {"sortBy": {"none": 1, "player": -1}, "output": "$player"}}, "A"),
        ({"$top": {"sortBy": {"score": 1}, "output": "$none"}}, None),
        ({"$bottom": {"sortBy": {"score": 1}, "output": ["$none"]}}, [None]),
        ({"$topN": {"sortBy": {"score": 1}, "output": "$none", "n": 2}}, [None, None]),
        ({"$bottomN": {"sortBy": {"score": 1}, "output": {"p": "$none"}, "n": 1}}, [{}]),
        ({"$topN": {"sortBy": {"score": 1}, "output": "$player", "n": 99}}, ["D", "A", "B", "C"]),
        ({"$bottomN": {"sortBy": {"score": 1}, "output": "$player", "n": 99}}, ["D", "A", "B", "C"]),
        ({"$topN": {"sortBy": {"score": -1}, "output": "$player", "n": 1.0}}, ["C"]),
        ({"$bottomN": {"sortBy": {"score": -1}, "output": "$player", "n": Decimal128("1")}}, ["D"]),
        ({"$top": {"sortBy": {"score": 1}, "output": 5}}, 5),
        ({"$bottom": {"sortBy": {"score": 1}, "output": {"$multiply": ["$score", 2]}}}, 198),
    ],
)
def test_ranked(accumulator: object, expected: object) -> None:
    check(GAME, accumulator, expected)


GREATEST = Int64(2**63 - 1)
LEAST = Int64(-(2**63))


def test_avg_adds_int64_exactly_in_groups_and_sliding_windows() -> None:
    """Elsewhere as doubles, whose sum is 0: mongod has two engines."""
    check(holding([GREATEST, LEAST]), {"$avg": "$v"}, -0.5)
    check(holding([GREATEST, GREATEST]), {"$avg": "$v"}, 2.0**63)
    check([{"v": [GREATEST, LEAST]}], {"$first": {"$avg": "$v"}}, 0.0)
    documents = [{"_id": i, "v": v} for i, v in enumerate([GREATEST, LEAST])]
    for bounds, expected in (([-1, 0], -0.5), (["unbounded", "current"], 0.0)):
        output = {"a": {"$avg": "$v", "window": {"documents": bounds}}}
        found = pipeline(documents, {"$setWindowFields": {"sortBy": {"_id": 1}, "output": output}})
        assert found[-1]["a"] == expected
    bucket = {"$bucketAuto": {"groupBy": "$none", "buckets": 1, "output": {"a": {"$avg": "$v"}}}}
    assert pipeline(documents, bucket)[0]["a"] == 0.0


def test_the_code_of_merge_objects_depends_on_the_engine() -> None:
    merged = {"m": {"$mergeObjects": "$v"}}
    for stage, code in (
        ({"$group": {"_id": None, **merged}}, 5911200),
        ({"$bucket": {"groupBy": "$v", "boundaries": [0, 2], "output": merged}}, 5911200),
        ({"$bucketAuto": {"groupBy": "$none", "buckets": 1, "output": merged}}, 40400),
    ):
        with pytest.raises(CommandError) as caught:
            pipeline([{"v": 1}], stage)
        assert caught.value.code == code


def pipeline(documents: list[dict[str, Any]], stage: dict[str, Any]) -> list[dict[str, Any]]:
    specs = parse_pipeline([bson.encode(stage)], ParseContext())
    source = ListSource([bson.encode(doc) for doc in documents], 2)
    return [bson.decode(found) for found in drain(open_pipeline(specs, source, RunContext()))]


@pytest.mark.parametrize(
    ("name", "values", "n", "expected"),
    [
        ("$firstN", [1, None, ..., 2], 3, [1, None, None]),
        ("$firstN", [[1, 2], 3], 1, [[1, 2]]),
        ("$firstN", [1], 5, [1]),
        ("$firstN", [1, 2, 3], Int64(2), [1, 2]),
        ("$lastN", [1, None, ..., 2], 3, [None, None, 2]),
        ("$lastN", [1], 5, [1]),
        ("$lastN", [1, 2, 3], 2.0, [2, 3]),
        ("$lastN", [3, [1]], 1, [[1]]),
        ("$lastN", [...], 1, [None]),
        ("$maxN", [1, None, ..., 2], 5, [2, 1]),
        ("$maxN", [None, ...], 2, []),
        ("$maxN", [1, "a", DatetimeMS(0), MaxKey()], 2, [MaxKey(), DatetimeMS(0)]),
        ("$maxN", [1, 2.5, Decimal128("2.25")], 2, [2.5, Decimal128("2.25")]),
        ("$maxN", [5, 5, 5], 2, [5, 5]),
        ("$minN", [1, None, ..., 2], 5, [1, 2]),
        ("$minN", [...], 2, []),
        ("$minN", ["a", MinKey(), 1], 2, [MinKey(), 1]),
        ("$minN", [5, 4, 4], 2, [4, 4]),
        ("$minN", [NAN, -INF], 1, [NAN]),
    ],
)
def test_of_n(name: str, values: list[Any], n: object, expected: object) -> None:
    found = group(holding(values), {name: {"input": "$v", "n": n}})
    assert found == [bson.encode({"_id": None, "x": expected})], bson.decode(found[0])


@pytest.mark.parametrize(
    ("values", "shares", "expected"),
    [
        # The scores of five students on the page of $percentile.
        ([62, 60, 67, 64, 60], [0.5, 0.75, 0.9, 0.95], [62.0, 64.0, 67.0, 67.0]),
        ([81, 83, 82, 72, 53], [0.5, 0.75, 0.9, 0.95], [81.0, 82.0, 83.0, 83.0]),
        ([80, 79, 78, 77, 72], [0.5, 0.75, 0.9, 0.95], [78.0, 79.0, 80.0, 80.0]),
        ([1, 2], [0.5], [1.0]),
        ([1, "x", None, ..., True, 3], [0, 0.5, 1], [1.0, 1.0, 3.0]),
        ([Int64(1), 2.5, Decimal128("4")], [1, 0.5], [4.0, 2.5]),
        ([..., "x"], [0.5, 0.9], [None, None]),
        ([[1, 2, 3]], [0.5], [None]),
        ([-INF, 0, INF], [0, 0.5, 1], [-INF, 0.0, INF]),
        ([7], [0, 0.01, 1], [7.0, 7.0, 7.0]),
    ],
)
def test_percentiles(values: list[Any], shares: list[float], expected: list[Any]) -> None:
    check(holding(values), {"$percentile": {**PERCENTILE, "p": shares}}, expected)
    median = expected[shares.index(0.5)] if 0.5 in shares else expected[0]
    check(holding(values), {"$median": PERCENTILE}, median)


@pytest.mark.parametrize(
    ("accumulator", "code"),
    [
        ({"$avg": [1, 2]}, 40237),
        ({"$first": [1, 2]}, 40237),
        ({"$last": []}, 40237),
        ({"$stdDevPop": [1, 2]}, 40237),
        ({"$stdDevSamp": [1, 2]}, 40237),
        ({"$mergeObjects": [{}, {}]}, 40237),
        ({"$mergeObjects": "$v"}, 5911200),
        ({"$concatArrays": "$v"}, ErrorCode.TypeMismatch),
        ({"$concatArrays": None}, ErrorCode.TypeMismatch),
        ({"$concatArrays": {"a": 1}}, ErrorCode.TypeMismatch),
        ({"$setUnion": "$v"}, ErrorCode.TypeMismatch),
        ({"$setUnion": "x"}, ErrorCode.TypeMismatch),
        ({"$count": 1}, ErrorCode.TypeMismatch),
        ({"$count": {"a": 1}}, ErrorCode.TypeMismatch),
        ({"$nothing": 1}, 15952),
        ({"$sum": 1, "$avg": 1}, 40238),
        (1, 40234),
        ({"$firstN": 1}, 5787801),
        ({"$firstN": {"input": 1, "n": 1, "x": 1}}, 5787901),
        ({"$firstN": {"input": 1, "n": "x"}}, 7548606),
        ({"$lastN": {"input": 1}}, 5787906),
        ({"$lastN": {"n": 1}}, 5787907),
        ({"$lastN": {"input": 1, "n": -1}}, 7548606),
        ({"$maxN": {"input": 1, "n": 0}}, 7548606),
        ({"$maxN": {"input": 1, "n": 1.5}}, 7548606),
        ({"$minN": {"input": 1, "n": "$v"}}, 7548606),
        ({"$minN": {"n": 1}}, 5787907),
        ({"$top": 1}, 5788001),
        ({"$top": {"sortBy": {"a": 1}, "output": 1, "n": 1}}, 5788002),
        ({"$top": {"sortBy": {"a": 1}}}, 5788004),
        ({"$bottom": {"output": 1}}, 5788005),
        ({"$bottom": {"sortBy": 1, "output": 1}}, 10065),
        ({"$bottom": {"sortBy": {"a": 2}, "output": 1}}, 15975),
        ({"$topN": {"sortBy": {"a": 1}, "output": 1, "n": 0}}, 7548606),
        ({"$topN": {"sortBy": {"a": 1}, "n": 1}}, 5788004),
        ({"$bottomN": {"output": 1, "n": 1}}, 5788005),
        ({"$bottomN": {"sortBy": {"a": 1}, "output": 1}}, 5788003),
        ({"$bottomN": {"sortBy": {}, "output": 1, "n": 1}}, ErrorCode.BadValue),
        ({"$median": {"input": "$v"}}, 40414),
        ({"$median": {**PERCENTILE, "method": "continuous"}}, ErrorCode.BadValue),
        ({"$percentile": {**PERCENTILE, "p": [1.5]}}, 7750303),
        ({"$percentile": {**PERCENTILE, "p": []}}, 7750301),
        ({"$percentile": PERCENTILE}, 40414),
        ({"$accumulator": 1}, 4544703),
        ({"$accumulator": {}}, 4544707),
        ({"$accumulator": {"else": ""}}, 4544706),
        ({"$accumulator": {"init": 1}}, 4544702),
        ({"$accumulator": {"lang": 1}}, 4544704),
        ({"$accumulator": {"lang": "py"}}, 4544705),
        ({"$accumulator": {"init": ""}}, 4544708),
        ({"$accumulator": {"init": "", "accumulate": ""}}, 4544709),
        ({"$accumulator": {"init": "", "accumulate": "", "merge": ""}}, 4544710),
        ({"$accumulator": {"init": "", "accumulate": "", "merge": "", "lang": "js"}}, ErrorCode.BadValue),
    ],
)
def test_refusals(accumulator: object, code: int) -> None:
    with pytest.raises(CommandError) as caught:
        group([{"v": 1}], accumulator)
    assert caught.value.code == code
