"""The operations of an oplog as documents: written for readers of `local.oplog.rs`, read for `applyOps`.

    {op: "i", ns: "d.c", ui: <uuid>, o: <document>, o2: {_id}}             the document is inserted
    {op: "u", ns: "d.c", ui: <uuid>, o: <changes>, o2: {_id}}              `o` is the new document, or `{$v: 2, diff}`
    {op: "d", ns: "d.c", ui: <uuid>, o: {_id}}                             the document is deleted
    {op: "c", ns: "d.$cmd", ui: <uuid>, o: <command>, o2: <what it was>}   `o2` only of `dropIndexes`
    {op: "c", ns: "admin.$cmd", o: {applyOps: [<operation>, …]}}           several
    {op: "n", ns: "", o: <why it was logged>}                              nothing is done

What an operation written here says is what is read of it here, and the other way round (`tests/property`).

Source: the manual's "Replica Set Oplog", and what MongoDB's drivers and tools write and read.
"""

from typing import Final, NamedTuple

from mongottl.document.bson_field import wrong_type
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.types import (
    BOOL,
    DATE,
    DOCUMENT,
    STRING,
    TIMESTAMP,
    BinData,
    Value,
    type_code_of,
    type_name,
)
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode

INSERT: Final = "i"
UPDATE: Final = "u"
DELETE: Final = "d"
COMMAND: Final = "c"
NOTHING: Final = "n"
KINDS: Final = (INSERT, UPDATE, DELETE, COMMAND, NOTHING)

_APPLY_OPS: Final = "applyOps"
_UUID_SUBTYPE: Final = 4
_UUID_BYTES: Final = 16
# The types of an operation's fields. Others, which say when and by whom it was logged, are ignored.
_FIELD_TYPES: Final[dict[str, int]] = {
    "op": STRING,
    "ns": STRING,
    "o": DOCUMENT,
    "o2": DOCUMENT,
    "b": BOOL,
    "fromMigrate": BOOL,
    "ts": TIMESTAMP,
    "wall": DATE,
}


class Operation(NamedTuple):
    """One operation.

    kind: one of KINDS, or what a client has sent. namespace: "database.collection", or "database.$cmd" of a command.
    document: `o`. key: `o2`, empty if there is none. uuid: of the collection, or None. upsert: `b`, of an update.
    """

    kind: str
    namespace: str
    document: bytes
    key: bytes = EMPTY_DOCUMENT
    uuid: BinData | None = None
    upsert: bool = False

    def elements(self) -> list[tuple[str, Value]]:
        """The fields of its document."""
        elements: list[tuple[str, Value]] = [("op", self.kind), ("ns", self.namespace)]
        if self.uuid is not None:
            elements.append(("ui", self.uuid))
        elements.append(("o", self.document))
        if self.key != EMPTY_DOCUMENT:
            elements.append(("o2", self.key))
        if self.upsert:
            elements.append(("b", True))
        return elements

    @property
    def command(self) -> str:
        """The name of the command that it is; "" for another operation."""
        return first_field_name(self.document) if self.kind == COMMAND else ""


def several(operations: list[Operation], is_partial: bool) -> Operation:
    """One operation that contains others. is_partial: whether those of the same transaction go on in a later one."""
    documents: list[Value] = [encode_fields(operation.elements()) for operation in operations]
    applied: list[tuple[str, Value]] = [(_APPLY_OPS, documents)]
    if is_partial:
        applied.append(("partialTxn", True))
    return Operation(COMMAND, "admin.$cmd", encode_fields(applied))


def contained(operation: Operation) -> list[bytes] | None:
    """The documents of the operations that this one contains; None for one that is not `several`.

    TypeMismatch (14) unless they are an array of documents.
    """
    if operation.command != _APPLY_OPS:
        return None
    inner = get_value(operation.document, _APPLY_OPS)
    if not isinstance(inner, list) or not all(isinstance(item, bytes) for item in inner):
        raise CommandError(ErrorCode.TypeMismatch, "applyOps wants an array of documents")
    return [item for item in inner if isinstance(item, bytes)]


def read_operation(document: bytes) -> Operation:
    """The operation of a document. A field that is null counts as missing.

    TypeMismatch (14) without `op`, `ns` or `o`, without `o2` of an update, or with a field of a wrong type;
    InvalidUUID (207) for a `ui` that is no UUID. Its kind is not checked.
    """
    given: dict[str, Value] = {}
    for name, value in fields(document):
        if value is None:
            continue
        expected = _FIELD_TYPES.get(name)
        if expected is not None and type_code_of(value) != expected:
            raise wrong_type(f"applyOps.applyOps.{name}", value, type_name(expected))
        if name == "ui":
            _check_uuid(value)
        given[name] = value
    kind = given.get("op")
    required: tuple[str, ...] = ("op",) if kind == NOTHING else ("op", "ns", "o")
    if kind == UPDATE:
        required = (*required, "o2")
    for name in required:
        if name not in given:
            raise CommandError(
                ErrorCode.TypeMismatch, f"an operation of applyOps has no {type_name(_FIELD_TYPES[name])} '{name}'"
            )
    what = given.get("o", EMPTY_DOCUMENT)
    key = given.get("o2", EMPTY_DOCUMENT)
    uuid = given.get("ui")
    assert isinstance(what, bytes) and isinstance(key, bytes)
    return Operation(
        str(kind),
        str(given.get("ns", "")),
        what,
        key,
        uuid if isinstance(uuid, BinData) else None,
        given.get("b") is True,
    )


def _check_uuid(uuid: Value) -> None:
    """InvalidUUID (207) for a value that is no UUID, whatever its type."""
    if not isinstance(uuid, BinData) or uuid.subtype != _UUID_SUBTYPE or len(uuid.data) != _UUID_BYTES:
        raise CommandError(ErrorCode.InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
