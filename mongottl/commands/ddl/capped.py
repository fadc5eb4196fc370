"""convertToCapped and cloneCollectionAsCapped: copy existing documents into a capped collection. emptycapped.

Source: MongoDB's reference for each; the first two ignore unknown fields.
"""

from typing import Annotated, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.namespace import check_collection_name
from mongottl.catalog.options import CollectionOptions
from mongottl.catalog.view import View
from mongottl.commands.access import collection_needs, needing, on_collection
from mongottl.commands.ddl.collection_options import MAX_CAPPED_BYTES
from mongottl.commands.ddl.collections import check_no_index_build
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, COLLECTION, ONE, Field
from mongottl.document.numbers import clamp_to_long
from mongottl.document.types import Int64, Value, is_number, type_code_of, type_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.capped import empty
from mongottl.exec.write.copying import copy_as_capped
from mongottl.security.privileges import Need


class ConvertToCappedRequest(NamedTuple):
    collection: Annotated[str, Field("convertToCapped", COLLECTION)]
    size: Annotated[Value, Field("size", ANY)] = None


@command(
    "convertToCapped",
    ConvertToCappedRequest,
    access=on_collection("convertToCapped"),
    help="Converts a collection to a capped collection, which keeps the newest documents that fit.",
    writes=True,
    strict=False,
    exclusive=True,
)
def convert_to_capped(op: OperationContext, request: ConvertToCappedRequest) -> Reply:
    """Makes a collection capped and drops its indexes except that on `_id`.

    NamespaceNotFound (26), InvalidOptions (72) without a size, QueryPlanKilled (175) if another command drops or
    renames the collection meanwhile.
    """
    source = _source(op, request.collection)
    size = _positive_size(request.size)
    copy_as_capped(op, source, source.name, _capped_options(source, size))
    return {}


class CloneCollectionAsCappedRequest(NamedTuple):
    collection: Annotated[Value, Field("cloneCollectionAsCapped", ONE)]
    to: Annotated[Value, Field("toCollection", ANY)] = None
    size: Annotated[Value, Field("size", ANY)] = None


def _clone_needs(op: OperationContext, request: CloneCollectionAsCappedRequest) -> list[Need]:
    target = collection_needs(op.database, str(request.to), "insert", "createIndex", "convertToCapped")
    return collection_needs(op.database, str(request.collection), "find") + target


@command(
    "cloneCollectionAsCapped",
    CloneCollectionAsCappedRequest,
    access=needing(_clone_needs),
    help="Copies a collection into a new capped collection, which keeps the newest documents that fit.",
    writes=True,
    strict=False,
)
def clone_collection_as_capped(op: OperationContext, request: CloneCollectionAsCappedRequest) -> Reply:
    """Copies a collection into a new capped one.

    NamespaceNotFound (26) without the source, NamespaceExists (48) if the target exists, InvalidOptions (72) without a
    size.
    """
    name = _text("cloneCollectionAsCapped", request.collection)
    to = _text("toCollection", request.to)
    op.check_database()
    check_collection_name(op.database, name)
    if "$" in name:
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid collection name: {op.database}.{name}")
    op.catalog.check_new_name(op.database, to)
    size = _positive_size(request.size)
    source = _source(op, name)
    target = op.catalog.find(op.database, to)
    if target is not None:
        what = "view" if isinstance(target, View) else "collection"
        raise CommandError(ErrorCode.NamespaceExists, f"a {what} '{target.namespace}' already exists")
    copy_as_capped(op, source, to, _capped_options(source, size))
    return {}


class EmptyCappedRequest(NamedTuple):
    collection: Annotated[str, Field("emptycapped", COLLECTION)]


@command(
    "emptycapped",
    EmptyCappedRequest,
    access=on_collection("emptycapped"),
    help="Empties a capped collection, for tests.",
    writes=True,
    test_only=True,
    strict=False,
)
def empty_capped(op: OperationContext, request: EmptyCappedRequest) -> Reply:
    """Deletes all documents of a capped collection. NamespaceNotFound (26), IllegalOperation (20) if not capped."""
    collection = _source(op, request.collection)
    if not collection.options.capped:
        raise CommandError(ErrorCode.IllegalOperation, f"{collection.namespace} is not a capped collection")
    empty(op, collection)
    return {}


def _text(field: str, value: Value) -> str:
    if not isinstance(value, str):
        raise CommandError(
            ErrorCode.TypeMismatch, f"'{field}' must be of type String, not {type_name(type_code_of(value))}"
        )
    return value


def _source(op: OperationContext, name: str) -> Collection:
    op.check_database()
    check_collection_name(op.database, name)
    source = op.catalog.lookup(op.database, name)
    if source is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"source collection {op.database}.{name} does not exist")
    check_no_index_build(source)
    return source


def _positive_size(value: Value) -> int:
    """The size as an int64. InvalidOptions (72) if it is no number or not greater than 0."""
    size = clamp_to_long(value) if is_number(value) else 0
    if size <= 0:
        raise CommandError(ErrorCode.InvalidOptions, "Capped collection size must be greater than zero")
    return size


def _capped_options(source: Collection, size: int) -> CollectionOptions:
    """The source's options with `capped` and a size. BadValue (2) if it is too large."""
    if size > MAX_CAPPED_BYTES:
        raise CommandError(ErrorCode.BadValue, f"size cannot exceed 1 PB, actual value '{size}'")
    return source.options.with_options({"capped": True, "size": Int64(size)})
