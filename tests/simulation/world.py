"""A server without sockets in which several clients' commands run interleaved, step by step, under a seeded scheduler.

Each turn one thing happens: a client sends its next command, a command under way or the reaper makes one step, the
clock jumps, the server crashes and is opened again on the files as they lay there. Clients are generators that yield
requests and are sent the replies; what they expect is their own business (`clients.py`).
"""

import io
import random
import shutil
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import bson

import mongottl.storage  # noqa: F401 (registers the engines)
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.operation.client import ClientInfo
from mongottl.exec.operation.service import ServiceContext
from mongottl.exec.operation.steps import Flush, Steps, run_to_end
from mongottl.exec.write.expiry import count_expired, reap_due, refill_wheel
from mongottl.server.dispatch import Dispatcher
from mongottl.server.log import Log
from mongottl.storage.interface import EngineUnavailable, StorageEngine, WriteConflict, open_storage_engine
from mongottl.wire.messages import OpMsg
from tests.simulation.faults import FaultyEngine

Document: TypeAlias = dict[str, Any]
START_MS = 4_102_444_800_000


class Request:
    """A command, and when it was under way: turns `started` to `ended`, by the instant `now_s`."""

    def __init__(self, command: Document, database: str = "sim") -> None:
        self.command = command
        self.database = database
        self.started = 0
        self.ended = 0
        self.now_s = 0
        self.steps: Steps[bytes] | None = None

    def begin(self, turn: int, now_s: int) -> None:
        """It is being sent."""
        self.started = turn
        self.now_s = now_s

    def note_instant(self, now_s: int) -> None:
        """The clock was moved while it is under way."""


# A client: yields a request and is sent the reply, or None if the server crashed before it answered.
Client: TypeAlias = Generator[Request, Document | None, None]


class Seat:
    """A client's place: itself, what it wants to send next, and whether that has been sent."""

    def __init__(self, number: int, client: Client) -> None:
        self.info = ClientInfo(number, "localhost:27017", f"localhost:{number}")
        self.client = client
        self.request = next(client)
        self.busy = False


