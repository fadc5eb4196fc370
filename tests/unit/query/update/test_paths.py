"""Positional paths, array filters, conflicts, malformed updates."""

from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.update import UpdateOutcome, parse_update
from mongottl.query.update.nodes import nulls_bytes

Update = Callable[..., UpdateOutcome]
Refusal = Callable[..., CommandError]

NESTED = {"_id": 1, "g": [{"k": 1, "l": [1, 2]}, {"k": 2, "l": [3, 4]}]}

CHANGES: list[tuple[Any, Any, Any, Any, Any]] = [
    # document, update, query, array filters, result
    ({"l": [4, 5, 6]}, {"$set": {"l.$": 0}}, {"l": 5}, [], {"l": [4, 0, 6]}),
    ({"l": [4, 5, 6]}, {"$inc": {"l.$": 1}}, {"l": {"$gt": 4}}, [], {"l": [4, 6, 6]}),
    ({"l": [{"x": 1}, {"x": 2}]}, {"$set": {"l.$.y": 0}}, {"l.x": 2}, [], {"l": [{"x": 1}, {"x": 2, "y": 0}]}),
    (
        {"l": [{"x": 1}, {"x": 2}]},
        {"$set": {"l.$.y": 0, "l.1.z": 3}},
        {"l.x": 2},
        [],
        {"l": [{"x": 1}, {"x": 2, "y": 0, "z": 3}]},
    ),
    ({"l": [{"x": 1}, {"x": 2}]}, {"$set": {"l.$.x": 0, "l.0": 3}}, {"l.x": 2}, [], {"l": [3, {"x": 0}]}),
    ({"l": [1, 2]}, {"$set": {"l.$[]": 0}}, None, [], {"l": [0, 0]}),
    ({"l": [{"x": 1}, {}]}, {"$inc": {"l.$[].x": 1}}, None, [], {"l": [{"x": 2}, {"x": 1}]}),
    ({"l": [1, 7, 9]}, {"$set": {"l.$[e]": 0}}, None, [{"e": {"$gt": 5}}], {"l": [1, 0, 0]}),
    ({"l": [1, 7, 9]}, {"$mul": {"l.$[a]": 2, "l.$[b]": 3}}, None, [{"a": 1}, {"b": 9}], {"l": [2, 7, 27]}),
    ({"l": [1, 7, 9]}, {"$unset": {"l.$[a]": 1}}, None, [{"$or": [{"a": 1}, {"a": 7}]}], {"l": [None, None, 9]}),
    ({"l": [[1, 2], [3]]}, {"$inc": {"l.$[].$[e]": 10}}, None, [{"e": {"$gte": 2}}], {"l": [[1, 12], [13]]}),
    (
        {"l": [{"a": 1}, {"a": 2}]},
        {"$set": {"l.$[e].b": 0, "l.$[f].c": 0}},
        None,
        [{"e.a": 1}, {"f.a": {"$lt": 3}}],
        {"l": [{"a": 1, "b": 0, "c": 0}, {"a": 2, "c": 0}]},
    ),
    (
        NESTED,
        {"$set": {"g.$[o].l.$[i]": 0}},
        None,
        [{"o.k": 2}, {"i": {"$gt": 3}}],
        {"_id": 1, "g": [{"k": 1, "l": [1, 2]}, {"k": 2, "l": [3, 0]}]},
    ),
    (
        NESTED,
        {"$push": {"g.$.l": 9}},
        {"g.k": 2},
        [],
        {"_id": 1, "g": [{"k": 1, "l": [1, 2]}, {"k": 2, "l": [3, 4, 9]}]},
    ),
    (NESTED, {"$pop": {"g.$[].l": 1}}, None, [], {"_id": 1, "g": [{"k": 1, "l": [1]}, {"k": 2, "l": [3]}]}),
    ({"l": []}, {"$set": {"l.$[]": 0, "n": 1}}, None, [], {"l": [], "n": 1}),
]


@pytest.mark.parametrize(("before", "update", "query", "filters", "after"), CHANGES)
def test_positional_changes(apply: Update, before: Any, update: Any, query: Any, filters: Any, after: Any) -> None:
    assert apply(before, update, query, filters).document == bson.encode(after)


