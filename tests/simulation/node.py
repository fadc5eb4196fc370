"""One node of a simulated store: a server without sockets for clients, whose tasks are those of the real one.

    operation ── wait_socket ── PostgreSQL answers, while everything stands still ── `Pending` ── others go on
                                                                                       ▲
    the simulation chooses, by its seed, which of all pending waits ends next ─────────┘

What a wait ends with: the answer, or the loss of the connection with it. Waits of a frozen node do not end.
"""

import io
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from unittest.mock import patch

import trio
import trio.testing

from mongottl.config import ServerConfig
from mongottl.document.interrupt import UndividedGuard
from mongottl.exec.operation.refreshing import carry_out
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stack, Steps, StepTimes
from mongottl.exec.running.state import OperationState
from mongottl.exec.running.steps import Flush, Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.service.stored_clock import begin_clock
from mongottl.server.attendance import Attendance
from mongottl.server.driving import perform
from mongottl.server.durability import Durability
from mongottl.server.janitor import run_janitor
from mongottl.server.log import Log
from mongottl.server.log_follower import LogFollower
from mongottl.server.node_dispatch import NodeDispatcher
from mongottl.server.reaper import Reaper
from mongottl.storage.errors import DataDirectoryError, EngineUnavailable, WriteConflict
from mongottl.storage.nodes import NodeFacts
from mongottl.storage.postgresql import engine as engines
from mongottl.storage.postgresql import nodes as places
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.waiting import READABLE, Turn, Waiter, poll_socket
from mongottl.wire.messages import OpMsg
from tests.simulation.store import SimulatedConnection, await_answer

if TYPE_CHECKING:
    from tests.simulation.node_world import NodeWorld

T = TypeVar("T")


class NodeKilled(BaseException):
    """Ends what a node does that was killed."""


class Pending:
    """A wait: for a socket whose answer is there, or for a turn until a time. fd: -1 for a turn. until_s: in elapsed
    time."""

    def __init__(self, fd: int, until_s: float, signal: Signal, hears: bool = False) -> None:
        self.fd = fd
        self.until_s = until_s
        self.signal = signal
        self.hears = hears

    def end(self) -> None:
        """Has who waits look again."""
        if self.signal.wake is not None:
            self.signal.wake()


class _Turn(Turn):
    def __init__(self) -> None:
        self.signal = Signal()

    def notify(self) -> None:
        self.signal.notify()


class SimulatedWaiter(Waiter):
    """pending: what can end, in the order in which it was begun."""

    def __init__(self, node: "Node", world: "NodeWorld") -> None:
        self._node: Final = node
        self._world: Final = world
        self.pending: list[Pending] = []
        self.is_dead = False

    def monotonic_s(self) -> float:
        return self._world.elapsed.current_time()

    def present(self) -> Stack | None:
        return self._node.service.stacks.present if self._node.has_service else None

    def _stack(self, must_end: bool) -> Stack | None:
        """The stack that can be left now, None if the thread has to wait."""
        if self.is_dead:
            raise NodeKilled
        stack = self.present()
        if stack is None and self._node.has_service:
            self._node.service.stacks.require()
        return None if stack is None or (must_end and stack.is_abandoned) else stack

    def wait_socket(self, fd: int, events: int, until_s: float, must_end: bool = False) -> int:
        stack = self._stack(must_end)
        if not events & READABLE:
            return poll_socket(fd, events, 1.0)
        known = SimulatedConnection.by_socket.get(fd)
        hears = known is not None and known.hears
        if not hears:
            await_answer(fd)
        if stack is not None:
            self._leave(stack, Pending(fd, until_s if hears else math.inf, Signal(), hears), must_end)
        return READABLE

    def _leave(self, stack: Stack, wait: Pending, must_end: bool) -> None:
        operation = stack.operation
        state = operation if isinstance(operation, OperationState) and not must_end else None
        self.pending.append(wait)
        if state is not None:
            state.waits_for = wait.signal
        try:
            stack.leave_for_storage(Wait(math.inf, wait.signal, for_storage=True))
        except BaseException:
            if self.is_dead:
                raise NodeKilled from None
            if not must_end:
                raise
        finally:
            self.pending.remove(wait)
            if state is not None:
                state.waits_for = None
        if operation is not None and not must_end and not operation.was_ended:
            operation.check_interrupt()

    def has_input(self, fd: int) -> bool:
        known = SimulatedConnection.by_socket.get(fd)
        if known is not None and known.is_cut and not known.was_noticed:
            return False
        return poll_socket(fd, READABLE, 0.0) != 0

    def forget_socket(self, fd: int) -> None:
        SimulatedConnection.by_socket.pop(fd, None)

    def new_turn(self) -> Turn:
        return _Turn()

    def wait_turn(self, turn: Turn, until_s: float, must_end: bool = False) -> bool:
        assert isinstance(turn, _Turn)
        if not turn.signal.notified:
            stack = self._stack(False)
            if stack is None:
                return False  # at the start, where no time passes: it is looked again at once
            if must_end and stack.is_abandoned:
                raise EngineUnavailable("the operation was given up while it waited for others")
            self._leave(stack, Pending(-1, until_s, turn.signal), must_end)
        return turn.signal.notified

    def at_end_of_step(self, action: Callable[[], None]) -> None:
        if self._node.has_service:
            self._node.service.stacks.at_end_of_step(action)
        else:
            action()

    def run_aside(self, function: Callable[[], None]) -> None:
        self._node.begin(function)


