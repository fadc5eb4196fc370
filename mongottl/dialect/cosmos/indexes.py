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

from collections.abc import Callable, Container
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.index_kinds.hashed import HASHED
from mongottl.catalog.index_kinds.kind import is_wildcard
from mongottl.config.cosmos_choices import PERIODIC
from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow, allow_since, capability
from mongottl.dialect.cosmos.limits import MAX_COMPOUND_FIELDS, MAX_PATH_NAMES
from mongottl.dialect.cosmos.replies import DATE_TTL_REFUSAL
from mongottl.dialect.cosmos.served_sorts import NESTED_INDEXES
from mongottl.dialect.cosmos.wording import wrapped
from mongottl.document.build import encode_fields
from mongottl.document.numbers import is_true
from mongottl.document.render import render_document
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.versions import COMPOUND_HASHED, SYNTAX, parse_version

# The refusals of `cosmos_choices.REFUSALS` that switch off what is refused here.
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
# Kinds of index, by the value in the key pattern, that are not refused, and those of them that MongoDB has.
_KINDS: Final = ("2dsphere", "")
_MONGODB_KINDS: Final = ("2d", HASHED, "text")
_REFUSED_OPTIONS: Final = ("collation", "wildcardProjection")
# The first version that has TTL on custom paths, and partial indexes.
_FIRST_WITH_CAPABILITIES: Final = (4, 2)
_CUSTOM_TTL: Final = "EnableTtlOnCustomPath"
_PARTIAL_UNIQUE: Final = "EnablePartialUniqueIndex"
_LATE_UNIQUE: Final = "EnableUniqueIndexReIndex"


def accepted_spec(account: Account, spec: bytes) -> bytes:
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
                    what_helps = _no_kind(account, kind, is_compound=len(pattern) > 1)
                    raise CommandError(
                        ErrorCode.CommandNotSupported,
                        f"'{kind}' is not supported",
                        advice=what_helps,
                    )
            on_id = [path for path, _ in pattern] == ["_id"]
            on_another_field = len(pattern) == 1 and pattern[0][0] != "_ts" and not is_wildcard(pattern[0][0])
        elif limited and option in _REFUSED_OPTIONS:
            raise CommandError(
                ErrorCode.InvalidIndexSpecificationOption,
                f"The field '{option}' is not valid for an index specification. Specification: {render_document(spec)}",
                advice=advice(f"Cosmos DB's indexes have no {option}", allow(INDEX_KINDS)),
            )
        elif option == "unique":
            unique = value is True or (is_number(value) and is_true(value))
        elif option == "expireAfterSeconds":
            expires = True
        if option != "sparse" or not limited:
            accepted.append((option, value))
    if on_id and unique:
        raise CommandError(ErrorCode.InvalidIndexSpecificationOption, UNIQUE_ID)
    if expires and on_another_field and not _has_capability(account, _CUSTOM_TTL):
        way = capability(account, _CUSTOM_TTL, "4.2")
        what_helps = advice("Cosmos DB has TTL indexes on _ts alone", way)
        raise CommandError(ErrorCode.BadValue, DATE_TTL_REFUSAL, advice=what_helps)
    return encode_fields(accepted)


def _no_kind(account: Account, kind: str, is_compound: bool) -> str:
    """The advice for a kind of index; "" for one that MongoDB does not have either."""
    if kind not in _MONGODB_KINDS:
        return ""
    way = allow(INDEX_KINDS)
    if kind == HASHED and is_compound:
        way = allow_since(account, INDEX_KINDS, SYNTAX, COMPOUND_HASHED)
    return advice(f"Cosmos DB has no {kind} indexes", way)


def _has_capability(account: Account, capability: str) -> bool:
    """Whether the account has it, and its version can have it."""
    return parse_version(account.version) >= _FIRST_WITH_CAPABILITIES and account.can(capability)


def ignored_sparse(account: Account, specs: list[bytes]) -> list[str]:
    """The names of the specifications whose `sparse` `accepted_spec` ignores: users report unique indexes that then
    refuse a second document without the field."""
    if not account.refuses(INDEX_KINDS):
        return []
    names: list[str] = []
    for spec in specs:
        sparse = get_value(spec, "sparse")
        if sparse is True or (is_number(sparse) and is_true(sparse)):
            names.append(str(get_value(spec, "name")))
    return names


