"""The record store of `local.oplog.rs` over the log of a store, for reading alone. A record's id is its position."""

from typing import Final

from mongottl.oplog.documents import oplog_document
from mongottl.oplog.entry import loaded_form
from mongottl.oplog.positioned import PositionedOplog
from mongottl.oplog.records import STEP_BYTES, LogRecords
from mongottl.storage.log import time_of
from mongottl.storage.stores import NO_BYTE_LIMIT, Record
from mongottl.ttl.policy import NEVER

# A form is a little shorter than its document.
_SCAN_BYTES: Final = STEP_BYTES


class PositionedRecords(LogRecords):
    def __init__(self, oplog: PositionedOplog) -> None:
        super().__init__()
        self._oplog = oplog

    def find_record(self, record_id: int) -> Record | None:
        rows = self._oplog.log.read(record_id, record_id, 1, _SCAN_BYTES)
        return _record(*rows[0]) if rows else None

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        oplog = self._oplog
        oplog.log.reach_present()  # whoever has written before finds it, whatever others are writing
        begin, end = (after + 1, oplog.end - 1) if forward else (oplog.first, min(after, oplog.end) - 1)
        most_bytes = min(max_bytes, _SCAN_BYTES)
        rows = oplog.log.read(begin, end, limit, most_bytes, forward)
        more = len(rows) >= limit or sum([len(row[1]) for row in rows]) >= most_bytes
        return [_record(*row) for row in rows], more

    def count(self) -> int:
        self._oplog.measure()
        return self._oplog.count

    def size_bytes(self) -> int:
        self._oplog.measure()
        return self._oplog.size_bytes


def _record(position: int, form: bytes) -> Record:
    return (position, oplog_document(loaded_form(form, time_of(position))), 0, NEVER)
