"""The dialect `cosmos`: what Azure Cosmos DB for MongoDB refuses, and how its replies look."""

from typing import Any

import pymongo
import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from mongottl.commands import COMMANDS
from mongottl.dialect.cosmos.features import missing_names
from mongottl.versions import COMMAND
from tests.on_nodes import of_replica_set

Client = pymongo.MongoClient[dict[str, Any]]


def code_of(client: Client, command: str, value: Any = 1, **fields: Any) -> tuple[Any, Any]:
    """Code and text of a command's refusal."""
    with pytest.raises(OperationFailure) as caught:
        client.admin.command(command, value, **fields)
    details = caught.value.details
    assert details is not None
    return details["code"], details["errmsg"]


@pytest.mark.parametrize("command", sorted(missing_names(COMMAND, (7, 0)) & set(COMMANDS)))
def test_commands_that_cosmos_does_not_have(account: Client, command: str) -> None:
    assert code_of(account, command) == (115, f"Command {command} not supported.")


@pytest.mark.parametrize("command", ["applyOps", "appendOplogNote", "createSearchIndexes", "eval"])
def test_commands_that_neither_has(account: Client, command: str) -> None:
    assert code_of(account, command) == (115, f"Command {command} not supported.")


@pytest.mark.parametrize(
    "command", ["buildInfo", "hostInfo", "whatsmyuri", "ping", "hello", "listDatabases", "dbStats"]
)
def test_commands_that_cosmos_has(account: Client, command: str) -> None:
    assert account.admin.command(command)["ok"] == 1


def test_sessions_end_silently(cosmos: mongottl.RunningServer) -> None:
    """Drivers send endSessions at close, asked or not."""
    with Client(cosmos.uri) as client, client.start_session() as session:
        client.shop.things.insert_one({"_id": "session"}, session=session)
        assert client.admin.command("endSessions", [])["ok"] == 1
    with Client(cosmos.uri) as client:
        client.drop_database("shop")


def test_version(account: Client) -> None:
    built = account.admin.command("buildInfo")
    assert next(iter(built)) == "_t"
    assert (built["_t"], built["version"], built["versionArray"]) == ("BuildInfoResponse", "7.0.0", [7, 0, 0, 0])


@of_replica_set
@pytest.mark.parametrize("command", ["hello", "isMaster"])
def test_handshake(account: Client, command: str) -> None:
    hello = account.admin.command(command)
    assert hello["_t"] == "IsMasterResponse"
    assert (hello["setName"], hello["minWireVersion"], hello["maxWireVersion"]) == ("globaldb", 0, 21)
    assert (hello["maxBsonObjectSize"], hello["maxMessageSizeBytes"], hello["maxWriteBatchSize"]) == (
        16_777_216,
        4_194_304,
        1000,
    )
    assert hello["logicalSessionTimeoutMinutes"] == 30
    assert "$clusterTime" not in hello
    assert "operationTime" not in hello
    assert "msg" not in hello


def test_announced_version_can_be_chosen() -> None:
    with mongottl.start_server(dialect="cosmos", server_version="5.0") as server, Client(server.uri) as client:
        assert client.server_info()["version"] == "5.0.0"
        assert client.admin.command("hello")["maxWireVersion"] == 13


def test_create_indexes_reply(shop: Database[dict[str, Any]]) -> None:
    spec = {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10}
    assert list(shop.command("createIndexes", "coll", indexes=[spec]).items()) == [
        ("_t", "CreateIndexesResponse"),
        ("numIndexesBefore", 1),
        ("numIndexesAfter", 2),
        ("createdCollectionAutomatically", True),
        ("ok", 1.0),
    ]
    again = shop.command("createIndexes", "coll", indexes=[spec])
    assert (again["numIndexesBefore"], again["numIndexesAfter"], again["note"]) == (2, 2, "all indexes already exist")
    dropped = shop.command("dropIndexes", "coll", index="_ts_1")
    assert dropped["_t"] == "DropIndexesResponse"


def test_no_type_in_other_replies_nor_in_the_default_dialect(shop: Database[dict[str, Any]]) -> None:
    assert "_t" not in shop.command("insert", "coll", documents=[{"_id": 1}])
    assert "_t" not in shop.command("find", "coll")
    with mongottl.start_server() as server, Client(server.uri) as client:
        for reply in (
            client.admin.command("buildInfo"),
            client.admin.command("hello"),
            client.shop.command("createIndexes", "coll", indexes=[{"key": {"a": 1}, "name": "a_1"}]),
            client.shop.command("dropIndexes", "coll", index="a_1"),
        ):
            assert "_t" not in reply


