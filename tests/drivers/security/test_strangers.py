"""What clients cost the server before they have logged in, and with messages that they do not finish."""

import gc
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
import trio
from pymongo.errors import AutoReconnect

import mongottl
from mongottl.build_info import is_compiled
from mongottl.commands import COMMANDS
from mongottl.config import ServerConfig
from mongottl.server.server import open_server
from tests.drivers.process.test_process import Process
from tests.drivers.protocol.test_protocol import OP_COMPRESSED, OP_MSG, Closed, Raw, message
from tests.on_nodes import own_parameters
from tests.tracing import untraced
from tests.waiting import until

pytestmark = own_parameters

Client = pymongo.MongoClient[dict[str, Any]]
Document = dict[str, Any]
MB = 1 << 20
MAX_MESSAGE = 48_000_000
PRE_AUTH_BYTES = 16 * 1024

# Seconds of the server's thread that the work for one message may take: a millisecond, compiled; 7 were seen on
# a machine that is slow and busy. Interpreted, BSON is checked about ten times as slowly.
MOST_S = untraced(0.01 if is_compiled() else 0.02)


class LongestStep(trio.abc.Instrument):
    """Measures the time of the processor that a step of any task has taken at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began_s = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_s = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest_s = max(self.longest_s, time.thread_time() - self._began_s)


@pytest.fixture
def measured() -> Iterator[Callable[..., float]]:
    """Runs a client in a thread beside a server, by default with users, whose port it gets; what the longest step has
    taken."""

    def run(client: Callable[[int], None], auth: bool = True) -> float:
        steps = LongestStep()
        user: dict[str, Any] = {"auth": True, "user": "root", "password": "x"} if auth else {}

        async def main() -> None:
            async with open_server(ServerConfig(port=0, quiet=True, **user)) as server:
                with closing(Raw(server.port)) as first:  # which makes the server import what it needs
                    await trio.to_thread.run_sync(first.run, {"hello": 1, "compression": ["snappy", "zstd", "zlib"]})
                steps.longest_s = 0.0
                await trio.to_thread.run_sync(client, server.port)

        trio.run(main, instruments=[steps])
        return steps.longest_s

    gc.disable()  # it would collect the garbage of all tests, which is not the server's
    yield run
    gc.enable()


def requests_of_strangers() -> list[tuple[str, Document, str]]:
    """Each command that anybody may run, with what it requires, and each of the fields that it may have."""
    found: list[tuple[str, Document, str]] = []
    for name, spec in COMMANDS.items():
        if not spec.access.by_anyone or name != spec.name:
            continue
        fields = [field.name for field in spec.parser._fields]
        required = {"mechanism": "SCRAM-SHA-256", "payload": b"n,,n=ann,r=x", "conversationId": 1}
        request = {name: 1, "$db": "admin"} | {field: value for field, value in required.items() if field in fields}
        for field in [*fields, "$db", "lsid", "comment", "$readPreference", "$clusterTime", "unknown"]:
            found.append((f"{name}.{field}", request, field))
        if "speculativeAuthenticate" in fields:
            for inner in ("mechanism", "payload", "db", "user", "options"):
                found.append((f"{name}.speculativeAuthenticate.{inner}", request, f"speculativeAuthenticate.{inner}"))
    return found


def long_values(size: int) -> list[Any]:
    return [
        "a" * size,
        "ä" * (size // 2),
        bson.Binary(b"n,,n=" + b"a" * (size - 10) + b",r=x"),
        "biws" * (size // 4),
        [None] * (size // 9),
        [{"id": bson.Binary(bytes(16), 4)}] * (size // 50),
        {f"{number:x}": None for number in range(size // 8)},
    ]


def with_value(request: Document, path: str, value: Any) -> Document:
    outer, _, inner = path.partition(".")
    if not inner:
        return {**request, outer: value}
    login = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=ann,r=x", "db": "admin"}
    return {**request, outer: {**login, inner: value}}


@pytest.mark.slow
def test_the_longest_messages_of_strangers_take_a_millisecond(
    measured: Callable[[Callable[[int], None]], float],
) -> None:
    """Each field of each command that anybody may run, with as much as fits into a message before a login."""

    def attack(only: str = "") -> Callable[[int], None]:
        def run(port: int) -> None:
            with closing(Raw(port)) as raw:
                for name, request, field in requests_of_strangers():
                    for value in long_values(PRE_AUTH_BYTES - 500) if name == only or not only else ():
                        raw.run(with_value(request, field, value))

        return run

    # What takes longer because the machine is busy does so once, but what takes long by itself does so each time.
    assert min(measured(attack()) for _ in range(3)) < MOST_S


@pytest.mark.slow
def test_longer_messages_of_strangers_take_nothing(measured: Callable[[Callable[[int], None]], float]) -> None:
    """Each field of each command that anybody may run, as a string, as binary data and as an array of 48 MB."""
    blob = memoryview(bytes(MB))

    def attack(port: int) -> None:
        for _, request, path in requests_of_strangers():
            for type_code in (2, 4, 5):
                head = bson.encode({key: value for key, value in request.items() if key != path})[4:-1]
                left = MAX_MESSAGE - 16 - 5 - 4 - len(head)
                head += bytes([type_code]) + path.encode() + b"\0" + struct.pack("<i", left - len(path) - 7)
                with closing(Raw(port)) as raw:
                    try:
                        raw.send(struct.pack("<iiiiIBi", MAX_MESSAGE, 1, 0, OP_MSG, 0, 0, MAX_MESSAGE - 21) + head)
                        for _ in range(45):
                            raw.socket.sendall(blob)
                    except ConnectionError:
                        continue
                    assert raw.is_closed()

    assert min(measured(attack) for _ in range(3)) < MOST_S


# Of a server without users. Some documents of this length are copied.
LONG_BYTES = MB
MOST_OF_LONG_S = 0.01 if is_compiled() else 0.05
# Of what walks over many names, or a long one, without decoding them; interpreted.
MOST_OF_NAMES_S = 0.01 if is_compiled() else 0.15
NULLS = {f"{number:x}": None for number in range(LONG_BYTES // 8)}
LONG_REQUESTS: dict[str, tuple[Document, int]] = {
    "lsid": ({"ping": 1, "lsid": NULLS}, 40415),
    "lsid.id": ({"ping": 1, "lsid": {"id": [None] * (LONG_BYTES // 9)}}, 14),
    "readConcern": ({"ping": 1, "readConcern": NULLS}, 40415),
    "readConcern.level": ({"ping": 1, "readConcern": {"level": [None] * (LONG_BYTES // 9)}}, 14),
    "writeConcern": ({"endSessions": [], "writeConcern": NULLS}, 40415),
    "writeConcern.w": ({"endSessions": [], "writeConcern": {"w": dict.fromkeys(NULLS, 1)}}, 9),
    "$clusterTime": ({"ping": 1, "$clusterTime": NULLS}, 16),
    "$readPreference": ({"ping": 1, "$readPreference": NULLS}, 0),
    "comment": ({"ping": 1, "comment": [None] * (LONG_BYTES // 9)}, 0),
    "unknown fields": ({"ping": 1, **NULLS}, 40415),
    "ignored fields": ({"hello": 1, **NULLS}, 40415),
    "topologyVersion": ({"hello": 1, "topologyVersion": NULLS, "maxAwaitTimeMS": 1}, 40415),
    "compression": ({"hello": 1, "compression": ["a"] * (LONG_BYTES // 14)}, 0),
    "client": ({"hello": 1, "client": NULLS}, 185),
    "saslSupportedMechs": ({"hello": 1, "saslSupportedMechs": [None] * (LONG_BYTES // 9)}, 14),
    "saslSupportedMechs.user": ({"hello": 1, "saslSupportedMechs": NULLS}, 2),
    "speculativeAuthenticate": ({"hello": 1, "speculativeAuthenticate": NULLS}, 0),
    "mechanism": ({"saslStart": 1, "mechanism": "ä" * (LONG_BYTES // 2), "payload": b""}, 334),
    "payload": ({"saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": [None] * (LONG_BYTES // 9)}, 14),
    "payload of X.509": ({"saslStart": 1, "mechanism": "MONGODB-X509", "payload": b"\xff" * LONG_BYTES}, 18),
    "options": ({"saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": b"", "options": NULLS}, 2),
    "sessions": ({"endSessions": [None] * (LONG_BYTES // 9)}, 0),
    "command": ({"ä" * (LONG_BYTES // 2): 1}, 59),
}


@pytest.mark.parametrize("name", LONG_REQUESTS)
def test_long_arguments_take_milliseconds(measured: Callable[..., float], name: str) -> None:
    """Without users anybody may send long messages. They are checked in steps, and not decoded beyond what is needed;
    errors do not repeat them."""
    request, code = LONG_REQUESTS[name]
    replies: list[Document] = []

    def send(port: int) -> None:
        with closing(Raw(port)) as raw:
            replies.append(raw.run({**request, "$db": "admin"}))

    most_s = MOST_OF_NAMES_S if name in ("command", "unknown fields", "ignored fields") else MOST_OF_LONG_S
    # What takes longer because the machine is busy does so once.
    assert min(measured(send, auth=False) for _ in range(3)) < most_s
    assert [reply.get("code", 0) for reply in replies] == [code] * 3
    assert len(bson.encode(replies[0])) < 10_000


def test_a_field_that_is_given_twice_is_refused() -> None:
    with mongottl.start_server() as server, closing(Raw(server.port)) as raw:
        for request, name in (
            ({"lsid": {"id": bson.Binary(bytes(16), 4)}}, "lsid.id"),
            ({"readConcern": {"level": "local"}}, "readConcern.level"),
            ({"writeConcern": {"w": 1}}, "writeConcern.w"),
        ):
            [(argument, document)] = request.items()
            twice = bson.encode(document)[4:-1] * 2
            value = struct.pack("<i", len(twice) + 5) + twice + b"\0"
            body = bson.encode({"create": "c", "$db": "test"})[4:-1] + b"\x03" + argument.encode() + b"\0" + value
            raw.send(message(struct.pack("<IBi", 0, 0, len(body) + 5) + body + b"\0"))
            reply = raw.reply()
            assert (reply["code"], reply["errmsg"]) == (40413, f"BSON field '{name}' is a duplicate field")


@pytest.fixture(scope="module")
def guarded() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(auth=True, user="root", password="x") as running:
        yield running


def padded(length: int) -> bytes:
    """A ping of so many bytes."""
    body = bson.encode({"ping": 1, "$db": "admin", "comment": ""})
    body = bson.encode({"ping": 1, "$db": "admin", "comment": "x" * (length - 21 - len(body))})
    return message(struct.pack("<IB", 0, 0) + body)


def compressed(whole: bytes, size: int | None = None) -> bytes:
    """A message inside OP_COMPRESSED. size: the size that it is said to have."""
    head = struct.pack("<iiB", OP_MSG, len(whole) - 16 if size is None else size, 2)
    return message(head + zlib.compress(whole[16:]), OP_COMPRESSED)


@pytest.mark.parametrize("pack", [bytes, compressed])
def test_messages_before_a_login_are_short(guarded: mongottl.RunningServer, pack: Callable[[bytes], bytes]) -> None:
    with closing(Raw(guarded.port)) as raw:
        raw.send(pack(padded(PRE_AUTH_BYTES)))
        assert raw.reply() == {"ok": 1.0}
        raw.send(pack(padded(PRE_AUTH_BYTES + 1)))
        assert raw.is_closed()


@pytest.mark.parametrize(
    "beginning",
    [
        struct.pack("<iiii", PRE_AUTH_BYTES + 1, 1, 0, OP_MSG),
        compressed(padded(1000), PRE_AUTH_BYTES),
        compressed(padded(1000), 2**31 - 1),
        compressed(padded(1000), -1),
    ],
)
def test_long_messages_of_strangers_are_refused_by_their_header(
    guarded: mongottl.RunningServer, beginning: bytes
) -> None:
    with closing(Raw(guarded.port)) as raw:
        raw.send(beginning)
        assert raw.is_closed()


def test_users_may_send_long_messages_until_they_log_out(guarded: mongottl.RunningServer) -> None:
    with Client(guarded.uri, maxPoolSize=1) as client:
        client.test.c.insert_one({"_id": 1, "long": bytes(MB)})
        with client.start_session() as session, client.start_session() as another:
            assert client.admin.command("ping", comment="x" * MB, session=session)["ok"] == 1
            assert session.session_id != another.session_id
        client.admin.command("logout")
        with pytest.raises(AutoReconnect):
            client.admin.command("ping", comment="x" * MB)
        client.drop_database("test")


def test_the_limit_is_a_parameter(guarded: mongottl.RunningServer) -> None:
    with Client(guarded.uri) as client, closing(Raw(guarded.port)) as raw:
        was = client.admin.command("setParameter", 1, preAuthMaximumMessageSizeBytes=MB)["was"]
        assert was == PRE_AUTH_BYTES
        raw.send(padded(MB))
        assert raw.reply() == {"ok": 1.0}
        client.admin.command("setParameter", 1, preAuthMaximumMessageSizeBytes=was)
        raw.send(padded(MB))
        assert raw.is_closed()


def incoming(client: Client) -> Document:
    found: Document = client.admin.command("serverStatus")["mongottl"]["incomingMessages"]
    return found


def insert_of(number: int, size: int) -> bytes:
    body = bson.encode({"insert": "c", "documents": [{"_id": number, "a": bytes(size)}], "$db": "test"})
    return message(struct.pack("<IB", 0, 0) + body)


def send_what_is_taken(sock: socket.socket, data: bytes) -> bytes:
    """Sends until the other side takes no more; the rest."""
    sock.setblocking(False)
    view = memoryview(data)
    try:
        while view:
            view = view[sock.send(view) :]
    except BlockingIOError:
        pass
    finally:
        sock.setblocking(True)
    return bytes(view)


@pytest.mark.slow
def test_halves_of_messages_have_a_common_bound() -> None:
    """Those beyond it are not read until there is room, and all of them are answered in the end, whatever the order in
    which their other halves come."""
    with mongottl.start_server() as server, Client(server.uri) as client, ExitStack() as stack:
        client.admin.command("setParameter", 1, internalIncomingMessagesMaxBytes=20 * MB)
        raws = [stack.enter_context(closing(Raw(server.port))) for _ in range(12)]
        left: list[bytes] = []
        for number, raw in enumerate(raws):
            data = insert_of(number, 8 * MB)
            raw.send(data[: 64 * 1024])
            left.append(send_what_is_taken(raw.socket, data[64 * 1024 : -100_000]) + data[-100_000:])
        until(lambda: incoming(client)["waiting"] == 10)
        assert 16 * MB < incoming(client)["bytes"] <= 20 * MB
        # Others are served: small requests at once, a long one in its turn.
        client.test.d.insert_one({"_id": 1})
        for raw in raws:
            raw.socket.setblocking(False)
        pending = {raw.socket: memoryview(data) for raw, data in zip(raws, left, strict=True)}

        def all_sent() -> bool:
            for sock in reversed(list(pending)):
                try:
                    pending[sock] = pending[sock][sock.send(pending[sock]) :]
                except BlockingIOError:
                    continue
                if not pending[sock]:
                    del pending[sock]
            return not pending

        until(all_sent)
        for raw in raws:
            raw.socket.setblocking(True)
            assert raw.reply() == {"n": 1, "ok": 1.0}
        until(lambda: incoming(client) == {"bytes": 0, "waiting": 0, "closed": 0})
        assert client.test.c.count_documents({}) == 12


def test_a_client_that_leaves_gives_its_memory_back() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        client.admin.command("setParameter", 1, internalIncomingMessagesMaxBytes=MB)
        whole = insert_of(1, 4 * MB)
        with closing(Raw(server.port)) as holding, closing(Raw(server.port)) as waiting:
            send_what_is_taken(holding.socket, whole[:-1])
            until(lambda: incoming(client)["bytes"] > 4 * MB)
            rest = send_what_is_taken(waiting.socket, whole)
            until(lambda: incoming(client)["waiting"] == 1)
            holding.socket.close()
            waiting.send(rest)
            assert waiting.reply() == {"n": 1, "ok": 1.0}
        until(lambda: incoming(client)["bytes"] == 0)


@pytest.mark.slow
def test_compressed_messages_count_with_what_they_contain() -> None:
    """A few bytes may become 48 MB."""
    bomb = compressed(insert_of(1, 16 * MB - 1000))
    assert len(bomb) < 64 * 1024
    with mongottl.start_server() as server, Client(server.uri) as client, ExitStack() as stack:
        client.admin.command("setParameter", 1, internalIncomingMessagesMaxBytes=MB)
        with closing(Raw(server.port)) as holding:
            whole = insert_of(2, 4 * MB)
            send_what_is_taken(holding.socket, whole[:-1])
            until(lambda: incoming(client)["bytes"] > 4 * MB)
            raws = [stack.enter_context(closing(Raw(server.port))) for _ in range(5)]
            for raw in raws:
                raw.send(bomb)
            until(lambda: incoming(client)["waiting"] == 5)
        replies = [raw.reply() for raw in raws]
        assert sorted(reply["n"] for reply in replies) == [0, 0, 0, 0, 1]


def test_a_slow_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has sent a whole message, and waits for nothing, is not."""
    from mongottl.server import incoming as module

    monkeypatch.setattr(module, "GRACE_S", 0.0)
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    with mongottl.start_server() as server, Client(server.uri) as client:
        with closing(Raw(server.port)) as idle, closing(Raw(server.port)) as slow:
            assert idle.run({"ping": 1}) == {"ok": 1.0}
            slow.send(padded(1000)[:-1])
            assert slow.is_closed()
            assert idle.run({"ping": 1}) == {"ok": 1.0}
        assert incoming(client)["closed"] >= 1
        lines = client.admin.command("getLog", "global")["log"]
    assert any("its client sends a message too slowly" in line for line in lines)


