"""A server without sockets in which several clients' commands run interleaved, step by step, under a seeded scheduler.

Each turn one thing happens: a client sends its next command, a command under way or the reaper makes one step, the
clock jumps, the disk answers, the server crashes, or the power is cut, and it is started again with the files that are
left. Clients are generators that yield requests and are sent the replies; they check these themselves (`clients.py`).

The flusher (`Durability`) and the janitor are the server's own tasks. They run in trio under a MockClock, to the point
where they wait, at the end of each turn; elapsed time passes between turns only.
"""

import functools
import io
import math
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import bson
import trio
import trio.testing
from bson import Timestamp

from mongottl.catalog.collection import Collection
from mongottl.catalog.entries import OPLOG_IDENT, SESSIONS_IDENT
from mongottl.clock import Clock, VirtualClock
from mongottl.config import ServerConfig
from mongottl.document.interrupt import may_leave
from mongottl.errors import ErrorCode
from mongottl.exec.operation.transaction_unit import abort_expired
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Stacks, Steps, StepTimes
from mongottl.exec.running.steps import Flush
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.transactions import TRANSACTION_LIFETIME_S
from mongottl.exec.write.expiry import count_expired, reap_due, refill_wheel
from mongottl.oplog.change import is_logged
from mongottl.oplog.log import OPLOG_NUMBER
from mongottl.server.dispatch import Dispatcher
from mongottl.server.durability import Durability
from mongottl.server.janitor import run_janitor
from mongottl.server.log import Log
from mongottl.server.message_traits import may_write
from mongottl.storage.data_folder import DATABASE_NAME
from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.snapshot.claims import Claims
from mongottl.storage.snapshot.isolation import PatchIsolation
from mongottl.storage.sqlite.directory import open_data_directory
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.stores import KeyRange
from mongottl.ttl.policy import NO_TTL, is_expired
from mongottl.wire.messages import OpMsg
from tests.oplog_replay import Replay, records_of
from tests.simulation.disk import Disk
from tests.simulation.faults import FaultyEngine
from tests.steps import run_to_end
from tests.suspending import SuspendingEngine

Document: TypeAlias = dict[str, Any]
START_MS = 4_102_444_800_000
# So that the log is copied and ended now and then in a short simulation.
CHECKPOINT_BYTES = 60_000
LONG_LOG_BYTES = 120_000
# From so much unused space of the database file on it is given back.
RECLAIMED_BYTES = 4096
# Turns for which a server continues after its disk has failed.
TURNS_WITHOUT_DISK = 30
# Of calls of the engine that are left before they are answered, and after.
LEFT_RATES = (0.02, 0.1, 0.4)
# Of the checks of evaluations, those at which they are left.
MIDWAY_RATES = (0.0, 0.003, 0.03)
# Elapsed time of one turn, in seconds.
USUAL_PAUSES_S = (0.0, 0.001, 0.01, 0.03)
LONG_PAUSES_S = (1.0, 61.0, 400.0, 700.0, 2000.0)


