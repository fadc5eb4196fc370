"""The user of a Cosmos DB account: `--cosmos-account`, its keys, and the portal's connection string."""

import json
import os
import socket
import stat
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymongo
import pytest
from pymongo.errors import OperationFailure
from pymongo.uri_parser import parse_uri

import mongottl
from mongottl.server.first_user import FirstUserError
from tests.on_nodes import of_replica_set, wanted

Client = pymongo.MongoClient[dict[str, Any]]
KEY = "c2VjcmV0+key/with=signs=="
OTHER_KEY = "b3RoZXI="
# What strings name beside the options of every account: nodes are no replica set.
SET = "replicaSet=globaldb&" if wanted() == 1 else ""


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_the_connection_string_logs_in(mechanism: str) -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shop-account", cosmos_key=KEY) as running:
        parsed = parse_uri(running.uri)
        assert (parsed["username"], parsed["password"]) == ("shop-account", KEY)
        assert f"/?{SET}retrywrites=false&maxIdleTimeMS=120000&appName=@shop-account@" in running.uri
        with Client(running.uri, authMechanism=mechanism) as client:
            client.shop.orders.insert_one({"_id": 1})
            assert client.shop.orders.find_one() == {"_id": 1}
        with Client(running.uri, password="wrong") as client:
            with pytest.raises(OperationFailure) as caught:
                client.shop.orders.find_one()
            assert caught.value.code == 18
        with Client("127.0.0.1", running.port, directConnection=True) as client:
            with pytest.raises(OperationFailure) as caught:
                client.shop.orders.find_one()
            assert caught.value.code == 13


@pytest.mark.parametrize("name", ["a&b=c", "a@b", "a%40b", "a b", "a:b/c?d#e", "Ünï", "'x',y+z"])
def test_account_names_that_azure_does_not_take(name: str) -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account=name, cosmos_key=KEY) as running:
        assert running.read_only_uri is not None
        for uri in (running.uri, running.read_only_uri):
            parsed = parse_uri(uri, warn=False)
            assert (parsed["username"], parsed["options"]["appname"]) == (name, f"@{name}@")
            with Client(uri) as client:
                assert client.shop.orders.find_one() is None


def test_account_names_that_no_login_can_have() -> None:
    with pytest.raises(OSError, match="cannot make the account 😀: The user name cannot be used for SCRAM"):
        mongottl.start_server(dialect="cosmos", cosmos_account="😀")


def test_the_server_is_shown_without_its_key() -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="shop", cosmos_key=KEY) as running:
        (_, port), *_ = parse_uri(running.uri)["nodelist"]
        assert repr(running).startswith(f"RunningServer('mongodb://127.0.0.1:{port}")
        assert f"/?{SET}retrywrites" in repr(running)
        assert "appName=@shop@" in repr(running)
        assert quote(KEY, safe="") not in repr(running) and KEY not in repr(running)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_the_read_only_key_reads(mechanism: str) -> None:
    with mongottl.start_server(dialect="cosmos", cosmos_account="a", cosmos_key=KEY) as running:
        with Client(running.uri) as client:
            client.shop.orders.insert_one({"_id": 1})
        assert running.read_only_uri is not None
        with Client(running.read_only_uri, authMechanism=mechanism) as client:
            assert client.shop.orders.find_one() == {"_id": 1}
            with pytest.raises(OperationFailure) as caught:
                client.shop.orders.insert_one({"_id": 2})
            assert caught.value.code == 13
            assert caught.value.details is not None
            assert caught.value.details["errmsg"].startswith(
                "Error=13, Details='Response status code does not indicate success: Unauthorized (401); "
            )
            assert client.shop.orders.count_documents({}) == 1


def test_a_key_that_is_made_is_kept_with_the_data(tmp_path: Path) -> None:
    uris: list[str] = []
    for _ in range(2):
        with mongottl.start_server(dialect="cosmos", cosmos_account="a", data_dir=str(tmp_path / "data")) as running:
            uris.append(parse_uri(running.uri)["password"])
            with Client(running.uri) as client:
                client.shop.orders.update_one({"_id": 1}, {"$inc": {"starts": 1}}, upsert=True)
                assert client.shop.orders.find_one() == {"_id": 1, "starts": len(uris)}
    assert uris[0] == uris[1] and len(uris[0]) == 88
    kept = tmp_path / "data" / "cosmos-keys"
    primary, read_only = kept.read_text().splitlines()
    assert primary == uris[0] and read_only != primary
    if os.name == "posix":
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_another_key_replaces_the_one_before(tmp_path: Path) -> None:
    for key in ("first", "second"):
        (tmp_path / "key").write_text(f"{key}\n{key} to read\n")
        with mongottl.start_server(
            dialect="cosmos", cosmos_account="a", cosmos_key_file=str(tmp_path / "key"), data_dir=str(tmp_path / "d")
        ) as running:
            with Client(running.uri) as client:
                assert client.admin.command("ping")["ok"] == 1
            assert parse_uri(running.uri)["password"] == key
            assert parse_uri(running.read_only_uri or "")["password"] == f"{key} to read"


