"""Session commands: which sessions they mean, what they kill, and what they refuse."""

from contextlib import closing
from typing import Any

import pymongo
import pytest
from bson import Binary, Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from mongottl.commands.admin.session import ENDED_AT_ONCE
from tests.drivers.protocol.test_protocol import Raw
from tests.drivers.refusals import refusal
from tests.drivers.wire_client import WireClient

Documents = dict[str, Any]
Client = pymongo.MongoClient[Documents]
RANDOM = {"id": Binary(b"\x01" * 16, 4)}
USER = {"user": "ann", "db": "admin"}


@pytest.fixture
def collection(database: Database[Documents]) -> Any:
    database.c.insert_many([{"_id": n} for n in range(10)])
    return database.c


def is_killed(collection: Any, client: Client, command: Documents, name: str) -> bool:
    """Whether a session command ends a session with an open cursor. command: `name`'s argument made from its lsid."""
    with client.start_session() as session:
        cursor = collection.find(batch_size=2, session=session)
        next(cursor)
        lsid = session.session_id
        argument = command(lsid) if callable(command) else command
        client.admin.command(name, argument)
        try:
            return len(list(cursor)) != 9
        except OperationFailure as error:
            assert error.code == 43
            return True


@pytest.mark.parametrize(
    ("name", "argument", "kills"),
    [
        ("killSessions", [], True),
        ("killSessions", lambda lsid: [None, {"id": lsid["id"]}], True),
        ("killSessions", [RANDOM, RANDOM], False),
        ("killSessions", [None], False),
        ("endSessions", lambda lsid: [lsid], True),
        ("endSessions", [RANDOM], False),
        ("killAllSessions", [], True),
        ("killAllSessions", [{"user": "", "db": ""}], True),
        ("killAllSessions", [USER, USER], False),
        ("killAllSessionsByPattern", [], True),
        ("killAllSessionsByPattern", lambda lsid: [{"uid": Binary(bytes(32))}, {"lsid": lsid}], True),
        ("killAllSessionsByPattern", lambda lsid: [{"lsid": {**lsid, "uid": Binary(bytes(32))}}], False),
        ("killAllSessionsByPattern", [{"users": [{"user": "", "db": ""}]}], True),
        ("killAllSessionsByPattern", [{"users": [USER]}, {"uid": Binary(bytes(32))}], False),
    ],
)
def test_kill_sessions_ends_the_named_sessions_alone(
    collection: Any, client: Client, name: str, argument: Any, kills: bool
) -> None:
    assert is_killed(collection, client, argument, name) is kills


@pytest.mark.parametrize("name", ["endSessions", "refreshSessions", "killSessions"])
@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (1, 14),
        ([1], 14),
        ([{}], 40414),
        ([{"id": "x"}], 14),
        ([{"id": Binary(bytes(16), 0)}], 14),
        ([{"id": Binary(bytes(15), 4)}], 14),
        ([{**RANDOM, "uid": "x"}], 14),
        ([{**RANDOM, "uid": Binary(bytes(31))}], 14),
        ([{**RANDOM, "x": 1}], 40415),
    ],
)
def test_wrong_session_ids(database: Database[Documents], name: str, argument: Any, code: int) -> None:
    assert refusal(database, {name: argument}) == code


@pytest.mark.parametrize(
    ("name", "argument", "code"),
    [
        ("killAllSessions", [1], 14),
        ("killAllSessions", [{"user": "ann"}], 40414),
        ("killAllSessions", [{"user": None, "db": "x"}], 40414),
        ("killAllSessions", [{"user": 1, "db": "x"}], 14),
        ("killAllSessions", [{**USER, "x": 1}], 40415),
        ("killAllSessionsByPattern", [1], 14),
        ("killAllSessionsByPattern", [{"x": 1}], 40415),
        ("killAllSessionsByPattern", [{"lsid": {}}], 40414),
        ("killAllSessionsByPattern", [{"uid": 1}], 14),
        ("killAllSessionsByPattern", [{"users": 1}], 14),
    ],
)
def test_wrong_users_and_patterns(database: Database[Documents], name: str, argument: Any, code: int) -> None:
    assert refusal(database, {name: argument}) == code


@pytest.mark.parametrize(
    ("lsid", "code"),
    [({"id": 1}, 14), ({}, 40414), ({**RANDOM, "x": 1}, 40415), ({**RANDOM, "txnNumber": Int64(1)}, 72)],
)
def test_wrong_lsid_of_a_command(server: mongottl.RunningServer, lsid: Documents, code: int) -> None:
    raw = Raw(server.port)
    assert raw.run({"ping": 1, "lsid": lsid})["code"] == code
    raw.socket.close()


def test_sessions_are_listed_by_user(database: Database[Documents], client: Client) -> None:
    system = client.config["system.sessions"]
    with client.start_session() as session:
        database.c.find_one(session=session)

        def listed(options: Documents) -> bool:
            found = [entry["_id"] for entry in system.aggregate([{"$listSessions": options}])]
            assert all(set(lsid) == {"id", "uid"} and len(lsid["uid"]) == 32 for lsid in found)
            return session.session_id["id"] in [lsid["id"] for lsid in found]

        assert listed({})
        assert listed({"allUsers": True})
        assert listed({"users": [{"user": "", "db": ""}]})
        assert not listed({"users": [USER]})


@pytest.mark.parametrize("name", ["endSessions", "killSessions", "killAllSessions"])
def test_many_sessions_are_ended_in_steps(name: str) -> None:
    """Among them the one of the command itself."""
    with mongottl.start_server() as server, pymongo.MongoClient[Documents](server.uri) as client:
        client.shop.c.insert_many([{"_id": number} for number in range(10)])
        lsids = [{"id": Binary(number.to_bytes(16, "big"), 4)} for number in range(2 * ENDED_AT_ONCE + 10)]
        with closing(WireClient(server.uri)) as wire:
            for lsid in lsids:
                assert wire.command({"find": "c", "batchSize": 2, "lsid": lsid}, "shop")["ok"] == 1
            argument: list[Any] = [] if name == "killAllSessions" else lsids
            assert wire.command({name: argument, "lsid": lsids[5]}, "admin")["ok"] == 1
            status = wire.command({"serverStatus": 1}, "admin")
        assert status["metrics"]["cursor"]["open"]["total"] == 0
