"""A document with a date TTL is deleted within a second.

MongoDB's TTL monitor runs once a minute, so that documents stay up to a minute and longer (manual, "TTL Indexes",
"Timing of the Delete Operation"). Until it has been purged such a document is visible in both.
"""

from datetime import timedelta
from typing import Any

from pymongo.database import Database

import mongottl


def test_dated_document_is_purged_at_its_second(
    database: Database[dict[str, Any]], server: mongottl.RunningServer
) -> None:
    database["c"].create_index("at", expireAfterSeconds=10)
    database["c"].insert_one({"_id": 1, "at": server.clock.now()})
    database["c"].insert_one({"_id": 2, "at": server.clock.now() + timedelta(seconds=1)})
    assert server.clock.advance(9.9) == 0
    # The first whole second after the instant.
    assert server.clock.advance(1.1) >= 1
    assert [document["_id"] for document in database["c"].find()] in ([], [2])
    server.clock.advance(1)
    assert database["c"].find_one() is None


def test_dated_document_is_visible_until_it_is_purged(
    database: Database[dict[str, Any]], server: mongottl.RunningServer
) -> None:
    database["c"].create_index("at", expireAfterSeconds=10)
    database["c"].insert_one({"_id": 1, "at": server.clock.now()})
    database.client["admin"].command({"setParameter": 1, "ttlMonitorEnabled": False})
    server.clock.advance(60)
    assert database["c"].find_one() is not None
