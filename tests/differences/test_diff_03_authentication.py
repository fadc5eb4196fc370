"""No authentication.

MongoDB authenticates by SCRAM and others once `security.authorization` is on (manual, "Authentication"); Cosmos DB
wants an account's key always.
"""

import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl


def test_anybody_may_do_everything_and_a_password_is_refused(server: mongottl.RunningServer) -> None:
    with pymongo.MongoClient[dict[str, object]](server.uri) as client:
        assert client["admin"].command("connectionStatus")["authInfo"]["authenticatedUsers"] == []
        client.drop_database("anything")
    with (
        pymongo.MongoClient[dict[str, object]](server.uri, username="ann", password="secret") as client,
        pytest.raises(OperationFailure),
    ):
        client["admin"].command("ping")
