"""$push and its clauses, $addToSet, $pop, $pull, $pullAll."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, Regex

from mongottl.errors import CommandError
from mongottl.query.update import UpdateOutcome

Update = Callable[..., UpdateOutcome]
Refusal = Callable[..., CommandError]


def each(*values: Any, **clauses: Any) -> dict[str, Any]:
    return {"$push": {"l": {"$each": list(values), **{f"${name}": value for name, value in clauses.items()}}}}


RESULTS: list[tuple[Any, Any, Any]] = [
    # $push
    ([1], {"$push": {"l": 2}}, [1, 2]),
    ([1], {"$push": {"l": [2, 3]}}, [1, [2, 3]]),
    ([1], {"$push": {"l": {"$slice": 1}}}, [1, {"$slice": 1}]),
    ([1], each(2, 3), [1, 2, 3]),
    ([1, 2], each(8, 9, position=0), [8, 9, 1, 2]),
    ([1, 2], each(8, position=1), [1, 8, 2]),
    ([1, 2], each(8, position=-1), [1, 8, 2]),
    ([1, 2], each(8, position=-9), [8, 1, 2]),
    ([1, 2], each(8, position=50), [1, 2, 8]),
    ([1, 2], each(3, slice=2), [1, 2]),
    ([1, 2], each(3, slice=-2), [2, 3]),
    ([1, 2], each(3, slice=0), []),
    ([1, 2], each(slice=-1), [2]),
    ([3, 1], each(2, sort=1), [1, 2, 3]),
    ([3, 1], each(2, sort=-1.0, slice=2), [3, 2]),
    ([3, "a", None], each({"x": 1}, 2.5, sort=1), [None, 2.5, 3, "a", {"x": 1}]),
    ([{"k": 2, "n": 1}, {"k": 1, "n": 2}], each({"k": 1, "n": 3}, sort={"k": 1}), None),
    ([{"a": {"b": 2}}, 5, {"a": {"b": 1}}], each(sort={"a.b": -1}), [{"a": {"b": 2}}, {"a": {"b": 1}}, 5]),
    ([{"a": [7]}, {"a": [3]}], each(sort={"a.0": 1}), [{"a": [3]}, {"a": [7]}]),
    ([{"a": 1, "b": 1}, {"a": 1, "b": 2}], each(sort={"a": 1, "b": -1}), [{"a": 1, "b": 2}, {"a": 1, "b": 1}]),
    ([5, 6], each(7, position=0, sort=-1, slice=2), [7, 6]),
    # $addToSet compares numbers by value and documents by field order
    ([1], {"$addToSet": {"l": 2}}, [1, 2]),
    ([1], {"$addToSet": {"l": [1]}}, [1, [1]]),
    ([{"a": 1, "b": 2}], {"$addToSet": {"l": {"b": 2, "a": 1}}}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
    ([1], {"$addToSet": {"l": {"$each": [1.0, 3, Int64(3), 2]}}}, [1, 3, 2]),
    ([1], {"$addToSet": {"l": {"x": 1, "$each": [2]}}}, [1, {"x": 1, "$each": [2]}]),
    # $pop
    ([1, 2, 3], {"$pop": {"l": 1}}, [1, 2]),
    ([1, 2, 3], {"$pop": {"l": -1.0}}, [2, 3]),
    ([1], {"$pop": {"l": Decimal128("1")}}, []),
    # $pull
    ([1, 2, 1.0, "1"], {"$pull": {"l": 1}}, [2, "1"]),
    ([1, 5, 9], {"$pull": {"l": {"$gte": 5}}}, [1]),
    ([1, 5, 9], {"$pull": {"l": {"$gt": 1, "$lt": 9}}}, [1, 9]),
    ([1, 5, 9], {"$pull": {"l": {"$in": [1, 9]}}}, [5]),
    (["ab", "b", Regex("^a")], {"$pull": {"l": Regex("^a")}}, ["b"]),
    ([{"k": 1, "n": 1}, {"k": 2}, 3], {"$pull": {"l": {"k": 1}}}, [{"k": 2}, 3]),
    ([{"k": 1}, {"k": 5}], {"$pull": {"l": {"k": {"$gt": 2}}}}, [{"k": 1}]),
    ([{"k": 1}, {}, 3], {"$pull": {"l": {}}}, [3]),
    ([{"s": [1, 2]}, {"s": [3]}], {"$pull": {"l": {"s": {"$elemMatch": {"$gt": 2}}}}}, [{"s": [1, 2]}]),
    ([[1, 2], [2, 1], 1], {"$pull": {"l": [2, 1]}}, [[1, 2], 1]),
    ([1, None, 2], {"$pull": {"l": None}}, [1, 2]),
    # $pullAll
    ([1, 2, 1, 3], {"$pullAll": {"l": [1, 3.0]}}, [2]),
    ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], {"$pullAll": {"l": [{"a": 1, "b": 2}]}}, [{"b": 2, "a": 1}]),
    ([[1], 1], {"$pullAll": {"l": [[1]]}}, [1]),
]


@pytest.mark.parametrize(("before", "update", "after"), RESULTS)
def test_results(apply: Update, before: Any, update: Any, after: Any) -> None:
    if after is None:  # a stable sort
        after = [{"k": 1, "n": 2}, {"k": 1, "n": 3}, {"k": 2, "n": 1}]
    outcome = apply({"_id": 1, "l": before, "z": 0}, update)
    assert outcome.document == bson.encode({"_id": 1, "l": after, "z": 0})
    assert outcome.modified


@pytest.mark.parametrize(
    ("update", "created"),
    [
        ({"$push": {"l": 1}}, [1]),
        (each(3, 1, 2, sort=1, slice=2), [1, 2]),
        (each(), []),
        ({"$addToSet": {"l": {"$each": [1, 1.0]}}}, [1]),
        ({"$addToSet": {"l": {"$each": []}}}, []),
    ],
)
def test_missing_arrays_are_made(apply: Update, update: Any, created: Any) -> None:
    assert apply({"_id": 1}, update).document == bson.encode({"_id": 1, "l": created})


@pytest.mark.parametrize(
    "update",
    [
        {"$push": {"l": {"$each": []}}},
        {"$push": {"l": {"$each": [], "$slice": 9}}},
        {"$addToSet": {"l": 2.0}},
        {"$addToSet": {"l": {"$each": [2, Int64(1)]}}},
        {"$pull": {"l": 7}},
        {"$pull": {"x": 7}},
        {"$pull": {"p.x": 7}},
        {"$pullAll": {"l": []}},
        {"$pop": {"x": 1}},
        {"$pop": {"e": 1}},
    ],
)
def test_no_change(apply: Update, update: Any) -> None:
    assert not apply({"_id": 1, "l": [1, 2], "e": [], "p": {}}, update).modified


@pytest.mark.parametrize(
    ("update", "code"),
    [
        ({"$push": {"n": 1}}, 2),
        (each(1, bad=1), 2),
        ({"$push": {"l": {"$each": 1}}}, 2),
        (each(1, slice="x"), 2),
        (each(1, slice=1.5), 2),
        (each(1, position=None), 2),
        (each(1, sort=2), 2),
        (each(1, sort="a"), 2),
        (each(1, sort={}), 2),
        (each(1, sort={"a": 0}), 2),
        (each(1, sort={"a.": 1}), 2),
        ({"$addToSet": {"n": 1}}, 2),
        ({"$addToSet": {"l": {"$each": 1}}}, 14),
        ({"$addToSet": {"l": {"$each": [1], "$sort": 1}}}, 2),
        ({"$pop": {"n": 1}}, 14),
        ({"$pop": {"l": 0}}, 9),
        ({"$pop": {"l": 2}}, 9),
        ({"$pop": {"l": 0.5}}, 9),
        ({"$pop": {"l": "1"}}, 9),
        ({"$pop": {"n.x": 1}}, 28),
        ({"$pop": {"l.x": 1}}, 28),
        ({"$pull": {"n": 1}}, 2),
        ({"$pull": {"l": {"$bad": 1}}}, 2),
        ({"$pull": {"n.x": 1}}, 28),
        ({"$pullAll": {"l": 1}}, 2),
        ({"$pullAll": {"n": [1]}}, 2),
        ({"$push": {"_id": 1}}, 2),
    ],
)
def test_refused(refuse: Refusal, update: Any, code: int) -> None:
    assert refuse({"_id": 1, "l": [1, 2], "n": 5}, update).code == code


# Values that are equal in some way and different in another.
ALIKE: list[Any] = [
    *(
        1,
        1.0,
        Int64(1),
        Decimal128("1"),
        Decimal128("1.00"),
        True,
        "1",
        2**53 + 1,
        float(2**53),
        0.1,
        Decimal128("0.1"),
    ),
    *(0, -0.0, float("nan"), Decimal128("NaN"), None, [], [1], [1.0], [[1]], {}, {"a": 1}, {"a": 1.0}, {"b": 1}),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, Regex("a"), Regex("a", "i"), bson.Code("a"), bson.Code("a", {}), b"a"),
    *(bson.MinKey(), bson.MaxKey(), bson.Timestamp(1, 1), bson.Timestamp(1, 2), bson.Binary(b"a", 5), ""),
]


def test_many_values_are_compared_as_single_ones_are(apply: Update) -> None:
    for start in ([], ALIKE[::3], ALIKE[::-2]):
        one_by_one = {"l": start}
        for value in ALIKE:
            one_by_one = bson.decode(apply(one_by_one, {"$addToSet": {"l": value}}).document)
        at_once = apply({"l": start}, {"$addToSet": {"l": {"$each": ALIKE}}}).document
        assert bson.encode(one_by_one) == at_once


def test_many_values_are_pulled_as_single_ones_are(apply: Update) -> None:
    for values in (ALIKE[::2], ALIKE[::3], ALIKE[10:20]):
        one_by_one = {"l": ALIKE}
        for value in values:
            one_by_one = bson.decode(apply(one_by_one, {"$pullAll": {"l": [value]}}).document)
        assert bson.encode(one_by_one) == apply({"l": ALIKE}, {"$pullAll": {"l": values}}).document


def test_large_sets_take_time_by_their_size_not_by_its_square(apply: Update) -> None:
    many = list(range(20_000))
    assert bson.decode(apply({"l": many}, {"$addToSet": {"l": {"$each": many[::-1]}}}).document) == {"l": many}
    assert bson.decode(apply({"l": many}, {"$pullAll": {"l": many[::-1]}}).document) == {"l": []}
