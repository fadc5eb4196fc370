"""JavaScript is run by QuickJS, with 64 MB of memory.

MongoDB has SpiderMonkey, with `jsHeapLimitMB` (1,100 MB). Source: MongoDB manual, "Server-side JavaScript".
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from mongottl.javascript.library import missing_reason

pytestmark = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())


def call(database: Database[dict[str, Any]], body: str) -> Any:
    function = {"$function": {"body": body, "args": [], "lang": "js"}}
    [document] = database.aggregate([{"$documents": [{}]}, {"$project": {"value": function}}])
    return document["value"]


def test_memory(database: Database[dict[str, Any]]) -> None:
    assert call(database, "function() { return new Uint8Array(32e6).length; }") == 32e6
    with pytest.raises(OperationFailure) as caught:
        call(database, "function() { return new Uint8Array(128e6).length; }")
    assert caught.value.code == 139


def test_messages(database: Database[dict[str, Any]]) -> None:
    """SpiderMonkey says `x is undefined`."""
    with pytest.raises(OperationFailure, match="cannot read property 'y' of undefined") as caught:
        call(database, "function() { let x; return x.y; }")
    assert caught.value.code == 139


def test_each_batch_begins_with_fresh_global_variables(database: Database[dict[str, Any]]) -> None:
    database.c.insert_many([{"_id": i} for i in range(100)])
    code = "count = typeof count == 'undefined' ? 1 : count + 1; return count == 1"
    with database.c.find({"$where": code}, batch_size=1) as cursor:
        assert len(list(cursor)) > 1
