"""Geospatial queries, indexes and `$geoNear` over the wire."""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

Documents = dict[str, Any]

DEGREE_M = 111318.84502145034


def point(longitude: float, latitude: float) -> Documents:
    return {"type": "Point", "coordinates": [longitude, latitude]}


@pytest.fixture
def sphere(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index([("loc", "2dsphere")])
    database.c.insert_many([{"_id": n, "loc": point(n, 0), "k": n % 2} for n in (3, 1, 0, 2)])
    database.c.insert_many([{"_id": 10, "loc": None}, {"_id": 11}, {"_id": 12, "loc": []}])
    return database


@pytest.fixture
def plane(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index([("loc", "2d")])
    database.c.insert_many([{"_id": n, "loc": [n, n]} for n in (3, 1, 0, 2)])
    return database


def ids(found: Any) -> list[int]:
    return [document["_id"] for document in found]


def aggregate(database: Database[Documents], *stages: Documents) -> list[Documents]:
    return list(database.c.aggregate(list(stages)))


def geo_near(**options: Any) -> Documents:
    return {"$geoNear": {"near": point(0, 0), **options}}


def code_of(call: Any) -> int | None:
    with pytest.raises(OperationFailure) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"loc": {"$near": {"$geometry": point(0, 0)}}}, [0, 1, 2, 3]),
        ({"loc": {"$near": {"$geometry": point(0, 0), "$maxDistance": DEGREE_M}}}, [0, 1]),
        ({"loc": {"$near": {"$geometry": point(0, 0), "$minDistance": DEGREE_M}}}, [1, 2, 3]),
        ({"loc": {"$near": {"$geometry": {"coordinates": [4, 0]}}}, "k": 1}, [3, 1]),
        ({"loc": {"$nearSphere": [0, 0], "$maxDistance": 0.02}}, [0, 1]),
        ({"loc": {"$nearSphere": [0, 0], "$minDistance": 0.02}}, [2, 3]),
        ({"loc": {"$near": {"$geometry": point(0, 0), "$minDistance": 5, "$maxDistance": 1}}}, []),
    ],
)
def test_near_on_the_sphere(sphere: Database[Documents], filter: Documents, expected: list[int]) -> None:
    assert ids(sphere.c.find(filter)) == expected
    assert sphere.c.count_documents({"_id": {"$in": expected}}) == len(expected)
    assert sphere.command({"count": "c", "query": filter})["n"] == len(expected)


def test_a_sort_is_stronger_than_the_distance(sphere: Database[Documents]) -> None:
    near = {"loc": {"$near": {"$geometry": point(0, 0)}}}
    assert ids(sphere.c.find(near).sort([("k", 1), ("_id", -1)])) == [2, 0, 3, 1]
    assert ids(sphere.c.find(near).skip(1).limit(2)) == [1, 2]
    assert code_of(lambda: list(sphere.c.find(near).sort([("$natural", 1)]))) == 2
    assert code_of(lambda: list(sphere.c.find({**near, "$text": {"$search": "x"}}))) == 2
    assert ids(sphere.c.find(near, batch_size=1)) == [0, 1, 2, 3]


@pytest.mark.parametrize("distance", [5e-324, 1e-310, 1e-300, 0.0, -0.0, 1e308])
@pytest.mark.parametrize("kind", ["2d", "2dsphere"])
def test_odd_greatest_distances(database: Database[Documents], kind: str, distance: float) -> None:
    """Rings of a width that is rounded to 0 would never reach the greatest distance."""
    database.c.create_index([("loc", kind)])
    database.c.insert_many([{"_id": n, "loc": [0, 0]} for n in range(50)])
    database.c.insert_one({"_id": 50, "loc": [1, 0]})
    expected = list(range(51 if distance > 1 else 50))
    operator = "$near" if kind == "2d" else "$nearSphere"
    near = {"loc": {operator: [0, 0], "$maxDistance": distance}}
    assert sorted(ids(database.c.find(near, max_time_ms=10_000))) == expected


