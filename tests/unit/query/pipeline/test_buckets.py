"""$bucket, $bucketAuto and $sortByCount: the examples of MongoDB's reference, and corners."""

import datetime
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey

Documents = list[dict[str, Any]]
Aggregate = Callable[..., Documents]

ARTISTS: Documents = [
    {"_id": i, "name": name, "born": born}
    for i, (name, born) in enumerate(
        [
            ("Emil Bernard", 1868),
            ("Joszef Rippl-Ronai", 1861),
            ("Anna Ostroumova", 1871),
            ("Vincent Van Gogh", 1853),
            ("Alfred Maurer", 1868),
            ("Edvard Munch", 1863),
            ("Odilon Redon", 1840),
            ("Edvard Diriks", 1855),
        ],
        1,
    )
]
PRICES: Documents = [
    {"_id": i, "title": title, **({} if price is None else {"price": price})}
    for i, (title, price) in enumerate(
        [
            ("The Pillars of Society", 199.99),
            ("Melancholy III", 280.0),
            ("Dancer", 76.04),
            ("The Great Wave off Kanagawa", 167.3),
            ("The Persistence of Memory", 483.0),
            ("Composition VII", 385.0),
            ("The Scream", None),
            ("Blue Flower", 118.42),
        ],
        1,
    )
]


def values(*found: Any) -> Documents:
    return [{} if value is ... else {"v": value} for value in found]


def test_artists_by_decade(aggregate: Aggregate) -> None:
    stage = {
        "groupBy": "$born",
        "boundaries": [1840, 1850, 1860, 1870, 1880],
        "default": "Other",
        "output": {"count": {"$sum": 1}, "artists": {"$push": {"name": "$name", "born": "$born"}}},
    }
    decades = aggregate(ARTISTS, {"$bucket": stage})
    assert [(decade["_id"], decade["count"]) for decade in decades] == [(1840, 1), (1850, 2), (1860, 4), (1870, 1)]
    [large] = aggregate(ARTISTS, {"$bucket": stage}, {"$match": {"count": {"$gt": 3}}})
    assert [artist["name"] for artist in large["artists"]] == [
        "Emil Bernard",
        "Joszef Rippl-Ronai",
        "Alfred Maurer",
        "Edvard Munch",
    ]


def test_pictures_by_price(aggregate: Aggregate) -> None:
    output = {"count": {"$sum": 1}, "titles": {"$push": "$title"}}
    stage = {"groupBy": "$price", "boundaries": [0, 200, 400], "default": "Other", "output": output}
    assert aggregate(PRICES, {"$bucket": stage}) == [
        {
            "_id": 0,
            "count": 4,
            "titles": ["The Pillars of Society", "Dancer", "The Great Wave off Kanagawa", "Blue Flower"],
        },
        {"_id": 200, "count": 2, "titles": ["Melancholy III", "Composition VII"]},
        {"_id": "Other", "count": 2, "titles": ["The Persistence of Memory", "The Scream"]},
    ]


DAY = datetime.datetime(2024, 1, 1)
REST = "rest"

BUCKETS: list[tuple[list[Any], Any, Any, list[tuple[Any, int]]]] = [
    # values, boundaries, default, buckets with their counts
    ([0, 9, 10], [0, 10, 20], REST, [(0, 2), (10, 1)]),
    ([20, -1, 5], [0, 10, 20], REST, [(0, 1), (REST, 2)]),
    ([1.5, Int64(1), Decimal128("1.9"), 2], [1, 2], REST, [(1, 3), (REST, 1)]),
    ([1], [0.5, Int64(2)], REST, [(0.5, 1)]),
    ([..., None, 1], [0, 5], REST, [(0, 1), (REST, 2)]),
    ([..., None, 1], [0, 5], -1, [(-1, 2), (0, 1)]),
    ([1, 7], [0, 5], 5, [(0, 1), (5, 1)]),
    ([1, 7], [0, 5], None, [(None, 1), (0, 1)]),
    (["a", "b", "bz", "c", 1], ["a", "b", "c"], REST, [("a", 1), ("b", 2), (REST, 2)]),
    ([DAY, datetime.datetime(2024, 6, 1), 1], [DAY, datetime.datetime(2025, 1, 1)], REST, [(REST, 1), (DAY, 2)]),
    ([float("nan"), float("-inf"), 0], [0, 1], REST, [(0, 1), (REST, 2)]),
    ([[1], {"x": 1}, True], [0, 5], REST, [(REST, 3)]),
    ([], [0, 5], REST, []),
]


