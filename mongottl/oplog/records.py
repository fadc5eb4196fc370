"""The record store of `local.oplog.rs`: the entries of the oplog as documents, for reading alone.

A record's id is the number of its entry and 1, so scans and tailing cursors work as on any capped collection.
"""

from collections.abc import Iterator
from typing import Final

from mongottl.errors import CommandError, ErrorCode
from mongottl.oplog.documents import oplog_document
from mongottl.oplog.numbered import NumberedOplog
from mongottl.storage.stores import NO_BYTE_LIMIT, DueEntry, ExpiryIndex, NewRecord, Record, RecordStore
from mongottl.ttl.policy import NEVER

DATABASE: Final = "local"
NAME: Final = "oplog.rs"
NAMESPACE: Final = f"{DATABASE}.{NAME}"

# Bytes of documents that one scan makes; the last document may exceed it. They are made, not found, so they take longer
# than a collection's.
STEP_BYTES: Final = 1 << 20


class LogRecords(RecordStore):
    """The records of an oplog. Writes are refused (73)."""

    def __init__(self) -> None:
        self.ident = "oplog"

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        raise refused_write()

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        raise refused_write()

    def delete_records(self, records: list[Record]) -> None:
        raise refused_write()

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        found: list[Record] = []
        left = max_bytes
        for taken, record_id in enumerate(record_ids, 1):
            record = self.find_record(record_id)
            if record is not None:
                found.append(record)
                left -= len(record[1])
                if left <= 0:
                    return found, taken
        return found, len(record_ids)

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        return []


class OplogRecords(LogRecords):
    """Those of numbered entries."""

    def __init__(self, oplog: NumberedOplog) -> None:
        super().__init__()
        self._oplog = oplog

    def find_record(self, record_id: int) -> Record | None:
        oplog = self._oplog
        number = record_id - 1
        if number < oplog.first or number >= oplog.end:
            return None
        return (record_id, oplog_document(oplog.described(number)), 0, NEVER)

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        found: list[Record] = []
        left = min(max_bytes, STEP_BYTES)
        for record_id in self._ids(after, forward):
            record = self.find_record(record_id)
            if record is None:
                continue  # others may run while a document is made, and drop the oldest entries
            found.append(record)
            left -= len(record[1])
            if len(found) >= limit or left <= 0:
                return found, True
        return found, False

    def _ids(self, after: int, forward: bool) -> Iterator[int]:
        oplog = self._oplog
        if forward:
            return iter(range(max(after, oplog.first) + 1, oplog.end + 1))
        return iter(range(min(after - 1, oplog.end), oplog.first, -1))

    def count(self) -> int:
        return self._oplog.end - self._oplog.first

    def size_bytes(self) -> int:
        return self._oplog.size_bytes


def refused_write() -> CommandError:
    """InvalidNamespace (73): clients cannot write to the oplog of a replica set's member ("Replica Set Oplog")."""
    return CommandError(ErrorCode.InvalidNamespace, f"cannot write to '{NAMESPACE}'")
