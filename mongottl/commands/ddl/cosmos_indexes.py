"""The indexes that an account of Cosmos DB takes, which it refuses, and how it lists them.

A unique index is part of how a collection is stored, so it comes before the documents; with continuous backup it comes
with the collection or never. Within a sharded collection it holds per shard key value, so it contains the shard key.

A specification passes three checks: `accepted_spec` before it is parsed, `check_requested` after, `check_new_indexes`
once it is known which of the indexes do not exist yet.

Source: Microsoft's "Manage indexing in Azure Cosmos DB for MongoDB", "Configure your Azure Cosmos DB for MongoDB
account capabilities" and "Azure Cosmos DB service quotas"; codes, and texts that these lack, from users' reports.
Assumed are the texts without a report: of the numbers, of wildcard and partial indexes; that of collations and wildcard
projections is MongoDB's.
"""

from collections.abc import Container
from typing import Final

from mongottl.account import Account
from mongottl.catalog.collection import Collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.index_kinds.kind import is_wildcard
from mongottl.dialect.cosmos.wording import wrapped
from mongottl.document.build import encode_fields
from mongottl.document.numbers import is_true
from mongottl.document.render import render_document
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.expiry import count_expired

# The refusals of `account.REFUSALS` that switch off what is refused here.
LATE_UNIQUE_INDEX: Final = "late-unique-index"
UNIQUE_WITHOUT_SHARD_KEY: Final = "unique-without-shard-key"
INDEX_KINDS: Final = "index-kinds"
INDEX_LIMITS: Final = "index-limits"
NOT_EMPTY: Final = "Cannot create unique index when collection contains documents"
FROZEN: Final = (
    "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."
)
NESTED: Final = "Unique and compound indexes do not support nested paths."
UNIQUE_ID: Final = "The field 'unique' is not valid for _id index specification"
SECOND_TTL: Final = "TTL index is already set up"
MAX_SINGLE_FIELD_INDEXES: Final = 500
MAX_UNIQUE_INDEXES: Final = 10
MAX_COMPOUND_FIELDS: Final = 8
# The names of a path: `a.b` has 2. Microsoft's page calls it the nesting of a path.
MAX_PATH_NAMES: Final = 6
# Kinds of index, by the value in the key pattern, that are not refused.
_KINDS: Final = ("2dsphere", "")
_REFUSED_OPTIONS: Final = ("collation", "wildcardProjection")
# The first version that has TTL on custom paths, and partial indexes.
_FIRST_WITH_CAPABILITIES: Final = (4, 2)


def accepted_spec(op: OperationContext, account: Account, spec: bytes) -> bytes:
    """A specification without `sparse`, which Cosmos DB accepts and ignores.

    CommandNotSupported (115) for kinds that it does not have: text, 2d, hashed. InvalidIndexSpecificationOption (197)
    for a collation, a `wildcardProjection`, and `unique` on `_id`, which MongoDB refuses too. BadValue (2) for a TTL of
    any value on another field than `_ts`, unless the account has the capability for it. All else is left to
    `parse_index_spec`.
    """
    limited = account.refuses(INDEX_KINDS)
    accepted: list[tuple[str, Value]] = []
    on_id = unique = on_another_field = expires = False
    for option, value in fields(spec):
        if option == "key" and isinstance(value, bytes):
            pattern = fields(value)
            for _, kind in pattern:
                if limited and isinstance(kind, str) and kind not in _KINDS:
                    raise CommandError(ErrorCode.CommandNotSupported, f"'{kind}' is not supported")
            on_id = [path for path, _ in pattern] == ["_id"]
            on_another_field = len(pattern) == 1 and pattern[0][0] != "_ts" and not is_wildcard(pattern[0][0])
        elif limited and option in _REFUSED_OPTIONS:
            raise CommandError(
                ErrorCode.InvalidIndexSpecificationOption,
                f"The field '{option}' is not valid for an index specification. Specification: {render_document(spec)}",
            )
        elif option == "unique":
            unique = value is True or (is_number(value) and is_true(value))
        elif option == "expireAfterSeconds":
            expires = True
        if option != "sparse" or not limited:
            accepted.append((option, value))
    if on_id and unique:
        raise CommandError(ErrorCode.InvalidIndexSpecificationOption, UNIQUE_ID)
    refusal = op.service.dialect.date_ttl_refusal
    if (
        expires
        and on_another_field
        and refusal is not None
        and not _has_capability(op, account, "EnableTtlOnCustomPath")
    ):
        raise CommandError(ErrorCode.BadValue, refusal)
    return encode_fields(accepted)


