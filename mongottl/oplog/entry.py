"""An entry of the oplog: a change with the time of its commit, and its stored form."""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from mongottl.catalog.view import SYSTEM_VIEWS
from mongottl.document.build import encode_fields
from mongottl.document.interrupt import UndividedEvaluation, give_way_after
from mongottl.document.types import BinData, Int64, Timestamp, Value
from mongottl.document.walk import fields_by_name, get_value
from mongottl.oplog.change import LoggedChange
from mongottl.oplog.statements import Statements, packed, unpacked

# Memory of an entry in addition to its documents.
_ENTRY_BYTES: Final = 400

# Fields of the stored form as BSON: type and name before each value.
_pack_head: Final = struct.Struct("<3si3sII3sq").pack
_pack_open_head: Final = struct.Struct("<3si3sII").pack
_pack_end: Final = struct.Struct("<3sq3sqB")
_pack_number: Final = struct.Struct("<3sq3siB").pack
_pack_binary: Final = struct.Struct("<iB").pack
_pack_length: Final = struct.Struct("<i").pack


class TransactionPart(NamedTuple):
    """Which part of a transaction an entry is.

    lsid: the id of its session, `{id, uid}`. number: of the transaction. first_index: index of the entry's first
    operation in it. following: how many entries of it come after this one.
    """

    lsid: bytes
    number: int
    first_index: int
    following: int


@mypyc_attr(acyclic=True)
class OplogEntry:
    """The operations of one unit of work on one collection, and when it was committed.

    at_s, at_i: cluster time. wall_ms: wall time. lsid, txn_number, first_index, following: see `TransactionPart`; None
    and 0 if it is of no transaction.
    """

    def __init__(
        self, change: LoggedChange, at_s: int, at_i: int, wall_ms: int, transaction: TransactionPart | None = None
    ) -> None:
        self.change: Final = change
        self.at_s: Final[int] = at_s
        self.at_i: Final[int] = at_i
        self.wall_ms: Final[int] = wall_ms
        self.lsid: Final[bytes | None] = None if transaction is None else transaction.lsid
        self.txn_number: Final[int] = 0 if transaction is None else transaction.number
        self.first_index: Final[int] = 0 if transaction is None else transaction.first_index
        self.following: Final[int] = 0 if transaction is None else transaction.following

    @property
    def at(self) -> Timestamp:
        return Timestamp(self.at_s, self.at_i)

    @property
    def transaction(self) -> TransactionPart | None:
        lsid = self.lsid
        return None if lsid is None else TransactionPart(lsid, self.txn_number, self.first_index, self.following)

    def described(self) -> "OplogEntry":
        """The entry with its change `described`; itself if it is."""
        change = self.change.described()
        if change is self.change:
            return self
        return OplogEntry(change, self.at_s, self.at_i, self.wall_ms, self.transaction)

    def size_bytes(self) -> int:
        return _ENTRY_BYTES + self.change.size_bytes()


def stored_form(entry: OplogEntry, statements: Statements | None = None) -> bytes:
    """What is stored of an entry: a document whose fields are those of `OplogEntry` and its change, abbreviated.

    An update is stored as its description, since that is small where the document is large; the documents themselves
    only where the collection keeps images. statements: what the unit of work has executed of a retryable write.
    """
    change = _described(entry.change)
    head = _pack_head(b"\x10k\0", change.kind, b"\x11t\0", entry.at_i, entry.at_s, b"\x12w\0", entry.wall_ms)
    parts = [b"", head]
    _add_change(parts, change)
    rare = _rare_fields(change) + _part_fields(entry)
    if entry.lsid is not None:
        rare.append(("f", Int64(entry.following)))
    if rare:
        parts.append(encode_fields(rare)[4:-1])
    if statements is not None:
        executed = packed(statements.executed)
        number = _pack_number(b"\x12q\0", statements.txn_number, b"\x05e\0", len(executed), 0)
        parts += [b"\x03s\0", statements.lsid, number, executed]
    parts.append(b"\0")
    parts[0] = _pack_length(4 + sum([len(part) for part in parts]))
    return b"".join(parts)


def open_form(entry: OplogEntry) -> bytes:
    """The stored form of a part of a transaction that is not committed yet, without its end."""
    change = _described(entry.change)
    parts = [b"", _pack_open_head(b"\x10k\0", change.kind, b"\x11t\0", entry.at_i, entry.at_s)]
    _add_change(parts, change)
    parts.append(encode_fields(_rare_fields(change) + _part_fields(entry))[4:-1])
    parts[0] = _pack_length(4 + sum([len(part) for part in parts]) + _pack_end.size)
    return b"".join(parts)


