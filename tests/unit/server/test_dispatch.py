"""From messages to replies: what becomes of errors, and which requests get several replies. No sockets."""

import io
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Binary, Int64

from mongottl.clock import VirtualClock
from mongottl.commands import COMMANDS
from mongottl.commands.registry import CommandFunction
from mongottl.config import ServerConfig
from mongottl.document.types import Value
from mongottl.errors import RETRYABLE_WRITE_CODES, CommandError, ProtocolError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Flush, Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.observation import Observation
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.server.message_body import MAX_BODY_BYTES
from mongottl.server.message_traits import has_more, may_abandon
from mongottl.storage.errors import DiskFull, EngineUnavailable
from mongottl.storage.opening import open_engine
from mongottl.wire.messages import OpMsg
from tests.replies import without_times
from tests.steps import run_to_end, steps_of


class Setup:
    """A dispatcher with everything below it, and a client."""

    def __init__(self) -> None:
        clock = VirtualClock()
        config = ServerConfig(enable_test_commands=True)
        self.engine = open_engine("sqlite:")
        self.service = ServiceContext(config, clock, self.engine)
        self.stream = io.StringIO()
        self.log = Log(stream=self.stream)
        self.dispatcher = Dispatcher(self.service, self.log)
        self.client = ClientInfo(1, "127.0.0.1:1", "127.0.0.1:2")

    def message(self, command: dict[str, Any]) -> OpMsg:
        body = bson.encode({**command, "$db": command.get("$db", "test")})
        return OpMsg(1, 0, 0, body, [], size_bytes=len(body))

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        outcome = self.dispatcher.handle(self.message(command), self.client)
        return without_times(bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome)))


def set_function(monkeypatch: pytest.MonkeyPatch, name: str, function: CommandFunction) -> None:
    """Lets a command call another function."""
    monkeypatch.setitem(COMMANDS._specs, name, replace(COMMANDS[name], function=function))


@pytest.fixture
def setup() -> Iterator[Setup]:
    made = Setup()
    yield made
    made.engine.close()


JOURNALED = {"writeConcern": {"j": True}}


def flushes(outcome: bytes | Steps[bytes]) -> int:
    """How many times a command waits for the disk."""
    if isinstance(outcome, bytes):
        return 0
    return sum(isinstance(step, Flush) for step in outcome)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ({"insert": "c", "documents": [{}], **JOURNALED}, 1),
        ({"create": "c", **JOURNALED}, 1),
        ({"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}, **JOURNALED}, 1),
        ({"aggregate": "c", "pipeline": [{"$match": {}}, {"$merge": "d"}], "cursor": {}, **JOURNALED}, 1),
        ({"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}, 0),
        ({"aggregate": "c", "pipeline": [{"$match": {}}], "cursor": {}, **JOURNALED}, 0),
        ({"aggregate": "c", "pipeline": [], "cursor": {}, **JOURNALED}, 0),
        ({"endSessions": [], **JOURNALED}, 0),
    ],
)
def test_journaled_writes_wait_for_the_disk(setup: Setup, command: dict[str, Any], expected: int) -> None:
    setup.run({"insert": "source", "documents": [{"_id": 1}]})
    assert flushes(setup.dispatcher.handle(setup.message(command), setup.client)) == expected


def test_new_objects_are_examined_after_some_hundreds_of_requests(setup: Setup) -> None:
    """Short ones, which are never left."""
    examined: list[int] = []
    metrics = setup.service.metrics
    setup.service.stacks.examine_new = lambda: examined.append(metrics.requests)
    for _ in range(600):
        setup.run({"ping": 1})
    assert len(examined) == 2
    assert examined[1] - examined[0] == 256


def test_default_write_concern_holds_for_aggregations_that_write(setup: Setup) -> None:
    default = {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1, "j": True}, "$db": "admin"}
    message = OpMsg(1, 0, 0, bson.encode(default), [])
    outcome = setup.dispatcher.handle(message, setup.client)
    assert bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome))["ok"] == 1.0
    for stage, expected in (({"$match": {}}, 0), ({"$out": "d"}, 1)):
        aggregate = setup.message({"aggregate": "c", "pipeline": [stage], "cursor": {}})
        assert flushes(setup.dispatcher.handle(aggregate, setup.client)) == expected


def profiled(setup: Setup, op: str) -> list[dict[str, Any]]:
    """What was profiled of the database `test`."""
    filter = {"find": "system.profile", "filter": {"op": op}, "batchSize": 1000}
    documents: list[dict[str, Any]] = setup.run(filter)["cursor"]["firstBatch"]
    return documents


