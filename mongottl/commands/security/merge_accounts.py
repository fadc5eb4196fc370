"""_mergeAuthzCollections: puts users and roles of temporary collections among those of the server, for `mongorestore`.

Source: the requests of MongoDB's database tools.
"""

from functools import partial
from typing import Annotated, NamedTuple

from mongottl.catalog.namespace import split_namespace
from mongottl.commands.access import needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import BOOL_FIELD, ONE, TEXT, Field
from mongottl.commands.security.documents import Changes, change_accounts
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.security.accounts import DATABASE, ROLES, USERS
from mongottl.security.privileges import ALL_DATABASES, Need
from mongottl.storage.stores import Record

# What it takes to check a document, in the units of `give_way`.
_WORK = 4

_ACTIONS = ("changePassword", "createRole", "createUser", "dropRole", "dropUser", "grantRole", "revokeRole")


class MergeAuthzCollectionsRequest(NamedTuple):
    command: Annotated[Value, Field("_mergeAuthzCollections", ONE)]
    users: Annotated[str, Field("tempUsersCollection", TEXT)] = ""
    roles: Annotated[str, Field("tempRolesCollection", TEXT)] = ""
    database: Annotated[str, Field("db", TEXT)] = ""
    drop: Annotated[bool, Field("drop", BOOL_FIELD)] = False


def _merge_needs(op: OperationContext, request: MergeAuthzCollectionsRequest) -> list[Need]:
    """What the commands need that make, change and drop users and roles of any database; even if only users of one
    are merged, since they may have roles of any."""
    return [Need(ALL_DATABASES, action) for action in _ACTIONS]


@command(
    "_mergeAuthzCollections",
    MergeAuthzCollectionsRequest,
    access=needing(_merge_needs),
    help="Adds users and roles of temporary collections to those of the server, or replaces them; for mongorestore.",
    writes=True,
    admin_only=True,
)
def merge_authz_collections(op: OperationContext, request: MergeAuthzCollectionsRequest) -> Reply:
    """Users and roles that exist are replaced. db: only those of this database, all if it is empty. drop: those that
    the temporary collections do not have are deleted.

    BadValue (2) without a collection, for one that is not in `admin`, or for a document that is no user or role;
    nothing is changed then.
    """
    if not request.users and not request.roles:
        raise CommandError(
            ErrorCode.BadValue, 'Must provide at least one of "tempUsersCollection" and "tempRolesCollection"'
        )
    change_accounts(op, partial(_merged, op, request))
    return {}


def _merged(op: OperationContext, request: MergeAuthzCollectionsRequest) -> Changes:
    accounts = op.service.accounts
    merged: list[tuple[str, list[Record], list[Record]]] = []
    for temporary, name, collection, present in (
        (request.users, "user", USERS, accounts.users()),
        (request.roles, "role", ROLES, accounts.roles()),
    ):
        if temporary:
            database, temporary_name = split_namespace(temporary)
            if database != DATABASE or temporary_name.startswith("system."):
                raise CommandError(ErrorCode.BadValue, f"{temporary} is no temporary collection of {DATABASE}")
            given = op.service.catalog.all_records(database, temporary_name)
            for record in given:
                give_way(_WORK)
                _check(record[1], name)
            merged.append((collection, _of(given, request.database), _of(present, request.database)))
    stored: list[tuple[str, Record | None, bytes]] = []
    deleted: list[tuple[str, list[Record]]] = []
    for collection, given, present in merged:
        known = {get_value(record[1], "_id"): record for record in present}
        for record in given:
            stored.append((collection, known.pop(get_value(record[1], "_id"), None), record[1]))
        if request.drop:
            deleted.append((collection, list(known.values())))
    return Changes(stored, deleted)


def _of(records: list[Record], database: str) -> list[Record]:
    """The users or roles of a database; all of them if `database` is empty."""
    return [record for record in records if not database or get_value(record[1], "db") == database]


def _check(document: bytes, kind: str) -> None:
    """BadValue (2) unless it is a stored user or role: `_id` is made of database and name, `roles` is an array."""
    name = get_value(document, kind)
    database = get_value(document, "db")
    if not isinstance(name, str) or not isinstance(database, str) or not name or not database:
        raise CommandError(ErrorCode.BadValue, f"A {kind} document needs '{kind}' and 'db' to be non-empty strings")
    if get_value(document, "_id") != f"{database}.{name}":
        raise CommandError(ErrorCode.BadValue, f"The _id of {kind} {name}@{database} has to be {database}.{name}")
    if not isinstance(get_value(document, "roles"), list):
        raise CommandError(ErrorCode.BadValue, f"The document of {kind} {name}@{database} needs 'roles' to be an array")
    needed = "credentials" if kind == "user" else "privileges"
    if not isinstance(get_value(document, needed), bytes if kind == "user" else list):
        raise CommandError(ErrorCode.BadValue, f"The document of {kind} {name}@{database} needs '{needed}'")