def test_near_on_the_plane(plane: Database[Documents]) -> None:
    assert ids(plane.c.find({"loc": {"$near": [2.2, 2.2]}})) == [2, 3, 1, 0]
    assert ids(plane.c.find({"loc": {"$near": {"x": 0, "y": 0}, "$maxDistance": 1.5}})) == [0, 1]
    assert ids(plane.c.find({"loc": {"$near": [0, 0, 1.5]}})) == [0, 1]
    assert ids(plane.c.find({"loc": {"$nearSphere": [3, 3], "$maxDistance": 0.03}})) == [3, 2]
    assert code_of(lambda: list(plane.c.find({"loc": {"$near": [181, 0]}}))) == 16433


def test_near_writes(sphere: Database[Documents]) -> None:
    near = {"loc": {"$near": {"$geometry": point(2.9, 0)}}}
    assert sphere.c.update_one(near, {"$set": {"hit": True}}).modified_count == 1
    found = sphere.c.find_one_and_update(near, {"$inc": {"k": 5}}, projection={"m": {"$meta": "geoNearDistance"}})
    assert found is not None and found["_id"] == 3 and 0 < found["m"] < DEGREE_M
    assert sphere.c.find_one({"_id": 3}) == {"_id": 3, "loc": point(3, 0), "k": 6, "hit": True}
    assert sphere.c.delete_one(near).deleted_count == 1
    assert sphere.c.find_one({"_id": 3}) is None


@pytest.mark.parametrize(
    "filter",
    [
        {"loc": {"$near": {"$geometry": point(0, 0)}}},
        {"loc": {"$near": [0, 0]}},
        {"other": {"$nearSphere": [0, 0]}},
    ],
)
def test_near_needs_its_index(database: Database[Documents], filter: Documents) -> None:
    database.c.insert_one({"loc": [0, 0]})
    assert code_of(lambda: list(database.c.find(filter))) == 291
    assert list(database.nobody.find(filter)) == []


def test_near_is_not_for_match(sphere: Database[Documents]) -> None:
    near = {"loc": {"$near": {"$geometry": point(0, 0)}}}
    assert code_of(lambda: aggregate(sphere, {"$match": near})) == 5626500
    assert code_of(lambda: aggregate(sphere, geo_near(query=near))) == 5626500


def test_explain(sphere: Database[Documents]) -> None:
    near = {"find": "c", "filter": {"loc": {"$near": {"$geometry": point(0, 0)}}}}
    explained = sphere.command({"explain": near, "verbosity": "executionStats"})
    plan = explained["queryPlanner"]["winningPlan"]
    assert plan["stage"] == "GEO_NEAR_2DSPHERE" and plan["keyPattern"] == {"loc": "2dsphere"}
    assert explained["executionStats"]["nReturned"] == 4
    assert explained["executionStats"]["totalDocsExamined"] == 4
    within = {"find": "c", "filter": {"loc": {"$geoWithin": {"$centerSphere": [[0, 0], 0.02]}}}}
    explained = sphere.command({"explain": within, "verbosity": "executionStats"})
    plan = explained["queryPlanner"]["winningPlan"]
    assert (plan["stage"], plan["inputStage"]["stage"]) == ("FETCH", "IXSCAN")
    assert plan["filter"] == within["filter"]
    assert explained["executionStats"]["nReturned"] == 2
    piped = {"aggregate": "c", "pipeline": [geo_near(distanceField="d"), {"$project": {"d": 1}}], "cursor": {}}
    stages = sphere.command({"explain": piped})["stages"]
    assert [name for stage in stages for name in stage if name.startswith("$")] == ["$geoNearCursor", "$project"]
    assert stages[0]["$geoNearCursor"]["queryPlanner"]["winningPlan"]["stage"] == "GEO_NEAR_2DSPHERE"


