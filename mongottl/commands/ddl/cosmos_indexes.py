"""The indexes that an account of Cosmos DB refuses.

A unique index is part of how a collection is stored, so it comes before the documents; with continuous backup it comes
with the collection or never. Within a sharded collection it holds per shard key value, so it contains the shard key.

Source: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB" and "Configure your Azure Cosmos DB for MongoDB
account capabilities"; codes, and texts that these do not have, from users' reports.
"""

from typing import Final

from mongottl.account import Account
from mongottl.catalog.collection import Collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.dialect.cosmos.wording import wrapped
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.expiry import count_expired

LATE_UNIQUE_INDEX: Final = "late-unique-index"
NOT_EMPTY: Final = "Cannot create unique index when collection contains documents"
FROZEN: Final = (
    "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."
)
# Microsoft's "Azure Cosmos DB service quotas": unique keys of a container.
MAX_UNIQUE_INDEXES: Final = 10


def check_new_indexes(
    op: OperationContext,
    account: Account,
    collection: Collection | None,
    new: list[IndexDescriptor],
    with_collection: bool,
) -> None:
    """Checks indexes that are about to be created, and do not exist yet.

    collection: None if it does not exist yet. with_collection: whether the same command has created the collection.
    CannotCreateIndex (67) for a unique index over living documents, without the shard key, or too many of them.
    Unauthorized (13) for a unique index with continuous backup, unless `with_collection`.
    """
    unique = [descriptor for descriptor in new if descriptor.unique]
    if not unique:
        return
    if collection is not None:
        for descriptor in unique:
            _check_has_shard_key(collection, descriptor)
    if account.is_continuous and not with_collection:
        raise frozen()
    if collection is None:
        return
    late = account.refuses(LATE_UNIQUE_INDEX) and not account.can("EnableUniqueIndexReIndex")
    if late and _has_living_documents(op, collection):
        raise CommandError(ErrorCode.CannotCreateIndex, NOT_EMPTY)
    present = sum(1 for index in collection.listed_indexes if index.descriptor.unique)
    if present + len(unique) > MAX_UNIQUE_INDEXES:
        # Assumed: the text.
        raise CommandError(
            ErrorCode.CannotCreateIndex, f"A collection can have at most {MAX_UNIQUE_INDEXES} unique indexes"
        )


def check_dropped_indexes(account: Account, dropped: list[IndexDescriptor]) -> None:
    """Unauthorized (13) for a unique index with continuous backup."""
    if account.is_continuous and any(descriptor.unique for descriptor in dropped):
        raise frozen()


def frozen() -> CommandError:
    """Unauthorized (13): the unique indexes of a collection cannot be changed."""
    text = wrapped(ErrorCode.Unauthorized, f'Message: {{"Errors":["{FROZEN}"]}}', "Forbidden (403)")
    return CommandError(ErrorCode.Unauthorized, text)


def _check_has_shard_key(collection: Collection, descriptor: IndexDescriptor) -> None:
    shard_key = collection.shard_key
    if shard_key is None or any(path.dotted == shard_key.path.dotted for path in descriptor.paths):
        return
    over = _rendered(
        [(path.dotted, value) for path, value in zip(descriptor.paths, descriptor.directions, strict=True)]
    )
    raise CommandError(
        ErrorCode.CannotCreateIndex,
        f"cannot create unique index over {{{over}}} with shard key pattern {{ {shard_key.path.dotted} : 1.0 }}",
    )


def _rendered(pattern: list[tuple[str, Value]]) -> str:
    """A key pattern as the text of Microsoft's page has it: `student_id : 1.0`."""
    return ", ".join(
        f"{path} : {float(direction) if isinstance(direction, (int, float)) else direction}"
        for path, direction in pattern
    )


def _has_living_documents(op: OperationContext, collection: Collection) -> bool:
    records = op.recovery_unit.records(collection)
    return records.count() > count_expired(records, collection, op.service.now_s())
