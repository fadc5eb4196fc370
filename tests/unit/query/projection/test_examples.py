"""Examples of MongoDB's reference for projections, and corners of their operators. Documents compared byte by byte."""

from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.match.tree import MatchDetails
from mongottl.query.projection import parse_projection

INVENTORY: dict[str, Any] = {
    "_id": 1,
    "item": "journal",
    "status": "A",
    "size": {"h": 14, "w": 21, "uom": "cm"},
    "instock": [{"warehouse": "A", "qty": 5}],
}
POST: dict[str, Any] = {
    "_id": 1,
    "title": "Bagels are not croissants.",
    "comments": [{"comment": "0. true"}, {"comment": "1. croissants aren't bagels."}],
}
SCHOOL: dict[str, Any] = {
    "_id": 1,
    "zipcode": "63109",
    "students": [
        {"name": "john", "school": 102, "age": 10},
        {"name": "jess", "school": 102, "age": 11},
        {"name": "jeff", "school": 108, "age": 15},
    ],
    "athletics": ["tennis", "chess"],
}
STUDENT: dict[str, Any] = {"_id": 7, "semester": 1, "grades": [70, 87, 90]}


def projected(document: Any, spec: Any, query: Any = None) -> bytes:
    raw = bson.encode(document)
    details = None
    if query is not None:
        details = MatchDetails()
        assert parse_match(bson.encode(query), ParseContext()).matches_positional(raw, details)
    return parse_projection(bson.encode(spec), ParseContext(), True).apply(raw, details)


def kept(document: dict[str, Any], *names: str, **changed: Any) -> dict[str, Any]:
    return {name: changed.get(name, value) for name, value in document.items() if name in ("_id", *names, *changed)}


EXAMPLES: list[tuple[Any, Any, Any]] = [
    (INVENTORY, {"item": 1, "status": 1}, kept(INVENTORY, "item", "status")),
    (INVENTORY, {"item": 1, "status": 1, "_id": 0}, {"item": "journal", "status": "A"}),
    (INVENTORY, {"status": 0, "instock": 0}, kept(INVENTORY, "item", "size")),
    (INVENTORY, {"item": 1, "status": 1, "size.uom": 1}, kept(INVENTORY, "item", "status", size={"uom": "cm"})),
    (INVENTORY, {"item": 1, "status": 1, "size": {"uom": 1}}, kept(INVENTORY, "item", "status", size={"uom": "cm"})),
    (INVENTORY, {"size.uom": 0}, {**INVENTORY, "size": {"h": 14, "w": 21}}),
    (INVENTORY, {"item": 1, "instock.qty": 1}, kept(INVENTORY, "item", instock=[{"qty": 5}])),
    (INVENTORY, {"item": 1, "instock": {"$slice": -1}}, kept(INVENTORY, "item", "instock")),
    (
        INVENTORY,
        {
            "_id": 0,
            "item": 1,
            "status": {"$switch": {"branches": [{"case": {"$eq": ["$status", "A"]}, "then": "Available"}],
                                   "default": "No status found"}},
            "area": {"$concat": [{"$toString": {"$multiply": ["$size.h", "$size.w"]}}, " ", "$size.uom"]},
            "reportNumber": {"$literal": 1},
        },
        {"item": "journal", "status": "Available", "area": "294 cm", "reportNumber": 1},
    ),
    (INVENTORY, {"item": {"$toUpper": "$item"}}, {"_id": 1, "item": "JOURNAL"}),
    (INVENTORY, {"item": 0, "size": {"h": 0}}, kept(INVENTORY, "status", "instock", size={"w": 21, "uom": "cm"})),
    # $slice alone keeps the rest; with an inclusion it does not
    (POST, {"comments": {"$slice": 1}}, {**POST, "comments": POST["comments"][:1]}),
    (POST, {"comments": {"$slice": -1}}, {**POST, "comments": POST["comments"][1:]}),
    (POST, {"comments": {"$slice": [1, 3]}}, {**POST, "comments": POST["comments"][1:]}),
    (POST, {"comments": {"$slice": [-1, 3]}}, {**POST, "comments": POST["comments"][1:]}),
    (POST, {"comments": {"$slice": 1}, "title": 0}, {"_id": 1, "comments": POST["comments"][:1]}),
    (POST, {"comments": {"$slice": 1}, "_id": 1}, {"_id": 1, "comments": POST["comments"][:1]}),
    (POST, {"comments": {"$slice": 1}, "_id": 0}, {"title": POST["title"], "comments": POST["comments"][:1]}),
    # as an expression, $slice takes the array as its first argument
    (POST, {"first": {"$slice": ["$comments", 1]}}, {"_id": 1, "first": POST["comments"][:1]}),
    # $elemMatch: the first element, at the end
    (SCHOOL, {"students": {"$elemMatch": {"school": 102}}}, {"_id": 1, "students": SCHOOL["students"][:1]}),
    (SCHOOL, {"students": {"$elemMatch": {"school": 102, "age": {"$gt": 10}}}},
     {"_id": 1, "students": SCHOOL["students"][1:2]}),
    (SCHOOL, {"students": {"$elemMatch": {"school": 7}}}, {"_id": 1}),
    (SCHOOL, {"athletics": {"$elemMatch": {"$regex": "ss$"}}}, {"_id": 1, "athletics": ["chess"]}),
    (SCHOOL, {"zipcode": {"$elemMatch": {"$exists": True}}}, {"_id": 1}),
    (SCHOOL, {"students": {"$elemMatch": {"$or": [{"age": 15}, {"age": 11}]}}, "_id": 0},
     {"students": SCHOOL["students"][1:2]}),
    (SCHOOL, {"students": {"$elemMatch": {"age": 15}}, "athletics": 1},
     {"_id": 1, "athletics": SCHOOL["athletics"], "students": SCHOOL["students"][2:]}),
    (SCHOOL, {"students": {"$elemMatch": {"age": 15}}, "athletics": 0},
     {"_id": 1, "zipcode": "63109", "students": SCHOOL["students"][2:]}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "spec", "expected"), EXAMPLES)
