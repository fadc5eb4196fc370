"""Commands whose steps take long, in the tasks of their connections."""

import io
import socket
import sys
from functools import partial

import pytest
import trio
import trio.testing

from mongottl.config import ServerConfig
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.stack import Steps
from mongottl.exec.service.service import ServiceContext
from mongottl.server.connection.steps import run_steps
from mongottl.server.connection.task import Connection
from mongottl.server.dispatch import Dispatcher
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.server.shell import Shell
from mongottl.storage.opening import open_engine
from tests.running import hurried_clock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")

COMMANDS = 4
STEPS = 3


def test_clients_that_wait_are_answered_before_other_commands_go_on() -> None:
    """Each step takes more than a task's time: a ping waited for those of twenty change streams over 15 MB."""
    clock = hurried_clock(0.01)
    engine = open_engine("memory:")
    log = Log(stream=io.StringIO())
    service = ServiceContext(ServerConfig(), clock, engine)
    shell = Shell(service, Dispatcher(service, log), Durability(engine, clock, log), log)
    asked, asks = socket.socketpair()
    connection = Connection(shell, asked, asked, ClientInfo(1, "127.0.0.1:1", "127.0.0.1:2"))
    order: list[str] = []

    def work(name: str) -> bytes:
        for _ in range(STEPS):
            order.append(name)
            asks.send(b"a")
            service.stacks.give_way()
        return b""

    def answer() -> bool:
        order.append("answered")
        asked.recv(64)
        return True

    async def carry_out(name: str) -> None:
        steps = service.stacks.begin(partial(work, name))
        assert isinstance(steps, Steps)
        await run_steps(connection.channel, steps, None, may_abandon=False)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.poller.wait, asked, answer)
            await trio.testing.wait_all_tasks_blocked()
            async with trio.open_nursery() as commands:
                for number in range(COMMANDS):
                    commands.start_soon(carry_out, f"command {number}")
            nursery.cancel_scope.cancel()

    with asked, asks:
        trio.run(main)
    shell.poller.close()
    assert len(order) == 2 * COMMANDS * STEPS
    assert order[1::2] == ["answered"] * (COMMANDS * STEPS)
