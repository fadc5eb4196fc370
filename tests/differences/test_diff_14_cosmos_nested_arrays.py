"""In the `cosmos` dialect, unique and compound indexes on nested paths have the values in arrays.

Cosmos DB, with the capability `EnableUniqueCompoundNestedDocs`, leaves out what has an array on the path, and so finds
no duplicates there. Source: Microsoft's article on indexing in Azure Cosmos DB for MongoDB.
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, WriteError


def test_duplicates_in_arrays_are_found(cosmos: Database[dict[str, Any]]) -> None:
    cosmos.client.admin.command("configureCosmos", {"capabilities": ["EnableUniqueCompoundNestedDocs"]})
    cosmos["c"].create_index("a.b", unique=True)
    cosmos["c"].insert_one({"a": [{"b": 1}]})
    with pytest.raises(DuplicateKeyError):
        cosmos["c"].insert_one({"a": [{"b": 1}]})


def test_several_arrays_are_refused(cosmos: Database[dict[str, Any]]) -> None:
    cosmos.client.admin.command("configureCosmos", {"capabilities": ["EnableUniqueCompoundNestedDocs"]})
    cosmos["c"].create_index([("a.b", 1), ("c.d", 1)])
    with pytest.raises(WriteError) as caught:
        cosmos["c"].insert_one({"a": [{"b": 1}], "c": [{"d": 1}]})
    assert caught.value.code == 171
