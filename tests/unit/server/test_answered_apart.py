"""Commands that touch no data are answered in the middle of a long unit of work, and change nothing about it."""

import io
import random
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Binary, Int64, ObjectId

from mongottl.clock import SystemClock
from mongottl.commands import COMMANDS
from mongottl.config import ServerConfig
from mongottl.document.freeing import LongList, free_some
from mongottl.document.interrupt import in_undivided
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.server.message_traits import touches_no_data
from mongottl.storage.contract import ContractEngine
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.wire.messages import OpMsg
from tests.steps import run_to_end

Document = dict[str, Any]
APART = sorted({spec.name for spec in COMMANDS.values() if spec.touches_no_data})
TRANSACTION: Document = {"lsid": {"id": Binary(bytes(16), 4)}, "txnNumber": Int64(1), "autocommit": False}
COUNT = 700
# The keys of a document whose writes are not attempted without a stack, and the indexes that have them.
KEYS = 5_000
INDEXES = 8


def message_of(command: Document) -> bytes:
    """A request as it comes from a client."""
    body = bson.encode(command)
    return struct.pack("<iiiiIB", 21 + len(body), 1, 0, 2013, 0, 0) + body


class Counting(ContractEngine):
    """calls: how often each method of it and of its stores was called."""

    def __init__(self, inner: StorageEngine) -> None:
        self.calls: Counter[str] = Counter()
        super().__init__(inner)

    def require_open(self, method: str) -> None:
        self.calls[method] += 1
        super().require_open(method)


class Setup:
    """A server whose operations answer others whenever they can."""

    def __init__(self, uri: str, data_dir: str | None) -> None:
        self.engine = Counting(open_engine(uri))
        config = ServerConfig(enable_test_commands=True, data_dir=data_dir)
        self.service = ServiceContext(config, SystemClock(), self.engine)
        self.service.stacks.times.left_after_s = 0.0
        self.dispatcher = Dispatcher(self.service, Log(stream=io.StringIO()))

    def run(self, command: Document, client: int = 1) -> Document:
        body = bson.encode({**command, "$db": command.get("$db", "test")})
        message = OpMsg(1, 0, 0, body, [], size_bytes=len(body))
        sender = ClientInfo(client, "127.0.0.1:1", f"127.0.0.1:{client}")
        reply: Document = bson.decode(run_to_end(self.dispatcher.handle(message, sender)))
        return reply

    def stored(self) -> Document:
        """What is stored, and that nothing of it is damaged."""
        names = ("a", "b")
        assert all(self.run({"validate": name, "full": True})["valid"] for name in names)
        return {name: self.run({"find": name, "batchSize": 9999, "sort": {"_id": 1}})["cursor"] for name in names}

    def write_much(self) -> None:
        """In a transaction: inserts, updates and deletes."""
        for number, statement in enumerate(
            (
                {"insert": "a", "documents": [{"_id": 9000 + number, "n": number} for number in range(COUNT)]},
                {"update": "a", "updates": [{"q": {"_id": {"$lt": COUNT}}, "u": {"$inc": {"n": 5}}, "multi": True}]},
                {"delete": "b", "deletes": [{"q": {"n": {"$gte": 5}}, "limit": 0}]},
            )
        ):
            beginning = {} if number else {"startTransaction": True}
            assert self.run({**statement, **TRANSACTION, **beginning})["ok"]


