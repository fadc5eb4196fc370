"""What a server refuses a command with."""

from typing import Any

from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo.database import Database
from pymongo.errors import OperationFailure

# One value of each BSON type that is neither null nor any kind of number or truth.
NOT_NUMERIC: list[Any] = [
    "x",
    {"a": 1},
    [1],
    Binary(b"x"),
    ObjectId(),
    Regex("x"),
    Code("x"),
    Timestamp(1, 1),
    MinKey(),
    MaxKey(),
]
NUMBERS: list[Any] = [1, Int64(1), 1.0, Decimal128("1")]


def refusal(database: Database[dict[str, Any]], command: dict[str, Any], **options: Any) -> int:
    """The code of the error that answers a command, or of its first write error; 0 where all went well."""
    try:
        reply = database.command(command, **options)
    except OperationFailure as error:
        return error.code or -1
    errors = reply.get("writeErrors")
    return int(errors[0]["code"]) if errors else 0