def test_a_connection_string_of_cosmos_db_without_such_an_account() -> None:
    """The error says what to do: a server without users has no account either."""
    with mongottl.start_server() as running:
        login = f"mongodb://shop:{quote(KEY, safe='')}@127.0.0.1:{running.port}/"
        with Client(f"{login}?{SET}retrywrites=false&appName=@shop@") as client:
            with pytest.raises(OperationFailure) as refused:
                client.admin.command("ping")
            assert refused.value.code == 18
            for advice in ("leave the user", "--dialect cosmos", "--cosmos-account", "MONGOTTL_COSMOS_KEY"):
                assert advice in str(refused.value)
        with Client(running.uri) as client:
            client.admin.command("createUser", "ann", pwd="apple", roles=[])
        with Client(login) as client, pytest.raises(OperationFailure) as refused:
            client.admin.command("ping")
        assert refused.value.details is not None
        assert refused.value.details["errmsg"] == "Authentication failed."


@pytest.mark.parametrize(
    ("account", "name", "reason"),
    [
        ("shop", "shop", "the account's key is wrong"),
        ("shop", "store", "there is no such user: the account is shop"),
        (None, "ann", "the password is wrong"),
        (None, "bob", "there is no such user"),
        (None, None, "this server has no users"),
    ],
)
def test_the_log_says_why_a_login_failed(
    account: str | None, name: str | None, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Clients are told nothing of it: which names exist is not theirs to know."""
    settings: dict[str, Any] = {}
    if account is not None:
        settings = {"dialect": "cosmos", "cosmos_account": account, "cosmos_key": KEY}
    with mongottl.start_server(**settings) as running:
        if account is None and name is not None:
            with Client(running.uri) as client:
                client.admin.command("createUser", "ann", pwd="apple", roles=[])
        login = f"mongodb://{name or 'ann'}:{quote(OTHER_KEY, safe='')}@127.0.0.1:{running.port}/"
        with Client(f"{login}?directConnection=true") as client, pytest.raises(OperationFailure) as refused:
            client.admin.command("ping")
        assert refused.value.code == 18
        assert "such user" not in str(refused.value)
    failed = [line for line in capfd.readouterr().err.splitlines() if "Authentication failed" in line]
    assert failed and all(f'"reason": {json.dumps(reason)}' in line for line in failed)


def test_a_key_file_that_is_not_there() -> None:
    settings: dict[str, Any] = {"dialect": "cosmos", "cosmos_account": "a", "cosmos_key_file": "/no/such/file"}
    with pytest.raises(FirstUserError, match="cannot read the key file"), mongottl.start_server(**settings):
        raise AssertionError("it has started")


def test_over_tls_the_string_is_the_portals(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    with mongottl.start_server(
        dialect="cosmos", cosmos_account="a", cosmos_key=KEY, tls_self_signed=True, data_dir=str(tmp_path)
    ) as running:
        options = running.uri.partition("?")[2]
        assert options.startswith(
            "ssl=true&replicaSet=globaldb&retrywrites=false&maxIdleTimeMS=120000&appName=@a@&tlsCAFile="
        )
        with Client(running.uri) as client:
            client.shop.orders.insert_one({"_id": 1})


@of_replica_set
def test_the_string_names_the_replica_set_that_the_server_shows() -> None:
    settings: dict[str, Any] = {"dialect": "cosmos", "cosmos_account": "a", "cosmos_key": KEY}
    with mongottl.start_server(replica_set="rs&0", **settings) as running:
        assert "?replicaSet=rs%260&" in running.uri
        with Client(running.uri) as client:
            assert client.admin.command("hello")["setName"] == "rs&0"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", None])
@pytest.mark.parametrize("database", ["shop", "admin", "test"])
def test_the_connection_string_may_name_any_database(mechanism: str | None, database: str) -> None:
    """Microsoft's samples name the database of the application, by which drivers log in."""
    with mongottl.start_server(dialect="cosmos", cosmos_account="a", cosmos_key=KEY) as running:
        assert running.read_only_uri is not None
        options: dict[str, Any] = {} if mechanism is None else {"authMechanism": mechanism}
        with Client(running.uri.replace("/?", f"/{database}?"), **options) as client:
            client.get_default_database().orders.insert_one({"_id": 1})
        with Client(running.read_only_uri.replace("/?", f"/{database}?"), **options) as client:
            orders = client.get_default_database().orders
            assert orders.find_one() == {"_id": 1}
            with pytest.raises(OperationFailure, match="Error=13"):
                orders.insert_one({"_id": 2})
        with Client(running.uri, authSource=database, password="wrong", **options) as client:
            with pytest.raises(OperationFailure) as caught:
                client.shop.orders.find_one()
            assert caught.value.code == 18


@pytest.mark.filterwarnings("ignore:You appear to be connected to a CosmosDB cluster")
def test_a_portals_string_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/cosmos.md says: with the account's own host name, which leads to this machine."""
    pytest.importorskip("trustme")
    host = "shop.mongo.cosmos.azure.com"
    resolve = socket.getaddrinfo

    def resolve_here(name: Any, *rest: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if name == host else name, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with mongottl.start_server(
        dialect="cosmos",
        cosmos_account="shop",
        cosmos_key=KEY,
        port=port,
        tls_self_signed=True,
        advertise_host=f"{host}:{port}",
        data_dir=str(tmp_path),
    ) as running:
        trusted = parse_uri(running.uri)["options"]["tlsCAFile"]
        portal = (
            f"mongodb://shop:{quote(KEY, safe='')}@{host}:{port}/"
            "?ssl=true&replicaSet=globaldb&retrywrites=false&maxIdleTimeMS=120000&appName=@shop@"
        )
        with Client(portal, tlsCAFile=trusted) as client:
            client.shop.orders.insert_one({"_id": 1})
            assert client.shop.orders.find_one() == {"_id": 1}
            assert client.address == (host, port)
