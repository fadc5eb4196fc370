"""getParameter and setParameter."""

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.server_api import ServerApi

import mongottl
from mongottl.wire.encode import encode_request
from tests.drivers.refusals import refusal
from tests.drivers.wire_client import WireClient
from tests.on_nodes import own_parameters
from tests.replies import without_times
from tests.waiting import PATIENCE_S, until

Documents = dict[str, Any]
# A parameter that nothing sets.
NEVER_SET = "localLogicalSessionTimeoutMinutes"


@pytest.fixture
def admin() -> Iterator[Database[Documents]]:
    """Of a server of its own: parameters are the server's."""
    config = mongottl.ServerConfig(port=0, quiet=True)
    with mongottl.start_server(config) as server, MongoClient[Documents](server.uri) as client:
        yield client.admin


def test_by_name_and_all(admin: Database[Documents]) -> None:
    one = admin.command({"getParameter": 1, "logLevel": 1, "quiet": 1, "unknown": 1})
    assert without_times(one) == {"logLevel": 0, "quiet": True, "ok": 1.0}
    everything = without_times(admin.command({"getParameter": "*"}))
    assert everything == without_times(admin.command({"getParameter": {"allParameters": True}, "logLevel": 1}))
    assert {"logLevel", "ttlMonitorEnabled", "featureCompatibilityVersion", "allowDiskUseByDefault"} <= set(everything)


def test_parameters_of_test_commands(admin: Database[Documents]) -> None:
    assert "acceptApiVersion2" not in admin.command({"getParameter": "*"})
    config = mongottl.ServerConfig(port=0, quiet=True, enable_test_commands=True)
    with mongottl.start_server(config) as server, MongoClient[Documents](server.uri) as client:
        assert client.admin.command({"getParameter": "*"})["acceptApiVersion2"] is False
        assert client.admin.command({"getParameter": 1, "acceptApiVersion2": 1})["acceptApiVersion2"] is False


def test_details_and_where_they_are_set(admin: Database[Documents]) -> None:
    shown = admin.command({"getParameter": {"showDetails": True}, "logLevel": 1, "maxConns": 1, NEVER_SET: 1})
    assert shown["logLevel"] == {"value": 0, "settableAtRuntime": True, "settableAtStartup": False}
    assert shown["maxConns"] == {"value": 10_000, "settableAtRuntime": False, "settableAtStartup": True}
    assert shown[NEVER_SET] == {"value": 30, "settableAtRuntime": False, "settableAtStartup": False}
    at_runtime = admin.command({"getParameter": {"allParameters": True, "setAt": "runtime"}})
    at_startup = admin.command({"getParameter": {"allParameters": True, "setAt": "startup"}})
    assert "logLevel" in at_runtime
    assert "logLevel" not in at_startup
    assert "maxConns" in at_startup
    assert "maxConns" not in at_runtime
    assert NEVER_SET not in {*at_runtime, *at_startup}


@own_parameters
def test_every_command_has_to_name_a_version_of_the_stable_api(admin: Database[Documents]) -> None:
    """The refused requests are made without a driver, whose monitor would lose the server by them."""
    assert admin.client.address is not None
    uri = f"mongodb://127.0.0.1:{admin.client.address[1]}"
    with MongoClient[Documents](uri, server_api=ServerApi("1")) as client, closing(WireClient(uri)) as wire:
        assert client.admin.command("ping")["ok"] == 1.0
        assert wire.command({"setParameter": 1, "requireApiVersion": True}, "admin")["was"] is False
        try:
            assert [wire.refusal({name: 1}, "admin")[0] for name in ("ping", "hello", "listDatabases")] == [498870] * 3
            client.db.c.insert_many([{"_id": n} for n in range(5)])
            assert len(list(client.db.c.find(batch_size=2))) == 5
            with client.start_session() as session, session.start_transaction():
                client.db.c.insert_one({"_id": 5}, session=session)
            assert client.db.c.count_documents({}) == 6
        finally:
            wire.command({"setParameter": 1, "requireApiVersion": False, "apiVersion": "1"}, "admin")
    assert admin.command("ping")["ok"] == 1.0


