"""A connection to PostgreSQL: made without blocking, used for one exchange after another, cancelled.

    connect ── settings ── pipeline mode ──┬── run ──► answers                     ready again
                                           ├── run ──► StoreFailure                ready again, or lost
                                           └── run ──► ended by the one who waits  cancel, drain: ready again, or lost

Nothing here chooses connections or repeats anything: `pool` does.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from psycopg import Error as PsycopgError
from psycopg import pq

from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.postgresql.address import Address, end_socket
from mongottl.storage.postgresql.failures import (
    FORBIDDEN,
    GONE,
    LOGIN,
    NO_DATABASE,
    REFUSED,
    StoreFailure,
    connect_failure,
    failure_of,
    lost,
    one_line,
)
from mongottl.storage.postgresql.pipeline import Pipeline
from mongottl.storage.postgresql.statements import Answer, Call
from mongottl.storage.waiting import READABLE, WRITABLE, Waiter

# The oldest server whose statements we send: 15.
OLDEST_SERVER: Final = 150_000
# The most that a statement may take: cancelled by the server, so that a lost client does not keep it busy.
STATEMENT_S: Final = 30
APPLICATION_NAME: Final = "mongottl"

_READING: Final = pq.PollingStatus.READING
_WRITING: Final = pq.PollingStatus.WRITING
_OK: Final = pq.PollingStatus.OK
_FAILED: Final = pq.PollingStatus.FAILED
_IDLE: Final = pq.TransactionStatus.IDLE
_UNKNOWN: Final = pq.TransactionStatus.UNKNOWN
_ENDED: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
# Seconds after which the next of several addresses is tried, at first: a machine that is gone does not answer at all.
_FIRST_ATTEMPT_S: Final = 0.5
_REFUSALS: Final = frozenset({LOGIN, NO_DATABASE, FORBIDDEN, REFUSED})
# Seconds between two looks whether another host has answered meanwhile.
_LOOK_S: Final = 0.1
# Seconds for the cancellation of a statement to be sent and taken.
_CANCEL_S: Final = 5.0

# Plans are made once for all parameters, and by index alone: at a store of a few rows the planner would choose a
# sequential scan, and keep it when there are millions. TIDs are what a purge deletes by.
_PLANNING: Final = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET max_parallel_workers_per_gather = 0;"
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
)


# Citus plans joins for the values of parameters only. What a transaction sets holds on all machines. A statement has
# one connection to each machine: for a read of all places that lasts longer than 10 ms Citus would open up to 16, and
# close all but one of them after it. Each starts a process, of which a busy machine has too many then.
_DISTRIBUTED: Final = (
    "SET plan_cache_mode = auto; SET citus.propagate_set_commands = 'local';"
    "SET citus.max_adaptive_executor_pool_size = 1;"
)
# So Citus begins to say that the coordinator has committed a unit, and some worker has not yet.
_NOT_COMMITTED_YET: Final = "failed to commit transaction on "
# The function of PostgreSQL in which a commit waits for a standby. It warns when that was cancelled, in any language:
# then a unit is committed of which perhaps no standby has anything.
_STANDBY_WAIT: Final = b"SyncRepWaitForLSN"


class SessionSettings:
    """What each connection sets. schema: where our tables are. name: what `pg_stat_activity` shows.

    lock_timeout_ms: how long a statement waits for the lock of another; 0 is no limit. isolation: of its transactions.
    """

    def __init__(
        self,
        schema: str = "mongottl",
        name: str = APPLICATION_NAME,
        lock_timeout_ms: int = 20,
        isolation: str = "read committed",
        statement_s: int = STATEMENT_S,
    ) -> None:
        self.schema = schema
        self.name = name
        self.lock_timeout_ms = lock_timeout_ms
        self.isolation = isolation
        self.statement_s = statement_s
        # Whether tables are distributed.
        self.is_distributed = False

    def statements(self) -> str:
        return (
            f"SET application_name = {literal(self.name)};"
            f"SET search_path = {identifier(self.schema)};"
            "SET client_encoding = 'UTF8'; SET standard_conforming_strings = on;"
            f"{_PLANNING}{_DISTRIBUTED if self.is_distributed else ''}"
            f"SET statement_timeout = '{self.statement_s}s'; SET lock_timeout = '{self.lock_timeout_ms}ms';"
            "SET idle_in_transaction_session_timeout = 0;"
            f"SET default_transaction_isolation = {literal(self.isolation)}"
        )


class Connection:
    """A connection in pipeline mode. attempt: by which it was made."""

    def __init__(self, pg: Any, waiter: Waiter, attempt: bytes) -> None:
        self.attempt: Final = attempt
        self._pg = pg
        self._waiter = waiter
        self._fd: int = pg.socket
        self._pipeline = Pipeline(pg, waiter)
        self.server_version: int = pg.server_version
        self.backend_id: int = pg.backend_pid
        self.warnings: Final = self._pipeline.warnings

    def run(self, calls: Sequence[Call], must_end: bool = False) -> list[Answer]:
        """Sends calls as one pipeline: the answer to each but SYNC. StoreFailure.

        must_end: whether the operation is not interrupted while it waits, since the calls change something.
        """
        return self._pipeline.run(calls, must_end)

    def run_one(self, call: Call) -> Answer:
        """The answer to a single call."""
        return self._pipeline.run((call,))[0]

    @property
    def is_lost(self) -> bool:
        return self._pipeline.is_lost

    @property
    def is_ready(self) -> bool:
        """Whether it can be used for another unit: nothing is unanswered, and no transaction is open."""
        if self._pipeline.is_lost or self._pipeline.unanswered:
            return False
        status: pq.TransactionStatus = self._pg.transaction_status
        return bool(status == _IDLE)

    @property
    def is_alive(self) -> bool:
        """False if an unused connection was closed by the server. It may have said other things, which are read."""
        if self._pipeline.is_lost:
            return False
        # Again after what was read: it may be the reason for which the connection was closed right after.
        while self._waiter.has_input(self._fd):
            try:
                self._pg.consume_input()
            except PsycopgError:
                self._pipeline.mark_lost()
                return False
        return True

    def hear(self, until_s: float) -> list[str] | None:
        """Waits for notifications of a channel that it listens to, until a time: their texts, or None if the connection
        is lost. It is used for nothing else meanwhile."""
        pg = self._pg
        waiter = self._waiter
        try:
            while True:
                pg.consume_input()
                heard: list[str] = []
                while (notification := pg.notifies()) is not None:
                    heard.append(decode_text(notification.extra))
                if heard or waiter.monotonic_s() >= until_s:
                    return heard
                waiter.wait_socket(self._fd, READABLE, until_s)
        except PsycopgError:
            self._pipeline.mark_lost()
            return None

    def settle(self, rollback: Call) -> bool:
        """Makes it ready after an exchange that was ended in the middle: cancels, drains, ends the transaction.

        Whether it is ready. It is to be closed if not. So is one whose cancellation may still be under way, as over a
        link that has lost it and repeats it: it would end a later statement, of whoever has the connection then.
        """
        pipeline = self._pipeline
        is_over = True
        try:
            if pipeline.unanswered:
                is_over = self.cancel()
                pipeline.drain()
            if not pipeline.is_lost and self._pg.transaction_status not in (_IDLE, _UNKNOWN):
                pipeline.run((rollback,), must_end=True)
            if not pipeline.is_lost:
                pipeline.forget_prepared()
        except StoreFailure:
            pass
        if not is_over:
            pipeline.mark_lost()
        return self.is_ready

    def cancel(self) -> bool:
        """Has the server cancel what it is doing for this connection. Does nothing if that cannot be sent.

        False if it may come later. The server hangs up when it has passed a cancellation on to the process of the
        connection, which ignores it while it carries out no statement.
        """
        if pq.version() < 170_000:
            return True  # an older libpq could do it only by blocking; `statement_timeout` will
        waiter = self._waiter
        until_s = waiter.monotonic_s() + _CANCEL_S
        try:
            cancelling: Any = self._pg.cancel_conn()
        except PsycopgError:
            return True
        status = _WRITING
        try:
            cancelling.start()
            status = cancelling.poll()
            while status in (_READING, _WRITING) and waiter.monotonic_s() < until_s:
                fd: int = cancelling.socket
                waiter.wait_socket(fd, READABLE if status == _READING else WRITABLE, until_s, must_end=True)
                waiter.forget_socket(fd)
                status = cancelling.poll()
        except PsycopgError:
            pass
        finally:
            cancelling.finish()
        return bool(status == _OK)

    def cut(self) -> None:
        """Has whoever waits for an answer find that the connection has ended. It is closed as any other that was
        lost."""
        if not self._pipeline.is_lost:
            end_socket(self._fd)

    def close(self) -> None:
        self._pipeline.mark_lost()
        self._pg.finish()


def connect(
    address: Address, settings: SessionSettings, waiter: Waiter, until_s: float, making: set[int] | None = None
) -> Connection:
    """Makes a connection to the first address that takes it. StoreFailure, of the last one that was tried.

    until_s: when to give up, in the waiter's time. making: has the server's process for it from before it has its name
    until this returns.
    """
    making = set() if making is None else making
    try:
        return _connect(address, settings, waiter, until_s, making)
    except StoreFailure as failure:
        if failure.kind != GONE or address.revive is None:
            raise
    try:
        waiter.call_in_thread(address.revive)
    except OSError as error:
        raise StoreFailure(GONE, str(error)) from None
    return _connect(address, settings, waiter, until_s, making)


def _connect(
    address: Address, settings: SessionSettings, waiter: Waiter, until_s: float, making: set[int]
) -> Connection:
    try:
        attempts = waiter.call_in_thread(address.attempts)
    except (OSError, ValueError) as error:
        raise StoreFailure(GONE, str(error)) from None
    failures: list[StoreFailure] = []
    patience_s = address.attempt_s if len(attempts) == 1 else min(_FIRST_ATTEMPT_S, address.attempt_s)
    is_slow = True
    while is_slow:
        failures.clear()
        is_slow = False
        for attempt in attempts:
            attempt_until_s = min(until_s, waiter.monotonic_s() + patience_s)
            try:
                connection = _connect_to(attempt, settings, waiter, attempt_until_s, making, address)
            except StoreFailure as failure:
                failures.append(failure)
                is_slow |= patience_s < address.attempt_s and attempt_until_s <= waiter.monotonic_s() < until_s
            else:
                address.note_success(attempt)
                return connection
        patience_s = min(2 * patience_s, address.attempt_s)
    # One that says what is wrong is more than one that does not answer.
    raise next((each for each in failures if each.kind in _REFUSALS), failures[-1])


def look_elsewhere(address: Address, settings: SessionSettings, waiter: Waiter) -> None:
    """Looks whether another host than the latest takes connections now: then that is the latest."""
    try:
        attempts = waiter.call_in_thread(address.attempts)
    except (OSError, ValueError):
        return
    latest = address.latest
    for attempt in attempts:
        if attempt != latest:
            try:
                _connect_to(attempt, settings, waiter, waiter.monotonic_s() + _FIRST_ATTEMPT_S, set(), address).close()
            except StoreFailure:
                continue
            address.note_success(attempt)
            return


def _connect_to(
    attempt: bytes, settings: SessionSettings, waiter: Waiter, until_s: float, making: set[int], address: Address
) -> Connection:
    pg = pq.PGconn.connect_start(attempt)
    number = 0
    try:
        _shake_hands(pg, waiter, until_s, address)
        number = pg.backend_pid
        making.add(number)
        _set_up(pg, settings, waiter, until_s)
        pg.enter_pipeline_mode()
        connection = Connection(pg, waiter, attempt)
        pg.notice_handler = partial(_note_warning, connection.warnings)
        return connection
    except BaseException as error:
        pg.finish()
        if isinstance(error, PsycopgError):
            raise lost(str(error)) from None
        raise
    finally:
        making.discard(number)


def _note_warning(warnings: list[str], notice: Any) -> None:
    """Called with what the server says beside its answers."""
    text = one_line(notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"")
    place = notice.error_field(pq.DiagnosticField.SOURCE_FUNCTION)
    if place == _STANDBY_WAIT or text.startswith(_NOT_COMMITTED_YET):
        warnings.append(text)


def _shake_hands(pg: Any, waiter: Waiter, until_s: float, address: Address) -> None:
    """Connects and logs in, unless another host takes connections meanwhile."""
    latest = address.latest
    if pg.status == pq.ConnStatus.BAD:
        raise connect_failure(pg.get_error_message())
    status = _WRITING
    while status != _OK:
        # libpq may close the socket and open another one in `connect_poll`.
        fd = pg.socket
        events = READABLE if status == _READING else WRITABLE
        try:
            while not waiter.wait_socket(fd, events, min(until_s, waiter.monotonic_s() + _LOOK_S)):
                if address.latest != latest:
                    raise StoreFailure(GONE, f"another host has taken the place of {_place(pg)}")
                if waiter.monotonic_s() >= until_s:
                    raise StoreFailure(GONE, f"no answer from {_place(pg)} in time")
        finally:
            waiter.forget_socket(fd)
        status = pg.connect_poll()  # which would block the thread if there was no answer yet
        if status == _FAILED:
            raise connect_failure(pg.get_error_message())


def _set_up(pg: Any, settings: SessionSettings, waiter: Waiter, until_s: float) -> None:
    """Gives a new connection its settings. StoreFailure if the server is too old."""
    if pg.server_version < OLDEST_SERVER:
        version = pg.server_version // 10_000
        raise StoreFailure(REFUSED, f"{_place(pg)} is PostgreSQL {version}; mongottl needs 15 or later")
    pg.nonblocking = 1
    pg.send_query(encode_text(settings.statements()))
    fd = pg.socket
    try:
        while pg.flush():
            waiter.wait_socket(fd, READABLE | WRITABLE, until_s)
            pg.consume_input()
        wrong: StoreFailure | None = None
        while True:
            while pg.is_busy():
                waiter.wait_socket(fd, READABLE, until_s)
                pg.consume_input()
                if waiter.monotonic_s() >= until_s:
                    raise StoreFailure(GONE, f"no answer from {_place(pg)} in time")
            result = pg.get_result()
            if result is None:
                break
            if result.status not in _ENDED and wrong is None:
                wrong = failure_of(result, -1)
        if wrong is not None:
            raise wrong
    except BaseException:
        waiter.forget_socket(fd)
        raise


def _place(pg: Any) -> str:
    host = decode_text(pg.host)
    return host if host.startswith("/") else f"{host}:{decode_text(pg.port)}"


def identifier(name: str) -> str:
    """A name in SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def literal(value: str) -> str:
    """A text in SQL. ValueError for what would need an escape."""
    if "'" in value or "\\" in value:
        raise ValueError(f"{value!r} cannot be written in SQL")
    return f"'{value}'"
