"""Lists of the catalogue as cursors: what listCollections and listIndexes have in common."""

from typing import Final

from mongottl.document.types import INT64_MAX, INT64_MIN, Decimal128, Value, is_number, type_code_of, type_name
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.cursors import ClientCursor, ListPages
from mongottl.exec.reading import first_reply

# No bound but the size of a reply.
_ALL: Final = 2**31 - 1
_INT64_DIGITS: Final = 19


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
        if not is_number(value):
            raise CommandError(
                ErrorCode.TypeMismatch,
                f"BSON field '{command}.cursor.batchSize' is the wrong type '{type_name(type_code_of(value))}',"
                " expected types '[long, int, decimal, double]'",
            )
        batch_size = min(clamped(value), _ALL)
        if batch_size < 0:
            raise CommandError(51024, f"BSON field 'batchSize' value must be >= 0, actual value '{batch_size}'")
    return batch_size


def clamped(value: Value) -> int:
    """A number as an int64, the way MongoDB's commands take theirs: doubles are cut, decimals rounded half to even,
    infinities and what is too large become the limits, NaN becomes 0."""
    if isinstance(value, Decimal128):
        decimal = value.to_decimal()
        if decimal.is_nan():
            return 0
        if decimal.is_infinite() or decimal.adjusted() > _INT64_DIGITS:
            return INT64_MIN if decimal < 0 else INT64_MAX
        return max(INT64_MIN, min(INT64_MAX, int(decimal.to_integral_value())))
    assert isinstance(value, (int, float))
    if value != value:
        return 0
    if isinstance(value, float) and abs(value) >= -float(INT64_MIN):
        return INT64_MIN if value < 0 else INT64_MAX
    return int(value)
