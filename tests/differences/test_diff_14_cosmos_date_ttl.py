"""The `cosmos` dialect never accepts a TTL on a date field.

As Cosmos DB by default; accounts with the capability `EnableTtlOnCustomPath` (server versions from 4.2) do take one.
Source: Microsoft's article on TTL on custom paths. In the default dialect MongoDB's own TTL works.
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure


def test_it_is_refused(cosmos: Database[dict[str, Any]]) -> None:
    with pytest.raises(OperationFailure) as caught:
        cosmos["c"].create_index("at", expireAfterSeconds=10)
    assert caught.value.code == 2
    assert "supported on '_ts' field only" in str(caught.value)


def test_the_default_dialect_takes_it(database: Database[dict[str, Any]]) -> None:
    assert database["c"].create_index("at", expireAfterSeconds=10) == "at_1"
