"""$inc, $mul, $bit: types of results, overflow, zeros and NaN."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.errors import CommandError
from mongottl.query.update import UpdateOutcome

Update = Callable[..., UpdateOutcome]
Refusal = Callable[..., CommandError]
D = Decimal128
INF = float("inf")
BIG = 2**63 - 1

RESULTS: list[tuple[Any, Any, Any]] = [
    (5, {"$inc": {"v": 2}}, 7),
    (5, {"$inc": {"v": Int64(2)}}, Int64(7)),
    (Int64(5), {"$inc": {"v": -6}}, Int64(-1)),
    (5, {"$inc": {"v": 0.5}}, 5.5),
    (Int64(5), {"$inc": {"v": 1.0}}, 6.0),
    (0.1, {"$inc": {"v": D("0.2")}}, D("0.300000000000000")),
    (1, {"$inc": {"v": D("0.20")}}, D("1.20")),
    (2**31 - 1, {"$inc": {"v": 1}}, Int64(2**31)),
    (-(2**31), {"$inc": {"v": -1}}, Int64(-(2**31) - 1)),
    (1.7e308, {"$inc": {"v": 1.7e308}}, INF),
    (D("9.999999999999999999999999999999999E+6144"), {"$inc": {"v": D("9E+6144")}}, D("Infinity")),
    (6, {"$mul": {"v": 7}}, 42),
    (2**30, {"$mul": {"v": 4}}, Int64(2**32)),
    (3, {"$mul": {"v": Int64(-1)}}, Int64(-3)),
    (3, {"$mul": {"v": 0.5}}, 1.5),
    (3, {"$mul": {"v": D("1.50")}}, D("4.50")),
    (5.0, {"$mul": {"v": -0.0}}, -0.0),
    (12, {"$bit": {"v": {"and": 10}}}, 8),
    (12, {"$bit": {"v": {"or": Int64(3)}}}, Int64(15)),
    (Int64(12), {"$bit": {"v": {"xor": 10}}}, Int64(6)),
    (-1, {"$bit": {"v": {"and": 255, "or": 256, "xor": 1}}}, 510),
    (2, {"$bit": {"v": {"xor": -1}}}, -3),
]


@pytest.mark.parametrize(("before", "update", "after"), RESULTS)
def test_results(apply: Update, before: Any, update: Any, after: Any) -> None:
    outcome = apply({"_id": 1, "v": before}, update)
    assert outcome.document == bson.encode({"_id": 1, "v": after})
    assert outcome.modified


@pytest.mark.parametrize("update", [{"$inc": {"v": -INF}}, {"$mul": {"v": 0}}, {"$mul": {"v": float("nan")}}])
def test_no_number(apply: Update, update: Any) -> None:
    value = bson.decode(apply({"_id": 1, "v": INF}, update).document)["v"]
    assert value != value


CREATED: list[tuple[Any, Any]] = [
    ({"$inc": {"v": Int64(3)}}, Int64(3)),
    ({"$mul": {"v": 3}}, 0),
    ({"$mul": {"v": Int64(3)}}, Int64(0)),
    ({"$mul": {"v": 2.5}}, 0.0),
    ({"$mul": {"v": D("2.5")}}, D("0.0")),
    ({"$bit": {"v": {"or": 6}}}, 6),
    ({"$bit": {"v": {"and": Int64(6)}}}, Int64(0)),
]


@pytest.mark.parametrize(("update", "value"), CREATED)
def test_missing_fields_start_from_zero(apply: Update, update: Any, value: Any) -> None:
    assert apply({"_id": 1}, update).document == bson.encode({"_id": 1, "v": value})


@pytest.mark.parametrize(
    ("before", "update"),
    [
        (5, {"$inc": {"v": 0}}),
        (-0.0, {"$inc": {"v": 0.0}}),
        (D("-0"), {"$inc": {"v": D("0")}}),
        (D("1.000"), {"$inc": {"v": D("0")}}),
        (float("nan"), {"$inc": {"v": 5}}),
        (7.5, {"$mul": {"v": 1}}),
        (D("-0E+3"), {"$mul": {"v": D("1")}}),
        (6, {"$bit": {"v": {"or": 2}}}),
    ],
)
def test_equal_results_change_nothing(apply: Update, before: Any, update: Any) -> None:
    assert not apply({"_id": 1, "v": before}, update).modified


@pytest.mark.parametrize(
    ("before", "update", "code"),
    [
        (BIG, {"$inc": {"v": 1}}, 2),
        (Int64(-BIG), {"$inc": {"v": -2}}, 2),
        (BIG, {"$mul": {"v": 2}}, 2),
        (Int64(-BIG - 1), {"$mul": {"v": -1}}, 2),
        ("5", {"$inc": {"v": 1}}, 14),
        (None, {"$mul": {"v": 1}}, 14),
        (True, {"$inc": {"v": 1}}, 14),
        ([1], {"$inc": {"v": 1}}, 14),
        (1, {"$inc": {"v": "1"}}, 14),
        (1, {"$mul": {"v": None}}, 14),
        (1.0, {"$bit": {"v": {"and": 1}}}, 2),
        (1, {"$bit": {"v": {"and": 1.0}}}, 2),
        (1, {"$bit": {"v": {"nand": 1}}}, 2),
        (1, {"$bit": {"v": {}}}, 2),
        (1, {"$bit": {"v": 1}}, 2),
    ],
)
def test_refused(refuse: Refusal, before: Any, update: Any, code: int) -> None:
    assert refuse({"_id": 1, "v": before}, update).code == code


def test_overflow_tells_value_and_document(refuse: Refusal) -> None:
    assert refuse({"_id": 1, "v": BIG}, {"$inc": {"v": 1}}).message == (
        "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {_id: 1}"
    )


def test_id_keeps_its_value(refuse: Refusal, apply: Update) -> None:
    assert refuse({"_id": 5}, {"$inc": {"_id": 1}}).code == 66
    assert not apply({"_id": 5}, {"$mul": {"_id": 1}}).modified
