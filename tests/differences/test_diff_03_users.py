"""Users are checked only with `--auth`, and log in by SCRAM or certificate.

MongoDB checks them once `security.authorization` is on (manual, "Enable Access Control"), and has LDAP, Kerberos and
OpenID Connect in its Enterprise edition; Cosmos DB wants an account's key always.
"""

import pymongo
import pytest
from pymongo.errors import OperationFailure

import mongottl

Client = pymongo.MongoClient[dict[str, object]]


def test_anybody_may_do_everything_without_auth(server: mongottl.RunningServer) -> None:
    with Client(server.uri) as client:
        assert client["admin"].command("connectionStatus")["authInfo"]["authenticatedUsers"] == []
        client.drop_database("anything")
    with Client(server.uri, username="ann", password="secret") as client, pytest.raises(OperationFailure):
        client["admin"].command("ping")


def test_nobody_may_do_anything_with_auth() -> None:
    with mongottl.start_server(auth=True) as server, Client(server.uri) as client:
        with pytest.raises(OperationFailure) as caught:
            client.drop_database("anything")
        assert caught.value.code == 13


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "MONGODB-OIDC"])
def test_other_mechanisms_are_refused(server: mongottl.RunningServer, mechanism: str) -> None:
    with Client(server.uri) as client, pytest.raises(OperationFailure) as caught:
        client["$external"].command("saslStart", 1, mechanism=mechanism, payload=b"")
    assert caught.value.code == 334


def test_names_that_saslprep_refuses(server: mongottl.RunningServer) -> None:
    with Client(server.uri) as client, pytest.raises(OperationFailure) as caught:
        client["shop"].command("createUser", "\u0007", pwd="x", roles=[])
    assert caught.value.code == 2