def test_geo_near(sphere: Database[Documents]) -> None:
    found = aggregate(
        sphere,
        geo_near(distanceField="d.m", includeLocs="at", maxDistance=2 * DEGREE_M, query={"k": 0}, distanceMultiplier=2),
        {"$set": {"raw": {"$meta": "geoNearDistance"}, "place": {"$meta": "geoNearPoint"}}},
    )
    assert found == [
        {"_id": 0, "loc": point(0, 0), "k": 0, "d": {"m": 0.0}, "at": point(0, 0), "raw": 0.0, "place": point(0, 0)},
        {
            "_id": 2, "loc": point(2, 0), "k": 0, "d": {"m": 4 * DEGREE_M}, "at": point(2, 0), "raw": 2 * DEGREE_M,
            "place": point(2, 0),
        },
    ]  # fmt: skip
    assert ids(aggregate(sphere, {"$geoNear": {"near": [3, 0], "spherical": True}}, {"$limit": 2})) == [3, 2]
    sphere.c.update_one({"_id": 0}, {"$set": {"d": ["x"]}})
    assert aggregate(sphere, geo_near(distanceField="d.0"), {"$limit": 1})[0]["d"] == {"0": 0.0}
    longest = ".".join(["a"] * 199)
    found = aggregate(sphere, geo_near(includeLocs=longest, key="loc"), {"$limit": 1})
    for _ in range(199):
        found = [document["a"] for document in found]
    assert found == [point(0, 0)]
    assert code_of(lambda: aggregate(sphere, geo_near(distanceField=longest + ".a"))) == 15
    assert code_of(lambda: aggregate(sphere, geo_near(key=longest + ".a"))) == 5729100
    joined = aggregate(
        sphere,
        {"$match": {"_id": 1}},
        {"$lookup": {"from": "c", "pipeline": [geo_near(distanceField="d"), {"$limit": 2}], "as": "j"}},
    )
    assert [(inner["_id"], inner["d"]) for inner in joined[0]["j"]] == [(0, 0.0), (1, DEGREE_M)]


def test_geo_near_on_the_plane_is_asked_first(plane: Database[Documents]) -> None:
    plane.c.create_index([("loc", "2dsphere")])
    found = aggregate(plane, {"$geoNear": {"near": [0, 0], "distanceField": "d"}})
    assert [(document["_id"], document["d"]) for document in found] == [
        (0, 0.0), (1, 2**0.5), (2, 8**0.5), (3, 18**0.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"near": None}, 5860401),
        ({"near": "x"}, 5860401),
        ({"near": "$loc"}, 5860402),
        ({"near": [1]}, 2),
        ({"near": [1, 2, 3, 4]}, 2),
        ({"near": {"type": "point", "coordinates": [0, 0]}}, 2),
        ({"near": [200, 0], "spherical": True}, 2),
        ({"near": [0, 0]}, 291),
        ({"distanceField": 5}, 16606),
        ({"includeLocs": None}, 16607),
        ({"minDistance": "1"}, 14),
        ({"minDistance": "$k"}, 7555701),
        ({"maxDistance": "$k"}, 7555702),
        ({"maxDistance": -1}, 2),
        ({"distanceMultiplier": {"$add": [1, 1]}}, 14),
        ({"distanceMultiplier": float("nan")}, 2),
        ({"query": 5}, 14),
        ({"key": 5}, 14),
        ({"key": ""}, 2),
        ({"key": "k"}, 291),
        ({"limit": 5}, 50858),
        ({"bogus": 1}, 2),
    ],
)
def test_geo_near_refuses_invalid_arguments(sphere: Database[Documents], options: Documents, code: int) -> None:
    assert code_of(lambda: aggregate(sphere, geo_near(**options))) == code


def test_geo_near_needs_the_first_place_and_one_index(sphere: Database[Documents]) -> None:
    assert code_of(lambda: aggregate(sphere, {"$limit": 1}, geo_near())) == 40603
    assert code_of(lambda: list(sphere.nobody.aggregate([geo_near()]))) == 26
    assert code_of(lambda: aggregate(sphere, {"$geoNear": {"distanceField": "d"}})) == 5860400
    assert code_of(lambda: aggregate(sphere, {"$geoNear": 5})) == 10065
    sphere.other.insert_one({"a": 1})
    assert code_of(lambda: list(sphere.other.aggregate([geo_near()]))) == 27
    sphere.c.create_index([("loc2", "2dsphere")])
    assert code_of(lambda: aggregate(sphere, geo_near())) == 27
    assert ids(aggregate(sphere, geo_near(key="loc"))) == [0, 1, 2, 3]


@pytest.mark.parametrize("place", ["x", 5, [1], [200, 0], {"type": "Point"}, [[0, 0], [1, 1]]])
def test_a_sphere_index_takes_geometries_alone(sphere: Database[Documents], place: Any) -> None:
    with pytest.raises(WriteError) as caught:
        sphere.c.insert_one({"loc": place})
    assert caught.value.code == 16755


