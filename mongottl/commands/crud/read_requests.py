"""The requests of find, count, distinct and aggregate."""

from typing import Annotated, NamedTuple

from mongottl.catalog.namespace import check_collection_name
from mongottl.commands.request import (
    BOOL_FIELD,
    COLLECTION,
    COUNT_LIMIT,
    DOCUMENT_FIELD,
    GIVEN_BOOL,
    GIVEN_DOCUMENT,
    IGNORED,
    INTEGER,
    ONE,
    PIPELINE,
    TEXT,
    WHOLE,
    Field,
)
from mongottl.commands.request_fields import BypassValidation, Collation, CollectionUuid, Hint, Let, Sort
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.numbers import to_double
from mongottl.document.types import MISSING, Value, is_number, type_code_of, type_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext


class FindRequest(NamedTuple):
    collection: Annotated[str, Field("find", COLLECTION)]
    filter: Annotated[bytes, Field("filter", GIVEN_DOCUMENT)] = EMPTY_DOCUMENT
    sort: Sort = EMPTY_DOCUMENT
    projection: Annotated[bytes, Field("projection", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    hint: Hint = MISSING
    skip: Annotated[int, Field("skip", WHOLE)] = 0
    limit: Annotated[int, Field("limit", WHOLE)] = 0
    batch_size: Annotated[int, Field("batchSize", WHOLE)] = -1
    single_batch: Annotated[bool, Field("singleBatch", BOOL_FIELD)] = False
    let: Let = EMPTY_DOCUMENT
    collation: Collation = EMPTY_DOCUMENT
    no_cursor_timeout: Annotated[bool, Field("noCursorTimeout", BOOL_FIELD)] = False
    allow_disk_use: Annotated[bool | None, Field("allowDiskUse", BOOL_FIELD)] = None
    allow_partial_results: Annotated[bool, Field("allowPartialResults", BOOL_FIELD)] = False
    oplog_replay: Annotated[bool, Field("oplogReplay", BOOL_FIELD)] = False
    tailable: Annotated[bool, Field("tailable", BOOL_FIELD)] = False
    await_data: Annotated[bool, Field("awaitData", BOOL_FIELD)] = False
    return_key: Annotated[bool, Field("returnKey", BOOL_FIELD)] = False
    show_record_id: Annotated[bool, Field("showRecordId", BOOL_FIELD)] = False
    min: Annotated[bytes, Field("min", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    max: Annotated[bytes, Field("max", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    # Of the replica set, which members send to each other.
    term: Annotated[int | None, Field("term", INTEGER)] = None
    collection_uuid: CollectionUuid = None


class CountRequest(NamedTuple):
    collection: Annotated[str, Field("count", COLLECTION)]
    query: Annotated[bytes, Field("query", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    limit: Annotated[int | None, Field("limit", COUNT_LIMIT)] = None
    skip: Annotated[int, Field("skip", WHOLE)] = 0
    hint: Hint = MISSING
    collation: Collation = EMPTY_DOCUMENT
    fields: Annotated[Value, Field("fields", IGNORED)] = None
    collection_uuid: CollectionUuid = None


class DistinctRequest(NamedTuple):
    collection: Annotated[str, Field("distinct", COLLECTION)]
    key: Annotated[str, Field("key", TEXT)]
    query: Annotated[bytes, Field("query", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    collation: Collation = EMPTY_DOCUMENT
    hint: Hint = MISSING
    collection_uuid: CollectionUuid = None


class AggregateRequest(NamedTuple):
    collection: Annotated[Value, Field("aggregate", ONE)]
    pipeline: Annotated[list[Value], Field("pipeline", PIPELINE)]
    cursor: Annotated[bytes | None, Field("cursor", GIVEN_DOCUMENT)] = None
    explain: Annotated[bool, Field("explain", GIVEN_BOOL)] = False
    allow_disk_use: Annotated[bool | None, Field("allowDiskUse", GIVEN_BOOL)] = None
    hint: Hint = MISSING
    let: Let = EMPTY_DOCUMENT
    collation: Collation = EMPTY_DOCUMENT
    bypass: BypassValidation = False
    collection_uuid: CollectionUuid = None


def collection_of(op: OperationContext, value: Value) -> str:
    """The collection of an `aggregate`; "$cmd.aggregate" for `1`, with which only some stages are allowed.

    BadValue (2) for other numbers, InvalidNamespace (73) for other types.
    """
    if isinstance(value, str):
        check_collection_name(op.database, value)
        return value
    if not is_number(value):
        raise CommandError(
            ErrorCode.InvalidNamespace, f"collection name has invalid type {type_name(type_code_of(value))}"
        )
    if to_double(value) != 1.0:
        raise CommandError(
            ErrorCode.BadValue, "Invalid command format: the 'aggregate' field must specify a collection name or 1"
        )
    return "$cmd.aggregate"
