"""`{$meta: …}`: what is there of which query, what is refused, and which stages keep it."""

from typing import Any

import pytest
from bson import Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.on_nodes import own_record_ids

Documents = dict[str, Any]


@pytest.fixture
def stored(database: Database[Documents]) -> Database[Documents]:
    database.c.create_index("a")
    database.c.insert_many(
        [{"_id": 1, "a": 3, "b": [5, 2]}, {"_id": 2, "a": 1.5, "b": 7}, {"_id": 3, "b": [], "s": {"t": "u"}}]
    )
    return database


def find(database: Database[Documents], **arguments: Any) -> list[Documents]:
    return list(database.command({"find": "c", **arguments})["cursor"]["firstBatch"])


def aggregate(database: Database[Documents], pipeline: list[Documents]) -> list[Documents]:
    reply = database.command({"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    return list(reply["cursor"]["firstBatch"])


def meta(keyword: Any) -> Documents:
    return {"$meta": keyword}


@pytest.mark.parametrize("keyword", ["textScore", "geoNearDistance", "geoNearPoint", "score", "scoreDetails"])
def test_metadata_that_the_query_lacks_is_refused(stored: Database[Documents], keyword: str) -> None:
    inner = {"from": "c", "pipeline": [{"$set": {"m": meta(keyword)}}], "as": "j"}
    pipelines: list[list[Documents]] = [
        [{"$project": {"m": meta(keyword)}}],
        [{"$match": {"a": 1}}, {"$limit": 1}, {"$group": {"_id": meta(keyword)}}],
        [{"$facet": {"f": [{"$addFields": {"m": meta(keyword)}}]}}],
        [{"$lookup": inner}],
    ]
    commands: list[Documents] = [
        {"find": "c", "projection": {"m": meta(keyword)}},
        {"findAndModify": "c", "remove": True, "fields": {"m": meta(keyword)}},
        *({"aggregate": "c", "pipeline": pipeline, "cursor": {}} for pipeline in pipelines),
    ]
    for command in commands:
        with pytest.raises(OperationFailure) as refusal:
            stored.command(command)
        assert refusal.value.code == 40218


@pytest.mark.parametrize(
    ("sort", "code"),
    [
        (meta("textScore"), 40218),
        (meta("geoNearDistance"), 40218),
        (meta("sortKey"), 31138),
        (meta("unknown"), 31138),
        (meta(1), 31138),
        ({"$meta": "textScore", "x": 1}, 9),
        ({"$x": "textScore"}, 17312),
    ],
)
def test_refused_sorts(stored: Database[Documents], sort: Documents, code: int) -> None:
    for command in (
        {"find": "c", "sort": {"m": sort}},
        {"aggregate": "c", "pipeline": [{"$sort": {"m": sort}}], "cursor": {}},
    ):
        with pytest.raises(OperationFailure) as refusal:
            stored.command(command)
        assert refusal.value.code == code


@pytest.mark.parametrize(("keyword", "code"), [("unknown", 17308), (1, 17307), (None, 17307), (["textScore"], 17307)])
def test_refused_keywords(stored: Database[Documents], keyword: Any, code: int) -> None:
    with pytest.raises(OperationFailure) as refusal:
        aggregate(stored, [{"$project": {"m": meta(keyword)}}])
    assert refusal.value.code == code


@pytest.mark.parametrize("keyword", ["searchScore", "searchHighlights", "vectorSearchScore", "randVal", "sortKey"])
def test_metadata_that_no_document_has_is_left_out(stored: Database[Documents], keyword: str) -> None:
    assert aggregate(stored, [{"$match": {"_id": 2}}, {"$project": {"_id": 1, "m": meta(keyword)}}]) == [{"_id": 2}]


def test_a_sort_by_what_no_document_has_orders_nothing(stored: Database[Documents]) -> None:
    assert [document["_id"] for document in find(stored, sort={"m": meta("randVal"), "_id": -1})] == [3, 2, 1]
    assert [document["_id"] for document in find(stored, sort={"a": -1, "m": meta("randVal")})] == [1, 2, 3]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ({"a": 1}, [[None], [1.5], [3]]),
        ({"b": 1}, [[None], [2], [7]]),
        ({"b": -1}, [[7], [5], [None]]),
        ({"s.t": 1, "_id": -1}, [[None, 2], [None, 1], ["u", 3]]),
        ({"m": meta("randVal"), "_id": -1}, [[None, 3], [None, 2], [None, 1]]),
    ],
)
def test_sort_keys(stored: Database[Documents], sort: Documents, expected: list[Any]) -> None:
    keys = [document["k"] for document in find(stored, sort=sort, projection={"k": meta("sortKey")})]
    assert keys == expected
    assert [type(key[0]) for key in keys] == [type(key[0]) for key in expected]
    for before in ([], [{"$addFields": {"x": 1}}]):
        for behind in ([], [{"$limit": 5}], [{"$addFields": {"y": 1}}]):
            pipeline = [*before, {"$sort": sort}, *behind, {"$project": {"k": meta("sortKey")}}]
            assert [document["k"] for document in aggregate(stored, pipeline)] == expected


