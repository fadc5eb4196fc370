"""Counts leave expired documents out, sizes include them until they are deleted.

`collStats.count` and `dbStats.objects` leave out what is expired and not purged yet. MongoDB counts every document
until it is deleted (manual, "collStats"). What Cosmos DB counts is not documented.
"""

from typing import Any

from pymongo.database import Database

import mongottl


def test_expired_documents_count_in_size_but_not_in_count(
    database: Database[dict[str, Any]], server: mongottl.RunningServer
) -> None:
    database["c"].create_index("_ts", expireAfterSeconds=10)
    database["c"].insert_many([{"_id": 1}, {"_id": 2, "ttl": -1}])
    database.client["admin"].command({"setParameter": 1, "ttlMonitorEnabled": False})
    before = database.command("collStats", "c")
    server.clock.advance(10)
    after = database.command("collStats", "c")
    assert (before["count"], after["count"]) == (2, 1)
    assert database.command("dbStats")["objects"] == 1
    assert before["size"] == after["size"]