ERRORS: list[tuple[Any, Any, Any, int]] = [
    # update, query, array filters, code
    ({"$set": {"": 1}}, None, [], 56),
    ({"$set": {"a..b": 1}}, None, [], 56),
    ({"$set": {".a": 1}}, None, [], 56),
    ({"$set": {"a.": 1}}, None, [], 56),
    ({"$set": {"$": 1}}, None, [], 2),
    ({"$set": {"$[]": 1}}, None, [], 2),
    ({"$set": {"$[e].a": 1}}, None, [{"e": 1}], 2),
    ({"$set": {"l.$.a.$": 1}}, {"l": 1}, [], 2),
    ({"$set": {"l.$": 1}}, None, [], 2),
    ({"$set": {"l.$": 1}}, {"n": 5}, [], 2),
    ({"$set": {"l.$": 1}}, {"l": {"$ne": 99}}, [], 2),
    ({"$set": {"n.$[]": 1}}, None, [], 2),
    ({"$set": {"x.$[]": 1}}, None, [], 2),
    ({"$set": {"l.$[e]": 1}}, None, [], 2),
    ({"$set": {"l.$[e]": 1}}, None, [{"f": 1}], 2),
    ({"$set": {"l.$[e]": 1}}, None, [{"e": 1}, {"f": 1}], 9),
    ({"$set": {"l.$[e]": 1}}, None, [{"e": 1}, {"e": 2}], 9),
    ({"$set": {"l.$[e]": 1}}, None, [{"e": 1, "f": 2}], 9),
    ({"$set": {"l.$[e]": 1}}, None, [{}], 9),
    ({"$set": {"l.$[E]": 1}}, None, [{"E": 1}], 2),
    ({"$set": {"l.$[1e]": 1}}, None, [{"1e": 1}], 2),
    ({"$set": {"l.$[e]": 1}}, None, [{"e": {"$bad": 1}}], 2),
    ({"$set": {"l.$[e]": 1}}, None, [{"$text": {"$search": "x"}}], 2),
    ({"$set": {"l.$[e]": 1}}, None, [{"e": {"$near": [0, 0]}}], 5626500),
    ({"$set": {"l.$[e]": 1}}, None, [{"$expr": True}], 224),
    ({"$set": {"l.$[e]": 1, "l.$[f]": 1}}, None, [{"e": 1}, {"f": {"$lt": 9}}], 40),
    ({"$set": {"l.$[]": 1, "l.$[e]": 1}}, None, [{"e": 1}], 40),
    ({"$set": {"l.$": 1, "l.0": 1}}, {"l": 1}, [], 40),
    ({"$set": {"a": 1, "a.b": 1}}, None, [], 40),
    ({"$set": {"a.b": 1, "a": 1}}, None, [], 40),
    ({"$set": {"a": 1}, "$inc": {"a": 1}}, None, [], 40),
    ({"$set": {"l.$[]": 1, "l.0": 1}}, None, [], 40),
    ({"$rename": {"a": "b", "b": "c"}}, None, [], 40),
    ({"$rename": {"a": "b"}, "$set": {"a": 1}}, None, [], 40),
    ({"$set": 5}, None, [], 9),
    ({"$set": {"a": 1}, "b": 2}, None, [], 9),
    ({"$pushAll": {"a": [1]}}, None, [], 9),
    ({"$foo": {}}, None, [], 9),
]


@pytest.mark.parametrize(("update", "query", "filters", "code"), ERRORS)
def test_paths_refused(refuse: Refusal, update: Any, query: Any, filters: Any, code: int) -> None:
    assert refuse({"_id": 1, "l": [1, 2], "n": 5}, update, query, filters).code == code


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"$set": {"a.b": 1, "a": 1}}, "Updating the path 'a' would create a conflict at 'a'"),
        ({"$set": {"a": 1, "a.b": 1}}, "Updating the path 'a.b' would create a conflict at 'a'"),
        (
            {"$pushAll": {"l": [1]}},
            "Unknown modifier: $pushAll. Expected a valid update modifier or pipeline-style update specified as an "
            "array",
        ),
        ({"$set": {"l.$[e]": 1}}, "No array filter found for identifier 'e' in path 'l.$[e]'"),
        ({"$set": {"x.$[]": 1}}, "The path 'x' must exist in the document in order to apply array updates."),
    ],
)
def test_wording(refuse: Refusal, update: Any, message: str) -> None:
    assert refuse({"_id": 1, "l": [1]}, update).message == message


def test_may_touch_includes_the_paths_of_an_update() -> None:
    driver = parse_update(bson.encode({"$set": {"a.b": 1, "l.$[].x": 2}, "$rename": {"p": "q.r"}}), ParseContext())
    assert driver.kind == "modifiers"
    assert not driver.needs_positional
    assert [driver.may_touch(path) for path in ("a", "a.b", "a.b.c", "a.c", "l.x", "l.0", "l.y", "p.z", "q", "z")] == (
        [True, True, True, False, True, True, False, True, True, False]
    )
    assert parse_update(bson.encode({"$set": {"l.$": 1}}), ParseContext()).needs_positional
    assert parse_update(bson.encode({"a": 1}), ParseContext()).may_touch("z")


@pytest.mark.parametrize(("first", "end"), [(0, 0), (5, 3), (0, 1), (0, 10), (9, 12), (7, 12_345), (99_990, 100_003)])
def test_size_of_nulls(first: int, end: int) -> None:
    assert nulls_bytes(first, end) == sum(len(b"\n%d\0" % index) for index in range(first, end))


@pytest.mark.slow
def test_nulls_of_all_arrays_are_limited_before_they_are_made(refuse: Refusal, apply: Update) -> None:
    largest = {"l": [1], "m": [{"l": []}, {"l": []}]}
    for paths in ({"l.1500000": 1, "l.2000000": 1, "l.2500000": 1}, {"l.1500000": 1, "m.$[].l.1500000": 1}):
        assert refuse(largest, {"$set": paths}).code == 17419
    assert len(apply({"l": [1]}, {"$set": {"l.2500": 1, "l.5000": 1}}).document) == (
        len(bson.encode({"l": [1] + [None] * 2499 + [1] + [None] * 2499 + [1]}))
    )
