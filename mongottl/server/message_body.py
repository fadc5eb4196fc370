"""The document of a message: whether it is valid, and the command in it."""

from typing import Final

from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.freeing import LONG_BYTES
from mongottl.document.types import DOCUMENT, MAX_DOCUMENT_BYTES, Int64, Value
from mongottl.document.validate import (
    MAX_DEPTH,
    MAX_MESSAGE_DEPTH,
    SLICE_BYTES,
    SlicedValidation,
    validate_documents,
)
from mongottl.document.walk import ElementCursor, find_field_at, first_field_name
from mongottl.errors import CommandError, ErrorCode, ProtocolError
from mongottl.exec.running.stack import Stacks
from mongottl.wire.messages import MORE_TO_COME, OLD_DRIVER, OpGetMore, OpKillCursors, OpMsg, OpQuery, Request

# From this length on, a message is validated in steps.
LONG_MESSAGE_BYTES: Final = 256 * 1024
# A document may have 16 MiB, the message or reply around it 16 KiB more.
MAX_BODY_BYTES: Final = MAX_DOCUMENT_BYTES + 16 * 1024
# The first field of the wrapper of a command in an OP_QUERY.
_WRAPPERS: Final = ("$query", "query")


def check_size(body: bytes) -> None:
    """BSONObjectTooLarge (10334) for a body that MongoDB's documents cannot have."""
    size = len(body)
    if size > MAX_BODY_BYTES:
        raise CommandError(
            ErrorCode.BSONObjectTooLarge,
            f"BSONObj size: {size} ({size:#x}) is invalid. Size must be between 0 and {MAX_BODY_BYTES}(16MB)",
        )


def validate_long(message: OpMsg | OpQuery, document: bytes, stacks: Stacks) -> None:
    """Validates a long message; others run meanwhile."""
    _validate(document, MAX_MESSAGE_DEPTH, stacks)
    for _, documents in message.sequences if isinstance(message, OpMsg) else ():
        position = 0
        while position < len(documents):
            if len(documents[position]) > SLICE_BYTES:
                _validate(documents[position], MAX_DEPTH, stacks)
                position += 1
            else:
                position = validate_documents(documents, position, SLICE_BYTES)
                stacks.give_way()


def _validate(document: bytes, max_depth: int, stacks: Stacks) -> None:
    """`validate_document`; others run meanwhile."""
    check = SlicedValidation(document, max_depth)
    while not check.advance():
        stacks.give_way()


def command_message(message: OpQuery | OpGetMore) -> OpQuery:
    """The message if it runs a command. UnsupportedOpQueryCommand (352) for one that reads a collection without a
    command; drivers look for the text of that error in `$err`."""
    if isinstance(message, OpQuery) and message.is_command:
        return message
    what = "OP_QUERY on a collection" if isinstance(message, OpQuery) else "OP_GET_MORE"
    text = f"{what} is not supported; {OLD_DRIVER}"
    raise CommandError(ErrorCode.UnsupportedOpQueryCommand, text, details={"$err": text})


def kill_cursors_command(message: OpKillCursors, takes_legacy_opcodes: bool) -> OpMsg:
    """OP_KILL_CURSORS as the command. ProtocolError if the announced version does not take the message."""
    if not takes_legacy_opcodes:
        raise ProtocolError(f"OP_KILL_CURSORS is not supported; {OLD_DRIVER}")
    cursors: list[Value] = [Int64(cursor_id) for cursor_id in message.cursor_ids]
    body = encode({"killCursors": "$cmd", "cursors": cursors, "$db": "admin"})
    return OpMsg(message.request_id, message.response_to, MORE_TO_COME, body, [], message.compressor)


def command_in(message: Request) -> bytes:
    """The body of the command in a message that has not been validated; an empty document for one without a command."""
    if isinstance(message, OpMsg):
        return message.body
    if not isinstance(message, OpQuery):
        return EMPTY_DOCUMENT
    inner = _wrapped(message.query)
    return inner if len(inner) >= len(EMPTY_DOCUMENT) and inner[-1] == 0 else message.query


def _wrapped(query: bytes) -> bytes:
    """The document in the first field of an OP_QUERY's document, if that field is one of the wrapper with which drivers
    send a read preference beside the command: `{$query: {…}, $readPreference: {…}}`; else empty."""
    name = first_field_name(query)
    if name not in _WRAPPERS:
        return b""
    at = 5 + len(name) + 1
    return query[at : at + int.from_bytes(query[at : at + 4], "little")] if query[4] == DOCUMENT else b""


def unwrapped(query: bytes) -> bytes:
    """The command in an OP_QUERY's document, which is searched as a part of an evaluation if it is long. The other
    fields of the wrapper say nothing to a server of one member.

    InvalidOptions (72) for `$maxTimeMS`, which belongs to queries of collections. 40621 for `$db`: the message itself
    names the database.
    """
    inner = _wrapped(query)
    for document in (query, inner):
        if document and _has_field(document, b"$db"):
            raise CommandError(40621, "$db is not allowed in OP_QUERY requests")
    if not inner:
        return query
    if _has_field(query, b"$maxTimeMS"):
        raise CommandError(
            ErrorCode.InvalidOptions,
            "cannot use $maxTimeMS query option with commands; use maxTimeMS command option instead",
        )
    return inner


def _has_field(document: bytes, name: bytes) -> bool:
    if len(document) < LONG_BYTES:
        return bool(find_field_at(document, 0, name)[0] != 0)
    cursor = ElementCursor(document, 0)
    while cursor.next():  # which gives way
        if cursor.name_is(name):
            return True
    return False
