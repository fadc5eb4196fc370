"""The open cursors of a server. What they read is implemented in `results.cursors`."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.running.operation_scripts import OperationScripts
from mongottl.exec.running.signal import Signal
from mongottl.exec.sessions.sessions import SessionRegistry
from mongottl.exec.sessions.snapshots import KeptSnapshot
from mongottl.exec.sessions.transactions import Transaction
from mongottl.exec.state.query_stats import RunningQuery
from mongottl.exec.state.temporary_files import CursorSpace, OperationFiles
from mongottl.query.memory import OperationMemory
from mongottl.query.spill import SpillSpace
from mongottl.security.names import UserName
from mongottl.security.privileges import Need


class OpenCursor(ABC):
    """An open cursor of a client, as the registry and `$currentOp` use it.

    cursor_id: positive int64, 0 while it is not registered. session_key: the session that opened it, or None.
    last_used_s: monotonic time. in_use: whether a command is pulling from it now.
    why_dead: the message of the next getMore's error if what it reads is gone, else empty; dead_code: its code.
    killed: it was closed.
    outlives_collection: whether it is a change stream, which has an event for the drop of its collection.
    signal: wakes the getMore that waits for documents now, or None.
    comment: of the command that opened it, which a getMore without one inherits.
    owner: the user who opened it, or None. needs: what each getMore must be allowed, as its command was.
    transaction: the transaction whose statement opened it, or None. kept_snapshot: what it reads with read
    concern `snapshot`.
    scripts: the scripts that it evaluates, or None. plans: what it reads from (`OperationContext.plans`).
    memory, files: of the operation that opened it, with which its getMores go on; files is None without any.
    running_query: its entry for `$queryStats`, or None.
    time_left_s: the rest of `maxTimeMS`, which its command and all getMores share; -1.0 without a limit.
    """

    def __init__(self, namespace: str, session_key: bytes | None, now_s: float) -> None:
        self.cursor_id = 0
        self.namespace = namespace
        self.session_key = session_key
        self.no_timeout = False
        self.last_used_s = now_s
        self.in_use = False
        self.killed = False
        self.why_dead = ""
        self.dead_code: int = ErrorCode.QueryPlanKilled
        self.outlives_collection = False
        self.time_left_s = -1.0
        self.signal: Signal | None = None
        self.owner: UserName | None = None
        self.comment: Value = None
        self.needs: list[Need] = []
        self.transaction: Transaction | None = None
        self.kept_snapshot: KeptSnapshot | None = None
        self.scripts: OperationScripts | None = None
        self.memory: OperationMemory | None = None
        self.plans: list[object] = []
        self.running_query: RunningQuery | None = None
        # What the registry counts for it: memory, and bytes in files, those of `files`, to which its operation has
        # written, and that of `space`, to which data was moved.
        self.counted_bytes = 0
        self.counted_file_bytes = 0
        self.files: OperationFiles | None = None
        self.space: CursorSpace | None = None

    @property
    @abstractmethod
    def tailable(self) -> bool:
        """Whether it stays open at the end of the data and later returns documents inserted after it."""
        raise NotImplementedError

    @property
    @abstractmethod
    def await_data(self) -> bool:
        """Whether a getMore at the end of the data waits for more."""
        raise NotImplementedError

    def check_alive(self) -> None:
        """QueryPlanKilled (175) if its collection is gone, CursorKilled (237) if it was closed while in use.

        ChangeStreamHistoryLost (286) for a change stream that ended because a saved state was restored."""
        if self.why_dead:
            raise CommandError(self.dead_code, self.why_dead)
        if self.killed:
            raise CommandError(ErrorCode.CursorKilled, f"cursor id {self.cursor_id} was killed while in use")

    @abstractmethod
    def held_bytes(self) -> int:
        """The approximate memory that the cursor takes while it is idle."""
        raise NotImplementedError

    @abstractmethod
    def spill(self, space: SpillSpace) -> bool:
        """Moves some of what it holds to temporary files, a few milliseconds' work; False if nothing can be moved."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Releases what the cursor holds, and wakes a getMore that waits."""
        raise NotImplementedError


K = TypeVar("K")

