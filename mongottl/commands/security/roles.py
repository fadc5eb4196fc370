"""createRole, updateRole, dropRole, dropAllRolesFromDatabase, grantPrivilegesToRole, revokePrivilegesFromRole,
grantRolesToRole, revokeRolesFromRole, rolesInfo.

Source: MongoDB's "Role Management Commands".
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import database_needs, needing, on_database
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, ARRAY_FIELD, ONE, STRICT_BOOL, TEXT, Field
from mongottl.commands.security.documents import (
    Changes,
    as_documents,
    change_accounts,
    check_roles_exist,
    parse_restrictions,
    privileges_needs,
    role_name,
    role_names,
    role_not_found,
    roles_needs,
    roles_with,
    roles_without,
    some_roles,
    with_fields,
)
from mongottl.document.build import DocumentsOfReply, encode
from mongottl.document.interrupt import give_way
from mongottl.document.long_lists import each_once, set_of
from mongottl.document.numbers import is_true
from mongottl.document.types import Value, is_number
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.security.accounts import ROLES, USERS, roles_in
from mongottl.security.builtin_roles import builtin_role, builtin_roles_of
from mongottl.security.names import RoleName
from mongottl.security.privileges import Need, PrivilegeSet, Resource, parse_privileges
from mongottl.storage.stores import Record

# What it takes to describe a role, in the units of `give_way`.
_WORK: Final = 8

Privileges = Annotated[list[Value], Field("privileges", ARRAY_FIELD)]
Roles = Annotated[list[Value], Field("roles", ARRAY_FIELD)]
Restrictions = Annotated[list[Value] | None, Field("authenticationRestrictions", ARRAY_FIELD)]


class CreateRoleRequest(NamedTuple):
    name: Annotated[str, Field("createRole", TEXT)]
    privileges: Privileges
    roles: Roles
    restrictions: Restrictions = None


def _create_role_needs(op: OperationContext, request: CreateRoleRequest) -> list[Need]:
    needs = database_needs(op.database, "createRole")
    if request.restrictions is not None:
        needs += database_needs(op.database, "setAuthenticationRestriction")
    needs += roles_needs(role_names("createRole.roles", request.roles, op.database), "grantRole")
    return needs + privileges_needs(parse_privileges("createRole.privileges", request.privileges), "grantRole")


@command(
    "createRole",
    CreateRoleRequest,
    access=needing(_create_role_needs, before_first_user=True),
    help="Creates a role of privileges and of other roles.",
    writes=True,
)
def create_role(op: OperationContext, request: CreateRoleRequest) -> Reply:
    """51002 if there is such a role, RoleNotFound (31), InvalidRoleModification (49) for what a role of this database
    may not have, BadValue (2) for a name that cannot be used."""
    role = RoleName(request.name, op.database)
    if not role.name:
        raise CommandError(ErrorCode.BadValue, "Role name must be non-empty")
    if role.database in ("local", "$external"):
        raise CommandError(ErrorCode.BadValue, f"Cannot create roles in the {role.database} database")
    if builtin_role(role) is not None:
        raise CommandError(ErrorCode.BadValue, "Cannot create roles with the same name as a built-in role")
    change_accounts(op, partial(_new_role, op, role, request))
    return {}


def _new_role(op: OperationContext, role: RoleName, request: CreateRoleRequest) -> Changes:
    included = role_names("createRole.roles", request.roles, op.database)
    privileges = parse_privileges("createRole.privileges", request.privileges)
    restrictions = None if request.restrictions is None else parse_restrictions(request.restrictions)
    if op.service.accounts.role_record(role) is not None:
        raise CommandError(51002, f'Role "{role}" already exists')
    _check_included(op, role, included)
    _check_privileges(role, privileges)
    document: dict[str, Value] = {
        "_id": role.id,
        "role": role.name,
        "db": role.database,
        "privileges": _merged(privileges),
        "roles": as_documents(included),
    }
    if restrictions is not None:
        document["authenticationRestrictions"] = restrictions
    return Changes([(ROLES, None, encode(document))])


def _check_included(op: OperationContext, role: RoleName, included: list[RoleName]) -> None:
    """RoleNotFound (31); InvalidRoleModification (49) for a role that includes itself, or, unless it belongs to
    `admin`, one of another database."""
    for other in included:
        give_way()
        if other == role:
            raise _wrong_modification(f"Cannot grant role {role} to itself.")
        if role.database != "admin" and other.database != role.database:
            raise _wrong_modification(
                f"Roles on the '{role.database}' database cannot be granted roles from other databases"
            )
    check_roles_exist(op, included)
    if role not in op.service.accounts.with_included(included):
        return
    for other in included:
        if role in op.service.accounts.with_included([other]):
            raise _wrong_modification(f"Granting {other} to {role} would introduce a cycle in the role graph.")


def _check_privileges(role: RoleName, privileges: list[tuple[Resource, list[str]]]) -> None:
    """InvalidRoleModification (49) for privileges on another database, unless the role belongs to `admin`."""
    if role.database == "admin":
        return
    for resource, _ in privileges:
        give_way()
        if resource.kind not in ("namespace", "buckets") or resource.database != role.database:
            raise _wrong_modification(
                f"Roles on the '{role.database}' database cannot be granted privileges that target other databases or"
                " the cluster"
            )


def _wrong_modification(message: str) -> CommandError:
    return CommandError(ErrorCode.InvalidRoleModification, message)


def _merged(privileges: list[tuple[Resource, list[str]]]) -> list[Value]:
    """The privileges as documents, one for each resource."""
    merged = PrivilegeSet()
    for resource, actions in privileges:
        merged.add(resource, actions)
    return merged.documents()


def _existing(op: OperationContext, role: RoleName) -> Record:
    """The record of a role to be changed. RoleNotFound (31), BadValue (2) for a built-in one."""
    if builtin_role(role) is not None:
        raise CommandError(ErrorCode.BadValue, f"{role} is a built-in role and cannot be modified")
    record = op.service.accounts.role_record(role)
    if record is None:
        raise role_not_found(role)
    return record


def _privileges_in(document: bytes) -> list[tuple[Resource, list[str]]]:
    stored = get_value(document, "privileges")
    return parse_privileges("privileges", stored) if isinstance(stored, list) else []


class UpdateRoleRequest(NamedTuple):
    name: Annotated[str, Field("updateRole", TEXT)]
    privileges: Annotated[list[Value] | None, Field("privileges", ARRAY_FIELD)] = None
    roles: Annotated[list[Value] | None, Field("roles", ARRAY_FIELD)] = None
    restrictions: Restrictions = None


def _update_role_needs(op: OperationContext, request: UpdateRoleRequest) -> list[Need]:
    needs = database_needs(op.database, "revokeRole")
    if request.restrictions is not None:
        needs += database_needs(op.database, "setAuthenticationRestriction")
    needs += roles_needs(role_names("updateRole.roles", request.roles or [], op.database), "grantRole")
    return needs + privileges_needs(parse_privileges("updateRole.privileges", request.privileges or []), "grantRole")


@command(
    "updateRole",
    UpdateRoleRequest,
    access=needing(_update_role_needs),
    help="Replaces a role's privileges or the roles that it includes.",
    writes=True,
)
def update_role(op: OperationContext, request: UpdateRoleRequest) -> Reply:
    """RoleNotFound (31), InvalidRoleModification (49), BadValue (2) without anything to change."""
    change_accounts(op, partial(_updated_role, op, request))
    return {}


def _updated_role(op: OperationContext, request: UpdateRoleRequest) -> Changes:
    role = RoleName(request.name, op.database)
    changed: dict[str, Value] = {}
    if request.restrictions is not None:
        changed["authenticationRestrictions"] = parse_restrictions(request.restrictions)
    if request.privileges is None and request.roles is None and not changed:
        raise CommandError(ErrorCode.BadValue, "Must specify at least one field to update in updateRole")
    if builtin_role(role) is not None:
        raise _wrong_modification(f"{role} is a built-in role and cannot be modified.")
    record = _existing(op, role)
    if request.roles is not None:
        included = role_names("updateRole.roles", request.roles, op.database)
        _check_included(op, role, included)
        changed["roles"] = as_documents(included)
    if request.privileges is not None:
        privileges = parse_privileges("updateRole.privileges", request.privileges)
        _check_privileges(role, privileges)
        changed["privileges"] = _merged(privileges)
    return Changes([(ROLES, record, with_fields(record[1], changed))])


class GrantPrivilegesRequest(NamedTuple):
    name: Annotated[str, Field("grantPrivilegesToRole", TEXT)]
    privileges: Privileges


def _grant_privileges_needs(op: OperationContext, request: GrantPrivilegesRequest) -> list[Need]:
    privileges = parse_privileges("grantPrivilegesToRole.privileges", request.privileges)
    return privileges_needs(privileges, "grantRole") or database_needs(op.database, "grantRole")


@command(
    "grantPrivilegesToRole",
    GrantPrivilegesRequest,
    access=needing(_grant_privileges_needs),
    help="Adds privileges to a role.",
    writes=True,
)
def grant_privileges_to_role(op: OperationContext, request: GrantPrivilegesRequest) -> Reply:
    """RoleNotFound (31), InvalidRoleModification (49), BadValue (2) for no privilege."""
    change_accounts(op, partial(_with_privileges, op, request))
    return {}


def _with_privileges(op: OperationContext, request: GrantPrivilegesRequest) -> Changes:
    role = RoleName(request.name, op.database)
    privileges = _some_privileges("grantPrivilegesToRole", request.privileges)
    record = _existing(op, role)
    _check_privileges(role, privileges)
    granted = _merged([*_privileges_in(record[1]), *privileges])
    return Changes([(ROLES, record, with_fields(record[1], {"privileges": granted}))])


def _some_privileges(name: str, given: list[Value]) -> list[tuple[Resource, list[str]]]:
    if not given:
        raise CommandError(ErrorCode.BadValue, f"{name} command requires a non-empty 'privileges' array")
    return parse_privileges(f"{name}.privileges", given)


class RevokePrivilegesRequest(NamedTuple):
    name: Annotated[str, Field("revokePrivilegesFromRole", TEXT)]
    privileges: Privileges


def _revoke_privileges_needs(op: OperationContext, request: RevokePrivilegesRequest) -> list[Need]:
    privileges = parse_privileges("revokePrivilegesFromRole.privileges", request.privileges)
    return privileges_needs(privileges, "revokeRole") or database_needs(op.database, "revokeRole")


@command(
    "revokePrivilegesFromRole",
    RevokePrivilegesRequest,
    access=needing(_revoke_privileges_needs),
    help="Takes privileges from a role.",
    writes=True,
)
def revoke_privileges_from_role(op: OperationContext, request: RevokePrivilegesRequest) -> Reply:
    """Takes actions from the privilege on exactly the same resource. RoleNotFound (31), BadValue (2) for none."""
    change_accounts(op, partial(_without_privileges, op, request))
    return {}


def _without_privileges(op: OperationContext, request: RevokePrivilegesRequest) -> Changes:
    revoked = PrivilegeSet()
    for resource, actions in _some_privileges("revokePrivilegesFromRole", request.privileges):
        revoked.add(resource, actions)
    record = _existing(op, RoleName(request.name, op.database))
    gone = dict(revoked)
    left: list[tuple[Resource, list[str]]] = []
    for resource, actions in _privileges_in(record[1]):
        give_way()
        kept = [action for action in actions if action not in gone.get(resource, ())]
        if kept:
            left.append((resource, kept))
    return Changes([(ROLES, record, with_fields(record[1], {"privileges": _merged(left)}))])


class GrantRolesRequest(NamedTuple):
    name: Annotated[str, Field("grantRolesToRole", TEXT)]
    roles: Roles


def _grant_roles_needs(op: OperationContext, request: GrantRolesRequest) -> list[Need]:
    roles = role_names("grantRolesToRole.roles", request.roles, op.database)
    return roles_needs(roles, "grantRole") or database_needs(op.database, "grantRole")


@command(
    "grantRolesToRole",
    GrantRolesRequest,
    access=needing(_grant_roles_needs),
    help="Makes a role include further roles.",
    writes=True,
)
def grant_roles_to_role(op: OperationContext, request: GrantRolesRequest) -> Reply:
    """RoleNotFound (31), BadValue (2) for no role, InvalidRoleModification (49) for a cycle or another database's."""
    change_accounts(op, partial(_with_roles, op, request))
    return {}