@pytest.mark.parametrize(("level", "profiled_ids"), [(1, [1]), (2, [0, 1, 2])])
def test_each_profiled_statement_has_its_own_time(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, level: int, profiled_ids: list[int]
) -> None:
    """Profiling of slow operations takes the slow statement alone. The fourth is not executed: the third has failed."""
    now_s = [1.0]
    monkeypatch.setattr(setup.service.clock, "monotonic_s", lambda: now_s[0])
    setup.service.stacks.times.together_s = 0.0
    setup.service.stacks.times.left_after_s = 1000.0  # not in the middle of a statement, however slow the machine is
    setup.run({"profile": level, "slowms": 100})
    changes: list[dict[str, Any]] = [{"$set": {"n": 1}}, {"$set": {"n": 1}}, {"$inc": {"_id": "x"}}, {"$set": {"n": 1}}]
    updates = [{"q": {"_id": number}, "u": change, "upsert": True} for number, change in enumerate(changes)]
    pauses_s = [0.01, 0.5, 0.01, 7.0]  # after the first statement, in the second, after it, while its plan is summed up
    updating = steps_of(setup.dispatcher.handle(setup.message({"update": "c", "updates": updates}), setup.client))
    for pause_s in pauses_s:
        next(updating)
        now_s[0] += pause_s
    assert bson.decode(run_to_end(updating))["writeErrors"][0]["index"] == 2
    found = {entry["command"]["q"]["_id"]: entry["millis"] for entry in profiled(setup, "update")}
    expected = {0: 10, 1: 510, 2: 0}
    assert found == {number: pytest.approx(expected[number], abs=1) for number in profiled_ids}


def test_profiling_that_is_turned_off_ends_before_the_next_statement(setup: Setup) -> None:
    """Another client turns it off while a command's statements are profiled, between which others run."""
    setup.run({"profile": 2})
    setup.service.stacks.times.together_s = 0.0
    statements = [{"q": {"_id": number}, "u": {"$set": {"n": 1}}} for number in range(50)]
    updating = steps_of(setup.dispatcher.handle(setup.message({"update": "c", "updates": statements}), setup.client))
    while not profiled(setup, "update"):
        next(updating)
    before = len(profiled(setup, "update"))
    assert setup.run({"profile": 0})["was"] == 2
    assert bson.decode(run_to_end(updating))["n"] == 0
    assert len(profiled(setup, "update")) == before < 50
    assert setup.run({"drop": "system.profile"})["ok"] == 1.0