@own_parameters
def test_commands_are_logged_from_level_1_on(admin: Database[Documents], capfd: pytest.CaptureFixture[str]) -> None:
    def lines() -> list[str]:
        return [line for line in admin.command("getLog", "global")["log"] if '"Command"' in line]

    assert admin.command({"setParameter": 1, "quiet": False})["was"] is True
    assert admin.command({"setParameter": 1, "logLevel": 1})["was"] == 0
    admin.client.db.c.find_one()
    assert any('"ns":"db.c"' in line and '"command":"find"' in line for line in lines())
    assert admin.command({"setParameter": 1, "logLevel": 0, "quiet": True})["was"] is False
    seen = len(lines())
    admin.client.db.c.find_one()
    assert len(lines()) == seen
    capfd.readouterr()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"getParameter": 1}, 72),
        ({"getParameter": 1, "unknown": 1}, 72),
        ({"getParameter": {"allParameters": "yes"}}, 14),
        ({"getParameter": {"showDetails": [1]}, "logLevel": 1}, 14),
        ({"getParameter": {"allParameters": True, "setAt": 1}}, 14),
        ({"getParameter": {"allParameters": True, "setAt": "later"}}, 2),
        ({"getParameter": {"more": 1}}, 40415),
        ({"setParameter": 1}, 72),
        ({"setParameter": 1, "unknown": 1}, 72),
        ({"setParameter": 1, "maxConns": 5}, 20),
        ({"setParameter": 1, "logLevel": 6}, 2),
        ({"setParameter": 1, "logLevel": -1}, 2),
        ({"setParameter": 1, "logLevel": "1"}, 2),
        ({"setParameter": 1, "quiet": "yes"}, 0),
        ({"setParameter": 1, "logLevel": False}, 0),
    ],
    ids=str,
)
def test_set_parameter_refuses_invalid_arguments(admin: Database[Documents], command: Documents, code: int) -> None:
    assert refusal(admin, command) == code


LIMITER = "ingressConnectionEstablishment"


@own_parameters
def test_the_rate_of_new_connections_is_limited(admin: Database[Documents]) -> None:
    assert admin.client.address is not None
    address = admin.client.address

    def is_refused() -> bool:
        with socket.create_connection(address, timeout=PATIENCE_S) as connection:
            try:
                connection.sendall(encode_request(1, bson.encode({"ping": 1, "$db": "admin"}), [], 0))
                return connection.recv(1) == b""
            except ConnectionError:
                return True

    assert not is_refused()
    right: list[tuple[str, Any]] = [("RatePerSec", 1), ("BurstCapacitySecs", 2.5), ("MaxQueueDepth", 0)]
    for name, value in right:
        assert refusal(admin, {"setParameter": 1, LIMITER + name: value}) == 0
        assert admin.command({"getParameter": 1, LIMITER + name: 1})[LIMITER + name] == value
    assert admin.command({"setParameter": 1, f"{LIMITER}RateLimiterEnabled": True})["was"] is False
    until(is_refused)  # the fourth at the latest, if all come within a second
    admin.command({"setParameter": 1, f"{LIMITER}MaxQueueDepth": 1})
    admin.command({"setParameter": 1, f"{LIMITER}RatePerSec": 1000})
    assert not is_refused()
    admin.command({"setParameter": 1, f"{LIMITER}RateLimiterEnabled": False})
    assert not is_refused()
    wrong: list[tuple[str, Any]] = [("RatePerSec", 0), ("BurstCapacitySecs", 0.0), ("MaxQueueDepth", -1)]
    for name, value in [*wrong, ("RatePerSec", "x"), ("MaxQueueDepth", True), ("BurstCapacitySecs", float("nan"))]:
        assert refusal(admin, {"setParameter": 1, LIMITER + name: value}) == 2
