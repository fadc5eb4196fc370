"""What admin tools ask: the replica set, fsync, shutdown, log levels."""

import threading
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from bson import Int64, ObjectId, Timestamp
from pymongo.database import Database
from pymongo.errors import AutoReconnect, OperationFailure

import mongottl
from tests.drivers.refusals import refusal
from tests.on_nodes import locks_all_writes, of_replica_set, one_node, own_fail_points, own_parameters
from tests.waiting import until, until_connected

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]


@pytest.fixture
def admin(client: Client) -> Database[Documents]:
    return client.admin


@of_replica_set
def test_the_replica_set_has_one_member(admin: Database[Documents], client: Client) -> None:
    hello = admin.command("hello")
    status = admin.command("replSetGetStatus")
    assert (status["set"], status["myState"], status["term"]) == (hello["setName"], 1, 1)
    [member] = status["members"]
    assert (member["name"], member["stateStr"], member["health"], member["self"]) == (hello["me"], "PRIMARY", 1, True)
    assert isinstance(member["optime"]["ts"], Timestamp)
    assert status["optimes"]["appliedOpTime"] == member["optime"]
    config = admin.command("replSetGetConfig")["config"]
    assert (config["_id"], [m["host"] for m in config["members"]]) == (hello["setName"], hello["hosts"])
    assert isinstance(config["settings"]["replicaSetId"], ObjectId)
    assert admin.command("replSetGetConfig", commitmentStatus=True)["commitmentStatus"] is True
    assert refusal(admin, {"replSetInitiate": {"_id": "other", "members": []}}) == 23
    assert refusal(client.test, {"replSetGetStatus": 1}) == 13


@of_replica_set
def test_the_configuration_can_be_read_as_a_document(admin: Database[Documents], client: Client) -> None:
    """As mongosh's rs.printSecondaryReplicationInfo() does."""
    stored = client.local["system.replset"]
    assert stored.count_documents({}) == 1
    assert stored.find_one() == admin.command("replSetGetConfig")["config"]
    assert "system.replset" in client.local.list_collection_names()


def test_commands_of_other_kinds_of_servers_do_not_exist(admin: Database[Documents]) -> None:
    for name in ("isdbgrid", "atlasVersion", "getFreeMonitoringStatus"):
        assert refusal(admin, {name: 1}) == 59
    assert isinstance(admin.command("features")["oidMachine"], int)
    assert admin.command("logRotate")["ok"] == 1


@pytest.mark.parametrize("value", [1, "coll"])
def test_help_is_given_instead_of_the_command(database: Database[Documents], value: int | str) -> None:
    """`db.commandHelp(name)` of the shell sends 1, whatever the command requires."""
    reply = database.command({"create": value, "help": True})
    assert reply["help"].startswith("help for: create ")
    assert database.list_collection_names() == []
    database.command({"create": "coll", "help": False})
    assert database.list_collection_names() == ["coll"]
    assert refusal(database, {"create": 1}) == 73


@pytest.fixture
def unlocked(admin: Database[Documents]) -> Iterator[None]:
    yield
    while refusal(admin, {"fsyncUnlock": 1}) == 0:
        pass


@locks_all_writes
@pytest.mark.usefixtures("unlocked")
def test_writes_wait_for_fsync_unlock(admin: Database[Documents], database: Database[Documents]) -> None:
    assert admin.command("fsync")["numFiles"] == 1
    assert refusal(admin, {"fsyncUnlock": 1}) == 20
    database.c.insert_one({"_id": 1})
    for count in (1, 2):
        reply = admin.command("fsync", lock=True)
        assert (reply["lockCount"], isinstance(reply["lockCount"], Int64)) == (count, True)
    assert refusal(database, {"insert": "c", "documents": [{}], "maxTimeMS": 30}) == 50
    writing = threading.Thread(target=database.c.insert_one, args=({"_id": 2},))
    writing.start()
    assert database.c.distinct("_id") == [1]
    assert admin.command("fsyncUnlock")["lockCount"] == 1
    assert database.c.distinct("_id") == [1]
    assert admin.command("fsyncUnlock") | {} and refusal(admin, {"fsyncUnlock": 1}) == 20
    writing.join()
    assert database.c.distinct("_id") == [1, 2]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"fsync": 1, "lock": "x"}, 14),
        ({"fsync": 1, "fsyncLockAcquisitionTimeoutMillis": "x"}, 14),
        ({"fsync": 1, "fsyncLockAcquisitionTimeoutMillis": Int64(1)}, 14),
        ({"fsync": 1, "unknown": 1}, 40415),
        ({"shutdown": 1, "force": "x"}, 14),
        ({"setParameter": 1, "automationServiceDescriptor": 1}, 14),
        ({"setParameter": 1, "automationServiceDescriptor": "x" * 65}, 15),
        ({"setParameter": 1, "ttlMonitorSleepSecs": 0}, 2),
        ({"setParameter": 1, "ttlMonitorSleepSecs": "1"}, 2),
        ({"setParameter": 1, "logComponentVerbosity": 1}, 14),
        ({"setParameter": 1, "logComponentVerbosity": {"nothing": 1}}, 2),
        ({"setParameter": 1, "logComponentVerbosity": {"command": {"verbosity": 6}}}, 2),
        ({"setParameter": 1, "logComponentVerbosity": {"network": {"wt": 1}}}, 2),
    ],
)
def test_admin_commands_refuse_invalid_arguments(admin: Database[Documents], command: Documents, code: int) -> None:
    assert refusal(admin, command) == code


@one_node("shutdown stops one node")
def test_shutdown_stops_the_server() -> None:
    with mongottl.start_server() as server, Client(server.uri, serverSelectionTimeoutMS=500) as client:
        until_connected(client)
        assert client.admin.command("shutdown")["ok"] == 1
        with pytest.raises((AutoReconnect, OperationFailure)):
            until(lambda: client.admin.command("ping")["ok"] == 0)


@own_parameters
def test_parameters_of_tools(admin: Database[Documents]) -> None:
    assert admin.command({"setParameter": 1, "ttlMonitorSleepSecs": 2})["was"] == 1
    assert admin.command({"getParameter": 1, "ttlMonitorSleepSecs": 1})["ttlMonitorSleepSecs"] == 2
    admin.command({"setParameter": 1, "ttlMonitorSleepSecs": 1})
    levels = {"command": {"verbosity": 1}, "network": {"asio": 2}}
    was = admin.command({"setParameter": 1, "logComponentVerbosity": levels})["was"]
    assert (was["verbosity"], was["command"]["verbosity"]) == (0, -1)
    now = admin.command({"getParameter": 1, "logComponentVerbosity": 1})["logComponentVerbosity"]
    assert (now["command"]["verbosity"], now["network"]["asio"]["verbosity"], now["network"]["verbosity"]) == (1, 2, -1)
    back = {"command": {"verbosity": -1}, "network": {"asio": -1}}
    admin.command({"setParameter": 1, "logComponentVerbosity": back})


@own_fail_points
def test_a_fail_point_has_the_message_that_it_was_given(admin: Database[Documents]) -> None:
    data = {"failCommands": ["ping"], "errorCode": 2, "errmsg": "on purpose"}
    admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
    with pytest.raises(OperationFailure, match="on purpose"):
        admin.command("ping")


def test_a_command_of_another_version_of_the_stable_api(admin: Database[Documents]) -> None:
    assert admin.command("testVersion2")["ok"] == 1.0
    with pytest.raises(OperationFailure, match="command testVersion2 is not in API Version 1") as caught:
        admin.command("testVersion2", apiVersion="1", apiStrict=True)
    assert caught.value.code == 323
