"""$densify, $fill and $documents: the examples of MongoDB's reference, and corners."""

import datetime
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

Documents = list[dict[str, Any]]
Aggregate = Callable[..., Documents]

COFFEE: Documents = [
    {"altitude": 600, "variety": "Arabica Typica", "score": 68.3},
    {"altitude": 750, "variety": "Arabica Typica", "score": 69.5},
    {"altitude": 950, "variety": "Arabica Typica", "score": 70.5},
    {"altitude": 1250, "variety": "Gesha", "score": 88.15},
    {"altitude": 1700, "variety": "Gesha", "score": 95.5, "price": 1029},
]


@pytest.mark.parametrize(
    ("bounds", "arabica", "gesha"),
    [
        (
            "full",
            [600, 750, 800, 950, 1000, 1200, 1400, 1600],
            [600, 800, 1000, 1200, 1250, 1400, 1600, 1700],
        ),
        ("partition", [600, 750, 800, 950], [1250, 1450, 1650, 1700]),
        ([700, 1300], [600, 700, 750, 900, 950, 1100], [700, 900, 1100, 1250, 1700]),
    ],
)
def test_coffee(aggregate: Aggregate, bounds: Any, arabica: list[int], gesha: list[int]) -> None:
    by_variety = {"field": "altitude", "partitionByFields": ["variety"], "range": {"bounds": bounds, "step": 200}}
    found = aggregate(COFFEE, {"$densify": by_variety})
    for variety, altitudes in (("Arabica Typica", arabica), ("Gesha", gesha)):
        assert [doc["altitude"] for doc in found if doc["variety"] == variety] == altitudes
    made = [doc for doc in found if "score" not in doc]
    assert all(list(doc) == ["variety", "altitude"] for doc in made)


def hours(*of: int) -> list[datetime.datetime]:
    return [datetime.datetime(2021, 5, 18) + datetime.timedelta(hours=hour) for hour in of]


def test_temperatures(aggregate: Aggregate) -> None:
    weather = [{"timestamp": at, "temp": temp} for at, temp in zip(hours(0, 4, 8, 12), (12, 11, 11, 12), strict=True)]
    stage = {"field": "timestamp", "range": {"step": 1, "unit": "hour", "bounds": hours(0, 8)}}
    found = aggregate(weather, {"$densify": stage})
    assert [doc["timestamp"] for doc in found] == hours(0, 1, 2, 3, 4, 5, 6, 7, 8, 12)
    assert [i for i, doc in enumerate(found) if "temp" in doc] == [0, 4, 8, 9]


