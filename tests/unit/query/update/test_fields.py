"""$set, $unset, $min, $max, $currentDate, $setOnInsert, $rename."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, Regex, Timestamp
from bson.raw_bson import RawBSONDocument

from mongottl.errors import CommandError
from mongottl.query.update import UpdateOutcome

Update = Callable[..., UpdateOutcome]
Refusal = Callable[..., CommandError]
STAMP = Timestamp(1_700_000_000, 1)
NOW = datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_000)

CHANGES: list[tuple[Any, Any, Any]] = [
    # $set puts values, appends new fields in the order of their paths, makes the documents on the way
    ({"_id": 1, "a": 1}, {"$set": {"a": "x"}}, {"_id": 1, "a": "x"}),
    ({"_id": 1}, {"$set": {"c": 3, "a": 1, "b": 2}}, {"_id": 1, "a": 1, "b": 2, "c": 3}),
    ({"_id": 1}, {"$set": {"10": 1, "9": 2, "a": 3, "B": 4}}, {"_id": 1, "9": 2, "10": 1, "B": 4, "a": 3}),
    ({"_id": 1}, {"$set": {"p.q.r": 1, "p.b": 2}}, {"_id": 1, "p": {"b": 2, "q": {"r": 1}}}),
    ({"_id": 1, "p": {"q": 0, "z": 9}}, {"$set": {"p.q": 1, "p.n": 2}}, {"_id": 1, "p": {"q": 1, "z": 9, "n": 2}}),
    ({"_id": 1, "p": {}}, {"$set": {"p.0": 1}}, {"_id": 1, "p": {"0": 1}}),
    ({"_id": 1, "l": [5, 6]}, {"$set": {"l.1": 7}}, {"_id": 1, "l": [5, 7]}),
    ({"_id": 1, "l": [5]}, {"$set": {"l.3": 7}}, {"_id": 1, "l": [5, None, None, 7]}),
    ({"_id": 1, "l": []}, {"$set": {"l.2.x": 7}}, {"_id": 1, "l": [None, None, {"x": 7}]}),
    ({"_id": 1, "l": [{"x": 1}]}, {"$set": {"l.0.x": 2, "l.1": 3}}, {"_id": 1, "l": [{"x": 2}, 3]}),
    ({"_id": 1, "l": [0] * 11}, {"$set": {"l.10": 1, "l.9": 2}}, {"_id": 1, "l": [0] * 9 + [2, 1]}),
    ({"_id": 1, "p": {}}, {"$set": {"p.$q": 1}}, {"_id": 1, "p": {"$q": 1}}),
    ({"_id": 1, "a": 1}, {"$set": {"a": Int64(1)}}, {"_id": 1, "a": Int64(1)}),
    ({"_id": 1, "a": 1}, {"$set": {"_id": 1.0, "a": 2}}, {"_id": 1.0, "a": 2}),
    ({"_id": 1, "a": 1}, {"$set": {"a": {"$each": [1]}}}, {"_id": 1, "a": {"$each": [1]}}),
    # $unset removes, leaves null in arrays, and does not mind what is in the way
    ({"_id": 1, "a": 1, "b": 2}, {"$unset": {"a": ""}}, {"_id": 1, "b": 2}),
    ({"_id": 1, "p": {"a": 1}}, {"$unset": {"p.a": 1}}, {"_id": 1, "p": {}}),
    ({"_id": 1, "l": [1, 2]}, {"$unset": {"l.0": 1}}, {"_id": 1, "l": [None, 2]}),
    ({"_id": 1, "l": [{"a": 1}]}, {"$unset": {"l.0.a": 1}}, {"_id": 1, "l": [{}]}),
    ({"_id": 1, "l": [1], "a": 1}, {"$unset": {"l.a": 1, "a.b": 1, "a": 1}}, None),
    # $min and $max compare across types, in MongoDB's order
    ({"_id": 1, "n": 5}, {"$min": {"n": 3.5}}, {"_id": 1, "n": 3.5}),
    ({"_id": 1, "n": 5}, {"$max": {"n": Decimal128("5.5")}}, {"_id": 1, "n": Decimal128("5.5")}),
    ({"_id": 1}, {"$min": {"n": 4}}, {"_id": 1, "n": 4}),
    ({"_id": 1, "n": "a"}, {"$min": {"n": 10**9}}, {"_id": 1, "n": 10**9}),
    ({"_id": 1, "n": 7}, {"$max": {"n": "a"}}, {"_id": 1, "n": "a"}),
    ({"_id": 1, "n": None}, {"$max": {"n": -1}}, {"_id": 1, "n": -1}),
    ({"_id": 1, "n": 0}, {"$min": {"n": None}}, {"_id": 1, "n": None}),
    ({"_id": 1, "n": MaxKey()}, {"$min": {"n": MinKey()}}, {"_id": 1, "n": MinKey()}),
    ({"_id": 1, "n": [3]}, {"$max": {"n": [3, 0]}}, {"_id": 1, "n": [3, 0]}),
    ({"_id": 1, "n": 0.0}, {"$min": {"n": float("-inf")}}, {"_id": 1, "n": float("-inf")}),
    # $currentDate takes the operation's time
    ({"_id": 1}, {"$currentDate": {"t": True}}, {"_id": 1, "t": NOW}),
    ({"_id": 1}, {"$currentDate": {"t": False}}, {"_id": 1, "t": NOW}),
    ({"_id": 1, "t": 0}, {"$currentDate": {"t": {"$type": "date"}}}, {"_id": 1, "t": NOW}),
    (
        {"_id": 1},
        {"$currentDate": {"t.u": {"$type": "timestamp"}}},
        {"_id": 1, "t": {"u": Timestamp(1_700_000_000, 1)}},
    ),
    # $rename moves; a field that is there already keeps its place and gets the value
    ({"_id": 1, "a": 1, "b": 2}, {"$rename": {"a": "c"}}, {"_id": 1, "b": 2, "c": 1}),
    ({"_id": 1, "a": 1, "b": 2, "c": 3}, {"$rename": {"a": "b"}}, {"_id": 1, "b": 1, "c": 3}),
    ({"_id": 1, "p": {"a": 1}}, {"$rename": {"p.a": "q.b"}}, {"_id": 1, "p": {}, "q": {"b": 1}}),
    ({"_id": 1, "p": {"a": 1, "z": 2}}, {"$rename": {"p.a": "p.b"}}, {"_id": 1, "p": {"z": 2, "b": 1}}),
    ({"_id": 1, "a": [1, 2]}, {"$rename": {"a": "b"}}, {"_id": 1, "b": [1, 2]}),
    (
        {"_id": 1, "a": 1, "b": 2},
        {"$rename": {"a": "x", "b": "y"}, "$set": {"w": 0}},
        {"_id": 1, "w": 0, "x": 1, "y": 2},
    ),
]


@pytest.mark.parametrize(("before", "update", "after"), [case for case in CHANGES if case[2] is not None])
def test_fields_change(apply: Update, before: Any, update: Any, after: Any) -> None:
    outcome = apply(before, update)
    assert outcome.document == bson.encode(after)
    assert outcome.modified


UNCHANGED: list[tuple[Any, Any]] = [
    ({"_id": 1, "a": 1}, {"$set": {"a": 1}}),
    ({"_id": 1, "a": {"b": [1]}}, {"$set": {"a.b": [1], "_id": 1}}),
    ({"_id": 1}, {"$set": {}}),
    ({"_id": 1}, {"$setOnInsert": {"a": 1}}),
    ({"_id": 1, "a": 5}, {"$setOnInsert": {"a.b": 1, "_id": 7}}),
    ({"_id": 1, "a": 5, "l": [1]}, {"$unset": {"x": 1, "a.b": 1, "l.x": 1, "l.4": 1, "l.-1": 1}}),
    ({"_id": 1, "n": 3}, {"$min": {"n": 3.0}}),
    ({"_id": 1, "n": 3}, {"$max": {"n": Int64(3)}}),
    ({"_id": 1, "n": float("nan")}, {"$min": {"n": float("-inf")}}),
    ({"_id": 1, "a": 1}, {"$rename": {"x": "y"}}),
    ({"_id": 1, "a": 1}, {"$rename": {"$x": "y", "p.q": "a.b"}}),
]


@pytest.mark.parametrize(("before", "update"), UNCHANGED)
def test_fields_no_change(apply: Update, before: Any, update: Any) -> None:
    assert not apply(before, update).modified


def test_untouched_bytes_survive(apply: Update) -> None:
    """Duplicate fields, regex options and nested order stay as they are around a change; the first duplicate is set."""
    twice = b"".join([b"\x10d\x00\x01\x00\x00\x00", b"\x10d\x00\x02\x00\x00\x00"])
    rest = bson.encode({"r": Regex("x", 0), "o": {"z": 1, "a": 2}})[4:-1]
    size = 4 + len(twice) + len(rest) + 1
    document = size.to_bytes(4, "little") + twice + rest + b"\x00"
    outcome = apply(RawBSONDocument(document), {"$set": {"d": 9}})
    assert outcome.document == document.replace(b"\x10d\x00\x01", b"\x10d\x00\x09")


ERRORS: list[tuple[Any, Any, int]] = [
    ({"_id": 1, "a": 5}, {"$set": {"a.b": 1}}, 28),
    ({"_id": 1, "a": None}, {"$set": {"a.b": 1}}, 28),
    ({"_id": 1, "a": [1]}, {"$set": {"a.b": 1}}, 28),
    ({"_id": 1, "a": [1]}, {"$set": {"a.0.b": 1}}, 28),
    ({"_id": 1, "a": []}, {"$set": {"a.1500001": 1}}, 34),
    ({"_id": 1}, {"$set": {"_id": 2}}, 66),
    ({"_id": {"x": 1}}, {"$set": {"_id.x": 2}}, 66),
    ({"_id": {"x": 1}}, {"$set": {"_id.y": 2}}, 66),
    ({"_id": 1}, {"$set": {"_id.y": 2}}, 28),
    ({"_id": 1}, {"$unset": {"_id": ""}}, 66),
    ({"_id": 1}, {"$max": {"_id": 2}}, 66),
    ({"_id": 1}, {"$currentDate": {"_id": True}}, 66),
    ({"_id": 1}, {"$set": {"$x": 1}}, 52),
    ({"_id": 1}, {"$set": {"$x.y": 1}}, 52),
    ({"_id": 1, "a": 1}, {"$rename": {"a": "$x"}}, 52),
    ({"_id": 1}, {"$currentDate": {"a": 1}}, 2),
    ({"_id": 1}, {"$currentDate": {"a": {}}}, 2),
    ({"_id": 1}, {"$currentDate": {"a": {"$type": "Date"}}}, 2),
    ({"_id": 1}, {"$currentDate": {"a": {"$type": "date", "b": 1}}}, 2),
    ({"_id": 1}, {"$rename": {"a": 1}}, 2),
    ({"_id": 1}, {"$rename": {"a": "a"}}, 2),
    ({"_id": 1}, {"$rename": {"a": "a.b"}}, 2),
    ({"_id": 1}, {"$rename": {"a.b": "a"}}, 2),
    ({"_id": 1}, {"$rename": {"a": ""}}, 56),
    ({"_id": 1}, {"$rename": {"a": "b\0"}}, 9867600),
    ({"_id": 1}, {"$rename": {"a": "b..c"}}, 56),
    ({"_id": 1}, {"$rename": {"l.$": "b"}}, 2),
    ({"_id": 1}, {"$rename": {"a": "l.$[]"}}, 2),
    ({"_id": 1, "a": 1}, {"$rename": {"a.b": "c"}}, 28),
    ({"_id": 1, "a": 1, "b": 2}, {"$rename": {"a": "b.c"}}, 28),
    ({"_id": 1, "l": [1]}, {"$rename": {"l.0": "c"}}, 2),
    ({"_id": 1, "l": [{"x": 1}]}, {"$rename": {"l.0.x": "c"}}, 2),
    ({"_id": 1, "l": [1], "a": 1}, {"$rename": {"a": "l.0"}}, 2),
    ({"_id": 1, "l": [1], "a": 1}, {"$rename": {"a": "l.x"}}, 2),
    ({"_id": 1, "a": 1}, {"$rename": {"a": "_id"}}, 66),
    ({"_id": 1, "a": 1}, {"$rename": {"_id": "b"}}, 66),
]


@pytest.mark.parametrize(("before", "update", "code"), ERRORS)
def test_fields_refused(refuse: Refusal, before: Any, update: Any, code: int) -> None:
    assert refuse(before, update).code == code


def test_messages_name_path_and_element(refuse: Refusal) -> None:
    assert refuse({"_id": 1, "a": [1]}, {"$set": {"a.b": 1}}).message == "Cannot create field 'b' in element {a: [ 1 ]}"
    assert refuse({"_id": 1}, {"$set": {"_id": 2}}).message == (
        "Performing an update on the path '_id' would modify the immutable field '_id'"
    )
    assert refuse({"_id": 1, "p": {"a": 5}}, {"$pull": {"p.a.b": 1}}).message == (
        "Cannot use the part (b) of (p.a.b) to traverse the element ({a: 5})"
    )