def _with_roles(op: OperationContext, request: GrantRolesRequest) -> Changes:
    role = RoleName(request.name, op.database)
    included = some_roles("grantRolesToRole", request.roles, op.database)
    record = _existing(op, role)
    _check_included(op, role, included)
    granted = roles_with(roles_in(record[1]), included)
    return Changes([(ROLES, record, with_fields(record[1], {"roles": granted}))])


class RevokeRolesRequest(NamedTuple):
    name: Annotated[str, Field("revokeRolesFromRole", TEXT)]
    roles: Roles


def _revoke_roles_needs(op: OperationContext, request: RevokeRolesRequest) -> list[Need]:
    roles = role_names("revokeRolesFromRole.roles", request.roles, op.database)
    return roles_needs(roles, "revokeRole") or database_needs(op.database, "revokeRole")


@command(
    "revokeRolesFromRole",
    RevokeRolesRequest,
    access=needing(_revoke_roles_needs),
    help="Makes a role no longer include other roles.",
    writes=True,
)
def revoke_roles_from_role(op: OperationContext, request: RevokeRolesRequest) -> Reply:
    """RoleNotFound (31), BadValue (2) for no role. A role that is not included, or does not exist, is no error."""
    change_accounts(op, partial(_without_roles, op, request))
    return {}


