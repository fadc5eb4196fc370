"""What a connection asks about a message and its reply: may it end early, does it write, do more replies follow."""

from mongottl.commands import COMMANDS
from mongottl.document.types import DOCUMENT, INT64
from mongottl.document.walk import find_field_at, first_field_name
from mongottl.exec.sessions.cursor_registry import CursorRegistry
from mongottl.server.error_replies import is_error
from mongottl.server.message_body import command_in
from mongottl.versions import HELLO_FIELD, Features
from mongottl.wire.messages import OpMsg, Request


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
