"""getDefaultRWConcern and setDefaultRWConcern."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

import mongottl
from tests.drivers.refusals import refusal

Documents = dict[str, Any]


@pytest.fixture
def admin() -> Iterator[Database[Documents]]:
    """Of a server of its own: the defaults are the server's."""
    with mongottl.start_server() as server, MongoClient[Documents](server.uri) as client:
        yield client.admin


def test_defaults_of_a_new_server_are_implicit(admin: Database[Documents]) -> None:
    reply = admin.command("getDefaultRWConcern")
    assert reply["defaultReadConcern"] == {"level": "local"}
    assert reply["defaultWriteConcern"] == {"w": "majority", "wtimeout": 0}
    assert reply["defaultReadConcernSource"] == reply["defaultWriteConcernSource"] == "implicit"
    assert "updateOpTime" not in reply
    assert "inMemory" not in reply
    assert admin.command("getDefaultRWConcern", inMemory=True)["inMemory"] is True


def test_setting_and_unsetting(admin: Database[Documents]) -> None:
    reply = admin.command("setDefaultRWConcern", defaultReadConcern={"level": "majority"})
    assert reply["defaultReadConcern"] == {"level": "majority"}
    assert reply["defaultReadConcernSource"] == "global"
    reply = admin.command("setDefaultRWConcern", defaultWriteConcern={"w": 1, "wtimeout": 5000, "j": True})
    assert reply["defaultWriteConcern"] == {"w": 1, "wtimeout": 5000, "j": True}
    assert reply["defaultReadConcern"] == {"level": "majority"}
    assert {"updateOpTime", "updateWallClockTime", "localUpdateWallClockTime"} <= set(reply)
    admin.client.db.c.insert_one({"_id": 1})
    reply = admin.command("setDefaultRWConcern", defaultReadConcern={})
    assert (reply["defaultReadConcern"], reply["defaultReadConcernSource"]) == ({"level": "local"}, "implicit")
    assert refusal(admin, {"setDefaultRWConcern": 1, "defaultWriteConcern": {}}) == 20
    assert admin.command("getDefaultRWConcern")["defaultWriteConcern"] == {"w": 1, "wtimeout": 5000, "j": True}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, 2),
        ({"defaultReadConcern": None}, 2),
        ({"defaultReadConcern": 1}, 14),
        ({"defaultReadConcern": {"level": "linearizable"}}, 2),
        ({"defaultReadConcern": {"level": "none"}}, 2),
        ({"defaultReadConcern": {"level": 1}}, 14),
        ({"defaultReadConcern": {"other": 1}}, 40415),
        ({"defaultReadConcern": {"provenance": "implicitDefault"}}, 2),
        ({"defaultWriteConcern": "majority"}, 14),
        ({"defaultWriteConcern": {"w": 0}}, 2),
        ({"defaultWriteConcern": {"w": 3}}, 2),
        ({"defaultWriteConcern": {"w": "nowhere"}}, 79),
        ({"defaultWriteConcern": {"w": -1}}, 9),
        ({"defaultWriteConcern": {"other": 1}}, 40415),
        ({"nothing": 1}, 40415),
    ],
    ids=str,
)
def test_set_default_rw_concern_refuses_invalid_arguments(
    admin: Database[Documents], arguments: Documents, code: int
) -> None:
    assert refusal(admin, {"setDefaultRWConcern": 1, **arguments}) == code
    assert admin.command("getDefaultRWConcern")["defaultReadConcernSource"] == "implicit"


def test_rw_concern_commands_run_against_admin_alone(admin: Database[Documents]) -> None:
    assert refusal(admin.client.db, {"getDefaultRWConcern": 1}) == 13
    assert refusal(admin.client.db, {"setDefaultRWConcern": 1, "defaultReadConcern": {}}) == 13