def test_writes_go_on_when_the_client_leaves(setup: Setup) -> None:
    for command, expected in (
        ({"find": "c"}, True),
        ({"aggregate": "c", "pipeline": [{"$match": {}}], "cursor": {}}, True),
        ({"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}, False),
        ({"aggregate": "c", "pipeline": [{"$out": "d"}], "explain": True}, True),
        ({"insert": "c", "documents": [{}]}, False),
        ({"nonsense": 1}, False),
    ):
        assert may_abandon(setup.message(command)) is expected


def test_writes_wait_for_the_last_attempts_of_a_copy(setup: Setup) -> None:
    """A collection that never stops changing becomes capped all the same, and others are served meanwhile."""
    setup.run({"insert": "c", "documents": [{"_id": n} for n in range(1000)]})
    copying = setup.dispatcher.handle(setup.message({"convertToCapped": "c", "size": 1_000_000}), setup.client)
    assert not isinstance(copying, bytes)
    waiting: list[Steps[bytes]] = []
    number = 1000
    while True:
        try:
            next(copying)
        except StopIteration as stop:
            assert bson.decode(stop.value)["ok"] == 1.0
            break
        assert setup.run({"ping": 1})["ok"] == 1.0
        assert setup.run({"count": "c"})["n"] >= 1000
        number += 1
        outcome = setup.dispatcher.handle(setup.message({"insert": "c", "documents": [{"_id": number}]}), setup.client)
        if not isinstance(outcome, bytes):
            assert isinstance(next(outcome), Wait)
            waiting.append(outcome)
    assert len(waiting) >= 3
    assert setup.service.exclusive == set()
    for outcome in waiting:
        assert bson.decode(run_to_end(outcome))["n"] == 1
    assert setup.run({"count": "c"})["n"] == number
    collection = setup.service.catalog.lookup("test", "c")
    assert collection is not None
    assert collection.options.capped


def test_a_write_that_waits_for_a_copy_can_be_ended(setup: Setup) -> None:
    setup.service.exclusive.add("test.c")
    insert = {"insert": "c", "documents": [{}], "maxTimeMS": 1000}
    outcome = setup.dispatcher.handle(setup.message(insert), setup.client)
    assert not isinstance(outcome, bytes)
    assert isinstance(next(outcome), Wait)
    [operation] = setup.service.operations.all()
    operation.op.kill()
    assert bson.decode(run_to_end(outcome))["code"] == 11601
    assert setup.run({"insert": "d", "documents": [{}]})["n"] == 1


def long_message(command: dict[str, Any], documents: list[bytes]) -> OpMsg:
    body = bson.encode({**command, "$db": command.get("$db", "test")})
    size = len(body) + sum(len(document) for document in documents)
    return OpMsg(1, 0, 0, body, [("documents", documents)] if documents else [], -1, size)


def pauses(setup: Setup, message: OpMsg) -> tuple[int, dict[str, Any]]:
    """How often others may run before the command begins to work, and its reply."""
    setup.service.stacks.times.together_s = 0.0
    outcome = steps_of(setup.dispatcher.handle(message, setup.client))
    before = 0
    while setup.service.metrics.operations["insert"] == 0:
        try:
            next(outcome)
        except StopIteration as stop:
            return before, bson.decode(stop.value)
        before += 1
    return before, bson.decode(run_to_end(outcome))


@pytest.mark.parametrize("size", [200, 500_000])
def test_long_messages_are_validated_in_steps(setup: Setup, size: int) -> None:
    documents = [bson.encode({"_id": n, "a": [1] * (size // 8)}) for n in range(4_000_000 // size)]
    before, reply = pauses(setup, long_message({"insert": "c"}, documents))
    assert reply["n"] == len(documents)
    assert before >= 40


def test_long_bodies_are_validated_in_steps(setup: Setup) -> None:
    body = {"insert": "c", "documents": [{"_id": n, "a": {"b": ["x" * 50] * 1000}} for n in range(30)]}
    before, reply = pauses(setup, long_message(body, []))
    assert reply["n"] == 30
    assert before >= 12


def test_errors_in_long_messages_are_answered(setup: Setup) -> None:
    good = [bson.encode({"a": "x" * 1000})] * 1000
    bad = bytearray(good[0])
    bad[4] = 0x70
    assert pauses(setup, long_message({"insert": "c"}, [*good, bytes(bad)]))[1]["code"] == 22
    deep: Any = []
    for _ in range(250):
        deep = [deep]
    large = {"insert": "c", "documents": [{"a": "x" * 300_000, "b": deep}]}
    assert pauses(setup, long_message(large, []))[1]["code"] == 15
    assert setup.run({"count": "c"})["n"] == 0


LSID = {"id": Binary(bytes(16), 4)}
RETRYABLE = {"lsid": LSID, "txnNumber": Int64(1)}
LABEL = ["RetryableWriteError"]


@pytest.mark.parametrize("code", sorted(RETRYABLE_WRITE_CODES))
@pytest.mark.parametrize("arguments", [{}, {"writeConcern": {"w": 2}}])
def test_errors_after_which_a_write_may_be_sent_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, code: int, arguments: dict[str, Any]
) -> None:
    def fails(op: OperationContext, request: tuple[Value, ...]) -> Any:
        raise CommandError(code, "no more")

    set_function(monkeypatch, "insert", fails)
    insert = {"insert": "c", "documents": [{"_id": 1}], **arguments}
    assert setup.run({**insert, **RETRYABLE})["errorLabels"] == LABEL
    assert "errorLabels" not in setup.run(insert)
    assert "errorLabels" not in setup.run({**insert, "lsid": LSID})


def test_other_errors_and_commands_have_no_label(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = {"insert": "c", "documents": [{"_id": 1}], **RETRYABLE}
    assert "errorLabels" not in setup.run({**insert, "documents": []})
    answer_with(monkeypatch, CommandError(11600, "no more"))
    assert "errorLabels" not in setup.run({"ping": 1, **RETRYABLE})


def test_a_write_that_the_server_interrupts_when_it_stops(setup: Setup) -> None:
    setup.run({"insert": "c", "documents": [{"n": n} for n in range(1000)]})
    setup.service.stopping = True
    reply = setup.run({"update": "c", "updates": [{"q": {"n": -1}, "u": {"$inc": {"n": 1}}}], **RETRYABLE})
    assert (reply["code"], reply["errorLabels"]) == (11600, LABEL)


def test_a_batch_that_was_interrupted_can_be_sent_again(setup: Setup) -> None:
    """The statements that were executed are remembered."""
    setup.run({"insert": "c", "documents": [{"_id": n, "n": n} for n in range(1000)]})
    statements = [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}, {"q": {"n": -1}, "u": {"$inc": {"n": 1}}}]
    outcome = setup.dispatcher.handle(setup.message({"update": "c", "updates": statements, **RETRYABLE}), setup.client)
    assert not isinstance(outcome, bytes)
    next(outcome)
    setup.service.stopping = True
    reply = bson.decode(run_to_end(outcome))
    assert (reply["code"], reply["errorLabels"]) == (11600, LABEL)
    setup.service.stopping = False
    reply = setup.run({"update": "c", "updates": statements, **RETRYABLE})
    assert (reply["n"], reply["retriedStmtIds"]) == (1, [0])
    assert setup.run({"find": "c", "filter": {"_id": 1}})["cursor"]["firstBatch"] == [{"_id": 1, "n": 2}]


@pytest.mark.parametrize(
    ("data", "arguments", "labels"),
    [
        ({"errorCode": 11600}, RETRYABLE, LABEL),
        ({"errorCode": 11600}, {}, None),
        ({"errorCode": 11600, "errorLabels": []}, RETRYABLE, None),
        ({"errorCode": 2}, RETRYABLE, None),
        ({"errorCode": 2, "errorLabels": ["Other"]}, RETRYABLE, ["Other"]),
        ({"writeConcernError": {"code": 91, "errmsg": "x"}}, RETRYABLE, LABEL),
        ({"writeConcernError": {"code": 91, "errmsg": "x"}}, {}, None),
        ({"writeConcernError": {"code": 91, "errmsg": "x"}, "errorLabels": []}, RETRYABLE, None),
        ({"writeConcernError": {"code": 100, "errmsg": "x"}}, RETRYABLE, None),
    ],
)
def test_labels_under_a_fail_point(
    setup: Setup, data: dict[str, Any], arguments: dict[str, Any], labels: list[str] | None
) -> None:
    given = bson.encode({"failCommands": ["insert"], **data})
    setup.service.fail_points.configure("failCommand", "alwaysOn", given)
    reply = setup.run({"insert": "c", "documents": [{}], **arguments})
    assert reply.get("errorLabels") == labels


def answer_with(monkeypatch: pytest.MonkeyPatch, outcome: object) -> None:
    """Lets `ping` raise or return something."""

    def function(op: OperationContext, request: tuple[Value, ...]) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    set_function(monkeypatch, "ping", function)


def answer_in_steps(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def function(op: OperationContext, request: tuple[Value, ...]) -> dict[str, Value]:
        op.give_way()
        raise error

    set_function(monkeypatch, "ping", function)


def test_command_error(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    error = CommandError(26, "nothing there", {"extra": 1}, ("Label",))
    expected = {
        "ok": 0.0,
        "errmsg": "nothing there",
        "code": 26,
        "codeName": "NamespaceNotFound",
        "extra": 1,
        "errorLabels": ["Label"],
    }
    answer_with(monkeypatch, error)
    assert setup.run({"ping": 1}) == expected
    answer_in_steps(monkeypatch, error)
    assert setup.run({"ping": 1}) == expected
    assert setup.service.metrics.asserts_user == 2
    assert setup.service.metrics.failed_commands["ping"] == 2
    assert setup.stream.getvalue() == ""


@pytest.mark.parametrize("error", [ValueError("oops"), RecursionError("too deep"), MemoryError(), OSError(28, "full")])
def test_anything_else_is_our_mistake(setup: Setup, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    for answer in (answer_with, answer_in_steps):
        answer(monkeypatch, error)
        reply = setup.run({"ping": 1})
        assert (reply["ok"], reply["code"], reply["codeName"]) == (0.0, 1, "InternalError")
        assert type(error).__name__ in reply["errmsg"]
    assert setup.service.metrics.asserts_internal == 2
    assert setup.log.internal_errors == 2
    assert "Traceback" in setup.stream.getvalue()


def test_failing_engine_is_no_mistake_of_ours(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, EngineUnavailable("disk full"))
    reply = setup.run({"ping": 1})
    assert (reply["code"], reply["errmsg"]) == (96, "storage engine: disk full")
    answer_with(monkeypatch, DiskFull("disk full"))
    reply = setup.run({"ping": 1})
    assert (reply["code"], reply["codeName"]) == (14031, "OutOfDiskSpace")
    assert setup.log.internal_errors == 0


def test_connection_is_closed_on_request(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, ProtocolError("close"))
    with pytest.raises(ProtocolError):
        setup.run({"ping": 1})


def test_reply_too_large(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, {"x": "y" * MAX_BODY_BYTES})
    assert setup.run({"ping": 1})["code"] == 10334
    answer_with(monkeypatch, {"x": "y" * (MAX_BODY_BYTES - 100)})
    assert setup.run({"ping": 1})["ok"] == 1.0


def test_request_too_large(setup: Setup) -> None:
    assert setup.run({"ping": 1, "comment": "y" * MAX_BODY_BYTES})["code"] == 10334


def hello(fields: dict[str, Any]) -> dict[str, Any]:
    return {"hello": 1, **fields}


OK = bson.encode({"ok": 1.0})
FAILED = bson.encode({"ok": 0.0, "cursor": {"id": Int64(5)}})
WAITING = {"topologyVersion": {"processId": bson.ObjectId(), "counter": Int64(0)}, "maxAwaitTimeMS": 10}


@pytest.mark.parametrize(
    ("command", "reply", "more"),
    [
        (hello(WAITING), OK, True),
        (hello(WAITING), FAILED, False),
        (hello({}), OK, False),
        ({"isMaster": 1, **WAITING}, OK, True),
        ({"ping": 1}, OK, False),
        ({"find": "c"}, bson.encode({"cursor": {"id": Int64(5)}, "ok": 1.0}), False),
        ({"getMore": Int64(5)}, bson.encode({"cursor": {"id": Int64(5)}, "ok": 1.0}), True),
        ({"getMore": Int64(5)}, bson.encode({"cursor": {"id": Int64(0)}, "ok": 1.0}), False),
        ({"getMore": Int64(5)}, FAILED, False),
    ],
)
def test_exhaust_get_more_has_more_replies_while_the_cursor_is_open(
    setup: Setup, command: dict[str, Any], reply: bytes, more: bool
) -> None:
    assert has_more(setup.message(command), reply, setup.service.features) is more


def test_only_reads_are_abandoned_when_the_client_leaves(setup: Setup) -> None:
    assert may_abandon(setup.message({"find": "c"}))
    assert not may_abandon(setup.message({"update": "c"}))
    assert not may_abandon(setup.message({"createIndexes": "c"}))


@pytest.mark.parametrize(
    "command",
    [
        {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]},
        {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "new": True},
        {"insert": "c", "documents": [{"_id": 2, "n": 1}]},
        {"delete": "c", "deletes": [{"q": {"n": 0}, "limit": 1}]},
    ],
    ids=lambda command: str(next(iter(command))),
)
def test_a_retry_while_the_first_attempt_runs(setup: Setup, command: dict[str, Any]) -> None:
    """It waits for the end of the first, has the same answer, and changes nothing."""
    setup.run({"insert": "c", "documents": [{"_id": 1, "n": 0}, {"_id": -1, "n": 0}]})
    write = {
        **command,
        "writeConcern": {"j": True},
        "lsid": {"id": Binary(b"x" * 16, 4)},
        "txnNumber": Int64(1),
    }
    first = setup.dispatcher.handle(setup.message(write), setup.client)
    assert not isinstance(first, bytes)
    next(first)  # waits for the disk
    second = setup.dispatcher.handle(setup.message(write), setup.client)
    assert not isinstance(second, bytes)
    assert isinstance(next(second), Wait)
    assert isinstance(next(second), Wait)
    reply = without_times(bson.decode(run_to_end(first)))
    again = without_times(bson.decode(run_to_end(second)))
    assert (again.pop("retriedStmtIds", None) or [again.pop("retriedStmtId")]) == [0]
    assert again == reply
    assert reply["ok"] == 1
    found = setup.run({"find": "c"})["cursor"]["firstBatch"]
    expected = {"update": (2, 1), "findAndModify": (2, 1), "insert": (3, 1), "delete": (1, 0)}[next(iter(command))]
    assert (len(found), sum(document["n"] for document in found)) == expected


COMMIT = {"lsid": LSID, "txnNumber": Int64(9), "autocommit": False}


@pytest.mark.parametrize("name", ["commitTransaction", "abortTransaction"])
@pytest.mark.parametrize(
    ("data", "labels"),
    [
        ({"errorCode": 91}, LABEL),
        ({"errorCode": 91, "errorLabels": []}, None),
        ({"errorCode": 91, "errorLabels": ["Other"]}, ["Other"]),
        ({"errorCode": 267}, ["TransientTransactionError"]),
        ({"errorCode": 51}, None),
        ({"writeConcernError": {"code": 91, "errmsg": "x"}}, LABEL),
        ({"writeConcernError": {"code": 91, "errmsg": "x"}, "errorLabels": []}, None),
        ({"writeConcernError": {"code": 64, "errmsg": "x"}}, None),
    ],
)
def test_labels_of_the_end_of_a_transaction(
    setup: Setup, name: str, data: dict[str, Any], labels: list[str] | None
) -> None:
    """A driver sends a commit or abort with the label RetryableWriteError again, also if its write concern failed."""
    assert setup.run({"find": "c", "startTransaction": True, **COMMIT})["ok"]
    given = bson.encode({"failCommands": [name], **data})
    setup.service.fail_points.configure("failCommand", "alwaysOn", given)
    outcome = setup.dispatcher.handle(
        OpMsg(1, 0, 0, bson.encode({name: 1, **COMMIT, "$db": "admin"}), []), setup.client
    )
    assert bson.decode(run_to_end(outcome)).get("errorLabels") == labels


@pytest.mark.parametrize("code", [None, 91])
@pytest.mark.parametrize("closes", [None, True, False])
def test_a_fail_point_in_retryable_writes(setup: Setup, code: int | None, closes: bool | None) -> None:
    """It fails one statement before or after its commit; the retry executes it, or answers as the first attempt."""
    insert = {"insert": "c", "documents": [{"_id": 1}], **RETRYABLE}
    data = {"failBeforeCommitExceptionCode": code, "closeConnection": closes}
    given = bson.encode({name: value for name, value in data.items() if value is not None})
    setup.service.fail_points.configure("onPrimaryTransactionalWrite", bson.encode({"times": 1}), given)
    setup.run({"insert": "c", "documents": [{"_id": 2}]})  # no retryable write: not concerned
    if closes is False:
        reply = setup.run(insert)
        found = [reply.get("code"), *(error["code"] for error in reply.get("writeErrors", []))]
        assert code is None or code in found
    else:
        with pytest.raises(ProtocolError):
            setup.run(insert)
    stored = setup.run({"count": "c", "query": {"_id": 1}})["n"]
    assert stored == (code is None)
    assert setup.run(insert) == {"n": 1, "ok": 1.0} | ({"retriedStmtIds": [0]} if stored else {})


def test_a_connection_that_is_closed_after_the_whole_command(setup: Setup) -> None:
    """The client gets no answer, but all statements are executed, as by a server that cannot send its reply."""
    insert = {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}], **RETRYABLE}
    setup.service.fail_points.configure("onPrimaryTransactionalWrite", "alwaysOn", bson.encode({}))
    with pytest.raises(ProtocolError):
        setup.run(insert)
    assert setup.run(insert)["n"] == 3
    deletes = [{"q": {"_id": i}, "limit": 1} for i in (1, 2)]
    delete = {"delete": "c", "deletes": deletes, **RETRYABLE, "txnNumber": bson.Int64(1000)}
    with pytest.raises(ProtocolError):
        setup.run(delete)
    assert setup.run(delete)["n"] == 2
    assert setup.run({"count": "c"})["n"] == 1


@pytest.mark.parametrize("mode", [{"times": 1}, {"skip": 1}])
def test_a_fail_point_counts_the_statements_of_a_batch(setup: Setup, mode: dict[str, int]) -> None:
    """Also those that would be executed together."""
    setup.run({"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}]})
    given = bson.encode({"failBeforeCommitExceptionCode": 2, "closeConnection": False})
    setup.service.fail_points.configure("onPrimaryTransactionalWrite", bson.encode(mode), given)
    updates = [{"q": {"_id": i}, "u": {"$set": {"n": 1}}} for i in (1, 2, 3)]
    reply = setup.run({"update": "c", "updates": updates, **RETRYABLE})
    (error,) = reply["writeErrors"]
    assert (reply["n"], error["index"]) == ((0, 0) if "times" in mode else (1, 1))


def test_the_fields_of_failcommand(setup: Setup) -> None:
    """Names that MongoDB does not know are ignored, as it does; those that only it knows are refused."""
    for name in ("namespace", "threadName", "failLocalClients", "errorExtraInfo"):
        with pytest.raises(CommandError):
            setup.service.fail_points.configure("failCommand", "alwaysOn", bson.encode({name: "x"}))
    data = {"failCommands": ["ismaster", "find"], "errorCode": 10107, "typo": False}
    setup.service.fail_points.configure("failCommand", "alwaysOn", bson.encode(data))
    assert [setup.run({name: 1})["ok"] for name in ("isMaster", "ismaster", "hello")] == [0.0, 0.0, 1.0]
    data = {"failAllCommands": True, "errorCode": 10107}
    setup.service.fail_points.configure("failCommand", "alwaysOn", bson.encode(data))
    assert [setup.run({name: 1})["ok"] for name in ("ping", "hello")] == [0.0, 0.0]
    assert setup.run({"configureFailPoint": "failCommand", "mode": "off", "$db": "admin"}).get("code") != 10107


def test_a_first_hello_fails_by_its_application_s_name(setup: Setup) -> None:
    data = {"failCommands": ["hello"], "errorCode": 10107, "appName": "app"}
    setup.service.fail_points.configure("failCommand", "alwaysOn", bson.encode(data))
    metadata = {"application": {"name": "app"}}
    assert setup.run({"hello": 1, "client": {"application": {"name": "other"}}})["ok"] == 1.0
    setup.client.metadata = None
    setup.client.app_name = ""
    assert setup.run({"hello": 1, "client": metadata})["ok"] == 0.0
    assert setup.run({"hello": 1})["ok"] == 1.0  # the first one has not run
    setup.service.fail_points.configure("failCommand", "off", bson.encode({}))
    assert setup.run({"hello": 1, "client": metadata})["ok"] == 1.0
    setup.service.fail_points.configure("failCommand", "alwaysOn", bson.encode(data))
    assert setup.run({"hello": 1})["ok"] == 0.0


def test_an_unknown_field_of_a_fail_point(setup: Setup) -> None:
    with pytest.raises(CommandError):
        setup.service.fail_points.configure("onPrimaryTransactionalWrite", "alwaysOn", bson.encode({"x": 1}))


# What a stranger may send in one message.
_LIST = list(range(1_000_000))
_REFUSED: dict[str, dict[str, Any]] = {
    "collection": {"find": _LIST},
    "field": {"find": 1, "filter": {"a": _LIST}},
    "help": {"create": 1, "help": _LIST},
    "help, of a string": {"create": 1, "help": "x" * 15_000_000},
    "database": {"find": 1, "$db": _LIST},
    "many fields": {"find": 1, **{str(number): None for number in range(1_000_000)}},
}


@pytest.mark.parametrize("body", [bson.encode(command) for command in _REFUSED.values()], ids=list(_REFUSED))
def test_a_refusal_does_not_cost_what_its_body_holds(setup: Setup, body: bytes) -> None:
    """Interpreted, to decode any of these takes more than 200 ms, and to walk over them as long."""
    setup.run({"find": 1})  # imports what the command needs
    message = OpMsg(1, 0, 0, body, [])
    began_s = time.thread_time()
    reply = setup.dispatcher._answer_valid(message, body, setup.client, True)
    assert time.thread_time() - began_s < 0.1
    assert isinstance(reply, bytes)
    assert bson.decode(reply)["ok"] == 0.0


def test_a_refused_command_is_counted_for_its_collection(setup: Setup) -> None:
    setup.service.observation = observation = Observation()
    assert setup.run({"find": "c", "unknown": 1})["code"] == 40415
    assert setup.run({"find": 1})["code"] == 73
    assert [failure.namespace for failure in observation.failures()] == ["", "test.c"]  # the latest first
    assert "help" in setup.run({"create": 1, "help": True})
    assert setup.run({"create": 1, "help": False})["ok"] == 0.0


LONG_ID = "x" * 40_000
BEGINS = {"startTransaction": True, "autocommit": False}


def update_of(query: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A command that updates what the query finds."""
    return {"update": "c", "updates": [{"q": query, "u": {"$inc": {"a": 1}}, **options}]}


@pytest.mark.parametrize(
    ("command", "needs_stack"),
    [
        ({"ping": 1}, False),
        ({"ping": 1, "readConcern": {"level": "local"}}, True),
        ({"find": "c", "filter": {"_id": 1}}, False),
        ({"find": "c", "filter": {"_id": {"$eq": 1}}, "limit": 1, "singleBatch": True, "lsid": LSID}, False),
        ({"find": "c", "filter": {"_id": LONG_ID}}, True),
        ({"find": "c", "filter": {"_id": {"$gt": 1}}}, True),
        ({"find": "c", "filter": {"_id": None}}, True),
        ({"find": "c"}, True),
        ({"find": "c", "filter": {"_id": 1}, "projection": {"a": 1}}, True),
        ({"find": "c", "filter": {"_id": 1}, "hint": {"_id": 1}}, True),
        ({"find": "c", "filter": {"_id": 1}, "lsid": LSID, "txnNumber": Int64(3), **BEGINS}, True),
        ({"find": "view", "filter": {"_id": 1}}, True),
        ({"find": "clustered", "filter": {"_id": 1}}, False),
        ({"find": "missing", "filter": {"_id": 1}}, True),
        ({"find": "transactions", "filter": {"_id": 1}, "$db": "config"}, True),
        ({"insert": "c", "documents": [{"_id": 2}]}, False),
        ({"insert": "c", "documents": [{"_id": 2}], "lsid": LSID, "txnNumber": Int64(3)}, False),
        ({"insert": "c", "documents": [{"_id": 2}], "lsid": LSID, "txnNumber": Int64(3), **BEGINS}, True),
        ({"insert": "c", "documents": [{"_id": 2}], **JOURNALED}, True),
        ({"insert": "c", "documents": [{"_id": LONG_ID}]}, True),
        ({"insert": "c", "documents": [{"_id": 2}, {"_id": 3}]}, True),
        (update_of({"_id": 1}), False),
        (update_of({"_id": 1}, upsert=False, multi=False), False),
        (update_of({"_id": 1}, upsert=True), True),
        (update_of({"_id": 1, "a": 1}), True),
        (update_of({"_id": {"$gt": 0}}), True),
        (update_of({"a": 1}), True),
        (update_of({}), True),
        ({"update": "c", "updates": update_of({"_id": 1})["updates"] * 2}, True),
        ({"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]}, False),
        ({"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 0}]}, True),
        ({"delete": "c", "deletes": [{"q": {"_id": 1, "a": 1}, "limit": 1}]}, True),
        ({"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"a": 1}}}, False),
        ({"findAndModify": "c", "query": {"_id": 1}, "remove": True}, False),
        ({"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"a": 1}}, "upsert": True}, True),
        ({"findAndModify": "c", "query": {"a": 1}, "sort": {"_id": 1}, "remove": True}, True),
    ],
)
def test_commands_get_a_stack_only_if_they_may_wait_or_take_long(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, command: dict[str, Any], needs_stack: bool
) -> None:
    setup.run({"insert": "c", "documents": [{"_id": 1}]})
    setup.run({"create": "view", "viewOn": "c", "pipeline": []})
    setup.run({"create": "clustered", "clusteredIndex": {"key": {"_id": 1}, "unique": True}})
    spec = COMMANDS[next(iter(command))]
    had_stack = note_stacks(setup, monkeypatch, spec.name)
    assert setup.run(command)["ok"] == 1.0
    # A fail point may make each command wait.
    with_fail_point = {"configureFailPoint": "failCommand", "mode": "alwaysOn"}
    fails = {"failCommands": [spec.name], "blockConnection": True, "blockTimeMS": 1}
    assert setup.run({**with_fail_point, "data": fails, "$db": "admin"})["ok"] == 1.0
    if "txnNumber" not in command and "insert" not in command:
        assert setup.run(command)["ok"] == 1.0
    assert had_stack == [needs_stack, True][: len(had_stack)]


def note_stacks(setup: Setup, monkeypatch: pytest.MonkeyPatch, name: str, takes_long: bool = False) -> list[bool]:
    """Whether each call of the command's function has a stack. takes_long: whether some take long; else time stands
    still, since on a busy machine any may."""
    if not takes_long:
        setup.service.stacks.monotonic_s = lambda: 100.0
    function = COMMANDS[name].function
    had_stack: list[bool] = []

    def noted(op: OperationContext, request: Any) -> Any:
        had_stack.append(setup.service.stacks.present is not None)
        return function(op, request)

    set_function(monkeypatch, name, noted)
    return had_stack


RETRYABLE = {"lsid": LSID, "txnNumber": Int64(3)}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (update_of({"_id": 7}), {"n": 0, "nModified": 0}),
        (update_of({"_id": 1}, multi=True), {"n": 1, "nModified": 1}),
        (update_of({"_id": 1}, hint={"_id": 1}), {"n": 1, "nModified": 1}),
        ({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"b.$": 2}}}]}, {"n": 0, "nModified": 0}),
        ({"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1, "hint": {"_id": 1}}]}, {"n": 1}),
    ],
)
def test_an_attempted_write_that_needs_a_stack_is_counted_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, command: dict[str, Any], expected: dict[str, Any]
) -> None:
    name = next(iter(command))
    setup.run({"insert": "c", "documents": [{"_id": 1, "b": [1]}]})
    assert setup.run({"profile": 2})["ok"] == 1.0
    had_stack = note_stacks(setup, monkeypatch, name)
    before = setup.run({"serverStatus": 1})
    retryable = {} if "multi" in command.get("updates", [{}])[0] else RETRYABLE
    reply = setup.run({**command, **retryable})
    assert {field: reply[field] for field in expected} == expected
    assert had_stack == [False, True]
    after = setup.run({"serverStatus": 1})
    assert after["opcounters"][name] == before["opcounters"][name] + 1
    assert (
        after["metrics"]["commands"][name]["total"]
        == before["metrics"]["commands"].get(name, {"total": 0})["total"] + 1
    )
    noted = "transactionsCollectionWriteCount"
    changed = 1 if expected.get("nModified", expected["n"]) and retryable else 0
    assert after["transactions"][noted] == before["transactions"][noted] + changed
    operation = "remove" if name == "delete" else name
    profiled = setup.run({"find": "system.profile", "filter": {"op": operation}})["cursor"]["firstBatch"]
    assert len(profiled) == 1
    assert setup.run({"top": 1, "$db": "admin"})["totals"]["test.c"][operation]["count"] == 1


def test_an_attempted_write_waits_on_a_stack_for_a_transaction(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.run({"insert": "c", "documents": [{"_id": 1, "a": 1}]})
    transaction = {"lsid": {"id": Binary(b"t" * 16, 4)}, "txnNumber": Int64(1), "autocommit": False}
    assert setup.run({**update_of({"_id": 1}), **transaction, "startTransaction": True})["n"] == 1
    had_stack = note_stacks(setup, monkeypatch, "update")
    steps = setup.dispatcher.handle(setup.message({**update_of({"_id": 1}), **RETRYABLE}), setup.client)
    assert isinstance(steps, Steps)
    assert isinstance(next(steps), Wait)
    assert had_stack == [False, True]
    assert setup.run({"commitTransaction": 1, "$db": "admin", **transaction})["ok"] == 1.0
    assert bson.decode(run_to_end(steps))["nModified"] == 1
    [found] = setup.run({"find": "c"})["cursor"]["firstBatch"]
    assert found == {"_id": 1, "a": 3}
    # A retry of it finds it executed.
    assert setup.run({**update_of({"_id": 1}), **RETRYABLE})["retriedStmtIds"] == [0]
    assert had_stack == [False, True, False, True]


def test_an_attempted_write_that_evaluates_for_long_gets_a_stack(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.run({"insert": "c", "documents": [{"_id": 1}]})
    had_stack = note_stacks(setup, monkeypatch, "update", takes_long=True)
    summed = {"$sum": {"$map": {"input": {"$range": [0, 20_000]}, "in": {"$add": ["$$this", 1]}}}}
    assert setup.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": [{"$set": {"a": summed}}]}]})["nModified"] == 1
    assert had_stack == [False, True]
    assert setup.run({"find": "c"})["cursor"]["firstBatch"] == [{"_id": 1, "a": 200_010_000}]


def test_a_retried_write_waits_on_a_stack_for_its_first_attempt(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.run({"insert": "c", "documents": [{"_id": 1}]})
    had_stack = note_stacks(setup, monkeypatch, "update")
    first = setup.dispatcher.handle(setup.message({**update_of({"_id": 1}), **JOURNALED, **RETRYABLE}), setup.client)
    assert isinstance(first, Steps)  # waits for the disk
    assert had_stack == [True]
    retry = setup.dispatcher.handle(setup.message({**update_of({"_id": 1}), **RETRYABLE}), setup.client)
    assert isinstance(retry, Steps)
    assert isinstance(next(retry), Wait)
    assert had_stack == [True]
    assert bson.decode(run_to_end(first))["nModified"] == 1
    assert bson.decode(run_to_end(retry))["retriedStmtIds"] == [0]
    assert had_stack == [True, True]


def test_an_attempted_write_deletes_an_expired_document_that_is_in_its_way(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_time = {"key": {"_ts": 1}, "name": "by_time", "expireAfterSeconds": 10}
    unique = {"key": {"u": 1}, "name": "unique", "unique": True}
    assert setup.run({"createIndexes": "c", "indexes": [by_time, unique]})["ok"] == 1.0
    clock = setup.service.clock
    assert isinstance(clock, VirtualClock)
    for number in (1, 2):
        setup.run({"insert": "c", "documents": [{"_id": number, "u": number}]})
        clock.advance(6)
    had_stack = note_stacks(setup, monkeypatch, "update")
    command = {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"u": 1}}}]}
    assert setup.run({**command, **RETRYABLE})["nModified"] == 1
    assert had_stack == [False]
    assert setup.run({"find": "c"})["cursor"]["firstBatch"] == [{"_id": 2, "u": 1}]
    assert setup.run({**command, **RETRYABLE})["retriedStmtIds"] == [0]


def test_an_attempted_find_and_modify_gets_a_stack_where_it_does_not_go_by_the_key_alone(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.run({"insert": "c", "documents": [{"_id": 1, "a": 1}]})
    had_stack = note_stacks(setup, monkeypatch, "findAndModify")
    command = {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"a": 1}}, "new": True}
    assert setup.run({**command, "hint": {"_id": 1}, **RETRYABLE})["value"] == {"_id": 1, "a": 2}
    assert setup.run({**command, "hint": {"_id": 1}, **RETRYABLE})["value"] == {"_id": 1, "a": 2}  # a retry
    assert had_stack == [False, True] * 2
    assert setup.run({"serverStatus": 1})["metrics"]["commands"]["findAndModify"]["total"] == 2


def test_an_attempted_find_and_modify_is_not_repeated_for_the_sake_of_its_projection(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.run({"insert": "c", "documents": [{"_id": 1, "a": 1}]})
    had_stack = note_stacks(setup, monkeypatch, "findAndModify", takes_long=True)
    summed = {"$sum": {"$map": {"input": {"$range": [0, 20_000]}, "in": {"$add": ["$$this", 1]}}}}
    command = {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"a": 1}}, "fields": {"sum": summed}}
    assert setup.run({**command, "new": True})["value"] == {"_id": 1, "sum": 200_010_000}
    assert had_stack.count(False) == 1
    assert setup.run({"find": "c"})["cursor"]["firstBatch"] == [{"_id": 1, "a": 2}]
