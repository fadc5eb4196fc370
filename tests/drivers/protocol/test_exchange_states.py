"""What clients do over sockets, and where the server says that their exchanges are: random clients, plain and over TLS.

After each step every connection is in the state that follows from what its client has sent and received, and no client
has received more than it was owed. A move that the table does not have would be logged as a failed connection.
"""

import io
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import bson
import pytest
import trio
import trustme
from bson import Int64
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mongottl.config import ServerConfig
from mongottl.server.connection.channel import Channel
from mongottl.server.connection.exchange import QUEUED, Closed, Paused
from mongottl.server.log import Log
from mongottl.server.server import Server, open_server
from mongottl.wire.connection import ClientWireConnection
from mongottl.wire.encode import encode_request
from mongottl.wire.messages import (
    COMPRESSOR_ZLIB,
    EXHAUST_ALLOWED,
    MORE_TO_COME,
    NOT_COMPRESSED,
    NeedData,
    OpMsg,
)
from tests.on_store import is_wanted
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without epoll commands that wait do not pause")

# More than sockets keep: their buffers are at most 6 MB on either side.
LARGE: Final = 14_000_000
HOUR_MS: Final = 3_600_000


class Inside:
    """A server in a thread, into which tests can look. log: what it has logged."""

    def __init__(self, config: ServerConfig) -> None:
        self.log = io.StringIO()
        self._config = config
        self._ready = threading.Event()
        self._stop = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main,))

    async def _main(self) -> None:
        async with open_server(self._config, log=Log(stream=self.log)) as server:
            self.server: Server = server
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> "Inside":
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._stop.set)
        self._thread.join()

    def call(self, function: Callable[[], Any]) -> Any:
        """What a function returns that is called between two steps of the server's tasks."""
        return trio.from_thread.run_sync(function, trio_token=self._token)

    def channel_of(self, remote: str) -> Channel | None:
        for connection in self.server._connections:
            if connection.channel.client.remote == remote:
                return connection.channel
        return None


class Peer:
    """A client, and the state in which its exchange has to be. awaited: what it is owed, in order of requests."""

    def __init__(self, inside: Inside, context: ssl.SSLContext | None, small: bool = False) -> None:
        raw = socket.socket()
        if small:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        raw.settimeout(PATIENCE_S)
        raw.connect(("127.0.0.1", inside.server.port))
        self._raw = raw
        self.socket = raw
        self._context = context
        self.wire = ClientWireConnection()
        self.request_id = 0
        self.database = ""
        self.cursor_id = Int64(0)
        self.rest = b""
        self.blocked = False
        remote = "{}:{}".format(*raw.getsockname())
        found: list[Channel] = []

        def accepted() -> bool:
            channel = inside.call(partial(inside.channel_of, remote))
            if channel is not None:
                found.append(channel)
            return channel is not None

        until(accepted)
        self.channel = found[0]
        self.state = "Idle" if context is None else "Handshake"

    def shake_hands(self) -> None:
        if self._context is not None:
            self.socket = self._context.wrap_socket(self._raw, server_hostname="localhost")
        self.state = "Idle"

    def request(self, command: dict[str, Any], flags: int = 0, compressor: int = NOT_COMPRESSED) -> bytes:
        self.request_id += 1
        body = bson.encode({**command, "$db": command.get("$db", "test")})
        return encode_request(self.request_id, body, (), flags, compressor)

    def receive(self) -> OpMsg:
        while True:
            message = self.wire.next_message()
            if not isinstance(message, NeedData):
                assert isinstance(message, OpMsg)
                return message
            data = self.socket.recv(1 << 20)
            assert data, "the server has closed the connection"
            self.wire.receive_data(data)

    def reply(self) -> dict[str, Any]:
        """The only reply to the latest request but those that were sent ahead."""
        message = self.receive()
        assert not message.more_to_come
        return bson.decode(message.body)

    def run(self, command: dict[str, Any], flags: int = 0, compressor: int = NOT_COMPRESSED) -> dict[str, Any]:
        self.socket.sendall(self.request(command, flags, compressor))
        return self.reply()

    def has_received(self) -> bool:
        """Whether there is something that it was not owed."""
        self.socket.settimeout(0)
        try:
            if isinstance(self.socket, ssl.SSLSocket):
                return bool(self.socket.recv(1))
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        finally:
            self.socket.settimeout(PATIENCE_S)

    def leave(self, abruptly: bool) -> None:
        """Disconnects, perhaps by a reset, as the kernel does it for a process that is killed with data unread."""
        if abruptly:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
        self.state = "Closed"


