"""$currentOp, currentOp and killOp."""

import threading
from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.drivers.refusals import refusal
from tests.on_nodes import of_replica_set, own_operations
from tests.waiting import PATIENCE_S, until

pytestmark = own_operations

Documents = dict[str, Any]


def operations(client: MongoClient[Documents], **options: Any) -> list[Documents]:
    return list(client.admin.aggregate([{"$currentOp": options}]))


def test_an_operation_sees_itself(database: Database[Documents]) -> None:
    pipeline: list[Documents] = [{"$currentOp": {}}, {"$match": {"command.comment": "it is I"}}]
    [shown] = database.client.admin.aggregate(pipeline, comment="it is I")
    assert shown["op"] == "command"
    assert shown["ns"] == "admin.$cmd.aggregate"
    assert shown["command"]["comment"] == "it is I"
    assert shown["command"]["pipeline"] == pipeline
    assert shown["microsecs_running"] >= 0
    assert shown["currentOpTime"].endswith("+00:00")
    assert {"opid", "lsid", "client", "clientMetadata", "connectionId", "desc", "host", "type"} <= set(shown)


def until_seen(client: MongoClient[Documents], **filter: Any) -> Documents:
    """Asks until the operation is there; each answer takes a turn of the server, so this ends soon."""
    found: list[Documents] = []

    def is_seen() -> bool:
        found.extend(client.admin.command({"currentOp": 1, **filter})["inprog"])
        return bool(found)

    until(is_seen)
    return found[0]


@pytest.mark.parametrize("kind", ["blocked", "awaiting"])
def test_killing_an_operation_that_waits(database: Database[Documents], kind: str) -> None:
    client = database.client
    database.create_collection("c", capped=True, size=4096)
    database.c.insert_one({"_id": 1})
    failures: list[OperationFailure] = []

    def wait() -> None:
        try:
            if kind == "blocked":
                database.command({"count": "c"})
            else:
                with client.start_session() as session:
                    command = {"find": "c", "tailable": True, "awaitData": True}
                    cursor = database.command(command, session=session)["cursor"]
                    more = {"getMore": Int64(cursor["id"]), "collection": "c", "maxTimeMS": 600_000}
                    database.command(more, session=session)
        except OperationFailure as failure:
            failures.append(failure)

    if kind == "blocked":
        data = {"failCommands": ["count"], "blockConnection": True, "blockTimeMS": 600_000}
        client.admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data})
    waiter = threading.Thread(target=wait)
    waiter.start()
    name = "count" if kind == "blocked" else "getMore"
    shown = until_seen(client, **{f"command.{name}": {"$exists": True}, "ns": f"{database.name}.c"})
    assert shown["op"] == ("command" if kind == "blocked" else "getmore")
    assert client.admin.command({"killOp": 1, "op": shown["opid"]})["info"] == "attempting to kill op"
    waiter.join(PATIENCE_S)
    assert [failure.code for failure in failures] == [11601]


def test_idle_connections_and_cursors(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i} for i in range(3)])
    cursor = database.c.find({}, batch_size=1)
    next(cursor)
    shown = operations(database.client, idleCursors=True)
    [idle] = [one for one in shown if one["type"] == "idleCursor" and one["ns"] == f"{database.name}.c"]
    assert idle["cursor"]["cursorId"] == cursor.cursor_id
    assert (idle["cursor"]["tailable"], idle["cursor"]["noCursorTimeout"]) == (False, False)
    cursor.close()
    assert not [one for one in operations(database.client) if one["type"] == "idleCursor"]
    assert database.client.address is not None
    host, port = database.client.address
    with MongoClient[Documents](host, port, appname="idler") as other:
        other.admin.command("ping")
        names = [one.get("appName") for one in operations(database.client, idleConnections=True) if not one["active"]]
    assert "idler" in names


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"killOp": 1}, 4),
        pytest.param({"killOp": 1, "op": "1"}, 14, marks=of_replica_set),
        ({"killOp": 1, "op": 1.5}, 2),
        ({"killOp": 1, "op": Decimal128("0.5")}, 2),
        ({"killOp": 1, "op": 2**31}, 26823),
        ({"aggregate": 1, "pipeline": [{"$currentOp": 1}], "cursor": {}}, 14),
        ({"aggregate": 1, "pipeline": [{"$currentOp": {"allUsers": 1}}], "cursor": {}}, 14),
        ({"aggregate": 1, "pipeline": [{"$currentOp": {"other": True}}], "cursor": {}}, 40415),
        ({"aggregate": "c", "pipeline": [{"$currentOp": {}}], "cursor": {}}, 73),
        ({"aggregate": 1, "pipeline": [{"$match": {}}, {"$currentOp": {}}], "cursor": {}}, 73),
        ({"currentOp": 1, "$nothing": 1}, 2),
    ],
    ids=str,
)
def test_current_op_and_kill_op_refuse_invalid_arguments(
    database: Database[Documents], command: Documents, code: int
) -> None:
    assert refusal(database.client.admin, command) == code


def test_current_op_and_kill_op_run_against_admin_alone(database: Database[Documents]) -> None:
    assert refusal(database, {"currentOp": 1}) == 13
    assert refusal(database, {"killOp": 1, "op": 1}) == 13
    assert refusal(database, {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}}) == 73


@pytest.mark.parametrize("opid", [0, -1, 2**31 - 1, 999_999, 999_999.0, Int64(7), Decimal128("999999")])
def test_killing_what_is_over_is_no_error(database: Database[Documents], opid: Any) -> None:
    assert database.client.admin.command({"killOp": 1, "op": opid, "more": 1})["ok"] == 1.0


def test_an_expression_over_one_long_array_ends_in_time(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1})
    sum_up = {"$reduce": {"input": {"$range": [0, 3_000_000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}}
    with pytest.raises(OperationFailure) as caught:
        list(database.c.aggregate([{"$project": {"n": sum_up}}], maxTimeMS=50))
    assert caught.value.code == 50
