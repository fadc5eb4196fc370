"""`{_ts: 1}` with `expireAfterSeconds` is a setting, not an index.

In MongoDB an index on a field `_ts` with `expireAfterSeconds` is a TTL index on dates of that field (manual, "TTL
Indexes"). In Cosmos DB it sets the default of the collection (Microsoft's article on expiring data); whether it serves
queries is not documented.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl


def test_ts_index_serves_no_query(database: Database[dict[str, Any]]) -> None:
    database["c"].create_index("_ts", expireAfterSeconds=10)
    database["c"].insert_one({"_id": 1, "_ts": 5})
    assert database["c"].find({"_ts": 5}).explain()["queryPlanner"]["winningPlan"]["stage"] == "COLLSCAN"
    with pytest.raises(OperationFailure) as caught:
        database["c"].find_one({"_ts": 5}, hint="_ts_1")
    assert caught.value.code == 2


def test_dates_in_a_field_of_that_name_say_nothing(
    database: Database[dict[str, Any]], server: mongottl.RunningServer
) -> None:
    database["c"].create_index("_ts", expireAfterSeconds=10)
    database["c"].insert_one({"_id": 1, "_ts": datetime(2000, 1, 1, tzinfo=UTC)})
    assert server.clock.advance(5) == 0
    assert database["c"].count_documents({}) == 1
