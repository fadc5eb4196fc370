"""Lists of the catalogue as cursors: what listCollections and listIndexes have in common."""

from typing import Final

from mongottl.document.types import Decimal128, Value, type_code_of, type_name
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.cursors import ClientCursor, ListPages
from mongottl.exec.reading import first_reply
from mongottl.query.match.numbers import clamped_integer

# No bound but the size of a reply.
_ALL: Final = 2**31 - 1


def listing_reply(
    op: OperationContext, command: str, namespace: str, documents: list[bytes], options: bytes
) -> Steps[dict[str, Value]]:
    """A cursor over documents. options: the command's `cursor`, `{batchSize}`, of which the first batch takes heed."""
    batch_size = _batch_size(command, options)
    cursor = ClientCursor(namespace, ListPages(documents), op.session_key, op.service.clock.monotonic_s())
    return (yield from first_reply(op, cursor, batch_size))


def _batch_size(command: str, options: bytes) -> int:
    batch_size = _ALL
    for name, value in fields(options):
        if name != "batchSize":
            raise CommandError(40415, f"BSON field '{command}.cursor.{name}' is an unknown field.")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
            raise CommandError(
                ErrorCode.TypeMismatch,
                f"BSON field '{command}.cursor.batchSize' is the wrong type '{type_name(type_code_of(value))}',"
                " expected types '[long, int, decimal, double]'",
            )
        batch_size = min(clamped_integer(value), _ALL)
        if batch_size < 0:
            raise CommandError(
                ErrorCode.BadValue, f"BSON field 'batchSize' value must be >= 0, actual value '{batch_size}'"
            )
    return batch_size