def test_errors_look_like_those_of_version_3_6_and_later(shop: Database[dict[str, Any]]) -> None:
    with pytest.raises(OperationFailure) as caught:
        shop.command("collMod", "coll")
    assert caught.value.details == {
        "ok": 0.0,
        "errmsg": "Command collMod not supported.",
        "code": 115,
        "codeName": "CommandNotSupported",
    }


@pytest.mark.parametrize("seconds", [60, 60.0, 0])
@pytest.mark.parametrize("field", ["createdAt", "a.b"])
def test_ttl_on_a_date_field_is_refused(shop: Database[dict[str, Any]], field: str, seconds: float) -> None:
    with pytest.raises(OperationFailure) as caught:
        shop.coll.create_index(field, expireAfterSeconds=seconds)
    assert caught.value.code == 2
    assert caught.value.details is not None
    assert caught.value.details["errmsg"] == "The 'expireAfterSeconds' option is supported on '_ts' field only."
    assert shop.list_collection_names() == []


def test_ttl_on_a_date_field_beside_the_default_changes_nothing(shop: Database[dict[str, Any]]) -> None:
    specs = [
        {"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10},
        {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 10},
    ]
    with pytest.raises(OperationFailure) as caught:
        shop.command("createIndexes", "coll", indexes=specs)
    assert caught.value.code == 2
    assert shop.list_collection_names() == []


def test_default_is_changed_by_dropping_and_creating(
    shop: Database[dict[str, Any]], cosmos: mongottl.RunningServer
) -> None:
    coll = shop.coll
    coll.create_index("_ts", expireAfterSeconds=100)
    coll.insert_one({"_id": 1})
    with pytest.raises(OperationFailure) as caught:
        coll.create_index("_ts", expireAfterSeconds=10)
    assert caught.value.code == 85
    coll.drop_index("_ts_1")
    cosmos.clock.advance(1000)
    assert coll.count_documents({}) == 1
    coll.create_index("_ts", expireAfterSeconds=-1)
    assert coll.index_information()["_ts_1"]["expireAfterSeconds"] == -1
    assert coll.count_documents({}) == 1
    coll.drop_index("_ts_1")
    coll.create_index("_ts", expireAfterSeconds=2000)
    assert coll.count_documents({}) == 1
    assert cosmos.clock.advance(1000) == 1


def test_retryable_writes_are_refused(cosmos: mongottl.RunningServer) -> None:
    """As by an account without the capability; the server's own URI switches them off."""
    assert "/?retryWrites=false" in cosmos.uri
    with Client(cosmos.uri, retryWrites=True) as client:
        with pytest.raises(OperationFailure) as caught:
            client.shop.things.insert_one({})
        assert client.shop.list_collection_names() == []
    assert caught.value.code == 2
    assert "Retryable writes are not supported" in str(caught.value)
    assert '"retrywrites=false"' in str(caught.value)


@pytest.mark.parametrize("members", [2, 3, "majority", "custom"])
def test_any_write_concern_is_taken(shop: Database[dict[str, Any]], members: int | str) -> None:
    """Cosmos DB ignores it, and writes to its own quorum."""
    concern = {"w": members, "wtimeout": 1}
    orders = shop.orders.with_options(write_concern=pymongo.WriteConcern(members))
    orders.insert_one({"_id": 1})
    orders.insert_many([{"_id": 2}, {"_id": 3}])
    orders.update_one({"_id": 1}, {"$set": {"at": 1}})
    assert "writeConcernError" not in shop.command(
        "delete", "orders", deletes=[{"q": {}, "limit": 1}], writeConcern=concern
    )
    shop.command("createIndexes", "orders", indexes=[{"key": {"at": 1}, "name": "at"}], writeConcern=concern)
    with shop.client.start_session() as session, session.start_transaction(write_concern=pymongo.WriteConcern(members)):
        shop.orders.insert_one({"_id": 4}, session=session)
    assert shop.orders.count_documents({}) == 3


def test_batches_over_a_thousand_are_split_by_the_driver(shop: Database[dict[str, Any]]) -> None:
    shop.coll.insert_many({"_id": n} for n in range(2500))
    assert shop.coll.count_documents({}) == 2500
    with pytest.raises(OperationFailure):
        shop.command("insert", "coll", documents=[{"_id": n} for n in range(3000, 4001)])


def test_empty_databases_are_not_shown(account: Client) -> None:
    assert account.list_database_names() == []
