"""One exchange with the server: calls are sent as one pipeline, and all their answers are read.

    send    Parse?, Bind, Execute of each call … Sync        one transaction, committed at the Sync
    flush   until all is written; input is read meanwhile, or both sides would wait for the other to read
    read    one answer for each call, then that of the Sync

The calls up to a SYNC are one transaction, without BEGIN and COMMIT. The first call that fails ends it, and those after
it are not carried out. Inside of BEGIN the Sync commits nothing.

An exchange that an exception ends, such as that of an operation whose client has left, leaves answers unread:
`unanswered` counts the Syncs that belong to them, and `drain` reads and drops them. Which of its statements were
prepared is not known then, so that `forget_prepared` has the server forget all.
"""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import Error as PsycopgError
from psycopg import pq
from psycopg.adapt import Transformer

from mongottl.storage.postgresql.failures import OUT_OF_TIME, StoreFailure, failure_of, lost
from mongottl.storage.postgresql.statements import SYNC, Answer, Call, Statement
from mongottl.storage.waiting import READABLE, WRITABLE, Waiter

# How long the server may be silent: longer than its `statement_timeout`, after which it answers with an error.
SILENCE_S: Final = 40.0

# Over TLS a wait lasts at most this long. Older libpqs may hold a part of a record, for which no socket is readable;
# with version 18 that did not come up in batches of any length.
_TLS_LOOK_S: Final = 0.05

# Bound once: a look-up in an enumeration costs as much as a call of libpq.
_TUPLES: Final = pq.ExecStatus.TUPLES_OK
_DONE: Final = pq.ExecStatus.COMMAND_OK
_SYNCED: Final = pq.ExecStatus.PIPELINE_SYNC
_SKIPPED: Final = pq.ExecStatus.PIPELINE_ABORTED
_BAD: Final = pq.ConnStatus.BAD
_FORGET: Final = Statement("", "DEALLOCATE ALL")
# More results than a connection that was lost can have left for one call.
_MOST_LEFT: Final = 8


