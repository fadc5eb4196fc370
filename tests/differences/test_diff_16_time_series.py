"""Time series collections have no buckets.

MongoDB packs measurements into documents of a collection `system.buckets.<name>`, which expire when all in them have.
Here measurements are documents of their own. Source: MongoDB's "Time Series" pages.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure


def test_there_are_no_buckets(database: Database[dict[str, Any]]) -> None:
    database.create_collection("c", timeseries={"timeField": "at", "metaField": "m"})
    start = datetime.now(UTC)
    database.c.insert_many([{"at": start + timedelta(seconds=i), "m": 1, "v": i} for i in range(10)])
    assert database.list_collection_names() == ["c"]
    for refused in ({"find": "system.buckets.c"}, {"count": "system.buckets.c"}, {"find": "c", "rawData": True}):
        with pytest.raises(OperationFailure, match="has no buckets here") as caught:
            database.command(refused)
        assert caught.value.code == 115
    with pytest.raises(OperationFailure, match="has no buckets here"):
        database["system.buckets.c"].insert_one({"control": {"version": 1}})
    assert "timeseries" not in database.command("collStats", "c")
    assert [document["v"] for document in database.c.find({"m": 1}).sort("at", -1).limit(2)] == [9, 8]
