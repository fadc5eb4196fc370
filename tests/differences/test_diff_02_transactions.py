"""No transactions yet.

MongoDB's replica sets have them since 4.0 (manual, "Transactions"), Cosmos DB since its server version 4.0 within one
collection (Microsoft's feature-support article for it).
"""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure


def test_statements_of_a_transaction_are_refused(database: Database[dict[str, Any]]) -> None:
    with (
        database.client.start_session() as session,
        pytest.raises(OperationFailure) as caught,
        session.start_transaction(),
    ):
        database["c"].insert_one({"_id": 1}, session=session)
    assert caught.value.code == 115
    assert database["c"].count_documents({}) == 0
