"""Fields that several commands take: each is declared here once, and named in the request classes that have it.

    class CountRequest(NamedTuple):
        collection: Annotated[str, Field("count", COLLECTION)]
        hint: Hint = MISSING

A request class gives the default, since the annotation of a field cannot.
"""

from typing import Annotated

from mongottl.commands.request import (
    ANY,
    ARRAY_FIELD,
    BOOL_FIELD,
    DOCUMENT_FIELD,
    HINT,
    IGNORED,
    STRICT_BOOL,
    UNSUPPORTED,
    Field,
)
from mongottl.document.types import Value

# What a read or write selects, and how.
Sort = Annotated[bytes, Field("sort", DOCUMENT_FIELD)]
Hint = Annotated[Value, Field("hint", HINT)]
Collation = Annotated[bytes, Field("collation", DOCUMENT_FIELD)]
Let = Annotated[bytes, Field("let", DOCUMENT_FIELD)]
CollectionUuid = Annotated[Value, Field("collectionUUID", ANY)]

# What an update statement says.
Multi = Annotated[bool, Field("multi", STRICT_BOOL)]
Upsert = Annotated[bool, Field("upsert", STRICT_BOOL)]
ArrayFilters = Annotated[list[Value] | None, Field("arrayFilters", ARRAY_FIELD)]

# What every write command takes.
Ordered = Annotated[bool, Field("ordered", STRICT_BOOL)]
BypassValidation = Annotated[bool, Field("bypassDocumentValidation", BOOL_FIELD)]
StatementIds = Annotated[list[Value] | None, Field("stmtIds", ARRAY_FIELD)]
StatementId = Annotated[Value, Field("stmtId", IGNORED)]
EncryptionInformation = Annotated[Value, Field("encryptionInformation", UNSUPPORTED)]