def _without_roles(op: OperationContext, request: RevokeRolesRequest) -> Changes:
    revoked = some_roles("revokeRolesFromRole", request.roles, op.database)
    record = _existing(op, RoleName(request.name, op.database))
    left = roles_without(roles_in(record[1]), revoked)
    return Changes([(ROLES, record, with_fields(record[1], {"roles": left}))])


class DropRoleRequest(NamedTuple):
    name: Annotated[str, Field("dropRole", TEXT)]


@command(
    "dropRole",
    DropRoleRequest,
    access=on_database("dropRole"),
    help="Deletes a role, and takes it from users and other roles.",
    writes=True,
)
def drop_role(op: OperationContext, request: DropRoleRequest) -> Reply:
    """RoleNotFound (31), BadValue (2) for a built-in role."""
    role = RoleName(request.name, op.database)
    change_accounts(op, lambda: _dropped(op, [_existing(op, role)], [role]))
    return {}


class DropAllRolesRequest(NamedTuple):
    command: Annotated[Value, Field("dropAllRolesFromDatabase", ONE)]


@command(
    "dropAllRolesFromDatabase",
    DropAllRolesRequest,
    access=on_database("dropRole"),
    help="Deletes all roles of a database, except the built-in ones.",
    writes=True,
)
def drop_all_roles(op: OperationContext, request: DropAllRolesRequest) -> Reply:
    """`{n: <how many>}`."""
    dropped: list[Record] = []

    def prepare() -> Changes:
        dropped[:] = [record for record in op.service.accounts.roles() if get_value(record[1], "db") == op.database]
        return _dropped(op, dropped, [RoleName(str(get_value(record[1], "role")), op.database) for record in dropped])

    change_accounts(op, prepare)
    return {"n": len(dropped)}


