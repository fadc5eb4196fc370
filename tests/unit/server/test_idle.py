"""Idle cursors are closed and idle sessions end after a while, with everything that belongs to them."""

import io
from typing import Any

import bson
import pytest
from bson import Int64

from mongottl.clock import Clock, VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.service.service import ServiceContext
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.opening import open_engine
from mongottl.wire.messages import OpMsg
from tests.steps import run_to_end

HALF_AN_HOUR_S = 30 * 60
LSID = {"id": bson.Binary(b"a" * 16, 4)}
OTHER = {"id": bson.Binary(b"b" * 16, 4)}


class HandMoved(Clock):
    """Elapsed time that passes when a test says so."""

    def __init__(self) -> None:
        self.elapsed_s = 1000.0

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_s(self) -> float:
        return self.elapsed_s


class Setup:
    def __init__(self) -> None:
        self.elapsed = HandMoved()
        self.clock = VirtualClock(self.elapsed)
        self.service = ServiceContext(ServerConfig(), self.clock, open_engine("memory:"))
        self.service.stacks.times.together_s = 0.0
        self.dispatcher = Dispatcher(self.service, Log(stream=io.StringIO()))
        self.client = ClientInfo(1, "127.0.0.1:1", "127.0.0.1:2")
        self.run({"insert": "c", "documents": [{"_id": n, "text": str(n)} for n in range(1000)]})

    def start(self, command: dict[str, Any]) -> bytes | Steps[bytes]:
        message = OpMsg(1, 0, 0, bson.encode({**command, "$db": "test"}), [])
        return self.dispatcher.handle(message, self.client)

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        outcome = self.start(command)
        return bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome))

    def pass_time(self, seconds: float) -> None:
        """Lets elapsed time pass, and then does what the server's janitor does every minute."""
        self.elapsed.elapsed_s += seconds
        self.service.close_idle()


@pytest.fixture
def setup() -> Setup:
    return Setup()


def open_cursor(setup: Setup, **options: Any) -> int:
    cursor_id: int = setup.run({"find": "c", "batchSize": 1, "noCursorTimeout": True, **options})["cursor"]["id"]
    assert cursor_id != 0
    return cursor_id


def is_open(setup: Setup, cursor_id: int) -> bool:
    return any(cursor.cursor_id == cursor_id for cursor in setup.service.cursors.all())


def test_cursor_without_timeout_ends_with_its_session(setup: Setup) -> None:
    of_session = open_cursor(setup, lsid=LSID)
    of_nobody = open_cursor(setup)
    setup.pass_time(HALF_AN_HOUR_S - 1)
    assert is_open(setup, of_session)
    setup.pass_time(2)
    assert not is_open(setup, of_session)
    assert is_open(setup, of_nobody)


def test_cursor_without_timeout_lives_as_long_as_its_session_is_refreshed(setup: Setup) -> None:
    cursor_id = open_cursor(setup, lsid=LSID)
    for _ in range(3):
        setup.pass_time(HALF_AN_HOUR_S - 1)
        setup.run({"refreshSessions": [LSID]})
    assert is_open(setup, cursor_id)
    setup.run({"endSessions": [LSID]})
    assert not is_open(setup, cursor_id)


def test_cursor_with_timeout(setup: Setup) -> None:
    cursor_id = open_cursor(setup, lsid=LSID, noCursorTimeout=False)
    setup.pass_time(599)
    assert is_open(setup, cursor_id)
    setup.pass_time(2)
    assert not is_open(setup, cursor_id)
    assert setup.service.cursors.timed_out_total == 1


def test_cursor_of_a_session_that_had_to_give_way(setup: Setup) -> None:
    cursor_id = open_cursor(setup, lsid=LSID)
    setup.service.sessions.max_sessions = 3
    for n in range(4):
        setup.service.sessions.touch(b"%d" % n, 0, setup.elapsed.elapsed_s)
    setup.pass_time(0)
    assert not is_open(setup, cursor_id)


@pytest.mark.parametrize("command", ["endSessions", "killSessions"])
def test_a_cursor_that_opens_after_its_session_was_ended(setup: Setup, command: str) -> None:
    steps = setup.start({"find": "c", "filter": {"text": {"$gt": ""}}, "batchSize": 990, "lsid": LSID})
    assert not isinstance(steps, bytes)
    next(steps)
    setup.run({command: [LSID]})
    reply = bson.decode(run_to_end(steps))
    setup.pass_time(1)
    assert (reply.get("code"), len(setup.service.cursors.all())) == (11601 if command == "killSessions" else None, 0)