def test_examples(document: Any, spec: Any, expected: Any) -> None:
    assert projected(document, spec) == bson.encode(expected)


@pytest.mark.parametrize(
    ("document", "query", "spec", "expected"),
    [
        (STUDENT, {"semester": 1, "grades": {"$gte": 85}}, {"grades.$": 1}, {"_id": 7, "grades": [87]}),
        (STUDENT, {"grades": {"$elemMatch": {"$gt": 87}}}, {"grades.$": 1, "_id": 0}, {"grades": [90]}),
        (STUDENT, {"grades": {"$in": [90, 87]}}, {"grades.$": True, "semester": 1},
         {"_id": 7, "semester": 1, "grades": [87]}),
        (SCHOOL, {"students": {"$elemMatch": {"school": 102, "age": {"$gt": 10}}}}, {"students.$": 1},
         {"_id": 1, "students": SCHOOL["students"][1:2]}),
        (SCHOOL, {"students.age": {"$gt": 10}}, {"students.$": 1}, {"_id": 1, "students": SCHOOL["students"][1:2]}),
        # the last condition on an array says which element
        ({"_id": 1, "a": [1, 2], "b": [3, 4]}, {"a": 2}, {"b.$": 1}, {"_id": 1, "b": [4]}),
        ({"_id": 1, "a": {"b": [5, 6]}}, {"a.b": 6}, {"a.b.$": 1}, {"_id": 1, "a": {"b": [6]}}),
        ({"_id": 1, "a": [[1, 2], [3]]}, {"a": {"$elemMatch": {"$elemMatch": {"$eq": 3}}}}, {"a.$": 1},
         {"_id": 1, "a": [[3]]}),
    ],
)  # fmt: skip
def test_the_element_that_the_query_found(document: Any, query: Any, spec: Any, expected: Any) -> None:
    assert projected(document, spec, query) == bson.encode(expected)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"comments": {"$slice": "1"}}, 28667),
        ({"comments": {"$slice": [1, 2, 3, 4]}}, 28667),
        ({"comments": {"$slice": [1]}}, 28667),
        ({"comments": {"$slice": [1, 0]}}, 28724),
        ({"comments": {"$slice": [1, -1]}}, 28724),
        ({"comments": {"$slice": 1}, "comments.x": 1}, 31249),
        ({"comments.$": 1, "comments": {"$slice": 1}}, 28667),
        ({"comments": {"$elemMatch": []}}, 31274),
        ({"comments": {"$elemMatch": {"$where": "1"}}}, 2),
        ({"a.b": {"$elemMatch": {}}}, 31275),
        ({"$": 1}, 16410),
    ],
)
def test_refused(spec: Any, code: int) -> None:
    with pytest.raises(CommandError) as caught:
        projected(POST, spec)
    assert caught.value.code == code


@pytest.mark.parametrize("included", [1, 0])
@pytest.mark.parametrize("prefix", ["", "a."])
def test_many_fields_are_projected_like_few(included: int, prefix: str) -> None:
    """Beyond some dozens of fields names are looked up in a set."""
    members = {f"f{i}": i for i in range(100)}
    document: dict[str, Any] = {"_id": 1, **members} if not prefix else {"_id": 1, "a": members}
    named = [f"f{i}" for i in range(0, 100, 2)]
    kept = {name: value for name, value in members.items() if (name in named) == bool(included)}
    expected: dict[str, Any] = {"_id": 1, **kept} if not prefix else {"_id": 1, "a": kept}
    assert projected(document, {prefix + name: included for name in named}) == bson.encode(expected)