def _has_capability(op: OperationContext, account: Account, capability: str) -> bool:
    """Whether the account has it, and its version can have it."""
    major, minor = op.service.config.announced_version().split(".")
    return (int(major), int(minor)) >= _FIRST_WITH_CAPABILITIES and account.can(capability)


def warn_of_sparse(op: OperationContext, account: Account, collection: str, specs: list[bytes]) -> None:
    """Logs a warning for each specification whose `sparse` `accepted_spec` ignores: users report unique indexes that
    then refuse a second document without the field."""
    if not account.refuses(INDEX_KINDS):
        return
    for spec in specs:
        sparse = get_value(spec, "sparse")
        if sparse is True or (is_number(sparse) and is_true(sparse)):
            name = get_value(spec, "name")
            op.service.log_ignored_sparse(op.client, f"{op.database}.{collection}", str(name))


def check_requested(op: OperationContext, account: Account, wanted: list[IndexDescriptor]) -> list[IndexDescriptor]:
    """Checks each index of a request by itself; those that are made. In some accounts unique and compound indexes on
    nested paths are not, and no error tells of it (`silent-nested-index` in `account.VARIANTS`).

    CannotCreateIndex (67) beyond the limits of an index, and for a wildcard index that is compound, unique or TTL;
    CommandNotSupported (115) for a nested path in a unique or compound index, and for a partial index, unless the
    account has the capability for it. BadValue (2) for a TTL of 0 seconds.
    """
    made: list[IndexDescriptor] = []
    for descriptor in wanted:
        if account.refuses("silent-nested-index") and _is_nested(account, descriptor):
            continue
        made.append(descriptor)
        _check_paths(account, descriptor)
        possible = descriptor.unique and _has_capability(op, account, "EnablePartialUniqueIndex")
        if descriptor.partial_filter is not None and not possible and account.refuses(INDEX_KINDS):
            raise CommandError(ErrorCode.CommandNotSupported, "'partialFilterExpression' is not supported")
        if descriptor.expire_after_s == 0 and account.refuses(INDEX_LIMITS):
            # Reported for Cosmos DB, which has no TTL of 0, but not for this capability.
            raise CommandError(ErrorCode.BadValue, "The 'expireAfterSeconds' option must be greater than 0.")
    return made


def _is_nested(account: Account, descriptor: IndexDescriptor) -> bool:
    """Whether it is a unique or compound index with a nested path, which the account does not have."""
    if account.can("EnableUniqueCompoundNestedDocs") or not (descriptor.unique or len(descriptor.paths) > 1):
        return False
    return any(len([name for name in path.dotted.split(".") if name != "$**"]) > 1 for path in descriptor.paths)