@pytest.mark.parametrize("sessions", [[LSID], []])
def test_operations_of_killed_sessions(setup: Setup, sessions: list[Any]) -> None:
    update = {"update": "c", "updates": [{"q": {"text": {"$gt": ""}}, "u": {"$set": {"n": 1}}, "multi": True}]}
    killed = setup.start({**update, "lsid": LSID})
    of_nobody = setup.start(update)
    assert not isinstance(killed, bytes)
    assert not isinstance(of_nobody, bytes)
    next(killed)
    next(of_nobody)
    assert setup.run({"killSessions": sessions, "lsid": OTHER})["ok"] == 1
    assert bson.decode(run_to_end(killed))["code"] == 11601
    assert bson.decode(run_to_end(of_nobody))["n"] == 1000


RETRIED = {
    "update": "c",
    "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}],
    "lsid": LSID,
    "txnNumber": Int64(1),
}


def counted(setup: Setup) -> list[int]:
    """What updates have counted in the documents that they found."""
    documents = setup.run({"find": "c", "filter": {"n": {"$exists": True}}})["cursor"]["firstBatch"]
    return [document["n"] for document in documents]


@pytest.mark.parametrize("hours", [1, -1])
def test_a_moved_clock_forgets_no_session(setup: Setup, hours: int) -> None:
    setup.run(RETRIED)
    setup.clock.advance(3600 * hours)
    setup.pass_time(1)
    assert setup.run(RETRIED)["nModified"] == 1
    assert counted(setup) == [1]


def test_an_operation_under_way_keeps_its_session(setup: Setup) -> None:
    """A write may take longer than sessions last, and its retry comes when it has ended."""
    long = {**RETRIED, "updates": [{"q": {"text": "999"}, "u": {"$inc": {"n": 1}}}]}
    steps = setup.start(long)
    assert not isinstance(steps, bytes)
    next(steps)
    setup.pass_time(2 * HALF_AN_HOUR_S)
    setup.service.sessions.max_sessions = 3
    for n in range(4):
        setup.service.sessions.touch(b"%d" % n, 0, setup.elapsed.elapsed_s)
    reply = bson.decode(run_to_end(steps))
    assert reply["n"] == 1
    setup.pass_time(HALF_AN_HOUR_S - 1)
    assert setup.run(long)["retriedStmtIds"] == [0]
    assert counted(setup) == [1]
    setup.pass_time(HALF_AN_HOUR_S + 1)
    assert len(setup.service.sessions) == 0


@pytest.mark.parametrize("command", [{"endSessions": [LSID]}, {"killSessions": []}])
def test_a_retry_after_its_session_was_ended(setup: Setup, command: dict[str, Any]) -> None:
    setup.run(RETRIED)
    setup.run(command)
    assert setup.service.sessions.all() == []
    assert setup.run(RETRIED)["nModified"] == 1
    assert counted(setup) == [1]
    setup.pass_time(HALF_AN_HOUR_S + 1)
    assert len(setup.service.sessions) == 0


def test_a_retry_that_waits_for_the_first_attempt_is_killed_with_its_session(setup: Setup) -> None:
    first = setup.start({**RETRIED, "updates": [{"q": {"text": "999"}, "u": {"$inc": {"n": 1}}}]})
    assert not isinstance(first, bytes)
    next(first)
    again = setup.start(RETRIED)
    assert not isinstance(again, bytes)
    next(again)
    (session,) = setup.service.sessions.all()
    assert session.running == 2
    setup.run({"killSessions": [LSID]})
    assert bson.decode(run_to_end(again))["code"] == 11601
    assert bson.decode(run_to_end(first))["code"] == 11601
    assert session.running == 0


def test_a_retry_while_the_first_attempt_outlives_its_session(setup: Setup) -> None:
    long = {**RETRIED, "updates": [{"q": {"text": "999"}, "u": {"$inc": {"n": 1}}}]}
    first = setup.start(long)
    assert not isinstance(first, bytes)
    next(first)
    setup.run({"endSessions": [LSID]})
    again = setup.start(long)
    assert not isinstance(again, bytes)
    next(again)
    assert bson.decode(run_to_end(first))["n"] == 1
    assert bson.decode(run_to_end(again))["retriedStmtIds"] == [0]
    assert counted(setup) == [1]
