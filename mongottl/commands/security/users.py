"""createUser, updateUser, dropUser, dropAllUsersFromDatabase, grantRolesToUser, revokeRolesFromUser, usersInfo,
invalidateUserCache.

Source: MongoDB's "User Management Commands".
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.catalog import new_uuid
from mongottl.commands.access import check_still_first, database_needs, needing, on_cluster, on_database
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ARRAY_FIELD, DOCUMENT_FIELD, ONE, STRICT_BOOL, TEXT, Field
from mongottl.commands.security.documents import (
    Changes,
    as_documents,
    change_accounts,
    check_roles_exist,
    parse_restrictions,
    role_names,
    roles_needs,
    roles_with,
    roles_without,
    some_roles,
    user_name,
    user_not_found,
    with_fields,
)
from mongottl.document.bson_field import wrong_type
from mongottl.document.build import EMPTY_DOCUMENT, DocumentsOfReply, encode, encode_fields
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.long_lists import each_once
from mongottl.document.types import BinData, Value
from mongottl.document.walk import fields, fields_by_name, get_value
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import UUID_SUBTYPE
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_condition
from mongottl.security.accounts import USERS, Grants, roles_in
from mongottl.security.names import EXTERNAL, RoleName, UserName
from mongottl.security.privileges import ALL_DATABASES, Need, database_resource
from mongottl.security.scram import MECHANISMS, SHA_1, SHA_256, make_credentials
from mongottl.storage.stores import Record

# What it takes to describe a user, in the units of `give_way`.
_WORK: Final = 8

Roles = Annotated[list[Value], Field("roles", ARRAY_FIELD)]
Password = Annotated[str | None, Field("pwd", TEXT)]
CustomData = Annotated[bytes | None, Field("customData", DOCUMENT_FIELD)]
DigestPassword = Annotated[bool, Field("digestPassword", STRICT_BOOL)]
Mechanisms = Annotated[list[Value] | None, Field("mechanisms", ARRAY_FIELD)]
Restrictions = Annotated[list[Value] | None, Field("authenticationRestrictions", ARRAY_FIELD)]


class CreateUserRequest(NamedTuple):
    name: Annotated[str, Field("createUser", TEXT)]
    roles: Roles
    password: Password = None
    custom_data: CustomData = None
    digest_password: DigestPassword = True
    mechanisms: Mechanisms = None
    restrictions: Restrictions = None


def _create_user_needs(op: OperationContext, request: CreateUserRequest) -> list[Need]:
    needs = database_needs(op.database, "createUser")
    if request.restrictions is not None:
        needs += database_needs(op.database, "setAuthenticationRestriction")
    return needs + roles_needs(role_names("createUser.roles", request.roles, op.database), "grantRole")


@command(
    "createUser",
    CreateUserRequest,
    access=needing(_create_user_needs, before_first_user=True),
    help="Creates a user with a password and roles.",
    writes=True,
    secret_fields=("pwd",),
)
def create_user(op: OperationContext, request: CreateUserRequest) -> Reply:
    """51003 if there is such a user, RoleNotFound (31), BadValue (2) for a password that is missing or cannot be used,
    or for another database than users can have."""
    user = UserName(request.name, op.database)
    if not user.name:
        raise CommandError(ErrorCode.BadValue, "Username cannot be empty")
    if user.database == "local":
        raise CommandError(ErrorCode.BadValue, "Cannot create users in the local database")
    if request.password is None and user.database != EXTERNAL:
        raise CommandError(
            ErrorCode.BadValue,
            f"Must provide a 'pwd' field for all user documents, except those with '{EXTERNAL}' as the user's source"
            " db",
        )
    op.compute(partial(_new_user, op, user, request, {}))
    credentials: dict[str, Value] = {"external": True}
    if request.password is not None:
        credentials = _credentials(op, user, request.password, request.digest_password, request.mechanisms)
    elif request.mechanisms is not None:
        raise CommandError(ErrorCode.BadValue, f"Users of '{EXTERNAL}' have no SCRAM mechanisms")
    change_accounts(op, partial(_new_user, op, user, request, credentials))
    return {}


def _new_user(
    op: OperationContext, user: UserName, request: CreateUserRequest, credentials: dict[str, Value]
) -> Changes:
    roles = role_names("createUser.roles", request.roles, op.database)
    restrictions = None if request.restrictions is None else parse_restrictions(request.restrictions)
    check_still_first(op)
    _check_is_new(op, user)
    check_roles_exist(op, roles)
    document: dict[str, Value] = {
        "_id": user.id,
        "userId": BinData(new_uuid(), UUID_SUBTYPE),
        "user": user.name,
        "db": user.database,
        "credentials": credentials,
    }
    if request.custom_data is not None:
        document["customData"] = request.custom_data
    document["roles"] = as_documents(roles)
    if restrictions is not None:
        document["authenticationRestrictions"] = restrictions
    return Changes([(USERS, None, encode(document))])


def _check_is_new(op: OperationContext, user: UserName) -> None:
    if op.service.accounts.user_record(user) is not None:
        raise CommandError(51003, f'User "{user}" already exists')


def _credentials(
    op: OperationContext, user: UserName, password: str, digest: bool, mechanisms: list[Value] | None
) -> dict[str, Value]:
    """The credentials for a new password, computed in another thread. BadValue (2)."""
    if user.database == EXTERNAL:
        raise CommandError(
            ErrorCode.BadValue, f"Cannot set the password for users defined on the '{EXTERNAL}' database"
        )
    if not password:
        raise CommandError(ErrorCode.BadValue, "Password cannot be empty")
    chosen = op.compute(partial(_mechanisms, mechanisms))
    if not digest:
        if mechanisms is None:
            chosen = (SHA_1,)
        if SHA_256 in chosen:
            raise CommandError(ErrorCode.BadValue, f"Use of {SHA_256} requires undigested passwords")
    iterations = dict(op.service.accounts.iterations)
    return op.in_thread(partial(make_credentials, user.name, password, chosen, iterations, digested=not digest))


def _mechanisms(given: list[Value] | None) -> tuple[str, ...]:
    """The mechanisms for a password, both by default. BadValue (2) for none and for unknown ones."""
    if given is None:
        return MECHANISMS
    if not given:
        raise CommandError(ErrorCode.BadValue, "mechanisms field must not be empty")
    named: set[str] = set()
    for index, mechanism in enumerate(given):
        give_way()
        if not isinstance(mechanism, str):
            raise wrong_type(f"mechanisms.{index}", mechanism, "string")
        if mechanism not in MECHANISMS:
            raise CommandError(ErrorCode.BadValue, f"Unknown auth mechanism '{shortened(mechanism)}'")
        named.add(mechanism)
    return tuple(name for name in MECHANISMS if name in named)


class UpdateUserRequest(NamedTuple):
    name: Annotated[str, Field("updateUser", TEXT)]
    password: Password = None
    custom_data: CustomData = None
    digest_password: DigestPassword = True
    roles: Annotated[list[Value] | None, Field("roles", ARRAY_FIELD)] = None
    mechanisms: Mechanisms = None
    restrictions: Restrictions = None


def _update_user_needs(op: OperationContext, request: UpdateUserRequest) -> list[Need]:
    """Users may change their own password and data, if they have the action for that."""
    own = op.user() == UserName(request.name, op.database)
    database = database_resource(op.database)
    actions: list[str] = []
    if request.password is not None or request.mechanisms is not None:
        actions.append("changeOwnPassword" if own and op.may(database, "changeOwnPassword") else "changePassword")
    if request.custom_data is not None:
        actions.append("changeOwnCustomData" if own and op.may(database, "changeOwnCustomData") else "changeCustomData")
    if request.restrictions is not None:
        actions.append("setAuthenticationRestriction")
    if request.roles is not None:
        actions.append("revokeRole")
    needs = database_needs(op.database, *(actions or ["changePassword"]))
    return needs + roles_needs(role_names("updateUser.roles", request.roles or [], op.database), "grantRole")


@command(
    "updateUser",
    UpdateUserRequest,
    access=needing(_update_user_needs),
    help="Replaces a user's password, roles, mechanisms or custom data.",
    writes=True,
    secret_fields=("pwd",),
)
def update_user(op: OperationContext, request: UpdateUserRequest) -> Reply:
    """UserNotFound (11), RoleNotFound (31), BadValue (2) without anything to change."""
    user = UserName(request.name, op.database)
    changed: dict[str, Value] = {}
    op.compute(partial(_add_given, op, user, request, changed))
    record = _existing(op, user)
    if request.password is not None:
        changed["credentials"] = _credentials(op, user, request.password, request.digest_password, request.mechanisms)
    elif request.mechanisms is not None:
        changed["credentials"] = _kept_credentials(record[1], op.compute(partial(_mechanisms, request.mechanisms)))
    change_accounts(op, partial(_changed_user, op, user, changed))
    return {}


def _add_given(op: OperationContext, user: UserName, request: UpdateUserRequest, changed: dict[str, Value]) -> None:
    """Adds the fields to change that need no password."""
    roles: list[RoleName] = []
    if request.roles is not None:
        roles = role_names("updateUser.roles", request.roles, op.database)
        changed["roles"] = as_documents(roles)
    if request.custom_data is not None:
        changed["customData"] = request.custom_data
    if request.restrictions is not None:
        changed["authenticationRestrictions"] = parse_restrictions(request.restrictions)
    if not changed and request.password is None and request.mechanisms is None:
        raise CommandError(ErrorCode.BadValue, "Must specify at least one field to update in updateUser")
    _existing(op, user)
    check_roles_exist(op, roles)


def _changed_user(op: OperationContext, user: UserName, changed: dict[str, Value]) -> Changes:
    record = _existing(op, user)
    return Changes([(USERS, record, with_fields(record[1], changed))])


def _kept_credentials(document: bytes, mechanisms: tuple[str, ...]) -> dict[str, Value]:
    """The present credentials of these mechanisms. BadValue (2) for one that the user does not have."""
    credentials = get_value(document, "credentials")
    present = fields_by_name(credentials) if isinstance(credentials, bytes) else {}
    for mechanism in mechanisms:
        if mechanism not in present:
            raise CommandError(ErrorCode.BadValue, "mechanisms field must be a subset of previously set mechanisms")
    return {name: present[name] for name in mechanisms}


def _existing(op: OperationContext, user: UserName) -> Record:
    record = op.service.accounts.user_record(user)
    if record is None:
        raise user_not_found(user)
    return record


class DropUserRequest(NamedTuple):
    name: Annotated[str, Field("dropUser", TEXT)]


@command("dropUser", DropUserRequest, access=on_database("dropUser"), help="Deletes a user.", writes=True)
def drop_user(op: OperationContext, request: DropUserRequest) -> Reply:
    """UserNotFound (11). Connections of the user are no longer logged in."""
    user = UserName(request.name, op.database)
    change_accounts(op, lambda: Changes([], [(USERS, [_existing(op, user)])]))
    return {}


class DropAllUsersRequest(NamedTuple):
    command: Annotated[Value, Field("dropAllUsersFromDatabase", ONE)]


@command(
    "dropAllUsersFromDatabase",
    DropAllUsersRequest,
    access=on_database("dropUser"),
    help="Deletes all users of a database.",
    writes=True,
)
def drop_all_users(op: OperationContext, request: DropAllUsersRequest) -> Reply:
    """`{n: <how many>}`."""
    dropped: list[Record] = []

    def prepare() -> Changes:
        dropped[:] = [record for record in op.service.accounts.users() if get_value(record[1], "db") == op.database]
        return Changes([], [(USERS, dropped)])

    change_accounts(op, prepare)
    return {"n": len(dropped)}


class GrantRolesToUserRequest(NamedTuple):
    name: Annotated[str, Field("grantRolesToUser", TEXT)]
    roles: Roles


def _grant_roles_needs(op: OperationContext, request: GrantRolesToUserRequest) -> list[Need]:
    roles = role_names("grantRolesToUser.roles", request.roles, op.database)
    return roles_needs(roles, "grantRole") or database_needs(op.database, "grantRole")


@command(
    "grantRolesToUser",
    GrantRolesToUserRequest,
    access=needing(_grant_roles_needs),
    help="Gives a user further roles.",
    writes=True,
)
def grant_roles_to_user(op: OperationContext, request: GrantRolesToUserRequest) -> Reply:
    """UserNotFound (11), RoleNotFound (31), BadValue (2) for no role."""
    change_accounts(op, partial(_with_roles, op, request))
    return {}


def _with_roles(op: OperationContext, request: GrantRolesToUserRequest) -> Changes:
    roles = some_roles("grantRolesToUser", request.roles, op.database)
    record = _existing(op, UserName(request.name, op.database))
    check_roles_exist(op, roles)
    granted = roles_with(roles_in(record[1]), roles)
    return Changes([(USERS, record, with_fields(record[1], {"roles": granted}))])


class RevokeRolesFromUserRequest(NamedTuple):
    name: Annotated[str, Field("revokeRolesFromUser", TEXT)]
    roles: Roles


def _revoke_roles_needs(op: OperationContext, request: RevokeRolesFromUserRequest) -> list[Need]:
    roles = role_names("revokeRolesFromUser.roles", request.roles, op.database)
    return roles_needs(roles, "revokeRole") or database_needs(op.database, "revokeRole")


@command(
    "revokeRolesFromUser",
    RevokeRolesFromUserRequest,
    access=needing(_revoke_roles_needs),
    help="Takes roles from a user.",
    writes=True,
)
def revoke_roles_from_user(op: OperationContext, request: RevokeRolesFromUserRequest) -> Reply:
    """UserNotFound (11), RoleNotFound (31), BadValue (2) for no role. One that the user does not have is no error."""
    change_accounts(op, partial(_without_roles, op, request))
    return {}


def _without_roles(op: OperationContext, request: RevokeRolesFromUserRequest) -> Changes:
    roles = some_roles("revokeRolesFromUser", request.roles, op.database)
    record = _existing(op, UserName(request.name, op.database))
    check_roles_exist(op, roles)
    left = roles_without(roles_in(record[1]), roles)
    return Changes([(USERS, record, with_fields(record[1], {"roles": left}))])


class UsersInfoRequest(NamedTuple):
    which: Annotated[Value, Field("usersInfo", ONE)]
    show_credentials: Annotated[bool, Field("showCredentials", STRICT_BOOL)] = False
    show_custom_data: Annotated[bool, Field("showCustomData", STRICT_BOOL)] = True
    show_privileges: Annotated[bool, Field("showPrivileges", STRICT_BOOL)] = False
    show_restrictions: Annotated[bool, Field("showAuthenticationRestrictions", STRICT_BOOL)] = False
    filter: Annotated[bytes, Field("filter", DOCUMENT_FIELD)] = EMPTY_DOCUMENT


def _users_info_needs(op: OperationContext, request: UsersInfoRequest) -> list[Need]:
    """Users may see themselves, but not their credentials."""
    names = named_users(request.which, op.database)
    if names is None:
        everywhere = isinstance(request.which, bytes)
        return [Need(ALL_DATABASES if everywhere else database_resource(op.database), "viewUser")]
    own = () if request.show_credentials else (op.user(),)
    return [need for user in names if user not in own for need in database_needs(user.database, "viewUser")]


@command("usersInfo", UsersInfoRequest, access=needing(_users_info_needs), help="Describes users.")
def users_info(op: OperationContext, request: UsersInfoRequest) -> Reply:
    """`{usersInfo: 1 | {forAllDBs: true} | "ann" | {user, db} | [...]}`: `{users: [...]}`.

    IllegalOperation (20) for privileges or restrictions of users that are not named.
    """
    return op.compute(partial(_users_info, op, request))


def _users_info(op: OperationContext, request: UsersInfoRequest) -> Reply:
    accounts = op.service.accounts
    names = named_users(request.which, op.database)
    if names is not None:
        found = [accounts.user_record(user) for user in each_once(names)]
        records = [record for record in found if record is not None]
    else:
        if request.show_privileges or request.show_restrictions:
            raise CommandError(
                ErrorCode.IllegalOperation, "Privilege or restriction details require exact-match usersInfo queries"
            )
        everywhere = isinstance(request.which, bytes)
        records = [record for record in accounts.users() if everywhere or get_value(record[1], "db") == op.database]
    match = parse_condition(request.filter, ParseContext(op.now_ms, runtime_constants=False))
    users = DocumentsOfReply()
    for record in sorted(records, key=_name_and_database):
        user = _described(op, record[1], request)
        if match.matches(user):
            users.append(user)
    return {"users": users.documents}


def named_users(which: Value, database: str) -> list[UserName] | None:
    """The users that `usersInfo` names; None for all of the database, or of all databases. BadValue (2)."""
    if isinstance(which, list):
        names: list[UserName] = list_for(len(which))
        names.extend(user_name("usersInfo.usersInfo", value, database) for value in which)
        return names
    if isinstance(which, bytes) and get_value(which, "forAllDBs") is True:
        return None
    if isinstance(which, (str, bytes)):
        return [user_name("usersInfo.usersInfo", which, database)]
    if isinstance(which, (int, float)) and which == 1:
        return None
    raise CommandError(ErrorCode.BadValue, "usersInfo takes 1, {forAllDBs: true}, a user, or an array of users")


def _name_and_database(record: Record) -> tuple[str, str]:
    give_way(_WORK)
    return str(get_value(record[1], "user")), str(get_value(record[1], "db"))


def _described(op: OperationContext, document: bytes, request: UsersInfoRequest) -> bytes:
    """A user as `usersInfo` shows it."""
    give_way(_WORK)
    described: list[tuple[str, Value]] = []
    mechanisms: list[Value] = []
    for name, value in fields(document):
        if name == "credentials" and isinstance(value, bytes):
            mechanisms = [mechanism for mechanism, _ in fields(value)]
            if not request.show_credentials:
                continue
        elif name == "customData" and not request.show_custom_data:
            continue
        elif name == "authenticationRestrictions" and not request.show_restrictions:
            continue
        described.append((name, value))
    described.append(("mechanisms", mechanisms))
    if request.show_restrictions and not any(name == "authenticationRestrictions" for name, _ in described):
        described.append(("authenticationRestrictions", []))
    if request.show_privileges or request.show_restrictions:
        grants: Grants = op.service.accounts.grants_of_roles(roles_in(document))
        described.append(("inheritedRoles", as_documents(grants.all_roles)))
        if request.show_privileges:
            described.append(("inheritedPrivileges", grants.privileges.documents()))
        described.append(("inheritedAuthenticationRestrictions", []))
    return encode_fields(described)


class InvalidateUserCacheRequest(NamedTuple):
    command: Annotated[Value, Field("invalidateUserCache", ONE)]


@command(
    "invalidateUserCache",
    InvalidateUserCacheRequest,
    access=on_cluster("invalidateUserCache"),
    help="Forgets what users may do, to compute it anew.",
)
def invalidate_user_cache(op: OperationContext, request: InvalidateUserCacheRequest) -> Reply:
    op.service.accounts.invalidate()
    return {}
