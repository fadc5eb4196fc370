"""Fields of several commands: each is declared here once, and used in the request classes of these commands.

    class CountRequest(NamedTuple):
        collection: Annotated[str, Field("count", COLLECTION)]
        hint: Hint = MISSING

A request class gives the default, since an annotation cannot.
"""

from typing import Annotated

from mongottl.commands.request import (
    ARRAY_FIELD,
    BOOL_FIELD,
    DOCUMENT_FIELD,
    HINT,
    INT32_FIELD,
    STRICT_BOOL,
    UNSUPPORTED,
    UUID,
    Field,
)
from mongottl.document.types import BinData, Value

# Fields of reads and writes that select documents.
Sort = Annotated[bytes, Field("sort", DOCUMENT_FIELD)]
Hint = Annotated[Value, Field("hint", HINT)]
Collation = Annotated[bytes, Field("collation", DOCUMENT_FIELD)]
Let = Annotated[bytes, Field("let", DOCUMENT_FIELD)]
CollectionUuid = Annotated[BinData | None, Field("collectionUUID", UUID)]

# Fields of update statements.
Multi = Annotated[bool, Field("multi", STRICT_BOOL)]
Upsert = Annotated[bool, Field("upsert", STRICT_BOOL)]
ArrayFilters = Annotated[list[Value] | None, Field("arrayFilters", ARRAY_FIELD)]

# Fields of all write commands.
Ordered = Annotated[bool, Field("ordered", STRICT_BOOL)]
BypassValidation = Annotated[bool, Field("bypassDocumentValidation", BOOL_FIELD)]
BypassTimestamps = Annotated[bool, Field("bypassEmptyTsReplacement", STRICT_BOOL)]
StatementIds = Annotated[list[Value] | None, Field("stmtIds", ARRAY_FIELD)]
StatementId = Annotated[int | None, Field("stmtId", INT32_FIELD)]
EncryptionInformation = Annotated[Value, Field("encryptionInformation", UNSUPPORTED)]
