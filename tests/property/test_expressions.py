"""Laws of expressions and pipelines, and a slow model of grouping, against random values."""

import math
from fractions import Fraction
from typing import Any

import bson
from bson import Int64
from bson.datetime_ms import DatetimeMS
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.document.build import encode
from mongottl.document.types import Date, Value
from mongottl.document.walk import get_value
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression
from mongottl.query.expr.date.calendar import civil_from_days, days_from_civil, time_zone
from mongottl.query.pipeline import ListSource, RunContext, drain, open_pipeline, optimise, parse_pipeline

integers = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1).map(Int64), st.integers(-5, 5))
doubles = st.floats(allow_nan=False, allow_infinity=False, width=32)
scalars = st.one_of(st.none(), st.booleans(), integers, doubles, st.text(max_size=4))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=6
)
dates = st.integers(-(10**14), 2 * 10**14)
ZONES = ["UTC", "+05:30", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"]


def evaluate(expression: object, document: dict[str, Any]) -> Value:
    argument = get_value(bson.encode({"v": expression}), "v")
    return parse_expression(argument, ParseContext()).evaluate(EvaluationContext(bson.encode(document)))


def encoded(value: Value) -> bytes:
    return encode({"v": value})


@given(integers, integers)
def test_integer_arithmetic_is_exact_or_a_double(a: int, b: int) -> None:
    both = {"a": a, "b": b}
    for operator, exact in (("$add", a + b), ("$subtract", a - b), ("$multiply", a * b)):
        result = evaluate({operator: ["$a", "$b"]}, both)
        if isinstance(result, float):
            assert not -(2**63) <= exact < 2**63
            assert math.isclose(result, float(exact))
        else:
            assert result == exact
            long = isinstance(a, Int64) or isinstance(b, Int64) or not -(2**31) <= exact < 2**31
            assert isinstance(result, Int64) == long


@given(st.lists(doubles, max_size=20))
def test_sums_do_not_depend_on_the_order(numbers: list[float]) -> None:
    there = evaluate({"$sum": "$n"}, {"n": numbers})
    back = evaluate({"$sum": "$n"}, {"n": numbers[::-1]})
    exact = sum((Fraction(number) for number in numbers), Fraction(0))
    assert isinstance(there, (int, float))
    assert isinstance(back, (int, float))
    assert math.isclose(there, float(exact), rel_tol=1e-12, abs_tol=1e-30)
    assert math.isclose(back, float(exact), rel_tol=1e-12, abs_tol=1e-30)


@given(values, values)
def test_comparisons_agree_with_each_other(a: object, b: object) -> None:
    both = {"a": a, "b": b}
    order = evaluate({"$cmp": ["$a", "$b"]}, both)
    assert evaluate({"$cmp": ["$b", "$a"]}, both) == -order  # type: ignore[operator]  # an int
    assert evaluate({"$eq": ["$a", "$b"]}, both) == (order == 0)
    assert evaluate({"$lt": ["$a", "$b"]}, both) == (order == -1)
    assert evaluate({"$gte": ["$a", "$b"]}, both) == (order != -1)
    assert evaluate({"$not": [{"$ne": ["$a", "$b"]}]}, both) == (order == 0)


@given(st.lists(values, max_size=8))
def test_sort_array_sorts(array: list[object]) -> None:
    up = evaluate({"$sortArray": {"input": "$v", "sortBy": 1}}, {"v": array})
    assert isinstance(up, list)
    assert len(up) == len(array)
    pairs = [evaluate({"$lte": ["$a", "$b"]}, {"a": None, "b": None})]
    for i in range(1, len(up)):
        document = bson.decode(encoded([up[i - 1], up[i]]))["v"]
        pairs.append(evaluate({"$lte": ["$a", "$b"]}, {"a": document[0], "b": document[1]}))
    assert all(pairs)


@given(st.lists(values, max_size=5), st.lists(values, max_size=5))
def test_set_laws(a: list[object], b: list[object]) -> None:
    both = {"a": a, "b": b}
    union = {"$setUnion": ["$a", "$b"]}
    common = {"$setIntersection": ["$a", "$b"]}
    assert evaluate({"$setEquals": [union, {"$setUnion": ["$b", "$a"]}]}, both) is True
    assert evaluate({"$setIsSubset": [common, "$a"]}, both) is True
    assert evaluate({"$setIsSubset": ["$a", union]}, both) is True
    without = {"$setDifference": ["$a", "$b"]}
    assert evaluate({"$setEquals": [{"$setUnion": [without, common]}, "$a"]}, both) is True


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), values, max_size=4))
def test_objects_and_arrays_of_pairs_are_inverse(document: dict[str, object]) -> None:
    result = evaluate({"$arrayToObject": {"$objectToArray": "$v"}}, {"v": document})
    assert encoded(result) == bson.encode({"v": document})