def test_a_server_stops_while_messages_wait() -> None:
    """It ends their connections instead of waiting until they are whole."""
    with ExitStack() as stack:
        server = stack.enter_context(mongottl.start_server())
        client = stack.enter_context(Client(server.uri))
        client.admin.command("setParameter", 1, internalIncomingMessagesMaxBytes=1)
        raws = [stack.enter_context(closing(Raw(server.port))) for _ in range(3)]
        for raw in raws:
            send_what_is_taken(raw.socket, insert_of(1, 4 * MB)[:-1])
        until(lambda: incoming(client)["waiting"] == 2)
        client.close()
        server.stop()
        assert all(raw.is_closed() for raw in raws)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sets the limit of another process")
def test_connections_leave_the_server_files_of_its_own(tmp_path: Path) -> None:
    """At the limit of open files new connections are refused, and those that there are can do what takes files: sort in
    temporary ones, and use a command for the first time, whose modules are imported then."""
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))\n"
        "from mongottl.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    process = Process(tmp_path / "log", "--port", "0", command=[sys.executable, "-P", "-c", program])
    try:
        with ExitStack() as stack:
            first = stack.enter_context(closing(Raw(process.port)))
            assert first.run({"ping": 1})["ok"] == 1
            refused = 0
            while not refused:
                other = stack.enter_context(closing(Raw(process.port)))
                try:
                    other.send(other.request({"ping": 1, "$db": "admin"}))
                    assert other.reply()["ok"] == 1
                except (Closed, ConnectionError):
                    refused += 1
            documents = [{"_id": number, "a": -number, "b": "x" * 1000} for number in range(200)]
            assert first.run({"insert": "c", "documents": documents})["n"] == 200
            limit = {"setParameter": 1, "internalQueryMaxBlockingSortMemoryUsageBytes": 50_000, "$db": "admin"}
            assert first.run(limit)["ok"] == 1
            # Idle cursors with files of their own, more than there are descriptors: the oldest ones make room.
            opened = [first.run({"find": "c", "sort": {"a": 1}, "batchSize": 2}) for _ in range(200)]
            assert {reply["ok"] for reply in opened} == {1}
            sorted_by_a = first.run({"find": "c", "sort": {"a": 1}, "batchSize": 200})["cursor"]["firstBatch"]
            assert [each["_id"] for each in sorted_by_a] == list(range(199, -1, -1))
            text = [{"$group": {"_id": None, "n": {"$sum": {"$bitAnd": ["$_id", 1]}}}}]
            assert first.run({"aggregate": "c", "pipeline": text, "cursor": {}})["cursor"]["firstBatch"][0]["n"] == 100
            assert first.run({"validate": "c"})["valid"]
        process.stop()
    finally:
        process.kill()
    log = (tmp_path / "log").read_text()
    assert "too many open files" in log and "Traceback" not in log
