"""No modifier goes on for long without a check, whatever number of fields, elements or paths a client sends.

Each registered modifier has examples.
"""

import functools
from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.document.types import DOCUMENT
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.update import new_document_for_upsert, parse_update
from mongottl.query.update.arrays import Item
from mongottl.query.update.push import parse_sort_clause
from mongottl.query.update.registry import modifiers
from tests.gaps import ELEMENTS, STALL_S, longest_stall_s

pytestmark = pytest.mark.slow

LENGTH = ELEMENTS
NUMBERS = [*range(LENGTH)]
FIELDS = [f"f{number}" for number in NUMBERS]
LONG: dict[str, Any] = {
    "a": NUMBERS,
    "docs": [{"n": number, "list": [number]} for number in NUMBERS],
    "wide": dict.fromkeys(FIELDS, 1),
    "text": "ab" * (1 << 19),
    "one": 1,
}
NEW_FIELDS: dict[str, Any] = dict.fromkeys(FIELDS, 1)
OLD_FIELDS: dict[str, Any] = {f"wide.{field}": 2 for field in FIELDS}
EACH_ELEMENT: dict[str, Any] = {f"a.{number}": 2 for number in NUMBERS}

# By name, updates of a document with the fields of `LONG` that they name first.
EXAMPLES: dict[str, list[Any]] = {
    "$addToSet": [
        {"$addToSet": {"a": -1}},
        {"$addToSet": {"a": {"$each": [-number for number in NUMBERS]}}},
        {"$addToSet": {"docs": {"$each": [{"n": -number} for number in NUMBERS]}}},
        {"$addToSet": {f"x{field}": 1 for field in FIELDS}},
    ],
    "$bit": [{"$bit": {"a.$[]": {"or": 1 << 20}}}, {"$bit": {field: {"or": 1} for field in FIELDS}}],
    "$currentDate": [{"$currentDate": NEW_FIELDS}, {"$currentDate": {"docs.$[].at": True}}],
    "$inc": [{"$inc": {"a.$[]": 1}}, {"$inc": OLD_FIELDS}, {"$inc": {"docs.$[].n": 1}}, {"$inc": EACH_ELEMENT}],
    "$max": [{"$max": {"a.$[]": LENGTH}}, {"$max": {"one": NUMBERS}}],
    "$min": [{"$min": {"a.$[]": -1}}, {"$min": {"a": [*range(LENGTH - 1), -1]}}],
    "$mul": [{"$mul": {"a.$[]": 2}}, {"$mul": NEW_FIELDS}],
    "$pop": [{"$pop": {"a": -1}}, {"$pop": {"docs": 1}}, {"$pop": {"docs.$[].list": 1}}],
    "$pull": [
        {"$pull": {"a": {"$gt": 5}}},
        {"$pull": {"docs": {"n": {"$in": [-number for number in NUMBERS]}}}},
        {"$pull": {"a": 7}},
    ],
    "$pullAll": [
        {"$pullAll": {"a": [-number for number in NUMBERS]}},
        {"$pullAll": {"docs": [{"n": -number} for number in range(1_000)]}},
    ],
    "$push": [
        {"$push": {"a": -1}},
        {"$push": {"a": {"$each": NUMBERS, "$position": 0}}},
        {"$push": {"a": {"$each": NUMBERS, "$sort": -1, "$slice": 100}}},
        {"$push": {"docs": {"$each": [], "$sort": {"n": -1}}}},
        {"$push": {"docs.$[].list": 1}},
    ],
    "$pushAll": [],
    "$rename": [{"$rename": {f"wide.{field}": f"x.{field}" for field in FIELDS}}, {"$rename": {"wide": "x"}}],
    "$set": [
        {"$set": NEW_FIELDS},
        {"$set": OLD_FIELDS},
        {"$set": EACH_ELEMENT},
        {"$set": {"one": NUMBERS}},
        {"$set": {"docs.$[].n": 5}},
        {"$set": {f"x.{field}.y": 1 for field in FIELDS}},
        {"$set": {"text": "b"}},
    ],
    "$setOnInsert": [{"$setOnInsert": NEW_FIELDS}],
    "$unset": [{"$unset": OLD_FIELDS}, {"$unset": EACH_ELEMENT}, {"$unset": {"docs.$[].n": 1}}],
}
EXAMPLES.pop("$pushAll")
# Other forms of updates. An array filter stands in `_filters`.
FORMS: dict[str, Any] = {
    "replacement": NEW_FIELDS,
    "array filter": {"$set": {"a.$[e]": 0}, "_filters": [{"e": {"$gt": 5}}]},
    "array filter of documents": {"$inc": {"docs.$[e].n": 1}, "_filters": [{"e.n": {"$lt": 50_000}}]},
    "pipeline": [{"$set": {"a": {"$map": {"input": "$a", "in": {"$add": ["$$this", 1]}}}}}],
    "pipeline of new fields": [{"$set": NEW_FIELDS}],
    "pipeline that removes fields": [{"$unset": [f"wide.{field}" for field in FIELDS]}],
    "pipeline that replaces": [{"$replaceWith": {"$arrayToObject": {"$objectToArray": "$wide"}}}],
    "pipeline that projects": [{"$project": {"docs.n": 1}}],
}
CASES = {
    **{f"{name} {i}": each for name, examples in EXAMPLES.items() for i, each in enumerate(examples)},
    **FORMS,
}


