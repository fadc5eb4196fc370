"""A snapshot does not read collections that were made, renamed, dropped or indexed after it.

MongoDB reads the catalog as of the snapshot since 7.0 (manual, "Transactions and Operations"); before, it answered
SnapshotUnavailable as this server does.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

# What is done after the snapshot, and the collection that it then does not read.
CHANGES: list[tuple[str, Callable[[Database[dict[str, Any]]], object]]] = [
    ("new", lambda database: database.new.insert_one({})),
    ("new", lambda database: database.old.rename("new")),
    ("old", lambda database: database.old.rename("new")),
    ("old", lambda database: database.old.drop()),
    ("old", lambda database: database.old.create_index("n")),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_changed_collections_are_refused(
    database: Database[dict[str, Any]], name: str, change: Callable[[Database[dict[str, Any]]], object]
) -> None:
    database.old.insert_one({"_id": 1})
    database.other.insert_one({"_id": 1})
    with database.client.start_session() as session:
        session.start_transaction()
        assert database.other.find_one(session=session) == {"_id": 1}
        change(database)
        with pytest.raises(OperationFailure) as caught:
            database[name].find_one(session=session)
        assert (caught.value.code, caught.value.has_error_label("TransientTransactionError")) == (246, True)
        session.abort_transaction()
        with session.start_transaction():  # again, as drivers do
            database[name].find_one(session=session)
