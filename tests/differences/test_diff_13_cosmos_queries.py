"""The `cosmos` dialect refuses commands, but few queries.

Cosmos DB has no collations, and throttles by request units (16500). Sources: Microsoft's error article for its API for
MongoDB, and its answer about collations (learn.microsoft.com/answers, question 1304496).
"""

from typing import Any

import pytest
from pymongo.database import Database


def test_collations_work(cosmos: Database[dict[str, Any]]) -> None:
    pytest.importorskip("icu")
    cosmos["c"].insert_one({"_id": 1, "name": "Ada"})
    assert cosmos["c"].find_one({"name": "ada"}, collation={"locale": "en", "strength": 2}) is not None
