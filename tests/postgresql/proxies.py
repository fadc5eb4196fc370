"""A proxy before a PostgreSQL server, which cuts a connection before a unit's end has reached the server, or after;
or is silent, as a link is that loses packets: what is sent meanwhile arrives when it is not any more.

Every exchange ends with a Sync; with `only_commits` those alone count that commit a unit of work: by COMMIT, or by the
row of the oplog, the last statement of a unit that is sent in one exchange.
"""

import select
import socket
import threading
from contextlib import suppress
from typing import Final

# Messages of the protocol: Sync, with which a unit is committed, and what the server answers to it at the end.
_SYNC: Final = b"S\x00\x00\x00\x04"
_READY: Final = b"Z\x00\x00\x00\x05I"
_CHUNK: Final = 65536
# What a client sends first, after four bytes with its length, that has a statement of another connection cancelled.
_CANCEL: Final = bytes((4, 210, 22, 46))
# Where the name of the statement that commits, or the server's word for it, is found in what ends a unit.
_TAIL: Final = 2048

# Names of such statements, and the server's word for the second one.
_COMMITS: Final = (b"commit", b"append", b"insert 0 1\0")

NEVER: Final = "never"
BEFORE_COMMIT: Final = "before commit"
AFTER_COMMIT: Final = "after commit"


class CuttingProxy:
    """Takes connections to `port` and passes on what is sent. cut: at which end of the next unit the connections are
    cut; then it is NEVER again. refuses: whether new connections are closed at once. slow_s: how long it takes until
    the first thing is passed on that the server says over a new one, in seconds."""

    def __init__(self, target: str, only_commits: bool = False) -> None:
        self._target = target
        self._only_commits = only_commits
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = NEVER
        self.refuses = False
        self.slow_s = 0.0
        self.cuts = 0
        self.accepted = 0
        self._open: list[socket.socket] = []
        # Set while what clients send is passed on, and what the server does.
        self._forwards = threading.Event()
        self._backwards = threading.Event()
        self._cancels = threading.Event()
        self.speak()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self.refuses:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:  # it is away
                close(client, server)
                continue
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._backward, args=(client, server), daemon=True).start()

    def be_silent(self, forward: bool = True, backward: bool = True) -> None:
        """From now on says nothing to the server, to clients, or to both; all connections stay open."""
        if forward:
            self._forwards.clear()
        if backward:
            self._backwards.clear()

    def speak(self) -> None:
        """Passes on what was sent since it was silent, also of clients that have gone meanwhile."""
        self._forwards.set()
        self._backwards.set()
        self._cancels.set()

    def hold_cancellations(self) -> None:
        """From now on passes on all but what clients send to have statements cancelled."""
        self._cancels.clear()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the client sends."""
        try:
            while data := client.recv(_CHUNK):
                self._forwards.wait()
                if data[4:8] == _CANCEL:
                    self._cancels.wait()
                if self.cut == BEFORE_COMMIT and data.endswith(_SYNC) and self._counts(data):
                    self._cut(client, server)
                    return
                server.sendall(data)
        except OSError:
            pass
        self._forwards.wait()  # nor is told that it has ended
        close(client, server)

    def _backward(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the server sends."""
        slow_s = self.slow_s
        try:
            while data := server.recv(_CHUNK):
                if slow_s:
                    select.select([], [], [], slow_s)
                    slow_s = 0.0
                self._backwards.wait()
                if self.cut == AFTER_COMMIT and data.endswith(_READY) and self._counts(data):
                    self._cut(client, server)
                    return
                client.sendall(data)
        except OSError:
            pass
        self._backwards.wait()
        close(client, server)

    def _counts(self, end: bytes) -> bool:
        tail = end[-_TAIL:].lower()
        return not self._only_commits or any(mark in tail for mark in _COMMITS)

    def _cut(self, client: socket.socket, server: socket.socket) -> None:
        self.cut = NEVER
        self.cuts += 1
        close(client, server)

    def cut_all(self) -> None:
        """Cuts all connections."""
        sockets, self._open = self._open, []
        close(*sockets)

    def close(self) -> None:
        close(self._listener)
        self.speak()
        self.cut_all()
        self._thread.join()


def close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