@pytest.mark.parametrize(
    ("present", "step", "bounds", "dense"),
    [
        ([0, 3], 1, "full", [0, 1, 2, 3]),
        ([0, 3], 2, "full", [0, 2, 3]),
        ([0, 3], 5, "full", [0, 3]),
        ([0.0, 1.0], 0.25, "full", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ([Int64(1), Int64(3)], 1, "full", [Int64(1), Int64(2), Int64(3)]),
        ([1, 3], Int64(1), "full", [1, Int64(2), 3]),
        ([Decimal128("1"), Decimal128("2")], Decimal128("0.5"), "full", [Decimal128(x) for x in ("1", "1.5", "2")]),
        ([2, 2, 4], 1, "full", [2, 2, 3, 4]),
        ([5], 1, "full", [5]),
        ([], 1, "full", []),
        ([], 1, [0, 3], [0, 1, 2]),
        ([10], 1, [0, 2], [0, 1, 10]),
        ([-10], 1, [0, 2], [-10, 0, 1]),
        ([1], 10, [0, 5], [0, 1]),
    ],
)
def test_numbers(aggregate: Aggregate, present: list[Any], step: Any, bounds: Any, dense: list[Any]) -> None:
    documents = [{"t": value} for value in present]
    found = aggregate(documents, {"$densify": {"field": "t", "range": {"step": step, "bounds": bounds}}})
    assert list(map(bson.encode, found)) == [bson.encode({"t": value}) for value in dense]


@pytest.mark.parametrize(
    ("unit", "step", "first", "last", "count"),
    [
        ("millisecond", 250, (2024, 1, 1), (2024, 1, 1, 0, 0, 1), 5),
        ("second", 20, (2024, 1, 1), (2024, 1, 1, 0, 1), 4),
        ("minute", 15, (2024, 1, 1), (2024, 1, 1, 1), 5),
        ("hour", 6, (2024, 1, 1), (2024, 1, 2), 5),
        ("day", 1, (2024, 2, 27), (2024, 3, 1), 4),
        ("week", 1, (2024, 1, 1), (2024, 1, 29), 5),
        ("month", 1, (2024, 1, 31), (2024, 4, 30), 4),
        ("quarter", 1, (2024, 1, 1), (2025, 1, 1), 5),
        ("year", 1, (2020, 2, 29), (2024, 2, 29), 5),
    ],
)
def test_units(aggregate: Aggregate, unit: str, step: int, first: Any, last: Any, count: int) -> None:
    ends = [{"t": datetime.datetime(*first)}, {"t": datetime.datetime(*last)}]
    found = aggregate(ends, {"$densify": {"field": "t", "range": {"step": step, "unit": unit, "bounds": "full"}}})
    assert [found[0], found[-1]] == ends
    assert len(found) == count


@pytest.mark.parametrize("value", ["x", True, [1], {"x": 1}, datetime.datetime(2024, 1, 1)])
def test_densify_wants_numbers_where_there_is_no_unit(refused: Callable[..., int], value: Any) -> None:
    stage = {"$densify": {"field": "t", "range": {"step": 1, "bounds": "full"}}}
    assert refused([{"t": value}], stage) in (5733201, 6053600)


def test_boots(aggregate: Aggregate) -> None:
    sales: Documents = [
        {"day": 2, "bootsSold": 10, "sandalsSold": 20, "sneakersSold": 12},
        {"day": 3, "bootsSold": 7, "sneakersSold": 18},
        {"day": 4, "sneakersSold": 5},
    ]
    output = {name: {"value": 0} for name in ("bootsSold", "sandalsSold", "sneakersSold")}
    assert aggregate(sales, {"$fill": {"output": output}}) == [
        sales[0],
        {"day": 3, "bootsSold": 7, "sneakersSold": 18, "sandalsSold": 0},
        {"day": 4, "sneakersSold": 5, "bootsSold": 0, "sandalsSold": 0},
    ]


def scored(*rows: tuple[int, Any]) -> Documents:
    return [{"t": t, **({} if v is ... else {"v": v})} for t, v in rows]


@pytest.mark.parametrize(
    ("method", "rows", "filled"),
    [
        ("locf", [(1, 90), (2, 92), (3, ...), (4, None), (5, 85), (6, ...)], [90, 92, 92, 92, 85, 85]),
        ("locf", [(1, ...), (2, None), (3, 5)], [None, None, 5]),
        ("locf", [(3, ...), (1, "x"), (2, None)], ["x", "x", "x"]),
        ("locf", [(1, []), (2, None), (3, False), (4, None)], [[], [], False, False]),
        ("linear", [(1, 10), (2, ...), (3, None), (4, 40)], [10, 20.0, 30.0, 40]),
        ("linear", [(0, 0), (1, None), (10, 100)], [0, 10.0, 100]),  # by distance, not by place
        ("linear", [(1, None), (2, 5), (3, None), (4, 6), (5, None)], [None, 5, 5.5, 6, None]),
        ("linear", [(1, 4), (2, None), (3, -4)], [4, 0.0, -4]),
        ("linear", [(1, Decimal128("1")), (2, None), (3, Decimal128("2"))],
         [Decimal128("1"), Decimal128("1.5"), Decimal128("2")]),
        ("linear", [(1, None), (2, ...)], [None, None]),
    ],
)  # fmt: skip
def test_methods(aggregate: Aggregate, method: str, rows: Any, filled: list[Any]) -> None:
    stage = {"$fill": {"sortBy": {"t": 1}, "output": {"v": {"method": method}}}}
    found = [document["v"] for document in aggregate(scored(*rows), stage)]
    assert bson.encode({"v": found}) == bson.encode({"v": filled})


def test_reviews_by_restaurant(aggregate: Aggregate) -> None:
    reviews = [
        {"at": at, "restaurant": restaurant, **({} if score is None else {"score": score})}
        for at, restaurant, score in [
            (8, "Joe's Pizza", 90),
            (8, "Sally's Deli", 75),
            (9, "Joe's Pizza", 92),
            (9, "Sally's Deli", None),
            (10, "Joe's Pizza", None),
            (10, "Sally's Deli", 68),
            (11, "Sally's Deli", None),
        ]
    ]
    last_seen = {"sortBy": {"at": 1}, "output": {"score": {"method": "locf"}}}
    for partition in ({"partitionBy": {"restaurant": "$restaurant"}}, {"partitionByFields": ["restaurant"]}):
        found = aggregate(reviews, {"$fill": {**partition, **last_seen}}, {"$sort": {"restaurant": 1, "at": 1}})
        assert [review["score"] for review in found] == [90, 92, 92, 75, 75, 68, 68]


@pytest.mark.parametrize(
    ("expression", "documents"),
    [
        ([], []),
        ([{"x": 10}, {"x": 2}, {"x": 5}], [{"x": 10}, {"x": 2}, {"x": 5}]),
        ([{"x": {"$add": [1, 2]}}], [{"x": 3}]),
        ([{}], [{}]),
        ([{"_id": 1, "l": [1, {"y": "$none"}]}], [{"_id": 1, "l": [1, {}]}]),
        ({"$map": {"input": {"$range": [0, 3]}, "in": {"n": "$$this"}}}, [{"n": 0}, {"n": 1}, {"n": 2}]),
        ({"$literal": [{"x": "$y"}]}, [{"x": "$y"}]),
        ([{"at": "$$NOW"}], [{"at": bson.DatetimeMS(1_700_000_000_000)}]),
        ({"$concatArrays": [[{"a": 1}], [{"b": 2}]]}, [{"a": 1}, {"b": 2}]),
    ],
)
def test_documents(aggregate: Aggregate, expression: Any, documents: Documents) -> None:
    assert list(map(bson.encode, aggregate([], {"$documents": expression}))) == list(map(bson.encode, documents))


@pytest.mark.parametrize(
    ("expression", "code"),
    [(1, 5858203), ({"x": 1}, 5858203), (None, 5858203), ("$$ROOT", 5858203), ([1], 40228), ([{"a": 1}, None], 40228)],
)
def test_documents_refuses(refused: Callable[..., int], expression: Any, code: int) -> None:
    assert refused([], {"$documents": expression}) == code


def test_documents_in_buckets_and_joins(aggregate: Aggregate) -> None:
    found = aggregate(
        [], {"$documents": [{"x": 10}, {"x": 2}, {"x": 5}]}, {"$bucketAuto": {"groupBy": "$x", "buckets": 4}}
    )
    assert [(b["_id"]["min"], b["_id"]["max"], b["count"]) for b in found] == [(2, 5, 1), (5, 10, 1), (10, 10, 1)]
    cities = [{"zip_id": 94301, "name": "Palo Alto"}, {"zip_id": 10019, "name": "New York"}]
    lookup = {"localField": "zip", "foreignField": "zip_id", "as": "city", "pipeline": [{"$documents": cities}]}
    people: Documents = [{"_id": 1, "zip": 94301}, {"_id": 2, "zip": 60611}, {"_id": 3, "zip": 10019}]
    joined = aggregate(people, {"$lookup": lookup})
    assert [[city["name"] for city in person["city"]] for person in joined] == [["Palo Alto"], [], ["New York"]]
