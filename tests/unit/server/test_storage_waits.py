"""Commands wait in the poller for a storage engine over a network; what changes data is always carried out."""

import io
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import bson
import pytest
import trio
import trio.testing

from mongottl.clock import SystemClock
from mongottl.config import ServerConfig
from mongottl.document.interrupt import in_undivided
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stacks
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import ServiceContext
from mongottl.server.connection.task import Connection
from mongottl.server.dispatch import Dispatcher
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.server.shell import Shell
from mongottl.storage.forwarding import ForwardingEngine
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.opening import open_engine
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")

MAKE = {"insert": "c", "documents": [{"_id": 0}], "$db": "test"}
INSERT = {"insert": "c", "documents": [{"_id": 1}], "$db": "test"}
PING = {"ping": 1, "$db": "test"}


class WaitingEngine(ForwardingEngine):
    """Waits for the test before each unit of work. waits: the signals that are waited for."""

    def __init__(self) -> None:
        super().__init__(open_engine("memory:"))
        self.stacks: Stacks | None = None
        self.waits: list[Signal] = []

    def unit_of_work(self) -> WriteUnitOfWork:
        if self.stacks is not None and not in_undivided():
            self.stacks.require()
            stack = self.stacks.present
            assert stack is not None
            signal = Signal()
            self.waits.append(signal)
            while not signal.notified:
                stack.leave_midway(Wait(PATIENCE_S, signal, for_storage=True))
        return self.inner.unit_of_work()


class Served:
    """A connection of a server, and its client's end."""

    def __init__(self) -> None:
        self.engine = WaitingEngine()
        log = Log(stream=io.StringIO())
        clock = SystemClock()
        service = ServiceContext(ServerConfig(), clock, self.engine)
        self.shell = Shell(service, Dispatcher(service, log), Durability(self.engine, clock, log), log)
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        self.socket = ours
        self.connection = Connection(self.shell, ours, ours, ClientInfo(1, "127.0.0.1:1", "127.0.0.1:2"))
        self.ended = trio.Event()
        self._sent = 0
        self._received = b""

    def send(self, command: dict[str, Any]) -> None:
        self._sent += 1
        body = b"\0\0\0\0\0" + bson.encode(command)
        head = (16 + len(body)).to_bytes(4, "little") + self._sent.to_bytes(4, "little") + b"\0\0\0\0\xdd\7\0\0"
        self.client.send(head + body)

    async def reply(self) -> tuple[int, Any, float]:
        """The next reply: to which message, its `n`, and its `ok`."""
        while len(self._received) < 4 or len(self._received) < int.from_bytes(self._received[:4], "little"):
            await trio.lowlevel.wait_readable(self.client)
            self._received += self.client.recv(65536)
        size = int.from_bytes(self._received[:4], "little")
        message, self._received = self._received[:size], self._received[size:]
        document = bson.decode(message[21:])
        return int.from_bytes(message[8:12], "little"), document.get("n"), document["ok"]

    async def waits(self) -> Signal:
        """The signal for which the command waits."""
        while not self.engine.waits:
            await trio.sleep(0.001)
        return self.engine.waits.pop()

    async def serve(self) -> None:
        await self.connection.run()
        self.ended.set()


def run(test: Callable[[Served], Awaitable[None]]) -> None:
    served = Served()

    async def main() -> None:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(served.shell.poller.run)
                nursery.start_soon(served.shell.poller.resume_due)
                nursery.start_soon(served.serve)
                await trio.testing.wait_all_tasks_blocked()
                served.send(MAKE)
                assert await served.reply() == (1, 1, 1.0)
                served.engine.stacks = served.shell.service.stacks
                await test(served)
                nursery.cancel_scope.cancel()

    with served.socket, served.client:
        try:
            trio.run(main)
        finally:
            served.shell.poller.close()


def test_a_write_waits_in_the_poller() -> None:
    async def test(served: Served) -> None:
        served.send(INSERT)
        signal = await served.waits()
        assert served.shell.poller.pauses == 1
        signal.notify()
        assert await served.reply() == (2, 1, 1.0)
        assert served.shell.poller.pauses == 0

    run(test)


def test_a_command_that_comes_meanwhile_is_answered_afterwards() -> None:
    async def test(served: Served) -> None:
        served.send(INSERT)
        signal = await served.waits()
        served.send(PING)
        await trio.testing.wait_all_tasks_blocked()
        assert served.engine.waits == []
        signal.notify()
        assert await served.reply() == (2, 1, 1.0)
        assert await served.reply() == (3, None, 1.0)

    run(test)


def test_a_write_is_done_although_its_client_has_left() -> None:
    async def test(served: Served) -> None:
        served.send(INSERT)
        signal = await served.waits()
        served.client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert not served.ended.is_set()
        signal.notify()
        await served.ended.wait()
        collection = served.shell.service.catalog.lookup("test", "c")
        assert collection is not None and collection.store.count() == 2

    run(test)


def test_a_write_is_answered_although_the_server_stops() -> None:
    async def test(served: Served) -> None:
        served.send(INSERT)
        signal = await served.waits()
        served.shell.stopping.set()
        served.connection.stop_reading()
        await trio.testing.wait_all_tasks_blocked()
        signal.notify()
        assert await served.reply() == (2, 1, 1.0)

    run(test)