# Cursors that are closed in one go where there may be very many.
CLOSED_AT_ONCE: Final = 256
# Idle cursors that hold less than this are not worth a file.
MIN_SPILLED_BYTES: Final = 256 << 10
# How much the files of all cursors may have, in multiples of the memory that they may hold.
FILE_FACTOR: Final = 8


class _Share:
    """The cursors of one user, those used longest ago first. large: those whose data may be moved to a file."""

    def __init__(self) -> None:
        self.counted_bytes = 0
        self.counted_file_bytes = 0
        self.cursors: dict[int, OpenCursor] = {}
        self.large: dict[int, OpenCursor] = {}


class CursorRegistry:
    """The open cursors of a server, by id.

    Together they may hold `budget_bytes` of memory, and FILE_FACTOR times as much in files; `results.cursor_memory`
    makes room.

    A cursor whose collection is gone holds no data and does not count as open, but is kept until its next getMore or
    its timeout, because MongoDB answers QueryPlanKilled (175) for it, not CursorNotFound (43).
    """

    def __init__(self, unknown: str = "cursor id {id} not found", budget_bytes: int = 1 << 62) -> None:
        self.budget_bytes = budget_bytes
        self.counted_bytes = 0
        self.counted_file_bytes = 0
        # Cursors that were closed to make room.
        self.ended_total = 0
        self._shares: dict[UserName | None, _Share] = {}
        # Message of CursorNotFound, with `{id}`.
        self._unknown = unknown
        self._cursors: dict[int, OpenCursor] = {}
        self._dead: dict[int, OpenCursor] = {}
        # The open ones by what may close them.
        self._by_namespace: dict[str, dict[int, OpenCursor]] = {}
        self._by_session: dict[bytes, dict[int, OpenCursor]] = {}
        self._in_transactions: dict[int, OpenCursor] = {}
        self._dead_by_session: dict[bytes, dict[int, OpenCursor]] = {}
        self._dead_in_transactions: dict[int, OpenCursor] = {}
        # Signals of getMores that wait, by the number of a collection or, of change streams, by what they watch.
        self._waiting: dict[int | str, list[Signal]] = {}
        # Called when a getMore begins to wait.
        self.on_waiting: Callable[[], None] | None = None
        self.opened_total = 0
        self.timed_out_total = 0

    def __len__(self) -> int:
        return len(self._cursors)

    def register(self, cursor: OpenCursor) -> int:
        """Registers a cursor; its new id, which cannot be guessed."""
        while True:
            cursor_id = int.from_bytes(os.urandom(8), "little") >> 1
            if cursor_id != 0 and self.find(cursor_id) is None:
                break
        cursor.cursor_id = cursor_id
        self._cursors[cursor_id] = cursor
        self._by_namespace.setdefault(cursor.namespace, {})[cursor_id] = cursor
        if cursor.session_key is not None:
            self._by_session.setdefault(cursor.session_key, {})[cursor_id] = cursor
        if cursor.transaction is not None:
            self._in_transactions[cursor_id] = cursor
        self.opened_total += 1
        self.count(cursor)
        return cursor_id

    def count(self, cursor: OpenCursor) -> None:
        """Counts what an open cursor holds now, as the one that was used last."""
        if cursor.cursor_id not in self._cursors:
            return
        share = self._shares.get(cursor.owner)
        if share is None:
            share = _Share()
            self._shares[cursor.owner] = share
        self._recount(share, cursor)
        share.cursors.pop(cursor.cursor_id, None)
        share.cursors[cursor.cursor_id] = cursor
        share.large.pop(cursor.cursor_id, None)
        if cursor.counted_bytes >= MIN_SPILLED_BYTES:
            share.large[cursor.cursor_id] = cursor

    def recount(self, cursor: OpenCursor) -> None:
        """Counts what an idle cursor holds now that some of it was moved."""
        if cursor.cursor_id in self._cursors:
            self._recount(self._shares[cursor.owner], cursor)

    def _recount(self, share: _Share, cursor: OpenCursor) -> None:
        held = cursor.held_bytes()
        in_file = 0 if cursor.space is None else cursor.space.size_bytes
        if cursor.files is not None:
            in_file += cursor.files.size_bytes
        self._add(share, cursor, held - cursor.counted_bytes, in_file - cursor.counted_file_bytes)

    def _add(self, share: _Share, cursor: OpenCursor, held: int, in_file: int) -> None:
        cursor.counted_bytes += held
        share.counted_bytes += held
        self.counted_bytes += held
        cursor.counted_file_bytes += in_file
        share.counted_file_bytes += in_file
        self.counted_file_bytes += in_file

    def _forget(self, cursor: OpenCursor) -> None:
        """Removes an open cursor from all but `_cursors`."""
        _remove(self._by_namespace, cursor.namespace, cursor.cursor_id)
        if cursor.session_key is not None:
            _remove(self._by_session, cursor.session_key, cursor.cursor_id)
        self._in_transactions.pop(cursor.cursor_id, None)
        share = self._shares[cursor.owner]
        self._add(share, cursor, -cursor.counted_bytes, -cursor.counted_file_bytes)
        share.cursors.pop(cursor.cursor_id, None)
        share.large.pop(cursor.cursor_id, None)
        if not share.cursors:
            del self._shares[cursor.owner]

    @property
    def exceeds_memory(self) -> bool:
        return self.counted_bytes > self.budget_bytes

    @property
    def exceeds_files(self) -> bool:
        return self.counted_file_bytes > FILE_FACTOR * self.budget_bytes

    def next_to_spill(self) -> OpenCursor | None:
        """The cursor whose data is to be moved to a file: of the user whose cursors hold most, the large one that was
        used longest ago. It is not returned again before its next use. None if there is none."""
        for share in sorted(self._shares.values(), key=_memory_of, reverse=True):
            for cursor in share.large.values():
                if not cursor.in_use:
                    del share.large[cursor.cursor_id]
                    return cursor
        return None

    def next_to_end(self) -> OpenCursor | None:
        """The cursor to close if room is needed: of the user whose cursors hold most, the one that was used longest
        ago. None if all are in use."""
        order = _memory_of if self.exceeds_memory else _files_of
        for share in sorted(self._shares.values(), key=order, reverse=True):
            for cursor in share.cursors.values():
                if not cursor.in_use and (self.exceeds_memory or cursor.counted_file_bytes):
                    return cursor
        return None

    def next_to_close_files(self) -> OpenCursor | None:
        """The cursor to close if files are needed for others: of the user who has most in files, the one that was used
        longest ago. None if all are in use."""
        for share in sorted(self._shares.values(), key=_files_of, reverse=True):
            for cursor in share.cursors.values():
                if not cursor.in_use and cursor.counted_file_bytes:
                    return cursor
        return None

    def all(self) -> list[OpenCursor]:
        """All open cursors, without those whose collection is gone."""
        return list(self._cursors.values())

    def get(self, cursor_id: int) -> OpenCursor:
        """The cursor, even if its collection is gone. CursorNotFound (43) if there is none of this id."""
        cursor = self.find(cursor_id)
        if cursor is None:
            raise CommandError(ErrorCode.CursorNotFound, self._unknown.format(id=cursor_id))
        return cursor

    def find(self, cursor_id: int) -> OpenCursor | None:
        cursor = self._cursors.get(cursor_id)
        return self._dead.get(cursor_id) if cursor is None else cursor

    def close(self, cursor: OpenCursor) -> None:
        """Removes the cursor and releases what it holds."""
        if self._cursors.pop(cursor.cursor_id, None) is not None:
            self._forget(cursor)
        elif self._dead.pop(cursor.cursor_id, None) is not None:
            if cursor.session_key is not None:
                _remove(self._dead_by_session, cursor.session_key, cursor.cursor_id)
            self._dead_in_transactions.pop(cursor.cursor_id, None)
        query = cursor.running_query
        if query is not None and not query.in_reply:
            query.end()
            cursor.running_query = None
        cursor.killed = True
        cursor.close()

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def add_waiting(self, source: int | str, signal: Signal) -> None:
        """Makes new data of a source notify the signal. source: the number of a capped collection, or what a change
        stream watches (`OplogEntry.watched_as`)."""
        self._waiting.setdefault(source, []).append(signal)
        if self.on_waiting is not None:
            self.on_waiting()

    def remove_waiting(self, source: int | str, signal: Signal) -> None:
        left = [other for other in self._waiting[source] if other is not signal]
        if left:
            self._waiting[source] = left
        else:
            del self._waiting[source]

    def notify_all(self) -> None:
        """Has all that wait look whether there is something new."""
        for signals in self._waiting.values():
            for signal in signals:
                signal.notify()

    def notify_inserted(self, source: int | str) -> None:
        """Called after documents were inserted into a capped collection, or what streams watch was changed."""
        waiting = self._waiting.get(source)
        if waiting is not None:
            for signal in waiting:
                signal.notify()

    def close_where_namespace(self, namespace: str, why: str = "collection dropped") -> None:
        """Closes the cursors of a collection that is dropped or renamed. why: for the error of their next getMore."""
        for cursor in [c for c in self._by_namespace.get(namespace, {}).values() if not c.outlives_collection]:
            self.close(cursor)
            self._keep_dead(cursor, f"{why}: {namespace}")

    def end_all(self, why: str) -> None:
        """Closes all cursors because a saved state is restored. why: for the error of their next getMore."""
        for cursor in list(self._cursors.values()):
            self.close(cursor)
            if cursor.outlives_collection:
                cursor.dead_code = ErrorCode.ChangeStreamHistoryLost
            self._keep_dead(cursor, why)

    def _keep_dead(self, cursor: OpenCursor, why: str) -> None:
        """Keeps a closed cursor for the error of its next getMore, until it would have been closed anyway."""
        cursor.why_dead = why
        self._dead[cursor.cursor_id] = cursor
        if cursor.session_key is not None:
            self._dead_by_session.setdefault(cursor.session_key, {})[cursor.cursor_id] = cursor
        if cursor.transaction is not None:
            self._dead_in_transactions[cursor.cursor_id] = cursor

    def close_where_session(self, session_key: bytes) -> None:
        dead = self._dead_by_session.get(session_key, {}).values()
        for cursor in [*self._by_session.get(session_key, {}).values(), *dead]:
            self.close(cursor)

    def close_where_transaction(self, transaction: Transaction) -> None:
        """Closes the cursors that a transaction has opened."""
        for cursors in (self._in_transactions, self._dead_in_transactions):
            for cursor in [c for c in cursors.values() if c.transaction is transaction]:
                self.close(cursor)

    def close_idle(self, before_s: float) -> bool:
        """Closes cursors last used before this monotonic time, except those with noCursorTimeout, at most
        CLOSED_AT_ONCE; whether there are more."""
        idle = [c for c in self._cursors.values() if c.last_used_s < before_s and not c.no_timeout and not c.in_use]
        dead = [c for c in self._dead.values() if c.last_used_s < before_s]
        for cursor in idle[:CLOSED_AT_ONCE]:
            self.close(cursor)
            self.timed_out_total += 1
        for cursor in dead[:CLOSED_AT_ONCE]:
            self.close(cursor)
        return max(len(idle), len(dead)) > CLOSED_AT_ONCE

    def close_orphaned(self, sessions: SessionRegistry) -> bool:
        """Closes cursors whose session has ended, also those with noCursorTimeout, at most CLOSED_AT_ONCE; whether
        there are more."""
        orphaned: list[OpenCursor] = []
        for cursor in self._cursors.values():
            if cursor.session_key is not None and not cursor.in_use and not sessions.is_active(cursor.session_key):
                orphaned.append(cursor)
        for cursor in orphaned[:CLOSED_AT_ONCE]:
            self.close(cursor)
        return len(orphaned) > CLOSED_AT_ONCE

    def close_all(self) -> None:
        for cursor in [*self._cursors.values(), *self._dead.values()]:
            self.close(cursor)


def _remove(index: dict[K, dict[int, OpenCursor]], key: K, cursor_id: int) -> None:
    cursors = index[key]
    del cursors[cursor_id]
    if not cursors:
        del index[key]


def _memory_of(share: _Share) -> int:
    return share.counted_bytes


def _files_of(share: _Share) -> int:
    return share.counted_file_bytes
