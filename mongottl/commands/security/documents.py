"""Parsing what the commands of users and roles have in common, and storing their documents."""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mongottl.commands.access import check_still_first, database_needs
from mongottl.document.bson_field import check_known, missing_field, read_fields, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import Undivided, give_way
from mongottl.document.long_lists import each_once, set_of, with_more
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.writes import delete_batch, insert_document, update_record
from mongottl.security.accounts import DATABASE
from mongottl.security.names import RoleName, UserName
from mongottl.security.privileges import Need, Resource
from mongottl.storage.stores import Record

# What one of very many roles, or a range of addresses, takes, in the units of `give_way`.
_WORK: Final = 4
_RANGE_WORK: Final = 8
# How often a change is prepared while others change users or roles, before nobody may do so meanwhile.
_MOST_OVERTAKEN: Final = 8


class Changes(NamedTuple):
    """What a command changes. stored: the collection, the record that is replaced, if there is one, and the document.
    deleted: roles, or users, that are deleted after that."""

    stored: list[tuple[str, Record | None, bytes]]
    deleted: Sequence[tuple[str, list[Record]]] = ()


def change_accounts(op: OperationContext, prepare: Callable[[], Changes]) -> None:
    """Changes users and roles.

    prepare: reads users and roles, and computes the changes. Others run meanwhile, since there may be very many roles
    and privileges. If they have changed any user or role, here or on another server, it is called again. Raises its
    errors.
    """
    accounts = op.service.accounts
    for _ in range(_MOST_OVERTAKEN):
        generation = accounts.generation()
        try:
            changes = op.compute(prepare)
        except CommandError as error:
            if is_interruption(error) or generation == accounts.generation():
                raise
            continue
        try:
            with Undivided():
                if generation == accounts.generation():
                    _write(op, changes)
                    return
        except DuplicateKeyError:
            if op.service.engine.shared_nodes is None:
                raise
            # Another server has just made it, as `prepare` finds out.
    with Undivided():
        _write(op, prepare())


def _write(op: OperationContext, changes: Changes) -> None:
    for collection, present, document in changes.stored:
        store(op, collection, present, document)
    for collection, records in changes.deleted:
        delete(op, collection, records)


def role_names(field: str, given: list[Value], database: str) -> list[RoleName]:
    """The roles of an array: `"read"` is one of the command's own database, `{role, db}` of any.

    BadValue (2) for another form or an empty name.
    """
    names: list[RoleName] = list_for(len(given))
    names.extend(role_name(field, value, database) for value in given)
    return names


def some_roles(command: str, given: list[Value], database: str) -> list[RoleName]:
    """The array `roles` of a command that grants or revokes them. BadValue (2) if it is empty."""
    if not given:
        raise CommandError(ErrorCode.BadValue, f"{command} command requires a non-empty 'roles' array")
    return role_names(f"{command}.roles", given, database)


def role_name(field: str, value: Value, database: str) -> RoleName:
    """The role of `"read"` or `{role: "read", db: "shop"}`. BadValue (2)."""
    give_way(_WORK)
    if isinstance(value, str):
        name = RoleName(value, database)
    elif isinstance(value, bytes):
        given = read_fields(field, value)
        check_known(field, given, ["role", "db"])
        name = RoleName(_text(field, given, "role"), _text(field, given, "db"))
    else:
        raise CommandError(ErrorCode.BadValue, "Role names must be either strings or objects")
    if not name.name or not name.database:
        raise CommandError(ErrorCode.BadValue, "Role names must be non-empty")
    return name


def user_name(field: str, value: Value, database: str) -> UserName:
    """The user of `"ann"` or `{user: "ann", db: "shop"}`. BadValue (2) for another form."""
    give_way(_WORK)
    if isinstance(value, str):
        return UserName(value, database)
    if not isinstance(value, bytes):
        raise CommandError(ErrorCode.BadValue, "User names must be either strings or objects")
    given = read_fields(field, value)
    check_known(field, given, ["user", "db"])
    return UserName(_text(field, given, "user"), _text(field, given, "db"))


def _text(field: str, given: dict[str, Value], name: str) -> str:
    value = given.get(name, MISSING)
    if value is MISSING:
        raise missing_field(f"{field}.{name}")
    if not isinstance(value, str):
        raise wrong_type(f"{field}.{name}", value, "string")
    return value


