"""What another client does while a command waits for an engine: at each of its calls, before the answer and after.

The engine of these tests is left at every call (`tests.suspending`). Each pair is run as often as the first command is
left, and the second one runs each time at another of these places.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.running.stack import Steps
from mongottl.exec.write.expiry import reap_due
from mongottl.security.accounts import Login
from mongottl.security.names import UserName
from mongottl.security.privileges import Need, collection_resource
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.running import Document, Running
from tests.steps import run_to_end, steps_of
from tests.suspending import SuspendingEngine

SIZE: Final = 6
GONE: Final = frozenset({ErrorCode.QueryPlanKilled, ErrorCode.NamespaceNotFound})


class Waiting(Running):
    """A service whose operations are left at every call of the engine."""

    def __init__(self, *before: Document, dialect: str = "mongodb") -> None:
        engine = SuspendingEngine(ContractEngine(open_engine("memory:")), random.Random(1), 0.0)
        super().__init__(engine, dialect)
        engine.suspension.stacks = self.service.stacks
        self.suspension = engine.suspension
        for command in before:
            self.run(command, command.get("$db", "test"))

    def run(self, command: Document, database: str = "test") -> Document:
        """A command that is not left at calls of the engine."""
        rate, self.suspension.rate = self.suspension.rate, 0.0
        try:
            return super().run({name: value for name, value in command.items() if name != "$db"}, database)
        finally:
            self.suspension.rate = rate

    def begun(self, command: Document) -> Document | Steps[Document]:
        """A command that has begun, on the database that it names."""
        sent = {name: value for name, value in command.items() if name != "$db"}
        return self.start(sent, command.get("$db", "test"))


class Pair(NamedTuple):
    """A command that waits for the engine, and what another client does meanwhile.

    check: called at the end with the server, the reply and the code of the error, 0 for none. codes: of the errors with
    which the command may be answered. before: commands that make what they use.
    """

    command: Document
    other: Document | Callable[[Waiting], object]
    check: Callable[[Waiting, Document, int], bool]
    codes: frozenset[int] = frozenset()
    before: tuple[Document, ...] = ()
    other_codes: frozenset[int] = frozenset()


def documents(**common: Any) -> list[Document]:
    return [{"_id": number, "u": number, **common} for number in range(SIZE)]


FILLED: Final[tuple[Document, ...]] = ({"insert": "c", "documents": documents()},)
INDEXED: Final[tuple[Document, ...]] = (
    *FILLED,
    {"createIndexes": "c", "indexes": [{"key": {"u": 1}, "name": "u_1", "unique": True}]},
)
EXPIRING: Final[tuple[Document, ...]] = (
    {"createIndexes": "c", "indexes": [{"key": {"_ts": 1}, "name": "_ts_1", "expireAfterSeconds": 10}]},
    *FILLED,
)
SEVERAL: Final = tuple(
    {**command, next(iter(command)): name} for name in ("c", "d") for command in (*EXPIRING, INDEXED[-1])
)
MEASURING: Final[dict[str, Document]] = {
    "dbHash": {"dbHash": 1},
    "dbStats": {"dbStats": 1},
    "listDatabases": {"listDatabases": 1, "$db": "admin"},
    "serverStatus": {"serverStatus": 1, "$db": "admin"},
}
DROPS: Final[dict[str, Document]] = {
    "a drop of a collection": {"drop": "d"},
    "a drop of an index": {"dropIndexes": "d", "index": "u_1"},
}
ALL: Final = {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": True}]}
BUILD: Final = {"createIndexes": "c", "indexes": [{"key": {"n": 1, "u": 1}, "name": "built"}]}
BUILD_CODES: Final = GONE | {ErrorCode.IndexBuildAborted}


def is_valid(running: Waiting, reply: Document, code: int) -> bool:
    found = (
        running.run({"validate": "c", "full": True}) if running.service.catalog.stored_collection("test", "c") else None
    )
    return found is None or (found["valid"] and not found["errors"])


def has(*ids: int) -> Callable[[Waiting, Document, int], bool]:
    return lambda running, reply, code: is_valid(running, reply, code) and running.ids() == list(ids)


def is_answered(running: Waiting, reply: Document, code: int) -> bool:
    return code == 0


def is_whole_or_failed(running: Waiting, reply: Document, code: int) -> bool:
    """A read has all, or nothing, if the collection was dropped before it looked for it; or it has failed."""
    return bool(code) or len(reply["cursor"]["firstBatch"]) in (0, SIZE)


def expire(running: Waiting) -> None:
    running.advance(20)


def purge(running: Waiting) -> None:
    running.reap()


def turn_off(running: Waiting) -> None:
    running.run({"dropIndexes": "c", "index": "_ts_1"})


CARTS: Final = {"db": "test", "collection": "carts"}


def actions_of_role(running: Waiting) -> list[str]:
    privileges = running.run({"rolesInfo": "r", "showPrivileges": True})["roles"][0]["privileges"]
    return [action for privilege in privileges for action in privilege["actions"]]


def included_roles(running: Waiting, role: str) -> int:
    return len(running.run({"rolesInfo": role})["roles"][0]["roles"])


PAIRS: Final[dict[str, Pair]] = {
    "two inserts make the same collection": Pair(
        {"insert": "c", "documents": [{"_id": 1}]},
        {"insert": "c", "documents": [{"_id": 2}]},
        has(1, 2),
    ),
    "two inserts of several make the same collection": Pair(
        {"insert": "c", "documents": [{"_id": 1}, {"_id": 3}]},
        {"insert": "c", "documents": [{"_id": 2}]},
        has(1, 2, 3),
    ),
    "an upsert and an insert make the same collection": Pair(
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "upsert": True}]},
        {"insert": "c", "documents": [{"_id": 2}]},
        has(1, 2),
    ),
    "$merge and an insert make the same collection": Pair(
        {"aggregate": "d", "pipeline": [{"$merge": "c"}], "cursor": {}},
        {"insert": "c", "documents": [{"_id": 2}]},
        has(1, 2),
        before=({"insert": "d", "documents": [{"_id": 1}]},),
    ),
    "createIndexes and an insert make the same collection": Pair(
        BUILD, {"insert": "c", "documents": [{"_id": 2}]}, has(2)
    ),
    "create of what another makes": Pair(
        {"create": "c", "capped": True, "size": 4096},
        {"insert": "c", "documents": [{"_id": 2}]},
        lambda running, reply, code: is_valid(running, reply, code) and running.ids() in ([2], []),
        frozenset({ErrorCode.NamespaceExists}),
    ),
    "an insert into what is dropped": Pair(
        {"insert": "c", "documents": [{"_id": 100}, {"_id": 101}]},
        {"drop": "c"},
        lambda running, reply, code: reply["n"] == 2 and running.ids() in ([], [100, 101]),
        before=FILLED,
    ),
    "an insert of one into what is dropped": Pair(
        {"insert": "c", "documents": [{"_id": 100}]},
        {"drop": "c"},
        lambda running, reply, code: reply["n"] == 1 and running.ids() in ([], [100]),
        before=FILLED,
    ),
    "an update of what is dropped": Pair(ALL, {"drop": "c"}, has(), GONE, FILLED),
    "a delete of what is dropped": Pair(
        {"delete": "c", "deletes": [{"q": {}, "limit": 0}]}, {"drop": "c"}, has(), GONE, INDEXED
    ),
    "an update beside another": Pair(
        ALL,
        ALL,
        lambda running, reply, code: all(d["n"] == 2 for d in running.listed({"find": "c"})),
        before=INDEXED,
    ),
    "an update of one that is deleted": Pair(
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]},
        {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        has(0, 2, 3, 4, 5),
        before=INDEXED,
    ),
    "an update of what expires": Pair(
        ALL,
        expire,
        lambda running, reply, code: len(running.ids()) in (0, reply["n"]),
        before=EXPIRING,
    ),
    "a delete of what expires": Pair(
        {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
        expire,
        lambda running, reply, code: (
            running.service.metrics.documents["deleted"] == reply["n"] and reply["n"] in (0, SIZE)
        ),
        before=EXPIRING,
    ),
    "an insert beside a new validator": Pair(
        {"insert": "c", "documents": [{"_id": 100}, {"_id": 101}]},
        {"collMod": "c", "validator": {"u": {"$exists": True}}},
        lambda running, reply, code: running.run({"validate": "c"})["nNonCompliantDocuments"] == reply["n"] in (0, 2),
        frozenset({ErrorCode.DocumentValidationFailure}),
        FILLED,
    ),
    "a build of an index on what is deleted": Pair(
        BUILD, {"delete": "c", "deletes": [{"q": {"_id": {"$lt": 3}}, "limit": 0}]}, has(3, 4, 5), before=FILLED
    ),
    "a build of an index on what is updated": Pair(BUILD, ALL, has(*range(SIZE)), before=FILLED),
    "a build of an index on what is dropped": Pair(BUILD, {"drop": "c"}, is_valid, BUILD_CODES, FILLED),
    "two builds of an index": Pair(BUILD, BUILD, has(*range(SIZE)), before=FILLED),
    "a build of an index that is dropped": Pair(
        BUILD, {"dropIndexes": "c", "index": "*"}, has(*range(SIZE)), BUILD_CODES, FILLED
    ),
    "a conversion of an index that is dropped": Pair(
        {"collMod": "c", "index": {"name": "u_1", "unique": True}},
        {"dropIndexes": "c", "index": "*"},
        has(*range(SIZE)),
        BUILD_CODES | {ErrorCode.IndexNotFound},
        (
            *FILLED,
            {"createIndexes": "c", "indexes": [{"key": {"u": 1}, "name": "u_1"}]},
            {"collMod": "c", "index": {"name": "u_1", "prepareUnique": True}},
        ),
        frozenset({ErrorCode.BackgroundOperationInProgressForNamespace}),
    ),
    "two drops of an index": Pair(
        {"dropIndexes": "c", "index": "u_1"},
        {"dropIndexes": "c", "index": "u_1"},
        has(*range(SIZE)),
        frozenset({ErrorCode.IndexNotFound}),
        INDEXED,
        frozenset({ErrorCode.IndexNotFound}),
    ),
    "two drops of a collection": Pair({"drop": "c"}, {"drop": "c"}, has(), before=FILLED),
    "a drop of what is renamed": Pair(
        {"drop": "c"},
        {"renameCollection": "test.c", "to": "test.d", "$db": "admin"},
        lambda running, reply, code: len(running.ids()) + len(running.ids("d")) in (0, SIZE),
        before=FILLED,
        other_codes=frozenset({ErrorCode.NamespaceNotFound}),
    ),
    "a drop of a database beside an insert": Pair(
        {"dropDatabase": 1}, {"insert": "c", "documents": [{"_id": 100}]}, is_valid, before=FILLED
    ),
    "a copy of what is written to": Pair(
        {"convertToCapped": "c", "size": 100_000},
        {"insert": "c", "documents": [{"_id": 100}]},
        has(*range(SIZE), 100),
        before=FILLED,
    ),
    "a copy of what is dropped": Pair({"convertToCapped": "c", "size": 100_000}, {"drop": "c"}, has(), GONE, FILLED),
    "a copy of what expires": Pair(
        {"convertToCapped": "c", "size": 100_000},
        expire,
        lambda running, reply, code: running.ids() in ([], list(range(SIZE))),
        before=EXPIRING,
    ),
    "$out to what is dropped": Pair(
        {"aggregate": "d", "pipeline": [{"$out": "c"}], "cursor": {}},
        {"drop": "c"},
        lambda running, reply, code: is_valid(running, reply, code) and running.ids() in ([], [1]),
        frozenset({ErrorCode.CommandFailed}),
        (*INDEXED, {"insert": "d", "documents": [{"_id": 1}]}),
    ),
    "a read by keys that others change": Pair(
        {"find": "c", "filter": {"u": {"$in": [1, 2, 3]}}},
        {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"u": 200}}}]},
        lambda running, reply, code: all(document["u"] in (1, 2, 3) for document in reply["cursor"]["firstBatch"]),
        before=INDEXED,
    ),
    "a read of ranges beside an array": Pair(
        {"distinct": "c", "key": "u"},
        {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"u": [200, 201]}}}]},
        lambda running, reply, code: (
            [200, 201] not in reply["values"] and len(reply["values"]) in range(SIZE, SIZE + 3)
        ),
        before=INDEXED,
    ),
    "a read of what is dropped": Pair({"find": "c"}, {"drop": "c"}, is_whole_or_failed, GONE, FILLED),
    "a read of what is dropped, by ranges": Pair(
        {"find": "c", "filter": {"u": {"$gte": 0}}, "hint": "u_1"},
        {"drop": "c"},
        is_whole_or_failed,
        GONE | {ErrorCode.BadValue},
        INDEXED,
    ),
    "a read by an index that is dropped": Pair(
        {"find": "c", "filter": {"$or": [{"u": {"$lt": 3}}, {"u": {"$gte": 3}}]}, "sort": {"u": 1}},
        {"dropIndexes": "c", "index": "*"},
        is_whole_or_failed,
        GONE,
        INDEXED,
    ),
    **{
        f"{name} beside {change}": Pair(measuring, changing, is_answered, before=SEVERAL)
        for name, measuring in MEASURING.items()
        for change, changing in DROPS.items()
    },
    "a count beside a purge": Pair(
        {"count": "c"}, purge, lambda running, reply, code: reply["n"] == 0, before=(*EXPIRING, {"late": 20})
    ),
    "two users of one name": Pair(
        {"createUser": "u", "pwd": "p", "roles": [], "$db": "test"},
        {"createUser": "u", "pwd": "p", "roles": []},
        lambda running, reply, code: len(running.run({"usersInfo": "u"})["users"]) == 1,
        frozenset({51003}),
        other_codes=frozenset({51003}),
    ),
    "a role that is granted twice": Pair(
        {"grantRolesToUser": "u", "roles": ["read"]},
        {"grantRolesToUser": "u", "roles": ["dbAdmin"]},
        lambda running, reply, code: len(running.run({"usersInfo": "u"})["users"][0]["roles"]) == 2,
        before=({"createUser": "u", "pwd": "p", "roles": []},),
    ),
    "privileges that are granted twice": Pair(
        {"grantPrivilegesToRole": "r", "privileges": [{"resource": CARTS, "actions": ["find"]}]},
        {"grantPrivilegesToRole": "r", "privileges": [{"resource": CARTS, "actions": ["insert"]}]},
        lambda running, reply, code: actions_of_role(running) == ["find", "insert"],
        before=({"createRole": "r", "privileges": [], "roles": []},),
    ),
    "two roles that come to include each other": Pair(
        {"grantRolesToRole": "r", "roles": ["s"]},
        {"grantRolesToRole": "s", "roles": ["r"]},
        lambda running, reply, code: included_roles(running, "r") + included_roles(running, "s") == 1,
        frozenset({ErrorCode.InvalidRoleModification}),
        before=(
            {"createRole": "r", "privileges": [], "roles": []},
            {"createRole": "s", "privileges": [], "roles": []},
        ),
        other_codes=frozenset({ErrorCode.InvalidRoleModification}),
    ),
    "a role that is granted while it is dropped": Pair(
        {"grantRolesToUser": "u", "roles": ["r"]},
        {"dropRole": "r"},
        lambda running, reply, code: not running.run({"usersInfo": "u"})["users"][0]["roles"],
        frozenset({ErrorCode.RoleNotFound}),
        before=(
            {"createRole": "r", "privileges": [], "roles": []},
            {"createUser": "u", "pwd": "p", "roles": []},
        ),
    ),
    "a validator and its level": Pair(
        {"collMod": "c", "validator": {"n": 1}},
        {"collMod": "c", "validationLevel": "moderate"},
        lambda running, reply, code: (
            running.collection().options.validator is not None
            and running.collection().options.validation_level == "moderate"
            and running.collection().validator is not None
        ),
        before=FILLED,
    ),
    "two parameters of the cluster": Pair(
        {"setClusterParameter": {"defaultMaxTimeMS": {"readOperations": 5000}}, "$db": "admin"},
        {
            "setClusterParameter": {"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": 60}}},
            "$db": "admin",
        },
        lambda running, reply, code: set_parameters(running) == {"defaultMaxTimeMS", "changeStreamOptions"},
    ),
}


def set_parameters(running: Waiting) -> set[str]:
    """The names of the parameters that are stored."""
    running.service.cluster_parameters.reload()
    return set(running.service.cluster_parameters.set_at)


def prepared(pair: Pair) -> Waiting:
    running = Waiting()
    for command in pair.before:
        if "late" in command:
            running.advance(command["late"])
        else:
            running.run(command, command.get("$db", "test"))
    return running


class Meanwhile:
    """What the other client does. It is not left at calls of the engine, but it may wait for the first one."""

    def __init__(self, running: Waiting, pair: Pair) -> None:
        self.running = running
        self.codes = pair.other_codes
        self.other = pair.other
        self.steps: Steps[Document] | None = None
        self.has_begun = False

    def begin(self) -> None:
        self.has_begun = True
        if isinstance(self.other, dict):
            command = self.other
            self._go_on(lambda: self.running.begun(command))
        else:
            self.other(self.running)

    def go_on(self) -> bool:
        """Makes the next step, if it waits; whether it does."""
        steps = self.steps
        if steps is None:
            return False
        self._go_on(lambda: next(steps))
        return True

    def _go_on(self, step: Callable[[], object]) -> None:
        try:
            outcome = step()
            self.steps = outcome if isinstance(outcome, Steps) else self.steps
        except StopIteration:
            self.steps = None
        except CommandError as error:
            assert error.code in self.codes, error
            self.steps = None


def interleaved(pair: Pair, place: int) -> bool:
    """Runs a pair, the second command after so many steps of the first one and one more; False if that has fewer."""
    running = prepared(pair)
    others = Meanwhile(running, pair)
    reply: Document = {}
    code = 0
    running.suspension.rate = 1.0
    try:
        steps = steps_of(running.begun(pair.command))
        for _ in range(place):
            next(steps)
        while True:
            next(steps)
            running.suspension.rate = 0.0
            if not others.has_begun:
                others.begin()
            others.go_on()
            running.suspension.rate = 1.0
    except StopIteration as stop:
        reply = stop.value
    except CommandError as error:
        code = error.code
        assert code in pair.codes, f"after {place} steps: {error}"
    if not others.has_begun:
        return False
    running.suspension.rate = 0.0
    while others.go_on():
        pass
    codes = {error["code"] for error in reply.get("writeErrors", [])}
    assert codes <= pair.codes, f"after {place} steps: {reply}"
    assert pair.check(running, reply, code), f"after {place} steps: {reply or code}"
    return True


@pytest.mark.parametrize("name", PAIRS)
def test_operations_interleaved_with_those_of_another_client(name: str) -> None:
    place = 0
    while interleaved(PAIRS[name], place):
        place += 1


def test_a_purge_deletes_nothing_that_lives_again() -> None:
    """The clock is set back, or TTL is turned off, after the purge has found what is due."""
    for place in range(20):
        running = Waiting(*EXPIRING)
        running.advance(20)
        running.suspension.rate = 1.0
        steps = running.service.stacks.begin(partial(reap_due, running.service))
        assert isinstance(steps, Steps)
        try:
            for _ in range(place + 1):
                next(steps)
        except StopIteration:
            return
        before = len(running.collection().store.scan(0, 100)[0])
        turn_off(running)
        assert before in (0, SIZE)
        run_to_end(steps)
        assert len(running.ids()) == before


def test_revoked_roles_are_not_cached_by_a_concurrent_read() -> None:
    """The rights of a user are revoked while they are read for another operation of his."""
    for place in range(20):
        running = Waiting({"createUser": "u", "pwd": "p", "roles": ["readWrite"]})
        accounts = running.service.accounts
        user = UserName("u", "test")
        record = accounts.user_record(user)
        assert record is not None
        login = Login(user, get_value(record[1], "userId"), "SCRAM-SHA-256")
        need = Need(collection_resource("test", "c"), "insert")
        running.suspension.rate = 1.0
        outcome = running.service.stacks.begin(partial(accounts.grants, login))
        steps = steps_of(outcome)
        ended = False
        try:
            for _ in range(place + 1):
                next(steps)
        except StopIteration:
            ended = True
        running.run({"revokeRolesFromUser": "u", "roles": ["readWrite"]})
        running.suspension.rate = 0.0
        other = Login(user, login.user_id, login.mechanism)
        for who in (other, login):
            if who is login and not ended:
                run_to_end(steps)
            grants = accounts.grants(who)
            assert grants is not None and not grants.meets(need)
        grants = accounts.grants(Login(user, login.user_id, login.mechanism))
        assert grants is not None and not grants.meets(need)
        if ended:
            return