@pytest.fixture(params=["memory", "folder"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setup]:
    folder = None if request.param == "memory" else str(tmp_path / "data")
    made = Setup("memory:" if folder is None else f"sqlite:{folder}", folder)
    for name in ("a", "b"):
        made.run({"insert": name, "documents": [{"_id": number, "n": number} for number in range(COUNT)]})
        made.run({"createIndexes": name, "indexes": [{"key": {"n": 1}, "name": "n", "unique": name == "b"}]})
    yield made
    made.engine.close()


def test_the_commands_that_touch_no_data() -> None:
    assert APART == ["hello", "isMaster", "ping"]


@pytest.mark.parametrize("name", APART)
def test_commands_that_touch_no_data_call_no_engine(setup: Setup, name: str) -> None:
    command = {name: 1, "lsid": {"id": Binary(bytes(16), 4)}, "$db": "config"}
    setup.run(command)
    setup.service.cluster_clock.limit_due = setup.engine.persistent
    setup.service.cluster_clock.tick(setup.service.clock.now_ms())  # no reply was made with that time
    with setup.engine.unit_of_work():
        # They need no stack, which would be left at its end so that this is freed.
        LongList(range(10_000))
        setup.service.stacks.times.together_s = 0.0
        before = Counter(setup.engine.calls)
        assert setup.run(command, client=2)["ok"] == 1.0
        assert setup.engine.calls == before


def test_commands_that_take_a_stack_free_nothing_in_the_middle_of_a_unit(setup: Setup) -> None:
    """With an engine that waits for its answers all commands take one. The next operation frees it."""
    with setup.engine.unit_of_work():
        LongList(range(10_000))
        setup.service.stacks.times.together_s = 0.0
        reply = setup.run({"ping": 1, "readConcern": {"level": "local"}, "maxTimeMS": 60_000}, client=2)
        assert reply["ok"] == 1.0, reply
        assert free_some()


def test_commands_that_touch_no_data_are_answered_in_the_middle_of_a_commit(setup: Setup) -> None:
    replies: list[Document] = []

    def ask() -> None:
        assert in_undivided() or replies
        replies.append(setup.run({APART[len(replies) % len(APART)]: 1}, client=2))

    setup.write_much()
    setup.service.stacks.answer_apart = ask
    assert setup.run({"commitTransaction": 1, "$db": "admin", **TRANSACTION})["ok"] == 1.0
    assert len(replies) > 3 and all(reply["ok"] == 1.0 for reply in replies)
    found = setup.stored()
    assert len(found["a"]["firstBatch"]) == 2 * COUNT and len(found["b"]["firstBatch"]) == 5


def test_others_are_answered_between_the_indexes_of_a_document_with_many_keys(setup: Setup) -> None:
    indexes = [{"key": {"list": 1, f"x{number}": 1}, "name": f"x{number}"} for number in range(INDEXES)]
    unique = {"key": {"u": 1}, "name": "u", "unique": True, "sparse": True}
    setup.run({"createIndexes": "a", "indexes": [*indexes, unique]})
    setup.run({"insert": "a", "documents": [{"_id": -1, "u": 1}]})
    replies: list[Document] = []

    def ask() -> None:
        if in_undivided():
            replies.append(setup.run({"ping": 1}, client=2))

    def answered_during(command: Document) -> int:
        """How often another client was answered within the unit of work."""
        replies.clear()
        assert setup.run(command)["ok"] == 1.0
        assert all(reply["ok"] == 1.0 for reply in replies)
        return len(replies)

    setup.service.stacks.answer_apart = ask
    numbers = list(range(KEYS))
    known = setup.stored()
    assert answered_during({"insert": "a", "documents": [{"_id": -2, "u": 1, "list": numbers}]}) >= INDEXES
    assert setup.stored() == known  # a duplicate key of the last index undoes all of it
    assert answered_during({"insert": "a", "documents": [{"_id": -2, "list": numbers}]}) >= INDEXES
    moved = {"$set": {"list": [number + KEYS for number in numbers]}}
    assert answered_during({"update": "a", "updates": [{"q": {"_id": -2}, "u": moved}]}) >= 2 * INDEXES
    assert answered_during({"delete": "a", "deletes": [{"q": {"_id": -2}, "limit": 1}]}) >= INDEXES
    assert setup.stored() == known


def test_an_error_in_the_middle_of_a_commit_undoes_all_of_it(setup: Setup) -> None:
    class FailedError(Exception):
        pass

    before = setup.stored()
    parts = fails_at = 0

    def fail() -> None:
        nonlocal parts
        parts += 1
        if parts == fails_at and in_undivided():
            raise FailedError

    setup.service.stacks.answer_apart = fail
    chance = random.Random(1)
    for number in range(1, 9):
        TRANSACTION["txnNumber"] = Int64(number)
        setup.write_much()
        parts, fails_at = 0, chance.randrange(1, 20)
        reply = setup.run({"commitTransaction": 1, "$db": "admin", **TRANSACTION})
        assert reply["ok"] == 0.0 and reply["code"] == 1, reply
        assert setup.stored() == before
    fails_at = 0
    TRANSACTION["txnNumber"] = Int64(99)
    setup.write_much()
    assert setup.run({"commitTransaction": 1, "$db": "admin", **TRANSACTION})["ok"] == 1.0
    assert setup.stored() != before


@pytest.mark.parametrize(
    ("command", "apart"),
    [
        ({"ping": 1}, True),
        ({"ping": 1, "lsid": {"id": Binary(bytes(16), 4)}}, True),
        ({"hello": 1}, True),
        ({"hello": 1, "saslSupportedMechs": "a.b"}, False),
        ({"hello": 1, "topologyVersion": {"processId": ObjectId(), "counter": Int64(0)}, "maxAwaitTimeMS": 9}, False),
        ({"ping": 1, "txnNumber": Int64(1)}, False),
        ({"ping": 1, "readConcern": {}}, False),
        ({"find": "c"}, False),
        ({"unknown": 1}, False),
    ],
)
def test_requests_that_touch_no_data_are_known_by_their_bytes(command: Document, apart: bool) -> None:
    data = message_of({**command, "$db": "admin"})
    assert touches_no_data(data) == apart
    assert not touches_no_data(data[:-1]) and not touches_no_data(data + data) and not touches_no_data(b"")
    assert not touches_no_data(data[:16] + b"\x01" + data[17:])
    assert not touches_no_data(data[:21])
