"""The `cosmos` dialect does not refuse all that Cosmos DB refuses.

Cosmos DB does not support comparison expressions with an array literal. Source: Microsoft's articles on the features
that its API for MongoDB supports.
"""

from typing import Any

from pymongo.database import Database


def test_expressions_compare_with_array_literals(cosmos: Database[dict[str, Any]]) -> None:
    cosmos["c"].insert_one({"_id": 1, "a": [1, 2]})
    assert cosmos["c"].count_documents({"$expr": {"$eq": ["$a", [1, 2]]}}) == 1
