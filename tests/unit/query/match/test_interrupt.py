"""Filters on long values learn within a fraction of a second of CPU that their operation is to end."""

from typing import Any

import bson
import pytest

from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from tests.gaps import MAX_GAP_S, MIN_CHECKS, measured

pytestmark = pytest.mark.slow

LENGTH = 120_000
TEXT = "a" * 40 + "!"

LONG: dict[str, Any] = {
    "$eq": {"a": -1},
    "$in": {"a": {"$in": [-1, -2, -3]}},
    "$nin": {"a": {"$nin": [-1, "x"]}},
    "$elemMatch": {"a": {"$elemMatch": {"$gt": LENGTH, "$lt": 0}}},
    "$elemMatch of documents": {"docs": {"$elemMatch": {"n": -1}}},
    "path through an array": {"docs.n": -1},
    "$all": {"a": {"$all": [-1, -2]}},
    "$mod": {"a": {"$mod": [7, 9]}},
    "$type": {"a": {"$type": "string"}},
    "$bitsAllSet": {"a": {"$bitsAllSet": 1 << 40}},
    "$regex": {"texts": {"$regex": "^(a+)+$"}},
    "$not": {"a": {"$not": {"$lt": 0}}},
    "$expr": {"$expr": {"$in": [-1, "$a"]}},
    "$jsonSchema": {"$jsonSchema": {"properties": {"a": {"items": {"bsonType": "int"}, "uniqueItems": True}}}},
    "whole arrays": {"a": [*range(LENGTH - 1), -1]},
    "$or": {"$or": [{"a": -number, "docs.n": 1} for number in range(1, 20)]},
}


@pytest.fixture(scope="module")
def document() -> bytes:
    return bson.encode(
        {
            "a": [*range(LENGTH)],
            "docs": [{"n": number} for number in range(LENGTH // 2)],
            "texts": [TEXT] * 20,
        }
    )


@pytest.mark.parametrize("name", LONG)
def test_long_filters_are_interrupted(name: str, document: bytes) -> None:
    tree = parse_match(bson.encode(LONG[name]), ParseContext(1_700_000_000_123))
    with measured() as gaps:
        tree.matches(document)
    assert gaps.count > MIN_CHECKS
    # One search with a bad pattern takes as long as PCRE2 lets it, a few tenths of a second.
    assert gaps.longest_s <= (MAX_GAP_S if name != "$regex" else 10 * MAX_GAP_S)
