"""The errors of storage engines.

    StorageError
    ├── DuplicateKey         a unique sorted data has the key for another record
    ├── WriteConflict        a record has changed since it was read: roll back and repeat the operation
    ├── SnapshotConflict     what a transaction writes was written by others after its snapshot: abort it
    ├── SnapshotTooOld       a snapshot is read that the engine has given up
    ├── TransactionTooLarge  a transaction has written more than the engine keeps for one
    └── EngineUnavailable    disk full, I/O error, damage found while running, closed
    OSError
    └── DataDirectoryError   at opening: in use, newer format, damaged, not ours; the directory is left as it was

Any call may raise EngineUnavailable; methods name the others that they may raise. After EngineUnavailable inside a unit
of work, the unit can only be rolled back. Engines raise these classes themselves, and callers do not wrap them.
"""

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from mongottl.errors import MongottlError


class StorageError(MongottlError):
    """The base class of the errors of storage engines."""


class DuplicateKey(StorageError):
    """A unique sorted data has `key` for another record; nothing of the failed call is stored.

    existing_record_id: the record that has the key (its entry may be of the same call).
    position: which entry of the call was refused; the entries before it would have been accepted.
    """

    def __init__(self, key: bytes, existing_record_id: int, position: int) -> None:
        super().__init__(f"key {key.hex()} is held by record {existing_record_id}")
        self.key = key
        self.existing_record_id = existing_record_id
        self.position = position


class WriteConflict(StorageError):
    """A record that the caller has read was changed or deleted since then.

    The operation may be repeated after a rollback, and must then read the records again.
    """


class MustBeAlone(WriteConflict):
    """A unit of work that others are open beside changes what those may not see before it is committed. Repeated at
    once, it is alone."""


class UnitLost(WriteConflict):
    """The store has lost a unit of work with the connection to it: nothing was done, and it may be done once more."""


class StatementExecuted(StorageError):
    """Another server has executed a statement of a retryable write that the unit of work executes, too, or one with a
    higher number of the same session: nothing of the unit was done. `StoreLog.find_statements` says what the other one
    has done."""


class CatalogChanged(WriteConflict):
    """Another server has changed the catalog before this unit of work was committed: nothing was done. What the unit
    was made from may be gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClaimOwner:
    """Who has written what others want to write: a transaction, until it ends. released: whether it has ended.

    look_s: after how many seconds a write that waits for it is tried again in any case, for an engine that does not
    know whose the write is that it has met; 0.0 if only its end counts.
    """

    def __init__(self) -> None:
        self.released = False
        self.look_s = 0.0
        self._release_actions: list[Callable[[], None]] = []

    def on_release(self, action: Callable[[], None]) -> None:
        """Calls `action` when the transaction ends."""
        self._release_actions.append(action)

    def forget_action(self, action: Callable[[], None]) -> None:
        """Has `action`, which may have been called, not be called any more."""
        if action in self._release_actions:
            self._release_actions.remove(action)

    @property
    def waiting(self) -> int:
        """How many wait for the end."""
        return len(self._release_actions)

    def _run_release_actions(self) -> None:
        actions = self._release_actions
        self._release_actions = []
        for action in actions:
            action()


class ClaimedByTransaction(WriteConflict):
    """A plain write meets a record or unique key that an open transaction has written: wait until that has ended, read
    again and repeat the write. owner: the transaction."""

    def __init__(self, owner: ClaimOwner) -> None:
        super().__init__("written by a transaction that has not ended")
        self.owner = owner


class SnapshotConflict(StorageError):
    """What a transaction wants to write was written by another after its snapshot, or is claimed by another
    transaction. The transaction must be aborted; its client may begin it again."""


class SnapshotTooOld(StorageError):
    """A snapshot is read that the engine has given up, or that was closed."""


class SeveralPlaces(StorageError):
    """A transaction reaches rows at another place than those that it has reached before, or reads of one snapshot do,
    and the engine has no snapshot of both. in_transaction: which of the two."""

    def __init__(self, message: str, in_transaction: bool) -> None:
        super().__init__(message)
        self.in_transaction = in_transaction


class TransactionTooLarge(StorageError):
    """A transaction has written more than the engine keeps for one."""


class EngineUnavailable(StorageError):
    """The engine cannot carry out the call now: disk full, I/O error, damaged file, closed."""


class StoreUnreachable(EngineUnavailable):
    """The database that keeps the data does not answer now; nothing of the call was done. It may be repeated."""


class DamagedRecord(EngineUnavailable):
    """A stored record is not what was written: its checksum is wrong. Other records can be read.

    ident: of its store. reason: what is wrong with it.
    """

    def __init__(self, ident: str, record_id: int, reason: str = "its checksum is wrong") -> None:
        super().__init__(f"record {record_id} of {ident} is damaged: {reason}")
        self.ident = ident
        self.record_id = record_id
        self.reason = reason


class DiskFull(EngineUnavailable):
    """There is no room on the disk. Reads go on, deletions too if they can, and other writes when there is room
    again."""


@mypyc_attr(native_class=False)  # which an OSError cannot be
class DataDirectoryError(OSError):
    """The data directory cannot be used; the message says why and what to do. Nothing in it was changed."""
