"""What a client must be allowed to do for a command: declared with the command, checked once, before it runs.

    @command("find", FindRequest, access=on_collection("find"), access=on_collection("find"), …)
    @command("ping", PingRequest, access=ANYONE, access=ANYONE, …)
    @command("aggregate", AggregateRequest, access=needing(aggregate_needs), access=needing(aggregate_needs), …)

A need is an action on a resource; every need of a command must be met. What depends on the arguments is computed by a
function of the request. A command whose result depends on what the client may do (`listDatabases`) asks `op.may`.

Source: MongoDB's "Privilege Actions", and the sections "Required Access" of its command reference.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from mongottl.document.interrupt import give_way
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.security.accounts import Grants
from mongottl.security.privileges import CLUSTER, Need, collection_resource, database_resource

# What it takes to look for a need among privileges, in the units of `give_way`.
_WORK: Final = 4

NeedsOf: TypeAlias = Callable[[OperationContext, Any], list[Need]]


class Access:
    """Who may run a command.

    by_anyone: also clients that are not logged in. needs: what others must be allowed, by the request.
    before_first_user: on `admin`, a client of the same machine may run it as long as there is no user.
    on_collection: whether the needs depend only on database and collection, so that the decision can be kept.
    """

    def __init__(
        self, by_anyone: bool, needs: NeedsOf, before_first_user: bool = False, on_collection: bool = False
    ) -> None:
        self.by_anyone = by_anyone
        self.needs = needs
        self.before_first_user = before_first_user
        self.on_collection = on_collection


def _nothing(op: OperationContext, request: Any) -> list[Need]:
    return []


ANYONE: Final = Access(True, _nothing)
# Every user, whatever its roles.
USERS: Final = Access(False, _nothing)


def needing(needs: NeedsOf, before_first_user: bool = False) -> Access:
    """Needs that depend on the request."""
    return Access(False, needs, before_first_user)


def on_collection(*actions: str) -> Access:
    """Actions on the collection that the command names."""

    def needs(op: OperationContext, request: Any) -> list[Need]:
        return collection_needs(op.database, request.collection, *actions)

    return Access(False, needs, on_collection=True)


def on_database(*actions: str) -> Access:
    """Actions on the database on which the command is run."""

    def needs(op: OperationContext, request: Any) -> list[Need]:
        return database_needs(op.database, *actions)

    return Access(False, needs)


def on_cluster(*actions: str) -> Access:
    """Actions on the server."""
    listed = cluster_needs(*actions)

    def needs(op: OperationContext, request: Any) -> list[Need]:
        return listed

    return Access(False, needs)


def collection_needs(database: str, collection: str, *actions: str) -> list[Need]:
    resource = collection_resource(database, collection)
    return [Need(resource, action) for action in actions]


def database_needs(database: str, *actions: str) -> list[Need]:
    resource = database_resource(database)
    return [Need(resource, action) for action in actions]


def cluster_needs(*actions: str) -> list[Need]:
    return [Need(CLUSTER, action) for action in actions]


def namespace_needs(namespace: str, *actions: str) -> list[Need]:
    """Actions on a collection that is named with its database."""
    database, _, collection = namespace.partition(".")
    return collection_needs(database, collection, *actions)


def write_needs(database: str, collection: str, actions: list[str], bypass_validation: bool) -> list[Need]:
    """What a write needs on its collection."""
    needs = collection_needs(database, collection, *actions)
    return needs + collection_needs(database, collection, "bypassDocumentValidation") if bypass_validation else needs


def _is_first_user(op: OperationContext) -> bool:
    """Whether there is no user yet and the client is on the same machine: it connects over a loopback address."""
    host = op.client.host.strip("[]")
    return (host.startswith("127.") or host == "::1") and not op.service.accounts.any_user()


def check_access(op: OperationContext, access: Access, command: str, shown: Callable[[], str], request: Any) -> None:
    """Unauthorized (13) unless the client may run a command with this request; sets `op.needs`.

    shown: gives the command as the error's text shows it.
    """
    if access.by_anyone:
        return
    grants = op.grants()
    if grants is None:
        if access.before_first_user and op.database == "admin" and _is_first_user(op):
            op.is_before_first_user = True
            return
        raise op.service.dialect.not_authenticated(command)
    if access.on_collection:
        key = (command, op.database, request.collection)
        known = grants.allowed(key)
        if known is not None:
            op.needs = known
            return
    if access.on_collection:
        op.needs = access.needs(op, request)
        met = all(grants.meets(need) for need in op.needs)
    else:
        op.needs, met = op.compute(partial(_meets, op, access, request, grants))
    if not met:
        raise op.service.dialect.not_authorized(command, not_authorized(op.database, shown()))
    if access.on_collection:
        grants.allow(key, op.needs)


def _meets(op: OperationContext, access: Access, request: Any, grants: Grants) -> tuple[list[Need], bool]:
    """What a request needs, and whether all of it is allowed. A request may name very many namespaces or roles."""
    needs = access.needs(op, request)
    for need in needs:
        give_way(_WORK)
        if not grants.meets(need):
            return needs, False
    return needs, True


def check_still_first(op: OperationContext) -> None:
    """Unauthorized (13) for a command that was allowed only because there was no user, if there is one by now.

    Such commands wait, for a lock or for a password's key: of several that run beside each other the first one wins.
    """
    if op.is_before_first_user and op.service.accounts.any_user():
        raise CommandError(ErrorCode.Unauthorized, "The command requires authentication: there is a user by now")


def not_authorized(database: str, shown: str) -> CommandError:
    return CommandError(ErrorCode.Unauthorized, f"not authorized on {database} to execute command {shown}")
