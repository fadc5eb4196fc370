"""On `_ts`, `expireAfterSeconds: -1` is accepted and 0 is refused.

As in Cosmos DB, where -1 means that only documents with a `ttl` of their own expire (Microsoft's indexing article) and
the core service has no default of 0 (time-to-live article). MongoDB refuses -1 with CannotCreateIndex (67) and takes 0
as "at the date itself" (manual, "TTL Indexes").
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure


def test_on_ts_as_in_cosmos(database: Database[dict[str, Any]]) -> None:
    with pytest.raises(OperationFailure) as caught:
        database["c"].create_index("_ts", expireAfterSeconds=0)
    assert caught.value.code == 2
    database["c"].create_index("_ts", expireAfterSeconds=-1)


def test_on_another_field_as_in_mongodb(database: Database[dict[str, Any]]) -> None:
    database["c"].create_index("at", expireAfterSeconds=0)
    with pytest.raises(OperationFailure) as caught:
        database["c"].create_index("b", expireAfterSeconds=-1)
    assert caught.value.code == 67