def check_roles_exist(op: OperationContext, roles: list[RoleName]) -> None:
    """RoleNotFound (31) unless there are all these roles."""
    for role in roles:
        give_way(_WORK)
        if not op.service.accounts.has_role(role):
            raise role_not_found(role)


def role_not_found(role: RoleName) -> CommandError:
    return CommandError(ErrorCode.RoleNotFound, f"Could not find role: {role}")


def user_not_found(user: UserName) -> CommandError:
    return CommandError(ErrorCode.UserNotFound, f"User '{user}' not found")


def roles_with(roles: list[RoleName], more: list[RoleName]) -> list[Value]:
    """Roles and others that are granted, as they are stored."""
    return as_documents(with_more(roles, more))


def roles_without(roles: list[RoleName], revoked: list[RoleName]) -> list[Value]:
    """What is left of roles, as they are stored, when others have been revoked."""
    gone = set_of(revoked)
    left: list[RoleName] = list_for(len(roles))
    for role in roles:
        give_way()
        if role not in gone:
            left.append(role)
    return as_documents(left)


def as_documents(roles: list[RoleName]) -> list[Value]:
    """Roles as they are stored and shown; each once."""
    documents: list[Value] = list_for(len(roles))
    for role in each_once(roles):
        give_way()
        documents.append(encode({"role": role.name, "db": role.database}))
    return documents


def parse_restrictions(given: list[Value]) -> list[Value]:
    """`authenticationRestrictions` in the form in which they are stored.

    `[{clientSource: "10.0.0.0/8" | [...], serverAddress: "10.0.0.1" | [...]}]`. UnsupportedFormat (12) for a text that
    is no address or range, TypeMismatch (14), 40415.
    """
    parsed: list[Value] = []
    for index, restriction in enumerate(given):
        path = f"authenticationRestrictions.{index}"
        if not isinstance(restriction, bytes):
            raise wrong_type(path, restriction, "object")
        values = read_fields(path, restriction)
        check_known(path, values, ["clientSource", "serverAddress"])
        stored: dict[str, Value] = {}
        for name, value in values.items():
            ranges = value if isinstance(value, list) else [value]
            for text in ranges:
                if not isinstance(text, str):
                    raise wrong_type(f"{path}.{name}", text, "string")
                _check_range(text)
            stored[name] = ranges
        parsed.append(encode(stored))
    return parsed


def _check_range(text: str) -> None:
    give_way(_RANGE_WORK)
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise CommandError(ErrorCode.UnsupportedFormat, f"'{text}' is no IP address or CIDR range") from None


def roles_needs(roles: list[RoleName], action: str) -> list[Need]:
    """Granting and revoking a role needs an action on the role's database."""
    return _needs_on(each_once(role.database for role in roles), action)


def privileges_needs(privileges: list[tuple[Resource, list[str]]], action: str) -> list[Need]:
    """Granting and revoking a privilege needs an action on the database of its resource; on `admin` for all others."""
    return _needs_on(each_once(resource.database or "admin" for resource, _ in privileges), action)


def _needs_on(databases: list[str], action: str) -> list[Need]:
    needs: list[Need] = list_for(len(databases))
    for database in databases:
        give_way()
        needs += database_needs(database, action)
    return needs


def store(op: OperationContext, collection: str, present: Record | None, document: bytes) -> None:
    """Inserts the document of a user or role, or replaces the present one. Unauthorized (13) if the command was allowed
    only because there was no user, and there is one by now.

    Called in the undivided block in which the present one was read.
    """
    check_still_first(op)
    stored = op.catalog.lookup(DATABASE, collection)
    if stored is None:
        stored = op.catalog.create_collection(DATABASE, collection)
    if present is None:
        insert_document(op, stored, document)
    else:
        update_record(op, stored, present, document, by_server=True)


def delete(op: OperationContext, collection: str, records: list[Record]) -> None:
    """Deletes users or roles. Called in the undivided block in which they were read."""
    stored = op.catalog.lookup(DATABASE, collection)
    if stored is not None and records:
        delete_batch(op, stored, records)


def with_fields(document: bytes, changed: dict[str, Value]) -> bytes:
    """The document with these fields replaced in place or appended; MISSING removes one."""
    left = dict(changed)
    result: list[tuple[str, Value]] = []
    for name, value in fields(document):
        new = left.pop(name) if name in left else value
        if new is not MISSING:
            result.append((name, new))
    result.extend((name, value) for name, value in left.items() if value is not MISSING)
    return encode_fields(result)
