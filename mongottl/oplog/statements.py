"""What the statements of retryable writes have done, as the oplog says it, so that a retry executes none twice.

It is stored in the row of the unit of work that has executed them, which costs no row of its own, and either both
survive a crash or neither. A unit that is not in the oplog has an entry without an operation for it (NOOP).

    insert {lsid, txnNumber: 7, documents: [a, b, c]}  →  {k: INSERT, …, s: lsid, q: 7, e: <0 to 2 INSERTED>}

Source: MongoDB's "Retryable Writes" page and the driver specification of retryable writes.
"""

import struct
from typing import Final

from mongottl.document.types import Value
from mongottl.document.walk import get_value

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

# Memory that statements take in addition to the bytes that they refer to.
_EXECUTED_BYTES: Final = 400
# first, last, kind, image_kind, and which documents follow: 1 for `upserted`, 2 for the image.
_HEAD: Final = struct.Struct("<iiBBB")
_HAS_UPSERTED: Final = 1
_HAS_IMAGE: Final = 2


class Executed:
    """Consecutive statements that have done the same. first, last: their ids; kind: INSERTED and so on.

    upserted: `{_id: …}` of a document that an update inserted, or empty. image: the document that findAndModify
    returns, or None; image_kind: NO_IMAGE, BEFORE or AFTER.
    """

    def __init__(self, first: int, last: int, kind: int) -> None:
        self.first = first
        self.last = last
        self.kind = kind
        self.upserted = b""
        self.image: bytes | None = None
        self.image_kind = NO_IMAGE

    @property
    def size_bytes(self) -> int:
        return _EXECUTED_BYTES + len(self.upserted) + (0 if self.image is None else len(self.image))

    @property
    def upserted_id(self) -> Value:
        return get_value(self.upserted, "_id")

    def joined(self, later: "Executed") -> "Executed | None":
        """These statements and later ones as one, if they follow each other and have done the same; else None."""
        if (
            self.kind != later.kind
            or self.last + 1 != later.first
            or later.upserted
            or self.image_kind != NO_IMAGE
            or later.image_kind != NO_IMAGE
        ):
            return None
        return Executed(self.first, later.last, later.kind)


class Statements:
    """What one unit of work has executed of the write with this number of a session, whose id is `{id, uid}`."""

    def __init__(self, lsid: bytes, txn_number: int, executed: list[Executed]) -> None:
        self.lsid = lsid
        self.txn_number = txn_number
        self.executed = executed


def add_executed(known: list[Executed], later: list[Executed]) -> None:
    """Adds what was executed later to what is known, joined where it can be."""
    for executed in later:
        joined = known[-1].joined(executed) if known else None
        if joined is None:
            known.append(executed)
        else:
            known[-1] = joined


def packed(executed: list[Executed]) -> bytes:
    """The stored form of statements."""
    parts: list[bytes] = []
    for one in executed:
        image = one.image
        follows = (_HAS_UPSERTED if one.upserted else 0) | (0 if image is None else _HAS_IMAGE)
        parts.append(_HEAD.pack(one.first, one.last, one.kind, one.image_kind, follows))
        if one.upserted:
            parts.append(one.upserted)
        if image is not None:
            parts.append(image)
    return b"".join(parts)


def unpacked(stored: bytes) -> list[Executed]:
    """The statements of a stored form."""
    found: list[Executed] = []
    position = 0
    while position < len(stored):
        first, last, kind, image_kind, follows = _HEAD.unpack_from(stored, position)
        position += _HEAD.size
        executed = Executed(first, last, kind)
        executed.image_kind = image_kind
        if follows & _HAS_UPSERTED:
            executed.upserted = _document_at(stored, position)
            position += len(executed.upserted)
        if follows & _HAS_IMAGE:
            image = _document_at(stored, position)
            executed.image = image
            position += len(image)
        found.append(executed)
    return found


def _document_at(stored: bytes, position: int) -> bytes:
    return stored[position : position + int.from_bytes(stored[position : position + 4], "little")]
