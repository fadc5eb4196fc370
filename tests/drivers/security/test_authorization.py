"""What users may do with --auth, by PyMongo over real sockets."""

import asyncio
import contextlib
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.errors import OperationFailure, PyMongoError

import mongottl
from mongottl.commands import COMMANDS
from mongottl.commands.request import (
    ARRAY_FIELD,
    COLLECTION,
    DOCUMENT_FIELD,
    DOCUMENTS,
    GIVEN_DOCUMENTS,
    PIPELINE,
    RAW_ARRAY,
    STRICT_BOOL,
    TEXT,
    Field,
    GenericArguments,
    fields_of,
)
from mongottl.query.pipeline import STAGES
from mongottl.security.names import RoleName
from mongottl.security.privileges import ACTIONS
from tests.drivers.process.test_process import Process
from tests.drivers.security.test_tls import Files
from tests.drivers.wire_client import WireClient
from tests.on_nodes import own_cursors, own_figures, own_log, own_operations, own_sessions
from tests.running import Running

Client = pymongo.MongoClient[dict[str, Any]]
Document = dict[str, Any]
UNAUTHORIZED = 13


@pytest.fixture(scope="module")
def server() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(auth=True, user="root", password="p@ss/word") as running:
        yield running


@pytest.fixture
def root(server: mongottl.RunningServer) -> Iterator[Client]:
    with Client(server.uri) as connected:
        yield connected


@pytest.fixture
def client(root: Client) -> Client:
    """Through which it is checked that no test leaves a cursor open or meets an InternalError."""
    return root


@pytest.fixture
def anonymous(server: mongottl.RunningServer) -> Iterator[Client]:
    with Client("127.0.0.1", server.port) as connected:
        yield connected


LogIn = Callable[..., Client]


@pytest.fixture
def log_in(root: Client, server: mongottl.RunningServer) -> Iterator[LogIn]:
    """A client of a new user of `admin` with these roles, or with these privileges."""
    connected: list[tuple[Client, str]] = []

    def run(*roles: Any, privileges: list[Document] | None = None) -> Client:
        name = f"user_{uuid.uuid4().hex[:8]}"
        given = [*roles]
        if privileges is not None:
            root.admin.command("createRole", f"of_{name}", privileges=privileges, roles=[])
            given.append(f"of_{name}")
        root.admin.command("createUser", name, pwd="x", roles=given)
        connected.append((Client("127.0.0.1", server.port, username=name, password="x"), name))
        return connected[-1][0]

    yield run
    for client, name in connected:
        client.close()
        root.admin.command("dropUser", name)


def role(name: str, database: str) -> Document:
    return {"role": name, "db": database}


def on(database: str, collection: str, *actions: str) -> Document:
    return {"resource": {"db": database, "collection": collection}, "actions": list(actions)}


def code(call: Callable[[], Any]) -> int | None:
    """The code of the error with which a call is refused; None if it succeeds."""
    try:
        call()
    except OperationFailure as error:
        return error.code
    return None


def refused(call: Callable[[], Any]) -> bool:
    return code(call) == UNAUTHORIZED


