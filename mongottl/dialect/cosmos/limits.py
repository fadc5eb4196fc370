"""The limits of Cosmos DB on documents, names and time.

Source: Microsoft's "Azure Cosmos DB service quotas", and errors that users have reported: 16 with
RequestEntityTooLarge for a document, 73 for a name, 50 for an operation. Characters that names may not have are those
of ids of the service's resources.
"""

from typing import Final

from mongottl.catalog.namespace import Naming
from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow, capability
from mongottl.dialect.cosmos.wording import internal_error, wrapped
from mongottl.dialect.interface import Limits
from mongottl.errors import CommandError, ErrorCode, WriteError

# The refusals of `cosmos_choices.REFUSALS` that switch them off, apart from that of documents, which has a capability.
_SIZE_LIMITS: Final = "size-limits"
_TIME_LIMITS: Final = "time-limits"
_COLLECTION_NAMES: Final = "collection-names"
_LARGE_DOCUMENTS: Final = "EnableMongo16MBDocumentSupport"

# Of an index, which `indexes` enforces. The names of a path: `a.b` has 2. Microsoft's page calls it
# the nesting of a path.
MAX_COMPOUND_FIELDS: Final = 8
MAX_PATH_NAMES: Final = 6

_FORBIDDEN_IN_NAMES: Final = "/\\#?"
# Of them, the one for which an account of 3.6 has answered InternalError: microsoft/vscode-cosmosdb#1819 (2021).
_UNEXPECTED_IN_3_6: Final = "/"
# MongoDB's limit is shorter; so there is no refusal that could be allowed.
_MAX_NAME_CHARACTERS: Final = 255
_MAX_OPERATION_S: Final = 60.0
_MAX_TRANSACTION_MS: Final = 5_000
_SMALL_BYTES: Final = 2 * 1024 * 1024
_LARGE_BYTES: Final = 16 * 1024 * 1024
_MAX_ID_BYTES: Final = 1023
_MAX_SHARD_KEY_BYTES: Final = 2048
# Microsoft's page has 128 levels of embedded documents and arrays. That the document itself is not among them is
# assumed.
_MAX_DEPTH: Final = 129
# Both as in the `hello` of an account of 3.2; of later versions nothing is known.
_MAX_WRITE_BATCH_SIZE: Final = 1000
# Pages of replies are smaller, as Microsoft's page has it (4 MB).
_SMALL_MESSAGE_BYTES: Final = 4_194_304
# MongoDB's.
_LARGE_WRITE_BATCH_SIZE: Final = 100_000


def limits_of(account: Account) -> Limits:
    """The limits of an account, as it is configured now. With documents of 16 MB a message must be larger than the 4 MB
    that are reported, and how much is assumed to be as MongoDB's."""
    limits = Limits()
    limits.max_document_bytes = _SMALL_BYTES
    if account.refuses(_SIZE_LIMITS):
        limits.max_id_bytes = _MAX_ID_BYTES
        limits.max_shard_key_bytes = _MAX_SHARD_KEY_BYTES
        limits.max_depth = _MAX_DEPTH
        limits.max_write_batch_size = _MAX_WRITE_BATCH_SIZE
        if not account.can(_LARGE_DOCUMENTS):
            limits.max_message_bytes = _SMALL_MESSAGE_BYTES
    if account.refuses(_TIME_LIMITS):
        limits.max_operation_s = _MAX_OPERATION_S
        limits.max_transaction_ms = _MAX_TRANSACTION_MS
    return limits


class CosmosNaming(Naming):
    """The rules for names of an account, as it is configured now."""

    def __init__(self, account: Account) -> None:
        super().__init__(_MAX_NAME_CHARACTERS)
        self._account = account

    def check_new(self, collection: str) -> None:
        """InvalidNamespace (73) for a character that Cosmos DB does not take, InternalError (1) for one that it does
        not expect."""
        if not self._account.refuses(_COLLECTION_NAMES):
            return
        if self._account.version == "3.6" and _UNEXPECTED_IN_3_6 in collection:
            raise CommandError(ErrorCode.InternalError, internal_error(), advice=_name_advice(collection))
        if any(character in collection for character in _FORBIDDEN_IN_NAMES):
            raise CommandError(
                ErrorCode.InvalidNamespace,
                "Collection name contains invalid character.",
                advice=_name_advice(collection),
            )


