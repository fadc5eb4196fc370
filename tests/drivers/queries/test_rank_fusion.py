"""`$rankFusion`: what it finds, in which order, with which scores, and what it refuses."""

from typing import Any

import pytest
from bson import Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

Documents = dict[str, Any]

UP: list[Documents] = [{"$sort": {"a": 1}}]
DOWN: list[Documents] = [{"$sort": {"a": -1}}]
TEXT: list[Documents] = [{"$match": {"$text": {"$search": "coffee"}}}, {"$sort": {"s": {"$meta": "textScore"}}}]


@pytest.fixture
def stored(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index([("t", "text")])
    database.c.insert_many(
        [
            {"_id": 1, "a": 10, "t": "coffee and cream"},
            {"_id": 2, "a": 5, "t": "coffee"},
            {"_id": 3, "a": 1, "t": "tea"},
            {"_id": 4, "t": "coffee without any sugar"},
        ]
    )
    return database


def fused(pipelines: Documents, **options: Any) -> Documents:
    return {"$rankFusion": {"input": {"pipelines": pipelines}, **options}}


def aggregate(database: Database[Documents], *pipeline: Documents) -> list[Documents]:
    return list(database.c.aggregate(list(pipeline)))


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (fused({"p": UP}), [(4, [1]), (3, [2]), (2, [3]), (1, [4])]),
        (fused({"p": UP, "q": DOWN}), [(1, [4, 1]), (4, [1, 4]), (2, [3, 2]), (3, [2, 3])]),
        (fused({"p": TEXT}), [(2, [1]), (1, [2]), (4, [3])]),
        (fused({"p": [*UP, {"$limit": 2}], "q": TEXT}), [(4, [1, 3]), (2, [0, 1]), (1, [0, 2]), (3, [2, 0])]),
        (fused({"p": [{"$match": {"a": 7}}, *UP]}), []),
    ],
)
def test_places_become_scores(
    stored: Database[Documents], stage: Documents, expected: list[tuple[int, list[int]]]
) -> None:
    found = aggregate(stored, stage, {"$project": {"_id": 1, "s": {"$meta": "score"}}})
    assert [document["_id"] for document in found] == [identity for identity, _ in expected]
    scores = [sum(1 / (60 + rank) for rank in ranks if rank) for _, ranks in expected]
    assert [document["s"] for document in found] == pytest.approx(scores)


def test_weights_and_details(stored: Database[Documents]) -> None:
    stage = fused({"p": UP, "q": TEXT}, combination={"weights": {"q": 5}}, scoreDetails=True)
    found = aggregate(stored, stage, {"$limit": 3}, {"$set": {"d": {"$meta": "scoreDetails"}}})
    assert [document["_id"] for document in found] == [2, 1, 4]
    assert found[0]["t"] == "coffee"
    details = found[0]["d"]
    assert details["value"] == pytest.approx(1 / 63 + 5 / 61)
    assert details["details"] == [
        {"inputPipelineName": "p", "rank": 3, "weight": 1.0, "details": []},
        {"inputPipelineName": "q", "rank": 1, "weight": 5.0, "details": []},
    ]
    assert isinstance(details["details"][0]["rank"], int) and not isinstance(details["details"][0]["rank"], Int64)
    last = aggregate(stored, stage, {"$match": {"_id": 3}}, {"$set": {"d": {"$meta": "scoreDetails"}}})[0]
    assert last["d"]["details"][1] == {"inputPipelineName": "q", "rank": "NA"}


