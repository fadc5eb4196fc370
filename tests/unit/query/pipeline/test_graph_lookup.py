"""$graphLookup: the examples of MongoDB's reference, and corners. In what order documents are found is open."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Int64

Documents = list[dict[str, Any]]
Aggregate = Callable[..., Documents]

EMPLOYEES: Documents = [
    {"_id": 1, "name": "Dev"},
    {"_id": 2, "name": "Eliot", "reportsTo": "Dev"},
    {"_id": 3, "name": "Ron", "reportsTo": "Eliot"},
    {"_id": 4, "name": "Andrew", "reportsTo": "Eliot"},
    {"_id": 5, "name": "Asya", "reportsTo": "Ron"},
    {"_id": 6, "name": "Dan", "reportsTo": "Andrew"},
]
AIRPORTS: Documents = [
    {"_id": 0, "airport": "JFK", "connects": ["BOS", "ORD"]},
    {"_id": 1, "airport": "BOS", "connects": ["JFK", "PWM"]},
    {"_id": 2, "airport": "ORD", "connects": ["JFK"]},
    {"_id": 3, "airport": "PWM", "connects": ["BOS", "LHR"]},
    {"_id": 4, "airport": "LHR", "connects": ["PWM"]},
]
PEOPLE: Documents = [
    {"_id": 1, "name": "Tanya", "friends": ["Shirley", "Terry", "Carole"], "hobbies": ["tennis", "golf"]},
    {"_id": 2, "name": "Carole", "friends": ["Joseph", "Tanya", "Terry"], "hobbies": ["archery", "golf"]},
    {"_id": 3, "name": "Terry", "friends": ["Tanya", "Carole", "Joseph"], "hobbies": ["knitting", "frisbee"]},
    {"_id": 4, "name": "Joseph", "friends": ["Carole", "Terry"], "hobbies": ["tennis", "golf", "topiary"]},
    {"_id": 5, "name": "Shirley", "friends": ["Tanya", "Carole"], "hobbies": ["frisbee", "tennis", "golf"]},
]


def test_reporting_lines(aggregate: Aggregate) -> None:
    stage = {
        "from": "employees",
        "startWith": "$reportsTo",
        "connectFromField": "reportsTo",
        "connectToField": "name",
        "as": "line",
    }
    found = aggregate(EMPLOYEES, {"$graphLookup": stage}, employees=EMPLOYEES)
    assert {document["name"]: {above["name"] for above in document["line"]} for document in found} == {
        "Dev": set(),
        "Eliot": {"Dev"},
        "Ron": {"Dev", "Eliot"},
        "Andrew": {"Dev", "Eliot"},
        "Asya": {"Dev", "Eliot", "Ron"},
        "Dan": {"Dev", "Eliot", "Andrew"},
    }


def test_destinations(aggregate: Aggregate) -> None:
    travelers: Documents = [{"name": "Dev", "nearest": "JFK"}, {"name": "Jeff", "nearest": "BOS"}]
    stage = {
        "from": "airports",
        "startWith": "$nearest",
        "connectFromField": "connects",
        "connectToField": "airport",
        "maxDepth": 2,
        "depthField": "numConnections",
        "as": "destinations",
    }
    found = aggregate(travelers, {"$graphLookup": stage}, airports=AIRPORTS)
    reached = [{to["airport"]: to["numConnections"] for to in traveler["destinations"]} for traveler in found]
    assert reached == [{"JFK": 0, "BOS": 1, "ORD": 1, "PWM": 2}, {"BOS": 0, "JFK": 1, "PWM": 1, "ORD": 2, "LHR": 2}]
    assert all(isinstance(depth, Int64) for depths in reached for depth in depths.values())


def test_connections_who_play_golf(aggregate: Aggregate) -> None:
    stage = {
        "from": "people",
        "startWith": "$friends",
        "connectFromField": "friends",
        "connectToField": "name",
        "as": "golfers",
        "restrictSearchWithMatch": {"hobbies": "golf"},
    }
    found = aggregate(PEOPLE[:1], {"$graphLookup": stage}, people=PEOPLE)
    assert {golfer["name"] for golfer in found[0]["golfers"]} == {"Joseph", "Tanya", "Carole", "Shirley"}


NODES: Documents = [
    {"_id": 0, "k": 0, "to": 1},
    {"_id": 1, "k": 1, "to": [2, 3]},
    {"_id": 2, "k": 2.0, "to": 0},
    {"_id": 3, "k": [3, 4]},
    {"_id": 4, "k": None, "to": None},
    {"_id": 5, "to": {"k": 1}},
    {"_id": 6, "k": 6, "to": 6, "o": [{"k": 1}, {"k": 4}]},
]


@pytest.mark.parametrize(
    ("start", "more", "found"),
    [
        (0, {}, [0, 1, 2, 3]),
        (Int64(2), {}, [0, 1, 2, 3]),  # numbers by value
        ([1, 6], {}, [0, 1, 2, 3, 6]),
        ([[1]], {}, []),  # one level of an array, as $in has it
        (4, {}, [3]),  # an element of an array is connected to
        (6, {}, [6]),  # itself, once
        (None, {}, [4, 5]),  # null is met by what is missing
        (0, {"maxDepth": 0}, [0]),
        (0, {"maxDepth": 1}, [0, 1]),
        (0, {"maxDepth": Int64(2)}, [0, 1, 2, 3]),
        (0, {"restrictSearchWithMatch": {"_id": {"$ne": 1}}}, [0]),
        (0, {"restrictSearchWithMatch": {"none": 1}}, []),
        (6, {"connectFromField": "o.k"}, [1, 3, 6]),
        ({"$add": ["$n", 1]}, {}, [0, 1, 2, 3]),
        (99, {}, []),
        ([], {}, []),
    ],
)
def test_search(aggregate: Aggregate, start: Any, more: dict[str, Any], found: list[int]) -> None:
    base = {"from": "nodes", "startWith": start, "connectFromField": "to", "connectToField": "k", "as": "all"}
    [document] = aggregate([{"n": 0}], {"$graphLookup": {**base, **more}}, nodes=NODES)
    assert sorted(node["_id"] for node in document["all"]) == found


def test_graph_lookup_sets_nested_fields(aggregate: Aggregate) -> None:
    base = {"from": "nodes", "startWith": 6, "connectFromField": "to", "connectToField": "k"}
    [document] = aggregate([{"_id": 1, "a": {"b": 1, "c": 2}}], {"$graphLookup": {**base, "as": "a.b"}}, nodes=NODES)
    assert document == {"_id": 1, "a": {"b": [NODES[6]], "c": 2}}
    stages = [{"$graphLookup": {**base, "as": "n", "depthField": "d.e"}}, {"$unwind": "$n"}]
    assert aggregate([{"_id": 1}], *stages, nodes=NODES) == [{"_id": 1, "n": {**NODES[6], "d": {"e": Int64(0)}}}]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"from": None}, 9),
        ({"from": 1}, 9),
        ({"as": "$a"}, 16410),
        ({"as": 1}, 40103),
        ({"connectFromField": "$to"}, 16410),
        ({"connectToField": ["k"]}, 40103),
        ({"maxDepth": "1"}, 40100),
        ({"maxDepth": -1}, 40101),
        ({"maxDepth": 1.5}, 40102),
        ({"depthField": 1}, 40103),
        ({"restrictSearchWithMatch": 1}, 40185),
        ({"restrictSearchWithMatch": {"$near": 1}}, 2),
        ({"other": 1}, 40104),
    ],
)
def test_refused(refused: Callable[..., int], change: dict[str, Any], code: int) -> None:
    base = {"from": "nodes", "startWith": 0, "connectFromField": "to", "connectToField": "k", "as": "all"}
    assert refused([{}], {"$graphLookup": {**base, **change}}, nodes=NODES) == code


@pytest.mark.parametrize("left_out", ["from", "startWith", "connectFromField", "connectToField", "as"])
def test_graph_lookup_requires_its_arguments(refused: Callable[..., int], left_out: str) -> None:
    base = {"from": "nodes", "startWith": 0, "connectFromField": "to", "connectToField": "k", "as": "all"}
    stage = {name: value for name, value in base.items() if name != left_out}
    assert refused([{}], {"$graphLookup": stage}, nodes=NODES) == (9 if left_out == "from" else 40105)