def has_large_documents(account: Account) -> bool:
    """Whether collections that are created now take documents of 16 MB. Those of before do not: "16-MB document
    support" in Microsoft's articles on the features of 4.2 to 7.0."""
    return account.can(_LARGE_DOCUMENTS)


def max_document_bytes(account: Account, has_large_documents: bool) -> int:
    """The largest document in a collection. has_large_documents: whether the account had them when it was created."""
    return _LARGE_BYTES if has_large_documents and account.can(_LARGE_DOCUMENTS) else _SMALL_BYTES


def too_large(account: Account, length: int) -> WriteError:
    """InvalidLength (16), for a document beyond the limit. The words of the reason are assumed."""
    reason = 'Message: {"Errors":["Request size is too large"]}'
    if length > _LARGE_BYTES:
        what_helps = advice("A document can have at most 16 MB")
    elif account.can(_LARGE_DOCUMENTS):
        what_helps = advice(
            f"The document has more than 2 MB, and the collection was created before {_LARGE_DOCUMENTS} was set",
            "create the collection anew",
        )
    else:
        way = f"{capability(account, _LARGE_DOCUMENTS)}, and create the collection after that"
        what_helps = advice("The document has more than 2 MB", way)
    return WriteError(ErrorCode.InvalidLength, wrapped(16, reason, "RequestEntityTooLarge (413)"), advice=what_helps)


def large_reply_advice(account: Account) -> str:
    """The advice for a reply that is longer than the account's messages, but not longer than MongoDB's."""
    return advice("The reply has more than 4 MB", allow(_SIZE_LIMITS), capability(account, _LARGE_DOCUMENTS))


def large_batch_advice(account: Account, size: int) -> str:
    """The advice for a batch of too many writes."""
    small = account.refuses(_SIZE_LIMITS)
    what = f"The batch has more than {_MAX_WRITE_BATCH_SIZE if small else _LARGE_WRITE_BATCH_SIZE} writes"
    allowed = allow(_SIZE_LIMITS) if small and size <= _LARGE_WRITE_BATCH_SIZE else ""
    return advice(what, "divide it", allowed)


def _name_advice(name: str) -> str:
    """The advice for a name of a collection that has a character which Cosmos DB does not take."""
    found = " ".join(character for character in _FORBIDDEN_IN_NAMES if character in name)
    return advice(f"The name of the collection has {found}", allow(_COLLECTION_NAMES))


TRANSACTION_TIME_ADVICE: Final = advice("The transaction has taken more than 5 seconds", allow(_TIME_LIMITS))


def id_too_long(length: int) -> WriteError:
    """BadValue (2, assumed) for an `_id` beyond the limit. length: in bytes."""
    reason = f'Message: {{"Errors":["The _id of {length} bytes is longer than {_MAX_ID_BYTES} bytes"]}}'
    what_helps = advice(f"The _id has more than {_MAX_ID_BYTES} bytes", allow(_SIZE_LIMITS))
    return WriteError(ErrorCode.BadValue, wrapped(2, reason), advice=what_helps)


def shard_key_too_long() -> WriteError:
    """BadValue (2, assumed) for a value of the shard key beyond the limit."""
    reason = f'Message: {{"Errors":["The value of the shard key is longer than {_MAX_SHARD_KEY_BYTES} bytes"]}}'
    what_helps = advice("The value of the shard key is too long", allow(_SIZE_LIMITS))
    return WriteError(ErrorCode.BadValue, wrapped(2, reason), advice=what_helps)


def too_deep() -> WriteError:
    """BadValue (2, assumed) for a document with too many levels of documents and arrays."""
    reason = f'Message: {{"Errors":["The document has more than {_MAX_DEPTH - 1} levels of nesting"]}}'
    what_helps = advice("The document has too many levels", allow(_SIZE_LIMITS))
    return WriteError(ErrorCode.BadValue, wrapped(2, reason), advice=what_helps)


def time_is_up(is_own_limit: bool) -> CommandError:
    """ExceededTimeLimit (50), for an operation that takes longer than the limit; that it is the same for one that takes
    longer than its `maxTimeMS` is assumed. is_own_limit: whether it is that one."""
    what_helps = "" if is_own_limit else advice("The operation has taken more than 60 seconds", allow(_TIME_LIMITS))
    return CommandError(ErrorCode.MaxTimeMSExpired, "Request timed out.", advice=what_helps)
