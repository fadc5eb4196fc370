"""Commands that are under way while another client drops, changes or restores what they use.

Each row of `interventions.CASES` is run alone, to learn how many steps it takes, and then with some of the rows of
`interventions.INTERVENTIONS`, each of which happens after one of its steps. Which rows and steps these are, and how
much storage reads at once, depends on the seed: `seeds.py` tells how to choose it. With an even seed evaluations are
left in the middle, too, as those that take long are: whenever they give way. What must hold afterwards:

- Nothing has met an internal error. A reply has only errors that the tables name.
- The oplog tells of exactly what is stored, and a reply counts the writes that the oplog tells of. So what was
  acknowledged is there, unless the intervention has removed it.
- `validate` finds nothing, and nothing is left: no cursor, operation, transaction, lock, snapshot or stored data.
- A restored state is the one that was saved. After a harmless intervention a command that succeeds has stored what it
  stores alone. A command that changes all or nothing has changed nothing if it was killed.
"""

import io
import math
import random
import traceback
from collections import Counter
from collections.abc import Iterator

import bson
import pytest
from bson import Int64

from mongottl.build_info import is_compiled
from mongottl.catalog.entries import OPLOG_IDENT, SESSIONS_IDENT
from mongottl.clock import Clock, VirtualClock
from mongottl.config import ServerConfig
from mongottl.document.interrupt import check_often
from mongottl.errors import ErrorCode
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps, StepTimes
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.oplog.change import is_logged
from mongottl.oplog.log import OPLOG_NUMBER
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.contract import ContractEngine
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.snapshot.isolation import PatchIsolation
from mongottl.storage.stores import NO_BYTE_LIMIT
from mongottl.wire.messages import OpMsg
from tests.oplog_replay import Replay, records_of
from tests.simulation.interventions import (
    CASES,
    CLAIM,
    DISCONNECT,
    INTERVENTIONS,
    OPERATION,
    STATEMENT,
    Case,
    Document,
    Intervention,
    end_of_claim,
    fixtures,
)
from tests.simulation.seeds import seeds
from tests.suspending import SuspendingEngine

START_MS = 1_700_000_000_500
# More steps than any command takes that ends.
MOST_STEPS = 5000
# So many of them may be waits in which time passes: no document expires by them alone.
MOST_WAITS = 400
# How many interventions are chosen for each command. Interpreted, the server takes twice as long.
CHOSEN = {"memory": len(INTERVENTIONS) if is_compiled() else 10, "sqlite": 3, "suspending": 3}
# After so many steps of waiting the transaction for which something waits is aborted.
PATIENCE = 30
# Errors of an intervention, which finds that the command has changed what it changes, or has locked it:
REFUSED = {
    ErrorCode.IllegalOperation,  # from an engine that saves no states
    ErrorCode.NamespaceNotFound,
    ErrorCode.NamespaceExists,
    ErrorCode.IndexNotFound,
    ErrorCode.IndexOptionsConflict,
    ErrorCode.IndexKeySpecsConflict,
    ErrorCode.CommandNotSupported,  # in the dialect cosmos
    ErrorCode.WriteConflict,
    ErrorCode.NoSuchTransaction,
    ErrorCode.OperationNotSupportedInTransaction,
    ErrorCode.DuplicateKey,
    ErrorCode.DocumentValidationFailure,  # it waited for a command that has set a validator
    ErrorCode.LockTimeout,  # a statement of a transaction, beside a command that waits to change the collection
    ErrorCode.BackgroundOperationInProgressForNamespace,
}


@pytest.fixture(autouse=True)
def evaluations_give_way_often() -> Iterator[None]:
    check_often()
    yield
    check_often(False)