class ElapsedTime(Clock):
    """Elapsed time as trio's clock has it; wall time is not asked of it."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return START_MS

    def monotonic_s(self) -> float:
        return self._clock.current_time()


class Request:
    """A command, and when it was under way: turns `started` to `ended`.

    instants: the seconds that the clock showed meanwhile, by any of which it may have judged and written. started_s:
    elapsed time. reply: None until there is one. may_be_given_up: whether its client may send it once more before that.
    """

    may_be_given_up = False

    def __init__(self, command: Document, database: str = "sim") -> None:
        self.command = command
        self.database = database
        self.started = 0
        self.ended = 0
        self.started_s = 0.0
        self.instants: set[int] = set()
        self.reply: Document | None = None
        self.message: OpMsg | None = None
        self.steps: Steps[bytes] | None = None

    def begin(self, turn: int, now_s: int) -> None:
        """It is being sent."""
        self.started = turn
        self.instants = {now_s}

    def note_instant(self, now_s: int) -> None:
        """The clock was moved while it is under way."""
        self.instants.add(now_s)


def _as_told(reply: Document) -> Document:
    """A reply as the clients of simulations take it.

    One whose writeConcernError says that nobody knows whether the write is durable is to them the error of a write with
    `j: true` that failed, after which it may be there or not.
    """
    if reply.get("writeConcernError", {}).get("code") == ErrorCode.WriteConcernFailed:
        return {"ok": 0.0, "code": int(ErrorCode.OperationFailed), "errmsg": reply["writeConcernError"]["errmsg"]}
    return reply


# A client: yields a request and is sent the reply, or None if the server crashed before it answered.
Client: TypeAlias = Generator[Request, Document | None, None]


class Seat:
    """A client with its next request. busy: whether that has been sent.

    flushing: its command waits for the disk. error: what that wait ended with, for the command to answer.
    """

    def __init__(self, number: int, client: Client) -> None:
        self.info = ClientInfo(number, "localhost:27017", f"localhost:{number}")
        self.client = client
        self.request = next(client)
        self.busy = False
        self.flushing = False
        self.error: EngineUnavailable | None = None


class World:
    """folder: for the files of the SQLite engine, which survives crashes; None takes the memory engine.

    elapsed: the clock of the trio run in which this is made; it must only be moved here. suspends: whether operations
    are left at calls of the engine.
    """

    def __init__(
        self,
        generator: random.Random,
        folder: Path | None,
        failure_rate: float,
        elapsed: trio.testing.MockClock,
        nursery: trio.Nursery,
        suspends: bool = False,
    ) -> None:
        self.random = generator
        self._suspends = suspends
        self.left: Counter[str] = Counter()
        # How many evaluations were left, those in transactions and others.
        self.midway: Counter[bool] = Counter()
        self._midway_rate = 0.0
        # How often clients were answered in the middle of a unit of work, and who asks there.
        self.apart = 0
        self._bystander = ClientInfo(0, "localhost:27017", "localhost:0")
        self.turn = 0
        self.elapsed = elapsed
        self.clock = VirtualClock(ElapsedTime(elapsed))
        self.disk = Disk(generator)
        self._outer_nursery = nursery
        self._reader: sqlite3.Connection | None = None
        # The tasks of the server that runs now.
        self._tasks: trio.Nursery | None = None
        self._turns_left = TURNS_WITHOUT_DISK
        self.clock.freeze()
        self.clock.set_wall(START_MS)
        self.folder = folder
        self._failure_rate = failure_rate
        self._homes = 0
        self.seats: list[Seat] = []
        # What was under way when the server was killed. It is kept, because what is forgotten is closed, and then runs.
        self._killed: list[Steps[bytes]] = []
        self._background: Steps[Any] | None = None
        self._refilled = False
        # What the oplog has described up to its latest record that a check has read, and that record's cluster time.
        self._replay = Replay()
        self._replayed_through = 0
        self._replayed_ts = Timestamp(0, 0)
        # Called whenever a new instant begins to count.
        self.aged: Callable[[set[int]], None] = lambda instants: None
        # Called when a power cut has lost what was written since the turn of the durable files.
        self.lost: Callable[[int], None] = lambda turn: None
        # Called now and then, to compare what is stored with what may be.
        self.compared: Callable[[], None] = lambda: None
        self.log_text = io.StringIO()
        self.crashes = 0
        self.power_cuts = 0
        self.disk_failures = 0
        self.reclaimed = 0
        self.held = 0
        self.failures = 0
        self._open()

    # The server

    def _open(self) -> None:
        inner: StorageEngine
        data_dir: str | None = None
        if self.folder is None:
            inner = open_engine("memory:")
        else:
            home = self.folder / f"home{self._homes}"
            data_dir = str(home)
            self.disk.open(home)
            directory = open_data_directory(str(home))
            inner = SqliteEngine(directory, CHECKPOINT_BYTES, LONG_LOG_BYTES, self.disk.sync)
        self.engine = FaultyEngine(inner, self.random, self._failure_rate)
        engine: StorageEngine = self.engine
        if self._suspends:
            engine = SuspendingEngine(self.engine, self.random, self.random.choice(LEFT_RATES))
        self.service = ServiceContext(ServerConfig(quiet=True, data_dir=data_dir), self.clock, engine)
        if isinstance(engine, SuspendingEngine):
            engine.suspension.stacks = self.service.stacks
            engine.suspension.left = self.left
        self.log = Log(quiet=True, stream=self.log_text)
        self.dispatcher = Dispatcher(self.service, self.log)
        self._midway_rate = self.random.choice(MIDWAY_RATES)
        stacks = self.service.stacks
        stacks.times = StepTimes(left_after_s=0.0 if self._midway_rate else math.inf, together_s=0.0)
        stacks.check = functools.partial(self._check, stacks)
        stacks.answer_apart = self._answer_apart
        self.durability = Durability(self.engine, self.clock, self.log, self.disk.run_blocking, self.service.compaction)
        self.service.compaction.turn_on(RECLAIMED_BYTES, False)
        self.engine.set_commit_listener(self.durability.note_commit)
        self._outer_nursery.start_soon(self._run_tasks)
        self._background = None
        self._refilled = False
        self._forget_replay()
        self.check_catalog()
        self.check_oplog()
        self.engine.armed = True

    def _check(self, stacks: Stacks) -> None:
        """The check of evaluations: they are left at some of those by which they may be."""
        stack = stacks.present
        if stack is None or (self._midway_rate and self.random.random() < self._midway_rate):
            if stack is not None and stack.operation is not None and may_leave():
                self.midway[stack.operation.reads_past()] += 1
            stacks.check_present()

    def _answer_apart(self) -> None:
        """Has another client ask in the middle of a unit of work: its answer comes at once, and asks no engine."""
        self.apart += 1
        command = {("ping", "hello")[self.apart % 2]: 1, "$db": "admin"}
        self.engine.is_apart = True
        reply = run_to_end(self.dispatcher.handle(OpMsg(0, 0, 0, bson.encode(command), []), self._bystander))
        self.engine.is_apart = False
        assert bson.decode(reply)["ok"] == 1.0

    async def _run_tasks(self) -> None:
        """The server's tasks, until it ends."""
        async with trio.open_nursery() as tasks:
            self._tasks = tasks
            tasks.start_soon(self.durability.run)
            tasks.start_soon(run_janitor, self.service, self.log)
            await trio.sleep_forever()

    async def _flush(self, seat: Seat) -> None:
        """What a connection does for a command that waits for the disk."""
        try:
            await self.durability.flush()
        except EngineUnavailable as error:
            seat.error = error
        seat.flushing = False

    def seat(self, client: Client) -> Seat:
        """Gives a client a place; it begins at the next turn."""
        seat = Seat(len(self.seats) + 1, client)
        self.seats.append(seat)
        return seat

    @property
    def now_s(self) -> int:
        return self.clock.now_ms() // 1000

    def instants(self) -> set[int]:
        """Every instant that something under way goes by."""
        return {self.now_s}.union(*(seat.request.instants for seat in self.seats if seat.busy))

    async def run(self, turns: int) -> None:
        for _ in range(turns):
            await self.take_turn()
            if self.turn % 64 == 0:
                self.check_everything()
            if self.turn % 100 == 0:
                self.check_purge()

    async def take_turn(self) -> None:
        self._begin_turn()
        dice = self.random.random()
        if dice < 0.02:
            self._move_clock()
        elif (dice < 0.025 and self.folder is not None) or self._turns_left == 0:
            await self._crash()
        elif dice < 0.11:
            self._background_step()
        elif dice < 0.115:
            self.service.expiry.is_enabled = not self.service.expiry.is_enabled
        elif dice < 0.17:
            self._answer_of_disk()
        elif dice < 0.174 and self.folder is not None:
            self._read_beside()
        else:
            self.step(self.random.choice(self.seats))
        await self._end_turn(self.random.choice(LONG_PAUSES_S if dice > 0.99 else USUAL_PAUSES_S))
        if self.engine.failed:
            self._turns_left -= 1

    def _begin_turn(self) -> None:
        self.turn += 1
        self.disk.turn = self.turn

    async def _end_turn(self, pause_s: float) -> None:
        """Lets elapsed time pass, and runs the server's tasks until they wait again."""
        self.elapsed.jump(pause_s)
        await trio.testing.wait_all_tasks_blocked()
        assert self.log.internal_errors == 0, self.log_text.getvalue()

    def _read_beside(self) -> None:
        """Begins or ends a read of the database, as a backup makes it: meanwhile its log cannot be copied to the end,
        and writers are held when it has grown long."""
        assert self.folder is not None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
            return
        self._reader = sqlite3.connect(self.folder / f"home{self._homes}" / DATABASE_NAME, isolation_level=None)
        self._reader.execute("BEGIN")
        self._reader.execute("SELECT count(*) FROM stores").fetchone()

    def _answer_of_disk(self) -> None:
        """Ends one of the waits for the disk; if storage fails in this simulation, now and then by an error."""
        if self.disk.waiting and self.engine.armed and self.random.random() < 3 * self._failure_rate:
            self.disk_failures += 1
            self.disk.answer(OSError(5, "simulated: input/output error"))
        else:
            self.disk.answer()

    def _move_clock(self) -> None:
        jump = self.random.choice([0.3, 1, 1, 1, 2, 5, 20, 100, -1, -3, -30, 86400 * 400, -86400 * 400])
        if self.clock.now_ms() + jump * 1000 < START_MS:
            jump = 1
        self.clock.advance(jump)
        for seat in self.seats:
            if seat.busy:
                seat.request.note_instant(self.now_s)
        self.aged(self.instants())

    def _background_step(self) -> None:
        """A step of the refill after start, of a purge under way, or of a new purge."""
        if self.durability.holds_writers:
            return  # as the server's reaper does
        if self._background is None:
            self._begin_background()
        try:
            if self._background is not None:
                next(self._background)
        except StopIteration:
            self._background = None
            self._refilled = True
        except (EngineUnavailable, WriteConflict):
            self._background = None  # the server's reaper begins again after a rest, with the refill if it was not done

    def _begin_background(self) -> None:
        """Begins a purge, or the refill of the wheel if that was not done."""
        work = reap_due if self._refilled else refill_wheel
        try:
            outcome = self.service.stacks.begin(lambda: work(self.service))
        except (EngineUnavailable, WriteConflict):
            return
        if isinstance(outcome, Steps):
            self._background = outcome
        else:
            self._refilled = True

    def step(self, seat: Seat) -> None:
        request = seat.request
        if seat.flushing:
            return
        if request.message is None:
            body = bson.encode({**request.command, "$db": request.database})
            request.message = OpMsg(self.turn, 0, 0, body, [])
        if self.durability.holds_writers and may_write(request.message):
            self.held += 1
            return  # as the server's connections do
        if not seat.busy:
            seat.busy = True
            request.started_s = self.clock.monotonic_s()
            request.begin(self.turn, self.now_s)
            outcome = self.dispatcher.handle(request.message, seat.info)
            if isinstance(outcome, bytes):
                self._answer(seat, outcome)
                return
            # As in the server, the first step follows at once.
            request.steps = outcome
        assert request.steps is not None
        try:
            error, seat.error = seat.error, None
            step = next(request.steps) if error is None else request.steps.throw(error)
            if isinstance(step, Flush):
                assert self._tasks is not None
                seat.flushing = True
                self._tasks.start_soon(self._flush, seat)
        except StopIteration as stop:
            self._answer(seat, stop.value)

    def ask(self, command: Document, database: str = "sim") -> Document:
        """The reply to a command of nobody's that runs alone."""
        message = OpMsg(self.turn, 0, 0, bson.encode({**command, "$db": database}), [])
        outcome = self.dispatcher.handle(message, ClientInfo(0, "localhost:27017", "localhost:0"))
        reply: Document = bson.decode(outcome if isinstance(outcome, bytes) else run_to_end(outcome))
        return reply

    def _answer(self, seat: Seat, reply: bytes | None) -> None:
        """Gives a client its reply, or None: it was lost."""
        seat.request.ended = self.turn
        seat.request.reply = None if reply is None else _as_told(bson.decode(reply))
        seat.busy = False
        seat.request = seat.client.send(seat.request.reply)

    async def _crash(self) -> None:
        """Ends the server and starts another one: by a regular stop, with the files as they are now, as after kill -9,
        or with what a power cut leaves of them. After a failure of the disk always the last."""
        assert self.folder is not None
        clean = self.random.random() < 0.3
        power_cut = not clean and self.random.random() < 0.5
        if self.engine.failed:
            clean, power_cut = False, True
        self._turns_left = TURNS_WITHOUT_DISK
        self.crashes += 1
        self.failures += self.engine.failures
        self.reclaimed += self.engine.inner.statistics().get("reclaimed_bytes", 0)
        self.engine.armed = False
        if self._reader is not None:
            self._read_beside()
        home = self.folder / f"home{self._homes}"
        self._homes += 1
        if clean:
            for seat in self.seats:
                if seat.busy and seat.request.steps is not None:
                    seat.request.steps.close()
            while self.disk.waiting:
                self.disk.answer()
            await self._end_tasks()
            self.service.cursors.close_all()
            self.engine.close()
            self.disk.note_durable()
            home.rename(self.folder / f"home{self._homes}")
        else:
            if power_cut:
                self.power_cuts += 1
                self.disk.cut_power(self.folder / f"home{self._homes}")
                lost_since = self.disk.durable_turn
            else:
                shutil.copytree(home, self.folder / f"home{self._homes}")
            self.disk.abandon()
            await self._end_tasks()
            self._killed += [seat.request.steps for seat in self.seats if seat.request.steps is not None]
            self.engine.inner.close()
            shutil.rmtree(home)
        self._open()
        await trio.testing.wait_all_tasks_blocked()
        if power_cut:
            self.lost(lost_since)
        for seat in self.seats:
            seat.flushing = False
            seat.error = None
            # What a client was about to send may follow from what the power cut has lost.
            if seat.busy or power_cut:
                self._answer(seat, None)
        self.aged(self.instants())
        self.engine.armed = False
        self.compared()
        self.engine.armed = True

    async def _end_tasks(self) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

    # The end

    async def settle(self) -> None:
        """Without further failures or commands: everything under way ends, then all that is due is purged."""
        self.engine.armed = False
        self.service.expiry.is_enabled = True
        if self._reader is not None:
            self._read_beside()
        if self.engine.failed:
            await self._crash()
            self.engine.armed = False
        self.elapsed.jump(TRANSACTION_LIFETIME_S + 1)  # writes that wait for transactions go on
        while busy := [seat for seat in self.seats if seat.busy]:
            for seat in busy:  # in turn: one may wait for another
                self._begin_turn()
                self.step(seat)
                self.disk.answer()
                await self._end_turn(0.01)
        while self.disk.waiting:
            self.disk.answer()
            await self._end_turn(0.0)
        self.elapsed.jump(TRANSACTION_LIFETIME_S + 1)
        abort_expired(self.service)
        assert not len(self.service.transactions) and not self.claims.any
        self.check_purge()
        self.clock.advance(3_000_000_000)
        self.aged(self.instants())
        self.check_purge()
        self._forget_replay()
        self.check_everything()
        assert self.log.internal_errors == 0, self.log_text.getvalue()
        self.failures += self.engine.failures
        self.reclaimed += self.engine.inner.statistics().get("reclaimed_bytes", 0)
        await self._end_tasks()

    # What must hold at any time

    @property
    def claims(self) -> Claims:
        isolation = self.service.isolation
        assert isinstance(isolation, PatchIsolation)
        return isolation.claims

    def check_everything(self) -> None:
        """Indexes and records agree exactly; counters are exact; memory and the stored catalog agree."""
        armed = self.engine.armed
        self.engine.armed = False
        for collection in self.service.catalog.all_collections():
            if collection.number == OPLOG_NUMBER:
                continue  # `check_oplog`
            records = collection.store.scan(0, 1_000_000)[0]
            assert collection.store.count() == len(records)
            assert collection.store.size_bytes() == sum(len(record[1]) for record in records)
            for index in collection.writable_indexes:
                assert index.data is not None
                expected = sorted(
                    (key, record[0])
                    for record in records
                    if index.covers_record(record[0])
                    for key in index.keys_of(record[1])
                )
                found = index.data.scan(KeyRange(b"", b"\xff" * 9), None, 1_000_000)[0]
                assert found == expected, f"{collection.namespace}.{index.name} does not agree with the records"
                if index.data.unique:
                    assert len({key for key, _ in found}) == len(found), f"{index.name} holds a key twice"
        self.check_catalog()
        self.check_oplog()
        self.compared()
        self.engine.armed = armed

    def check_purge(self) -> None:
        """A purge that nothing disturbs leaves nothing behind that is expired: the wheel has forgotten nothing."""
        if self.engine.failed or self.durability.holds_writers or self.service.expiry.arming:
            return
        armed, enabled = self.engine.armed, self.service.expiry.is_enabled
        self.engine.armed, self.service.expiry.is_enabled = False, True
        while self._background is not None or not self._refilled:
            self._background_step()
        reap_due(self.service)
        for collection in self.service.catalog.all_collections():
            left = count_expired(self.service, [collection], lambda: None)
            left -= self._expired_claimed(collection)
            assert left == 0, f"{left} expired documents of {collection.namespace} were forgotten by the wheel"
        self.engine.armed, self.service.expiry.is_enabled = armed, enabled

    def _expired_claimed(self, collection: Collection) -> int:
        """How many expired documents the reaper leaves, because open transactions have written them."""
        claims = self.claims
        if not claims.any:
            return 0
        default_s = collection.default_ttl_s
        return sum(
            claims.record_owner(collection.store.ident, record[0]) is not None
            and default_s != NO_TTL
            and is_expired(record[2], record[3], default_s, self.now_s)
            for record in collection.store.scan(0, 1_000_000)[0]
        )

    def check_catalog(self) -> None:
        """What is stored of each collection is what memory says, and there is no data that belongs to nothing."""
        stored = {key: entry for key, entry in self.engine.catalog_entries() if key.isdigit()}
        collections = {str(c.number): c for c in self.service.catalog.all_collections() if c.number != OPLOG_NUMBER}
        assert stored.keys() == collections.keys()
        idents: set[str] = set() if self.folder is None else {SESSIONS_IDENT}
        for number, collection in collections.items():
            assert stored[number] == collection.entry_document(), f"{collection.namespace} is stored otherwise"
            idents.add(collection.store.ident)
            idents.update(index.ident for index in collection.writable_indexes)
        for transaction in self.service.transactions.open():
            for created in transaction.pending.values():
                idents.add(created.store.ident)
                idents.update(index.ident for index in created.writable_indexes)
        unknown = {ident for ident in self.engine.idents() if not ident.startswith(OPLOG_IDENT)} - idents
        assert idents <= set(self.engine.idents())
        # Half-built indexes and collections of aborted transactions that failing storage could not drop wait for the
        # next start.
        assert not unknown or self.engine.failures or self.engine.failed, f"nobody knows {unknown}"

    def check_oplog(self) -> None:
        """The oplog tells of all that is stored: each write once, in its order, and none that was rolled back.

        What was applied at the last check is not read again while the same server runs.
        """
        stored_oplog = records_of(self.service.oplog)
        more = True
        while more:
            records, more = stored_oplog.scan(self._replayed_through, 10_000_000)
            documents = [bson.decode(record[1]) for record in records]
            for document in documents:
                assert self._replayed_ts < document["ts"], f"{document} is not after {self._replayed_ts}"
                self._replayed_ts = document["ts"]
            if records:
                self._replayed_through = records[-1][0]
            self._replay.apply(documents)
        unmet = set(self._replay.data)
        for collection in self.service.catalog.all_collections():
            if is_logged(collection):
                unmet.remove(collection.namespace)
                stored = [_decode(record[1]) for record in collection.store.scan(0, 10_000_000)[0]]
                assert self._replay.data[collection.namespace] == dict(stored)
                assert collection.store.count() == len(self._replay.data[collection.namespace])
        assert not unmet

    def _forget_replay(self) -> None:
        """The next check of the oplog begins at its first entry."""
        self._replay = Replay()
        self._replayed_through = 0
        self._replayed_ts = Timestamp(0, 0)


@functools.lru_cache(maxsize=20_000)
def _decode(document: bytes) -> tuple[bytes, Document]:
    """A document with its encoded `_id`, not to be changed. Most documents are met again at the next check."""
    decoded = bson.decode(document)
    return bson.encode({"": decoded["_id"]}), decoded