@pytest.mark.parametrize(("found", "boundaries", "default", "buckets"), BUCKETS)
def test_buckets(aggregate: Aggregate, found: Any, boundaries: Any, default: Any, buckets: Any) -> None:
    stage = {"$bucket": {"groupBy": "$v", "boundaries": boundaries, "default": default}}
    expected = [{"_id": low, "count": count} for low, count in buckets]
    assert list(map(bson.encode, aggregate(values(*found), stage))) == list(map(bson.encode, expected))


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ({"groupBy": "$v", "boundaries": [0, 5], "other": 1}, 40197),
        ({"groupBy": "v", "boundaries": [0, 5]}, 40202),
        ({"groupBy": 5, "boundaries": [0, 5]}, 40202),
        ({"groupBy": "$v", "boundaries": 5}, 40200),
        ({"groupBy": "$v", "boundaries": ["$v", 5]}, 40191),
        ({"groupBy": "$v", "boundaries": [0]}, 40192),
        ({"groupBy": "$v", "boundaries": [0, "a"]}, 40193),
        ({"groupBy": "$v", "boundaries": [0, 5, 5]}, 40194),
        ({"groupBy": "$v", "boundaries": [0, 5], "default": "$v"}, 40195),
        ({"groupBy": "$v", "boundaries": [0, 5], "output": 1}, 40196),
        ({"groupBy": "$v", "boundaries": [0, 5], "default": 3}, 40199),
        ({"groupBy": "$v", "boundaries": [0, 5]}, 40066),  # 9 belongs nowhere
    ],
)
def test_bucket_refuses(refused: Callable[..., int], argument: dict[str, Any], code: int) -> None:
    assert refused(values(9), {"$bucket": argument}) == code


def test_pictures_in_four_buckets(aggregate: Aggregate) -> None:
    pictures = [{**picture, "price": picture.get("price", 159.0)} for picture in PRICES]
    found = aggregate(pictures, {"$bucketAuto": {"groupBy": "$price", "buckets": 4}})
    assert [(bucket["_id"]["min"], bucket["_id"]["max"], bucket["count"]) for bucket in found] == [
        (76.04, 159.0, 2),
        (159.0, 199.99, 2),
        (199.99, 385.0, 2),
        (385.0, 483.0, 2),
    ]


@pytest.mark.parametrize(
    ("granularity", "buckets"),
    [
        # the documentation's hundred things with `_id`s from 0 to 99, in five buckets
        (None, [(0, 20, 20), (20, 40, 20), (40, 60, 20), (60, 80, 20), (80, 99, 20)]),
        ("R20", [(0, 20, 20), (20, 40, 20), (40, 63, 23), (63, 90, 27), (90, 100, 10)]),
        ("E24", [(0, 20, 20), (20, 43, 23), (43, 68, 25), (68, 91, 23), (91, 100, 9)]),
        ("1-2-5", [(0, 20, 20), (20, 50, 30), (50, 100, 50)]),
        ("POWERSOF2", [(0, 32, 32), (32, 64, 32), (64, 128, 36)]),
    ],
)
def test_preferred_numbers(aggregate: Aggregate, granularity: str | None, buckets: list[Any]) -> None:
    things: Documents = [{"_id": i} for i in range(100)]
    stage = {"groupBy": "$_id", "buckets": 5, **({} if granularity is None else {"granularity": granularity})}
    found = aggregate(things, {"$bucketAuto": stage})
    assert [(bucket["_id"]["min"], bucket["_id"]["max"], bucket["count"]) for bucket in found] == buckets