def _dropped(op: OperationContext, records: list[Record], roles: list[RoleName]) -> Changes:
    """Deletes roles, first from the users and roles that have them: nobody may keep a role that could be made again."""
    accounts = op.service.accounts
    gone = set_of(roles)
    deleted = {record[0] for record in records}
    stored: list[tuple[str, Record | None, bytes]] = []
    for collection, holders in ((USERS, accounts.users()), (ROLES, accounts.roles())):
        for record in holders:
            if collection == ROLES and record[0] in deleted:
                continue
            present = roles_in(record[1])
            if any(role in gone for role in present):
                stored.append((collection, record, with_fields(record[1], {"roles": roles_without(present, roles)})))
    return Changes(stored, [(ROLES, records)])


class RolesInfoRequest(NamedTuple):
    which: Annotated[Value, Field("rolesInfo", ONE)]
    show_privileges: Annotated[Value, Field("showPrivileges", ANY)] = False
    show_builtin: Annotated[bool, Field("showBuiltinRoles", STRICT_BOOL)] = False
    show_restrictions: Annotated[bool, Field("showAuthenticationRestrictions", STRICT_BOOL)] = False


def _roles_info_needs(op: OperationContext, request: RolesInfoRequest) -> list[Need]:
    """Users may see the roles that they have."""
    roles = named_roles(request.which, op.database)
    if roles is None:
        return database_needs(op.database, "viewRole")
    grants = op.grants()
    own = frozenset([] if grants is None else grants.all_roles)
    return [need for role in roles if role not in own for need in database_needs(role.database, "viewRole")]