class World:
    """folder: for the files of the SQLite engine, which survives crashes; None takes the memory engine."""

    def __init__(self, generator: random.Random, folder: Path | None, failure_rate: float) -> None:
        self.random = generator
        self.turn = 0
        self.clock = VirtualClock()
        self.clock.freeze()
        self.clock.set_wall(START_MS)
        self.folder = folder
        self._failure_rate = failure_rate
        self._homes = 0
        self.seats: list[Seat] = []
        self._background: Steps[Any] | None = None
        self._refilled = False
        # Called whenever a new instant begins to count.
        self.aged: Callable[[set[int]], None] = lambda instants: None
        self.log_text = io.StringIO()
        self.crashes = 0
        self.failures = 0
        self._open()

    # The server

    def _open(self) -> None:
        home = None if self.folder is None else str(self.folder / f"home{self._homes}")
        inner: StorageEngine = open_storage_engine("memory" if home is None else "sqlite", home)
        self.engine = FaultyEngine(inner, self.random, self._failure_rate)
        self.service = ServiceContext(ServerConfig(quiet=True), self.clock, self.engine)
        self.log = Log(quiet=True, stream=self.log_text)
        self.dispatcher = Dispatcher(self.service, self.log)
        self._background = refill_wheel(self.service)
        self._refilled = False
        self.check_catalog()
        self.engine.armed = True

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
        return {self.now_s} | {seat.request.now_s for seat in self.seats if seat.busy}

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.take_turn()
            if self.turn % 64 == 0:
                self.check_everything()
            if self.turn % 100 == 0:
                self.check_purge()

    def take_turn(self) -> None:
        self.turn += 1
        dice = self.random.random()
        if dice < 0.02:
            self._move_clock()
        elif dice < 0.025 and self.folder is not None:
            self._crash(clean=self.random.random() < 0.3)
        elif dice < 0.12:
            self._background_step()
        elif dice < 0.125:
            self.service.ttl_monitor_enabled = not self.service.ttl_monitor_enabled
        else:
            self.step(self.random.choice(self.seats))
        assert self.log.internal_errors == 0, self.log_text.getvalue()

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
        if self.random.random() < 0.1:
            with suppress(EngineUnavailable):
                self.engine.drop_some(50)
        if self._background is None:
            self._background = reap_due(self.service)
        try:
            next(self._background)
        except StopIteration:
            self._background = None
            self._refilled = True
        except (EngineUnavailable, WriteConflict):
            # The server's reaper begins again after a rest, with the refill if that was not done.
            self._background = None if self._refilled else refill_wheel(self.service)

    def step(self, seat: Seat) -> None:
        request = seat.request
        if not seat.busy:
            seat.busy = True
            request.begin(self.turn, self.now_s)
            body = bson.encode({**request.command, "$db": request.database})
            outcome = self.dispatcher.handle(OpMsg(self.turn, 0, 0, body, []), seat.info)
            if isinstance(outcome, bytes):
                self._answer(seat, outcome)
                return
            # As in the server, the first step follows at once.
            request.steps = outcome
        assert request.steps is not None
        try:
            step = next(request.steps)
            if isinstance(step, Flush):
                try:
                    self.engine.flush()
                except EngineUnavailable as error:
                    request.steps.throw(error)
        except StopIteration as stop:
            self._answer(seat, stop.value)

    def _answer(self, seat: Seat, reply: bytes | None) -> None:
        """Gives a client its reply, or None: it was lost."""
        seat.request.ended = self.turn
        seat.busy = False
        seat.request = seat.client.send(None if reply is None else bson.decode(reply))

    def _crash(self, clean: bool) -> None:
        """Stops, or goes on with the files as they are now, as after kill -9."""
        assert self.folder is not None
        self.crashes += 1
        self.failures += self.engine.failures
        self.engine.armed = False
        home = self.folder / f"home{self._homes}"
        self._homes += 1
        if clean:
            for seat in self.seats:
                if seat.busy and seat.request.steps is not None:
                    seat.request.steps.close()
            self.service.cursors.close_all()
            self.engine.close()
            home.rename(self.folder / f"home{self._homes}")
        else:
            shutil.copytree(home, self.folder / f"home{self._homes}")
            self.engine.inner.close()
            shutil.rmtree(home)
        self._open()
        for seat in self.seats:
            if seat.busy:
                self._answer(seat, None)
        self.aged(self.instants())

    # The end

    def settle(self) -> None:
        """Without further failures or commands: everything under way ends, then all that is due is purged."""
        self.engine.armed = False
        self.service.ttl_monitor_enabled = True
        while busy := [seat for seat in self.seats if seat.busy]:
            for seat in busy:  # in turn: one may wait for another
                self.turn += 1
                self.step(seat)
        self.check_purge()
        self.clock.advance(3_000_000_000)
        self.aged(self.instants())
        self.check_purge()
        self.check_everything()
        assert self.log.internal_errors == 0, self.log_text.getvalue()
        self.failures += self.engine.failures

    # What must hold at any time

    def check_everything(self) -> None:
        """Indexes and records agree exactly; counters are exact; memory and the stored catalog agree."""
        armed = self.engine.armed
        self.engine.armed = False
        for collection in self.service.catalog.all_collections():
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
                found = index.data.scan(b"", b"\xff" * 9, None, 1_000_000)
                assert found == expected, f"{collection.namespace}.{index.name} does not agree with the records"
                if index.data.unique:
                    assert len({key for key, _ in found}) == len(found), f"{index.name} holds a key twice"
        self.check_catalog()
        self.engine.armed = armed

    def check_purge(self) -> None:
        """A purge that nothing disturbs leaves nothing behind that is expired: the wheel has forgotten nothing."""
        armed, enabled = self.engine.armed, self.service.ttl_monitor_enabled
        self.engine.armed, self.service.ttl_monitor_enabled = False, True
        while self._background is not None:
            self._background_step()
        run_to_end(reap_due(self.service))
        for collection in self.service.catalog.all_collections():
            left = count_expired(collection.store, collection, self.now_s)
            assert left == 0, f"{left} expired documents of {collection.namespace} were forgotten by the wheel"
        self.engine.armed, self.service.ttl_monitor_enabled = armed, enabled

    def check_catalog(self) -> None:
        """What is stored of each collection is what memory says, and there is no data that belongs to nothing."""
        stored = dict(self.engine.catalog_entries())
        collections = {str(c.number): c for c in self.service.catalog.all_collections()}
        assert stored.keys() == collections.keys()
        idents: set[str] = set()
        for number, collection in collections.items():
            assert stored[number] == collection.entry_document(), f"{collection.namespace} is stored otherwise"
            idents.add(collection.store.ident)
            idents.update(index.ident for index in collection.writable_indexes)
        unknown = set(self.engine.idents()) - idents
        assert idents <= set(self.engine.idents())
        # Half-built indexes that failing storage could not drop wait for the next start.
        assert not unknown or self.engine.failures, f"nobody knows {unknown}"
