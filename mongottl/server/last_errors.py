"""The replies of getLastError about the request before it: kept for each connection, if the server has the command."""

from typing import Final

from mongottl.commands import CommandSpec, Reply
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import NO_ERROR, ClientInfo, LastError

_NAME: Final = "getLastError"


class LastErrors:
    """Keeps for each connection the error that a getLastError would return; another getLastError does not change it."""

    def note_reply(self, op: OperationContext, spec: CommandSpec, reply: Reply) -> None:
        if spec.name != _NAME:
            op.client.last_error = _write_error(spec, reply) if spec.writes and isinstance(reply, dict) else NO_ERROR

    def note_error(self, client: ClientInfo, error: CommandError) -> None:
        """Of a command that has failed as a whole."""
        client.last_error = LastError(error.message, error.code, 0, None, MISSING)


def _write_error(spec: CommandSpec, reply: dict[str, Value]) -> LastError:
    """The error that a getLastError after a write returns, by the reply to the write. Of several failed statements the
    last one counts."""
    error, code = None, 0
    failed = reply.get("writeErrors")
    if isinstance(failed, list) and failed:
        error, code = str(_field(failed[-1], "errmsg")), int(str(_field(failed[-1], "code")))
    if spec.counter == "insert":
        return LastError(error, code, 0, None, MISSING)
    found: Value = reply.get("lastErrorObject", MISSING)
    upserted = _field(found, "upserted")
    count = _field(found, "n") if found is not MISSING else reply.get("n", 0)
    inserted = reply.get("upserted")
    if isinstance(inserted, list) and inserted:
        upserted = _field(inserted[-1], "_id")
    number = count if isinstance(count, int) else 0
    if spec.counter != "update" and _field(found, "updatedExisting") is MISSING:
        return LastError(error, code, number, None, MISSING)
    return LastError(error, code, number, number > 0 and upserted is MISSING, upserted)


def _field(document: Value, name: str) -> Value:
    if isinstance(document, dict):
        return document.get(name, MISSING)
    return get_value(document, name) if isinstance(document, bytes) else MISSING
