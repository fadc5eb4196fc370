"""Commands that tools send about the server as a whole: setUserWriteBlockMode, setFeatureCompatibilityVersion,
dropConnections, rotateCertificates, lockInfo."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Decimal128, Int64, Regex
from pymongo.errors import OperationFailure

import mongottl
from tests.on_nodes import locks_all_writes, own_figures

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with mongottl.start_server() as server, Client(server.uri) as client:
        yield client


def code_of(client: Client, command: Documents, database: str = "admin") -> int | None:
    """The error code of a command; None if it succeeds."""
    try:
        client[database].command(command)
    except OperationFailure as error:
        return error.code
    return None


# Blocked writes


def block(client: Client, enabled: bool, **options: Any) -> int | None:
    return code_of(client, {"setUserWriteBlockMode": 1, "global": enabled, **options})


def test_blocked_writes(client: Client) -> None:
    shop = client.shop
    shop.t.insert_one({"_id": 1})
    assert block(client, True) is None and block(client, True) is None
    for command in (
        {"insert": "t", "documents": [{"_id": 2}]},
        {"update": "t", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
        {"delete": "t", "deletes": [{"q": {}, "limit": 1}]},
        {"findAndModify": "t", "query": {}, "remove": True},
        {"create": "u"},
        {"createIndexes": "t", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        {"drop": "t"},
        {"dropDatabase": 1},
        {"aggregate": "t", "pipeline": [{"$out": "u"}], "cursor": {}},
    ):
        assert code_of(client, command, "shop") == 371, command
    assert code_of(client, {"renameCollection": "shop.t", "to": "shop.u"}) == 371
    insert = {"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "shop.t"}]}
    assert code_of(client, insert) == 371
    assert list(shop.t.find()) == [{"_id": 1}]
    client.admin.t.insert_one({"_id": 1})
    assert block(client, True, reason="DiskUseThresholdExceeded") == 20
    assert block(client, False, reason="DiskUseThresholdExceeded") == 20
    assert block(client, False) is None and block(client, False) is None
    shop.t.insert_one({"_id": 2})


@pytest.mark.parametrize("value", [1, 0.0, Int64(1), Decimal128("1"), float("nan"), "true", [], {}])
def test_the_block_is_a_boolean(client: Client, value: Any) -> None:
    assert code_of(client, {"setUserWriteBlockMode": 1, "global": value}) == 14


def test_other_arguments_of_the_block(client: Client) -> None:
    assert code_of(client, {"setUserWriteBlockMode": 1}) == 40414
    assert code_of(client, {"setUserWriteBlockMode": 1, "global": None}) == 40414
    assert block(client, True, reason=1) == 14
    assert block(client, True, reason="x") == 2
    assert block(client, True, unknown=1) == 40415
    assert code_of(client, {"setUserWriteBlockMode": 1, "global": False}, "shop") == 13


def test_the_block_outlives_a_restart(tmp_path: Path) -> None:
    with mongottl.start_server(data_dir=tmp_path) as server, Client(server.uri) as client:
        block(client, True, reason="ClusterToClusterMigrationInProgress")
    with mongottl.start_server(data_dir=tmp_path) as server, Client(server.uri) as client:
        assert code_of(client, {"insert": "t", "documents": [{}]}, "shop") == 371
        assert block(client, False) == 20
        assert block(client, False, reason="ClusterToClusterMigrationInProgress") is None
        client.shop.t.insert_one({})


def test_users_that_may_write_all_the_same() -> None:
    with mongottl.start_server(auth=True, user="root", password="s") as server, Client(server.uri) as root:
        root.admin.command("createUser", "writer", pwd="s", roles=["readWriteAnyDatabase"])
        root.admin.command("createUser", "restorer", pwd="s", roles=["readWriteAnyDatabase", "restore"])
        block(root, True)
        root.shop.command("createUser", "late", pwd="s", roles=[])  # users are in `admin`
        for user, code in (("writer", 371), ("restorer", None)):
            with Client(f"mongodb://{user}:s@127.0.0.1:{server.port}/") as client:
                assert code_of(client, {"insert": "t", "documents": [{}]}, "shop") == code


@own_figures
def test_documents_expire_while_writes_are_blocked() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        client.shop.t.create_index("_ts", expireAfterSeconds=10)
        client.shop.t.insert_one({})
        block(client, True)
        server.clock.advance(10)
        assert client.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"] == 1


# Feature compatibility


def test_the_versions_that_are_taken(client: Client) -> None:
    def shown() -> str:
        reply = client.admin.command("getParameter", 1, featureCompatibilityVersion=1)
        return str(reply["featureCompatibilityVersion"]["version"])

    def change(version: Any, **options: Any) -> int | None:
        return code_of(client, {"setFeatureCompatibilityVersion": version, **options})

    assert change("8.2", confirm=True) is None and shown() == "8.2"
    assert change("8.0", confirm=True, dryRun=True) is None and shown() == "8.2"
    assert change("8.0", confirm=float("nan")) is None and shown() == "8.0"
    assert change("8.2", confirm=1) is None and shown() == "8.2"
    for confirm in (False, 0, -0.0, None):
        assert change("8.2", confirm=confirm) == 7369100
    for version in ("7.0", "8.1", "9.0", "8", "8.2.0", " 8.2", "", "8" * 10_000):
        assert change(version, confirm=True) == 4926900
    others: list[Any] = [8.2, 1, True, [], {}, Regex("8.2")]
    for other in others:
        assert change(other, confirm=True) == 14
    assert change(None, confirm=True) == 40414
    for other in ("true", [], {}):
        assert change("8.2", confirm=other) == 14
    assert change("8.2", confirm=True, unknown=1) == 40415


def test_earlier_versions_need_no_confirmation() -> None:
    with mongottl.start_server(server_version="6.0") as server, Client(server.uri) as client:
        for version, code in (("6.0", None), ("5.0", None), ("8.0", 4926900)):
            assert code_of(client, {"setFeatureCompatibilityVersion": version}) == code


# Connections


@pytest.mark.parametrize(
    ("addresses", "code"),
    [
        ([], None),
        (["a.invalid:27017", "[::1]:27017", "a", None], None),
        (["[::1]"], None),
        ([":27017"], 9),
        (["a:"], 9),
        ([""], 9),
        (["a:0"], 9),
        (["a:65536"], 9),
        (["a:b"], 9),
        (["a:1:2"], 9),
        (["a:-1"], 9),
        (["[::1"], 9),
        ([1], 14),
        ([["a"]], 14),
        ("a", 14),
        ({}, 14),
        (None, 40414),
    ],
)
def test_addresses_of_connections(client: Client, addresses: Any, code: int | None) -> None:
    assert code_of(client, {"dropConnections": 1, "hostAndPort": addresses}) == code


def test_certificates_are_read_again(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    file = tmp_path / "server.pem"

    def write() -> bytes:
        certificate = authority.issue_cert("127.0.0.1")
        file.write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
        return ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())

    def served() -> bytes:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", server.port)))

    first = write()
    with mongottl.start_server(tls_cert=str(file)) as server:
        uri = f"mongodb://127.0.0.1:{server.port}/?tls=true&tlsCAFile={tmp_path / 'ca.pem'}"
        with Client(uri) as client:
            assert served() == first
            second = write()
            assert served() == first
            assert code_of(client, {"rotateCertificates": 1}) is None
            assert served() == second
            file.write_text("nothing")
            assert code_of(client, {"rotateCertificates": 1, "message": "x"}) == 96
            assert served() == second
            assert code_of(client, {"rotateCertificates": 1, "message": 1}) == 14


def test_there_may_be_no_certificates(client: Client) -> None:
    assert code_of(client, {"rotateCertificates": 1}) is None


# Locks


@locks_all_writes
def test_the_lock_of_fsync_is_listed(client: Client) -> None:
    assert client.admin.command("lockInfo")["lockInfo"] == []
    client.admin.command("fsync", lock=True)
    try:
        [lock] = client.admin.command("lockInfo")["lockInfo"]
        assert lock["resourceId"] == "{Global, 1}" and lock["pending"] == []
        assert [holder["mode"] for holder in lock["granted"]] == ["S"]
    finally:
        client.admin.command("fsyncUnlock")
    assert client.admin.command("lockInfo")["lockInfo"] == []
