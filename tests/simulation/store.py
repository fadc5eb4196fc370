"""The PostgreSQL of a simulation of several nodes: a schema for each run, which shows simulated time.

Each session of a run looks for functions in the run's schema before it looks in `pg_catalog`. So these are replaced:

    clock_timestamp         the run's time, in a file, which moves when the simulation says so; leases end by it
    set_config              nobody waits long for a lock: who has it does not go on meanwhile
    pg_terminate_backend    returns when the session has ended, and where `/proc` shows processes also its process: then
                            its socket is closed, which its node would else see sooner or later in each run
    pg_notify               does nothing: when a node hears of a change, the simulation decides (`hear`)

PostgreSQL carries out one exchange at a time: `await_answer` blocks until all answers to it are in the socket.
"""

import os
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final
from unittest.mock import patch

import psycopg

from mongottl.storage.postgresql import connection as connections
from mongottl.storage.postgresql.connection import Connection, SessionSettings, identifier
from mongottl.storage.postgresql.statements import SYNC, Answer, Call
from mongottl.storage.waiting import READABLE, ReplaceableWaiter, Waiter

LOCK_MS: Final = 5
# Seconds after which a simulation fails that PostgreSQL does not answer.
_SILENCE_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.0001
_MOST_LOOKS: Final = 100_000
# An answer that is longer than this is taken for complete: the socket may hold no more.
_LONG_ANSWER: Final = 64_000
# Of the message that ends the answer to a Sync.
_READY: Final = ord("Z")

_FUNCTIONS: Final = """
CREATE SCHEMA {0};
CREATE FUNCTION {0}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS $$SELECT to_timestamp(pg_read_file('{2}')::int8 / 1000.0)$$;
CREATE FUNCTION {0}.set_config(name text, value text, is_local bool) RETURNS text LANGUAGE sql VOLATILE
    AS $$SELECT pg_catalog.set_config(name, CASE name WHEN 'lock_timeout' THEN '{1}' ELSE value END, is_local)$$;
CREATE FUNCTION {0}.pg_terminate_backend(pid int) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$
    DECLARE sent bool := pg_catalog.pg_terminate_backend(pid);
    BEGIN
        FOR n IN 1..50000 LOOP
            PERFORM pg_stat_clear_snapshot();
            EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_get_activity(pid))
                AND (pg_stat_file('/proc/' || pid, true)).isdir IS NULL;
            PERFORM pg_sleep(0.0005);
        END LOOP;
        RETURN sent;
    END $$;
CREATE FUNCTION {0}.pg_notify(channel text, payload text) RETURNS void LANGUAGE sql VOLATILE AS 'SELECT';
"""


