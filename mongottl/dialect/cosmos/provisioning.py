"""Databases, collections, shard keys and throughput: what Cosmos DB refuses, and in which words.

Source: Microsoft's "Custom commands to manage data in Azure Cosmos DB for MongoDB", "Request units" and "Service quotas
and default limits"; what users of the service have reported where that is said.

Throughput, shard keys and what exists have no refusal that can be allowed: MongoDB has no such commands to fall back
on, and the storage needs what they say.
"""

from typing import Final

from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow
from mongottl.dialect.cosmos.wording import wrapped
from mongottl.document.numbers import whole
from mongottl.document.path import check_path_depth
from mongottl.document.render import render_value
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode

# The refusal of `cosmos_choices.REFUSALS` of `create` for a collection that exists.
CREATE_EXISTING: Final = "create-existing"
_MIN_UNITS: Final = 400
_UNITS_STEP: Final = 100
_MIN_AUTOSCALE_UNITS: Final = 1000
_AUTOSCALE_STEP: Final = 1000
# More needs a shard key.
_MAX_UNSHARDED_UNITS: Final = 10_000
_COLLECTION_NAMES: Final = "collection-names"
CREATE_EXISTING_ADVICE: Final = advice("The collection exists already", "drop it first", allow(CREATE_EXISTING))
_NO_FALLBACK: Final = advice("MongoDB has no such command to fall back on")


def already_exists() -> CommandError:
    """Reported by users, who look for the code or for `already exists`; that the words are wrapped is assumed."""
    return CommandError(
        ErrorCode.ConflictingOperationInProgress,
        wrapped(
            ErrorCode.ConflictingOperationInProgress,
            'Message: {"Errors":["Resource with specified id, name, or unique index already exists."]}',
            "Conflict (409)",
        ),
        advice=advice("It exists already", "drop it first"),
    )


def not_found(what: str) -> CommandError:
    """what: such as `database shop`. The words are assumed."""
    return CommandError(
        ErrorCode.NamespaceNotFound,
        wrapped(
            ErrorCode.NamespaceNotFound,
            f'Message: {{"Errors":["Owner resource does not exist: {what}"]}}',
            "NotFound (404)",
        ),
        advice=advice(f"There is no {what}", "create it first"),
    )


def refused(reason: str) -> CommandError:
    """BadValue (2)."""
    text = wrapped(ErrorCode.BadValue, f'Message: {{"Errors":["{reason}"]}}')
    return CommandError(ErrorCode.BadValue, text, advice=_NO_FALLBACK)


def checked_units(asked: Value, autoscale: bool, sharded: bool) -> int:
    """Request units per second, of a number of any type. BadValue (2) for throughput that cannot be provisioned; that
    this is the code is assumed.

    sharded: whether it is that of a sharded collection or of a database.
    """
    least, step = (_MIN_AUTOSCALE_UNITS, _AUTOSCALE_STEP) if autoscale else (_MIN_UNITS, _UNITS_STEP)
    name = "autoScaleSettings.maxThroughput" if autoscale else "offerThroughput"
    units_per_s = whole(asked)
    if units_per_s is None or units_per_s < least or units_per_s % step != 0:
        raise refused(f"{name} must be at least {least} and a multiple of {step}, but it is {render_value(asked)}")
    if units_per_s > _MAX_UNSHARDED_UNITS and not sharded:
        raise refused(f"{name} of a collection without shardKey must be at most {_MAX_UNSHARDED_UNITS}")
    return units_per_s


def check_name(account: Account, collection: str) -> None:
    """InvalidNamespace (73) for a name with spaces, which CreateCollection does not take. That this is the code is
    assumed."""
    if " " in collection and account.refuses(_COLLECTION_NAMES):
        raise CommandError(
            ErrorCode.InvalidNamespace,
            "Collection name contains invalid character.",
            advice=advice("CreateCollection takes no name with spaces", allow(_COLLECTION_NAMES)),
        )


def check_shard_key(path: str) -> None:
    """BadValue (2) for a path that cannot be a shard key; the words are reported by users. Overflow (15)
    for one of more components than a document has levels."""
    check_path_depth(path)
    if any(part == "" or part.startswith("$") or "/" in part or "\0" in part for part in path.split(".")):
        raise CommandError(
            ErrorCode.BadValue,
            f"Partition key path /{path} is invalid for MongoDB API",
            advice=advice("Such a path cannot be a shard key"),
        )
