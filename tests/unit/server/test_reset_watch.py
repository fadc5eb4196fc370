"""When a server is taken for one that two programs reset. Here programs are machines, which addresses tell apart."""

import os
import socket
import sys

import pytest

from mongottl.exec.running.client import ClientInfo
from mongottl.server.reset_watch import ResetWatch, SharedState, program_of

FIRST, SECOND = "10.0.0.1", "10.0.0.2"


class Server:
    """A watch, and connections of programs, which are numbered as they are opened."""

    def __init__(self) -> None:
        self.watch = ResetWatch()
        self.connected: dict[int, ClientInfo] = {}

    def connect(self, address: str) -> ClientInfo:
        number = len(self.connected) + 1
        self.connected[number] = ClientInfo(number, "10.0.0.9:27017", f"{address}:{50_000 + number}")
        return self.connected[number]

    def reset(self, client: ClientInfo) -> SharedState | None:
        return self.watch.note_reset(client, self.connected)


def test_two_programs_that_reset_and_write() -> None:
    server = Server()
    first, second = server.connect(FIRST), server.connect(SECOND)
    assert server.reset(first) is None
    server.watch.note_write(first)
    assert server.reset(second) == SharedState(f"address {SECOND}", f"address {FIRST}")


def test_several_connections_of_one_program() -> None:
    server = Server()
    connections = [server.connect(FIRST) for _ in range(3)]
    for client in connections * 3:
        assert server.reset(client) is None
        for other in connections:
            server.watch.note_write(other)


def test_an_application_that_only_writes() -> None:
    server = Server()
    tests, application = server.connect(FIRST), server.connect(SECOND)
    for _ in range(3):
        assert server.reset(tests) is None
        server.watch.note_write(application)
        server.watch.note_write(tests)


def test_two_programs_that_reset_before_either_writes() -> None:
    server = Server()
    first, second = server.connect(FIRST), server.connect(SECOND)
    assert server.reset(first) is None
    assert server.reset(second) is None
    server.watch.note_write(second)
    assert server.reset(first) == SharedState(f"address {FIRST}", f"address {SECOND}")


def test_a_program_after_another() -> None:
    server = Server()
    first = server.connect(FIRST)
    assert server.reset(first) is None
    server.watch.note_write(first)
    second = server.connect(SECOND)
    del server.connected[first.connection_id]
    assert server.reset(second) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose sockets are whose")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_process_of_a_local_connection(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    shown = f"[{host}]" if ":" in host else host
    with listener:
        port = listener.getsockname()[1]
        with socket.create_connection((host, port)) as client:
            remote = client.getsockname()[1]
            info = ClientInfo(1, f"{shown}:{port}", f"{shown}:{remote}")
            assert program_of(info) == f"process {os.getpid()}"
        # Nobody's any more: at least none of the open sockets of processes.
        other = ClientInfo(2, f"{shown}:{port}", f"{shown}:1")
        assert program_of(other) is None
