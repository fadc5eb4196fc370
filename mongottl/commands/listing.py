"""Cursors over the lists of listCollections and listIndexes, and the `cursor` option of commands."""

from collections.abc import Iterable
from typing import Final

from mongottl.document.bson_field import NUMBERS, read_known, wrong_type
from mongottl.document.freeing import LongList
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import clamp_to_long
from mongottl.document.types import Decimal128, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.cursors import ClientCursor, ListPages
from mongottl.exec.results.reading import first_reply
from mongottl.query.match import MatchExpression

# Any number of documents; only the size of a reply bounds them.
_ALL: Final = 2**31 - 1
_CURSOR_OPTIONS: Final = ("batchSize",)


def listing_reply(
    op: OperationContext, command: str, namespace: str, documents: list[bytes], options: bytes
) -> dict[str, Value]:
    """A cursor over documents. options: the command's `cursor`, `{batchSize}`, for the first batch."""
    batch_size = read_batch_size(f"{command}.cursor", options, _ALL)
    cursor = ClientCursor(namespace, ListPages(documents), op.session_key, op.service.clock.monotonic_s())
    return first_reply(op, cursor, batch_size)


def matching(match: MatchExpression, documents: Iterable[bytes]) -> list[bytes]:
    """The documents that match; others run meanwhile."""
    found: list[bytes] = LongList()
    for document in documents:
        give_way()
        if match.matches(document):
            found.append(document)
    return found


def read_batch_size(name: str, options: bytes, absent: int) -> int:
    """The `batchSize` of a command's `cursor` option, an int32. name: for errors. absent: its value if not given.

    40415 for other fields, 40413 if it is there twice, TypeMismatch (14) if it is no number, BadValue (2) if it is
    negative.
    """
    batch_size = absent
    for value in read_known(name, options, _CURSOR_OPTIONS).values():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
            raise wrong_type(f"{name}.batchSize", value, NUMBERS)
        batch_size = min(clamp_to_long(value), _ALL)
        if batch_size < 0:
            raise CommandError(
                ErrorCode.BadValue, f"BSON field 'batchSize' value must be >= 0, actual value '{batch_size}'"
            )
    return batch_size