def _check_paths(account: Account, descriptor: IndexDescriptor) -> None:
    paths = [path.dotted for path in descriptor.paths]
    compound = len(paths) > 1
    wildcard = any(is_wildcard(path) for path in paths)
    if (
        wildcard
        and (compound or descriptor.unique or descriptor.expire_after_s is not None)
        and account.refuses(INDEX_KINDS)
    ):
        raise _cannot_create("A wildcard index can be neither compound nor unique, and cannot have a TTL")
    limited = account.refuses(INDEX_LIMITS)
    if limited and len(paths) > MAX_COMPOUND_FIELDS:
        raise _cannot_create(f"A compound index can have at most {MAX_COMPOUND_FIELDS} fields, but has {len(paths)}")
    for path in paths:
        names = [name for name in path.split(".") if name != "$**"]
        if limited and len(names) > MAX_PATH_NAMES:
            raise _cannot_create(f"The path of an index can have at most {MAX_PATH_NAMES} names: {path}")
    if _is_nested(account, descriptor):
        raise CommandError(ErrorCode.CommandNotSupported, NESTED)


def _cannot_create(text: str) -> CommandError:
    return CommandError(ErrorCode.CannotCreateIndex, text)


def check_new_indexes(
    op: OperationContext,
    account: Account,
    collection: Collection | None,
    new: list[IndexDescriptor],
    with_collection: bool,
    dropped: Container[str] = (),
) -> None:
    """Checks indexes that are about to be created, and do not exist yet.

    collection: None if it does not exist yet. with_collection: whether the same command has created the collection.
    dropped: names of indexes that are dropped before.
    CannotCreateIndex (67) for a unique index over living documents or without the shard key, and for too many indexes.
    Unauthorized (13) for a unique index with continuous backup, unless `with_collection`. BadValue (2) for a second
    TTL.
    """
    if not new:
        return
    present = [] if collection is None else [index.descriptor for index in collection.listed_indexes]
    if account.refuses(INDEX_LIMITS):
        _check_together([descriptor for descriptor in present if descriptor.name not in dropped], new)
    unique = [descriptor for descriptor in new if descriptor.unique]
    if not unique:
        return
    if collection is not None and account.refuses(UNIQUE_WITHOUT_SHARD_KEY):
        for descriptor in unique:
            _check_has_shard_key(collection, descriptor)
    if account.is_continuous and not with_collection and account.refuses(LATE_UNIQUE_INDEX):
        raise frozen()
    if collection is None:
        return
    late = account.refuses(LATE_UNIQUE_INDEX) and not account.can("EnableUniqueIndexReIndex")
    if late and _has_living_documents(op, collection):
        raise _cannot_create(NOT_EMPTY)


def _check_together(present: list[IndexDescriptor], new: list[IndexDescriptor]) -> None:
    """The errors of indexes that could each be created, but not all in one collection."""
    together = [*present, *new]
    if sum(1 for index in together if len(index.paths) == 1 and not index.is_id) > MAX_SINGLE_FIELD_INDEXES:
        raise _cannot_create(f"A collection can have at most {MAX_SINGLE_FIELD_INDEXES} single-field indexes")
    if sum(1 for index in together if index.unique) > MAX_UNIQUE_INDEXES:
        raise _cannot_create(f"A collection can have at most {MAX_UNIQUE_INDEXES} unique indexes")
    timed = [index for index in together if index.is_ttl_setting or index.expire_after_s is not None]
    if len(timed) > 1:
        raise CommandError(ErrorCode.BadValue, f"{SECOND_TTL} on the collection")
    partial_paths = {path.dotted for index in together if index.partial_filter is not None for path in index.paths}
    for index in timed:
        if index.paths[0].dotted in partial_paths:
            raise _cannot_create("The path of a TTL index cannot be that of a partial unique index")


def listed_index(collection: Collection, descriptor: IndexDescriptor) -> bytes:
    """An index as Cosmos DB lists it: `{v: 1, key, name, ns}`, after the options that it has."""
    listed: list[tuple[str, Value]] = []
    for option, value in fields(descriptor.kind.listed(descriptor.spec)):
        if option not in ("v", "key", "name", "background"):
            listed.append((option, value))
    listed += [("v", 1), ("key", descriptor.key), ("name", descriptor.name), ("ns", collection.namespace)]
    return encode_fields(listed)


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
    raise _cannot_create(
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
