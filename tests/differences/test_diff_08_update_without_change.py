"""An update that changes nothing restarts a document's time to live.

Microsoft's articles say that any write to a document does, and are silent on one that matches but changes nothing.
MongoDB knows no lifetime since the last write. `--no-refresh-on-noop` makes such updates count for nothing.
"""

from typing import Any

import pymongo
import pytest

import mongottl


@pytest.mark.parametrize("refresh", [True, False])
def test_the_setting_decides(refresh: bool) -> None:
    with (
        mongottl.start_server(refresh_on_noop=refresh) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        collection = client["test"]["c"]
        collection.create_index("_ts", expireAfterSeconds=10)
        collection.insert_one({"_id": 1, "a": 1})
        server.clock.advance(9)
        result = collection.update_one({"_id": 1}, {"$set": {"a": 1}})
        assert (result.matched_count, result.modified_count) == (1, 0)
        server.clock.advance(1)
        assert (collection.find_one() is not None) == refresh
