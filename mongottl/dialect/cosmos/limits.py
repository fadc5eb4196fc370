"""The limits of Cosmos DB on documents, names and time.

Source: Microsoft's "Azure Cosmos DB service quotas", and errors that users have reported: 16 with
RequestEntityTooLarge for a document, 73 for a name, 50 for an operation. Characters that names may not have are those
of ids of the service's resources.
"""

from typing import Final

from mongottl.account import Account
from mongottl.dialect.cosmos.wording import wrapped
from mongottl.errors import CommandError, ErrorCode, WriteError

FORBIDDEN_IN_NAMES: Final = "/\\#?"
MAX_OPERATION_S: Final = 60.0
_SMALL_BYTES: Final = 2 * 1024 * 1024
_LARGE_BYTES: Final = 16 * 1024 * 1024
MAX_ID_BYTES: Final = 1023
# Pages of replies are smaller, as Microsoft's page has it (4 MB).
MAX_MESSAGE_BYTES: Final = 4_194_304
_LARGE_MESSAGE_BYTES: Final = 48_000_000


def max_document_bytes(account: Account) -> int:
    """The largest document that an account stores."""
    return _LARGE_BYTES if account.can("EnableMongo16MBDocumentSupport") else _SMALL_BYTES


def max_message_bytes(account: Account) -> int:
    """The largest message. With documents of 16 MB it must be larger than the 4 MB that are reported; how much is
    assumed to be as in MongoDB."""
    return _LARGE_MESSAGE_BYTES if account.can("EnableMongo16MBDocumentSupport") else MAX_MESSAGE_BYTES


def too_large() -> WriteError:
    """InvalidLength (16), for a document beyond the limit."""
    reason = 'Message: {"Errors":["Request size is too large"]}'
    return WriteError(ErrorCode.InvalidLength, wrapped(16, reason, "RequestEntityTooLarge (413)"))


def check_id_length(document: bytes, position: int, max_bytes: int) -> None:
    """BadValue (2, assumed) for an `_id` beyond the limit. position: of a string in a document."""
    length = int.from_bytes(document[position : position + 4], "little") - 1
    if length > max_bytes:
        reason = f'Message: {{"Errors":["The _id of {length} bytes is longer than {max_bytes} bytes"]}}'
        raise WriteError(ErrorCode.BadValue, wrapped(2, reason))


def time_is_up() -> CommandError:
    """ExceededTimeLimit (50), for an operation that takes longer than the limit or its `maxTimeMS`."""
    return CommandError(ErrorCode.MaxTimeMSExpired, "Request timed out.")
