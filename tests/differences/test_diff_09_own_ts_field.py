"""A field `_ts` of your own is kept as ordinary data.

Cosmos DB reserves the name for the time of the last write, which clients cannot read (Microsoft's article on expiring
data); what becomes of a stored field of that name is not documented. In MongoDB it is a field like any other.
"""

from typing import Any

from pymongo.database import Database

import mongottl


def test_own_ts_field_is_returned_and_has_no_effect(
    database: Database[dict[str, Any]], server: mongottl.RunningServer
) -> None:
    database["c"].create_index("_ts", expireAfterSeconds=10)
    database["c"].insert_many([{"_id": 1, "_ts": 0}, {"_id": 2}])
    server.clock.advance(9)
    assert list(database["c"].find()) == [{"_id": 1, "_ts": 0}, {"_id": 2}]
    assert server.clock.advance(1) == 2
