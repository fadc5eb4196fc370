"""Transactions of Cosmos DB: within one collection that is not sharded, and of five seconds (`limits`).

Source: "Transactions" in Microsoft's articles on the features that the service supports since 4.0; codes and texts from
users' reports.
"""

from collections.abc import Iterable
from typing import Final

from mongottl.account import Account
from mongottl.dialect.cosmos.wording import storage_failure
from mongottl.errors import CommandError, ErrorCode

_OPERATION_NOT_SUPPORTED_IN_SHARDS: Final = 50841
_NO_LONGER_ACTIVE_SUBSTATUS: Final = 1101


def check_collection(account: Account, namespace: str, is_sharded: bool, used: Iterable[str]) -> None:
    """50841 for a sharded collection, and for another one than the transaction already uses; that it is the code of the
    second, and its words, are assumed. used: the namespaces that the transaction has named."""
    if is_sharded and account.refuses("sharded-transaction"):
        raise _refused("Multi-document transactions cannot be run in a sharded collection")
    if account.refuses("cross-collection-transaction"):
        for other in used:
            if other != namespace:
                raise _refused(
                    f"Multi-document transactions cannot be run across several collections: {other} and {namespace}"
                )


def _refused(reason: str) -> CommandError:
    return CommandError(_OPERATION_NOT_SUPPORTED_IN_SHARDS, reason)


class InactiveTransaction(CommandError):
    """The error of a statement of a transaction that has ended. Of insert, update and delete it is a write error, as
    the exceptions of drivers show (flamingock/flamingock-java#640, payloadcms/payload#6820)."""


def not_active() -> InactiveTransaction:
    """BadValue (2) for a statement of a transaction that has ended: by an error, or because its time was over."""
    return InactiveTransaction(
        ErrorCode.BadValue, storage_failure("Transaction is not active", _NO_LONGER_ACTIVE_SUBSTATUS, is_write=True)
    )
