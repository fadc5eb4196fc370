"""$replaceRoot, $replaceWith, $unset, $unwind and $redact: the examples of MongoDB's reference, and corners."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Int64

Documents = list[dict[str, Any]]
Aggregate = Callable[..., Documents]

PEOPLE: Documents = [
    {"_id": 1, "name": "Arlene", "age": 34, "pets": {"dogs": 2, "cats": 1}},
    {"_id": 2, "name": "Sam", "age": 41, "pets": {"cats": 1, "fish": 3}},
    {"_id": 3, "name": "Maria", "age": 25},
]
NO_PETS = {"dogs": 0, "cats": 0, "birds": 0, "fish": 0}

ROOTS: list[tuple[Documents, Any, Documents]] = [
    # a default under what may be missing
    (
        PEOPLE,
        {"$mergeObjects": [NO_PETS, "$pets"]},
        [{**NO_PETS, "dogs": 2, "cats": 1}, {**NO_PETS, "cats": 1, "fish": 3}, NO_PETS],
    ),
    (PEOPLE[:2], "$pets", [{"dogs": 2, "cats": 1}, {"cats": 1, "fish": 3}]),
    (
        [{"_id": 1, "first_name": "Gary", "last_name": "Sheffield", "city": "New York"}],
        {"full_name": {"$concat": ["$first_name", " ", "$last_name"]}},
        [{"full_name": "Gary Sheffield"}],
    ),
    (
        [{"_id": 1, "name": "Fred", "email": "fred@example.net"}, {"_id": 2, "name": "Frank N. Stine", "cell": "012"}],
        {"$mergeObjects": [{"_id": "", "name": "", "email": "", "cell": "", "home": ""}, "$$ROOT"]},
        [
            {"_id": 1, "name": "Fred", "email": "fred@example.net", "cell": "", "home": ""},
            {"_id": 2, "name": "Frank N. Stine", "email": "", "cell": "012", "home": ""},
        ],
    ),
    (PEOPLE[2:], "$$ROOT", PEOPLE[2:]),
    (PEOPLE[2:], "$$CURRENT", PEOPLE[2:]),
    (PEOPLE[:1], {}, [{}]),
    (PEOPLE[:1], {"pets": "$pets.birds", "n": 1}, [{"n": 1}]),
    (PEOPLE[:1], {"$literal": {"a": "$name"}}, [{"a": "$name"}]),
    (PEOPLE[:1], {"_id": "$name", "at": "$$NOW"}, [{"_id": "Arlene", "at": bson.DatetimeMS(1_700_000_000_000)}]),
    (PEOPLE[:1], {"l": ["$age", "$none", {"a": "$age"}]}, [{"l": [34, None, {"a": 34}]}]),
    ([{"l": [{"x": 1}, {"x": 2}]}], {"$arrayElemAt": ["$l", -1]}, [{"x": 2}]),
    ([{"a": {"b": {"c": 1}}}], "$a.b", [{"c": 1}]),
    ([], "$anything", []),
]


@pytest.mark.parametrize(("documents", "root", "expected"), ROOTS)
def test_new_roots(aggregate: Aggregate, documents: Documents, root: Any, expected: Documents) -> None:
    for stage in ({"$replaceRoot": {"newRoot": root}}, {"$replaceWith": root}):
        assert list(map(bson.encode, aggregate(documents, stage))) == list(map(bson.encode, expected))


@pytest.mark.parametrize("root", ["$pets", "$name", "$none", None, 1, "text", [], "$$REMOVE", {"$add": [1, 2]}, "$a.b"])
def test_roots_that_are_no_documents(refused: Callable[..., int], root: Any) -> None:
    for stage in ({"$replaceRoot": {"newRoot": root}}, {"$replaceWith": root}):
        assert refused([{"name": "x", "a": [{"b": {}}]}], stage) == 40228


def test_the_best_grades(aggregate: Aggregate) -> None:
    students: Documents = [
        {"_id": 1, "grades": [{"test": 1, "grade": 80}, {"test": 2, "grade": 90}, {"test": 3, "grade": 95}]},
        {"_id": 2, "grades": [{"test": 1, "grade": 90}, {"test": 2, "grade": 87}, {"test": 3, "grade": 91}]},
    ]
    stages = [{"$unwind": "$grades"}, {"$match": {"grades.grade": {"$gte": 90}}}, {"$replaceWith": "$grades"}]
    assert [(doc["test"], doc["grade"]) for doc in aggregate(students, *stages)] == [(2, 90), (3, 95), (1, 90), (3, 91)]


BOOK: dict[str, Any] = {
    "_id": 1,
    "title": "Antelope Antics",
    "isbn": "0001122223334",
    "author": {"last": "An", "first": "Auntie"},
    "copies": [{"warehouse": "A", "qty": 5}, {"warehouse": "B", "qty": 15}],
}


def book(*left_out: str, **changed: Any) -> dict[str, Any]:
    return {name: value for name, value in {**BOOK, **changed}.items() if name not in left_out}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("copies", book("copies")),
        (["copies"], book("copies")),
        (["isbn", "copies"], book("isbn", "copies")),
        (
            ["isbn", "author.first", "copies.warehouse"],
            book("isbn", author={"last": "An"}, copies=[{"qty": 5}, {"qty": 15}]),
        ),
        ("_id", book("_id")),
        ("none", BOOK),
        ("title.none", BOOK),
        ("copies.0", BOOK),  # no path of an aggregation counts the elements of an array
        (["author.last", "author.first"], book(author={})),
        (["copies.qty", "copies.warehouse"], book(copies=[{}, {}])),
    ],
)
def test_unset(aggregate: Aggregate, paths: Any, expected: dict[str, Any]) -> None:
    assert aggregate([BOOK], {"$unset": paths}) == [expected]


SHIRTS: Documents = [
    {"_id": 1, "item": "Shirt", "sizes": ["S", "M", "L"]},
    {"_id": 2, "item": "Shorts", "sizes": []},
    {"_id": 3, "item": "Hat", "sizes": "M"},
    {"_id": 4, "item": "Gloves"},
    {"_id": 5, "item": "Scarf", "sizes": None},
]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("$sizes", [(1, "S"), (1, "M"), (1, "L"), (3, "M")]),
        ({"path": "$sizes"}, [(1, "S"), (1, "M"), (1, "L"), (3, "M")]),
        (
            {"path": "$sizes", "preserveNullAndEmptyArrays": True},
            [(1, "S"), (1, "M"), (1, "L"), (2, ...), (3, "M"), (4, ...), (5, None)],
        ),
        (
            {"path": "$sizes", "includeArrayIndex": "at"},
            [(1, "S", Int64(0)), (1, "M", Int64(1)), (1, "L", Int64(2)), (3, "M", None)],
        ),
        (
            {"path": "$sizes", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "at"},
            [(1, "S", 0), (1, "M", 1), (1, "L", 2), (2, ..., None), (3, "M", None), (4, ..., None), (5, None, None)],
        ),
        ("$none", []),
        ("$sizes.x", []),
    ],
)
def test_unwind(aggregate: Aggregate, stage: Any, expected: list[Any]) -> None:
    found = aggregate(SHIRTS, {"$unwind": stage})
    rows = [(doc["_id"], doc.get("sizes", ...), *([doc["at"]] if "at" in doc else [])) for doc in found]
    assert rows == expected
    assert all(doc.get("at") is None or isinstance(doc["at"], Int64) for doc in found)


def test_unwind_twice_and_one_level_at_a_time(aggregate: Aggregate) -> None:
    sales: Documents = [{"items": [{"n": "pens", "tags": ["a", "b"]}, {"n": "bag", "tags": ["b"]}]}]
    counted = aggregate(sales, {"$unwind": "$items"}, {"$unwind": "$items.tags"}, {"$sortByCount": "$items.tags"})
    assert counted == [{"_id": "b", "count": 2}, {"_id": "a", "count": 1}]
    assert aggregate([{"l": [[1, 2], []]}], {"$unwind": "$l"}) == [{"l": [1, 2]}, {"l": []}]
    assert aggregate([{"l": [[1, 2], []]}], {"$unwind": "$l"}, {"$unwind": "$l"}) == [{"l": 1}, {"l": 2}]


REPORT: dict[str, Any] = {
    "_id": 1,
    "title": "123 Department Report",
    "tags": ["G", "STLW"],
    "subsections": [
        {"subtitle": "Section 1: Overview", "tags": ["SI", "G"], "content": "1"},
        {"subtitle": "Section 2: Analysis", "tags": ["STLW"], "content": "2"},
        {"subtitle": "Section 3: Budgeting", "tags": ["TK"], "content": {"text": "3", "tags": ["HCS"]}},
    ],
}
SHARED = {"$gt": [{"$size": {"$setIntersection": ["$tags", ["STLW", "G"]]}}, 0]}
ACCOUNT: dict[str, Any] = {
    "_id": 1,
    "level": 1,
    "acct_id": "xyz123",
    "cc": {"level": 5, "type": "yy", "billing_addr": {"level": 5}, "shipping_addr": [{"level": 3}, {"level": 3}]},
    "status": "A",
}


def keeping(condition: Any, then: str = "$$DESCEND", otherwise: str = "$$PRUNE") -> Any:
    return {"$cond": {"if": condition, "then": then, "else": otherwise}}


@pytest.mark.parametrize(
    ("document", "expression", "expected"),
    [
        (REPORT, keeping(SHARED), [{**REPORT, "subsections": REPORT["subsections"][:2]}]),
        (
            ACCOUNT,
            keeping({"$eq": ["$level", 5]}, "$$PRUNE", "$$DESCEND"),
            [{"_id": 1, "level": 1, "acct_id": "xyz123", "status": "A"}],
        ),
        (ACCOUNT, keeping({"$eq": ["$level", 1]}, "$$KEEP"), [ACCOUNT]),
        (ACCOUNT, keeping({"$eq": ["$level", 5]}), []),
        # descending asks every document in turn, also in arrays and arrays of arrays, and leaves other values
        ({"a": {"x": 1}, "b": 2}, keeping({"$ne": ["$x", 1]}), [{"b": 2}]),
        ({"l": [{"x": 1}, {"x": 2}, 3, "x"]}, keeping({"$ne": ["$x", 1]}), [{"l": [{"x": 2}, 3, "x"]}]),
        ({"l": [[{"x": 1}, {"x": 2}], [{"x": 1}]]}, keeping({"$ne": ["$x", 1]}), [{"l": [[{"x": 2}], []]}]),
        # keeping does not look inside
        ({"a": {"x": 1, "b": {"x": 0}}}, {"$cond": ["$x", "$$KEEP", "$$DESCEND"]}, [{"a": {"x": 1, "b": {"x": 0}}}]),
        # $$ROOT stays the whole document, paths start at the one that is asked
        ({"who": 1, "a": {"of": 1}, "b": {"of": 2}}, keeping({"$in": ["$of", [None, "$$ROOT.who"]]}), []),
        (
            {"who": 1, "a": {"of": 1}, "b": {"of": 2}},
            keeping({"$in": [{"$ifNull": ["$of", "$$ROOT.who"]}, ["$$ROOT.who"]]}),
            [{"who": 1, "a": {"of": 1}}],
        ),
        ({"a": {}}, "$$DESCEND", [{"a": {}}]),
    ],
)  # fmt: skip
def test_redact(aggregate: Aggregate, document: dict[str, Any], expression: Any, expected: Documents) -> None:
    assert aggregate([document], {"$redact": expression}) == expected


@pytest.mark.parametrize("expression", [1, "text", "$a", None, {}, {"$literal": "$$KEEP"}, ["$$KEEP"]])
def test_redact_gives_one_of_three_decisions(refused: Callable[..., int], expression: Any) -> None:
    assert refused([{"a": 1}], {"$redact": expression}) == 17053
