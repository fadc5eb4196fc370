"""An entry of the oplog: the operations of one unit of work on one collection, and its stored form."""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from mongottl.catalog.change_kinds import NOOP, RENAME
from mongottl.catalog.collection import Collection
from mongottl.catalog.view import SYSTEM_VIEWS
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.splice import frame
from mongottl.document.types import BinData, Int64, Timestamp, Value
from mongottl.document.walk import fields, find_field, get_value, skip_value
from mongottl.oplog.statements import Statements, packed, unpacked
from mongottl.query.difference import difference

INSERT: Final = 0
UPDATE: Final = 1
DELETE: Final = 2
# Above these are the kinds of `catalog.change_kinds`; `detail` says more of them.

# The type and the name of `_id`, with its NUL.
_BEFORE_ID_VALUE: Final = 5

# Memory of an entry, and of each of its documents, in addition to the documents.
_ENTRY_BYTES: Final = 400
_DOCUMENT_BYTES: Final = 100

# Fields of the stored form as BSON: type and name before each value.
_pack_head: Final = struct.Struct("<3si3sII3sq").pack
_pack_number: Final = struct.Struct("<3sq3siB").pack
_pack_binary: Final = struct.Struct("<iB").pack
_pack_length: Final = struct.Struct("<i").pack


class OplogEntry:
    """The operations of one unit of work on one collection.

    at_s, at_i: cluster time. first_index: index of the first operation in its transaction. wall_ms: wall time.
    before, after: the documents of each operation; empty where a kind has none. replaced: whether an update replaced
    the documents, else touched: the paths that its modifiers name, or None for a pipeline. images: whether the
    collection keeps images. detail: of a change of collections or indexes. lsid, txn_number: of its transaction.
    following: how many entries of the same transaction come behind it. statements: what the unit has executed of a
    retryable write; known until it is stored.
    descriptions: for an entry that was stored, the `updateDescription` of each update. Such an entry has no documents
    but what `stored_form` keeps: where the collection keeps no images, `before` has only `_id`. A `deletion` has no
    more in memory either.
    """

    def __init__(
        self,
        kind: int,
        database: str,
        collection: str,
        uuid: Value,
        before: list[bytes],
        after: list[bytes],
        images: bool = False,
        detail: Value = None,
    ) -> None:
        self.kind = kind
        self.database = database
        self.collection = collection
        self.uuid = uuid
        # Tuples, because Python's collector of cycles need not visit those of bytes and strings.
        self.before: tuple[bytes, ...] = tuple(before)
        self.after: tuple[bytes, ...] = tuple(after)
        self.replaced = False
        self.touched: tuple[str, ...] | None = None
        self.descriptions: tuple[bytes, ...] = ()
        self.images = images
        self.detail = detail
        self.at_s: int = 0
        self.at_i: int = 0
        self.wall_ms: int = 0
        self.first_index: int = 0
        self.following: int = 0
        self.lsid: bytes | None = None
        self.txn_number: int = 0
        self.statements: Statements | None = None

    @property
    def count(self) -> int:
        """How many operations it has."""
        return max(len(self.before), len(self.after), 1)

    @property
    def at(self) -> Timestamp:
        return Timestamp(self.at_s, self.at_i)

    def set_time(self, at: Timestamp, wall_ms: int) -> None:
        self.at_s = at.time
        self.at_i = at.inc
        self.wall_ms = wall_ms

    def watched_as(self) -> list[str]:
        """What change streams may watch that tell of it: the deployment (""), databases, collections."""
        if self.kind == NOOP:
            return []
        watched = ["", self.database, f"{self.database}.{self.collection}"]
        if self.kind == RENAME:
            database, collection = self.renamed_to()
            watched += [database, f"{database}.{collection}"]
        return watched

    def renamed_to(self) -> tuple[str, str]:
        """The new database and name of the collection that it renames."""
        assert isinstance(self.detail, bytes)
        to = get_value(self.detail, "to")
        assert isinstance(to, bytes)
        return str(get_value(to, "db")), str(get_value(to, "coll"))

    def id_of(self, index: int) -> Value:
        """The `_id` of the document of an operation."""
        documents = self.after if index < len(self.after) else self.before
        return get_value(documents[index], "_id")

    def describe(self, index: int, expanded: bool) -> bytes:
        """The `updateDescription` of an update that replaces nothing. expanded: with `disambiguatedPaths`."""
        if not self.descriptions:
            return difference(self.before[index], self.after[index], self.touched).describe(expanded)
        described = self.descriptions[index]
        return described if expanded else encode_fields(fields(described)[:-1])

    def size_bytes(self) -> int:
        size = _ENTRY_BYTES
        for document in self.before:
            size += len(document) + _DOCUMENT_BYTES
        for document in self.after:
            size += len(document) + _DOCUMENT_BYTES
        return size


def no_operation(detail: bytes = EMPTY_DOCUMENT) -> OplogEntry:
    """An entry without an operation. detail: its `o`."""
    return OplogEntry(NOOP, "", "", None, [], [], detail=detail)


def deletion(collection: Collection, deleted: Iterable[bytes]) -> OplogEntry:
    """The entry of a deletion: without images, all that is told of a deleted document is its `_id`."""
    images = collection.options.records_images
    before = [*deleted] if images or _is_whole(collection.name) else [_only_id(document) for document in deleted]
    return OplogEntry(DELETE, collection.database, collection.name, collection.uuid, before, [], images)


