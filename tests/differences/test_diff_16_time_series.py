"""Time series collections have no buckets.

MongoDB packs measurements into documents of a collection `system.buckets.<name>`, which expire when all in them have.
Here measurements are documents of their own. Source: MongoDB's "Time Series" pages.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.database import Database


def test_there_are_no_buckets(database: Database[dict[str, Any]]) -> None:
    database.create_collection("c", timeseries={"timeField": "at", "metaField": "m"})
    start = datetime.now(UTC)
    database.c.insert_many([{"at": start + timedelta(seconds=i), "m": 1, "v": i} for i in range(10)])
    assert database.list_collection_names() == ["c"]
    assert database["system.buckets.c"].count_documents({}) == 0
    assert "timeseries" not in database.command("collStats", "c")
    assert [document["v"] for document in database.c.find({"m": 1}).sort("at", -1).limit(2)] == [9, 8]
