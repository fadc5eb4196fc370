"""No authorization yet.

MongoDB checks what users may do once `security.authorization` is on (manual, "Enable Access Control"); Cosmos DB wants
an account's key always.
"""

import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl


def test_anybody_may_do_everything_and_a_wrong_password_is_refused(server: mongottl.RunningServer) -> None:
    with pymongo.MongoClient[dict[str, object]](server.uri) as client:
        assert client["admin"].command("connectionStatus")["authInfo"]["authenticatedUsers"] == []
        client.drop_database("anything")
        client["shop"].command("createUser", "ann", pwd="secret", roles=[])
    with (
        pymongo.MongoClient[dict[str, object]](server.uri, username="ann", password="wrong") as client,
        pytest.raises(OperationFailure),
    ):
        client["admin"].command("ping")
    with pymongo.MongoClient[dict[str, object]](
        server.uri, username="ann", password="secret", authSource="shop"
    ) as client:
        client.drop_database("anything")
