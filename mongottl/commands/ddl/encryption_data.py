"""compactStructuredEncryptionData and cleanupStructuredEncryptionData, on collections with `encryptedFields`.

Encrypted writes are refused, so the collections of state that these commands make smaller are always empty: they check
their arguments, and report that nothing was read or changed.

Source: MongoDB's "compactStructuredEncryptionData" and "cleanupStructuredEncryptionData".
"""

from typing import Annotated, Final, NamedTuple

from mongottl.catalog.namespace import check_collection_name
from mongottl.commands.access import on_collection
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import COLLECTION, DOCUMENT_FIELD, Field
from mongottl.commands.request_fields import EncryptionInformation
from mongottl.document.build import encode
from mongottl.document.types import MISSING, Int64
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext

_NOT_ENCRYPTED: Final = 6346807
_MISSING_TOKEN: Final = 7294900
_ZERO: Final = Int64(0)
_NO_WORK: Final = encode(
    {
        "ecoc": encode({"read": _ZERO, "deleted": _ZERO}),
        "esc": encode({"read": _ZERO, "inserted": _ZERO, "updated": _ZERO, "deleted": _ZERO}),
    }
)


class CompactRequest(NamedTuple):
    collection: Annotated[str, Field("compactStructuredEncryptionData", COLLECTION)]
    tokens: Annotated[bytes, Field("compactionTokens", DOCUMENT_FIELD)]
    encryption: EncryptionInformation = None


@command(
    "compactStructuredEncryptionData",
    CompactRequest,
    access=on_collection("compactStructuredEncryptionData"),
    help="Checks the compaction tokens of an encrypted collection; there is never anything to compact.",
    writes=True,
)
def compact_structured_encryption_data(op: OperationContext, request: CompactRequest) -> Reply:
    """`{stats: {ecoc: {read, deleted}, esc: {read, inserted, updated, deleted}}}`.

    NamespaceNotFound (26), CommandNotSupportedOnView (166), 6346807 without `encryptedFields`, 7294900 if a path of
    them has no token.
    """
    _check_tokens(op, request.collection, request.tokens, "Compaction")
    return {"stats": _NO_WORK}


class CleanupRequest(NamedTuple):
    collection: Annotated[str, Field("cleanupStructuredEncryptionData", COLLECTION)]
    tokens: Annotated[bytes, Field("cleanupTokens", DOCUMENT_FIELD)]


@command(
    "cleanupStructuredEncryptionData",
    CleanupRequest,
    access=on_collection("cleanupStructuredEncryptionData"),
    help="Checks the cleanup tokens of an encrypted collection; there is never anything to clean up.",
    writes=True,
)
def cleanup_structured_encryption_data(op: OperationContext, request: CleanupRequest) -> Reply:
    """`{stats: {ecoc: {read, deleted}, esc: {…}}}`. Errors: those of compactStructuredEncryptionData."""
    _check_tokens(op, request.collection, request.tokens, "Cleanup")
    return {"stats": _NO_WORK}


def _check_tokens(op: OperationContext, name: str, tokens: bytes, kind: str) -> None:
    """kind: "Compaction" or "Cleanup", for error messages."""
    op.check_database()
    check_collection_name(op.database, name)
    collection = op.catalog.lookup(op.database, name)
    if collection is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"Collection '{op.database}.{name}' does not exist")
    paths = collection.options.encrypted_paths
    if paths is None:
        raise CommandError(_NOT_ENCRYPTED, "Target namespace is not an encrypted collection")
    for path in paths:
        if get_value(tokens, path) is MISSING:
            raise CommandError(_MISSING_TOKEN, f"{kind} tokens must name the encrypted path '{path}'")