@pytest.mark.parametrize(
    ("place", "code"), [([200, 0], 13027), ([1], 13068), ([1, "x"], 13026), (["x", 1], 16804), (point(0, 0), 16804)]
)
def test_a_plane_index_takes_pairs_alone(plane: Database[Documents], place: Any, code: int) -> None:
    with pytest.raises(WriteError) as caught:
        plane.c.insert_one({"loc": place})
    assert caught.value.code == code
    plane.c.insert_many([{"loc": None}, {"loc": "x"}, {"loc": []}, {}, {"loc": [[1, 1], {"x": 2, "y": 2}]}])


def test_a_build_stops_at_what_is_no_geometry(database: Database[Documents]) -> None:
    database.c.insert_many([{"loc": point(0, 0)}, {"loc": "x"}])
    assert code_of(lambda: database.c.create_index([("loc", "2dsphere")])) == 16755


@pytest.mark.parametrize(
    ("pattern", "options", "code"),
    [
        ([("loc", "2dsphere")], {"2dsphereIndexVersion": 5}, 67),
        ([("loc", "2dsphere")], {"2dsphereIndexVersion": "3"}, 14),
        ([("loc", "2d")], {"bits": 0}, 72),
        ([("loc", "2d")], {"bits": 33}, 72),
        ([("loc", "2d")], {"min": 5, "max": 5}, 72),
        ([("loc", "2d")], {"min": "x"}, 14),
        ([("a", 1), ("loc", "2d")], {}, 16801),
        ([("loc", "2d"), ("other", "2d")], {}, 16800),
        ([("loc", "2d"), ("other", "2dsphere")], {}, 67),
    ],
)
def test_invalid_geospatial_indexes_are_refused(
    database: Database[Documents], pattern: Any, options: Documents, code: int
) -> None:
    assert code_of(lambda: database.c.create_index(pattern, **options)) == code


def test_a_place_may_say_what_a_partial_index_holds(database: Database[Documents]) -> None:
    here = {"loc": {"$geoWithin": {"$centerSphere": [[0, 0], 0.1]}}}
    database.c.create_index("k", partialFilterExpression=here)
    database.c.insert_many([{"_id": n, "loc": point(n, 0), "k": 1} for n in (0, 5, 50)])
    explained = database.command({"explain": {"find": "c", "filter": {"k": 1, **here}}})
    assert explained["queryPlanner"]["winningPlan"]["inputStage"]["indexName"] == "k_1"
    assert ids(database.c.find({"k": 1, **here})) == [0, 5]
    assert ids(database.c.find({"k": 1})) == [0, 5, 50]


def test_list_indexes_shows_geospatial_versions(database: Database[Documents]) -> None:
    database.c.create_index([("loc", "2dsphere"), ("k", -1)], name="s")
    database.c.create_index([("at", "2d")], name="p", bits=20, min=-500, max=500)
    assert list(database.c.list_indexes())[1:] == [
        {"v": 2, "key": {"loc": "2dsphere", "k": -1}, "name": "s", "2dsphereIndexVersion": 3},
        {"v": 2, "key": {"at": "2d"}, "name": "p", "bits": 20, "min": -500.0, "max": 500.0},
    ]
    database.c.insert_many([{"_id": 1, "at": [400, 400]}, {"_id": 2, "loc": point(0, 0), "k": 7}])
    assert ids(database.c.find({"at": {"$geoWithin": {"$center": [[0, 0], 600]}}})) == [1]
    assert ids(database.c.find({"loc": {"$geoWithin": {"$centerSphere": [[0, 0], 1]}}, "k": 7})) == [2]
    assert ids(database.c.find({"k": 7})) == [2]


@pytest.mark.parametrize("kind", ["2dsphere", "2d"])
def test_legacy_distances_on_the_sphere_are_converted_from_metres(database: Database[Documents], kind: str) -> None:
    """So the last digit of radians may differ: an angle of 3 degrees is 0.05235987755982989 elsewhere."""
    database.c.create_index([("loc", kind)])
    database.c.insert_one({"_id": 1, "loc": [3, 0]})
    near = geo_near(near=[0, 0], spherical=True, distanceField="d", maxDistance=0.05235987755982989)
    assert [found["d"] for found in aggregate(database, near)] == [0.0523598775598299]