def test_a_sort_key_needs_a_sort(stored: Database[Documents]) -> None:
    with pytest.raises(OperationFailure, match="cannot use sortKey \\$meta projection without a sort") as refusal:
        find(stored, projection={"k": meta("sortKey")})
    assert refusal.value.code == 2


@own_record_ids
def test_record_ids(stored: Database[Documents]) -> None:
    found = find(stored, projection={"b": 0, "r": meta("recordId")}, sort={"_id": 1})
    assert [document["r"] for document in found] == [1, 2, 3]
    assert all(isinstance(document["r"], Int64) for document in found)
    assert find(stored, filter={"a": 3}, projection={"_id": 1, "r": meta("recordId")}) == [{"_id": 1, "r": 1}]


@own_record_ids
@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ({"$match": {"_id": 2}}, [2]),
        ({"$sort": {"_id": -1}}, [3, 2, 1]),
        ({"$skip": 1}, [2, 3]),
        ({"$limit": 1}, [1]),
        ({"$project": {"x": "1"}}, [1, 2, 3]),
        ({"$project": {"a": 0}}, [1, 2, 3]),
        ({"$unset": "a"}, [1, 2, 3]),
        ({"$addFields": {"x": 1}}, [1, 2, 3]),
        ({"$replaceRoot": {"newRoot": {"x": 1}}}, [1, 2, 3]),
        ({"$replaceWith": "$$ROOT"}, [1, 2, 3]),
        ({"$redact": "$$KEEP"}, [1, 2, 3]),
        ({"$redact": "$$DESCEND"}, [1, 2, 3]),
        ({"$unwind": "$b"}, [1, 1, 2]),
        ({"$unwind": {"path": "$b", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "i"}}, [1, 1, 2, 3]),
        ({"$lookup": {"from": "d", "localField": "a", "foreignField": "a", "as": "j"}}, [1, 2, 3]),
        (
            {
                "$graphLookup": {
                    "from": "d",
                    "startWith": "$a",
                    "connectFromField": "a",
                    "connectToField": "a",
                    "as": "j",
                }
            },
            [1, 2, 3],
        ),
        ({"$setWindowFields": {"sortBy": {"_id": -1}, "output": {"n": {"$documentNumber": {}}}}}, [3, 2, 1]),
        ({"$unionWith": "d"}, [1, 2, 3]),
        ({"$facet": {"f": [{"$project": {"r": meta("recordId")}}]}}, [None]),
        ({"$group": {"_id": "$_id", "x": {"$first": "$$ROOT"}}}, [None, None, None]),
        ({"$bucketAuto": {"groupBy": "$_id", "buckets": 1}}, [None]),
        ({"$count": "n"}, [None]),
    ],
)
def test_stages_that_keep_metadata_and_stages_that_drop_it(
    stored: Database[Documents], stage: Documents, expected: list[Any]
) -> None:
    for pipeline in ([stage], [{"$limit": 10}, stage], [{"$addFields": {"z": 1}}, stage]):
        found = aggregate(stored, [*pipeline, {"$project": {"r": meta("recordId")}}])
        assert [document.get("r") for document in found] == expected