def check_requested(account: Account, wanted: list[IndexDescriptor]) -> list[IndexDescriptor]:
    """Checks each index of a request by itself; those that are made. In some accounts unique and compound indexes on
    nested paths are not, and the reply has no error (`silent-nested-index` in `cosmos_choices.VARIANTS`).

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
        possible = descriptor.unique and _has_capability(account, _PARTIAL_UNIQUE)
        if descriptor.partial_filter is not None and not possible and account.refuses(INDEX_KINDS):
            enabled = capability(account, _PARTIAL_UNIQUE, "4.2") if descriptor.unique else ""
            raise CommandError(
                ErrorCode.CommandNotSupported,
                "'partialFilterExpression' is not supported",
                advice=advice("Cosmos DB has no partial indexes", enabled, allow(INDEX_KINDS)),
            )
        if descriptor.expire_after_s == 0 and account.refuses(INDEX_LIMITS):
            # Reported for Cosmos DB, which has no TTL of 0, but not for this capability.
            raise CommandError(
                ErrorCode.BadValue,
                "The 'expireAfterSeconds' option must be greater than 0.",
                advice=advice("Cosmos DB has no TTL of 0 seconds", allow(INDEX_LIMITS)),
            )
    return made


def _is_nested(account: Account, descriptor: IndexDescriptor) -> bool:
    """Whether it is a unique or compound index with a nested path, which the account does not have."""
    if account.can(NESTED_INDEXES) or not (descriptor.unique or len(descriptor.paths) > 1):
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
        # Those that are unique or TTL MongoDB refuses as well, before.
        raise _cannot_create(
            "A wildcard index can be neither compound nor unique, and cannot have a TTL",
            advice("Cosmos DB has no compound wildcard indexes", allow(INDEX_KINDS)),
        )
    limited = account.refuses(INDEX_LIMITS)
    if limited and len(paths) > MAX_COMPOUND_FIELDS:
        raise _cannot_create(
            f"A compound index can have at most {MAX_COMPOUND_FIELDS} fields, but has {len(paths)}",
            advice(f"The index has more than {MAX_COMPOUND_FIELDS} fields", allow(INDEX_LIMITS)),
        )
    for path in paths:
        names = [name for name in path.split(".") if name != "$**"]
        if limited and len(names) > MAX_PATH_NAMES:
            raise _cannot_create(
                f"The path of an index can have at most {MAX_PATH_NAMES} names: {path}",
                advice(f"The path {path} has more than {MAX_PATH_NAMES} names", allow(INDEX_LIMITS)),
            )
    if _is_nested(account, descriptor):
        raise CommandError(
            ErrorCode.CommandNotSupported,
            NESTED,
            advice=advice("Unique and compound indexes are on top-level fields", capability(account, NESTED_INDEXES)),
        )


def _cannot_create(text: str, what_helps: str) -> CommandError:
    return CommandError(ErrorCode.CannotCreateIndex, text, advice=what_helps)


def check_new_indexes(
    account: Account,
    collection: Collection | None,
    new: list[IndexDescriptor],
    with_collection: bool,
    dropped: Container[str],
    has_documents: Callable[[], bool],
) -> None:
    """Checks indexes that are about to be created, and do not exist yet.

    collection: None if it does not exist yet. with_collection: whether the same command has created the collection.
    dropped: names of indexes that are dropped before. has_documents: whether unexpired documents are in the collection.
    CannotCreateIndex (67) for a unique index over documents or without the shard key, and for too many indexes.
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
        raise frozen("create it together with the collection", allow(LATE_UNIQUE_INDEX))
    if collection is None:
        return
    late = account.refuses(LATE_UNIQUE_INDEX) and not account.can(_LATE_UNIQUE)
    if late and has_documents():
        what_helps = advice(
            "The collection has documents",
            "create the index before them",
            allow(LATE_UNIQUE_INDEX),
            capability(account, _LATE_UNIQUE),
        )
        raise _cannot_create(NOT_EMPTY, what_helps)


def _check_together(present: list[IndexDescriptor], new: list[IndexDescriptor]) -> None:
    """The errors of indexes that could each be created, but not all in one collection."""
    together = [*present, *new]
    if sum(1 for index in together if len(index.paths) == 1 and not index.is_id) > MAX_SINGLE_FIELD_INDEXES:
        raise _cannot_create(
            f"A collection can have at most {MAX_SINGLE_FIELD_INDEXES} single-field indexes",
            advice("The collection has too many single-field indexes", allow(INDEX_LIMITS)),
        )
    if sum(1 for index in together if index.unique) > MAX_UNIQUE_INDEXES:
        raise _cannot_create(
            f"A collection can have at most {MAX_UNIQUE_INDEXES} unique indexes",
            advice("The collection has too many unique indexes", allow(INDEX_LIMITS)),
        )
    timed = [index for index in together if index.is_ttl_setting or index.expire_after_s is not None]
    if len(timed) > 1:
        raise CommandError(
            ErrorCode.BadValue,
            f"{SECOND_TTL} on the collection",
            advice=advice("The collection has a TTL index already", "drop that one", allow(INDEX_LIMITS)),
        )
    partial_paths = {path.dotted for index in together if index.partial_filter is not None for path in index.paths}
    for index in timed:
        if index.paths[0].dotted in partial_paths:
            raise _cannot_create(
                "The path of a TTL index cannot be that of a partial unique index",
                advice("A partial unique index has the path of the TTL index", allow(INDEX_LIMITS)),
            )


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
        raise frozen(f"set --cosmos-backup {PERIODIC}")


def frozen(*ways: str) -> CommandError:
    """Unauthorized (13): the unique indexes of a collection cannot be changed."""
    text = wrapped(ErrorCode.Unauthorized, f'Message: {{"Errors":["{FROZEN}"]}}', "Forbidden (403)")
    what_helps = advice("With continuous backup unique indexes are made with the collection, and stay", *ways)
    return CommandError(ErrorCode.Unauthorized, text, advice=what_helps)


def _check_has_shard_key(collection: Collection, descriptor: IndexDescriptor) -> None:
    shard_key = collection.shard_key
    if shard_key is None or any(path.dotted == shard_key.path.dotted for path in descriptor.paths):
        return
    over = _rendered(
        [(path.dotted, value) for path, value in zip(descriptor.paths, descriptor.directions, strict=True)]
    )
    raise _cannot_create(
        f"cannot create unique index over {{{over}}} with shard key pattern {{ {shard_key.path.dotted} : 1.0 }}",
        advice(
            "The unique index of a sharded collection has no shard key",
            f"add {shard_key.path.dotted} to its fields",
            allow(UNIQUE_WITHOUT_SHARD_KEY),
        ),
    )


def _rendered(pattern: list[tuple[str, Value]]) -> str:
    """A key pattern as the text of Microsoft's page has it: `student_id : 1.0`."""
    return ", ".join(
        f"{path} : {float(direction) if isinstance(direction, (int, float)) else direction}"
        for path, direction in pattern
    )
