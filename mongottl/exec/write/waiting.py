"""Waiting for a transaction that has written what a plain write wants to write, or for the copy of its collection."""

from collections.abc import Callable
from typing import Final, TypeVar

from mongottl.catalog.collection import Collection
from mongottl.document.interrupt import Undivided
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.transaction_unit import abort_expired
from mongottl.exec.running.signal import Signal
from mongottl.exec.unit.write_unit import CollectionHeld
from mongottl.storage.errors import CatalogChanged, ClaimedByTransaction, WriteConflict

T = TypeVar("T")

# How often the wait looks whether the transaction has outlived its time.
_LOOK_S: Final = 1.0
# How often a temporary collection is dropped where other servers change the catalog.
_DROPS: Final = 20
# How often it is tried to write several records in one unit of work while other servers change the catalog, which ends
# the unit: then one by one, which is quick enough for any number of changes. After the first time the engine holds the
# changes off.
MOST_TOGETHER: Final = 4
# How often the wait for a copy looks whether that has ended.
_COPY_POLL_S: Final = 0.005


def await_transaction(op: OperationContext, conflict: WriteConflict) -> bool:
    """After a ClaimedByTransaction: waits until that transaction has ended, or for its `look_s`. After CatalogChanged
    waits until all servers know what the operation has changed of the catalog. After other conflicts lets others run:
    they may have what is in the way. Whether the conflict was not one with another plain write: such waits may be as
    many as it takes.

    After CollectionHeld waits for the end of the copy. It is raised again if the copy has taken the collection's place
    and the command has not committed anything: then that is carried out again, and finds the copy.

    The caller then reads again and repeats its write. MaxTimeMSExpired (50), Interrupted (11601).
    """
    metrics = op.service.metrics
    metrics.write_conflicts += 1
    op.check_interrupt()
    op.give_way()
    if isinstance(conflict, CatalogChanged):
        nodes = op.service.engine.shared_nodes
        if isinstance(conflict, CollectionHeld):
            await_copy(op, conflict.collection)
            if conflict.collection.dropped and nodes is not None and not nodes.has_committed:
                raise conflict
        elif nodes is not None:
            nodes.settle()
        return True
    if not isinstance(conflict, ClaimedByTransaction):
        return False
    owner = conflict.owner
    signal = Signal()
    owner.on_release(signal.notify)
    op.waits_for = signal
    metrics.queued_writers += 1
    try:
        while not owner.released:
            op.check_interrupt()
            abort_expired(op.service)
            if not owner.released:
                seconds = seconds_to_look(op)
                if owner.look_s != 0.0:
                    seconds = min(seconds, owner.look_s)
                op.wait(seconds, signal, may_abandon=True)
            if owner.look_s != 0.0:
                break  # the write is tried again: the engine may not know of the end
    finally:
        metrics.queued_writers -= 1
        op.waits_for = None
        owner.forget_action(signal.notify)
    op.refresh_now()
    return True


def until_unchanged(op: OperationContext, step: Callable[[], T]) -> T:
    """What a step of a command returns that is carried out in an undivided block: again where other servers have
    changed the catalog meanwhile, or a transaction that has what it wants has ended. It has changed nothing then, or
    what it passes over when it is carried out again.

    MaxTimeMSExpired (50), Interrupted (11601), CollectionHeld as `await_transaction`.
    """
    while True:
        conflict: WriteConflict | None = None
        try:
            with Undivided():
                done = step()
        except (CatalogChanged, ClaimedByTransaction) as raised:
            conflict = raised
        if conflict is None:
            return done
        await_transaction(op, conflict)


def together(op: OperationContext, write: Callable[[], T], *failures: type[Exception]) -> T | None:
    """What `write` returns, which writes several records in one unit of work, and is called again while other servers
    change the catalog. None if the records are to be written one by one: after one of these failures, or where the
    catalog has changed MOST_TOGETHER times.

    MaxTimeMSExpired (50), Interrupted (11601), CollectionHeld as `await_transaction`.
    """
    for _ in range(MOST_TOGETHER):
        try:
            return write()
        except CatalogChanged as changed:
            conflict = changed
        except failures:
            break
        await_transaction(op, conflict)
    return None


def drop_temporary(op: OperationContext, made: Collection) -> None:
    """Drops what a command has made for itself, also where that has to end."""
    for _ in range(_DROPS):
        try:
            with Undivided():
                if not made.dropped:
                    op.catalog.drop_collection(made)
            break
        except (CatalogChanged, ClaimedByTransaction):
            continue


def await_copy(op: OperationContext, collection: Collection) -> None:
    """Waits until no server copies a collection, or it is gone. MaxTimeMSExpired (50), Interrupted (11601)."""
    metrics = op.service.metrics
    metrics.queued_writers += 1
    try:
        while collection.held_by and not collection.dropped:
            op.check_interrupt()
            op.wait(_COPY_POLL_S, may_abandon=True)
    finally:
        metrics.queued_writers -= 1
    op.refresh_now()


def seconds_to_look(op: OperationContext) -> float:
    """How long to wait at most for the end of a transaction: until one that has expired is looked for, or the
    deadline."""
    left_s = op.time_left_s()
    return _LOOK_S if left_s < 0.0 else min(_LOOK_S, left_s)