@command(
    "rolesInfo", RolesInfoRequest, access=needing(_roles_info_needs), help="Describes roles, built-in ones as well."
)
def roles_info(op: OperationContext, request: RolesInfoRequest) -> Reply:
    """`{rolesInfo: 1 | "cashier" | {role, db} | [...]}`: `{roles: [{role, db, isBuiltin, roles, inheritedRoles}]}`.

    With `showPrivileges` also `privileges` and `inheritedPrivileges`. BadValue (2) for another form.
    """
    return op.compute(partial(_roles_info, op, request))


def _roles_info(op: OperationContext, request: RolesInfoRequest) -> Reply:
    shown = named_roles(request.which, op.database)
    if shown is None:
        stored = [record for record in op.service.accounts.roles() if get_value(record[1], "db") == op.database]
        shown = sorted(RoleName(str(get_value(record[1], "role")), op.database) for record in stored)
        if request.show_builtin:
            shown += builtin_roles_of(op.database)
    show = request.show_privileges
    if show is not None and not isinstance(show, bool) and not is_number(show) and show != "asUserFragment":
        raise CommandError(ErrorCode.BadValue, "'showPrivileges' must be a boolean or the string 'asUserFragment'")
    if show == "asUserFragment":
        grants = op.service.accounts.grants_of_roles(shown)
        return {
            "userFragment": {
                "roles": as_documents(shown),
                "inheritedRoles": as_documents(grants.all_roles),
                "inheritedPrivileges": grants.privileges.documents(),
            }
        }
    with_privileges = is_true(show)
    described = DocumentsOfReply()
    for role in each_once(shown):
        if op.service.accounts.has_role(role):
            described.append(_described(op, role, with_privileges, request.show_restrictions))
    return {"roles": described.documents}


def named_roles(which: Value, database: str) -> list[RoleName] | None:
    """The roles that `rolesInfo` names; None for all of the database. BadValue (2)."""
    if isinstance(which, list):
        return role_names("rolesInfo.rolesInfo", which, database)
    if isinstance(which, (str, bytes)):
        return [role_name("rolesInfo.rolesInfo", which, database)]
    if isinstance(which, (int, float)) and which == 1:
        return None
    raise CommandError(ErrorCode.BadValue, "rolesInfo takes 1, a role, or an array of roles")


def _described(op: OperationContext, role: RoleName, with_privileges: bool, with_restrictions: bool) -> bytes:
    give_way(_WORK)
    accounts = op.service.accounts
    record = accounts.role_record(role)
    included = accounts.included_by(role)
    described: dict[str, Value] = {} if record is None else {"_id": role.id}
    inherited = accounts.grants_of_roles(included)
    described.update(
        {
            "role": role.name,
            "db": role.database,
            "isBuiltin": builtin_role(role) is not None,
            "roles": as_documents(included),
            "inheritedRoles": as_documents(inherited.all_roles),
        }
    )
    if with_privileges:
        own = accounts.own_privileges(role)
        described["privileges"] = own.documents()
        own.include(inherited.privileges)
        described["inheritedPrivileges"] = own.documents()
    if with_restrictions:
        given = None if record is None else get_value(record[1], "authenticationRestrictions")
        described["authenticationRestrictions"] = given if isinstance(given, list) else []
        described["inheritedAuthenticationRestrictions"] = described["authenticationRestrictions"]
    return encode(described)
