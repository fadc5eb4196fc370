"""The requests of insert, update and delete, and the statements of the last two.

They are apart from what executes them, which is compiled: mypyc does not keep what stands in annotations.
"""

from typing import Annotated, NamedTuple

from mongottl.commands.request import COLLECTION, DOCUMENT_FIELD, DOCUMENTS, NUMBER, PIPELINE_OR_DOCUMENT, Field
from mongottl.commands.request_fields import (
    ArrayFilters,
    BypassTimestamps,
    BypassValidation,
    Collation,
    CollectionUuid,
    EncryptionInformation,
    Hint,
    Let,
    Multi,
    Ordered,
    Sort,
    StatementId,
    StatementIds,
    Upsert,
)
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import MISSING, Value


class InsertRequest(NamedTuple):
    collection: Annotated[str, Field("insert", COLLECTION)]
    documents: Annotated[list[bytes], Field("documents", DOCUMENTS)]
    ordered: Ordered = True
    bypass: BypassValidation = False
    keep_empty_timestamps: BypassTimestamps = False
    statement_ids: StatementIds = None
    statement_id: StatementId = None
    encryption: EncryptionInformation = None
    collection_uuid: CollectionUuid = None


class StatementsRequest(NamedTuple):
    """The fields of `update` and `delete`; each names the first two after itself."""

    collection: Annotated[str, Field("", COLLECTION)]
    statements: Annotated[list[bytes], Field("", DOCUMENTS)]
    ordered: Ordered = True
    let: Let = EMPTY_DOCUMENT
    bypass: BypassValidation = False
    keep_empty_timestamps: BypassTimestamps = False
    statement_ids: StatementIds = None
    statement_id: StatementId = None
    encryption: EncryptionInformation = None
    collection_uuid: CollectionUuid = None


class UpdateRequest(StatementsRequest):
    __slots__ = ()
    collection: Annotated[str, Field("update", COLLECTION)]
    statements: Annotated[list[bytes], Field("updates", DOCUMENTS)]


class UpdateStatement(NamedTuple):
    query: Annotated[bytes, Field("q", DOCUMENT_FIELD)]
    update: Annotated[Value, Field("u", PIPELINE_OR_DOCUMENT)]
    upsert: Upsert = False
    multi: Multi = False
    array_filters: ArrayFilters = None
    hint: Hint = MISSING
    collation: Collation = EMPTY_DOCUMENT
    constants: Annotated[bytes, Field("c", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    sort: Sort = EMPTY_DOCUMENT


class DeleteRequest(StatementsRequest):
    __slots__ = ()
    collection: Annotated[str, Field("delete", COLLECTION)]
    statements: Annotated[list[bytes], Field("deletes", DOCUMENTS)]


class DeleteStatement(NamedTuple):
    query: Annotated[bytes, Field("q", DOCUMENT_FIELD)]
    limit: Annotated[Value, Field("limit", NUMBER)]  # 0: all documents that match, 1: one of them
    hint: Hint = MISSING
    collation: Collation = EMPTY_DOCUMENT