# Anybody may run these, and any user the second ones: what they show or change depends on who asks.
FOR_ANYBODY = """
    authenticate buildInfo connectionStatus endSessions getnonce hello isMaster listCommands logout ping saslContinue
    saslStart testVersion2 whatsmyuri _isSelf
""".split()
FOR_USERS = [
    "abortTransaction",
    "commitTransaction",
    "features",
    "getLastError",
    "getLastRequestStatistics",
    "killSessions",
    "listDatabases",
    "refreshSessions",
    "startSession",
]
# Requests that are not made of the declared fields alone.
SPECIAL: dict[str, Document] = {
    "aggregate": {"aggregate": "c", "pipeline": [], "cursor": {}},
    "applyOps": {"applyOps": [{"op": "i", "ns": "test.c", "o": {"_id": 1}}]},
    "bulkWrite": {"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "test.c"}]},
    "explain": {"explain": {"find": "c"}},
    "getMore": {"getMore": bson.Int64(7), "collection": "c"},
    "mapReduce": {"mapReduce": "c", "map": "function () {}", "reduce": "function () {}", "out": "d"},
    "renameCollection": {"renameCollection": "test.a", "to": "test.b"},
}
BY_KIND: dict[int, Any] = {
    COLLECTION: "c",
    TEXT: "test.c",
    DOCUMENT_FIELD: {},
    DOCUMENTS: [],
    GIVEN_DOCUMENTS: [],
    STRICT_BOOL: False,
    ARRAY_FIELD: [],
    RAW_ARRAY: [],
    PIPELINE: [],
}


def request_of(name: str, foreign_cursor: int) -> Document:
    """A request with all required fields, which is not refused before the user is checked."""
    spec = COMMANDS[name]
    if name == "killCursors":
        return {"killCursors": "c", "cursors": [bson.Int64(foreign_cursor)]}
    if spec.name in SPECIAL:
        return SPECIAL[spec.name]
    fields: list[Field] = fields_of(spec.request)
    required = fields[: len(fields) - len(spec.request._field_defaults)] or fields[:1]
    request = {field.name: BY_KIND.get(field.kind, 1) for field in required}
    request[name] = request.pop(required[0].name)
    return {name: request.pop(name), **request}


@pytest.fixture
def foreign_cursor(root: Client) -> Iterator[int]:
    """The id of an open cursor of another user."""
    root.test.c.insert_many([{"_id": number} for number in range(5)])
    cursor = root.test.c.find({}, batch_size=2)
    next(cursor)
    assert cursor.cursor_id
    yield cursor.cursor_id
    cursor.close()
    root.test.c.drop()


def walk(client: Client, foreign_cursor: int) -> set[str]:
    """The commands that the client is not refused."""
    allowed = set()
    for name in COMMANDS:
        database = client.admin if COMMANDS[name].admin_only else client.test
        request = request_of(name, foreign_cursor)
        if not refused(lambda: database.command(request)):  # noqa: B023 (called at once)
            allowed.add(COMMANDS[name].name)
    return allowed


@own_cursors
def test_every_command_of_a_user_who_has_nothing(log_in: LogIn, foreign_cursor: int) -> None:
    assert walk(log_in(), foreign_cursor) == {*FOR_ANYBODY, *FOR_USERS}


def test_every_command_of_nobody(anonymous: Client, foreign_cursor: int) -> None:
    assert walk(anonymous, foreign_cursor) == set(FOR_ANYBODY)


def test_commands_without_required_privileges_are_listed() -> None:
    assert {spec.name for spec in COMMANDS.values() if spec.access.by_anyone} == set(FOR_ANYBODY)


def test_every_command_of_root() -> None:
    """Its needs are those of actions that exist, and all but these are met."""
    running = Running()
    grants = running.service.accounts.grants_of_roles([RoleName("root", "admin")])
    unmet = set()
    for name, spec in COMMANDS.items():
        body = bson.encode(request_of(name, 7))
        request = spec.request._make(spec.parser.parse(body, [], GenericArguments()))
        needs = spec.access.needs(running.op(), request)
        assert {need.action for need in needs} <= ACTIONS, name
        if not all(grants.meets(need) for need in needs):
            unmet.add(name)
    assert unmet <= {"emptycapped"}


def test_errors_say_what_is_missing(anonymous: Client, log_in: LogIn) -> None:
    with pytest.raises(OperationFailure, match="Command find requires authentication"):
        anonymous.test.c.find_one()
    with pytest.raises(OperationFailure, match=r'not authorized on test to execute command \{ find: "c"'):
        log_in().test.c.find_one()
    with pytest.raises(OperationFailure) as caught:
        log_in().test.command("createUser", "ann", pwd="geheim", roles=[])
    assert caught.value.code == UNAUTHORIZED
    assert "geheim" not in str(caught.value)


def test_read_and_write(root: Client, log_in: LogIn) -> None:
    root.shop.carts.insert_one({"_id": 1})
    root.shop.create_collection("log", capped=True, size=10_000)
    reader, writer = log_in(role("read", "shop")), log_in(role("readWrite", "shop"))
    for client in (reader, writer):
        assert client.shop.carts.find_one() == {"_id": 1}
        assert client.shop.carts.count_documents({}) == 1
        assert client.shop.carts.distinct("_id") == [1]
        assert "carts" in client.shop.list_collection_names()
        assert refused(lambda: client.other.carts.find_one())  # noqa: B023
        assert refused(lambda: client.shop["system.users"].find_one())  # noqa: B023
        assert refused(lambda: client.admin["system.users"].find_one())  # noqa: B023
        assert "shop" in client.list_database_names() and "admin" not in client.list_database_names()
    writes: list[Callable[[Client], Any]] = [
        lambda client: client.shop.carts.insert_one({"_id": 2}),
        lambda client: client.shop.carts.update_one({"_id": 2}, {"$set": {"a": 1}}),
        lambda client: client.shop.carts.find_one_and_update({"_id": 2}, {"$inc": {"a": 1}}),
        lambda client: client.shop.carts.create_index("a"),
        lambda client: client.shop.carts.drop_index("a_1"),
        lambda client: client.shop.carts.delete_one({"_id": 2}),
        lambda client: client.shop.create_collection("new"),
        lambda client: client.shop.new.rename("newer"),
        lambda client: client.shop.newer.drop(),
    ]
    for write in writes:
        assert refused(lambda: write(reader))  # noqa: B023
        assert code(lambda: write(writer)) is None  # noqa: B023
    assert refused(lambda: writer.drop_database("shop"))
    assert refused(lambda: writer.shop.command("collMod", "carts", validator={}))
    root.drop_database("shop")


def bulk(client: Client, names: list[str], *operations: Document) -> Document:
    namespaces = [{"ns": name} for name in names]
    reply: Document = client.admin.command({"bulkWrite": 1, "ops": list(operations), "nsInfo": namespaces})
    return reply


def test_upserts_need_insert(root: Client, log_in: LogIn) -> None:
    updater = log_in(privileges=[on("shop", "carts", "update", "find")])
    root.shop.carts.insert_one({"_id": 1})
    updater.shop.carts.update_one({"_id": 1}, {"$set": {"a": 1}})
    assert refused(lambda: updater.shop.carts.update_one({"_id": 2}, {"$set": {"a": 1}}, upsert=True))
    assert refused(lambda: updater.shop.carts.find_one_and_update({"_id": 2}, {"$set": {"a": 1}}, upsert=True))
    update: Document = {"update": 0, "filter": {}, "updateMods": {"$set": {"a": 1}}}
    assert code(lambda: bulk(updater, ["shop.carts"], update)) is None
    assert refused(lambda: bulk(updater, ["shop.carts"], {**update, "upsert": True}))
    assert refused(lambda: updater.shop.carts.update_one({}, {"$set": {"a": 2}}, bypass_document_validation=True))
    root.drop_database("shop")


def test_bulk_writes_on_several_collections(root: Client, log_in: LogIn) -> None:
    client = log_in(privileges=[on("shop", "a", "insert"), on("shop", "b", "insert", "remove")])
    names = ["shop.a", "shop.b", "shop.c"]
    inserts: list[Document] = [{"insert": number, "document": {}} for number in range(3)]
    assert bulk(client, names, *inserts[:2])["nInserted"] == 2
    assert refused(lambda: bulk(client, names, *inserts))
    assert refused(lambda: bulk(client, names, {"delete": 0, "filter": {}}))
    assert bulk(client, names, {"delete": 1, "filter": {}})["nDeleted"] == 1
    assert refused(lambda: bulk(client, names[2:], {"insert": 0.0, "document": {}}))
    root.drop_database("shop")


JOINS = [
    {"$lookup": {"from": "secret", "localField": "a", "foreignField": "a", "as": "x"}},
    {"$lookup": {"from": "secret", "pipeline": [], "as": "x"}},
    {"$unionWith": "secret"},
    {"$unionWith": {"coll": "secret", "pipeline": [{"$match": {}}]}},
    {
        "$graphLookup": {
            "from": "secret",
            "startWith": "$a",
            "connectFromField": "a",
            "connectToField": "b",
            "as": "x",
        }
    },
]


@pytest.mark.parametrize("join", JOINS, ids=lambda stage: next(iter(stage)))
def test_joins(root: Client, log_in: LogIn, join: Document) -> None:
    """Each collection that a pipeline reads has to be allowed, however deep it is named."""
    root.shop.carts.insert_one({"a": 1})
    root.shop.secret.insert_one({"a": 1})
    half = log_in(privileges=[on("shop", "carts", "find")])
    whole = log_in(privileges=[on("shop", "carts", "find"), on("shop", "secret", "find")])
    nested = {"$lookup": {"from": "carts", "pipeline": [join], "as": "y"}}
    for pipeline in (
        [join],
        [nested],
        [{"$facet": {"f": [join]}}],
        [{"$unionWith": {"coll": "carts", "pipeline": [join]}}],
    ):
        assert list(whole.shop.carts.aggregate(pipeline))
        assert refused(lambda: list(half.shop.carts.aggregate(pipeline)))  # noqa: B023
        explained: Document = {"explain": {"aggregate": "carts", "pipeline": pipeline, "cursor": {}}}
        assert refused(lambda: half.shop.command(explained))  # noqa: B023
    root.drop_database("shop")


@pytest.mark.parametrize("join", JOINS, ids=lambda stage: next(iter(stage)))
def test_joins_where_pipelines_have_none(root: Client, log_in: LogIn, join: Document) -> None:
    """Who may not read a collection is refused before anything is said of the pipeline that names it."""
    root.shop.carts.insert_one({"a": 1})
    half = log_in(privileges=[on("shop", "carts", "find")])
    whole = log_in(privileges=[on("shop", "carts", "find"), on("shop", "secret", "find")])
    fusion = {"$rankFusion": {"input": {"pipelines": {"first": [{"$sort": {"a": 1}}, join]}}}}
    for pipeline in ([fusion], [{"$unionWith": {"coll": "carts", "pipeline": [fusion]}}]):
        assert refused(lambda: list(half.shop.carts.aggregate(pipeline)))  # noqa: B023
        assert code(lambda: list(whole.shop.carts.aggregate(pipeline))) not in (None, UNAUTHORIZED)  # noqa: B023
    root.drop_database("shop")


def test_joins_with_other_databases(root: Client, log_in: LogIn) -> None:
    """`{db, coll}`, which only sharded clusters know, is told of to nobody but who may read that collection."""
    root.shop.carts.insert_one({"a": 1})
    half = log_in(privileges=[on("shop", "carts", "find"), on("shop", "secret", "find")])
    whole = log_in(privileges=[on("shop", "carts", "find"), on("other", "secret", "find")])
    join = {"$lookup": {"from": {"db": "other", "coll": "secret"}, "pipeline": [], "as": "x"}}
    assert refused(lambda: list(half.shop.carts.aggregate([join])))
    assert code(lambda: list(whole.shop.carts.aggregate([join]))) not in (None, UNAUTHORIZED)
    root.drop_database("shop")


def test_pipelines_that_write(root: Client, log_in: LogIn) -> None:
    root.shop.carts.insert_one({"_id": 1})
    reader = log_in(role("read", "shop"), privileges=[on("other", "merged", "insert")])
    merge = {"into": {"db": "other", "coll": "merged"}, "whenMatched": "keepExisting"}
    assert refused(lambda: reader.shop.carts.aggregate([{"$out": "copy"}]))
    assert refused(lambda: reader.shop.carts.aggregate([{"$out": {"db": "other", "coll": "merged"}}]))
    assert refused(lambda: reader.shop.carts.aggregate([{"$merge": "copy"}]))
    assert refused(lambda: reader.shop.carts.aggregate([{"$merge": {**merge, "whenMatched": "replace"}}]))
    reader.shop.carts.aggregate([{"$merge": merge}])
    assert list(root.other.merged.find()) == [{"_id": 1}]
    writer = log_in(role("readWrite", "shop"))
    writer.shop.carts.aggregate([{"$out": "copy"}])
    assert writer.shop.copy.count_documents({}) == 1
    root.drop_database("shop")
    root.drop_database("other")


def test_views(root: Client, log_in: LogIn) -> None:
    """Reading a view needs `find` on it alone; defining one that its owner can read needs `find` on what it shows."""
    root.shop.secret.insert_one({"_id": 1, "price": 7})
    root.shop.create_collection("prices", viewOn="secret", pipeline=[{"$project": {"price": 1}}])
    reader = log_in(privileges=[on("shop", "prices", "find")])
    assert reader.shop.prices.find_one() == {"_id": 1, "price": 7}
    assert refused(lambda: reader.shop.secret.find_one())
    maker = log_in(privileges=[on("shop", "mine", "createCollection", "find", "collMod")])
    assert refused(lambda: maker.shop.command("create", "mine", viewOn="secret", pipeline=[]))
    joined: list[Document] = [{"$lookup": {"from": "secret", "pipeline": [], "as": "x"}}]
    assert refused(lambda: maker.shop.command("create", "mine", viewOn="mine", pipeline=joined))
    blind = log_in(privileges=[on("shop", "theirs", "createCollection")])
    blind.shop.command("create", "theirs", viewOn="secret", pipeline=[])
    assert refused(lambda: blind.shop.theirs.find_one())
    root.drop_database("shop")


@own_cursors
def test_cursors_belong_to_users(root: Client, log_in: LogIn) -> None:
    root.shop.carts.insert_many([{"_id": number} for number in range(10)])
    mine = log_in(role("read", "shop"))
    other = log_in(role("read", "shop"))
    cursor_id = mine.shop.command("find", "carts", batchSize=2)["cursor"]["id"]
    with pytest.raises(OperationFailure, match="was not created by the authenticated user") as caught:
        other.shop.command("getMore", cursor_id, collection="carts")
    assert caught.value.code == UNAUTHORIZED
    assert refused(lambda: other.shop.command("killCursors", "carts", cursors=[cursor_id]))
    assert len(mine.shop.command("getMore", cursor_id, collection="carts", batchSize=2)["cursor"]["nextBatch"]) == 2
    assert mine.shop.command("killCursors", "carts", cursors=[cursor_id])["cursorsKilled"] == [cursor_id]
    cursor_id = mine.shop.command("find", "carts", batchSize=2)["cursor"]["id"]
    assert root.shop.command("killCursors", "carts", cursors=[cursor_id])["cursorsKilled"] == [cursor_id]
    root.drop_database("shop")


@own_cursors
def test_changes_of_roles_count_at_once(root: Client, log_in: LogIn, server: mongottl.RunningServer) -> None:
    """For commands and for cursors that are open already."""
    root.shop.carts.insert_many([{"_id": number} for number in range(10)])
    root.shop.command("createRole", "seller", privileges=[on("shop", "carts", "find")], roles=[])
    client = log_in(role("seller", "shop"))
    cursor_id = client.shop.command("find", "carts", batchSize=2)["cursor"]["id"]
    root.shop.command("revokePrivilegesFromRole", "seller", privileges=[on("shop", "carts", "find")])
    assert refused(lambda: client.shop.carts.find_one())
    assert refused(lambda: client.shop.command("getMore", cursor_id, collection="carts"))
    root.shop.command("grantPrivilegesToRole", "seller", privileges=[on("shop", "carts", "find")])
    assert client.shop.carts.find_one() == {"_id": 0}
    client.shop.command("killCursors", "carts", cursors=[cursor_id])
    root.shop.command("createUser", "ann", pwd="x", roles=["read"])
    with Client("127.0.0.1", server.port, username="ann", password="x", authSource="shop") as ann:
        assert ann.shop.carts.find_one()
        root.shop.command("dropUser", "ann")
        with pytest.raises(OperationFailure, match="requires authentication"):
            ann.shop.carts.find_one()
    root.shop.command("dropRole", "seller")
    root.drop_database("shop")


def test_resources(root: Client, log_in: LogIn) -> None:
    for database, collection in (("shop", "carts"), ("shop", "log"), ("other", "carts"), ("other", "log")):
        root[database][collection].insert_one({})
    root.local.things.insert_one({})

    def readable(*privileges: Document) -> set[str]:
        client = log_in(privileges=list(privileges))
        names = ["shop.carts", "shop.log", "shop.system.views", "other.carts", "other.log", "local.things"]
        namespaces = [name.partition(".") for name in names]
        return {
            f"{database}.{collection}"
            for database, _, collection in namespaces
            if not refused(lambda: client[database][collection].find_one())  # noqa: B023
        }

    assert readable(on("shop", "carts", "find")) == {"shop.carts"}
    assert readable(on("shop", "", "find")) == {"shop.carts", "shop.log"}
    assert readable(on("", "carts", "find")) == {"shop.carts", "other.carts"}
    assert readable(on("", "", "find")) == {"shop.carts", "shop.log", "other.carts", "other.log"}
    assert readable(on("local", "", "find")) == {"local.things"}
    everything = {"resource": {"anyResource": True}, "actions": ["find"]}
    assert len(readable(everything)) == 6
    assert readable(on("shop", "carts", "insert")) == set()
    for database in ("shop", "other"):
        root.drop_database(database)
    root.local.things.drop()


# For each pair: a command, and built-in roles of `admin` that allow it; the others do not.
ROLES_FOR: list[tuple[Document, set[str]]] = [
    ({"serverStatus": 1}, {"clusterMonitor", "clusterAdmin", "backup", "root"}),
    ({"getLog": "global"}, {"clusterMonitor", "clusterAdmin", "root"}),
    ({"setParameter": 1, "logLevel": 0}, {"hostManager", "clusterAdmin", "root"}),
    ({"autoCompact": False}, {"hostManager", "clusterAdmin", "root"}),
    ({"getParameter": 1, "logLevel": 1}, {"clusterMonitor", "clusterAdmin", "backup", "restore", "root"}),
    ({"usersInfo": 1}, {"userAdminAnyDatabase", "restore", "root", "userAdmin", "dbOwner"}),
    ({"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1}}, {"clusterManager", "clusterAdmin", "root"}),
    ({"dbStats": 1}, {
        "clusterMonitor", "clusterAdmin", "backup", "root", "dbAdminAnyDatabase", "readAnyDatabase",
        "readWriteAnyDatabase", "read", "readWrite", "dbAdmin", "dbOwner",
    }),
    ({"find": "c"}, {
        "readAnyDatabase", "readWriteAnyDatabase", "read", "readWrite", "dbOwner", "root", "backup",
    }),
    ({"insert": "c", "documents": [{}]}, {"readWriteAnyDatabase", "readWrite", "dbOwner", "root", "restore"}),
    ({"validate": "c"}, {"dbAdminAnyDatabase", "dbAdmin", "dbOwner", "root"}),
    ({"find": "system.users"}, {"userAdminAnyDatabase", "root", "backup", "restore"}),
]  # fmt: skip


@pytest.mark.slow
def test_builtin_roles(root: Client, log_in: LogIn) -> None:
    root.admin.c.insert_one({})
    every = [
        "read", "readWrite", "dbAdmin", "userAdmin", "dbOwner", "readAnyDatabase", "readWriteAnyDatabase",
        "userAdminAnyDatabase", "dbAdminAnyDatabase", "clusterMonitor", "hostManager", "clusterManager", "clusterAdmin",
        "backup", "restore", "root",
    ]  # fmt: skip
    clients = {name: log_in(name) for name in every}
    for command, expected in ROLES_FOR:
        allowed = {name for name, client in clients.items() if not refused(lambda: client.admin.command(command))}  # noqa: B023
        assert allowed == expected, command
    root.admin.c.drop()


def test_users_manage_users(root: Client, log_in: LogIn) -> None:
    """Whoever makes users cannot give away roles of other databases."""
    admin = log_in(role("userAdmin", "shop"))
    admin.shop.command("createUser", "ann", pwd="x", roles=["read"])
    assert refused(lambda: admin.shop.command("createUser", "bob", pwd="x", roles=[role("read", "other")]))
    assert refused(lambda: admin.shop.command("grantRolesToUser", "ann", roles=[role("root", "admin")]))
    assert refused(lambda: admin.other.command("createUser", "bob", pwd="x", roles=[]))
    admin.shop.command("createRole", "seller", privileges=[on("shop", "carts", "find")], roles=["read"])
    admin.shop.command("grantRolesToUser", "ann", roles=["seller"])
    admin.shop.command("updateUser", "ann", pwd="y")
    assert admin.shop.command("usersInfo", 1)["users"]
    admin.shop.command("dropAllRolesFromDatabase")
    admin.shop.command("dropUser", "ann")


def test_users_see_and_change_themselves(root: Client, log_in: LogIn, server: mongottl.RunningServer) -> None:
    own = {"resource": {"db": "shop", "collection": ""}, "actions": ["changeOwnPassword", "changeOwnCustomData"]}
    root.shop.command("createRole", "self", privileges=[own], roles=[])
    root.shop.command("createUser", "ann", pwd="x", roles=["self"])
    root.shop.command("createUser", "bob", pwd="x", roles=[])
    with Client("127.0.0.1", server.port, username="ann", password="x", authSource="shop") as ann:
        assert ann.shop.command("usersInfo", "ann")["users"][0]["user"] == "ann"
        assert refused(lambda: ann.shop.command("usersInfo", "bob"))
        assert refused(lambda: ann.shop.command("usersInfo", "ann", showCredentials=True))
        assert refused(lambda: ann.shop.command("usersInfo", 1))
        assert ann.shop.command("rolesInfo", "self")["roles"][0]["role"] == "self"
        assert refused(lambda: ann.shop.command("rolesInfo", 1))
        ann.shop.command("updateUser", "ann", pwd="y", customData={"a": 1})
        assert refused(lambda: ann.shop.command("updateUser", "bob", pwd="y"))
        assert refused(lambda: ann.shop.command("updateUser", "ann", roles=[]))
    with Client("127.0.0.1", server.port, username="bob", password="x", authSource="shop") as bob:
        assert refused(lambda: bob.shop.command("updateUser", "bob", pwd="y"))
    root.shop.command("dropAllUsersFromDatabase")
    root.shop.command("dropAllRolesFromDatabase")


def test_names_of_collections_and_databases(root: Client, log_in: LogIn) -> None:
    root.shop.carts.insert_one({})
    root.shop.secret.insert_one({})
    root.other.secret.insert_one({})
    client = log_in(privileges=[on("shop", "carts", "find")])
    assert refused(lambda: client.shop.command("listCollections"))
    listed = client.shop.command("listCollections", nameOnly=True, authorizedCollections=True)["cursor"]["firstBatch"]
    assert [entry["name"] for entry in listed] == ["carts"]
    assert client.list_database_names() == ["shop"]
    assert refused(lambda: client.admin.command("listDatabases", authorizedDatabases=False))
    assert {"shop", "other"} <= set(root.list_database_names())
    for database in ("shop", "other"):
        root.drop_database(database)


@own_cursors
def test_sessions_belong_to_users(root: Client, log_in: LogIn) -> None:
    """Two users who send the same id have different sessions: neither gets the other's results or ends its cursors."""
    root.shop.carts.insert_many([{"_id": number} for number in range(10)])
    first, second = log_in(role("readWrite", "shop")), log_in(role("readWrite", "shop"))
    lsid = {"id": bson.Binary(uuid.uuid4().bytes, 4)}
    sessions = [client.start_session(causal_consistency=False) for client in (first, second)]
    for session in sessions:
        assert session.session_id
        session._server_session.session_id = lsid
    write: Document = {"findAndModify": "carts", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "new": True}
    write["txnNumber"] = bson.Int64(1)
    for expected, client in enumerate((first, second), 1):
        for _ in ("first attempt", "retry"):
            assert client.shop.command(dict(write), session=sessions[expected - 1])["value"]["n"] == expected
    found = first.shop.command({"find": "carts", "batchSize": 1}, session=sessions[0])
    more = {"getMore": found["cursor"]["id"], "collection": "carts", "batchSize": 1}
    second.admin.command("killSessions", [lsid])
    second.admin.command("killSessions", [])
    second.admin.command("endSessions", [lsid])
    assert first.shop.command(dict(more), session=sessions[0])["cursor"]["nextBatch"]
    [user] = first.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
    of_first = {**lsid, "uid": bson.Binary(hashlib.sha256(f"{user['user']}@admin".encode()).digest())}
    assert refused(lambda: second.admin.command("killSessions", [of_first]))
    root.admin.command("killAllSessionsByPattern", [{"lsid": of_first}])
    assert code(lambda: first.shop.command(dict(more), session=sessions[0])) == 43
    for session in sessions:
        session.end_session()
    root.drop_database("shop")


@own_sessions
def test_listing_sessions(root: Client, log_in: LogIn) -> None:
    client = log_in()
    [user] = client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
    own = hashlib.sha256(f"{user['user']}@admin".encode()).digest()

    def listed(by: Client, **options: Any) -> set[bytes]:
        return {session["_id"]["uid"] for session in by.admin.aggregate([{"$listLocalSessions": options}])}

    assert listed(client) == listed(client, users=[user]) == {own}
    assert own in listed(root, allUsers=True) and own not in listed(root)
    assert listed(root, users=[user]) == {own}
    assert refused(lambda: listed(client, allUsers=True))
    assert refused(lambda: listed(client, users=[{"user": "root", "db": "admin"}]))


@own_operations
def test_operations_of_others(root: Client, log_in: LogIn) -> None:
    client = log_in(role("read", "shop"))
    assert refused(lambda: client.admin.command("currentOp"))
    assert client.admin.command({"currentOp": 1, "$ownOps": True, "$all": True})["ok"] == 1.0
    own = list(client.admin.aggregate([{"$currentOp": {"idleConnections": True}}]))
    name = client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"][0]["user"]
    assert {user["user"] for found in own for user in found.get("effectiveUsers", [])} == {name}
    everybody = [{"$currentOp": {"allUsers": True, "idleConnections": True}}]
    assert refused(lambda: list(client.admin.aggregate(everybody)))
    assert any(
        {"user": "root", "db": "admin"} in found.get("effectiveUsers", []) for found in root.admin.aggregate(everybody)
    )
    assert refused(lambda: client.admin.command("killOp", op=12345))


# Stages that read no documents of the collection of their pipeline, with what they need instead.
OTHER_STAGES = {
    "$changeStream", "$collStats", "$currentOp", "$documents", "$indexStats", "$listClusterCatalog",
    "$listLocalSessions", "$listSampledQueries", "$listSessions", "$planCacheStats", "$querySettings",
    "$queryStats",
}  # fmt: skip


def test_needs_of_stages_are_declared() -> None:
    """A stage that is run without a collection, or shows metadata, declares what it needs instead of `find`."""
    names = {*STAGES.names(), *STAGES.unsupported_names()}
    declared = {name: STAGES.known(name).traits for name in names}  # type: ignore[union-attr]
    assert {name for name, traits in declared.items() if traits.actions != ("find",)} == OTHER_STAGES
    assert {name for name, traits in declared.items() if traits.collectionless or traits.server_wide} <= OTHER_STAGES
    assert {name for name, traits in declared.items() if traits.writes} == {
        name for name, traits in declared.items() if traits.target is not None
    }


def test_stages_about_metadata(root: Client, log_in: LogIn) -> None:
    root.shop.carts.insert_one({})
    client = log_in(privileges=[on("shop", "carts", "find")])
    stages: list[Document] = [{"$collStats": {"count": {}}}, {"$indexStats": {}}, {"$planCacheStats": {}}]
    for stage in stages:
        assert refused(lambda: list(client.shop.carts.aggregate([stage])))  # noqa: B023
        assert list(root.shop.carts.aggregate([stage])) is not None
    for stage in ({"$querySettings": {}}, {"$listSampledQueries": {}}):
        assert refused(lambda: list(client.admin.aggregate([stage])))  # noqa: B023
        assert list(root.admin.aggregate([stage])) == []
    catalog: list[Document] = [{"$listClusterCatalog": {}}]
    assert refused(lambda: list(client.admin.aggregate(catalog)))
    assert "shop" not in {entry["db"] for entry in log_in(role("read", "admin")).admin.aggregate(catalog)}
    assert "shop" in {entry["db"] for entry in root.admin.aggregate(catalog)}
    assert refused(lambda: list(client.admin.aggregate([{"$listLocalSessions": {"allUsers": True}}])))
    assert list(client.admin.aggregate([{"$documents": [{"a": 1}]}])) == [{"a": 1}]
    root.drop_database("shop")


def test_query_stats_need_an_action_for_names_and_one_for_all(root: Client, log_in: LogIn) -> None:
    """The manual asks for `queryStatsRead` without `transformIdentifiers`, and for both actions with it.

    MongoDB 8 itself needs both to show names, and `queryStatsReadTransformed` alone to show HMACs.
    """
    transform = {"algorithm": "hmac-sha-256", "hmacKey": bson.Binary(b"secret", 8)}
    named: list[Document] = [{"$queryStats": {}}]
    transformed: list[Document] = [{"$queryStats": {"transformIdentifiers": transform}}]
    on_cluster = {"cluster": True}
    for actions, allowed in (
        ([], []),
        (["queryStatsRead"], []),
        (["queryStatsReadTransformed"], [transformed]),
        (["queryStatsRead", "queryStatsReadTransformed"], [named, transformed]),
    ):
        client = log_in(privileges=[{"resource": on_cluster, "actions": actions}] if actions else [])
        for pipeline in (named, transformed):
            assert refused(lambda: list(client.admin.aggregate(pipeline))) == (pipeline not in allowed)  # noqa: B023
    with pytest.raises(OperationFailure, match='hmacKey: "###"'):  # the text of the error is logged as well
        list(log_in(privileges=[]).admin.aggregate(transformed))
    monitor = log_in(role("clusterMonitor", "admin"))
    assert list(monitor.admin.aggregate(named)) == list(monitor.admin.aggregate(transformed)) == []


@pytest.mark.slow
def test_the_first_user(tmp_path: Path) -> None:
    """A client of the same machine may make one user, of `admin`, as long as there is none."""
    with mongottl.start_server(auth=True, data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        assert refused(lambda: client.shop.carts.find_one())
        assert refused(lambda: client.shop.command("createUser", "ann", pwd="x", roles=[]))
        client.admin.command("createUser", "ann", pwd="x", roles=["root"])
        assert refused(lambda: client.admin.command("createUser", "bob", pwd="x", roles=[]))
        assert refused(lambda: client.admin.command("createRole", "r", privileges=[], roles=[]))
    with mongottl.start_server(auth=True, data_dir=str(tmp_path)) as server, Client(server.uri) as client:
        assert refused(lambda: client.admin.command("createUser", "bob", pwd="x", roles=[]))
        with Client(server.uri, username="ann", password="x") as ann:
            ann.shop.carts.insert_one({})


@pytest.mark.slow
def test_of_several_first_users_the_first_one_wins() -> None:
    """Their passwords' keys are computed beside each other, so all of them have begun when there was no user."""
    with mongottl.start_server(auth=True) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(WireClient(server.uri))) for _ in range(20)]
        for number, client in enumerate(clients):
            client.send({"createUser": f"user{number}", "pwd": "x", "roles": ["root"]}, "admin")
        replies = [client.reply() for client in clients]
        [winner] = [number for number, reply in enumerate(replies) if reply["ok"]]
        assert {reply["code"] for reply in replies if not reply["ok"]} == {UNAUTHORIZED}
        with Client(server.uri, username=f"user{winner}", password="x") as connected:
            assert [user["user"] for user in connected.admin.command("usersInfo", 1)["users"]] == [f"user{winner}"]


@own_figures
def test_strangers_have_no_sessions(anonymous: Client, root: Client, server: mongottl.RunningServer) -> None:
    """They could name the session of a user by its digest, and end its transaction, or make any number of sessions."""
    with root.start_session() as session, session.start_transaction():
        root.shop.carts.insert_one({"_id": 1}, session=session)
        lsid = {**session.session_id, "uid": bson.Binary(hashlib.sha256(b"root@admin").digest())}
        before = root.admin.command("serverStatus")["logicalSessionRecordCache"]["activeSessionsCount"]
        with contextlib.closing(WireClient(server.uri)) as stranger:
            for number in (session._server_session.transaction_id, session._server_session.transaction_id + 1):
                transaction = {"lsid": lsid, "txnNumber": bson.Int64(number), "autocommit": False}
                assert stranger.command({"connectionStatus": 1, **transaction}, "admin")["ok"] == 1
                assert stranger.command({"endSessions": [lsid], **transaction}, "admin")["ok"] == 1
            for _ in range(5):
                assert stranger.command({"hello": 1, "lsid": {"id": bson.Binary(uuid.uuid4().bytes, 4)}})["ok"] == 1
        after = root.admin.command("serverStatus")["logicalSessionRecordCache"]["activeSessionsCount"]
        assert after <= before + 1
        session.commit_transaction()
    assert root.shop.carts.count_documents({}) == 1
    root.drop_database("shop")


def test_hello_does_not_tell_which_users_exist(anonymous: Client, root: Client) -> None:
    told = [anonymous.admin.command("hello", saslSupportedMechs=f"admin.{name}") for name in ("root", "nobody")]
    assert told[0]["saslSupportedMechs"] == told[1]["saslSupportedMechs"] == ["SCRAM-SHA-1", "SCRAM-SHA-256"]


def test_strangers_do_not_move_the_cluster_time(anonymous: Client, root: Client) -> None:
    now = root.admin.command("ping")["$clusterTime"]["clusterTime"]
    ahead = bson.Timestamp(now.time + 100_000, 1)
    signature = {"hash": bson.Binary(bytes(20)), "keyId": bson.Int64(0)}
    anonymous.admin.command({"ping": 1, "$clusterTime": {"clusterTime": ahead, "signature": signature}})
    assert root.admin.command("ping")["$clusterTime"]["clusterTime"].time < now.time + 1000


def test_asyncio(server: mongottl.RunningServer, root: Client) -> None:
    async def run() -> None:
        async with pymongo.AsyncMongoClient[dict[str, Any]](server.uri) as client:
            await asyncio.gather(*(client.shop.asynchronous.insert_one({"_id": number}) for number in range(50)))
            assert await client.shop.asynchronous.count_documents({}) == 50
        async with pymongo.AsyncMongoClient[dict[str, Any]]("127.0.0.1", server.port) as nobody:
            with pytest.raises(OperationFailure):
                await nobody.shop.asynchronous.find_one()

    asyncio.run(run())
    root.drop_database("shop")


@pytest.mark.slow
def test_the_user_of_the_command_line(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("from/file\n")
    log = tmp_path / "log"
    data = ("--data-dir", str(tmp_path / "data"))
    process = Process(log, "--port", "0", "--auth", "--user", "r o:ot", "--password-file", str(password), *data)
    try:
        assert process.uri.startswith("mongodb://r%20o%3Aot@127.0.0.1:")
        with Client(process.uri.replace("@", ":from%2Ffile@")) as client:
            client.shop.carts.insert_one({})
            shown = client.admin.command("getCmdLineOpts")
            assert shown["parsed"]["security"] == {"authorization": "enabled"}
        process.stop()
    finally:
        process.kill()
    process = Process(
        log, "--port", "0", "--auth", "--user", "r o:ot", *data, environment={"MONGOTTL_PASSWORD": "another"}
    )
    try:
        with Client(process.uri.replace("@", ":from%2Ffile@")) as client:
            client.shop.carts.find_one()
            assert "another" not in json.dumps(client.admin.command("getCmdLineOpts"), default=str)
        with Client(process.uri.replace("@", ":another@")) as client, pytest.raises(OperationFailure):
            client.shop.carts.find_one()
        arguments = Path(f"/proc/{process.popen.pid}/cmdline")
        if arguments.exists():
            assert b"another" not in arguments.read_bytes()
        process.stop()
    finally:
        process.kill()
    text = log.read_text()
    assert "The user exists already" in text
    assert "from/file" not in text and "another" not in text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"user": "ann", "password_file": "/nowhere"}, "cannot read the password file /nowhere: No such file"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(OSError, match=text), mongottl.start_server(**settings):
        pass


def test_a_server_in_a_thread_hides_the_password(server: mongottl.RunningServer) -> None:
    assert "p%40ss%2Fword" in server.uri
    assert "word" not in repr(server)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "warned"), [(["--host", "0.0.0.0"], True), (["--host", "0.0.0.0", "--auth"], False), ([], False)]
)
def test_a_warning_to_servers_that_everybody_can_reach(tmp_path: Path, options: list[str], warned: bool) -> None:
    log = tmp_path / "log"
    process = Process(log, "--port", "0", *options)
    try:
        if not options or "--auth" not in options:
            with Client(process.uri) as client:
                warnings = client.admin.command("getLog", "startupWarnings")["log"]
            assert any("Access control is off" in line for line in warnings) is warned
        process.stop()
    finally:
        process.kill()
    assert ("Access control is off" in log.read_text()) is warned


