"""Replacements, pipelines, and the documents of upserts."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Regex, Timestamp

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.update import UpdateOutcome, parse_update

Update = Callable[..., UpdateOutcome]
Refusal = Callable[..., CommandError]
Upsert = Callable[[Any, Any], bytes]


@pytest.mark.parametrize(
    ("update", "after"),
    [
        ({}, {"_id": 1}),
        ({"x": 1}, {"_id": 1, "x": 1}),
        ({"x": 1, "_id": 1}, {"_id": 1, "x": 1}),
        ({"_id": 1.0}, {"_id": 1.0}),
        ({"a": {"$b": 1}}, {"_id": 1, "a": {"$b": 1}}),
        ({"a": 5}, {"_id": 1, "a": 5}),
        (
            {"t": Timestamp(0, 0), "u": Timestamp(0, 0)},
            {"_id": 1, "t": Timestamp(1700000000, 1), "u": Timestamp(1700000000, 2)},
        ),
        ([{"$set": {"b": {"$add": ["$a", 1]}}}, {"$unset": "a"}], {"_id": 1, "b": 6}),
        ([{"$replaceWith": {"x": "$a"}}], {"_id": 1, "x": 5}),
        ([{"$project": {"_id": 0, "z": "$a"}}], {"_id": 1, "z": 5}),
        ([{"$addFields": {"a": {"$multiply": ["$a", 2]}}}, {"$set": {"b": "$a"}}], {"_id": 1, "a": 10, "b": 10}),
    ],
)
def test_whole_documents(apply: Update, update: Any, after: Any) -> None:
    outcome = apply({"_id": 1, "a": 5}, update)
    assert outcome.modified
    assert outcome.document == bson.encode(after)


@pytest.mark.parametrize("update", [{"_id": 1, "a": 5}, [], [{"$set": {"a": 5}}]])
def test_identical_documents_are_no_change(apply: Update, update: Any) -> None:
    assert not apply({"_id": 1, "a": 5}, update).modified


@pytest.mark.parametrize(
    ("update", "code"),
    [
        ({"_id": 2}, 66),
        ({"x": 1, "$y": 2}, 52),
        ({"_id": 1, "x": 1, "$y": 2}, 52),
        ([{"$set": {"_id": 2}}], 66),
        ([{"$match": {}}], 72),
        ([{"$nope": 1}], 40324),
    ],
)
def test_whole_documents_refused(refuse: Refusal, update: Any, code: int) -> None:
    assert refuse({"_id": 1, "a": 5}, update).code == code


def test_new_id_is_named(refuse: Refusal) -> None:
    assert refuse({"_id": 1}, {"_id": 2}).message == (
        "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2"
    )


@pytest.mark.parametrize(
    ("update", "filters", "multi"),
    [
        ({"a": 1}, [{"e": 1}], False),
        ([], [{"e": 1}], False),
        ({"a": 1}, [], True),
        (5, [], False),
    ],
)
def test_options_that_do_not_fit(update: Any, filters: Any, multi: bool) -> None:
    raw = bson.encode(update) if isinstance(update, dict) else update
    with pytest.raises(CommandError) as caught:
        parse_update(raw, ParseContext(), [bson.encode(one) for one in filters], multi)
    assert caught.value.code == 9


@pytest.mark.parametrize(
    ("query", "update", "document"),
    [
        ({}, {"$set": {"a": 1}}, {"a": 1}),
        ({"b": 1, "a": 2}, {"$set": {"c": 3}}, {"a": 2, "b": 1, "c": 3}),
        ({"b": 1, "_id": 2}, {"$setOnInsert": {"c": 3}}, {"_id": 2, "b": 1, "c": 3}),
        ({"a.b": 1, "a.c": 2, "d.0": 3}, {"$set": {"a.x": 4}}, {"a": {"b": 1, "c": 2, "x": 4}, "d": {"0": 3}}),
        ({"a": {"$gt": 1}, "b": {"$eq": 2}}, {"$inc": {"n": 1}}, {"b": 2, "n": 1}),
        ({"$and": [{"a": 1}, {"b": 2}]}, {"$inc": {"a": 1}}, {"a": 2, "b": 2}),
        ({"a": {"$in": [7]}}, {"$set": {"b": 1}}, {"a": 7, "b": 1}),
        ({"a": Regex("x")}, {"$set": {"b": 1}}, {"b": 1}),
        ({"a": 1}, {"$rename": {"a": "b"}}, {"b": 1}),
        ({"a": 1}, {"$unset": {"a": 1}}, {}),
        ({"a": 1}, {"$setOnInsert": {"_id": 5}}, {"_id": 5, "a": 1}),
        ({"_id": 1}, {"$setOnInsert": {"$x": 1}}, {"_id": 1, "$x": 1}),
        ({"l": [1, 2]}, {"$set": {"l.$[]": 0}}, {"l": [0, 0]}),
        ({"_id": 1, "a": 2}, {"b": 3}, {"_id": 1, "b": 3}),
        ({"a": 2}, {"b": 3, "_id": 4}, {"_id": 4, "b": 3}),
        ({"a": 2}, {"b": 3}, {"b": 3}),
        # Of the filter a replacement takes `_id` alone: what it says of other paths may contradict itself.
        ({"$and": [{"a": 1}, {"a": 1}]}, {"b": 3}, {"b": 3}),
        ({"_id": 1, "a": 1, "a.b": 2}, {"b": 3}, {"_id": 1, "b": 3}),
        ({"$and": [{"_id": 1}, {"a": 1}, {"a": 2}]}, {"b": 3}, {"_id": 1, "b": 3}),
        ({"_id": 1, "a": 2}, [{"$set": {"b": "$a"}}], {"_id": 1, "a": 2, "b": 2}),
    ],
)
def test_upserted_documents(upsert: Upsert, query: Any, update: Any, document: Any) -> None:
    assert upsert(query, update) == bson.encode(document)


@pytest.mark.parametrize(
    ("query", "update", "code"),
    [
        ({"_id": 1}, {"$set": {"_id": 2}}, 66),
        ({"_id": 1}, {"$setOnInsert": {"_id": 2}}, 66),
        ({"_id.a": 1}, {"$setOnInsert": {"_id.b": 2}}, 66),
        ({"_id": 1}, {"_id": 2}, 66),
        ({"_id.a": 1}, {"x": 2}, 111),
        ({"$and": [{"_id.a": 1}, {"_id": 2}]}, {"x": 2}, 111),
        ({"$and": [{"_id": 1}, {"_id": 1}]}, {"x": 2}, 54),
        ({"$and": [{"a": 1}, {"a": 1}]}, [{"$set": {"x": 1}}], 54),
        ({"$and": [{"a": 1}, {"a": 2}]}, {"$set": {"x": 1}}, 54),
        ({"a": 1, "a.b": 2}, {"$set": {"x": 1}}, 54),
        ({"a": 5}, {"$set": {"a.$": 1}}, 2),
        ({"a": {"$gt": 5}}, {"$set": {"l.$[]": 1}}, 2),
        ({"a": 5}, {"$set": {"a.b": 1}}, 28),
        ({}, {"$set": {"_id": [1]}}, 53),
        ({}, {"_id": Regex("a")}, 53),
        ({}, {"$set": {"_id": {"$a": 1}}}, 52),
    ],
)
def test_upserts_refused(upsert: Upsert, query: Any, update: Any, code: int) -> None:
    with pytest.raises(CommandError) as caught:
        upsert(query, update)
    assert caught.value.code == code


def test_documents_may_not_outgrow_the_limit(refuse: Refusal) -> None:
    half = "x" * (9 * 1024 * 1024)
    assert refuse({"_id": 1, "a": half}, {"$set": {"b": half}}).code == 17419