class Clients(RuleBasedStateMachine):
    """Random clients of two servers, one of them with TLS."""

    idle = Bundle("idle")
    partly = Bundle("partly")
    waiting = Bundle("waiting")
    streaming = Bundle("streaming")
    unread = Bundle("unread")
    held = Bundle("held")

    def __init__(self, servers: dict[bool, Inside], context: ssl.SSLContext) -> None:
        super().__init__()
        self.servers = servers
        self.context = context
        self.peers: list[Peer] = []
        # By TLS: a client for what others do.
        self.helpers: dict[bool, Peer] = {}

    @initialize()
    def begin(self) -> None:
        for tls, inside in self.servers.items():
            self.helpers[tls] = helper = Peer(inside, self.context if tls else None)
            helper.shake_hands()

    def connect(self, tls: bool, small: bool = False) -> Peer:
        peer = Peer(self.servers[tls], self.context if tls else None, small)
        self.peers.append(peer)
        return peer

    def helper(self, peer: Peer) -> Peer:
        return self.helpers[isinstance(peer.socket, ssl.SSLSocket)]

    @rule(target=idle, tls=st.booleans(), late=st.booleans())
    def connects(self, tls: bool, late: bool) -> Peer:
        peer = self.connect(tls)
        if late:
            self.check()
        peer.shake_hands()
        return peer

    @rule(target=idle, peer=consumes(idle), number=st.integers(1, 9), compressed=st.booleans())
    def pipelines(self, peer: Peer, number: int, compressed: bool) -> Peer:
        """Several requests at once: all are answered, in order."""
        compressor = COMPRESSOR_ZLIB if compressed else NOT_COMPRESSED
        peer.socket.sendall(b"".join(peer.request({"ping": 1}, 0, compressor) for _ in range(number)))
        for before in range(number - 1, -1, -1):
            message = peer.receive()
            assert (message.response_to, message.compressor) == (peer.request_id - before, compressor)
        return peer

    @rule(target=idle, peer=consumes(idle), size=st.sampled_from([10, 40_000, 3_000_000]), compressed=st.booleans())
    def writes_and_reads(self, peer: Peer, size: int, compressed: bool) -> Peer:
        """Short and long messages, in both directions."""
        compressor = COMPRESSOR_ZLIB if compressed else NOT_COMPRESSED
        update = {"q": {"_id": 1}, "u": {"_id": 1, "text": "x" * size}, "upsert": True}
        assert peer.run({"update": "c", "updates": [update]}, 0, compressor)["n"] == 1
        found = peer.run({"find": "c", "filter": {"_id": 1}}, 0, compressor)
        assert len(found["cursor"]["firstBatch"][0]["text"]) in (10, 40_000, 3_000_000)
        return peer

    @rule(target=idle, peer=consumes(idle))
    def wants_no_reply(self, peer: Peer) -> Peer:
        peer.socket.sendall(peer.request({"ping": 1}, MORE_TO_COME))
        return peer

    @rule(target=partly, peer=consumes(idle), ahead=st.integers(0, 5), cut=st.sampled_from([1, 15, 16, 30, -1]))
    def sends_a_part(self, peer: Peer, ahead: int, cut: int) -> Peer:
        """Whole requests, and a part of one."""
        whole = b"".join(peer.request({"ping": 1}) for _ in range(ahead))
        last = peer.request({"ping": 1, "comment": "x" * 50})
        peer.socket.sendall(whole + last[:cut])
        peer.rest = last[cut:]
        for _ in range(ahead):
            assert peer.reply()["ok"] == 1
        peer.state = "Receiving"
        return peer

    @rule(target=idle, peer=consumes(partly))
    def sends_the_rest(self, peer: Peer) -> Peer:
        peer.socket.sendall(peer.rest)
        assert peer.reply()["ok"] == 1
        peer.state = "Idle"
        return peer

    @rule(target=waiting, peer=consumes(idle))
    def watches(self, peer: Peer) -> Peer:
        peer.database = f"d{id(peer)}"
        where = {"$db": peer.database}
        opened = peer.run({"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}, **where})
        peer.cursor_id = Int64(opened["cursor"]["id"])
        more = {"getMore": peer.cursor_id, "collection": "$cmd.aggregate", "maxTimeMS": HOUR_MS, **where}
        peer.socket.sendall(peer.request(more))
        peer.state = "Paused"
        return peer

    @rule(target=idle, peer=consumes(waiting), how=st.sampled_from(["event", "kill", "talk"]))
    def is_woken(self, peer: Peer, how: str) -> Peer:
        """By an event, by killCursors, or by its client's next request."""
        where = {"$db": peer.database}
        if how == "event":
            self.helper(peer).run({"insert": "c", "documents": [{}], **where})
            assert len(peer.reply()["cursor"]["nextBatch"]) == 1
        elif how == "kill":
            self.helper(peer).run({"killCursors": "$cmd.aggregate", "cursors": [peer.cursor_id], **where})
            assert peer.reply()["code"] == 237
        else:
            peer.socket.sendall(peer.request({"ping": 1}))
            assert peer.reply()["cursor"]["nextBatch"] == []
            assert peer.reply()["ok"] == 1
        self.helper(peer).run({"killCursors": "$cmd.aggregate", "cursors": [peer.cursor_id], **where})
        peer.state = "Idle"
        return peer

    @rule(target=streaming, peer=consumes(idle), slow=st.booleans())
    def streams_hellos(self, peer: Peer, slow: bool) -> Peer:
        """Before the first reply nothing is promised."""
        hello = {"hello": 1, "topologyVersion": peer.run({"hello": 1})["topologyVersion"]}
        peer.socket.sendall(peer.request({**hello, "maxAwaitTimeMS": HOUR_MS if slow else 50}, EXHAUST_ALLOWED))
        if slow:
            peer.state = "Driven"
        else:
            assert peer.receive().more_to_come
            peer.state = "Streaming"
        return peer

    @rule(target=idle, peer=consumes(streaming))
    def ends_the_stream(self, peer: Peer) -> Peer:
        """By another request. Only the last of the replies has no `moreToCome`."""
        peer.socket.sendall(peer.request({"ping": 1}))
        while peer.receive().more_to_come:
            pass
        assert peer.reply()["ok"] == 1
        peer.state = "Idle"
        return peer

    @rule(target=idle, peer=consumes(idle), count=st.integers(1, 12), compressed=st.booleans())
    def exhausts_a_cursor(self, peer: Peer, count: int, compressed: bool) -> Peer:
        """By one getMore, which has several replies."""
        documents = [{"_id": n} for n in range(count)]
        opened = peer.run({"aggregate": 1, "pipeline": [{"$documents": documents}], "cursor": {"batchSize": 0}})
        more = {"getMore": Int64(opened["cursor"]["id"]), "collection": "$cmd.aggregate", "batchSize": 5}
        peer.socket.sendall(peer.request(more, EXHAUST_ALLOWED, COMPRESSOR_ZLIB if compressed else NOT_COMPRESSED))
        found = []
        while True:
            message = peer.receive()
            found += bson.decode(message.body)["cursor"]["nextBatch"]
            if not message.more_to_come:
                assert found == documents
                return peer

    @rule(target=unread, tls=st.booleans())
    def does_not_read(self, tls: bool) -> Peer:
        """A reply that the sockets do not take at once."""
        peer = self.connect(tls, small=True)
        peer.shake_hands()
        peer.socket.sendall(peer.request({"find": "large"}))
        peer.state = "Sending"
        return peer

    @rule(target=idle, peer=consumes(unread))
    def reads(self, peer: Peer) -> Peer:
        assert len(peer.reply()["cursor"]["firstBatch"][0]["text"]) == LARGE
        peer.state = "Idle"
        return peer

    @rule(target=held, peer=consumes(idle))
    def is_blocked(self, peer: Peer) -> Peer:
        """A write that waits, which is the task's: writes do not end with their client."""
        data = {"failCommands": ["insert"], "blockConnection": True, "blockTimeMS": HOUR_MS}
        point = {"configureFailPoint": "failCommand", "$db": "admin"}
        self.helper(peer).run({**point, "mode": {"times": 1}, "data": data})
        peer.socket.sendall(peer.request({"insert": "c", "documents": [{}], "comment": str(id(peer))}))
        peer.state = "Driven"
        peer.blocked = True
        self.check()
        return peer

    @rule(target=idle, peer=consumes(held))
    def is_killed(self, peer: Peer) -> Peer:
        mine = {"command.comment": str(id(peer)), "command.insert": "c"}
        current = {"aggregate": 1, "pipeline": [{"$currentOp": {}}, {"$match": mine}], "cursor": {}, "$db": "admin"}
        [found] = self.helper(peer).run(current)["cursor"]["firstBatch"]
        self.helper(peer).run({"killOp": 1, "op": found["opid"], "$db": "admin"})
        assert peer.reply()["code"] == 11601
        peer.state = "Idle"
        peer.blocked = False
        return peer

    @rule(peer=idle, waits_for_memory=st.booleans())
    def waits_for_others(self, peer: Peer, waits_for_memory: bool) -> None:
        """A write while writers are held up, or a long request for which there is no memory."""
        inside = self.servers[isinstance(peer.socket, ssl.SSLSocket)]
        update = {"q": {"_id": 2}, "u": {"_id": 2, "text": "x" * 100_000}, "upsert": True}
        data = peer.request({"update": "c", "updates": [update]})
        limits = inside.server.service.limits
        metrics = inside.server.service.metrics
        before = limits.incoming_bytes

        def begin() -> None:
            if waits_for_memory:
                limits.incoming_bytes = 1
                metrics.incoming_bytes += 1
            else:
                inside.server.durability.holds_writers = True

        def end() -> None:
            if waits_for_memory:
                limits.incoming_bytes = before
                metrics.incoming_bytes -= 1
                inside.server.shell.incoming._give_turns()
            else:
                inside.server.durability.release_writers()

        inside.call(begin)
        try:
            sender = threading.Thread(target=peer.socket.sendall, args=(data,))
            sender.start()
            peer.state = "Queued" if waits_for_memory else "Held"
            self.check()
            self.helper(peer).run({"ping": 1})
        finally:
            inside.call(end)
        sender.join()
        assert peer.reply()["n"] == 1
        peer.state = "Idle"

    @rule(peer=st.one_of(*map(consumes, (idle, partly, waiting, streaming, unread))), abruptly=st.booleans())
    def leaves(self, peer: Peer, abruptly: bool) -> None:
        peer.leave(abruptly)

    @rule(peer=consumes(idle), request=st.sampled_from([b"GET / HTTP/1.1\r\n\r\n", b"\x10" + b"\0" * 15, b"\xff" * 40]))
    def breaks_the_protocol(self, peer: Peer, request: bytes) -> None:
        peer.socket.sendall(request)
        if request.startswith(b"GET"):
            assert peer.socket.recv(1000).startswith(b"HTTP/1.0 200 OK\r\n")
            if not isinstance(peer.socket, ssl.SSLSocket):
                peer.state = "Http"
                self.check()
        peer.leave(False)

    @invariant()
    def check(self) -> None:
        """Every exchange is, or will be without further ado, where its client has to think that it is."""
        for peer in self.peers:
            inside = self.servers[peer.channel.encrypts]
            seen = [""]

            def agrees(peer: Peer = peer, inside: Inside = inside, seen: list[str] = seen) -> bool:
                seen[0] = type(inside.call(lambda: peer.channel.exchange.state)).__name__
                return seen[0] == peer.state

            until(agrees, f"{seen[0]} instead of {peer.state}")
            if peer.state in ("Idle", "Receiving", "Paused", "Held", "Driven", "Queued"):
                assert not peer.has_received()
        self.peers = [peer for peer in self.peers if peer.state != "Closed"]

    def teardown(self) -> None:
        for peer in self.peers:
            if peer.blocked:
                self.is_killed(peer)
            peer.leave(True)
        self.check()
        for tls, helper in self.helpers.items():
            status = helper.run({"serverStatus": 1, "$db": "admin"})
            assert status["metrics"]["cursor"]["open"]["total"] == 0
            assert status["asserts"]["internal"] == 0
            assert status["mongottl"]["incomingMessages"] == {"bytes": 0, "waiting": 0, "closed": 0}
            assert "Connection failed" not in self.servers[tls].log.getvalue()
            helper.leave(False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def servers(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Inside]]:
    folder: Path = tmp_path_factory.mktemp("certificates")
    pem = str(folder / "server.pem")
    issued = authority.issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(pem)
    with (
        Inside(ServerConfig(port=0, enable_test_commands=True)) as plain,
        Inside(ServerConfig(port=0, enable_test_commands=True, tls_cert=pem)) as secure,
    ):
        yield {False: plain, True: secure}


@pytest.fixture(scope="module")
def context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


# A request that has asked a store goes on in its connection's task, and whether it had to ask depends on time.
in_memory: Final = pytest.mark.skipif(is_wanted(), reason="with a store, requests may wait in their connection's task")


@in_memory
def test_an_exchange_is_where_its_client_thinks_it_is(
    servers: dict[bool, Inside], context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody is too slow.
    for limit in ("connection.http.HTTP_CLOSE_S", "connection.tls.HANDSHAKE_S"):
        monkeypatch.setattr(f"mongottl.server.{limit}", 3600.0)
    for limit in ("GRACE_S", "PRESSED_GRACE_S", "LEAST_GRACE_S"):
        monkeypatch.setattr(f"mongottl.server.incoming.{limit}", 3600.0)
    for tls, inside in servers.items():
        peer = Peer(inside, context if tls else None)
        peer.shake_hands()
        peer.run({"insert": "large", "documents": [{"text": "x" * LARGE}]})
        peer.leave(False)

    class Random(Clients):
        def __init__(self) -> None:
            super().__init__(servers, context)

    run_state_machine_as_test(
        Random,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_an_impossible_move_ends_its_connection_alone() -> None:
    """It is counted and logged as an error of the server."""
    with Inside(ServerConfig(port=0)) as inside:
        one, other = Peer(inside, None), Peer(inside, None)
        other.run({"ping": 1})
        exchange = one.channel.exchange
        inside.call(lambda: setattr(exchange, "state", QUEUED))  # which no connection is that waits in the poller
        one.socket.sendall(one.request({"ping": 1}))
        assert one.socket.recv(1) == b""
        assert other.run({"serverStatus": 1, "$db": "admin"})["asserts"]["internal"] == 1
        assert "Connection failed" in inside.log.getvalue()
        assert "an exchange that is Queued cannot become AtOnce" in inside.log.getvalue()
        for peer in (one, other):
            peer.leave(False)


@in_memory
def test_a_pause_does_not_outlive_its_connection() -> None:
    """Also where the server stops and does not wait for the client."""
    with Inside(ServerConfig(port=0)) as inside:
        peer = Peer(inside, None)
        opened = peer.run({"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}})
        more = {"getMore": Int64(opened["cursor"]["id"]), "collection": "$cmd.aggregate", "maxTimeMS": HOUR_MS}
        peer.socket.sendall(peer.request(more))
        exchange = peer.channel.exchange
        until(lambda: isinstance(inside.call(lambda: exchange.state), Paused))
        pauses = inside.server.shell.poller
        assert inside.call(lambda: pauses.pauses) == 1
    assert isinstance(exchange.state, Closed)
    assert pauses.pauses == 0
    assert bson.decode(peer.receive().body)["ok"] in (0, 1)
    peer.leave(False)
