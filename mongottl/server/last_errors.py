"""What getLastError tells of the request before it: kept for each connection, where the server has getLastError."""

from typing import Final

from mongottl.commands import CommandSpec, Reply
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import NO_ERROR, ClientInfo, LastError

_NAME: Final = "getLastError"


class LastErrors:
    """Keeps for each connection what a getLastError would tell; after another getLastError it is the same."""

    def note_reply(self, op: OperationContext, spec: CommandSpec, reply: Reply) -> None:
        if spec.name != _NAME:
            op.client.last_error = _write_error(spec, reply) if spec.writes and isinstance(reply, dict) else NO_ERROR

    def note_error(self, client: ClientInfo, error: CommandError) -> None:
        """Of a command that has failed as a whole."""
        client.last_error = LastError(error.message, error.code, 0, None, MISSING)


def _write_error(spec: CommandSpec, reply: dict[str, Value]) -> LastError:
    """What a getLastError after a write tells, by the reply to the write. Of several failed statements the last one
    counts."""
    error, code = None, 0
    failed = reply.get("writeErrors")
    if isinstance(failed, list) and failed:
        error, code = str(_field(failed[-1], "errmsg")), int(str(_field(failed[-1], "code")))
    if spec.counter == "insert":
        return LastError(error, code, 0, None, MISSING)
    told: Value = reply.get("lastErrorObject", MISSING)
    upserted = _field(told, "upserted")
    count = _field(told, "n") if told is not MISSING else reply.get("n", 0)
    inserted = reply.get("upserted")
    if isinstance(inserted, list) and inserted:
        upserted = _field(inserted[-1], "_id")
    number = count if isinstance(count, int) else 0
    if spec.counter != "update" and _field(told, "updatedExisting") is MISSING:
        return LastError(error, code, number, None, MISSING)
    return LastError(error, code, number, number > 0 and upserted is MISSING, upserted)


def _field(document: Value, name: str) -> Value:
    if isinstance(document, dict):
        return document.get(name, MISSING)
    return get_value(document, name) if isinstance(document, bytes) else MISSING