def test_equal_sort_keys_have_one_rank(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": 3, "a": 1}, {"_id": 1, "a": None}, {"_id": 2}, {"_id": 4, "a": 1.0}])
    score = {"$project": {"_id": 1, "s": {"$meta": "score"}}}
    for pipeline, ranks in (
        (UP, {1: 1, 2: 1, 3: 3, 4: 3}),
        ([*DOWN, {"$limit": 3}], {3: 1, 4: 1, 1: 3}),
        ([{"$sort": {"_id": 1}}, *UP, {"$skip": 1}], {2: 1, 3: 2, 4: 2}),
    ):
        found = aggregate(database, fused({"p": pipeline}), score)
        assert [(d["_id"], d["s"]) for d in found] == [(i, pytest.approx(1 / (60 + n))) for i, n in ranks.items()]


def test_a_view_is_ranked_as_it_is_seen(stored: Database[Documents]) -> None:
    stored.command({"create": "v", "viewOn": "c", "pipeline": [{"$match": {"a": {"$lt": 9}}}]})
    stored.command({"create": "w", "viewOn": "v", "pipeline": [{"$set": {"a": {"$subtract": [0, "$a"]}}}]})
    only = {"$project": {"_id": 1}}
    assert list(stored.v.aggregate([fused({"p": UP}), only])) == [{"_id": 3}, {"_id": 2}]
    assert list(stored.w.aggregate([fused({"p": UP}), only])) == [{"_id": 2}, {"_id": 3}]
    explained = stored.command({"explain": {"aggregate": "w", "pipeline": [fused({"p": UP})], "cursor": {}}})
    assert explained["ok"] == 1


def test_metadata_alone_makes_an_inclusion_of_a_projection(stored: Database[Documents]) -> None:
    found = aggregate(stored, fused({"p": [*UP, {"$limit": 1}]}), {"$project": {"_id": 0, "s": {"$meta": "score"}}})
    assert found == [{"s": pytest.approx(1 / 61)}]


def test_rank_fusion_may_be_first_in_inner_pipelines(stored: Database[Documents]) -> None:
    stage = fused({"p": [*DOWN, {"$limit": 2}]})
    only = {"$project": {"_id": 1}}
    facet = aggregate(stored, {"$match": {"_id": {"$gt": 1}}}, {"$facet": {"f": [stage, only]}})
    assert facet == [{"f": [{"_id": 2}, {"_id": 3}]}]
    joined = aggregate(stored, {"$limit": 1}, {"$lookup": {"from": "c", "pipeline": [stage, only], "as": "j"}})
    assert joined[0]["j"] == [{"_id": 1}, {"_id": 2}]
    united = aggregate(stored, {"$limit": 1}, only, {"$unionWith": {"coll": "c", "pipeline": [stage, only]}})
    assert united == [{"_id": 1}, {"_id": 1}, {"_id": 2}]


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (1, 9),
        ({}, 40414),
        ({"input": None}, 40414),
        ({"input": 1}, 14),
        ({"input": {"pipelines": []}}, 14),
        ({"input": {"pipelines": {}}}, 2),
        ({"input": {"pipelines": {"p": {}}}}, 14),
        ({"input": {"pipelines": {"p": [1]}}}, 14),
        ({"input": {"pipelines": {"p": []}}}, 9834300),
        ({"input": {"pipelines": {"": UP}}}, 15998),
        ({"input": {"pipelines": {"$p": UP}}}, 16410),
        ({"input": {"pipelines": {"p.q": UP}}}, 16412),
        ({"input": {"pipelines": {"p": [{"$match": {"a": 1}}]}}}, 9191100),
        ({"input": {"pipelines": {"p": [*UP, {"$project": {"a": 1}}]}}}, 9191103),
        ({"input": {"pipelines": {"p": [fused({"q": UP})]}}}, 10473002),
        ({"input": {"pipelines": {"p": [{"$nothing": 1}]}}}, 40324),
        ({"input": {"pipelines": {"p": UP}}, "x": 1}, 40415),
        ({"input": {"pipelines": {"p": UP}}, "scoreDetails": 1}, 14),
        ({"input": {"pipelines": {"p": UP}}, "combination": {}}, 40414),
        ({"input": {"pipelines": {"p": UP}}, "combination": {"weights": {"q": 1}}}, 9967500),
        ({"input": {"pipelines": {"p": UP}}, "combination": {"weights": {"p": 1, "q": 1}}}, 9460301),
        ({"input": {"pipelines": {"p": UP}}, "combination": {"weights": {"p": True}}}, 13118),
        ({"input": {"pipelines": {"p": UP}}, "combination": {"weights": {"p": -0.5}}}, 9460300),
        ({"input": {"pipelines": {"p": UP}}, "combination": {"weights": {"p": float("nan")}}}, 9460300),
    ],
)
def test_refused(stored: Database[Documents], argument: Any, code: int) -> None:
    with pytest.raises(OperationFailure) as refused:
        aggregate(stored, {"$rankFusion": argument})
    assert refused.value.code == code


def test_refused_places(stored: Database[Documents]) -> None:
    stage = fused({"p": UP})
    details = {"$project": {"d": {"$meta": "scoreDetails"}}}
    for pipeline, code in (
        ([{"$limit": 1}, stage], 10170100),
        ([{"$facet": {"f": [{"$limit": 1}, stage]}}], 10170100),
        ([stage, details], 40218),
    ):
        with pytest.raises(OperationFailure) as refused:
            aggregate(stored, *pipeline)
        assert refused.value.code == code
    with pytest.raises(OperationFailure) as refused:
        list(stored.aggregate([stage]))
    assert refused.value.code == 73
    stored.command({"create": "series", "timeseries": {"timeField": "t"}})
    with pytest.raises(OperationFailure) as refused:
        list(stored.series.aggregate([stage]))
    assert refused.value.code == 10557301


def test_distances_rank_too(database: Database[Documents]) -> None:
    database.c.create_index([("p", "2dsphere")])
    database.c.insert_many([{"_id": n, "p": [n, 0]} for n in (3, 1, 2)])
    near: Documents = {"near": {"type": "Point", "coordinates": [0, 0]}, "spherical": True}
    found = aggregate(database, fused({"p": [{"$geoNear": near}]}), {"$project": {"_id": 1}})
    assert found == [{"_id": 1}, {"_id": 2}, {"_id": 3}]
    with pytest.raises(OperationFailure) as refused:
        aggregate(database, fused({"p": [{"$geoNear": {**near, "distanceField": "d"}}]}))
    assert refused.value.code == 9191103


def test_atlas_search_is_refused_by_name(stored: Database[Documents]) -> None:
    commands: list[Documents] = [
        {"createSearchIndexes": "c", "indexes": [{"definition": {}}]},
        {"dropSearchIndex": "c", "name": "i"},
        {"updateSearchIndex": "c", "name": "i", "definition": {}},
        *(
            {"aggregate": "c", "pipeline": [{name: {}}], "cursor": {}}
            for name in ("$search", "$searchMeta", "$vectorSearch", "$listSearchIndexes")
        ),
    ]
    for command in commands:
        with pytest.raises(OperationFailure) as refused:
            stored.command(command)
        assert refused.value.code == 31082
