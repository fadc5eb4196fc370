"""Which privileges apply to a resource, and the table of built-in roles."""

import pytest

from mongottl.document.build import encode
from mongottl.errors import CommandError
from mongottl.security.builtin_roles import BUILTIN_ROLES, add_privileges, builtin_role
from mongottl.security.names import RoleName
from mongottl.security.privileges import (
    ACTIONS,
    ALL_DATABASES,
    ANY_RESOURCE,
    CLUSTER,
    PrivilegeSet,
    Resource,
    collection_resource,
    database_resource,
    parse_resource,
)

CARTS = collection_resource("shop", "carts")
SHOP = database_resource("shop")
EVERY_CARTS = collection_resource("", "carts")


@pytest.mark.parametrize(
    ("granted", "allowed"),
    [
        (CARTS, {CARTS}),
        (SHOP, {CARTS, SHOP, collection_resource("shop", "log")}),
        (EVERY_CARTS, {CARTS, collection_resource("other", "carts"), collection_resource("local", "carts")}),
        (ALL_DATABASES, {CARTS, SHOP, collection_resource("shop", "log"), collection_resource("other", "carts")}),
        (database_resource("local"), {collection_resource("local", "carts")}),
        (collection_resource("shop", "system.js"), {collection_resource("shop", "system.js")}),
        (CLUSTER, {CLUSTER}),
    ],
)
def test_privileges_apply_to_matching_resources(granted: Resource, allowed: set[Resource]) -> None:
    asked = [
        CARTS,
        SHOP,
        CLUSTER,
        collection_resource("shop", "log"),
        collection_resource("shop", "system.js"),
        collection_resource("other", "carts"),
        collection_resource("local", "carts"),
        collection_resource("local", "replset.minvalid"),
    ]
    privileges = PrivilegeSet()
    privileges.add(granted, ["find"])
    assert {resource for resource in asked if privileges.allows(resource, "find")} == allowed
    assert not any(privileges.allows(resource, "insert") for resource in asked)
    everything = PrivilegeSet()
    everything.add(ANY_RESOURCE, ["find"])
    assert all(everything.allows(resource, "find") for resource in asked)


def test_privileges_reach_databases_and_collections() -> None:
    privileges = PrivilegeSet()
    privileges.add(CARTS, ["find"])
    assert privileges.reaches("shop") and privileges.reaches("shop", "carts")
    assert not privileges.reaches("shop", "log") and not privileges.reaches("other")
    privileges.add(collection_resource("", "log"), ["find"])
    assert privileges.reaches("shop", "log") and not privileges.reaches("other")


@pytest.mark.parametrize("resource", [CARTS, SHOP, EVERY_CARTS, ALL_DATABASES, CLUSTER, ANY_RESOURCE])
def test_resources_are_documents(resource: Resource) -> None:
    assert parse_resource("resource", resource.document()) == resource


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({}, 2),
        ({"db": "shop"}, 2),
        ({"cluster": True, "db": "", "collection": ""}, 2),
        ({"cluster": False}, 2),
        ({"cluster": 1}, 14),
        ({"db": 1, "collection": ""}, 14),
        ({"table": "x"}, 40415),
    ],
)
def test_resources_that_are_refused(document: dict[str, object], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        parse_resource("resource", encode(document))
    assert caught.value.code == code


@pytest.mark.parametrize("name", sorted(BUILTIN_ROLES))
def test_builtin_roles_give_actions_that_exist(name: str) -> None:
    privileges = PrivilegeSet()
    add_privileges(RoleName(name, "admin"), privileges)
    given = {action for _, actions in privileges for action in actions}
    assert given and given <= ACTIONS
    assert set(BUILTIN_ROLES[name].includes) <= set(BUILTIN_ROLES)


def test_roles_of_all_databases_belong_to_admin() -> None:
    assert builtin_role(RoleName("readWrite", "shop")) is not None
    assert builtin_role(RoleName("root", "admin")) is not None
    assert builtin_role(RoleName("root", "shop")) is None
    assert builtin_role(RoleName("readAnyDatabase", "shop")) is None
    assert builtin_role(RoleName("read", "$external")) is None
