"""The `cosmos` dialect does not refuse all that Cosmos DB refuses.

Microsoft's page on indexes says that compound indexes cannot be created on arrays, but not what becomes of a document
with an array on one of the paths.
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import WriteError


def test_compound_indexes_take_arrays(cosmos: Database[dict[str, Any]]) -> None:
    cosmos["c"].create_index([("a", 1), ("b", 1)])
    cosmos["c"].insert_one({"_id": 1, "a": [1, 2], "b": 1})
    assert cosmos["c"].count_documents({"a": 2, "b": 1}) == 1
    with pytest.raises(WriteError) as caught:
        cosmos["c"].insert_one({"_id": 2, "a": [1, 2], "b": [1, 2]})
    assert caught.value.code == 171


def test_the_index_on_the_shard_key_is_listed(cosmos: Database[dict[str, Any]]) -> None:
    cosmos.command("shardCollection", f"{cosmos.name}.c", key={"k": "hashed"})
    assert sorted(cosmos["c"].index_information()) == ["_id_", "k_1"]
    assert cosmos["c"].create_index("k") == "k_1"


def test_explain_of_other_commands_is_mongodb_s(cosmos: Database[dict[str, Any]]) -> None:
    assert "stages" in cosmos.command("explain", {"find": "c"})
    assert "queryPlanner" in cosmos.command("explain", {"count": "c"})
