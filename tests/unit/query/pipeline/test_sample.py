"""$sample: how many, which, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64

Documents = list[dict[str, Any]]
Aggregate = Callable[..., Documents]

FIVE: Documents = [{"_id": i} for i in range(5)]


@pytest.mark.parametrize(
    ("size", "count"),
    [
        (2, 2),
        (Int64(2), 2),
        (2.0, 2),
        (2.9, 2),  # doubles are cut
        (Decimal128("2.0"), 2),
        (Decimal128("1.5"), 2),  # decimals are rounded, half to even
        (Decimal128("2.5"), 2),
        (Decimal128("0.51"), 1),
        (5, 5),
        (6, 5),
        (Int64(2**63 - 1), 5),
        (float("inf"), 5),
        (Decimal128("1E+6000"), 5),
    ],
)
def test_size(aggregate: Aggregate, size: Any, count: int) -> None:
    found = [document["_id"] for document in aggregate(FIVE, {"$sample": {"size": size}})]
    assert len(found) == len(set(found)) == count


def test_nothing_and_few(aggregate: Aggregate) -> None:
    assert aggregate([], {"$sample": {"size": 3}}) == []
    assert aggregate(FIVE, {"$match": {"_id": 3}}, {"$sample": {"size": 3}}) == [{"_id": 3}]
    assert len(aggregate(FIVE, {"$sample": {"size": 4}}, {"$sample": {"size": 3}})) == 3


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (3, 28745),
        ([3], 28745),
        (None, 28745),
        ({"size": "3"}, 28746),
        ({"size": None}, 28746),
        ({"size": True}, 28746),
        ({"size": 0}, 28747),
        ({"size": -1}, 28747),
        ({"size": 0.9}, 28747),
        ({"size": Decimal128("0.5")}, 28747),
        ({"size": float("nan")}, 28747),
        ({"size": 1, "other": 1}, 28748),
        ({"other": 1}, 28748),
        ({"size": "x", "other": 1}, 28746),
        ({"size": -1, "other": 1}, 28748),
        ({}, 28749),
    ],
)
def test_refused(refused: Callable[..., int], argument: Any, code: int) -> None:
    assert refused(FIVE, {"$sample": argument}) == code