class PassingTime(Clock):
    """Time passes while an operation waits, and at no other time."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0

    def now_ms(self) -> int:
        return START_MS + int(self.elapsed_s * 1000)

    def monotonic_s(self) -> float:
        return 1000.0 + self.elapsed_s


class SlowEngine(ContractEngine):
    """Storage that reads few documents at once, so that commands take many steps. Documents have about 130 bytes."""

    def __init__(self, inner: StorageEngine, generator: random.Random) -> None:
        super().__init__(inner)
        self._random = generator

    def batch_bytes(self, max_bytes: int) -> int:
        return max_bytes if max_bytes == NO_BYTE_LIMIT else min(max_bytes, self._random.choice((1, 300, 1000)))


class Disturbed:
    """A server without sockets, and a command on it that is under way while others intervene.

    steps: those that are left, None once it has ended. taken: how many it has made. reply: None before its end, and if
    its client has disconnected. written: the documents of the oplog that it has written.
    """

    def __init__(self, case: Case, kind: str, seed: str, leaves: bool) -> None:
        self.case = case
        self.time = PassingTime()
        suspends = kind == "suspending"
        slow = SlowEngine(open_engine(f"{'memory' if suspends else kind}:"), random.Random(seed))
        self.engine: StorageEngine = SuspendingEngine(slow, random.Random(seed)) if suspends else slow
        config = ServerConfig(enable_test_commands=True, quiet=True, dialect=case.dialect)
        self.service = ServiceContext(config, VirtualClock(self.time), self.engine)
        if isinstance(self.engine, SuspendingEngine):
            self.engine.suspension.stacks = self.service.stacks
        self.service.stacks.times = StepTimes(left_after_s=0.0 if leaves else math.inf, together_s=0.0)
        self.log_text = io.StringIO()
        self.log = Log(quiet=True, stream=self.log_text)
        self.dispatcher = Dispatcher(self.service, self.log)
        self.client = ClientInfo(1, "localhost:27017", "localhost:1")
        self.others = ClientInfo(2, "localhost:27017", "localhost:2")
        self.steps: Steps[bytes] | None = None
        self.reply: Document | None = None
        self.taken = 0
        self.written: list[Document] = []
        self._replay = Replay()
        self._replayed_through = 0
        self._claims = False
        for command in fixtures(case.dialect):
            self._succeed(command)
        if self.engine.saves_states:
            self._succeed({"saveState": "fixtures", "$db": "admin"})
        # What is stored of the fixtures; whether that was restored.
        self.saved = self.stored()
        self.restored = False
        self.promised: Counter[str] = Counter()
        self._command = dict(case.command)
        for command in case.before:
            reply = self._succeed(command, self.client)
            self.promised += acknowledged(command, reply)
            if "cursor" in reply:
                self._command["getMore"] = Int64(reply["cursor"]["id"])
        # What there is before the command begins.
        self.initial = self.stored()
        self.indexed = self.indexes()
        for command in CLAIM if case.waits else ():
            self._succeed(command)
            self._claims = True

    # Commands

    def ask(self, command: Document, client: ClientInfo | None = None) -> Document:
        """The reply to a command. The one under way goes on while it waits."""
        outcome = self._send(command, client or self.others)
        if not isinstance(outcome, bytes):
            outcome = self._finish(outcome)
        reply: Document = bson.decode(outcome)
        self._read_oplog()
        return reply

    def _succeed(self, command: Document, client: ClientInfo | None = None) -> Document:
        reply = self.ask(command, client)
        assert not codes_of(reply), (command, reply)
        return reply

    def _send(self, command: Document, client: ClientInfo) -> bytes | Steps[bytes]:
        return self.dispatcher.handle(
            OpMsg(1, 0, 0, bson.encode({**command, "$db": command.get("$db", "test")}), []), client
        )

    def _finish(self, steps: Steps[bytes]) -> bytes:
        waits = 0
        for _ in range(MOST_STEPS):
            try:
                step = next(steps)
            except StopIteration as stop:
                reply: bytes = stop.value
                return reply
            if isinstance(step, Wait):
                waits += 1
                self._pass_time(step)
                self.advance()
                if waits >= PATIENCE and not self.service.restoring:  # for which every other command waits
                    self.end_claim(commits=False)
        raise AssertionError("another client's command does not end")

    def _pass_time(self, step: Wait) -> None:
        self.time.elapsed_s += min(step.seconds, 0.05)

    def begin(self) -> None:
        """Sends the command, and runs it until it is left."""
        outcome = self._send(self._command, self.client)
        self._note_written()
        if isinstance(outcome, bytes):
            self.reply = bson.decode(outcome)
        else:
            self.steps = outcome
            self.advance()

    def advance(self) -> None:
        """Lets the command under way make its next step, if it has not ended."""
        steps = self.steps
        if steps is None:
            return
        assert self.taken < MOST_STEPS, "the command does not end"
        self.taken += 1
        self._read_oplog()
        try:
            step = next(steps)
            if isinstance(step, Wait) and self.taken < MOST_WAITS:
                self._pass_time(step)
        except StopIteration as stop:
            self.steps = None
            self.reply = bson.decode(stop.value)
        self._note_written()

    def end(self) -> None:
        """Lets the command make its remaining steps. A transaction for which it waits ends after some."""
        patience = PATIENCE
        while self.steps is not None:
            self.advance()
            patience -= 1
            if patience == 0:
                self.end_claim(commits=False)

    def end_claim(self, commits: bool) -> None:
        """Ends the transaction that has written what the command writes, too; without one, nothing."""
        if self._claims:
            self._claims = False
            self.ask(end_of_claim(commits))

    def intervene(self, intervention: Intervention, name: str) -> set[int]:
        """What another client does to the collection `name`; the codes with which that was refused."""
        refused: set[int] = set()
        for command in intervention.commands(name):
            if command is DISCONNECT:
                if self.steps is not None:
                    self.steps.close()
                    self.steps = None
                    self._note_written()
                continue
            if command.get("op") == OPERATION:
                for running in self.service.operations.all():
                    self.service.operations.kill(running.opid)  # the dialect cosmos has no killOp
                continue
            codes = codes_of(self.ask(command))
            refused |= codes
            if "restoreState" in command and not codes:
                self.restored = True
                self._replay.data = {namespace: dict(held) for namespace, held in self.saved.items()}
        while self.engine.drop_some(1000):
            pass
        return refused

    # What the oplog tells

    def _read_oplog(self) -> list[Document]:
        """Applies what is new in the oplog, and returns it."""
        new: list[Document] = []
        more = True
        while more:
            records, more = records_of(self.service.oplog).scan(self._replayed_through, 1_000_000)
            if records:
                self._replayed_through = records[-1][0]
            new += [bson.decode(record[1]) for record in records]
        for document in new:
            source = document["o"].get("renameCollection") if document["op"] == "c" else None
            if source is not None and source not in self._replay.data:
                # A copy, or the result of `$out`: what is written before it has its name is not in the oplog.
                self._replay.data[source] = self.stored().get(document["o"]["to"], {})
        self._replay.apply(new)
        return new

    def _note_written(self) -> None:
        self.written += self._read_oplog()

    def stored(self) -> dict[str, dict[bytes, Document]]:
        """The documents of each collection by their encoded `_id`."""
        stored = {}
        for collection in self.service.catalog.all_collections():
            if is_logged(collection):
                decoded = [bson.decode(record[1]) for record in collection.store.scan(0, 1_000_000)[0]]
                stored[collection.namespace] = {bson.encode({"": document["_id"]}): document for document in decoded}
        return stored

    def indexes(self) -> dict[str, list[str]]:
        """The names of the indexes of each collection."""
        catalog = self.service.catalog
        return {
            collection.namespace: sorted(index.name for index in collection.indexes if index.ready)
            for collection in catalog.all_collections()
        }

    # What must hold afterwards

    def check(self) -> None:
        """Nothing is left behind, indexes and counts agree with the documents, and the oplog with both."""
        cursor = {} if self.reply is None else self.reply.get("cursor", {})
        if cursor.get("id"):
            name = cursor["ns"].partition(".")[2]
            self.ask({"killCursors": name, "cursors": [Int64(cursor["id"])]}, self.client)
        self.ask({"abortTransaction": 1, **STATEMENT, "$db": "admin"})
        while self.engine.drop_some(1000):
            pass
        service = self.service
        assert not len(service.cursors) or ("getMore" in self._command and self.reply is None), "a cursor is left"
        assert not service.operations.all(), "an operation is left"
        isolation = service.isolation
        assert isinstance(isolation, PatchIsolation)
        assert not len(service.transactions) and not isolation.claims.any, "a transaction is left"
        assert not isolation.history.open_snapshots or len(service.snapshots), "a snapshot is left"
        assert not service.exclusive and not service.fsync_locks and not service.restoring, "a lock is left"
        assert service.metrics.queued_writers == 0
        assert not any(session.busy for session in service.sessions.all()), "a session is busy"
        self._check_catalog()
        for collection in service.catalog.all_collections():
            if is_logged(collection) and self.case.dialect == "mongodb":
                found = self._succeed({"validate": collection.name, "full": True, "$db": collection.database})
                assert found["valid"] and not found["errors"], found
        assert self._replay.data == self.stored(), "the oplog tells of other documents than there are"
        assert self.log.internal_errors == 0, self.log_text.getvalue()

    def _check_catalog(self) -> None:
        """No stored data belongs to nothing, and none is missing."""
        known: set[str] = set()
        for collection in self.service.catalog.all_collections():
            if collection.number != OPLOG_NUMBER:
                assert all(index.ready for index in collection.writable_indexes), "an index is left half-built"
                known.add(collection.store.ident)
                known.update(index.ident for index in collection.writable_indexes if index.data is not None)
        found = {ident for ident in self.engine.idents() if not ident.startswith((OPLOG_IDENT, SESSIONS_IDENT))}
        assert found == known, f"stored data is left or missing: {found ^ known}"

    def check_acknowledged(self) -> None:
        """The reply counts the writes that the oplog tells of. It does not count those of a statement that has failed,
        nor the oldest documents of a collection that was made a capped one, which inserts delete."""
        assert self.reply is not None
        found: Counter[str] = Counter()
        for document in self.written:
            for operation in document["o"].get("applyOps", [document]) if document["op"] == "c" else [document]:
                found[operation["op"]] += 1
        counts = acknowledged(self.case.command, self.reply)
        if "commitTransaction" in self.case.command and not codes_of(self.reply):
            counts = self.promised
        elif "autocommit" in self.case.command:
            return  # it is written when the transaction commits
        capped = any(
            collection.options.capped
            for collection in self.service.catalog.all_collections()
            if collection.number != OPLOG_NUMBER
        )
        for kind, count in counts.items():
            exact = not codes_of(self.reply) and not (kind == "d" and capped)
            same = found[kind] == count if exact else found[kind] >= count
            assert same, f"{count} writes {kind!r} are acknowledged, {dict(found)} are in the oplog"


def acknowledged(command: Document, reply: Document) -> "Counter[str]":
    """How many inserts, updates and deletes a reply acknowledges, as the oplog calls them: i, u, d."""
    counts: Counter[str] = Counter()
    name = next(iter(command))
    if name == "insert":
        counts["i"] = reply.get("n", 0)
    elif name == "update":
        counts["i"] = len(reply.get("upserted", []))
        counts["u"] = reply.get("nModified", 0)
    elif name == "delete":
        counts["d"] = reply.get("n", 0)
    elif name == "bulkWrite":
        counts["i"] = reply.get("nInserted", 0) + reply.get("nUpserted", 0)
        counts["u"] = reply.get("nModified", 0)
        counts["d"] = reply.get("nDeleted", 0)
    elif name == "findAndModify":
        counts["d" if command.get("remove") else "u"] = reply.get("lastErrorObject", {}).get("n", 0)
    return counts


def codes_of(reply: Document) -> set[int]:
    """The codes of all errors of a reply."""
    failed = [reply, *reply.get("writeErrors", [])]
    if "nErrors" in reply:
        failed += reply["cursor"]["firstBatch"]
    return {one["code"] for one in failed if one.get("code")}


class Alone:
    """What a command does when it runs alone: how many steps it takes, and what is stored afterwards."""

    def __init__(self, case: Case, kind: str, seed: str, leaves: bool) -> None:
        running = Disturbed(case, kind, seed, leaves)
        self.leaves = leaves
        running.begin()
        running.end()
        running.check()
        running.check_acknowledged()
        assert running.reply is not None and not codes_of(running.reply), running.reply
        self.steps = running.taken
        self.stored = running.stored()
        self.indexed = running.indexes()


def disturb(case: Case, alone: Alone, intervention: Intervention, kind: str, seed: str, chance: random.Random) -> None:
    """Runs a command, of which `alone` is the run without others, and intervenes once.

    AssertionError that says when, with the error that has failed as its cause.
    """
    running = Disturbed(case, kind, seed, alone.leaves)
    step = chance.randrange(alone.steps)
    name = chance.choice(case.uses)
    commits, first = chance.random() < 0.3, chance.random() < 0.5
    when = f"after {step} of {alone.steps} steps, on {name!r}"
    allowed = set(intervention.codes | case.codes)
    try:
        if step:
            running.begin()
        while running.taken < step:
            running.advance()
        if case.waits:
            when += f", {'after' if first else 'before'} the transaction {'commits' if commits else 'aborts'}"
            if commits:
                allowed.add(ErrorCode.DuplicateKey)
        if first:
            running.end_claim(commits)
        refused = running.intervene(intervention, name)
        assert refused <= REFUSED, f"the intervention failed with {refused}"
        running.end_claim(commits)
        if step == 0:
            running.begin()
        running.end()
        running.check()
        if case.whole and intervention.ends and (running.reply is None or not running.reply["ok"]):
            # All of it may have been done before the client disconnects.
            indexes = [running.indexed] if running.reply is not None else [running.indexed, alone.indexed]
            assert running.indexes() in indexes, "it has failed, and has changed indexes"
            stored = [running.initial] if running.reply is not None else [running.initial, alone.stored]
            assert case.waits or running.stored() in stored, "it has failed, and has changed documents"
        if running.reply is not None:
            codes = codes_of(running.reply)
            assert codes <= allowed, f"the errors {codes - allowed} in {running.reply}"
            running.check_acknowledged()
            if intervention.harmless and not refused and not codes and not (case.waits and commits):
                assert running.stored() == alone.stored, "it has stored something else than alone"
        if running.restored and step and not refused:
            assert running.stored() == running.saved, "the restored state is another one than the saved"
    except Exception as error:
        raise AssertionError(when) from error


@pytest.mark.parametrize("seed", seeds("1-2"))
@pytest.mark.parametrize("kind", CHOSEN)
@pytest.mark.parametrize("name", CASES)
def test_a_command_that_others_disturb(name: str, kind: str, seed: int) -> None:
    case = CASES[name]
    chance = random.Random(f"{seed} {kind} {name}")
    alone = Alone(case, kind, f"{seed} {name}", leaves=seed % 2 == 0)
    if alone.steps < 2:
        # At few calls of the engine the seed may choose none to be left.
        assert kind == "suspending", "it takes one step: others cannot intervene"
        return
    chosen = chance.sample(list(INTERVENTIONS), CHOSEN[kind])
    failed = []
    for title in chosen:
        try:
            disturb(case, alone, INTERVENTIONS[title], kind, f"{seed} {name}", chance)
        except AssertionError as error:
            failed.append(f"{title}, {error}: {shown(error.__cause__)}")
    assert not failed, f"seed {seed}, {kind}, {name}, another client:\n" + "\n".join(failed)


def shown(cause: BaseException | None) -> str:
    """What went wrong, and where."""
    assert cause is not None
    last = traceback.extract_tb(cause.__traceback__)[-1]
    return f"{type(cause).__name__} {str(cause).splitlines()[0][:400]} ({last.name}, line {last.lineno})"