def _described(change: LoggedChange) -> LoggedChange:
    """The change with its updates described, in a unit of work: two documents of a million fields are compared."""
    if change.is_described:
        return change
    with UndividedEvaluation():
        return change.described()


def form_end(wall_ms: int, following: int) -> bytes:
    """The end of an `open_form`, which the commit appends: its wall time, and how many entries come after it."""
    return _pack_end.pack(b"\x12w\0", wall_ms, b"\x12f\0", following, 0)


def _add_change(parts: list[bytes], change: LoggedChange) -> None:
    parts.append(_names(change.database, change.collection, change.uuid))
    if change.descriptions:
        _add_documents(parts, b"\x05d\0", change.descriptions)
    if change.before:
        _add_documents(parts, b"\x05b\0", change.before)
    if change.after:
        _add_documents(parts, b"\x05a\0", change.after)


@lru_cache(1024)
def _names(database: str, collection: str, uuid: Value) -> bytes:
    """The fields that are the same in all entries of a collection."""
    return encode_fields([("n", database), ("c", collection), ("u", uuid)])[4:-1]


def _add_documents(parts: list[bytes], head: bytes, documents: Iterable[bytes]) -> None:
    """Adds a field of binary data: one document after another."""
    joined = b"".join(documents)
    parts += [head, _pack_binary(len(joined), 0), joined]


def _rare_fields(change: LoggedChange) -> list[tuple[str, Value]]:
    form: list[tuple[str, Value]] = []
    if change.replaced:
        form.append(("r", True))
    if change.images:
        form.append(("i", True))
    if change.detail is not None:
        form.append(("x", change.detail))
    return form


def _part_fields(entry: OplogEntry) -> list[tuple[str, Value]]:
    """Which part of a transaction it is, but for how many follow."""
    if entry.lsid is None:
        return []
    return [("l", entry.lsid), ("m", Int64(entry.txn_number)), ("o", Int64(entry.first_index))]


def stored_statements(stored: bytes) -> tuple[Statements, int, Timestamp] | None:
    """The statements of a stored form with its wall time and cluster time; None if it has none."""
    lsid = get_value(stored, "s")
    if not isinstance(lsid, bytes):
        return None
    form = fields_by_name(stored)
    executed = form["e"]
    at = form["t"]
    assert isinstance(executed, BinData) and isinstance(at, Timestamp)
    return Statements(lsid, _integer(form, "q"), unpacked(executed.data)), _integer(form, "w"), at


def loaded_form(stored: bytes, own: tuple[int, int] | None = None) -> OplogEntry:
    """The entry of a stored form. own: the time of its document in `local.oplog.rs`, where that is not in the form."""
    form = fields_by_name(stored)
    images = form.get("i") is True
    collection = str(form["c"])
    change = LoggedChange(
        _integer(form, "k"),
        str(form["n"]),
        collection,
        form["u"],
        _split(form, "b"),
        _split(form, "a"),
        form.get("r") is True,
        None,
        _split(form, "d"),
        True,
        images or collection == SYSTEM_VIEWS,
        b"",
        images,
        form.get("x"),
    )
    at = form["t"]
    assert isinstance(at, Timestamp)
    part: TransactionPart | None = None
    lsid = form.get("l")
    if isinstance(lsid, bytes):
        part = TransactionPart(lsid, _integer(form, "m"), _integer(form, "o"), _integer(form, "f"))
    seconds, increment = (at.time, at.inc) if own is None else own
    if own is not None and part is not None:
        increment += part.following  # all of a transaction have the time of its commit
    return OplogEntry(change, seconds, increment, _integer(form, "w"), part)


def _split(form: dict[str, Value], name: str) -> tuple[bytes, ...]:
    joined = form.get(name)
    if joined is None:
        return ()
    assert isinstance(joined, BinData)
    return tuple(_documents(joined.data))


def _documents(data: bytes) -> list[bytes]:
    """Documents that were joined: each begins with its length."""
    documents: list[bytes] = []
    position = 0
    while position < len(data):
        end = position + int.from_bytes(data[position : position + 4], "little")
        is_whole = position == 0 and end == len(data)
        documents.append(data if is_whole else data[position:end])  # compiled, also a slice of all is a copy
        position = end
    give_way_after(len(data))
    return documents


def _integer(form: dict[str, Value], name: str) -> int:
    value = form[name]
    assert isinstance(value, int)
    return int(value)
