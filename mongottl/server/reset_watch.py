"""Whether two programs reset this server's state while both use it, as the workers of a parallel test runner do.

Each `resetState` removes what the other has written, whose test then fails by a wrong count, now and then. The server
says so, once. A program that only writes, as the application under test does beside the tests, is no sign of it: both
have to reset, and both have to be connected, unlike processes that run one after another.

A program is the process at the other end of a connection of this machine, which Linux shows, or else the other machine.
So threads of one process are one program: the log has no warning of them.
"""

import os
from collections.abc import Container
from typing import NamedTuple

from mongottl.exec.running.client import ClientInfo


class SharedState(NamedTuple):
    """Two programs that both reset one server: the one that does so now, and one whose writes that removes."""

    program: str
    other: str


class ResetWatch:
    """What programs write and reset at one server, until it has warned."""

    def __init__(self) -> None:
        # Connections that have reset, and those that have written since the last reset.
        self._resetters: set[str] = set()
        self._writers: dict[int, ClientInfo] = {}
        # By connection id, since a process has to be looked for.
        self._programs: dict[int, str | None] = {}

    def note_write(self, client: ClientInfo) -> None:
        if self._resetters:
            self._writers[client.connection_id] = client

    def note_reset(self, client: ClientInfo, connected: Container[int]) -> SharedState | None:
        """Two programs that share the state, if this reset shows it. connected: ids of open connections."""
        writers = [writer for number, writer in self._writers.items() if number in connected]
        self._writers.clear()
        self._programs = {number: program for number, program in self._programs.items() if number in connected}
        program = self._program(client)
        if program is None:
            return None
        for writer in writers:
            other = self._program(writer) if self._resetters - {program} else None
            if other is not None and other != program and other in self._resetters:
                return SharedState(program, other)
        self._resetters.add(program)
        return None

    def _program(self, client: ClientInfo) -> str | None:
        number = client.connection_id
        if number not in self._programs:
            self._programs[number] = program_of(client)
        return self._programs[number]


def program_of(client: ClientInfo) -> str | None:
    """The program at the other end of a connection, None if that cannot be found out."""
    host = client.host.strip("[]")
    if not host.removeprefix("::ffff:").startswith("127.") and host != "::1":
        return f"address {host}"
    pid = _process_at(_port(client.remote), _port(client.local))
    return None if pid is None else f"process {pid}"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _process_at(port: int, peer_port: int) -> int | None:
    """The process of this machine whose TCP socket has these two ports; None if there is none that we may see, or the
    system does not show it.

    Source: Linux' proc_pid_fd(5) and Documentation/networking/proc_net_tcp.rst.
    """
    ports = (f":{port:04X}", f":{peer_port:04X}")
    sockets: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                for line in lines:
                    columns = line.split()
                    # Number, both ends, state, …, inode.
                    if columns[1].endswith(ports[0]) and columns[2].endswith(ports[1]):
                        sockets.add(f"socket:[{columns[9]}]")
        except OSError:
            continue
    return _process_with(sockets) if sockets else None


def _process_with(sockets: set[str]) -> int | None:
    """The process that has one of these sockets open, as /proc names them."""
    for process in os.listdir("/proc"):
        if not process.isdigit():
            continue
        try:
            with os.scandir(f"/proc/{process}/fd") as descriptors:
                for descriptor in descriptors:
                    if os.readlink(descriptor.path) in sockets:
                        return int(process)
        except OSError:
            continue  # it has ended meanwhile, or belongs to somebody else
    return None
