"""Examples of MongoDB's reference for update operators, and corners of those that other tables show little of."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, Timestamp

from mongottl.errors import CommandError
from mongottl.query.update import UpdateOutcome

Update = Callable[..., UpdateOutcome]
Refusal = Callable[..., CommandError]

NOW = datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_000)
QUIZZES = [{"wk": 1, "score": 10}, {"wk": 2, "score": 8}, {"wk": 3, "score": 5}, {"wk": 4, "score": 6}]
GRADES = [{"grade": 80, "mean": 75, "std": 8}, {"grade": 85, "mean": 90, "std": 5}, {"grade": 85, "mean": 85, "std": 8}]
PRODUCT: dict[str, Any] = {
    "_id": 100,
    "quantity": 250,
    "instock": True,
    "details": {"model": "14QQ", "make": "Clothes Corp"},
    "tags": ["apparel", "clothing"],
    "ratings": [{"by": "Customer007", "rating": 4}],
}
RESULTS = [
    {"item": "A", "score": 5, "answers": [{"q": 1, "a": 4}, {"q": 2, "a": 6}]},
    {"item": "B", "score": 8, "answers": [{"q": 1, "a": 8}, {"q": 2, "a": 9}]},
]


def product(**changed: Any) -> dict[str, Any]:
    return {**PRODUCT, **changed}


FIELDS: list[tuple[Any, Any, Any]] = [
    # document, update, result
    (
        PRODUCT,
        {"$set": {"quantity": 500, "details": {"model": "2600", "make": "Fashionaires"}, "tags": ["coats"]}},
        product(quantity=500, details={"model": "2600", "make": "Fashionaires"}, tags=["coats"]),
    ),
    (PRODUCT, {"$set": {"details.make": "Kustom Kidz"}}, product(details={"model": "14QQ", "make": "Kustom Kidz"})),
    (
        PRODUCT,
        {"$set": {"tags.1": "rain gear", "ratings.0.rating": 2}},
        product(tags=["apparel", "rain gear"], ratings=[{"by": "Customer007", "rating": 2}]),
    ),
    (
        PRODUCT,
        {"$unset": {"quantity": "", "instock": ""}},
        {name: value for name, value in PRODUCT.items() if name not in ("quantity", "instock")},
    ),
    (PRODUCT, {"$unset": {"details.make": ""}}, product(details={"model": "14QQ"})),
    ({"_id": 1, "quantity": 10, "metrics": {"orders": 2, "x": 3.5}}, {"$inc": {"quantity": -2, "metrics.orders": 1}},
     {"_id": 1, "quantity": 8, "metrics": {"orders": 3, "x": 3.5}}),
    ({"_id": 1, "price": Decimal128("10.99"), "quantity": 25}, {"$mul": {"price": Decimal128("1.25"), "quantity": 2}},
     {"_id": 1, "price": Decimal128("13.7375"), "quantity": 50}),
    ({"_id": 2}, {"$mul": {"price": Int64(100)}}, {"_id": 2, "price": Int64(0)}),
    ({"_id": 3, "price": Int64(10)}, {"$mul": {"price": 5}}, {"_id": 3, "price": Int64(50)}),
    ({"_id": 1, "high": 800, "low": 200}, {"$min": {"low": 150}}, {"_id": 1, "high": 800, "low": 150}),
    ({"_id": 1, "high": 800, "low": 200}, {"$max": {"high": 950}}, {"_id": 1, "high": 950, "low": 200}),
    ({"_id": 1, "entered": datetime(2013, 10, 1, 5, tzinfo=UTC)},
     {"$min": {"entered": datetime(2013, 9, 25, tzinfo=UTC)}},
     {"_id": 1, "entered": datetime(2013, 9, 25, tzinfo=UTC)}),
    ({"_id": 1, "expired": datetime(2013, 10, 1, tzinfo=UTC)}, {"$max": {"expired": datetime(2014, 1, 7, tzinfo=UTC)}},
     {"_id": 1, "expired": datetime(2014, 1, 7, tzinfo=UTC)}),
    # $rename looks for no array, and takes the new field to the end
    ({"_id": 1, "nmae": {"first": "george"}, "nickname": "G"}, {"$rename": {"nmae": "name", "none": "x"}},
     {"_id": 1, "nickname": "G", "name": {"first": "george"}}),
    ({"_id": 1, "name": {"first": "mary", "last": "x"}}, {"$rename": {"name.first": "name.fname"}},
     {"_id": 1, "name": {"last": "x", "fname": "mary"}}),
    ({"_id": 1, "name": {"first": "mary"}}, {"$rename": {"name.last": "contact.lname", "name.first": "contact.fname"}},
     {"_id": 1, "name": {}, "contact": {"fname": "mary"}}),
    # $currentDate
    ({"_id": 1, "status": "a", "lastModified": datetime(2013, 10, 2, tzinfo=UTC)},
     {"$currentDate": {"lastModified": True, "cancellation.date": {"$type": "timestamp"}},
      "$set": {"cancellation.reason": "user request", "status": "D"}},
     {"_id": 1, "status": "D", "lastModified": NOW,
      "cancellation": {"date": Timestamp(1_700_000_000, 1), "reason": "user request"}}),
    ({"_id": 1, "l": [0, 1]}, {"$currentDate": {"l.1": True}}, {"_id": 1, "l": [0, NOW]}),
    ({"_id": 1, "l": []}, {"$currentDate": {"l.1": {"$type": "date"}}}, {"_id": 1, "l": [None, NOW]}),
    ({"_id": 1}, {"$currentDate": {"b": True, "a": True}}, {"_id": 1, "a": NOW, "b": NOW}),
    # $bit
    ({"_id": 1, "expdata": 13}, {"$bit": {"expdata": {"and": 10}}}, {"_id": 1, "expdata": 8}),
    ({"_id": 2, "expdata": 3}, {"$bit": {"expdata": {"or": 5}}}, {"_id": 2, "expdata": 7}),
    ({"_id": 3, "expdata": 1}, {"$bit": {"expdata": {"xor": 5}}}, {"_id": 3, "expdata": 4}),
    # several operators at once
    ({"_id": 1, "n": 1, "l": [1], "x": 1}, {"$inc": {"n": 1}, "$push": {"l": 2}, "$unset": {"x": ""}, "$set": {"a": 1}},
     {"_id": 1, "n": 2, "l": [1, 2], "a": 1}),
]  # fmt: skip

ARRAYS: list[tuple[Any, Any, Any]] = [
    # array at `v`, what is done to it, result
    ([44, 78, 38, 80], {"$push": {"v": 89}}, [44, 78, 38, 80, 89]),
    ([44], {"$push": {"v": {"$each": [90, 92, 85]}}}, [44, 90, 92, 85]),
    (
        QUIZZES,
        {
            "$push": {
                "v": {
                    "$each": [{"wk": 5, "score": 8}, {"wk": 6, "score": 7}, {"wk": 7, "score": 6}],
                    "$sort": {"score": -1},
                    "$slice": 3,
                }
            }
        },
        [{"wk": 1, "score": 10}, {"wk": 2, "score": 8}, {"wk": 5, "score": 8}],
    ),
    ([40, 50, 60], {"$push": {"v": {"$each": [80, 78, 86], "$slice": -5}}}, [50, 60, 80, 78, 86]),
    ([89, 90], {"$push": {"v": {"$each": [100, 20], "$slice": 3}}}, [89, 90, 100]),
    ([89, 70, 89, 50], {"$push": {"v": {"$each": [40, 60], "$sort": 1}}}, [40, 50, 60, 70, 89, 89]),
    ([89, 70], {"$push": {"v": {"$each": [], "$sort": -1}}}, [89, 70]),
    # $position
    ([100], {"$push": {"v": {"$each": [50, 60, 70], "$position": 0}}}, [50, 60, 70, 100]),
    ([50, 60, 70, 100], {"$push": {"v": {"$each": [20, 30], "$position": 2}}}, [50, 60, 20, 30, 70, 100]),
    ([50, 60, 20, 30, 70, 100], {"$push": {"v": {"$each": [90, 80], "$position": -2}}},
     [50, 60, 20, 30, 90, 80, 70, 100]),
    ([1, 2], {"$push": {"v": {"$each": [9], "$position": 2}}}, [1, 2, 9]),
    ([1, 2], {"$push": {"v": {"$each": [9], "$position": Int64(1)}}}, [1, 9, 2]),
    ([1, 2], {"$push": {"v": {"$each": [9], "$position": 1.0}}}, [1, 9, 2]),
    ([], {"$push": {"v": {"$each": [9], "$position": -1}}}, [9]),
    ([], {"$push": {"v": {"$each": [8, 9], "$position": 5}}}, [8, 9]),
    ([1, 2], {"$push": {"v": {"$each": [], "$position": 0, "$slice": 1}}}, [1]),
    ([3, 1], {"$push": {"v": {"$each": [2], "$position": 0, "$sort": 1}}}, [1, 2, 3]),
    # $addToSet
    (["a", "b"], {"$addToSet": {"v": ["c", "d"]}}, ["a", "b", ["c", "d"]]),
    (["electronics", "supplies"], {"$addToSet": {"v": {"$each": ["camera", "electronics", "accessories"]}}},
     ["electronics", "supplies", "camera", "accessories"]),
    # $pop
    ([8, 9, 10], {"$pop": {"v": -1}}, [9, 10]),
    ([9, 10], {"$pop": {"v": 1}}, [9]),
    # $pull
    (["apples", "pears", "oranges", "grapes", "bananas"], {"$pull": {"v": {"$in": ["apples", "oranges"]}}},
     ["pears", "grapes", "bananas"]),
    ([3, 5, 6, 7, 7, 8], {"$pull": {"v": {"$gte": 6}}}, [3, 5]),
    (RESULTS, {"$pull": {"v": {"score": 8, "item": "B"}}}, RESULTS[:1]),
    (RESULTS, {"$pull": {"v": {"answers": {"$elemMatch": {"q": 2, "a": {"$gte": 8}}}}}}, RESULTS[:1]),
    (RESULTS, {"$pull": {"v": {"$elemMatch": {"q": 2}}}}, None),
    # $pullAll
    ([0, 2, 5, 5, 1, 0], {"$pullAll": {"v": [0, 5]}}, [2, 1]),
    ([1, 1.0, Int64(1), Decimal128("1.0"), "1", True], {"$pullAll": {"v": [1]}}, ["1", True]),
    ([None, [], {}, [None]], {"$pullAll": {"v": [None, []]}}, [{}, [None]]),
    ([[1, 2], [2, 1], [1, 2.0]], {"$pullAll": {"v": [[1, 2]]}}, [[2, 1]]),
]  # fmt: skip

POSITIONS: list[tuple[Any, Any, Any, Any, Any]] = [
    # array at `v`, query, update, array filters, result
    ([85, 80, 80], {"v": 80}, {"$set": {"v.$": 82}}, [], [85, 82, 80]),
    (GRADES, {"v.grade": 85}, {"$set": {"v.$.std": 6}}, [], [GRADES[0], {**GRADES[1], "std": 6}, GRADES[2]]),
    (
        GRADES,
        {"v": {"$elemMatch": {"grade": {"$lte": 90}, "mean": {"$gt": 80}}}},
        {"$set": {"v.$.std": 6}},
        [],
        [GRADES[0], {**GRADES[1], "std": 6}, GRADES[2]],
    ),
    ([85, 82, 80], None, {"$inc": {"v.$[]": 10}}, [], [95, 92, 90]),
    (GRADES, None, {"$inc": {"v.$[].std": -2}}, [], [{**one, "std": one["std"] - 2} for one in GRADES]),
    ([95, 102, 90, 110], None, {"$set": {"v.$[element]": 100}}, [{"element": {"$gte": 100}}], [95, 100, 90, 100]),
    (
        GRADES,
        None,
        {"$set": {"v.$[elem].mean": 100}},
        [{"elem.grade": {"$gte": 85}}],
        [GRADES[0], {**GRADES[1], "mean": 100}, {**GRADES[2], "mean": 100}],
    ),
    (
        GRADES,
        None,
        {"$inc": {"v.$[elem].std": -1}},
        [{"elem.grade": {"$gte": 80}, "elem.std": {"$gt": 5}}],
        [{**GRADES[0], "std": 7}, GRADES[1], {**GRADES[2], "std": 7}],
    ),
    (["a", "b"], None, {"$set": {"v.$[x]": "z"}}, [{"x": {"$not": {"$eq": "a"}}}], ["a", "z"]),
    (
        [{"type": "quiz", "q": [10, 8, 5]}, {"type": "quiz", "q": [8, 9, 6]}, {"type": "exam", "q": [25]}],
        None,
        {"$inc": {"v.$[t].q.$[s]": 90}},
        [{"t.type": "quiz"}, {"s": {"$gte": 8}}],
        [{"type": "quiz", "q": [100, 98, 5]}, {"type": "quiz", "q": [98, 99, 6]}, {"type": "exam", "q": [25]}],
    ),
    (
        [{"q": [10, 8]}, {"q": []}],
        None,
        {"$max": {"v.$[].q.$[]": 9}},
        [],
        [{"q": [10, 9]}, {"q": []}],
    ),
    ([1, 2, 3], {"v": {"$in": [2, 3]}}, {"$unset": {"v.$": ""}}, [], [1, None, 3]),
    ([[1, 2], [3]], None, {"$push": {"v.$[]": 0}}, [], [[1, 2, 0], [3, 0]]),
    ([[1, 2], [3, 4]], None, {"$pull": {"v.$[]": {"$gt": 2}}}, [], [[1, 2], []]),
]


@pytest.mark.parametrize(("before", "update", "after"), FIELDS)
def test_fields(apply: Update, before: Any, update: Any, after: Any) -> None:
    assert apply(before, update).document == bson.encode(after)


@pytest.mark.parametrize(("before", "update", "after"), ARRAYS)
def test_arrays(apply: Update, before: Any, update: Any, after: Any) -> None:
    after = before if after is None else after
    assert apply({"_id": 1, "v": before}, update).document == bson.encode({"_id": 1, "v": after})


@pytest.mark.parametrize(("before", "query", "update", "filters", "after"), POSITIONS)
def test_positions(apply: Update, before: Any, query: Any, update: Any, filters: Any, after: Any) -> None:
    assert apply({"_id": 1, "v": before}, update, query, filters).document == bson.encode({"_id": 1, "v": after})


@pytest.mark.parametrize(
    ("query", "update", "inserted"),
    [
        ({"_id": 1}, {"$set": {"item": "apple"}, "$setOnInsert": {"defaultQty": 100}},
         {"_id": 1, "defaultQty": 100, "item": "apple"}),
        ({"_id": 1, "a": {"$gt": 5}}, {"$setOnInsert": {"b": 1}}, {"_id": 1, "b": 1}),
        ({"_id": 1, "a": 5}, {"$setOnInsert": {"b": 1}}, {"_id": 1, "a": 5, "b": 1}),
        ({"_id": 1, "a.b": 5}, {"$setOnInsert": {"a.c": 1}}, {"_id": 1, "a": {"b": 5, "c": 1}}),
        ({"_id": 1}, {"$setOnInsert": {"a.b.c": 1}}, {"_id": 1, "a": {"b": {"c": 1}}}),
        ({"_id": 1, "$and": [{"a": 1}, {"b": {"$eq": 2}}]}, {"$setOnInsert": {"c": 3}},
         {"_id": 1, "a": 1, "b": 2, "c": 3}),
        ({"_id": 1, "$or": [{"a": 1}]}, {"$setOnInsert": {"c": 3}}, {"_id": 1, "a": 1, "c": 3}),
        ({"_id": 1, "$or": [{"a": 1}, {"a": 2}]}, {"$setOnInsert": {"c": 3}}, {"_id": 1, "c": 3}),
        ({"_id": 1, "a": {"$all": [1]}}, {"$setOnInsert": {"c": 3}}, {"_id": 1, "a": 1, "c": 3}),
        ({"_id": 1}, {"$setOnInsert": {"z": 1, "b": 2}, "$inc": {"n": 1}}, {"_id": 1, "b": 2, "n": 1, "z": 1}),
        ({"a": 1}, {"$setOnInsert": {"_id": 9}}, {"_id": 9, "a": 1}),
        ({"_id": 1, "l": [1, 2]}, {"$push": {"l": 3}}, {"_id": 1, "l": [1, 2, 3]}),
        ({"_id": 1}, {"$unset": {"a": ""}, "$pull": {"b": 1}, "$pop": {"c": 1}}, {"_id": 1}),
    ],
)  # fmt: skip
def test_upsert_inserts_filter_and_modifiers(
    upsert: Callable[[Any, Any], bytes], query: Any, update: Any, inserted: Any
) -> None:
    assert upsert(query, update) == bson.encode(inserted)


@pytest.mark.parametrize(
    ("update", "code"),
    [
        ({"$push": {"v": {"$each": [1], "$position": "0"}}}, 2),
        ({"$push": {"v": {"$each": [1], "$position": 1.5}}}, 2),
        ({"$push": {"v": {"$each": [1], "$position": 2.0**63}}}, 2),
        ({"$currentDate": {"v": "date"}}, 2),
        ({"$currentDate": {"v": {"$type": 9}}}, 2),
        ({"$currentDate": {"v": {"$kind": "date"}}}, 2),
        ({"$currentDate": {"v.x": True}}, 28),
        ({"$currentDate": 1}, 9),
        ({"$setOnInsert": 1}, 9),
        ({"$setOnInsert": {"v": 1}, "$set": {"v.0": 1}}, 40),
        ({"$pullAll": {"v": {"$each": [1]}}}, 2),
        ({"$pullAll": {"v.x": [1]}}, 28),
        ({"$pullAll": {"s": [1]}}, 2),
    ],
)
def test_refused(refuse: Refusal, update: Any, code: int) -> None:
    assert refuse({"_id": 1, "v": [1, 2], "s": "x"}, update).code == code
