"""What some accounts do that looks like a defect: behaviours of `cosmos_choices.VARIANTS` that are about one operation.

Each was recorded of one account; the sources are in that table.
"""

from typing import Final

from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow, allow_variant
from mongottl.dialect.cosmos.wording import internal_error
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode, WriteError

_NULL_PROJECTION: Final = "null-projection"
_MISSING_COLLECTION: Final = "missing-collection"
_UPSERT_CONFLICT: Final = "upsert-conflict"
_SHARD_KEY_COMMAND_ERROR: Final = "shard-key-command-error"
_MISSING_SHARD_KEY: Final = "missing-shard-key"


def check_null_projection(account: Account, pipeline: list[Value]) -> None:
    """InternalError (1) for `[{$match: …}, {$limit: 1}, {$project: {_id: 0, _v: null}}]`.

    The .NET driver sends it for LINQ's `Any` with a condition; without one, where there is no `$match`, it was recorded
    to work. That it is the null which fails is assumed.
    """
    if not account.refuses(_NULL_PROJECTION):
        return
    seen: list[str] = []
    for stage in pipeline:
        for name, argument in fields(stage) if isinstance(stage, bytes) else ():
            if (
                name == "$project"
                and seen[:1] == ["$match"]
                and "$limit" in seen
                and isinstance(argument, bytes)
                and any(value is None for _, value in fields(argument))
            ):
                raise CommandError(
                    ErrorCode.InternalError,
                    internal_error(),
                    advice=advice("Some accounts fail at a $project of null", allow_variant(account, _NULL_PROJECTION)),
                )
            seen.append(name)


def check_find_of_missing(account: Account) -> None:
    """NamespaceNotFound (26, of Microsoft's page on errors) for a find in a collection that does not exist."""
    if account.refuses(_MISSING_COLLECTION):
        raise CommandError(
            ErrorCode.NamespaceNotFound,
            "Collection not found",
            advice=advice(
                "There is no such collection", "create it first", allow_variant(account, _MISSING_COLLECTION)
            ),
        )


def upsert_error(account: Account, error: CommandError) -> CommandError:
    """The error of an upsert of findAndModify whose `_id` is taken: DuplicateKey (11000), or
    ConflictingOperationInProgress (117), whose text is recorded so."""
    if account.refuses(_UPSERT_CONFLICT):
        return CommandError(
            ErrorCode.ConflictingOperationInProgress,
            "Error=117, Details='",
            advice=advice(
                "The _id is taken, which some accounts answer so",
                f"to get DuplicateKey, {allow_variant(account, _UPSERT_CONFLICT)}",
            ),
        )
    return error


def missing_shard_key(account: Account, path: str) -> CommandError | None:
    """ShardKeyNotFound (61) for a document without a value of the shard key: of the statement, or of the command. None
    if it is allowed."""
    if not account.refuses(_MISSING_SHARD_KEY):
        return None
    text = "document does not contain shard key"
    what_helps = advice(
        f"The document has no value of the shard key at {path}", "give it one", allow(_MISSING_SHARD_KEY)
    )
    if account.refuses(_SHARD_KEY_COMMAND_ERROR):
        return CommandError(ErrorCode.ShardKeyNotFound, text, advice=what_helps)
    return WriteError(ErrorCode.ShardKeyNotFound, f"{text} at '{path}'", advice=what_helps)
