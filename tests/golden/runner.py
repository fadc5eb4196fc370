"""Runs golden scripts: see README.md in this folder for their format.

A script talks to a server of its own, over one raw socket. The server's clock stands still unless the script moves it,
and begins far in the future, so that a restart, which begins at the machine's time, finds nothing due.

With MONGOTTL_TEST_STORE the server keeps its data in a schema of the store instead of a folder. With
MONGOTTL_TEST_NODES=3 besides, there are three nodes, and each request goes to the next one, but for what drivers keep
at one: cursors and transactions. With MONGOTTL_TEST_BALANCER=haproxy the connections to them go through HAProxy.
"""

import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bson
from bson import Binary, Int64, ObjectId

import mongottl
from mongottl.wire.connection import ClientWireConnection
from mongottl.wire.encode import encode_request
from mongottl.wire.messages import NeedData, OpMsg
from tests import on_nodes, on_store
from tests.balancer import by_haproxy
from tests.golden.notation import CODEC, Placeholder, parse, render, shape
from tests.replies import without_times
from tests.waiting import PATIENCE_S

START_S = 4_102_444_800  # 2100-01-01T00:00:00Z


class Block:
    """A comment or blank line (`request` is empty), or a request and the reply recorded for it."""

    def __init__(self, number: int, lines: list[str], request: str) -> None:
        self.number = number
        self.lines = lines
        self.request = request
        self.reply: list[str] = []


def read_script(text: str) -> list[Block]:
    """The blocks of a script. ValueError for a line that belongs nowhere."""
    blocks: list[Block] = []
    open_request: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(">  ") and open_request is not None and not open_request.reply:
            open_request.lines.append(line)
            open_request.request += " " + line[1:].strip()
        elif line.startswith(">"):
            open_request = Block(number, [line], line[1:].strip())
            blocks.append(open_request)
        elif not line or line.startswith("#"):
            open_request = None
            blocks.append(Block(number, [line], ""))
        elif open_request is not None:
            open_request.reply.append(line)
        else:
            raise ValueError(f"line {number} belongs to no request: {line}")
    return blocks


