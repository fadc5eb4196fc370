"""Retryable writes: what is known of the statements of a session's latest one, so that a retry executes none twice.

A driver that does not know whether a write was executed sends it again with the same session id (`lsid`) and
`txnNumber`. Each statement of a batch has an id: `stmtIds`, or `stmtId` and the numbers after it, or its position.

    insert {txnNumber: 7, documents: [a, b, c]}     a, b are stored; the connection breaks
    insert {txnNumber: 7, documents: [a, b, c]}     executes c          → {n: 3, retriedStmtIds: [0, 1]}
    update {txnNumber: 8, …}                        what is known of 7 is dropped; 7 is refused from now on (225)

Only statements that have written something are remembered, as in MongoDB: one that failed, or that found nothing to
change, is executed by the retry. With a data directory, what a statement has done is stored by the unit of work that
does it, so that either both or neither survive a crash (`oplog.statements`, `stored_sessions`).

Source: MongoDB's "Retryable Writes" page and the driver specification of retryable writes.
"""

from bisect import bisect_right

from mongottl.catalog.change_kinds import DELETE, INSERT
from mongottl.document.build import encode_fields
from mongottl.document.types import Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.sessions.session_ids import shown_id
from mongottl.oplog.change import Change
from mongottl.oplog.statements import (
    BEFORE,
    COMMITTED_TRANSACTION,
    DELETED,
    INSERTED,
    NO_IMAGE,
    REFRESHED,
    UPDATED,
    UPSERTED,
    Executed,
    Statements,
    add_executed,
)
from mongottl.query.timestamps import ClusterTime
from mongottl.storage.stores import NewRecord


class WriteHistory:
    """What is known of a session's latest retryable write.

    key: of the session; lsid: `{id, uid}`. txn_number: of that write, -1 for none. executed: its statements, in the
    order of their execution. dropped: whether some were forgotten because of the bound on memory. written_ms,
    written_at: wall time and cluster time of the latest statement. size_bytes: memory of all but the first entry, and
    of that one if it has an image or an upserted `_id`. row: the id of the record that stores it (`stored_sessions`),
    0 for none; saved: whether that record needs no update, after it was read.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.lsid: bytes = shown_id(key)
        self.txn_number = -1
        self.executed: list[Executed] = []
        self.dropped = False
        self.written_ms = 0
        self.written_at: ClusterTime | None = None
        self.size_bytes = 0
        self.row: int = 0
        self.saved = False

    @property
    def is_committed_transaction(self) -> bool:
        """Whether the session's latest write was a transaction, which was committed."""
        return len(self.executed) == 1 and self.executed[0].kind == COMMITTED_TRANSACTION

    def clear(self) -> None:
        """Forgets all statements, because of a new write or to free memory."""
        self.executed = []
        self.size_bytes = 0


class RetryCounts:
    """How many retried commands found statements executed already, how many such statements, and how many units of work
    were noted, of all sessions: `serverStatus.transactions`."""

    def __init__(self) -> None:
        self.commands = 0
        self.statements = 0
        self.noted = 0

    def statistics(self) -> dict[str, int]:
        return {
            "retriedCommandsCount": self.commands,
            "retriedStatementsCount": self.statements,
            "transactionsCollectionWriteCount": self.noted,
        }