class PresentGuard(UndividedGuard):
    """The guard of the node whose operation runs now: all share one thread."""

    def __init__(self, world: "NodeWorld") -> None:
        self._world = world

    def _of_present(self) -> UndividedGuard | None:
        for node in self._world.nodes:
            if node.has_service and node.service.stacks.present is not None:
                return node.guard
        return None

    def begin(self) -> None:
        guard = self._of_present()
        if guard is not None:
            guard.begin()

    def end(self) -> None:
        guard = self._of_present()
        if guard is not None:
            guard.end()


class Node:
    """place: its number among those of the simulation, for ever. is_up: whether it takes requests."""

    def __init__(self, world: "NodeWorld", place: int) -> None:
        self.world: Final = world
        self.place: Final = place
        self.has_service = False
        self.is_up = False
        self.frozen_until_s = 0.0
        self.log_text = io.StringIO()
        self.waiter = SimulatedWaiter(self, world)
        self._nursery: trio.Nursery | None = None

    @property
    def is_frozen(self) -> bool:
        return self.frozen_until_s > self.world.elapsed.current_time()

    @property
    def now_s(self) -> int:
        return self.clock.now_ms() // 1000

    @property
    def connections(self) -> list[SimulatedConnection]:
        return [each for each in SimulatedConnection.by_socket.values() if each.waiter is self.waiter]

    def open(self) -> bool:
        """Opens the store; False if others are in the way now."""
        store = self.world.store
        facts = NodeFacts("sharded", may_share=True)
        try:
            with (
                patch.object(engines, "BlockingWaiter", lambda: self.waiter),
                patch.object(places, "awake_or_not_s", self.waiter.monotonic_s),
            ):
                self.engine = PostgresEngine(Address(store.uri), store.schema, facts)
        except (DataDirectoryError, EngineUnavailable, WriteConflict):
            return False
        self.clock = self.world.new_clock()
        begin_clock(self.engine, self.clock, goes_on=True)
        self.log = Log(quiet=True, stream=self.log_text)
        config = ServerConfig(quiet=True, topology="sharded", enable_test_commands=True)
        try:
            self.service = carry_out(self.engine, partial(ServiceContext, config, self.clock, self.engine))
        except (EngineUnavailable, WriteConflict):
            self.engine.close()
            return False
        self.has_service = True
        self.service.stacks.times = StepTimes(left_after_s=math.inf, together_s=0.0)
        self.dispatcher = NodeDispatcher(self.service, self.log, self.engine.nodes)
        self.durability = Durability(self.engine, self.clock, self.log, compaction=self.service.compaction)
        self.engine.set_commit_listener(self.durability.note_commit)
        self.reaper = Reaper(self.service, self.durability, self.log)
        self.engine.wait_by(self.waiter, self.waiter.present)
        self.guard = self.engine.undivided_guard()
        self.service.hooks.run_aside = self.waiter.run_aside
        self.durability.run_operation = self.run_operation
        self.is_up = True
        return True

    async def run(self) -> None:
        """Its tasks, as `server.Server` starts them, until it is killed."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nodes = self.engine.nodes
                nodes.announce(f"node{self.place}:27017")
                attendance = Attendance(nodes, self.service, self.run_operation)
                self.reaper.refill()
                nursery.start_soon(attendance.run)
                nursery.start_soon(attendance.run_duties)
                nursery.start_soon(LogFollower(self.service, self.run_operation).run)
                nursery.start_soon(self.reaper.run)
                nursery.start_soon(self.durability.run)
                nursery.start_soon(run_janitor, self.service, self.log)
        except* NodeKilled:
            pass

    def begin(self, function: Callable[[], object]) -> None:
        """Begins an operation of nobody's."""
        if self._nursery is None:
            function()
        elif not self.waiter.is_dead:
            self._nursery.start_soon(self._run_aside, function)

    async def _run_aside(self, function: Callable[[], object]) -> None:
        await self.drive(self.service.stacks.begin(function))

    async def run_operation(self, function: Callable[[], bool]) -> bool:
        return await self.drive(self.service.stacks.begin(function))

    async def drive(self, outcome: T | Steps[T]) -> T:
        """The result of an operation that has begun."""
        if not isinstance(outcome, Steps):
            return outcome
        steps: Steps[T] = outcome
        error: EngineUnavailable | None = None
        try:
            while True:
                try:
                    step = next(steps) if error is None else steps.throw(error)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                error = None
                if isinstance(step, Wait | Flush):
                    error = await perform(step, self.durability)
                else:
                    await trio.lowlevel.checkpoint()
        finally:
            with suppress(NodeKilled):
                steps.close()

    def carry_out(self, message: OpMsg, client: ClientInfo, answer: Callable[[bytes | None], None]) -> None:
        """Begins a request. answer: is called with the reply, or None if the node is killed before it answers."""
        assert self._nursery is not None
        self._nursery.start_soon(self._carry_out, message, client, answer)

    async def _carry_out(self, message: OpMsg, client: ClientInfo, answer: Callable[[bytes | None], None]) -> None:
        reply: bytes | None = None
        try:
            reply = await self.drive(self.dispatcher.handle(message, client))
        finally:
            answer(None if self.waiter.is_dead else reply)

    def kill(self) -> None:
        """Ends it at once, wherever it is."""
        self.is_up = False
        self.waiter.is_dead = True
        connections = self.connections
        for connection in connections:
            connection.cut()
        self.world.store.await_end([connection.backend_id for connection in connections])
        for connection in connections:
            self.waiter.forget_socket(connection.fd)
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
