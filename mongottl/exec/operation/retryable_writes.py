"""Retryable writes: what is known of the statements of a session's latest one, so that a retry executes none twice.

A driver that does not know whether a write was executed sends it again with the same session id (`lsid`) and
`txnNumber`. Each statement of a batch has an id: `stmtIds`, or `stmtId` and the numbers after it, or its position.

    insert {txnNumber: 7, documents: [a, b, c]}     a, b are stored; the connection breaks
    insert {txnNumber: 7, documents: [a, b, c]}     executes c          → {n: 3, retriedStmtIds: [0, 1]}
    update {txnNumber: 8, …}                        what is known of 7 is dropped; 7 is refused from now on (225)

Only statements that have written something are remembered, as in MongoDB: one that failed, or that found nothing to
change, is executed by the retry. What a statement has done is stored by the unit of work that does it, with a data
directory on disk as well, so that either both or neither survive a crash (`StatementRows`).

Source: MongoDB's "Retryable Writes" page and the driver specification of retryable writes.
"""

import struct
from bisect import bisect_right
from typing import Final, NamedTuple

from mongottl.document.build import encode_fields
from mongottl.document.types import Date, Timestamp, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.session_ids import session_key, shown_id
from mongottl.storage.interface import Record, RecordStore
from mongottl.ttl.policy import NEVER

# What a statement has done. Stored on disk: the numbers must not change.
INSERTED: Final = 1
UPSERTED: Final = 2
UPDATED: Final = 3
# An update that left the document as it was, but restarted its lifetime (`nModified: 0`).
REFRESHED: Final = 4
DELETED: Final = 5
# Not a statement of a retryable write, but the commit of the session's latest transaction, so that it can be answered
# again.
COMMITTED_TRANSACTION: Final = 6

# Which version of the document findAndModify returns, and a retry of it.
NO_IMAGE: Final = 0
BEFORE: Final = 1
AFTER: Final = 2

# Memory that an entry takes in addition to the bytes that it refers to.
_ENTRY_BYTES: Final = 400
_SCAN_BYTES: Final = 4 << 20
_SCAN_ROWS: Final = 1000

_pack_length: Final = struct.Struct("<i").pack
# The fields of a row that all rows have, each a type and name and then its value.
_pack_row: Final = struct.Struct("<11sq15sq4sII7si6si6si").pack


class Executed:
    """Consecutive statements that have done the same. first, last: their ids; kind: INSERTED and so on.

    upserted: `{_id: …}` of a document that an update inserted, or empty. image: the document that findAndModify
    returns, or None; image_kind: NO_IMAGE, BEFORE or AFTER. row: the record that stores this, or None without a data
    directory; the document of a row with an image is left out, because that may be large.
    """

    def __init__(self, first: int, last: int, kind: int) -> None:
        self.first = first
        self.last = last
        self.kind = kind
        self.upserted = b""
        self.image: bytes | None = None
        self.image_kind = NO_IMAGE
        self.row: Record | None = None

    @property
    def size_bytes(self) -> int:
        return _ENTRY_BYTES + len(self.upserted) + (0 if self.image is None else len(self.image))

    @property
    def upserted_id(self) -> Value:
        return get_value(self.upserted, "_id")


class WriteHistory:
    """What is known of a session's latest retryable write.

    key: of the session. txn_number: of that write, -1 for none. executed: its statements, in the order of their
    execution. dropped: whether some were forgotten because of the bound on memory. written_ms, written_at: wall time
    and cluster time of the latest statement. size_bytes: memory of all but the first entry, and of that one if it has
    an image or an upserted `_id`. unused_rows: records of earlier writes, which later ones use again.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.txn_number = -1
        self.executed: list[Executed] = []
        self.dropped = False
        self.written_ms = 0
        self.written_at: Timestamp | None = None
        self.size_bytes = 0
        self.unused_rows: list[Record] = []
        # The beginning of its rows.
        self.head: bytes = b"\x03lsid\0" + shown_id(key)

    @property
    def is_committed_transaction(self) -> bool:
        """Whether the session's latest write was a transaction, which was committed."""
        return len(self.executed) == 1 and self.executed[0].kind == COMMITTED_TRANSACTION

    def clear(self) -> None:
        """Forgets all statements, because of a new write or to free memory."""
        for entry in self.executed:
            if entry.row is not None:
                self.unused_rows.append(entry.row)
        self.executed = []
        self.size_bytes = 0

    def rows(self) -> list[Record]:
        """All records that belong to the session."""
        return [*self.unused_rows, *[entry.row for entry in self.executed if entry.row is not None]]


