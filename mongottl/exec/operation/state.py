"""What others may know of an operation under way, and how they end it."""

from mongottl.exec.operation.client import ClientInfo
from mongottl.exec.operation.signal import Signal


class OperationState:
    """The part of an operation that `$currentOp` shows and killOp needs.

    now_ms: the instant that `$$NOW`, new ObjectIds and what the command reads go by. What it writes is dated by the
    instant of each unit of work (`exec.operation.write_unit`).
    session_key: the bytes of the logical session's id, or None.
    used_namespace: "database.collection" of a command that names one, else empty.
    waits_for: what the operation waits for now, if anything: killing it ends the waiting.
    """

    def __init__(self, client: ClientInfo, database: str, now_ms: int) -> None:
        self.client = client
        self.database = database
        self.now_ms = now_ms
        self.session_key: bytes | None = None
        self.used_namespace = ""
        self.killed = False
        self.waits_for: Signal | None = None

    def kill(self) -> None:
        """Ends the operation with Interrupted (11601), at its next step or now if it waits."""
        self.killed = True
        if self.waits_for is not None:
            self.waits_for.notify()
