"""A dialect that is none of the server's own: declared here, as docs/building.md shows, and served to a driver."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bson
import pymongo
import pytest
from pymongo.errors import DuplicateKeyError, ExecutionTimeout, OperationFailure, WriteError

import mongottl
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.namespace import Naming
from mongottl.commands import CommandSpec, Reply
from mongottl.commands.dialect_hooks import CommandHooks, Gateway
from mongottl.config import DIALECTS, DialectChoice, ServerConfig, SettingError
from mongottl.dialect import Dialect, dialect_of
from mongottl.dialect.interface import Limits
from mongottl.dialect.registry import dialect
from mongottl.errors import CommandError, ErrorCode
from mongottl.errors import DuplicateKeyError as DuplicateKey
from mongottl.errors import WriteError as RefusedWrite
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from tests.on_nodes import no_balancer, nodes_of
from tests.on_store import needs_one_machine

if TYPE_CHECKING:
    from mongottl.query.match import MatchExpression
    from mongottl.query.sort import SortPattern

pytestmark = no_balancer("drivers send it hello, which the dialect does not have")

Client = pymongo.MongoClient[dict[str, Any]]
_NAME = "small"
_MAX_BYTES = 1024


class _SmallNaming(Naming):
    def check_new(self, collection: str) -> None:
        if collection.isupper():
            raise CommandError(ErrorCode.InvalidNamespace, "we do not shout")


class _Counting(Gateway):
    """Counts the commands that have read or written documents."""

    def __init__(self) -> None:
        self.executed: list[str] = []

    def execute(self, spec: CommandSpec, op: OperationContext, arguments: Any) -> Reply:
        if spec.latency != "commands":
            self.executed.append(spec.name)
        return spec.function(op, arguments)


@dialect(_NAME)
class Small(Dialect, CommandHooks):
    """Takes documents of a kilobyte, sorts by one field, lists indexes by their names, and counts commands."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self.unknown_cursor = "no cursor {id} here"
        self.sorts_need_index = True
        self.brief_build_info = True
        self.counting = _Counting()

    def limits(self) -> Limits:
        limits = super().limits()
        limits.max_document_bytes = _MAX_BYTES
        limits.max_id_bytes = 10
        limits.max_shard_key_bytes = 20
        return limits

    def naming(self) -> Naming:
        return _SmallNaming()

    def max_document_bytes(self, has_large_documents: bool) -> int:
        return _MAX_BYTES

    def document_too_large(self, length: int, error: RefusedWrite) -> RefusedWrite:
        return RefusedWrite(ErrorCode.BSONObjectTooLarge, f"{length} bytes are too many")

    def duplicate_key(self, collection: Collection, index: CollectionIndex, key_value: bytes) -> DuplicateKey:
        return DuplicateKey(ErrorCode.DuplicateKey, f"{index.name} has that already", key_value=key_value)

    def has_hello(self) -> bool:
        return False

    def time_is_up(self, is_own_limit: bool) -> CommandError:
        return CommandError(ErrorCode.MaxTimeMSExpired, "too slow")

    def check_sort(self, collection: Collection | None, sort: "SortPattern", match: "MatchExpression") -> None:
        if len(sort.paths) > 1:
            raise CommandError(ErrorCode.BadValue, "one field is enough")

    def listed_index(self, collection: Collection, descriptor: IndexDescriptor) -> bytes | None:
        from mongottl.document.build import encode

        return encode({"v": 2, "key": descriptor.key, "name": descriptor.name.upper()})

    def gateway(self, service: ServiceContext) -> Gateway | None:
        return self.counting


@pytest.fixture(scope="module")
def served() -> Iterator[mongottl.RunningServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DIALECTS, _NAME, DialectChoice("a small server", __name__, "7.0", ("6.0", "7.0")))
        with mongottl.start_server(dialect=_NAME) as running:
            yield running


@pytest.fixture
def client(served: mongottl.RunningServer) -> Iterator[Client]:
    with Client(served.uri) as connected:
        yield connected
        connected.drop_database("shop")


def test_the_announced_version_is_its_own(client: Client) -> None:
    assert client.server_info()["version"].startswith("7.0.")
    assert "allocator" not in client.server_info()


def test_own_dialect_refuses_large_documents_and_ids(client: Client) -> None:
    client.shop.orders.insert_one({"_id": 1, "text": "x" * 900})
    with pytest.raises(WriteError, match="1225 bytes are too many"):
        client.shop.orders.insert_one({"_id": 2, "text": "x" * 1200})
    with pytest.raises(WriteError, match="bytes are too many"):
        client.shop.orders.update_one({"_id": 1}, {"$set": {"more": "x" * 900}})
    with pytest.raises(WriteError, match="the _id of 11 bytes is too long"):
        client.shop.orders.insert_one({"_id": "x" * 11})
    assert client.shop.orders.count_documents({}) == 1


