"""The stored users and roles, and what they may do.

    admin.system.users   {_id: "shop.ann", userId, user: "ann", db: "shop", credentials, customData,
                          roles: [{role, db}], authenticationRestrictions}
    admin.system.roles   {_id: "shop.cashier", role: "cashier", db: "shop", privileges: [{resource, actions}],
                          roles: [{role, db}], authenticationRestrictions}

They are ordinary documents: `mongodump` and `mongorestore` copy them. What a user may do is computed once and kept
until either collection changes, and `generation` with it.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final, TypeAlias

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection
from mongottl.document.build import encode
from mongottl.document.freeing import LongList, LongSet, list_for
from mongottl.document.interrupt import Undivided, begin_evaluation, end_evaluation, give_way
from mongottl.document.types import Value
from mongottl.document.walk import get_value
from mongottl.security.builtin_roles import add_privileges, builtin_role
from mongottl.security.names import RoleName, UserName
from mongottl.security.privileges import Need, PrivilegeSet, parse_privileges
from mongottl.security.scram import ITERATIONS, MECHANISMS, UnknownUsers
from mongottl.storage.stores import Record

DATABASE: Final = "admin"
USERS: Final = "system.users"
ROLES: Final = "system.roles"

# Clients choose the names of collections, so what is kept of them is bounded.
_MAX_DECISIONS: Final = 10_000

# How often a user's rights are computed while others change users or roles, before nobody may do so meanwhile.
_MOST_OVERTAKEN: Final = 8
# What a range of addresses takes to be read, in the units of `give_way`.
_RANGE_WORK: Final = 8

# Changes when a user or role does: number and writes of each of the two collections, and how often all was forgotten.
Generation: TypeAlias = tuple[int, int, int, int, int]


class Grants:
    """What a user may do. all_roles: the roles granted directly, and all that these include."""

    def __init__(self, all_roles: list[RoleName], privileges: PrivilegeSet) -> None:
        self.all_roles = all_roles
        self.privileges = privileges
        self._decisions: dict[Need, bool] = {}
        self._allowed: dict[tuple[str, str, str], list[Need]] = {}

    def allowed(self, key: tuple[str, str, str]) -> list[Need] | None:
        """The needs of a command on a collection, if it has been allowed; key: command, database, collection."""
        return self._allowed.get(key)

    def allow(self, key: tuple[str, str, str], needs: list[Need]) -> None:
        """Keeps the decision that a command with these needs is allowed."""
        if len(self._allowed) >= _MAX_DECISIONS:
            self._allowed.clear()
        self._allowed[key] = needs

    def meets(self, need: Need) -> bool:
        """Whether an action is allowed. Decisions are kept, since an object holds only while no role changes."""
        met = self._decisions.get(need)
        if met is None:
            if len(self._decisions) >= _MAX_DECISIONS:
                self._decisions.clear()
            met = self.privileges.allows(need.resource, need.action)
            self._decisions[need] = met
        return met


class Login:
    """The user of a connection, from its login to its logout.

    user_id: the `userId` of the user's document; one that is dropped and made again is another user. digest: of the
    user's name, in the ids of its sessions.
    """

    def __init__(self, user: UserName, user_id: Value, mechanism: str) -> None:
        self.user = user
        self.digest: bytes = user.digest
        self.user_id = user_id
        self.mechanism = mechanism
        # What the user may do, as of `generation`.
        self.grants: Grants | None = None
        self.generation: Generation | None = None


class Accounts:
    """The users and roles of a server."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        # Iterations of the hashes of new passwords, by mechanism.
        self.iterations = dict(ITERATIONS)
        self.unknown_users = UnknownUsers(self.iterations)
        # Read in place of the document of a user who does not exist, so that a login takes as long as with one.
        credentials: dict[str, Value] = {name: self.unknown_users.credential("", name) for name in MECHANISMS}
        self._nobody = encode({"_id": "", "userId": None, "user": "", "db": "", "credentials": credentials})
        # Second passwords of users: credentials by mechanism, and the user whose rights a login with them has.
        self.second_credentials: dict[tuple[UserName, str], bytes] = {}
        self.second_users: dict[UserName, UserName] = {}
        # Users whom any database of a connection string admits (`authSource`), by their names.
        self.users_of_any_database: dict[str, UserName] = {}
        self._grants: dict[UserName, tuple[Value, Grants] | None] = {}
        self._grants_of: Generation = (0, 0, 0, 0, 0)
        self._invalidated = 0

    def generation(self) -> Generation:
        """A value that changes when any user or role is made, changed or dropped."""
        users, user_writes = self._catalog.version_of(DATABASE, USERS)
        roles, role_writes = self._catalog.version_of(DATABASE, ROLES)
        return users, user_writes, roles, role_writes, self._invalidated

    def any_user(self) -> bool:
        """Whether there is a user, so that the localhost exception has ended."""
        users = self._catalog.find(DATABASE, USERS)
        return isinstance(users, Collection) and users.store.count() > 0

    def user_record(self, user: UserName) -> Record | None:
        return self._catalog.record_by_id(DATABASE, USERS, user.id)

    def named(self, name: str, database: str) -> UserName:
        """The user who logs in by a name with a database, that of the connection string or its `authSource`."""
        return self.users_of_any_database.get(name) or UserName(name, database)

    def role_record(self, role: RoleName) -> Record | None:
        """The record of a role that users have made; None for a built-in one."""
        return self._catalog.record_by_id(DATABASE, ROLES, role.id)

    def has_role(self, role: RoleName) -> bool:
        return builtin_role(role) is not None or self.role_record(role) is not None

    def users(self) -> list[Record]:
        return self._catalog.all_records(DATABASE, USERS)

    def roles(self) -> list[Record]:
        return self._catalog.all_records(DATABASE, ROLES)

    def grants(self, login: Login) -> Grants | None:
        """What the user of a connection may do at present; None if the user was dropped since the login.

        Others run while it is computed, since roles may have very many privileges; if they change users or roles, it is
        computed once more.
        """
        for _ in range(_MOST_OVERTAKEN):
            generation = self.generation()
            if generation == login.generation:
                return login.grants
            found = self._grants_at(generation, login)
            if generation == self.generation():
                login.grants = found
                login.generation = generation
                return found
        with Undivided():
            login.generation = self.generation()
            login.grants = self._grants_at(login.generation, login)
            return login.grants

    def _grants_at(self, generation: Generation, login: Login) -> Grants | None:
        if generation != self._grants_of:
            self._grants.clear()
            self._grants_of = generation
        if login.user in self._grants:
            known = self._grants[login.user]
        else:
            known = self._computed_grants(login.user)
            if generation == self.generation():
                self._grants[login.user] = known
        return known[1] if known is not None and known[0] == login.user_id else None

    def _computed_grants(self, user: UserName) -> tuple[Value, Grants] | None:
        """The `userId` of a user, and what it may do; None if there is no such user."""
        begun = begin_evaluation()
        try:
            record = self.user_record(user)
            if record is None:
                return None
            return get_value(record[1], "userId"), self.grants_of_roles(roles_in(record[1]))
        finally:
            if begun:
                end_evaluation()

    def invalidate(self) -> None:
        """Forgets what users may do; it is computed again when it is needed."""
        self._grants.clear()
        self._invalidated += 1

    def grants_of_roles(self, roles: list[RoleName]) -> Grants:
        """What somebody with these roles may do. Roles that do not exist give nothing."""
        privileges = PrivilegeSet()
        all_roles = self.with_included(roles)
        for role in all_roles:
            privileges.include(self.own_privileges(role))
        return Grants(all_roles, privileges)

    def with_included(self, roles: Iterable[RoleName]) -> list[RoleName]:
        """The roles and all that they include, directly or by other roles."""
        seen: set[RoleName] = LongSet()
        found: list[RoleName] = LongList()
        waiting: list[RoleName] = LongList(roles)
        for role in waiting:  # which grows meanwhile
            give_way()
            if role not in seen and self.has_role(role):
                seen.add(role)
                found.append(role)
                waiting.extend(self.included_by(role))
        return found

    def included_by(self, role: RoleName) -> list[RoleName]:
        """The roles that a role includes directly; a built-in role includes none that `rolesInfo` shows."""
        if builtin_role(role) is not None:
            return []
        record = self.role_record(role)
        return [] if record is None else roles_in(record[1])

    def own_privileges(self, role: RoleName) -> PrivilegeSet:
        """The privileges of a role without those of the roles that it includes."""
        privileges = PrivilegeSet()
        if builtin_role(role) is not None:
            add_privileges(role, privileges)
            return privileges
        record = self.role_record(role)
        stored = None if record is None else get_value(record[1], "privileges")
        if isinstance(stored, list):
            for resource, actions in parse_privileges("privileges", stored):
                privileges.add(resource, actions)
        return privileges

    def credential(self, user: UserName, mechanism: str) -> bytes:
        """The stored credential of a user; one that fits no password if there is none."""
        substitute = self.unknown_users.credential(user.id, mechanism)
        record = self.user_record(user)
        credentials = get_value(self._nobody if record is None else record[1], "credentials")
        stored = get_value(credentials, mechanism) if isinstance(credentials, bytes) else None
        return stored if isinstance(stored, bytes) and record is not None else substitute

    def mechanisms(self, user: UserName) -> list[str] | None:
        """The mechanisms by which a user can log in; None if there is no such user."""
        record = self.user_record(user)
        credentials = get_value(self._nobody if record is None else record[1], "credentials")
        if not isinstance(credentials, bytes):
            return []
        found = [name for name in MECHANISMS if isinstance(get_value(credentials, name), bytes)]
        return None if record is None else found

    def admits(self, user: UserName, client: str, server: str) -> bool:
        """Whether the `authenticationRestrictions` of a user and of its roles allow a login between these addresses.

        client, server: "host:port".
        """
        record = self.user_record(user)
        if record is None:
            return False
        stored = [record[1]]
        for role in self.with_included(roles_in(record[1])):
            of_role = self.role_record(role)
            if of_role is not None:
                stored.append(of_role[1])
        return all(_restrictions_met(document, _host(client), _host(server)) for document in stored)


def roles_in(document: bytes) -> list[RoleName]:
    """The `roles` of a stored user or role."""
    roles = get_value(document, "roles")
    if not isinstance(roles, list):
        return []
    found: list[RoleName] = list_for(len(roles))
    for role in roles:
        give_way()
        if isinstance(role, bytes):
            found.append(RoleName(str(get_value(role, "role")), str(get_value(role, "db"))))
    return found


def _restrictions_met(document: bytes, client: str, server: str) -> bool:
    """Whether one of the document's restrictions allows the addresses, or it has none."""
    restrictions = get_value(document, "authenticationRestrictions")
    if not isinstance(restrictions, list) or not restrictions:
        return True
    return any(
        isinstance(restriction, bytes)
        and _among(client, get_value(restriction, "clientSource"))
        and _among(server, get_value(restriction, "serverAddress"))
        for restriction in restrictions
    )


def _among(host: str, ranges: Value) -> bool:
    """Whether an address lies in one of the ranges (`10.0.0.0/8`), or there are none."""
    if not isinstance(ranges, list):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for text in ranges:
        give_way(_RANGE_WORK)
        if address in ipaddress.ip_network(str(text), strict=False):
            return True
    return False


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
