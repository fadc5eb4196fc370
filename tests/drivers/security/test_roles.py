"""Roles: the commands that make and show them, by PyMongo over real sockets."""

import uuid
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.security.builtin_roles import BUILTIN_ROLES
from tests.drivers.security.test_users import refusal

Client = pymongo.MongoClient[dict[str, Any]]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: mongottl.RunningServer) -> Iterator[Client]:
    with Client(server.uri) as connected:
        yield connected


@pytest.fixture
def name(client: Client) -> Iterator[str]:
    """A database of its own for each test, without users and roles."""
    database = f"roles_{uuid.uuid4().hex[:8]}"
    yield database
    client[database].command("dropAllUsersFromDatabase")
    client[database].command("dropAllRolesFromDatabase")


def on(database: str, collection: str, *actions: str) -> Document:
    return {"resource": {"db": database, "collection": collection}, "actions": list(actions)}


def role(client: Client, name: str, which: str, **options: Any) -> Document:
    [found] = client[name].command("rolesInfo", which, **options)["roles"]
    return dict(found)


def test_a_role_is_made_and_shown(client: Client, name: str) -> None:
    privileges = [on(name, "carts", "insert", "find"), on(name, "carts", "find"), on(name, "", "dbStats")]
    client[name].command("createRole", "cashier", privileges=privileges, roles=["read"])
    assert role(client, name, "cashier") == {
        "_id": f"{name}.cashier",
        "role": "cashier",
        "db": name,
        "isBuiltin": False,
        "roles": [{"role": "read", "db": name}],
        "inheritedRoles": [{"role": "read", "db": name}],
    }
    shown = role(client, name, "cashier", showPrivileges=True)
    assert shown["privileges"] == [on(name, "carts", "find", "insert"), on(name, "", "dbStats")]
    of_database = next(p for p in shown["inheritedPrivileges"] if p["resource"] == {"db": name, "collection": ""})
    assert {"dbStats", "listCollections"} <= set(of_database["actions"])
    stored = client.admin["system.roles"].find_one({"_id": f"{name}.cashier"})
    assert stored is not None and list(stored) == ["_id", "role", "db", "privileges", "roles"]
    fragment = client[name].command("rolesInfo", "cashier", showPrivileges="asUserFragment")["userFragment"]
    assert [found["role"] for found in fragment["inheritedRoles"]] == ["cashier", "read"]


def test_a_role_is_changed(client: Client, name: str) -> None:
    database = client[name]
    database.command("createRole", "cashier", privileges=[], roles=[])
    database.command("grantPrivilegesToRole", "cashier", privileges=[on(name, "carts", "find", "insert", "remove")])
    database.command(
        "revokePrivilegesFromRole", "cashier", privileges=[on(name, "carts", "remove"), on(name, "", "find")]
    )
    assert role(client, name, "cashier", showPrivileges=True)["privileges"] == [on(name, "carts", "find", "insert")]
    database.command("grantRolesToRole", "cashier", roles=["read", "dbAdmin"])
    database.command("revokeRolesFromRole", "cashier", roles=["read"])
    assert role(client, name, "cashier")["roles"] == [{"role": "dbAdmin", "db": name}]
    database.command("updateRole", "cashier", privileges=[on(name, "x", "find")], roles=[])
    shown = role(client, name, "cashier", showPrivileges=True)
    assert (shown["privileges"], shown["roles"]) == ([on(name, "x", "find")], [])


def test_dropping_a_role_takes_it_from_all_who_have_it(client: Client, name: str) -> None:
    database = client[name]
    database.command("createRole", "inner", privileges=[on(name, "x", "find")], roles=[])
    database.command("createRole", "outer", privileges=[], roles=["inner", "read"])
    database.command("createUser", "ann", pwd="x", roles=["inner", "outer"])
    database.command("dropRole", "inner")
    assert role(client, name, "outer")["roles"] == [{"role": "read", "db": name}]
    [ann] = database.command("usersInfo", "ann")["users"]
    assert ann["roles"] == [{"role": "outer", "db": name}]
    database.command("createRole", "third", privileges=[], roles=["outer"])
    assert database.command("dropAllRolesFromDatabase")["n"] == 2
    assert database.command("rolesInfo", 1)["roles"] == []
    assert database.command("usersInfo", "ann")["users"][0]["roles"] == []