def _is_whole(collection: str) -> bool:
    """Whether the entries of a collection keep its documents: what is told of views is their documents."""
    return collection == SYSTEM_VIEWS


def _only_id(document: bytes) -> bytes:
    """`{_id}` of a document, its bytes as they are: this runs for each document that is deleted."""
    type_code, value = find_field(document, b"_id")
    return frame(document[value - _BEFORE_ID_VALUE : skip_value(document, type_code, value)])


def is_logged(collection: Collection, renamed: bool = False) -> bool:
    """Whether the writes of a collection are in the oplog: not the server's own, nor those of `$out` before its end.

    renamed: whether it is being renamed, which is the end of `$out`.
    """
    if collection.database in ("local", "config") or (collection.options.temporary and not renamed):
        return False
    return not collection.name.startswith("system.") or collection.name in (SYSTEM_VIEWS, "system.js")


def stored_form(entry: OplogEntry) -> bytes:
    """What is stored of an entry: a document whose fields are those of `OplogEntry`, abbreviated.

    An update is stored as its description, since that is small where the document is large; the documents themselves
    only where the collection keeps images.
    """
    kind = entry.kind
    head = _pack_head(b"\x10k\0", kind, b"\x11t\0", entry.at_i, entry.at_s, b"\x12w\0", entry.wall_ms)
    parts = [b"", head, _names(entry.database, entry.collection, entry.uuid)]
    before: Iterable[bytes] = entry.before
    after: Iterable[bytes] = entry.after
    whole = entry.images or _is_whole(entry.collection)
    if not whole and kind == UPDATE:
        before = [_only_id(document) for document in entry.before]
    if kind == UPDATE and not entry.replaced:
        if not whole:
            after = ()
        _add_documents(parts, b"\x05d\0", [entry.describe(i, True) for i in range(entry.count)])
    if entry.before:
        _add_documents(parts, b"\x05b\0", before)
    if after:
        _add_documents(parts, b"\x05a\0", after)
    rare = _rare_fields(entry)
    if rare:
        parts.append(encode_fields(rare)[4:-1])
    statements = entry.statements
    if statements is not None:
        executed = packed(statements.executed)
        number = _pack_number(b"\x12q\0", statements.txn_number, b"\x05e\0", len(executed), 0)
        parts += [b"\x03s\0", statements.lsid, number, executed]
    parts.append(b"\0")
    parts[0] = _pack_length(4 + sum([len(part) for part in parts]))
    return b"".join(parts)


@lru_cache(1024)
def _names(database: str, collection: str, uuid: Value) -> bytes:
    """The fields that are the same in all entries of a collection."""
    return encode_fields([("n", database), ("c", collection), ("u", uuid)])[4:-1]


def _add_documents(parts: list[bytes], head: bytes, documents: Iterable[bytes]) -> None:
    """Adds a field of binary data: documents behind each other."""
    joined = b"".join(documents)
    parts += [head, _pack_binary(len(joined), 0), joined]


def _rare_fields(entry: OplogEntry) -> list[tuple[str, Value]]:
    form: list[tuple[str, Value]] = []
    if entry.replaced:
        form.append(("r", True))
    if entry.images:
        form.append(("i", True))
    if entry.detail is not None:
        form.append(("x", entry.detail))
    if entry.lsid is not None:
        form += [
            ("l", entry.lsid),
            ("m", Int64(entry.txn_number)),
            ("o", Int64(entry.first_index)),
            ("f", Int64(entry.following)),
        ]
    return form


def stored_statements(stored: bytes) -> tuple[Statements, int, Timestamp] | None:
    """The statements of a stored form with its wall time and cluster time; None if it has none."""
    lsid = get_value(stored, "s")
    if not isinstance(lsid, bytes):
        return None
    form = dict(fields(stored))
    executed = form["e"]
    at = form["t"]
    assert isinstance(executed, BinData) and isinstance(at, Timestamp)
    return Statements(lsid, _integer(form, "q"), unpacked(executed.data)), _integer(form, "w"), at


def loaded_form(stored: bytes) -> OplogEntry:
    """The entry of a stored form."""
    form = dict(fields(stored))
    entry = OplogEntry(
        _integer(form, "k"),
        str(form["n"]),
        str(form["c"]),
        form["u"],
        _split(form, "b"),
        _split(form, "a"),
        form.get("i") is True,
        form.get("x"),
    )
    at = form["t"]
    assert isinstance(at, Timestamp)
    entry.set_time(at, _integer(form, "w"))
    entry.replaced = form.get("r") is True
    entry.descriptions = tuple(_split(form, "d"))
    lsid = form.get("l")
    if isinstance(lsid, bytes):
        entry.lsid = lsid
        entry.txn_number = _integer(form, "m")
        entry.first_index = _integer(form, "o")
        entry.following = _integer(form, "f")
    return entry


def _split(form: dict[str, Value], name: str) -> list[bytes]:
    """Documents that were joined: each begins with its length."""
    joined = form.get(name)
    if joined is None:
        return []
    assert isinstance(joined, BinData)
    data = joined.data
    documents: list[bytes] = []
    position = 0
    while position < len(data):
        end = position + int.from_bytes(data[position : position + 4], "little")
        documents.append(data[position:end])
        position = end
    return documents


def _integer(form: dict[str, Value], name: str) -> int:
    value = form[name]
    assert isinstance(value, int)
    return int(value)
