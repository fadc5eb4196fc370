"""A `ttl` of 0 or below -1 is stored and has no effect.

Cosmos DB's NoSQL API refuses such a document. Microsoft's article on its API for MongoDB names the types that count and
says that other values are stored without meaning; of 0 and negative numbers it says nothing.
"""

from typing import Any

import pytest
from bson import Int64
from pymongo.database import Database

import mongottl


@pytest.mark.parametrize("ttl", [0, -2, 0.0, -2147483648, Int64(0)])
def test_the_default_applies(ttl: Any, database: Database[dict[str, Any]], server: mongottl.RunningServer) -> None:
    database["c"].create_index("_ts", expireAfterSeconds=10)
    database["c"].insert_one({"_id": 1, "ttl": ttl})
    server.clock.advance(9)
    assert database["c"].find_one() == {"_id": 1, "ttl": ttl}
    assert server.clock.advance(1) == 1