class RetryableWrite:
    """One command that is a retryable write, and its statements.

    is_retry: whether statements of this write were executed by an earlier attempt. retried: the ids of those that this
    command has met. pending: what the open unit of work adds to the session's history when it is committed.
    closes_connection: whether a fail point has it that the client gets no answer.
    may_be_late: whether its client may have gone on by way of another server since it has sent it.
    """

    def __init__(self, history: WriteHistory, counts: RetryCounts) -> None:
        self.history = history
        self._counts = counts
        self.is_retry = len(history.executed) > 0
        self.retried: list[Value] = []
        self.pending: list[Executed] = []
        self.closes_connection = False
        self.may_be_late = True
        self._base: int = 0
        self._ids: list[int] | None = None
        # The positions of the statements that the next unit of work executes; of inserts only that of the first.
        self._positions: list[int] = [0]
        self._inserts = False
        self._image_kind = NO_IMAGE
        # The entries of earlier attempts by their first statement, and these first statements.
        self._earlier: list[Executed] = []
        self._firsts: list[int] = []
        if self.is_retry:
            self._earlier = sorted(history.executed, key=_first_of)
            self._firsts = [entry.first for entry in self._earlier]

    def number(self, base: int, ids: list[int] | None) -> None:
        """Sets the ids of the statements: ids if given, else base and the numbers after it."""
        self._base = base
        self._ids = ids

    def id_of(self, index: int) -> int:
        """The id of the statement at this position of the batch."""
        return self._base + index if self._ids is None else self._ids[index]

    def begin_inserts(self, index: int) -> None:
        """The next unit of work executes inserts, beginning with the one at this position."""
        self._positions = [index]
        self._inserts = True

    def begin(self, index: int, image_kind: int = NO_IMAGE) -> Executed | None:
        """What the update or delete at this position has done already, noted as retried; None if it is to be executed.

        image_kind: which version of the document has to be remembered.
        """
        self._positions = [index]
        self._inserts = False
        self._image_kind = image_kind
        return self.executed_before(index)

    def begin_together(self, positions: list[int]) -> None:
        """The next unit of work executes the updates, the upserts or the deletes at these positions, each of which
        changes a document, in this order."""
        self._positions = positions
        self._inserts = False
        self._image_kind = NO_IMAGE

    def executed_before(self, index: int) -> Executed | None:
        """What the statement at this position has done in an earlier attempt, noted as retried; None if nothing."""
        entry = self._find(self.id_of(index)) if self.is_retry else None
        if entry is not None:
            self._counts.commands += len(self.retried) == 0
            self._counts.statements += 1
            self.retried.append(self.id_of(index))
        return entry

    def pass_executed(self, index: int, count: int) -> int:
        """How many of `count` statements from this position on were executed already; they are noted as retried."""
        for ahead in range(count):
            if self.executed_before(index + ahead) is None:
                return ahead
        return count

    def count_new(self, index: int, count: int) -> int:
        """How many of `count` statements from this position on come before one that was executed already."""
        if self.is_retry:
            for ahead in range(count):
                if self._find(self.id_of(index + ahead)) is not None:
                    return ahead
        return count

    def _find(self, statement: int) -> Executed | None:
        at = bisect_right(self._firsts, statement) - 1
        if at >= 0 and self._earlier[at].last >= statement:
            return self._earlier[at]
        return None

    def add_to(self, reply: dict[str, Value]) -> dict[str, Value]:
        """The reply with `retriedStmtIds`, if there are any."""
        if self.retried:
            reply["retriedStmtIds"] = self.retried
        return reply

    def note(self, change: Change) -> None:
        """Notes what a statement does in the open unit, or several that insert documents."""
        if change.kind == INSERT:
            self._note_inserts(change.rows)
            return
        for place, position in enumerate(self._positions):
            statement = self.id_of(position)
            before = change.before[place]
            if change.kind == DELETE:
                self._note(Executed(statement, statement, DELETED), before, None)
            else:
                after = change.rows[place][0]
                self._note(Executed(statement, statement, REFRESHED if before == after else UPDATED), before, after)

    def _note_inserts(self, rows: list[NewRecord]) -> None:
        count = len(rows)
        first = self._positions[0]
        if not self._inserts:
            for place, position in enumerate(self._positions):
                document = rows[place][0]
                executed = Executed(self.id_of(position), self.id_of(position), UPSERTED)
                executed.upserted = encode_fields([("_id", get_value(document, "_id"))])
                self._note(executed, None, document)
        elif self._ids is None:
            self._note(Executed(self._base + first, self._base + first + count - 1, INSERTED), None, None)
        else:
            for index in range(first, first + count):
                self._note(Executed(self._ids[index], self._ids[index], INSERTED), None, None)

    def note_commit(self) -> None:
        """Notes that the open unit commits the transaction of this number."""
        self.begin_unit()
        self._note(Executed(0, 0, COMMITTED_TRANSACTION), None, None)

    def _note(self, executed: Executed, before: bytes | None, after: bytes | None) -> None:
        if self._image_kind != NO_IMAGE:
            executed.image_kind = self._image_kind
            executed.image = before if self._image_kind == BEFORE or executed.kind == DELETED else after
        self.pending.append(executed)

    def begin_unit(self) -> None:
        """Drops what was noted in an earlier unit of work that was not committed."""
        self.pending = []

    @property
    def statements(self) -> Statements:
        """The statements of the open unit, to be stored with its entry in the oplog."""
        return Statements(self.history.lsid, self.history.txn_number, self.pending)

    def committed(self, now_ms: int, at: ClusterTime) -> int:
        """Adds what the committed unit has noted to the session's history; how much larger this makes it, in bytes."""
        history = self.history
        pending = self.pending
        if not pending:
            return 0
        self.pending = []
        self._counts.noted += 1
        executed = history.executed
        history.written_ms = now_ms
        history.written_at = at
        before = len(executed)
        add_executed(executed, pending)
        latest = executed[-1]
        if len(executed) == 1 and latest.image is None and not latest.upserted:
            return 0
        return sum([entry.size_bytes for entry in executed[before:]])


def _first_of(entry: Executed) -> int:
    return entry.first


def other_write(what: str) -> CommandError:
    """The error of a retry that is another kind of write than the statement which was executed."""
    return CommandError(
        ErrorCode.InvalidOptions, f"The retried statement is {what}, but its first attempt was another kind of write."
    )
