"""Three nodes on one store, in one thread: what goes on next, and what fails, is decided by a seeded generator.

Each turn one thing happens: a client sends a request to a node, a wait of some node ends (`node`), or something fails:

    lost     a connection of a node to PostgreSQL, unused or in the middle of a transaction, noticed or not
    unheard  the same, when PostgreSQL has carried out what was sent and the node has not read the answer
    frozen   a node does not go on for seconds, so that its place may be lost meanwhile
    killed   a node ends wherever it is; a new one takes its place later
    hasty    a client does not wait for the reply to a retryable write, and sends it to another node
    late     all stand still for seconds

Time passes between turns only: for all nodes, and for PostgreSQL. Not simulated: clocks that go at different speeds,
answers of PostgreSQL out of the order in which it was asked, statements that wait for a lock and get it, messages of
nodes to each other, and how soon a node hears of a change.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import bson
import trio
import trio.testing

from mongottl.clock import VirtualClock
from mongottl.errors import ErrorCode
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.sessions import SESSION_TIMEOUT_S
from mongottl.exec.sessions.transactions import TRANSACTION_LIFETIME_S
from mongottl.wire.messages import OpMsg
from tests.simulation.node import Node, Pending
from tests.simulation.store import SimulatedConnection, SimulatedStore
from tests.simulation.world import START_MS, Client, ElapsedTime, Request

Document: TypeAlias = dict[str, Any]
# What was sent, failed and was answered, by turns.
History: TypeAlias = list[tuple[int, str, object]]
NODES = 3
# Elapsed time of one turn, in seconds: usually, while a node is frozen, and when all stand still.
USUAL_PAUSES_S = (0.0, 0.0, 0.0, 0.003, 0.01)
FROZEN_PAUSES_S = (0.0, 0.0, 0.0, 0.1, 0.3)
LONG_PAUSES_S = (0.5, 1.5, 2.8, 3.2, 7.0)
FREEZES_S = (0.3, 1.0, 2.5, 3.5, 6.0)
# A node hears of a change of the catalog in one of so many turns.
HEARD_IN = 3
FAULTS = ("lost", "unheard", "frozen", "killed", "hasty", "late")
# Of turns in which something fails.
FAULT_RATE = 0.02
# Turns in which all must have come to its end after the last fault.
SETTLING_TURNS = 20_000


class Seat:
    """A client with its next request. node: to which it was sent; None while it is not under way."""

    def __init__(self, number: int, client: Client) -> None:
        self.info = ClientInfo(number, "localhost:27017", f"localhost:{number}")
        self.client = client
        self.request = next(client)
        self.node: Node | None = None
        self.replies: list[bytes | None] = []
        # The latest cluster time that the client has been told, which drivers send with each request.
        self.gossip: Document = {}


class NodeWorld:
    """What clients ask of a `World`, it has, too.

    faults: what may fail, of FAULTS. elapsed: the clock of the trio run in which this is made.
    """

    def __init__(
        self,
        generator: random.Random,
        store: SimulatedStore,
        elapsed: trio.testing.MockClock,
        nursery: trio.Nursery,
        faults: tuple[str, ...],
    ) -> None:
        self.random = generator
        self.store = store
        self.elapsed = elapsed
        self.faults = faults
        self._nursery = nursery
        self.turn = 0
        self.happened: Counter[str] = Counter()
        # How often what nodes know has been lost: with those that were killed.
        self.crashes = 0
        self.power_cuts = 0
        self.seats: list[Seat] = []
        self.aged: Callable[[set[int]], None] = lambda instants: None
        self.lost: Callable[[int], None] = lambda turn: None
        self.compared: Callable[[], None] = lambda: None
        self.history: History = []
        self._instants: set[int] = set()
        # By cursors and transactions: to which node they belong.
        self._nodes_of: dict[object, int] = {}
        # Whether clients send requests.
        self._sends = False
        self._stored_time_s = -1.0
        self.nodes: list[Node] = []
        self._set_store_time()
        for place in range(NODES):
            node = Node(self, place)
            self.nodes.append(node)
            assert node.open()
            self._nursery.start_soon(node.run)

    async def begin(self) -> None:
        """Has the nodes begin, which are open."""
        await trio.testing.wait_all_tasks_blocked()

    def new_clock(self) -> VirtualClock:
        clock = VirtualClock(ElapsedTime(self.elapsed))
        clock.freeze()
        clock.set_wall(START_MS)
        return clock

    @property
    def service(self) -> ServiceContext:
        """Of one node that is up, when all know the same."""
        return self.nodes[0].service

    def instants(self) -> set[int]:
        """Every second that some node, or a request under way, goes by."""
        shown = {node.now_s for node in self.nodes if node.is_up}
        return shown.union(*(seat.request.instants for seat in self.seats if seat.node is not None))

    def seat(self, client: Client) -> Seat:
        seat = Seat(len(self.seats) + 1, client)
        self.seats.append(seat)
        return seat

    # Turns

    async def run(self, turns: int) -> None:
        self._sends = True
        for _ in range(turns):
            await self.take_turn(bool(self.faults) and self.random.random() < FAULT_RATE)

    async def take_turn(self, fails: bool = False) -> None:
        self.turn += 1
        if self._sends:
            pauses = FROZEN_PAUSES_S if any(node.is_frozen for node in self.nodes) else USUAL_PAUSES_S
            self._pass_time(self.random.choice(pauses))
        if fails:
            await self._fail(self.random.choice(self.faults))
        else:
            self._go_on()
        await self._end_turn()

    def _go_on(self) -> None:
        """Ends a wait, or sends a request; where no more are sent, ends all waits that can end."""
        endable = self._endable()
        if not self._sends:
            for wait in endable:
                wait.end()
            self._pass_time(0.003 if endable else self._until_next())
            return
        choices: list[Seat | Pending] = [*[seat for seat in self.seats if seat.node is None], *endable]
        if choices:
            choice = self.random.choice(choices)
            if isinstance(choice, Seat):
                self._send(choice)
            else:
                choice.end()
        else:
            self._pass_time(self._until_next())

    def _endable(self) -> list[Pending]:
        """The waits that can end now."""
        now_s = self.elapsed.current_time()
        epoch = max(node.engine.log.epoch for node in self.nodes)
        found = []
        for node in self.nodes:
            if not node.is_frozen:
                for wait in node.waiter.pending:
                    if wait.until_s <= now_s or wait.until_s == math.inf:
                        found.append(wait)
                    elif wait.hears and node.engine.log.epoch < epoch and not self.random.randrange(HEARD_IN):
                        found.append(wait)
        return found

    def _until_next(self) -> float:
        """Seconds until something can go on; a little if nothing says when."""
        now_s = self.elapsed.current_time()
        times = [node.frozen_until_s for node in self.nodes if node.is_frozen]
        times += [wait.until_s for node in self.nodes if not node.is_frozen for wait in node.waiter.pending]
        return min([time_s - now_s for time_s in times if now_s < time_s < math.inf], default=0.05)

    def _pass_time(self, seconds: float) -> None:
        if seconds > 0.0:
            self.elapsed.jump(seconds)
            self._set_store_time()

    def _set_store_time(self) -> None:
        self.store.set_time(START_MS + round(self.elapsed.current_time() * 1000))

    async def _end_turn(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        for node in self.nodes:
            if node.has_service:
                assert node.log.internal_errors == 0, node.log_text.getvalue()
        self._note_instants()
        for seat in self.seats:
            if seat.replies:
                self._answer(seat, seat.replies.pop())

    def _note_instants(self) -> None:
        shown = {node.now_s for node in self.nodes if node.is_up}
        for seat in self.seats:
            if seat.node is not None:
                for now_s in shown:
                    seat.request.note_instant(now_s)
        instants = self.instants()
        if instants != self._instants:
            self._instants = instants
            self.aged(instants)

    # Requests

    def _send(self, seat: Seat) -> None:
        request = seat.request
        node = self._node_for(request)
        request.started_s = self.elapsed.current_time()
        request.begin(self.turn, self.nodes[0].now_s)
        seat.node = node
        self.history.append((self.turn, next(iter(request.command)), node.place))
        if not node.is_up:
            seat.replies.append(None)
            return
        body = bson.encode({**request.command, **seat.gossip, "$db": request.database})
        seat.replies.clear()
        node.carry_out(OpMsg(self.turn, 0, 0, body, []), seat.info, partial(self._take_reply, seat, request))

    def _take_reply(self, seat: Seat, request: Request, reply: bytes | None) -> None:
        if seat.request is request and seat.node is not None and not seat.replies:
            seat.replies.append(reply)

    def _node_for(self, request: Request) -> Node:
        """The one that has the cursor or the transaction; else any, of those that can be reached."""
        belonging = _belonging(request.command)
        # A commit is sent to the node of the transaction first, then to any.
        is_last = "commitTransaction" in request.command
        place = self._nodes_of.pop(belonging, None) if is_last else self._nodes_of.get(belonging)
        if place is not None:
            return self.nodes[place]
        node = self.random.choice([node for node in self.nodes if node.is_up])
        if request.command.get("startTransaction"):
            self._nodes_of[belonging] = node.place
        return node

    def _answer(self, seat: Seat, reply: bytes | None) -> None:
        request = seat.request
        request.ended = self.turn
        node, seat.node = seat.node, None
        assert node is not None
        request.reply = None if reply is None else _as_told(bson.decode(reply))
        told = None if request.reply is None else request.reply.get("code", request.reply.get("n"))
        self.history.append((self.turn, f"reply to {next(iter(request.command))}", told))
        if reply is not None:
            document = bson.decode(reply)
            seat.gossip = {"$clusterTime": document["$clusterTime"]}
            cursor = document.get("cursor")
            if cursor is not None and cursor.get("id"):
                self._nodes_of[int(cursor["id"])] = node.place
        seat.request = seat.client.send(request.reply)

    async def ask(self, command: Document, place: int = 0) -> Document:
        """The reply of a node to a command of nobody's."""
        [reply] = await self.ask_all([(place, "sim", command)])
        return reply

    async def ask_all(self, asked: list[tuple[int, str, Document]]) -> list[Document]:
        """The replies to commands that run at the same time, and are repeated while a node has no place. asked: nodes,
        databases, commands."""
        while True:
            replies: list[list[bytes | None]] = [[] for _ in asked]
            client = ClientInfo(0, "localhost:27017", "localhost:0")
            for (place, database, command), replied in zip(asked, replies, strict=True):
                body = bson.encode({**command, "$db": database})
                self.nodes[place].carry_out(OpMsg(self.turn, 0, 0, body, []), client, replied.append)
            await self._go_on_until(partial(all, replies), asked)
            found: list[Document] = [bson.decode(replied[0] or b"") for replied in replies]
            if all(_as_told(reply) is not None for reply in found):
                return found

    async def _go_on_until(self, is_done: Callable[[], bool], what: object) -> None:
        for _ in range(SETTLING_TURNS):
            if is_done():
                return
            await self.take_turn()
        waiting = [seat.request.command for seat in self.seats if seat.node is not None]
        raise AssertionError(f"{what} has not come to its end; under way: {waiting}")

    # The end

    async def settle(self) -> None:
        """Without further faults or requests: all that is under way ends, and nothing of it is left on any node."""
        self._sends = False
        for node in self.nodes:
            node.frozen_until_s = 0.0
        while not all(node.is_up for node in self.nodes):
            self._start_anew()
            await self.take_turn()
        self._pass_time(TRANSACTION_LIFETIME_S + 1)  # what waits for transactions that their clients have left goes on
        await self._go_on_until(lambda: not any(seat.node for seat in self.seats), "a request")
        self._pass_time(SESSION_TIMEOUT_S + 1)
        await self._go_on_until(self._is_quiet, "what nodes do")

    def _is_quiet(self) -> bool:
        """Whether all nodes have their places, know the same, and have nothing left of what clients have begun."""
        epochs = {node.engine.log.epoch for node in self.nodes}
        return len(epochs) == 1 and all(
            node.engine.nodes.is_valid
            and not node.engine.units.is_stale
            and not len(node.service.transactions)
            and all(cursor.no_timeout for cursor in node.service.cursors.all())
            and not node.service.operations.all()
            for node in self.nodes
        )

    def end(self) -> None:
        for node in self.nodes:
            if node.is_up:
                node.kill()

    # Faults

    async def _fail(self, fault: str) -> None:
        self.happened[fault] += 1
        self.history.append((self.turn, fault, len(SimulatedConnection.by_socket)))
        node = self.random.choice([node for node in self.nodes if node.is_up])
        waiting = {wait.fd for wait in node.waiter.pending}
        if fault == "lost":
            unused = [each for each in node.connections if each.fd not in waiting and not each.is_cut]
            if unused:
                self._cut(self.random.choice(unused), self.random.random() < 0.5)
        elif fault == "unheard":
            unread = [each for each in node.connections if each.fd in waiting and not each.is_cut]
            if unread:
                self._cut(self.random.choice(unread), True)
        elif fault == "frozen":
            node.frozen_until_s = self.elapsed.current_time() + self.random.choice(FREEZES_S)
        elif fault == "hasty":
            hasty = [seat for seat in self.seats if seat.node is not None and seat.request.may_be_given_up]
            if hasty:
                self.random.choice(hasty).replies.append(None)
        elif fault == "late":
            self._pass_time(self.random.choice(LONG_PAUSES_S))
        elif all(node.is_up for node in self.nodes):
            await self._kill(node)
        else:
            self._start_anew()

    def _cut(self, connection: SimulatedConnection, was_noticed: bool) -> None:
        connection.was_noticed = was_noticed
        connection.cut()
        self.store.await_end([connection.backend_id])

    async def _kill(self, node: Node) -> None:
        self.crashes += 1
        node.kill()
        await trio.testing.wait_all_tasks_blocked()

    def _start_anew(self) -> None:
        """Has new nodes take the places of those that were killed, if others let them."""
        for dead in [node for node in self.nodes if not node.is_up]:
            node = Node(self, dead.place)
            if node.open():
                self.nodes[dead.place] = node
                self._nursery.start_soon(node.run)


def _belonging(command: Document) -> object:
    """What of one node a command goes on with: a cursor, a transaction; None for nothing."""
    if "getMore" in command:
        return int(command["getMore"])
    if "killCursors" in command:
        return int(command["cursors"][0])
    if command.get("autocommit") is False:
        return bytes(command["lsid"]["id"]), int(command["txnNumber"])
    return None


def _as_told(reply: Document) -> Document | None:
    """A reply as the clients of simulations take it: None where the node does not know what has become of the
    command."""
    codes = [reply.get("code"), *[error["code"] for error in reply.get("writeErrors", [])]]
    return None if ErrorCode.HostUnreachable in codes else reply