@own_log
@pytest.mark.slow
def test_over_tls(tmp_path: Path) -> None:
    files = Files(tmp_path)
    settings: dict[str, Any] = {"tls_cert": files.server, "tls_key": files.key, "tls_ca": files.ca}
    with mongottl.start_server(auth=True, user="root", password="x", **settings) as server:
        trusted: dict[str, Any] = {"tlsCAFile": files.ca, "tlsCertificateKeyFile": files.client}
        with Client(server.uri, **trusted) as root:
            root.shop.carts.insert_one({"_id": 1})
            by_certificate: dict[str, Any] = {**trusted, "authMechanism": "MONGODB-X509"}
            port = server.port
            with Client("127.0.0.1", port, tls=True, **by_certificate) as client, pytest.raises(PyMongoError):
                client.shop.carts.find_one()
            lines = root.admin.command("getLog", "global")["log"]
            [subject] = {
                json.loads(line)["attr"]["user"].removesuffix("@$external") for line in lines if "X509" in line
            }
            root["$external"].command("createUser", subject, roles=[role("read", "shop")])
            with Client("127.0.0.1", port, tls=True, **by_certificate) as client:
                assert client.shop.carts.find_one() == {"_id": 1}
                assert refused(lambda: client.shop.carts.insert_one({}))
