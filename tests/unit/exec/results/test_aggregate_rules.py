"""Rules of pipelines that depend on the command around them: first stages, hints, `let`, and what `$merge` inserts."""

from typing import Any

import pytest

from tests.running import Document, Running

POINT = {"type": "Point", "coordinates": [0, 0]}
NEAR = {"$geoNear": {"near": POINT, "distanceField": "d"}}


@pytest.fixture
def server() -> Running:
    running = Running()
    running.run({"createIndexes": "c", "indexes": [{"key": {"p": "2dsphere"}, "name": "p"}]})
    places = [{"_id": n, "p": {"type": "Point", "coordinates": [n, 0]}} for n in (2, 1, 3)]
    running.run({"insert": "c", "documents": places})
    return running


def results(server: Running, *stages: Document, **options: Any) -> list[Document]:
    return server.listed({"aggregate": "c", "pipeline": list(stages), "cursor": {}, **options})


def test_stages_without_effect_may_stand_before_geo_near(server: Running) -> None:
    found = results(server, {"$match": {}}, {"$skip": 0}, NEAR, {"$project": {"_id": 1}})
    assert found == [{"_id": 1}, {"_id": 2}, {"_id": 3}]
    for stage in ({"$match": {"a": 1}}, {"$skip": 1}, {"$limit": 9}):
        assert server.code({"aggregate": "c", "pipeline": [stage, NEAR], "cursor": {}}) == 40603


def test_a_sort_by_distance_begins_with_the_farthest(server: Running) -> None:
    by_distance = {"$sort": {"x": {"$meta": "geoNearDistance"}}}
    assert [document["_id"] for document in results(server, NEAR, by_distance)] == [3, 2, 1]


def test_a_hint_of_the_natural_order_is_refused_with_distances(server: Running) -> None:
    assert server.code({"aggregate": "c", "pipeline": [NEAR], "cursor": {}, "hint": {"$natural": 1}}) == 2
    assert server.code({"find": "c", "filter": {"p": {"$near": {"$geometry": POINT}}}, "hint": {"$natural": -1}}) == 2


@pytest.mark.parametrize("operator", ["$near", "$nearSphere", "$geoNear"])
@pytest.mark.parametrize("operand", [{"near": [0, 0]}, {"$geometry": POINT}])
def test_distances_are_refused_before_their_operands(server: Running, operator: str, operand: Any) -> None:
    match = {"$match": {"p": {operator: operand}}}
    assert server.code({"aggregate": "c", "pipeline": [match], "cursor": {}}) == 5626500
    assert server.code({"listDatabases": 1, "filter": {"name": {operator: operand}}}, "admin") == 5626500


def test_documents_need_no_collection(server: Running) -> None:
    stage = {"$documents": [{"a": 1}]}
    assert server.listed({"aggregate": 1, "pipeline": [stage], "cursor": {}}) == [{"a": 1}]
    assert server.code({"aggregate": "c", "pipeline": [stage], "cursor": {}}) == 73


def test_let_may_bind_current(server: Running) -> None:
    stages: list[Document] = [{"$limit": 1}, {"$project": {"_id": 0, "a": "$$CURRENT", "b": "$x", "c": "$$ROOT._id"}}]
    assert results(server, *stages, let={"CURRENT": {"x": 7}}) == [{"a": {"x": 7}, "b": 7, "c": 2}]


def test_an_unwound_path_has_no_null_byte(server: Running) -> None:
    assert server.code({"aggregate": "c", "pipeline": [{"$unwind": {"path": "$a\0b"}}], "cursor": {}}) == 16419


def test_sessions_cannot_be_listed_in_a_facet_of_a_collection(server: Running) -> None:
    facet: Document = {"$facet": {"f": [{"$listLocalSessions": {}}]}}
    assert server.code({"aggregate": "c", "pipeline": [facet], "cursor": {}}) == 73


@pytest.mark.parametrize(
    ("mode", "keys"),
    [
        ("merge", ["_id", "k", "a", "z"]),
        ("keepExisting", ["_id", "k", "a", "z"]),
        ("replace", ["_id", "z", "a"]),
        ([{"$set": {"x": 1}}], ["_id", "z", "a"]),
    ],
)
def test_merge_inserts_as_an_upsert_does(server: Running, mode: Any, keys: list[str]) -> None:
    server.run({"createIndexes": "t", "indexes": [{"key": {"k": 1}, "name": "k", "unique": True}]})
    given = {"$replaceWith": {"_id": "$_id", "z": 1, "a": 2}}
    results(server, {"$limit": 1}, given, {"$merge": {"into": "t", "on": "k", "whenMatched": mode}})
    [inserted] = server.listed({"find": "t"})
    assert list(inserted) == keys
    assert inserted.get("k") is None


def test_merge_adds_fields_in_the_order_of_modifiers(server: Running) -> None:
    server.run({"insert": "t", "documents": [{"_id": 2, "m": 1}]})
    given = {"$replaceWith": {"_id": "$_id", "z": 1, "b10": 2, "m": 2, "10": 3, "9": 4}}
    results(server, {"$match": {"_id": 2}}, given, {"$merge": {"into": "t"}})
    [merged] = server.listed({"find": "t"})
    assert list(merged.items()) == [("_id", 2), ("m", 2), ("9", 4), ("10", 3), ("b10", 2), ("z", 1)]


def test_fill_with_values_is_allowed_in_updates(server: Running) -> None:
    server.run({"insert": "t", "documents": [{"_id": 2, "y": None}]})
    fill = {"$fill": {"output": {"y": {"value": 42}}}}
    results(server, {"$match": {"_id": 2}}, {"$merge": {"into": "t", "whenMatched": [fill]}})
    assert server.listed({"find": "t"}) == [{"_id": 2, "y": 42}]
    carried = {"$fill": {"output": {"y": {"method": "locf"}}}}
    reply = server.run({"update": "t", "updates": [{"q": {}, "u": [carried]}]})
    assert reply["writeErrors"][0]["code"] == 72