class SimulatedStore:
    """A schema of its own in the database of this process. uri: how nodes connect."""

    def __init__(self, uri: str, schema: str) -> None:
        self.schema: Final = schema
        self.uri: Final = _database_of_process(uri)
        self._own = psycopg.connect(self.uri, autocommit=True)
        shown = self._own.execute("SHOW data_directory").fetchone()
        assert shown is not None
        # Beside the database, where PostgreSQL may read: a statement for each change of the time costs much more.
        self._clock = os.path.join(shown[0], f"{schema}_ms")
        self._clock_fd = os.open(self._clock, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.fchmod(self._clock_fd, 0o644)
        self._own.execute(_FUNCTIONS.format(identifier(schema), LOCK_MS, os.path.basename(self._clock)).encode())

    def set_time(self, now_ms: int) -> None:
        os.pwrite(self._clock_fd, b"%015d" % now_ms, 0)

    def await_end(self, backends: list[int]) -> None:
        """Waits until sessions have ended whose clients are gone, with their transactions."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s)"
        while self._own.execute(query, [backends]).fetchone() != (0,) or any(map(_is_process, backends)):
            select.select([], [], [], 0.0005)

    def remove(self) -> None:
        with suppress(psycopg.Error):
            self._own.execute(f"SET lock_timeout = '1s'; DROP SCHEMA {identifier(self.schema)} CASCADE".encode())
        self._own.close()
        os.close(self._clock_fd)
        os.unlink(self._clock)


def _is_process(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _database_of_process(uri: str) -> str:
    """Advisory locks, which are those of a database, are not shared with other simulations."""
    name = f"simulations_{os.getpid()}"
    with psycopg.connect(uri, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{uri} dbname={name}"


class SimulatedConnection(Connection):
    """A connection of a node: known by its socket. syncs: to how many Syncs the present exchange waits for answers;
    is_answered: whether all have come, of which libpq may have read a part.

    by_socket: those of the present run. waiter: of its node. hears: whether it waits for a notification.
    is_cut: whether the simulation has cut it; was_noticed: whether its node sees that before it uses it.
    """

    by_socket: ClassVar[dict[int, "SimulatedConnection"]] = {}

    def __init__(self, pg: Any, waiter: Waiter, attempt: bytes) -> None:
        super().__init__(pg, waiter, attempt)
        assert isinstance(waiter, ReplaceableWaiter)
        self.waiter: Final = waiter.inner
        self.syncs = 0
        self.is_answered = False
        self.hears = False
        self.is_cut = False
        self.was_noticed = True
        self.by_socket[self._fd] = self

    def run(self, calls: Sequence[Call], must_end: bool = False) -> list[Answer]:
        self.syncs = 1 + sum(call is SYNC for call in calls)
        try:
            return super().run(calls, must_end)
        finally:
            self.syncs = 0
            self.is_answered = False

    def run_one(self, call: Call) -> Answer:
        return self.run((call,))[0]

    def hear(self, until_s: float) -> list[str] | None:
        if self.is_lost:
            return None
        self.hears = True
        try:
            self.waiter.wait_socket(self._fd, READABLE, until_s)
        finally:
            self.hears = False
        if self.is_cut:
            self._pipeline.mark_lost()
        return None if self.is_lost else []

    @property
    def fd(self) -> int:
        return self._fd

    def cut(self) -> None:
        """Ends it at both sides, with what was answered and not read."""
        self.is_cut = True
        with socket.socket(fileno=os.dup(self._fd)) as end:
            with suppress(OSError):
                while end.recv(1 << 16, socket.MSG_DONTWAIT):
                    pass
            end.shutdown(socket.SHUT_RDWR)


def await_answer(fd: int) -> None:
    """Blocks until all answers to what was sent are in a socket, or its end is."""
    known = SimulatedConnection.by_socket.get(fd)
    if known is not None and known.is_answered:
        return
    wanted = 0 if known is None else known.syncs or 1
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(_SILENCE_S * 1000):
        raise AssertionError("PostgreSQL does not answer")
    with socket.socket(socket.AF_UNIX, fileno=os.dup(fd)) as end, suppress(ConnectionError):
        for _ in range(_MOST_LOOKS):
            found = end.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            if _count_ready(found) >= wanted:
                if known is not None and known.syncs:
                    known.is_answered = True
                return
            if not found or len(found) >= _LONG_ANSWER or _has_ended(fd):
                return
            select.select([], [], [], _LOOK_EVERY_S)
        raise AssertionError("PostgreSQL has not answered to the end")


def _has_ended(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    return bool(poll.poll(0))


def _count_ready(found: bytes) -> int:
    """How many answers to Syncs are in a part of what a server has sent."""
    count = at = 0
    while at + 5 <= len(found):
        length = int.from_bytes(found[at + 1 : at + 5], "big")
        at += 1 + length
        count += found[at - 1 - length] == _READY and at <= len(found)
    return count


@contextmanager
def simulated_sessions() -> Iterator[None]:
    """Has engines that are opened meanwhile use the sessions of simulations."""
    usual = SessionSettings.statements

    def statements(settings: SessionSettings) -> str:
        path = f"SET search_path = {identifier(settings.schema)}, pg_catalog"
        return f"{usual(settings)};{path};SET lock_timeout = '{LOCK_MS}ms'"

    SimulatedConnection.by_socket.clear()
    with (
        patch.object(SessionSettings, "statements", statements),
        patch.object(connections, "Connection", SimulatedConnection),
    ):
        yield
    SimulatedConnection.by_socket.clear()
