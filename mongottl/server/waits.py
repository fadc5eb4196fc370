"""What commands wait for before they begin. Each wait raises if the command may not begin any more.

Commands that change collections also wait for transactions: `transactions.await_users`.
"""

from collections.abc import Callable
from typing import Final

from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.service import ServiceContext

# How often a command that waits for the restore of a saved state looks whether it is over.
_RESTORE_POLL_S: Final = 0.0005
# How often a write checks whether the copy of its collection has ended.
_COPY_POLL_S: Final = 0.005


def until_restored(service: ServiceContext) -> None:
    """Waits until no saved state is being restored."""
    while service.restoring:
        service.stacks.wait(Wait(_RESTORE_POLL_S))


def is_locked(op: OperationContext) -> bool:
    """Whether a write has to wait: for fsyncUnlock, or for the end of the copy of its collection."""
    service = op.service
    return service.fsync_locks > 0 or op.used_namespace in service.exclusive


def until_unlocked(op: OperationContext) -> None:
    """Waits as long as `is_locked`."""
    while is_locked(op):
        op.check_interrupt()
        op.wait(_COPY_POLL_S)


def is_published(namespace: str) -> bool:
    """Whether the documents of a collection are made from the server's own state before a command uses it.

    namespace: the command's collection, or its database if it names none, as listCollections does.
    """
    return namespace in _PUBLISHED


def until_published(op: OperationContext) -> None:
    """Brings the collection that the command names, or shows among others, up to date."""
    _PUBLISHED[op.used_namespace or op.database](OperationContext(op.service, op.client, op.database))


# What publishes is imported then: few clients read these collections.


def _publish_transactions(op: OperationContext) -> None:
    from mongottl.exec.write.transaction_records import publish

    return publish(op)


def _publish_replica_set(op: OperationContext) -> None:
    from mongottl.commands.admin.replica_set import publish

    return publish(op)


# Collections whose documents are made from the server's own state right before a command uses them, and databases in
# which commands about the whole database show them.
_PUBLISHED: Final[dict[str, Callable[[OperationContext], None]]] = {
    "config": _publish_transactions,
    "config.transactions": _publish_transactions,
    "local.system.replset": _publish_replica_set,
}