def test_errors(client: Client, name: str) -> None:
    database = client[name]
    database.command("createRole", "a", privileges=[], roles=[])
    database.command("createRole", "b", privileges=[], roles=["a"])
    assert refusal(database, "createRole", "a", privileges=[], roles=[]) == (51002, f'Role "a@{name}" already exists')
    assert refusal(database, "createRole", "read", privileges=[], roles=[])[0] == 2
    assert refusal(client.local, "createRole", "x", privileges=[], roles=[])[0] == 2
    assert refusal(database, "createRole", "", privileges=[], roles=[])[0] == 2
    assert refusal(database, "createRole", "c", roles=[])[0] == 40414
    assert refusal(database, "createRole", "c", privileges=[], roles=["x"]) == (31, f"Could not find role: x@{name}")
    assert refusal(database, "createRole", "c", privileges=[], roles=["c"])[0] == 49
    assert refusal(database, "createRole", "c", privileges=[], roles=[{"role": "read", "db": "other"}])[0] == 49
    assert refusal(database, "createRole", "c", privileges=[on("other", "", "find")], roles=[])[0] == 49
    cluster = {"resource": {"cluster": True}, "actions": ["serverStatus"]}
    assert refusal(database, "createRole", "c", privileges=[cluster], roles=[])[0] == 49
    assert refusal(database, "createRole", "c", privileges=[on(name, "", "fly")], roles=[])[0] == 9
    both = {"resource": {"cluster": True, "db": name, "collection": ""}, "actions": ["find"]}
    assert refusal(database, "createRole", "c", privileges=[both], roles=[])[0] == 2
    assert refusal(database, "grantRolesToRole", "a", roles=["b"])[0] == 49, "a cycle"
    assert refusal(database, "grantRolesToRole", "read", roles=["a"])[0] == 2
    assert refusal(database, "dropRole", "read")[0] == 2
    assert refusal(database, "updateRole", "a")[0] == 2
    for command in ("grantRolesToRole", "revokeRolesFromRole", "grantRolesToUser", "revokeRolesFromUser"):
        assert refusal(database, command, "none", roles=[])[0] == 2, "before it looks for the role or user"
    for command in ("grantPrivilegesToRole", "revokePrivilegesFromRole"):
        assert refusal(database, command, "read", privileges=[on(name, "", "find")])[0] == 2
    database.command("revokeRolesFromRole", "b", roles=["none"])
    wrong: list[Any] = ["x", "true", {}, []]
    for value in wrong:
        assert refusal(database, "rolesInfo", "a", showPrivileges=value)[0] == 2
    assert refusal(database, "grantPrivilegesToRole", "a", privileges=[])[0] == 2
    for command, options in (
        ("dropRole", {}),
        ("updateRole", {"roles": []}),
        ("grantRolesToRole", {"roles": ["a"]}),
        ("revokeRolesFromRole", {"roles": ["a"]}),
        ("grantPrivilegesToRole", {"privileges": [on(name, "", "find")]}),
        ("revokePrivilegesFromRole", {"privileges": [on(name, "", "find")]}),
    ):
        assert refusal(database, command, "nobody", **options) == (31, f"Could not find role: nobody@{name}")
    assert refusal(database, "rolesInfo", 2)[0] == 2


def test_a_role_of_admin_reaches_everywhere(client: Client, name: str) -> None:
    made = f"reporter_{name}"
    cluster = {"resource": {"cluster": True}, "actions": ["serverStatus"]}
    roles = [{"role": "read", "db": name}, "clusterMonitor"]
    client.admin.command("createRole", made, privileges=[cluster, on("", "logs", "find")], roles=roles)
    try:
        shown = role(client, "admin", made, showPrivileges=True)
        assert cluster in shown["privileges"]
        assert {found["role"] for found in shown["inheritedRoles"]} == {"read", "clusterMonitor"}
    finally:
        client.admin.command("dropRole", made)


def test_builtin_roles(client: Client, name: str) -> None:
    shown = client[name].command("rolesInfo", 1, showBuiltinRoles=True, showPrivileges=True)["roles"]
    assert {found["role"] for found in shown} == {
        "dbAdmin",
        "dbOwner",
        "enableSharding",
        "read",
        "readWrite",
        "userAdmin",
    }
    assert all(found["isBuiltin"] and found["privileges"] for found in shown)
    of_admin = {found["role"] for found in client.admin.command("rolesInfo", 1, showBuiltinRoles=True)["roles"]}
    assert set(BUILTIN_ROLES) <= of_admin
    assert client[name].command("rolesInfo", ["read", "root", "nothing"])["roles"] == [
        {"role": "read", "db": name, "isBuiltin": True, "roles": [], "inheritedRoles": []}
    ]


def test_privileges_of_a_user_by_roles_in_roles(client: Client, name: str, server: mongottl.RunningServer) -> None:
    """What a connection may do follows changes of roles at once."""
    database = client[name]
    database.command("createRole", "inner", privileges=[on(name, "x", "find")], roles=[])
    database.command("createRole", "outer", privileges=[], roles=["inner"])
    database.command("createUser", "ann", pwd="x", roles=["outer"])
    with Client(server.uri, username="ann", password="x", authSource=name) as ann:

        def privileges() -> list[Document]:
            status: Document = ann.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
            return list(status["authenticatedUserPrivileges"])

        assert privileges() == [on(name, "x", "find")]
        database.command("grantPrivilegesToRole", "inner", privileges=[on(name, "y", "insert")])
        assert privileges() == [on(name, "x", "find"), on(name, "y", "insert")]
        database.command("dropRole", "inner")
        assert privileges() == []
        database.command("invalidateUserCache")
        assert privileges() == []
