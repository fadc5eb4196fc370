"""Waiting for a transaction that has written what a plain write wants to write."""

from typing import Final

from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.transaction_unit import abort_expired
from mongottl.exec.running.signal import Signal
from mongottl.storage.interface import ClaimedByTransaction, WriteConflict

# How often the wait looks whether the transaction has outlived its time.
_LOOK_S: Final = 1.0


def await_transaction(op: OperationContext, conflict: WriteConflict) -> None:
    """After a ClaimedByTransaction: waits until that transaction has ended, or for its `look_s`. Returns at once after
    other conflicts.

    The caller then reads again and repeats its write. MaxTimeMSExpired (50), Interrupted (11601).
    """
    metrics = op.service.metrics
    metrics.write_conflicts += 1
    if not isinstance(conflict, ClaimedByTransaction):
        return
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
                op.wait(seconds if owner.look_s == 0.0 else min(seconds, owner.look_s), signal)
            if owner.look_s != 0.0:
                break  # the write is tried again: the engine may not know of the end
    finally:
        metrics.queued_writers -= 1
        op.waits_for = None
    op.refresh_now()


def seconds_to_look(op: OperationContext) -> float:
    """How long to wait at most for the end of a transaction: until one that has expired is looked for, or the
    deadline."""
    left_s = op.time_left_s()
    return _LOOK_S if left_s < 0.0 else min(_LOOK_S, left_s)