@given(st.text(max_size=12), st.text(min_size=1, max_size=2))
def test_split_and_concat_are_inverse(text: str, delimiter: str) -> None:
    text = text.replace("\0", "")
    delimiter = delimiter.replace("\0", "") or "-"
    parts = evaluate({"$split": ["$t", "$d"]}, {"t": text, "d": delimiter})
    assert isinstance(parts, list)
    assert delimiter.join(str(part) for part in parts) == text


@given(st.integers(-(10**7), 10**7))
def test_the_calendar_is_its_own_inverse(days: int) -> None:
    year, month, day = civil_from_days(days)
    assert days_from_civil(year, month, day) == days
    assert 1 <= month <= 12
    assert 1 <= day <= 31
    following = civil_from_days(days + 1)
    assert following > (year, month, day)


@given(st.integers(-62135596800000 // 2, 253402300799000 // 2), st.sampled_from(ZONES))
def test_parts_and_dates_are_inverse(ms: int, zone: str) -> None:
    parts = evaluate({"$dateToParts": {"date": "$d", "timezone": zone}}, {"d": DatetimeMS(ms)})
    assert isinstance(parts, bytes)
    back = evaluate({"$dateFromParts": {**bson.decode(parts), "timezone": zone}}, {})
    assert isinstance(back, Date)
    # A local time that comes twice means the first of the two.
    local = ms + time_zone(zone).offset_ms(ms)
    assert back.ms + time_zone(zone).offset_ms(back.ms) == local


@given(dates, st.sampled_from(["year", "quarter", "month", "week", "day", "hour", "minute"]), st.sampled_from(ZONES))
def test_truncation_is_a_projection_below_the_date(ms: int, unit: str, zone: str) -> None:
    document = {"d": DatetimeMS(ms)}
    once: dict[str, object] = {"$dateTrunc": {"date": "$d", "unit": unit, "timezone": zone}}
    lower = evaluate(once, document)
    assert isinstance(lower, Date)
    assert lower.ms <= ms
    assert evaluate(once, {"d": DatetimeMS(lower.ms)}) == lower


@given(dates, st.integers(-1000, 1000), st.sampled_from(["year", "month", "day", "hour", "second"]))
def test_adding_units_is_undone_by_the_difference(ms: int, amount: int, unit: str) -> None:
    moved = evaluate({"$dateAdd": {"startDate": "$d", "unit": unit, "amount": amount}}, {"d": DatetimeMS(ms)})
    assert isinstance(moved, Date)
    document = {"a": DatetimeMS(ms), "b": DatetimeMS(moved.ms)}
    assert evaluate({"$dateDiff": {"startDate": "$a", "endDate": "$b", "unit": unit}}, document) == amount


documents = st.lists(
    st.fixed_dictionaries(
        {"k": st.one_of(st.integers(0, 2), st.sampled_from([0.0, 1.0, None, "a"]))}, optional={"v": integers}
    ),
    max_size=30,
)


@settings(max_examples=50)
@given(documents, st.integers(1, 7))
def test_groups_are_those_of_a_slow_model(rows: list[dict[str, Any]], batch_size: int) -> None:
    model: list[tuple[Any, list[dict[str, Any]]]] = []
    for row in rows:
        for key, members in model:
            if key == row["k"] and isinstance(key, (int, float)) == isinstance(row["k"], (int, float)):
                members.append(row)
                break
        else:
            model.append((row["k"], [row]))
    stages = [{"$group": {"_id": "$k", "n": {"$sum": 1}, "s": {"$sum": "$v"}, "all": {"$push": "$v"}}}]
    found = run(stages, rows, batch_size)
    assert len(found) == len(model)
    for group, (key, members) in zip(found, model, strict=True):
        assert group["_id"] == key
        assert group["n"] == len(members)
        assert group["all"] == [row["v"] for row in members if "v" in row]
        assert math.isclose(group["s"], sum(group["all"]))


@settings(max_examples=50)
@given(documents, st.integers(1, 7), st.integers(0, 5), st.integers(1, 10))
def test_optimised_pipelines_give_the_same(rows: list[dict[str, Any]], batch_size: int, skip: int, limit: int) -> None:
    stages: list[dict[str, Any]] = [
        {"$match": {"v": {"$gte": 0}}},
        {"$match": {"k": {"$ne": "a"}}},
        {"$sort": {"k": 1, "v": -1}},
        {"$skip": skip},
        {"$limit": limit},
        {"$limit": 8},
    ]
    ctx = ParseContext()
    specs = parse_pipeline([bson.encode(stage) for stage in stages], ctx)
    raw = [bson.encode(row) for row in rows]
    plain = drain(open_pipeline(specs, ListSource(raw, batch_size), RunContext()))
    assert drain(open_pipeline(optimise(specs, ctx), ListSource(raw, batch_size), RunContext())) == plain


def run(stages: list[dict[str, Any]], rows: list[dict[str, Any]], batch_size: int) -> list[dict[str, Any]]:
    specs = parse_pipeline([bson.encode(stage) for stage in stages], ParseContext())
    source = ListSource([bson.encode(row) for row in rows], batch_size)
    return [bson.decode(document) for document in drain(open_pipeline(specs, source, RunContext()))]
