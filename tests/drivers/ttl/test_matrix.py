"""The matrix of collection default and document `ttl`, and the instant at which a document expires."""

import math
from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, encode

from tests.drivers.ttl.conftest import Bench

OFF = None
NEVER = -1
FAR = 10**9  # seconds, about 31 years

# (default of the collection, ttl of the document, seconds it lives or None for ever)
MATRIX: list[tuple[int | None, Any, int | None]] = [
    (OFF, "absent", None),
    (OFF, -1, None),
    (OFF, 5, None),
    (OFF, "no meaning", None),
    (NEVER, "absent", None),
    (NEVER, -1, None),
    (NEVER, 5, 5),
    (NEVER, "no meaning", None),
    (10, "absent", 10),
    (10, -1, None),
    (10, 5, 5),
    (10, 25, 25),
    (10, "no meaning", 10),
]


@pytest.mark.parametrize(("default", "ttl", "lives"), MATRIX)
def test_matrix(bench: Bench, default: int | None, ttl: Any, lives: int | None) -> None:
    if default is not OFF:
        bench.set_default(default)
    document: dict[str, Any] = {"_id": 1}
    if ttl != "absent":
        document["ttl"] = ttl
    bench.collection.insert_one(document)
    if lives is None:
        bench.advance(FAR)
        assert bench.collection.find_one() == document
        return
    bench.advance(lives - 1)
    assert bench.collection.find_one() == document
    bench.advance(1)
    assert bench.collection.find_one() is None


COUNTING: list[tuple[Any, int | None]] = [
    (1, 1),
    (20, 20),
    (Int64(1), 1),
    (Int64(20), 20),
    (1.0, 1),
    (20.0, 20),
    (2147483647, 2147483647),
    (Int64(2147483647), 2147483647),
    (2147483647.0, 2147483647),
    (-1, None),
    (Int64(-1), None),
    (-1.0, None),
]


@pytest.mark.parametrize(("ttl", "lives"), COUNTING, ids=repr)
def test_values_that_count(bench: Bench, ttl: Any, lives: int | None) -> None:
    bench.set_default(100)
    bench.collection.insert_one({"_id": 1, "ttl": ttl})
    if lives is None:
        bench.advance(FAR)
        assert bench.ids() == [1]
        return
    bench.advance(lives - 1)
    assert bench.ids() == [1]
    bench.advance(1)
    assert bench.ids() == []
    bench.advance(-lives)  # the next test starts where this one did


NOT_COUNTING: list[Any] = [
    0,
    Int64(0),
    0.0,
    -0.0,
    -2,
    Int64(-2),
    -2.0,
    -2147483648,
    20.5,
    0.5,
    -1.5,
    2147483648.0,
    Int64(2147483648),
    Int64(2147483649),
    Int64(-2147483649),
    1e300,
    math.nan,
    math.inf,
    -math.inf,
    Decimal128("20"),
    Decimal128("-1"),
    True,
    False,
    "20",
    "",
    None,
    [20],
    [],
    {"ttl": 20},
    {},
    ObjectId("65e0f0f0f0f0f0f0f0f0f0f0"),
    Timestamp(20, 0),
    Regex("20"),
    Binary(b"\x14"),
    Code("20"),
    MinKey(),
    MaxKey(),
]


@pytest.mark.parametrize("ttl", NOT_COUNTING, ids=repr)
def test_values_without_meaning_are_kept_and_ignored(bench: Bench, ttl: Any) -> None:
    bench.set_default(10)
    bench.collection.insert_one({"_id": 1, "ttl": ttl})
    bench.advance(9)
    [found] = bench.collection.find()
    assert encode({"ttl": found["ttl"]}) == encode({"ttl": ttl})
    bench.advance(1)
    assert bench.ids() == []


@pytest.mark.parametrize("ttl", [5, -1, 0, "5", 2.5], ids=repr)
def test_values_without_meaning_leave_a_collection_without_default_alone(bench: Bench, ttl: Any) -> None:
    bench.set_default(NEVER)
    bench.collection.insert_one({"_id": 1, "ttl": ttl})
    bench.advance(5)
    assert bench.ids() == ([] if ttl == 5 and not isinstance(ttl, str) else [1])


@pytest.mark.parametrize("name", ["TTL", "Ttl", "tTl", " ttl", "ttl ", "_ttl"])
def test_only_the_lower_case_name_counts(bench: Bench, name: str) -> None:
    bench.set_default(NEVER)
    bench.collection.insert_one({"_id": 1, name: 1})
    bench.advance(FAR)
    assert bench.ids() == [1]


def test_a_nested_ttl_does_not_count(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_one({"_id": 1, "meta": {"ttl": 1}, "list": [{"ttl": 1}]})
    bench.advance(9)
    assert bench.ids() == [1]
    bench.advance(1)
    assert bench.ids() == []


def test_the_document_overrides_in_both_directions(bench: Bench) -> None:
    bench.set_default(10)
    bench.collection.insert_many([{"_id": "short", "ttl": 2}, {"_id": "default"}, {"_id": "long", "ttl": 30}])
    seen = []
    for _ in range(31):
        seen.append(bench.ids())
        bench.advance(1)
    assert seen[1] == ["default", "long", "short"]
    assert seen[2] == ["default", "long"]
    assert seen[9] == ["default", "long"]
    assert seen[10] == ["long"]
    assert seen[29] == ["long"]
    assert seen[30] == []


def test_expiry_is_inclusive_and_counts_from_the_whole_second(bench: Bench) -> None:
    """`_ts` is the second in which the write fell: at .9 of a second, a ttl of 5 leaves 4.1 seconds."""
    bench.set_default(NEVER)
    now = bench.server.clock.now()
    bench.advance(0.9 - now.microsecond / 1e6 + (1 if now.microsecond > 900_000 else 0))
    bench.collection.insert_one({"_id": 1, "ttl": 5})
    bench.advance(4.0)
    assert bench.ids() == [1]
    bench.advance(0.099)
    assert bench.ids() == [1]
    bench.advance(0.001)
    assert bench.ids() == []
