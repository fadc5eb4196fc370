"""Examples of MongoDB's reference for filters, each as which documents (by `_id`) it finds."""

import datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, Regex

from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match

Documents = list[dict[str, Any]]


def ids(documents: Documents, filter: dict[str, Any]) -> list[Any]:
    expression = parse_match(bson.encode(filter), ParseContext())
    return [document["_id"] for document in documents if expression.matches(bson.encode(document))]


def numbered(field: str, *values: Any) -> Documents:
    return [{"_id": i, **({} if value is ... else {field: value})} for i, value in enumerate(values, 1)]


PARTS: Documents = [
    {"_id": 1, "item": {"name": "ab", "code": "123"}, "qty": 15, "tags": ["A", "B", "C"]},
    {"_id": 2, "item": {"name": "cd", "code": "123"}, "qty": 20, "tags": ["B"]},
    {"_id": 3, "item": {"name": "ij", "code": "456"}, "qty": 25, "tags": ["A", "B"]},
    {"_id": 4, "item": {"name": "xy", "code": "456"}, "qty": 30, "tags": ["B", "A"]},
    {"_id": 5, "item": {"name": "mn", "code": "000"}, "qty": 20, "tags": [["A", "B"], "C"]},
]
COMPANIES: Documents = numbered("company", "MongoDB", "MongoDB2")
STOCK: Documents = [
    {"_id": "ab", "code": "xyz", "tags": ["school", "book", "bag", "headphone", "appliance"],
     "qty": [{"size": "S", "num": 10, "color": "blue"}, {"size": "M", "num": 45, "color": "blue"},
             {"size": "L", "num": 100, "color": "green"}]},
    {"_id": "cd", "code": "abc", "tags": ["appliance", "school", "book"],
     "qty": [{"size": "6", "num": 100, "color": "green"}, {"size": "6", "num": 50, "color": "blue"},
             {"size": "8", "num": 100, "color": "brown"}]},
    {"_id": "ef", "code": "efg", "tags": ["school", "book"],
     "qty": [{"size": "S", "num": 10, "color": "blue"}, {"size": "M", "num": 100, "color": "blue"},
             {"size": "L", "num": 100, "color": "green"}]},
    {"_id": "gh", "code": "ijk", "tags": ["electronics", "school"],
     "qty": [{"size": "M", "num": 100, "color": "green"}]},
]  # fmt: skip
SURVEY: Documents = [
    {"_id": 1, "results": [{"product": "abc", "score": 10}, {"product": "xyz", "score": 5}]},
    {"_id": 2, "results": [{"product": "abc", "score": 8}, {"product": "xyz", "score": 7}]},
    {"_id": 3, "results": [{"product": "abc", "score": 7}, {"product": "xyz", "score": 8}]},
    {"_id": 4, "results": [{"product": "abc", "score": 7}, {"product": "def", "score": 8}]},
    {"_id": 5, "results": {"product": "xyz", "score": 7}},
]
ADDRESSES: Documents = numbered("zipCode", "2030316", 5.1666666e7, 8.5e7, 3213, [], 12, None)
GRADES: Documents = numbered("grades", [85.0, 84.6], 91.0, Int64(84), [], [None, "A"], "B+")
SENSORS: Documents = numbered("x", MinKey(), 1, "x", MaxKey(), [1, MaxKey()])
SALES: Documents = numbered("qty", 0, 5, 12, 8.5, Decimal128("4"), "4", -4, None)
PRODUCTS: Documents = numbered(
    "description",
    "Single line description.",
    "First line\nSecond line",
    "Many spaces before     line",
    "Multiple\nline description",
)
NULLISH: Documents = numbered("item", None, ..., "x", [None], [], {"a": None})
DAYS: Documents = numbered("at", datetime.datetime(2024, 1, 1), datetime.datetime(2024, 6, 1), "2024-03-01", None)

