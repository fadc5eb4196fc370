"""Transactions of Cosmos DB: within one collection that is not sharded, and of five seconds (`limits`).

Source: "Transactions" in Microsoft's articles on the features that the service supports since 4.0; codes and texts from
users' reports.
"""

from collections.abc import Iterable
from typing import Final

from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow
from mongottl.dialect.cosmos.limits import TRANSACTION_TIME_ADVICE
from mongottl.dialect.cosmos.wording import storage_failure
from mongottl.dialect.interface import InactiveTransaction
from mongottl.errors import CommandError, ErrorCode

_OPERATION_NOT_SUPPORTED_IN_SHARDS: Final = 50841
_NO_LONGER_ACTIVE_SUBSTATUS: Final = 1101
_SHARDED: Final = "sharded-transaction"
_SEVERAL: Final = "cross-collection-transaction"


def check_collection(account: Account, namespace: str, is_sharded: bool, used: Iterable[str]) -> None:
    """50841 for a sharded collection, and for another one than the transaction already uses; that it is the code of the
    second, and its words, are assumed. used: the namespaces that the transaction has named."""
    if is_sharded and account.refuses(_SHARDED):
        raise _refused(
            "Multi-document transactions cannot be run in a sharded collection",
            advice("The collection is sharded, and transactions are of one that is not", allow(_SHARDED)),
        )
    if account.refuses(_SEVERAL):
        for other in used:
            if other != namespace:
                raise _refused(
                    f"Multi-document transactions cannot be run across several collections: {other} and {namespace}",
                    advice(f"The transaction uses {other} already, and can use one collection", allow(_SEVERAL)),
                )


def _refused(reason: str, what_helps: str) -> CommandError:
    return CommandError(_OPERATION_NOT_SUPPORTED_IN_SHARDS, reason, advice=what_helps)


def not_active(is_out_of_time: bool) -> InactiveTransaction:
    """BadValue (2) for a statement of a transaction that has ended: by an error, or because its time was over. Of
    insert, update and delete it is a write error, as the exceptions of drivers show (flamingock/flamingock-java#640,
    payloadcms/payload#6820)."""
    return InactiveTransaction(
        ErrorCode.BadValue,
        storage_failure("Transaction is not active", _NO_LONGER_ACTIVE_SUBSTATUS, is_write=True),
        advice=TRANSACTION_TIME_ADVICE if is_out_of_time else "",
    )
