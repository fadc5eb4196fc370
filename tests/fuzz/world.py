"""A server without sockets that is sent random commands, and what must hold of its replies.

A run is a number of rounds. Each round has a fresh server with the same few collections and a seed of its own,
`<seed of the run>:<number of the round>`, so that a failure is repeated by its round alone. Commands come from the
grammar, and from earlier commands of the round that were answered in a new way, changed a little: so the fuzzer finds
its way behind the checks of arguments.

What must hold:
- no reply has code 1 (InternalError), at its top or within `writeErrors` and the like: that is always a defect;
- a reply is valid BSON, and a command comes to its end;
- after each round `ping` is answered, and `validate` finds every collection and index in order.
"""

import io
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Final

import bson

from mongottl.clock import VirtualClock
from mongottl.commands import COMMANDS
from mongottl.config import ServerConfig
from mongottl.document.types import Date
from mongottl.document.validate import MAX_MESSAGE_DEPTH, validate_document
from mongottl.errors import CommandError
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.write.expiry import reap_due, refill_wheel
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.server.server import RECURSION_LIMIT
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from mongottl.wire.messages import OpMsg
from tests.fuzz import grammar
from tests.fuzz.values import Node, Random, copy, decode, document, encode, geometry, mutate, node, show
from tests.golden.notation import parse
from tests.golden.runner import read_script

START_MS: Final = 1_700_000_000_500
COMMANDS_PER_ROUND: Final = 400
# A command that takes longer is ended as by killOp. Only in elapsed time, so that what it answers may differ.
_PATIENCE_S: Final = 5.0
# A command that waits (for a cursor's documents, for a topology) is not waited for longer, in the server's time.
_LONGEST_WAIT_S: Final = 3600.0
_POOL_SIZE: Final = 300
_GOLDEN: Final = Path(__file__).parents[1] / "golden"


class Failure:
    """One reply, or one state of the server, that must not be. key: what makes two failures count as one."""

    def __init__(self, key: str, seed: str, body: Node | None, details: str) -> None:
        self.key = key
        self.seed = seed
        self.body = body
        self.details = details

    def describe(self) -> str:
        lines = [f"{self.key}", f"  seed {self.seed}"]
        if self.body is not None:
            lines += [f"  {show(self.body)}", f"  bytes {encode(self.body).hex()[:2000]}"]
        return "\n".join([*lines, self.details])


def golden_commands() -> list[Node]:
    """The commands of the golden scripts: well-formed ones of all kinds to begin with."""
    found: list[Node] = []
    for path in sorted(_GOLDEN.glob("*.golden")):
        for block in read_script(path.read_text("utf-8")):
            try:
                command = parse(block.request) if block.request else {}
            except ValueError:
                continue  # it refers to an earlier reply
            if command and next(iter(command)) not in ("freezeClock", "configureFailPoint", "replSetStepDown"):
                found.append(decode(bson.encode(command)))
    return found