EXAMPLES: list[tuple[Documents, dict[str, Any], list[Any]]] = [
    # $eq, $ne
    (PARTS, {"qty": {"$eq": 20}}, [2, 5]),
    (PARTS, {"item.name": {"$eq": "ab"}}, [1]),
    (PARTS, {"tags": {"$eq": "B"}}, [1, 2, 3, 4]),
    (PARTS, {"tags": {"$eq": ["A", "B"]}}, [3, 5]),
    (COMPANIES, {"company": "MongoDB"}, [1]),
    (COMPANIES, {"company": Regex("MongoDB")}, [1, 2]),
    (COMPANIES, {"company": {"$eq": Regex("MongoDB")}}, []),
    (PARTS, {"qty": {"$ne": 20}}, [1, 3, 4]),
    (PARTS, {"item.none": {"$ne": 1}}, [1, 2, 3, 4, 5]),
    # $in, $nin
    (PARTS, {"qty": {"$in": [5, 15, 30]}}, [1, 4]),
    (PARTS, {"tags": {"$in": [Regex("^a", "i"), "none"]}}, [1, 3, 4]),
    (PARTS, {"qty": {"$nin": [20, 15]}}, [3, 4]),
    (PARTS, {"tags": {"$nin": ["A"]}}, [2, 5]),
    (PARTS, {"none": {"$nin": [5, 15]}}, [1, 2, 3, 4, 5]),
    (PARTS, {"none": {"$nin": [None, 5]}}, []),
    (PARTS, {"item.code": {"$nin": ["123", "456"]}}, [5]),
    (PARTS, {"item": {"$nin": [{"code": "123", "name": "ab"}]}}, [1, 2, 3, 4, 5]),  # the order of fields counts
    (PARTS, {"tags": {"$nin": [["A", "B"], "none"]}}, [1, 2, 4]),
    # $all
    (STOCK, {"tags": {"$all": ["appliance", "school", "book"]}}, ["ab", "cd"]),
    (
        STOCK,
        {
            "qty": {
                "$all": [
                    {"$elemMatch": {"size": "M", "num": {"$gt": 50}}},
                    {"$elemMatch": {"num": 100, "color": "green"}},
                ]
            }
        },
        ["ef", "gh"],
    ),
    (STOCK, {"qty.num": {"$all": [50]}}, ["cd"]),
    # $elemMatch
    (numbered("results", [82, 85, 88], [75, 88, 89]), {"results": {"$elemMatch": {"$gte": 80, "$lt": 85}}}, [1]),
    (SURVEY, {"results": {"$elemMatch": {"product": "xyz", "score": {"$gte": 8}}}}, [3]),
    (SURVEY, {"results": {"$elemMatch": {"product": "xyz"}}}, [1, 2, 3]),
    (SURVEY, {"results": {"$elemMatch": {"product": {"$ne": "xyz"}}}}, [1, 2, 3, 4]),
    (SURVEY, {"results.product": {"$ne": "xyz"}}, [4]),
    (SURVEY, {"results.product": "xyz", "results.score": 7}, [2, 3, 5]),  # of one element or of two
    # $type
    (ADDRESSES, {"zipCode": {"$type": 2}}, [1]),
    (ADDRESSES, {"zipCode": {"$type": "double"}}, [2, 3]),
    (ADDRESSES, {"zipCode": {"$type": "number"}}, [2, 3, 4, 6]),
    (ADDRESSES, {"zipCode": {"$type": "array"}}, [5]),
    (GRADES, {"grades": {"$type": [2, 1]}}, [1, 2, 5, 6]),
    (GRADES, {"grades": {"$type": ["string", "null"]}}, [5, 6]),
    (SENSORS, {"x": {"$type": "minKey"}}, [1]),
    (SENSORS, {"x": {"$type": "maxKey"}}, [4, 5]),
    # $exists and null
    (NULLISH, {"item": None}, [1, 2, 4]),
    (NULLISH, {"item": {"$type": 10}}, [1, 4]),
    (NULLISH, {"item": {"$exists": False}}, [2]),
    (NULLISH, {"item": {"$exists": True, "$ne": None}}, [3, 5, 6]),
    (NULLISH, {"item.a": None}, [1, 2, 3, 6]),  # what is no document has no fields; but for the elements of arrays
    (NULLISH, {"item.a": {"$exists": True}}, [6]),
    # $mod
    (SALES, {"qty": {"$mod": [4, 0]}}, [1, 3, 4, 5, 7]),
    (SALES, {"qty": {"$mod": [4.9, 0]}}, [1, 3, 4, 5, 7]),
    (SALES, {"qty": {"$mod": [-4, 0]}}, [1, 3, 4, 5, 7]),
    (SALES, {"qty": {"$mod": [5, 2]}}, [3]),
    (SALES, {"qty": {"$mod": [5, -4]}}, [7]),
    # $regex
    (PRODUCTS, {"description": {"$regex": "^S", "$options": "m"}}, [1, 2]),
    (PRODUCTS, {"description": {"$regex": "^S"}}, [1]),
    (PRODUCTS, {"description": {"$regex": "m.*line", "$options": "si"}}, [3, 4]),
    (PRODUCTS, {"description": {"$regex": "m.*line", "$options": "i"}}, [3]),
    # comparisons stay within their types
    (DAYS, {"at": {"$gte": datetime.datetime(2024, 3, 1)}}, [2]),
    (DAYS, {"at": {"$gte": "2024"}}, [3]),
    (DAYS, {"at": {"$lte": None}}, [4]),
    # logic
    (PARTS, {"$or": [{"qty": {"$lt": 20}}, {"tags": ["B"]}]}, [1, 2]),
    (PARTS, {"$nor": [{"qty": 20}, {"tags": "C"}]}, [3, 4]),
    (PARTS, {"qty": {"$not": {"$gt": 20}}}, [1, 2, 5]),
    (PARTS, {"none": {"$not": {"$gt": 20}}}, [1, 2, 3, 4, 5]),
    (PARTS, {"$and": [{"$or": [{"qty": 20}, {"qty": 25}]}, {"$or": [{"tags": "A"}, {"item.code": "000"}]}]}, [3, 5]),
    (PARTS, {"$comment": "why", "qty": {"$gt": 20}}, [3, 4]),
    (PARTS, {"$and": [{"$comment": "here"}, {"qty": 15}]}, [1]),
    (PARTS, {"qty": 15, "$alwaysTrue": 1}, [1]),
    (PARTS, {"$nor": [{"$alwaysFalse": 1}], "qty": 15}, [1]),
    (PARTS, {"$expr": {"$gt": ["$qty", {"$multiply": [2, 10]}]}}, [3, 4]),
    (PARTS, {"$expr": {"$eq": [{"$size": "$tags"}, 2]}}, [3, 4, 5]),
    # $size
    (PARTS, {"tags": {"$size": 2}}, [3, 4, 5]),
    (PARTS, {"tags.0": {"$size": 2}}, [5]),
    (PARTS, {"qty": {"$size": 1}}, []),
]


@pytest.mark.parametrize(("documents", "filter", "found"), EXAMPLES)
def test_examples(documents: Documents, filter: dict[str, Any], found: list[Any]) -> None:
    assert ids(documents, filter) == found