class _Client:
    """One socket that sends commands as OP_MSG."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.wire = ClientWireConnection()
        self.request_id = 0

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """The reply. ConnectionError if the server hangs up instead."""
        self.request_id += 1
        self.socket.sendall(encode_request(self.request_id, bson.encode(command)))
        while isinstance(message := self.wire.next_message(), NeedData):
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError
            self.wire.receive_data(data)
        assert isinstance(message, OpMsg)
        return bson.decode(message.body, CODEC)


class Runner:
    """The nodes and the clients of one script. folder: for the data of a server that is alone."""

    def __init__(self, folder: Path) -> None:
        self._place: dict[str, Any] = {"data_dir": str(folder)}
        if on_store.is_wanted():
            self._place = {"store": on_store.with_schema(on_store.PREFIX + uuid.uuid4().hex[:12])}
        if on_nodes.wanted() > 1:
            self._place["topology"] = "sharded"
        self._settings: dict[str, Any] = {}
        self._now_s: float = START_S
        self._stack = ExitStack()
        self._servers: list[mongottl.RunningServer] = []
        # Where connections to them are made.
        self._ports: list[int] = []
        self._clients: dict[int, _Client] = {}
        # The node of the last request, and the nodes of cursors and transactions.
        self._node = -1
        self._stays = False
        self._nodes: dict[Any, int] = {}
        self._given: list[Any] = []
        self._placeholders: dict[str, Any] = {}

    def check(self) -> None:
        """AssertionError if something went wrong in a server, or the script has left a cursor open."""
        if self._settings.get("dialect") == "cosmos":
            return
        for node in self._clients:
            status = self._client(node).run({"serverStatus": 1, "$db": "admin"})
            assert status["asserts"]["internal"] == 0, "an InternalError was answered, see the log"
            assert status["metrics"]["cursor"]["open"]["total"] == 0, "the script leaves a cursor open"

    def stop(self) -> None:
        """Stops the nodes."""
        for node in list(self._clients):
            self._disconnect(node)
        self._servers = []
        self._stack.close()

    def run(self, request: str) -> str:
        """What a request is answered with, as it is recorded."""
        word, _, rest = request.partition(" ")
        if word == "serve":
            self._settings = parse(rest)
            self.stop()
            return "ready"
        if word == "restart":
            self.stop()
            self._start()
            return "ready"
        if word == "advance":
            self._now_s += float(rest)
            purged = self._started()[0].clock.advance(float(rest))
            # Without a move it is the reaper that has purged some of it already.
            return f"purged {purged}" if float(rest) else "ready"
        if word in ("stay", "go"):
            self._stays = word == "stay"
            return "ready"
        if word == "each":
            [reply] = {self._answer(rest, node) for node in range(len(self._started()))}
            return reply
        return self._answer(request)

    def _answer(self, request: str, node: int | None = None) -> str:
        """What a node answers; without one it is the one whose turn it is."""
        word, _, rest = request.partition(" ")
        command = parse(rest if word in ("shape", "plan", "stats") else request, self._placeholders)
        if word in ("plan", "stats"):
            command = {"explain": command, "verbosity": "queryPlanner" if word == "plan" else "executionStats"}
        command.setdefault("$db", "test")
        self._given.extend(_scalars(command))
        if node is None:
            node = self._node_for(command)
        try:
            reply = self._client(node).run(command)
        except ConnectionError:
            self._disconnect(node)
            return "connection closed"
        if cursor := reply.get("cursor", {}).get("id"):
            self._nodes[cursor] = node
        if "topology" not in self._settings:
            reply.pop("recoveryToken", None)  # which all that answer as mongos have
        if word == "shape":
            return render(shape(without_times(reply)))
        if word in ("plan", "stats") and reply["ok"]:
            cursor = reply["stages"][0]["$cursor"] if "stages" in reply else reply
            reply = cursor["queryPlanner"]["winningPlan"] if word == "plan" else cursor["executionStats"]
        return render(self._normalised(without_times(reply), ""))

    def _node_for(self, command: dict[str, Any]) -> int:
        """The node that gets a request: the next one, or that of its cursor or transaction."""
        cursor = command.get("getMore") or next(iter(command.get("cursors", ())), None)
        if cursor in self._nodes:
            return self._nodes[cursor]
        if not self._stays:
            self._node = (self._node + 1) % len(self._started())
        if command.get("autocommit") is False:
            return self._nodes.setdefault((command["lsid"]["id"], command["txnNumber"]), self._node)
        return self._node

    def _client(self, node: int) -> _Client:
        if node not in self._clients:
            self._started()
            self._clients[node] = _Client(self._ports[node])
        return self._clients[node]

    def _started(self) -> list[mongottl.RunningServer]:
        if not self._servers:
            self._start()
        return self._servers

    def _start(self) -> None:
        for _ in range(on_nodes.wanted()):
            server = mongottl.start_server(**{**self._place, **self._settings})
            self._servers.append(self._stack.enter_context(server))
        self._ports = [server.port for server in self._servers]
        if on_nodes.is_balanced():
            self._ports = [self._stack.enter_context(by_haproxy(self._ports, "roundrobin"))] * len(self._servers)
        if not self._settings.get("enable_test_commands", True):
            return  # then the clock is the machine's
        # To a whole second, whatever instant the clock was frozen at.
        self._servers[0].clock.advance(self._now_s - self._servers[0].clock.now().timestamp())

    def _disconnect(self, node: int) -> None:
        self._clients.pop(node).socket.close()

    def _normalised(self, value: Any, path: str) -> Any:
        """The reply with placeholders for what the server made up: what no request of the script has named."""
        if isinstance(value, dict):
            return {key: self._normalised(item, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self._normalised(item, path) for item in value]
        if path.endswith((".executionTimeMillis", ".executionTimeMillisEstimate", ".serverInfo.port")):
            return Placeholder("<number>")
        if path == ".cursor.id" and value:
            return self._placeholder("cursor", value)
        if isinstance(value, (Int64, ObjectId, Binary)):
            for name, known in self._placeholders.items():
                if type(known) is type(value) and known == value:
                    return Placeholder(name)
        if isinstance(value, ObjectId) and value not in self._given:
            return self._placeholder("oid", value)
        if isinstance(value, Binary) and value.subtype == 4 and value not in self._given:
            return self._placeholder("uuid", value)
        if isinstance(value, str):
            for name, known in self._placeholders.items():
                if isinstance(known, Int64):
                    value = value.replace(str(int(known)), name)
            return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:<port>", value)
        return value

    def _placeholder(self, kind: str, value: Any) -> Placeholder:
        number = 1
        for name, known in self._placeholders.items():
            if name.startswith(f"<{kind} "):
                if known == value:
                    return Placeholder(name)
                number += 1
        name = f"<{kind} {number}>"
        self._placeholders[name] = value
        return Placeholder(name)


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _scalars(item)
    elif isinstance(value, list):
        for item in value:
            yield from _scalars(item)
    else:
        yield value


def play(path: Path, folder: Path, update: bool) -> None:
    """Runs a script and compares, or rewrites it. AssertionError names the line of the first reply that differs."""
    blocks = read_script(path.read_text(encoding="utf-8"))
    runner = Runner(folder)
    written: list[str] = []
    try:
        for block in blocks:
            written.extend(block.lines)
            request = block.request.removeprefix("alone ")
            if not request or (request != block.request and on_store.is_wanted()):
                written.extend(block.reply)
                continue
            try:
                reply = runner.run(request).splitlines()
            except ValueError as error:
                raise ValueError(f"{path.name}:{block.number}: {error}") from None
            written.extend(reply)
            if not update:
                assert "\n".join(reply) == "\n".join(block.reply), f"{path.name}:{block.number}: {block.request}"
        runner.check()
    finally:
        runner.stop()
    if update:
        path.write_text("\n".join(written) + "\n", encoding="utf-8")