class Round:
    """A fresh server, and the random commands that it is sent. seed: of this round alone."""

    def __init__(self, seed: str, beginnings: list[Node], dialect: str = "mongodb") -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
        self.seed = seed
        self.rng = Random(seed)
        self.clock = VirtualClock()
        self.clock.freeze()
        self.clock.set_wall(START_MS)
        self.engine = ContractEngine(open_engine(self.rng.choice(["memory:", "sqlite:"])))
        config = ServerConfig(dialect=dialect, quiet=True, enable_test_commands=True)
        self.service = ServiceContext(config, self.clock, self.engine)
        self.log_text = io.StringIO()
        self.log = Log(quiet=True, stream=self.log_text)
        self.dispatcher = Dispatcher(self.service, self.log)
        self.client = ClientInfo(1, "localhost:27017", "localhost:1")
        refill_wheel(self.service)
        self.pool: list[Node] = []
        self.answers: set[str] = set()
        self.beginnings = beginnings
        self.failures: list[Failure] = []
        self.sent = 0
        self.slowest: tuple[float, str] = (0.0, "")
        self._set_up()

    def _set_up(self) -> None:
        rng = self.rng
        for body in (
            node(create="capped", capped=True, size=100_000),
            node(create="clustered", clusteredIndex=node(key=node(_id=1), unique=True)),
            node(create="ts", timeseries=node(timeField="t", metaField="m")),
            node(create="v", viewOn="c", pipeline=[node(**{"$match": node(a=node(**{"$exists": True}))})]),
            node(createIndexes="c", indexes=[node(key=node(a=1), name="a_1"), node(key=node(n=-1, b=1), name="n_b")]),
            node(createIndexes="geo", indexes=[node(key=node(loc="2dsphere"), name="loc")]),
            node(createIndexes="words", indexes=[node(key=node(tags="text"), name="tags")]),
            node(createIndexes="c", indexes=[node(key=Node([["$**", 1]]), name="all")]),
        ):
            self.send(body)
        for name in ("c", "geo", "words", "capped", "clustered"):
            self.send(node(insert=name, documents=[document(rng) for _ in range(15)], ordered=False))
        places = [node(_id=100 + i, loc=geometry(rng)) for i in range(8)]
        self.send(node(insert="geo", documents=places, ordered=False))
        times = [node(t=Date(START_MS + i * 60_000), m=node(x=i % 3), n=i) for i in range(10)]
        self.send(node(insert="ts", documents=times))

    def run(self, commands: int, deadline_s: float) -> None:
        """Sends commands, fewer if the time is over before. deadline_s: by `time.monotonic`."""
        while self.sent < commands and time.monotonic() < deadline_s:
            self.send(self.next_command())
            if self.rng.random() < 0.01:
                reap_due(self.service)
        self.check_end()

    def next_command(self) -> Node:
        dice = self.rng.random()
        known = self.beginnings if not self.pool or self.rng.random() < 0.1 else self.pool
        if dice < 0.45:
            return grammar.focused_command(self.rng)
        if dice < 0.7 or not known:
            return grammar.command(self.rng)
        body: Node = copy(self.rng.choice(known))
        first = list(body.pairs[0])
        mutate(self.rng, body, known)
        body.pairs[0][0] = first[0]
        if self.rng.random() < 0.9:
            body.pairs[0][1] = first[1]
        return body

    def send(self, body: Node, odd_database: float = 0.01) -> bytes:
        """A command's reply, checked. The reply is empty for what cannot be encoded.

        odd_database: how often it is sent to another database than the one where it belongs.
        """
        self.sent += 1
        name = body.pairs[0][0]
        spec = COMMANDS.get(name)
        database = "admin" if spec is not None and spec.admin_only else "test"
        if self.rng.random() < odd_database:
            database = self.rng.choice(["admin", "local", "config", "test2", "", "a.b", "$external"])
        try:
            message = encode(Node([*body.pairs, ["$db", database]]))
        except (ValueError, CommandError):  # a name with NUL; too deep
            return b""
        errors_before = self.log.internal_errors
        try:
            reply = self._answer(message)
        except Exception as error:
            self._fail(error, body, traceback.format_exc())
            return b""
        if self.log.internal_errors > errors_before:
            text = self.log_text.getvalue()
            self.log_text.seek(0)
            self.log_text.truncate()
            self.failures.append(Failure(_key_of(text), self.seed, body, text[-3000:]))
            return reply
        try:
            validate_document(reply, MAX_MESSAGE_DEPTH + 20)
            tree = decode(reply)
        except Exception as error:
            self._fail(error, body, traceback.format_exc())
            return reply
        if _has_internal_error(tree):
            self.failures.append(Failure(f"code 1 in a reply of {name}", self.seed, body, show(tree)[:3000]))
        self._remember(name, body, tree)
        return reply

    def _answer(self, message: bytes) -> bytes:
        outcome = self.dispatcher.handle(OpMsg(1, 0, 0, message, []), self.client)
        if not isinstance(outcome, Steps):
            return outcome
        started_s = time.monotonic()
        waited_s = 0.0
        while True:
            try:
                step = next(outcome)
            except StopIteration as stop:
                reply: bytes = stop.value
                break
            if isinstance(step, Wait):
                self.clock.advance(step.seconds)
                waited_s += step.seconds
            if time.monotonic() - started_s > _PATIENCE_S or waited_s > _LONGEST_WAIT_S:
                for running in self.service.operations.all():
                    running.op.kill()
        elapsed_s = time.monotonic() - started_s
        if elapsed_s > self.slowest[0]:
            self.slowest = (elapsed_s, show(decode(message))[:500])
        return reply

    def _remember(self, name: str, body: Node, reply: Node) -> None:
        """Keeps a command whose answer was of a new kind, to change it later."""
        if reply.get("ok") == 1.0:
            answer = f"{name} {' '.join(sorted({key for key, _ in body.pairs}))}"
        else:
            words = re.sub(r"'[^']*'|\"[^\"]*\"|[0-9]+|\{.*\}|\[.*\]", "", str(reply.get("errmsg")))
            answer = f"{name} {reply.get('code')} {words[:60]}"
        if answer not in self.answers or self.rng.random() < 0.05:
            self.answers.add(answer)
            if len(self.pool) < _POOL_SIZE:
                self.pool.append(body)
            else:
                self.pool[self.rng.randrange(_POOL_SIZE)] = body

    def _fail(self, error: Exception, body: Node | None, trace: str) -> None:
        self.failures.append(Failure(_key_of(trace), self.seed, body, trace[-3000:]))

    def check_end(self) -> None:
        """Fails the round if the server no longer answers, or if a collection or index is not in order."""
        body = node(ping=1)
        reply = decode(self.send(body, odd_database=0.0))
        if reply.get("ok") != 1.0:
            self.failures.append(Failure("no answer to ping", self.seed, body, show(reply)))
        for database in self.service.catalog.database_names():
            for collection in list(self.service.catalog.collections(database)):
                body = Node([["validate", collection.name], ["full", True], ["$db", database]])
                try:
                    found = decode(self._answer(encode(body)))
                except Exception as error:
                    self._fail(error, body, traceback.format_exc())
                    continue
                if found.get("ok") == 1.0 and found.get("valid") is not True:
                    self.failures.append(Failure("validate finds faults", self.seed, body, show(found)))
        self.service.cursors.close_all()
        self.service.processes.close()
        self.engine.close()


def _has_internal_error(reply: Node) -> bool:
    """Whether a reply, or an error within it, has code 1. Documents of the collections are not looked into."""
    if reply.get("code") == 1 and reply.get("errmsg") is not None:
        return True
    errors = [reply.get("writeConcernError"), *(reply.get("writeErrors") or [])]
    cursor = reply.get("cursor")
    if isinstance(cursor, Node) and reply.get("nErrors") is not None:
        errors += cursor.get("firstBatch") or []
    return any(isinstance(error, Node) and error.get("code") == 1 and error.get("errmsg") for error in errors)


def _key_of(trace: str) -> str:
    """The error and the innermost of our own lines in a trace."""
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ") and "/mongottl/" in line]
    place = re.sub(r'^File ".*/mongottl/', "mongottl/", places[-1]).replace('"', "") if places else "?"
    error = next(
        (line for line in reversed(lines) if re.match(r"[A-Za-z_.]+(Error|Exception|Operation|Interrupt)", line)), "?"
    )
    return f"{error.partition(':')[0]} at {place}"