@functools.cache
def document_with(fields: tuple[str, ...]) -> bytes:
    return bson.encode({"_id": 1, **{name: LONG[name] for name in fields}})


def test_every_modifier_has_examples() -> None:
    assert EXAMPLES.keys() == set(modifiers.names())


@pytest.mark.parametrize("name", CASES)
def test_no_update_stalls_others(name: str) -> None:
    assert longest_stall_s(computation(name)) <= STALL_S


def computation(name: str) -> Callable[[], object]:
    update = CASES[name]
    text = repr(update)[:2_000]
    named = [name for name in LONG if f"'{name}" in text or f"${name}" in text]
    document = document_with(tuple(named))
    filters: Any = []
    if isinstance(update, dict):
        filters = [bson.encode(filter) for filter in update.get("_filters", [])]
        update = {key: value for key, value in update.items() if key != "_filters"}
    raw: Any = [bson.encode(stage) for stage in update] if isinstance(update, list) else bson.encode(update)

    def compute() -> object:
        driver = parse_update(raw, ParseContext(1_700_000_000_123), array_filters=filters)
        return driver, driver.apply(document, None, False)

    return compute


# Filters of upserts.
FILTERS: dict[str, Any] = {
    "fields": NEW_FIELDS,
    "fields of documents": {f"{field}.x.y": 1 for field in FIELDS},
    "fields of one document": {f"x.{field}": 1 for field in FIELDS},
    "conflicting fields": {**NEW_FIELDS, f"{FIELDS[-1]}.x": 1},
}


@pytest.mark.parametrize("name", FILTERS)
def test_no_document_of_an_upsert_stalls_others(name: str) -> None:
    raw = bson.encode(FILTERS[name])
    update = bson.encode({"$set": {"new": 1}})

    def compute() -> object:
        ctx = ParseContext(1_700_000_000_123)
        filter = parse_match(raw, ctx)
        return filter, new_document_for_upsert(parse_update(update, ctx), filter, ctx)

    assert longest_stall_s(compute) <= STALL_S


# It takes longer to read them than to make something of them.
MANY_PATHS: dict[str, Any] = {f"x{number}": 1 for number in range(150_000)}


def test_a_sort_by_many_paths_stalls_nobody() -> None:
    pattern = bson.encode(MANY_PATHS)
    assert longest_stall_s(lambda: parse_sort_clause(pattern, None), measured_s=10.0) <= STALL_S


@pytest.mark.parametrize("document", [{"a": 1}, dict.fromkeys(FIELDS[:1_000], 1)])
def test_a_sort_of_documents_by_many_paths_stalls_nobody(document: dict[str, Any]) -> None:
    clause = parse_sort_clause(bson.encode(MANY_PATHS), None)
    items = [Item(DOCUMENT, bson.encode(document))] * 2
    assert longest_stall_s(lambda: clause.sorted(items)) <= STALL_S


def test_many_array_filters_that_match_one_element_stall_nobody() -> None:
    names = [f"i{number}" for number in range(LENGTH // 4)]
    raw = bson.encode({"$set": {f"a.$[{name}].{name}": 1 for name in reversed(names)}})
    filters = [bson.encode({name: {"$exists": True}}) for name in names]
    driver = parse_update(raw, ParseContext(1_700_000_000_123), array_filters=filters)
    document = bson.encode({"_id": 1, "a": [{"x": 1}]})
    assert longest_stall_s(lambda: driver.apply(document, None, False)) <= STALL_S
