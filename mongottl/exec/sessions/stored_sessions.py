"""Stores the latest retryable writes of sessions in a data directory: records, and the oplog after them.

    records    one for each session, as of entry `through` of the oplog     {lsid, txnNumber, …, e: <statements>}
    oplog      … through │ {…, s: lsid, q: 8, e: <0 to 4 INSERTED>} …       what was written since (`oplog.statements`)

The records are brought up to date when the oplog begins a segment, and when the server stops; so at most one segment is
read at the start, after a crash.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import BinData, Date, Int64, Timestamp, Value
from mongottl.document.walk import get_value
from mongottl.exec.sessions.retryable_writes import WriteHistory
from mongottl.exec.sessions.session_ids import session_key
from mongottl.oplog.positioned import PositionedOplog
from mongottl.oplog.rows import OplogRows
from mongottl.oplog.statements import Executed, add_executed, packed, unpacked
from mongottl.query.timestamps import ClusterTime
from mongottl.storage.interface import WriteUnitOfWork
from mongottl.storage.stores import NewRecord, RecordStore
from mongottl.ttl.policy import NEVER

_ENTRY: Final = "sessions"
_SCAN_BYTES: Final = 4 << 20
_SCAN_ROWS: Final = 1000
_NO_TIME: Final = Timestamp(0, 0)


class StoredSessions:
    """The records of sessions in a catalog, and the oplog that continues them."""

    def __init__(self, catalog: Catalog, oplog: OplogRows | PositionedOplog) -> None:
        self._catalog = catalog
        self._oplog = oplog
        self._records: RecordStore = catalog.session_records()

    def load(self) -> list[WriteHistory]:
        """What is known of each session."""
        found: dict[bytes, WriteHistory] = {}
        after = 0
        more = True
        while more:
            records, more = self._records.scan(after, _SCAN_ROWS, True, _SCAN_BYTES)
            for record in records:
                after = record[0]
                history = _loaded(record[1])
                history.row = record[0]
                history.saved = True
                found[history.key] = history
        known = self._catalog.server_entry(_ENTRY)
        through = 0 if known is None else _number(known, "through")
        add_logged(found, self._oplog, through)
        return list(found.values())

    def save(self, changed: list[WriteHistory], gone: list[int], work: WriteUnitOfWork) -> None:
        """Brings the records up to date in a unit of work. changed: histories that differ from their records; gone:
        records of sessions that were forgotten."""
        records = self._records
        old = [*gone, *[history.row for history in changed if history.row]]
        while old:
            found, looked_up = records.find_records(old, _SCAN_BYTES)
            records.delete_records(found)
            del old[:looked_up]
        rows: list[NewRecord] = [(_stored(history), 0, NEVER) for history in changed]
        ids = records.insert_records(rows)
        work.on_commit(partial(_note_rows, list(zip(changed, ids, strict=True))))
        self._catalog.put_server_entry(_ENTRY, encode({"through": Int64(self._oplog.end)}))


def add_logged(found: dict[bytes, WriteHistory], oplog: OplogRows | PositionedOplog, number: int) -> None:
    """Adds to what is known of sessions, by their keys, what the entries of the oplog from a number on say."""
    for statements, wall_ms, at in oplog.statements_from(number):
        key = session_key(statements.lsid, None)
        history = found.get(key) or WriteHistory(key)
        found[key] = history
        if statements.txn_number < history.txn_number:
            continue
        history.saved = False
        if statements.txn_number > history.txn_number:
            history.txn_number = statements.txn_number
            history.dropped = False
            history.clear()
        add_executed(history.executed, statements.executed)
        history.written_ms = wall_ms
        history.written_at = ClusterTime(at.time, at.inc)


def _note_rows(stored: Iterable[tuple[WriteHistory, int]]) -> None:
    for history, row in stored:
        history.row = row


def _stored(history: WriteHistory) -> bytes:
    """`{lsid, txnNumber, lastWriteDate, ts, e: <statements>}`, and `dropped: true` if some were forgotten."""
    fields: list[tuple[str, Value]] = [
        ("lsid", history.lsid),
        ("txnNumber", Int64(history.txn_number)),
        ("lastWriteDate", Date(history.written_ms)),
        ("ts", _NO_TIME if history.written_at is None else history.written_at.timestamp),
        ("e", BinData(packed(history.executed), 0)),
    ]
    if history.dropped:
        fields.append(("dropped", True))
    return encode_fields(fields)


def _loaded(document: bytes) -> WriteHistory:
    lsid = get_value(document, "lsid")
    at = get_value(document, "ts")
    written = get_value(document, "lastWriteDate")
    executed = get_value(document, "e")
    assert isinstance(lsid, bytes) and isinstance(at, Timestamp) and isinstance(written, Date)
    assert isinstance(executed, BinData)
    history = WriteHistory(session_key(lsid, None))
    history.txn_number = _number(document, "txnNumber")
    history.written_ms = written.ms
    history.written_at = ClusterTime(at.time, at.inc) if at.time else None
    known: list[Executed] = unpacked(executed.data)
    history.executed = known
    history.dropped = get_value(document, "dropped") is True
    return history


def _number(document: bytes, name: str) -> int:
    value = get_value(document, name)
    assert isinstance(value, int)
    return int(value)