class StoredEntry(NamedTuple):
    """A row as it was read. key: of its session; written_ms, written_at: wall time and cluster time of the
    statement."""

    key: bytes
    txn_number: int
    written_ms: int
    written_at: Timestamp
    entry: Executed


class StatementRows:
    """The records that hold what retryable writes have done, one for each `Executed`.

    A session's rows are used again for its next write: then one record is updated for each write of one statement.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = records

    def put(
        self, history: WriteHistory, entry: Executed, now_ms: int, at: Timestamp, replaces: Record | None, first: bool
    ) -> None:
        """Stores an entry within the unit of work that executes its statements.

        replaces: the row of an entry that this one extends, or None. first: whether it is the first one of its write.
        """
        document = _row_document(history, entry, now_ms, at)
        old = replaces
        if old is None and first and history.unused_rows:
            old = self._latest(history.unused_rows[0])
            self._delete(history.unused_rows[1:])
        kept = b"" if entry.image is not None else document
        if old is None:
            record_id = self._records.insert_record(document, 0, NEVER)
        else:
            record_id = old[0]
            self._records.update_record(old, (record_id, document, 0, NEVER))
        entry.row = (record_id, kept, 0, NEVER)

    def delete(self, rows: list[Record]) -> None:
        """Deletes rows. Inside a unit of work."""
        self._delete(rows)

    def _delete(self, rows: list[Record]) -> None:
        if rows:
            self._records.delete_records([self._latest(row) for row in rows])

    def _latest(self, row: Record) -> Record:
        """The record as it is stored."""
        if row[1]:
            return row
        stored = self._records.find_record(row[0])
        assert stored is not None
        return stored

    def load(self) -> list[StoredEntry]:
        """All rows, in the order of their records."""
        found: list[StoredEntry] = []
        after = 0
        more = True
        while more:
            records, more = self._records.scan(after, _SCAN_ROWS, True, _SCAN_BYTES)
            for record in records:
                after = record[0]
                found.append(_loaded(record))
        return found


def _row_document(history: WriteHistory, entry: Executed, now_ms: int, at: Timestamp) -> bytes:
    """`{lsid, txnNumber, lastWriteDate, ts, first, last, kind}`, then `upserted` and `image` if there are any."""
    row = _pack_row(
        b"\x12txnNumber\0",
        history.txn_number,
        b"\x09lastWriteDate\0",
        now_ms,
        b"\x11ts\0",
        at.inc,
        at.time,
        b"\x10first\0",
        entry.first,
        b"\x10last\0",
        entry.last,
        b"\x10kind\0",
        entry.kind,
    )
    more: list[tuple[str, Value]] = []
    if entry.upserted:
        more.append(("upserted", entry.upserted))
    if entry.image_kind != NO_IMAGE:
        more.append(("imageKind", entry.image_kind))
        more.append(("image", entry.image))
    if more:
        row += encode_fields(more)[4:-1]
    return _pack_length(5 + len(history.head) + len(row)) + history.head + row + b"\0"


def _loaded(record: Record) -> StoredEntry:
    document = record[1]
    lsid = get_value(document, "lsid")
    at = get_value(document, "ts")
    written = get_value(document, "lastWriteDate")
    assert isinstance(lsid, bytes) and isinstance(at, Timestamp) and isinstance(written, Date)
    entry = Executed(_number(document, "first"), _number(document, "last"), _number(document, "kind"))
    upserted = get_value(document, "upserted")
    if isinstance(upserted, bytes):
        entry.upserted = upserted
    image_kind = get_value(document, "imageKind")
    if isinstance(image_kind, int):
        image = get_value(document, "image")
        entry.image_kind = int(image_kind)
        entry.image = image if isinstance(image, bytes) else None
    entry.row = record if entry.image is None else (record[0], b"", record[2], record[3])
    return StoredEntry(session_key(lsid, None), _number(document, "txnNumber"), written.ms, at, entry)


def _number(document: bytes, name: str) -> int:
    value = get_value(document, name)
    assert isinstance(value, int)
    return int(value)


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
    """

    def __init__(self, history: WriteHistory, rows: StatementRows | None, counts: RetryCounts) -> None:
        self.history = history
        self._counts = counts
        self.is_retry = len(history.executed) > 0
        self.retried: list[Value] = []
        self.pending: list[Executed] = []
        self.closes_connection = False
        self._rows = rows
        self._base: int = 0
        self._ids: list[int] | None = None
        self._index: int = 0
        self._inserts = False
        self._image_kind = NO_IMAGE
        self._extends = False
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
        self._index = index
        self._inserts = True

    def begin(self, index: int, image_kind: int = NO_IMAGE) -> Executed | None:
        """What the update or delete at this position has done already, noted as retried; None if it is to be executed.

        image_kind: which version of the document has to be remembered.
        """
        self._index = index
        self._inserts = False
        self._image_kind = image_kind
        return self.executed_before(index)

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

    def note_inserts(self, count: int, document: bytes | None, now_ms: int, at: Timestamp) -> None:
        """Notes that the open unit inserts documents. document: the one that an update inserts."""
        if not self._inserts:
            entry = Executed(self.id_of(self._index), self.id_of(self._index), UPSERTED)
            assert document is not None
            entry.upserted = encode_fields([("_id", get_value(document, "_id"))])
            self._note(entry, None, document, now_ms, at)
        elif self._ids is None:
            first = self._base + self._index
            self._note(Executed(first, first + count - 1, INSERTED), None, None, now_ms, at)
        else:
            for index in range(self._index, self._index + count):
                self._note(Executed(self._ids[index], self._ids[index], INSERTED), None, None, now_ms, at)

    def note_update(self, before: bytes, after: bytes, now_ms: int, at: Timestamp) -> None:
        """Notes that the open unit replaces a document."""
        statement = self.id_of(self._index)
        entry = Executed(statement, statement, REFRESHED if before == after else UPDATED)
        self._note(entry, before, after, now_ms, at)

    def note_delete(self, before: bytes, now_ms: int, at: Timestamp) -> None:
        """Notes that the open unit deletes a document."""
        statement = self.id_of(self._index)
        self._note(Executed(statement, statement, DELETED), before, None, now_ms, at)

    def note_commit(self, now_ms: int, at: Timestamp) -> None:
        """Notes that the open unit commits the transaction of this number."""
        self.begin_unit()
        self._note(Executed(0, 0, COMMITTED_TRANSACTION), None, None, now_ms, at)

    def _note(self, entry: Executed, before: bytes | None, after: bytes | None, now_ms: int, at: Timestamp) -> None:
        if self._image_kind != NO_IMAGE:
            entry.image_kind = self._image_kind
            entry.image = before if self._image_kind == BEFORE or entry.kind == DELETED else after
        history = self.history
        pending = self.pending
        known = pending if pending else history.executed
        latest = known[-1] if known else None
        replaces: Record | None = None
        if (
            latest is not None
            and latest.kind == entry.kind
            and latest.last + 1 == entry.first
            and not entry.upserted
            and entry.image_kind == NO_IMAGE
            and latest.image_kind == NO_IMAGE
        ):
            entry.first = latest.first
            replaces = latest.row
            if pending:
                pending.pop()
            else:
                self._extends = True
        pending.append(entry)
        if self._rows is not None:
            first = len(pending) == 1 and not history.executed and not history.dropped
            self._rows.put(history, entry, now_ms, at, replaces, first)

    def begin_unit(self) -> None:
        """Drops what was noted in an earlier unit of work that was not committed."""
        self.pending = []
        self._extends = False

    def committed(self, now_ms: int, at: Timestamp) -> int:
        """Adds what the committed unit has noted to the session's history; how much larger this makes it, in bytes."""
        history = self.history
        pending = self.pending
        if not pending:
            return 0
        self.pending = []
        self._counts.noted += 1
        executed = history.executed
        if not history.dropped:
            history.unused_rows = []
        history.written_ms = now_ms
        history.written_at = at
        before = len(executed)
        if self._extends:
            self._extends = False
            executed[-1] = pending[0]
            executed.extend(pending[1:])
        else:
            executed.extend(pending)
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
