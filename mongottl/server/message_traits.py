"""What a connection asks about a message and its reply: may it end early, does it write, do more replies follow."""

import struct
from typing import Final

from mongottl.commands import COMMANDS
from mongottl.document.types import DOCUMENT, INT64
from mongottl.document.walk import find_field_at, first_field_name
from mongottl.exec.sessions.cursor_registry import CursorRegistry
from mongottl.server.error_replies import is_error
from mongottl.server.message_body import command_in
from mongottl.versions import HELLO_FIELD, Features
from mongottl.wire.messages import OP_MSG, OpMsg, Request

# Of an OP_MSG: its opcode, no flags, and the kind of a section that has the command; where that begins.
_PLAIN_OP_MSG: Final = struct.pack("<iIB", OP_MSG, 0, 0)
_OPCODE_AT: Final = 12
_BODY_AT: Final = _OPCODE_AT + len(_PLAIN_OP_MSG)
# The arguments with which a command may have to wait, asks for users, who are stored, or belongs to a transaction.
_NOT_APART: Final = (
    b"saslSupportedMechs",
    b"speculativeAuthenticate",
    b"topologyVersion",
    b"txnNumber",
    b"autocommit",
    b"startTransaction",
    b"readConcern",
    b"writeConcern",
)


def has_more(message: OpMsg, reply: bytes, features: Features | None) -> bool:
    """Whether a request that allows several replies gets another one after `reply`.

    A `hello` that waits for topology changes always does, a `getMore` until its cursor is exhausted; an error is
    the last reply of both.
    """
    if is_error(reply):
        return False
    name = first_field_name(message.body)
    if name == "getMore":
        return _open_cursor(reply) != 0
    return (
        _is_handshake(name)
        and not (features is not None and features.lacks(HELLO_FIELD, "topologyVersion"))
        and find_field_at(message.body, 0, b"topologyVersion")[0] == DOCUMENT
        and find_field_at(message.body, 0, b"maxAwaitTimeMS")[0] != 0
    )


def may_abandon(message: Request) -> bool:
    """Whether the command changes nothing, so that it can be ended when its client has disconnected."""
    body = command_in(message)
    spec = COMMANDS.get(first_field_name(body))
    return spec is not None and spec.may_be_abandoned and not spec.is_write(body)


def may_write(message: Request) -> bool:
    """Whether the command changes data."""
    body = command_in(message)
    spec = COMMANDS.get(first_field_name(body))
    return spec is not None and spec.is_write(body)


def touches_no_data(data: bytes) -> bool:
    """Whether these bytes, of which nothing was looked at, are one request whose command touches no data."""
    if len(data) <= _BODY_AT or int.from_bytes(data[:4], "little") != len(data):
        return False
    if data[_OPCODE_AT:_BODY_AT] != _PLAIN_OP_MSG:
        return False
    body = data[_BODY_AT:]
    spec = COMMANDS.get(first_field_name(body))
    return spec is not None and spec.touches_no_data and not any(name in body for name in _NOT_APART)


def abandon(message: OpMsg, cursors: CursorRegistry) -> None:
    """Closes the cursor of a `getMore` whose client disconnected during its stream of replies."""
    if first_field_name(message.body) == "getMore":
        type_code, pos = find_field_at(message.body, 0, b"getMore")
        if type_code == INT64:
            cursor = cursors.find(int.from_bytes(message.body[pos : pos + 8], "little", signed=True))
            if cursor is not None and not cursor.in_use:
                cursors.close(cursor)


def _is_handshake(name: str) -> bool:
    spec = COMMANDS.get(name)
    return spec is not None and spec.handshake


def _open_cursor(reply: bytes) -> int:
    """The cursor id in a reply, 0 if it has none or its cursor is exhausted."""
    type_code, pos = find_field_at(reply, 0, b"cursor")
    if type_code != DOCUMENT:
        return 0
    type_code, pos = find_field_at(reply, pos, b"id")
    return int.from_bytes(reply[pos : pos + 8], "little", signed=True) if type_code == INT64 else 0
