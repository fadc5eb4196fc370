"""The state of a running operation that other operations read, and how they kill it."""

from mongottl.catalog.collection import Collection
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Interruptible


class OperationState(Interruptible):
    """The part of an operation that `$currentOp` shows and killOp needs.

    now_ms: the time used for `$$NOW`, new ObjectIds and expiry in reads. Writes use the time of each unit of work
    (`exec.unit.write_unit`).
    session_key: the bytes of the logical session's id, or None.
    used_namespace: "database.collection" of a command that names one, else empty.
    builds_on: the collection for which the operation builds indexes now, or None.
    waits_for: the signal that the operation waits for now, or None; `kill` notifies it.
    """

    def __init__(self, client: ClientInfo, database: str, now_ms: int) -> None:
        super().__init__()
        self.client = client
        self.database = database
        self.now_ms = now_ms
        self.session_key: bytes | None = None
        self.used_namespace = ""
        self.killed = False
        self.why_killed = "operation was interrupted"
        self.builds_on: Collection | None = None
        self.waits_for: Signal | None = None

    def kill(self, why: str = "") -> None:
        """Makes the operation fail with Interrupted (11601), at its next step, or now if it waits. why: the error's
        message, if not the usual one."""
        self.killed = True
        if why:
            self.why_killed = why
        if self.waits_for is not None:
            self.waits_for.notify()