@own_record_ids
def test_expressions_see_the_metadata_of_the_document_that_the_stage_reads(stored: Database[Documents]) -> None:
    nested = {"$map": {"input": ["x"], "in": {"$concat": ["$$this", {"$toString": meta("recordId")}]}}}
    assert [document["m"] for document in aggregate(stored, [{"$project": {"m": nested}}])] == [["x1"], ["x2"], ["x3"]]
    grouped = aggregate(stored, [{"$group": {"_id": None, "r": {"$sum": meta("recordId")}}}])
    assert grouped == [{"_id": None, "r": 6}]
    inner = aggregate(stored, [{"$facet": {"f": [{"$project": {"_id": 1, "r": meta("recordId")}}]}}])
    assert inner == [{"f": [{"_id": n, "r": n} for n in (1, 2, 3)]}]
    let = {"from": "c", "let": {"r": meta("recordId")}, "as": "j"}
    joined = aggregate(
        stored,
        [{"$lookup": {**let, "pipeline": [{"$match": {"$expr": {"$eq": ["$_id", "$$r"]}}}, {"$project": {"_id": 1}}]}}],
    )
    assert [document["j"] for document in joined] == [[{"_id": 1}], [{"_id": 2}], [{"_id": 3}]]


def test_sampled_documents_have_the_number_they_were_drawn_by(stored: Database[Documents]) -> None:
    drawn = aggregate(stored, [{"$sample": {"size": 3}}, {"$project": {"r": meta("randVal")}}])
    assert [document["r"] for document in drawn] == sorted(document["r"] for document in drawn)
    assert all(0 <= document["r"] < 1 for document in drawn)


@own_record_ids
@pytest.mark.parametrize("last", [{"$out": "o"}, {"$merge": "o"}])
def test_metadata_is_not_stored(stored: Database[Documents], last: Documents) -> None:
    aggregate(stored, [{"$match": {"_id": 2}}, {"$addFields": {"r": meta("recordId")}}, last])
    stored.command({"aggregate": "o", "pipeline": [{"$addFields": {"k": meta("sortKey")}}], "cursor": {}})
    reply = stored.command({"find": "o", "sort": {"_id": 1}, "projection": {"r": 1}})
    assert reply["cursor"]["firstBatch"] == [{"_id": 2, "r": 2}]


@own_record_ids
def test_find_and_modify_answers_with_metadata_and_does_not_store_it(stored: Database[Documents]) -> None:
    fields = {"_id": 1, "x": 1, "r": meta("recordId")}
    query = {"_id": 2}
    for new, expected in ((False, {"_id": 2, "r": 2}), (True, {"_id": 2, "x": 1, "r": 2})):
        update = {"$set": {"x": 1}}
        reply = stored.command({"findAndModify": "c", "query": query, "update": update, "fields": fields, "new": new})
        assert reply["value"] == expected
    unchanged = {"findAndModify": "c", "query": {"a": 1.5}, "sort": {"_id": 1}, "update": {"$set": {"x": 1}}}
    assert stored.command({**unchanged, "fields": {"_id": 1, "k": meta("sortKey")}})["value"] == {"_id": 2, "k": [2]}
    left: list[Documents] = [{"$match": query}, {"$project": {"_id": 1, "k": meta("sortKey")}}]
    assert aggregate(stored, left) == [{"_id": 2}]
    reply = stored.command({"findAndModify": "c", "query": query, "remove": True, "fields": {"r": meta("recordId")}})
    assert reply["value"]["r"] == 2