class Pipeline:
    """A connection in pipeline mode. pg: psycopg's PGconn, not blocking. unanswered: Syncs whose answers are not read.

    is_lost: whether the connection has ended, or is of no use any more. warnings: what the server has said beside its
    answers, and what makes it uncertain whether it has committed.
    """

    def __init__(self, pg: Any, waiter: Waiter) -> None:
        self._pg = pg
        self._fd: int = pg.socket
        self._encrypts = bool(pg.ssl_in_use)
        self._waiter = waiter
        # Decodes rows, and remembers how by type.
        self._transformer: Any = Transformer()
        self._prepared: set[str] = set()
        # Whether the server may have prepared statements that are not in the set.
        self._is_unsure = False
        self._heard_s = 0.0
        self._must_end = False
        self.unanswered = 0
        self.is_lost = False
        self.warnings: Final[list[str]] = []

    def run(self, calls: Sequence[Call], must_end: bool = False) -> list[Answer]:
        """The answers to calls, in their order, without those of SYNCs; StoreFailure, the first one of the calls.

        must_end: whether the operation cannot be interrupted while it waits, because the calls change something.
        """
        if self.unanswered:
            raise RuntimeError("a connection was used again before its answers were read")
        self._must_end = must_end
        self._heard_s = 0.0
        is_sent = False
        try:
            fresh = self._send(calls)
            is_sent = True  # from here on the server may commit
            self.unanswered += 1
            self._pg.pipeline_sync()
            self._flush()
            answers = self._read(calls, fresh)
            if self.warnings:
                self._raise_warning()
            return answers
        except PsycopgError as error:
            raise self._end(error, is_sent) from None
        except BaseException:
            self._is_unsure = True
            if not is_sent:  # a part of the calls would be carried out with the next ones
                self.mark_lost()
            raise

    def _raise_warning(self) -> None:
        message = "; ".join(self.warnings)
        self.warnings.clear()
        raise StoreFailure(OUT_OF_TIME, message, may_be_committed=True)

    def _send(self, calls: Sequence[Call]) -> set[int] | None:
        """Gives libpq all calls; the positions of those whose statements are prepared now."""
        pg = self._pg
        prepared = self._prepared
        fresh: set[int] | None = None
        names: set[str] = set()
        position = 0
        for call in calls:
            statement, parameters = call
            if call is SYNC:
                self.unanswered += 1
                pg.pipeline_sync()
            else:
                if statement.name not in prepared and statement.name not in names:
                    names.add(statement.name)
                    if fresh is None:
                        fresh = set()
                    fresh.add(position)
                    pg.send_prepare(statement.encoded_name, statement.encoded_sql, statement.types)
                pg.send_query_prepared(statement.encoded_name, parameters, statement.formats, 1)
            position += 1
        return fresh

    def _flush(self) -> None:
        """Writes what libpq has; it reads what has come before it waits to write, but once only."""
        pg = self._pg
        while pg.flush():
            if self._wait(READABLE | WRITABLE) & READABLE:
                pg.consume_input()

    def _read(self, calls: Sequence[Call], fresh: set[int] | None) -> list[Answer]:
        transformer = self._transformer
        answers: list[Answer] = []
        failure: StoreFailure | None = None
        position = 0
        for call in calls:
            if call is SYNC:
                failure = self._read_sync(failure, position)
            else:
                if fresh is not None and position in fresh:
                    result = self._result()
                    if result.status == _DONE:
                        if call[0].name:  # what has no name is replaced by the next one
                            self._prepared.add(call[0].name)
                    elif failure is None and result.status != _SKIPPED:
                        failure = failure_of(result, position)
                    self._end_of_results(failure)
                result = self._result()
                status = result.status
                if status == _TUPLES or status == _DONE:
                    answers.append(Answer(result, transformer, self._waiter))
                elif failure is None and status != _SKIPPED:
                    failure = failure_of(result, position)
                self._end_of_results(failure)
            position += 1
        failure = self._read_sync(failure, -1)
        if failure is not None:
            if failure.ends_connection:
                self.mark_lost()
            raise failure
        return answers

    def _result(self) -> Any:
        """The next result, which is there or is waited for."""
        pg = self._pg
        while pg.is_busy():
            self._wait(READABLE)
            pg.consume_input()
        return pg.get_result()

    def _end_of_results(self, failure: StoreFailure | None) -> None:
        """Reads the end of the results to one call. failure: of this call or an earlier one."""
        try:
            while self._result() is not None:
                pass
        except PsycopgError:
            if failure is None:
                raise
            self.mark_lost()
            raise failure from None

    def _read_sync(self, failure: StoreFailure | None, position: int) -> StoreFailure | None:
        """Reads the answer to a Sync, at which the transaction is committed; the first failure so far."""
        try:
            result = self._result()
            while result is None or result.status != _SYNCED:
                # A deferred constraint, or the end of the session: the last words before the end of the transaction.
                if result is not None and failure is None:
                    failure = failure_of(result, position)
                    failure.may_be_committed = failure.ends_connection
                self._require_connection()
                result = self._result()
        except PsycopgError:
            if failure is None:
                raise
            self.mark_lost()
            raise failure from None
        self.unanswered -= 1
        return failure

    def _wait(self, events: int) -> int:
        waiter = self._waiter
        if not self._heard_s:
            self._heard_s = waiter.monotonic_s()
        until_s = self._heard_s + SILENCE_S
        if self._encrypts:
            until_s = min(until_s, waiter.monotonic_s() + _TLS_LOOK_S)
        found = waiter.wait_socket(self._fd, events, until_s, self._must_end)
        if found:
            self._heard_s = 0.0
        elif waiter.monotonic_s() >= self._heard_s + SILENCE_S:
            raise PsycopgError(f"the server has been silent for {SILENCE_S:.0f} seconds")
        return found

    def _end(self, error: Exception, is_sent: bool) -> StoreFailure:
        """The failure of a connection that was lost while calls were sent or answered."""
        pg = self._pg
        failure: StoreFailure | None = None
        # The server may have said why, in words that were not looked at before.
        if pg.status == _BAD:
            for _ in range(_MOST_LEFT):
                result = pg.get_result()
                if result is not None and result.error_field(pq.DiagnosticField.SQLSTATE):
                    failure = failure_of(result, -1)
                    break
        if failure is None:
            failure = lost(str(error))
        failure.may_be_committed = is_sent
        self.mark_lost()
        return failure

    def mark_lost(self) -> None:
        """Notes that it is not used any more.

        Its socket is forgotten at once: libpq may have closed it, and others may get its number.
        """
        if not self.is_lost:
            self.is_lost = True
            self.unanswered = 0
            self._waiter.forget_socket(self._fd)

    def drain(self) -> None:
        """Reads and drops the answers that an exchange has left unread. StoreFailure if the connection is lost."""
        self._must_end = True
        self._heard_s = 0.0
        try:
            self._flush()
            while self.unanswered:
                result = self._result()
                if result is not None and result.status == _SYNCED:
                    self.unanswered -= 1
                else:
                    self._require_connection()
        except PsycopgError as error:
            raise self._end(error, False) from None

    def forget_prepared(self) -> None:
        """Called when no transaction is open. StoreFailure."""
        if self._is_unsure:
            self._prepared.clear()
            self.run(((_FORGET, ()),), must_end=True)
            self._prepared.clear()
            self._is_unsure = False

    def _require_connection(self) -> None:
        """Raises if the connection has ended: libpq would go on to give the same result for ever."""
        if self._pg.status == _BAD:
            raise PsycopgError(self._pg.get_error_message())