@pytest.mark.parametrize(
    ("found", "wanted", "buckets"),
    [
        ([3, 1, 2], 3, [(1, 2, 1), (2, 3, 1), (3, 3, 1)]),
        ([1, 2], 5, [(1, 2, 1), (2, 2, 1)]),  # no more buckets than values
        ([7, 7, 7], 2, [(7, 7, 3)]),  # equal values are not parted
        ([1, 1, 1, 2], 4, [(1, 2, 3), (2, 2, 1)]),
        ([1, 2, 3, 4, 5], 2, [(1, 4, 3), (4, 5, 2)]),
        ([..., None, 1], 2, [(None, 1, 2), (1, 1, 1)]),
        ([MaxKey(), "a", 1, MinKey()], 2, [(MinKey(), "a", 2), ("a", MaxKey(), 2)]),
        ([[1], {"x": 1}, 5], 3, [(5, {"x": 1}, 1), ({"x": 1}, [1], 1), ([1], [1], 1)]),
        ([], 3, []),
        ([5], 1, [(5, 5, 1)]),
    ],
)
def test_automatic_buckets(aggregate: Aggregate, found: list[Any], wanted: int, buckets: list[Any]) -> None:
    shown = aggregate(values(*found), {"$bucketAuto": {"groupBy": "$v", "buckets": wanted}})
    assert [(bucket["_id"]["min"], bucket["_id"]["max"], bucket["count"]) for bucket in shown] == buckets


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (1, 40240),
        ({"groupBy": "$v", "buckets": 2, "other": 1}, 40245),
        ({"groupBy": "v", "buckets": 2}, 40239),
        ({"groupBy": "$v", "buckets": "2"}, 40241),
        ({"groupBy": "$v", "buckets": 1.5}, 40242),
        ({"groupBy": "$v", "buckets": 0}, 40243),
        ({"groupBy": "$v", "buckets": 2, "output": 1}, 40244),
        ({"groupBy": "$v"}, 40246),
        ({"groupBy": "$v", "buckets": 2, "granularity": 1}, 40261),
        ({"groupBy": "$v", "buckets": 2, "granularity": "E7"}, 40257),
        ({"groupBy": "$s", "buckets": 2, "granularity": "E6"}, 40258),
        ({"groupBy": "$nan", "buckets": 2, "granularity": "E6"}, 40259),
        ({"groupBy": "$minus", "buckets": 2, "granularity": "E6"}, 40260),
    ],
)
def test_bucket_auto_refuses(refused: Callable[..., int], argument: Any, code: int) -> None:
    assert refused([{"v": 1, "s": "x", "nan": float("nan"), "minus": -1}], {"$bucketAuto": argument}) == code


def test_tags_by_count(aggregate: Aggregate) -> None:
    exhibits = [
        ["painting", "satire", "Expressionism", "caricature"],
        ["woodcut", "Expressionism"],
        ["oil", "Surrealism", "painting"],
        ["woodblock", "ukiyo-e"],
        ["Surrealism", "painting", "oil"],
        ["oil", "painting", "abstract"],
        ["Expressionism", "painting", "oil"],
        ["abstract", "painting"],
    ]
    documents = [{"_id": i, "tags": tags} for i, tags in enumerate(exhibits)]
    counted = aggregate(documents, {"$unwind": "$tags"}, {"$sortByCount": "$tags"})
    assert [(tag["_id"], tag["count"]) for tag in counted[:3]] == [("painting", 6), ("oil", 4), ("Expressionism", 3)]
    assert {tag["_id"] for tag in counted[3:5]} == {"Surrealism", "abstract"}
    assert {tag["count"] for tag in counted[5:]} == {1}


@pytest.mark.parametrize(
    ("found", "expression", "counts"),
    [
        ([1, 2, 2, 3, 3, 3], "$v", [(3, 3), (2, 2), (1, 1)]),
        ([1, 1.0, Int64(1), Decimal128("1"), 2], "$v", [(1, 4), (2, 1)]),
        ([None, ..., 5], "$v", [(None, 2), (5, 1)]),
        ([[1, 2], [1, 2], [2, 1]], "$v", [([1, 2], 2), ([2, 1], 1)]),
        ([1, 5, 7], {"$gt": ["$v", 3]}, [(True, 2), (False, 1)]),
        ([1, 2, 3, 4, 5], {"$mod": ["$v", 2]}, [(1, 3), (0, 2)]),
        (["aX", "aY", "b"], {"$substrCP": ["$v", 0, 1]}, [("a", 2), ("b", 1)]),
        ([1, 2, 2], {"$literal": "one"}, [("one", 3)]),
        ([float("nan"), Decimal128("NaN")], {"$type": "$v"}, [("double", 1), ("decimal", 1)]),
        ([], "$v", []),
    ],
)
def test_sort_by_count(aggregate: Aggregate, found: list[Any], expression: Any, counts: list[Any]) -> None:
    shown = aggregate(values(*found), {"$sortByCount": expression})
    assert [(group["_id"], group["count"]) for group in shown] == counts


@pytest.mark.parametrize(
    ("expression", "code"),
    [(1, 40149), ("v", 40148), ("", 40148), ({}, 40147), ({"a": "$v"}, 40147), (None, 40149), ([], 40149)],
)
def test_sort_by_count_refuses(refused: Callable[..., int], expression: Any, code: int) -> None:
    assert refused([], {"$sortByCount": expression}) == code