def test_errors_have_its_words(client: Client) -> None:
    client.shop.orders.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError, match="_id_ has that already"):
        client.shop.orders.insert_one({"_id": 1})
    with pytest.raises(OperationFailure, match="no cursor 5 here"):
        client.shop.command("getMore", bson.Int64(5), collection="orders")
    with pytest.raises(ExecutionTimeout, match="too slow"):
        client.shop.command("aggregate", "orders", pipeline=_ENDLESS, cursor={}, maxTimeMS=1)
    with pytest.raises(OperationFailure, match="we do not shout"):
        client.shop.create_collection("ORDERS")


_ENDLESS: list[dict[str, Any]] = [
    {"$project": {"n": {"$range": [0, 2000]}}},
    {"$unwind": "$n"},
    {"$project": {"m": {"$range": [0, 2000]}}},
    {"$unwind": "$m"},
    {"$group": {"_id": None, "sum": {"$sum": "$m"}}},
]


def test_there_is_no_hello(client: Client) -> None:
    with pytest.raises(OperationFailure, match="no such command: 'hello'"):
        client.admin.command("hello")
    assert "helloOk" not in client.admin.command("isMaster", helloOk=True)


def test_sorts_by_several_fields_are_refused(client: Client) -> None:
    client.shop.orders.insert_many([{"_id": 1, "a": 2}, {"_id": 2, "a": 1}])
    assert [found["_id"] for found in client.shop.orders.find().sort("a")] == [2, 1]
    with pytest.raises(OperationFailure, match="one field is enough"):
        list(client.shop.orders.find().sort([("a", 1), ("b", 1)]))
    with pytest.raises(OperationFailure, match="one field is enough"):
        client.shop.orders.find_one_and_update({"a": 1}, {"$set": {"b": 1}}, sort=[("a", 1), ("b", 1)])


def test_indexes_are_listed_in_its_form(client: Client) -> None:
    client.shop.orders.create_index("at")
    assert [index["name"] for index in client.shop.orders.list_indexes()] == ["_ID_", "AT_1"]


def test_own_gateway_runs_the_commands(client: Client, served: mongottl.RunningServer) -> None:
    made = [service.dialect for service in nodes_of(served)]
    counting = [each.counting for each in made if isinstance(each, Small)]
    assert len(counting) == len(made)
    for each in counting:
        each.executed.clear()
    client.shop.orders.insert_one({})
    client.shop.orders.find_one({})
    client.admin.command("ping")
    assert sorted(name for each in counting for name in each.executed) == ["find", "insert"]


@needs_one_machine
def test_questions_without_answer_have_mongodbs(client: Client) -> None:
    client.shop.orders.insert_one({"_id": 1})
    assert client.shop.command("explain", {"find": "orders"})["queryPlanner"]["winningPlan"]["stage"] == "COLLSCAN"
    with client.shop.orders.watch() as stream:
        client.shop.orders.delete_one({"_id": 1})
        assert next(stream)["operationType"] == "delete"
    with pytest.raises(OperationFailure, match="the server does not stand for Cosmos DB: --dialect cosmos"):
        client.shop.command("customAction", "GetDatabase")
    with client.start_session() as session, session.start_transaction():
        client.shop.orders.insert_one({"_id": 2}, session=session)
        client.shop.carts.insert_one({"_id": 2}, session=session)


def test_a_folder_of_another_dialect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored with the data holds in every dialect: the shard key, and databases without collections."""
    with mongottl.start_server(dialect="cosmos", data_dir=tmp_path) as running, Client(running.uri) as client:
        client.shop.command("customAction", "CreateCollection", collection="orders", shardKey="customer")
        client.empty.command("customAction", "CreateDatabase")
    monkeypatch.setitem(DIALECTS, _NAME, DialectChoice("a small server", __name__, "7.0", ("7.0",)))
    with mongottl.start_server(dialect=_NAME, data_dir=tmp_path) as running, Client(running.uri) as client:
        assert "empty" in client.list_database_names()
        orders = client.shop.orders
        orders.insert_many([{"_id": 1, "customer": "a"}, {"_id": 1, "customer": "b"}])
        with pytest.raises(WriteError, match="document does not contain shard key at 'customer'"):
            orders.insert_one({"_id": 2})
        with pytest.raises(WriteError, match="would modify the immutable field 'customer'"):
            orders.update_one({"customer": "a"}, {"$set": {"customer": "c"}})
        with pytest.raises(WriteError, match="the value of the shard key is too long"):
            orders.insert_one({"_id": 2, "customer": "x" * 30})
        assert orders.update_one({"_id": 1}, {"$set": {"paid": True}}).modified_count == 1


def test_settings_that_it_does_not_have(served: mongottl.RunningServer) -> None:
    with pytest.raises(SettingError, match=r"only with dialect cosmos"):
        ServerConfig(dialect=_NAME, cosmos_backup="continuous")
    with pytest.raises(SettingError, match=r"with dialect small one of 6\.0, 7\.0"):
        ServerConfig(dialect=_NAME, server_version="8.2")
    assert isinstance(dialect_of(ServerConfig(dialect=_NAME, server_version="6.0")), Small)


def test_a_name_is_one_dialect() -> None:
    with pytest.raises(ValueError, match="there are two dialects small"):

        @dialect(_NAME)
        class Other(Dialect):
            """Another one."""
