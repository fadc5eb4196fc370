"""Modifiers on large documents learn within a fraction of a second of CPU that their operation is to end."""

from typing import Any

import bson
import pytest

from mongottl.query.context import ParseContext
from mongottl.query.update import parse_update
from tests.gaps import MAX_GAP_S, MIN_CHECKS, measured

pytestmark = pytest.mark.slow

LENGTH = 60_000
NUMBERS = [*range(LENGTH)]

LONG: dict[str, Any] = {
    "$rename": {"$rename": {f"f{number}": f"g{number}" for number in range(20)}},
    "$rename of much that is missing": {"$rename": {f"x{number}": f"y{number}" for number in range(50)}},
    "$set": {"$set": {f"f{number}": -1 for number in range(0, LENGTH, 3)}},
    "$unset": {"$unset": {f"f{number}": 1 for number in range(0, LENGTH, 3)}},
    "$inc": {"$inc": {f"f{number}": 1 for number in range(0, LENGTH, 3)}},
    "$set in an array": {"$set": {f"a.{number}": -1 for number in range(0, LENGTH, 30)}},
    "$[]": {"$inc": {"a.$[]": 1}},
    "$push sorted": {"$push": {"a": {"$each": [5, 3], "$sort": -1}}},
    "$push of many": {"$push": {"a": {"$each": NUMBERS, "$position": 0}}},
    "$pull": {"$pull": {"a": {"$gt": LENGTH}}},
    "$pullAll": {"$pullAll": {"a": [number - LENGTH for number in range(2_000)]}},
    "$addToSet": {"$addToSet": {"a": {"$each": [number - LENGTH for number in range(2_000)]}}},
    "pipeline": [{"$set": {"a": {"$map": {"input": "$a", "in": {"$add": ["$$this", 1]}}}}}],
    "pipeline, $unset": [{"$unset": [f"f{number}" for number in range(0, LENGTH, 30)]}],
    "pipeline, $replaceWith": [{"$replaceWith": {"$arrayToObject": {"$objectToArray": "$$ROOT"}}}],
}


@pytest.fixture(scope="module")
def document() -> bytes:
    return bson.encode({"a": NUMBERS, **{f"f{number}": number for number in range(LENGTH)}})


@pytest.mark.parametrize("name", LONG)
def test_long_updates_are_interrupted(name: str, document: bytes) -> None:
    update = LONG[name]
    raw: Any = [bson.encode(stage) for stage in update] if isinstance(update, list) else bson.encode(update)
    driver = parse_update(raw, ParseContext(1_700_000_000_123))
    with measured() as gaps:
        driver.apply(document, None, False)
    assert gaps.count > MIN_CHECKS
    assert gaps.longest_s <= MAX_GAP_S
