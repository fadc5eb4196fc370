"""Cursors: what is left of a result after its first batch.

A `ClientCursor` pulls from a source of batches and hands out pages. It keeps records rather than documents while it
can, so that a document that expires between two pages is not handed out in the later one. Nothing is held open in
storage between pages: sources remember a position.
"""

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from mongottl.document.build import ArrayBuilder, ArraySize
from mongottl.document.types import RawArray
from mongottl.document.walk import first_field_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.sessions import SessionRegistry
from mongottl.exec.signal import Signal
from mongottl.storage.interface import Record

if TYPE_CHECKING:
    from mongottl.exec.context import OperationContext, Steps
    from mongottl.exec.tailing import Tail

DEFAULT_FIRST_BATCH: Final = 101
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
# What a stored document may have, and 16 KiB more for what a query adds.
MAX_RESULT_BYTES: Final = MAX_PAGE_BYTES + 16 * 1024
# Documents of a list that one call adds to a page.
_LISTED_AT_ONCE: Final = 2048


class Page:
    """One batch of a reply while it is filled: at most `wanted` documents (0: no such bound) in an array of 16 MiB.

    What stands around the array in a reply (namespace, cursor id, counters) has the 16 KiB that a reply may be larger.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.count = 0
        self._size = ArraySize()
        self._array = ArrayBuilder()
        self._closed = False

    def missing(self) -> int:
        """How many documents still fit by number; 0 for any number."""
        return self.wanted - self.count if self.wanted else 0

    def fitting(self, records: list[Record], start: int, end: int) -> int:
        """Which of records[start:end] is the first whose document no longer fits by size; `end` if all do."""
        array = self._size.copy()
        for i in range(start, end):
            size = len(records[i][1])
            if array.count > 0 and array.with_one_more(size) > MAX_PAGE_BYTES:
                return i
            array.add(size)
        return end

    def documents(self) -> RawArray:
        """The batch, for the reply. The page takes no more then."""
        return self._array.finish()

    def close(self) -> None:
        """Takes no more."""
        self._closed = True

    def is_full(self) -> bool:
        return self._closed or (self.wanted > 0 and self.count >= self.wanted)

    def add(self, document: bytes) -> bool:
        """Adds the document, or says False and is full. The first one always fits.

        BSONObjectTooLarge (10334) for one that is larger than a document may be, though stages may have passed it on.
        """
        size = len(document)
        if size > MAX_RESULT_BYTES:
            raise too_large(document)
        if self.is_full():
            return False
        if self.count > 0 and self._size.with_one_more(size) > MAX_PAGE_BYTES:
            self._closed = True
            return False
        self._array.append(document)
        self._size.add(size)
        self.count += 1
        return True


def too_large(document: bytes) -> CommandError:
    size = len(document)
    return CommandError(
        ErrorCode.BSONObjectTooLarge,
        f"BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {MAX_RESULT_BYTES}(16MB) First"
        f" element: {first_field_name(document)}",
    )


class PageSource(ABC):
    """Where a cursor's documents come from."""

    @abstractmethod
    def fill(self, op: "OperationContext", page: Page) -> bool:
        """Adds what it has to the page after a bounded amount of work; False when there is nothing left at all."""

    def close(self) -> None:  # noqa: B027  # most sources hold nothing
        """Lets go of whatever the source holds (spilled files, for example)."""


class ListPages(PageSource):
    """Documents that are all there already, as of `listIndexes`."""

    def __init__(self, documents: list[bytes]) -> None:
        self._documents = documents
        self._position = 0

    def fill(self, op: "OperationContext", page: Page) -> bool:
        end = min(self._position + _LISTED_AT_ONCE, len(self._documents))
        while self._position < end:
            if not page.add(self._documents[self._position]):
                return True
            self._position += 1
        return end < len(self._documents)


class ClientCursor:
    """An open cursor of a client.

    cursor_id: positive int64, 0 while it is not registered. session_key: the session that opened it, or None.
    in_use: a command is pulling from it right now. why_dead: what took its data away, for the next getMore to tell.
    tail: set if it is tailable. signal: ends the waiting of the getMore that awaits documents now.
    time_left_s: what its command and the getMores until now left of `maxTimeMS`, which is of all of them; -1.0 without.
    """

    def __init__(self, namespace: str, source: PageSource, session_key: bytes | None, now_s: float) -> None:
        self.cursor_id = 0
        self.namespace = namespace
        self.source = source
        self.session_key = session_key
        self.exhausted = False
        self.no_timeout = False
        self.last_used_s = now_s
        self.in_use = False
        self.killed = False
        self.why_dead = ""
        self.time_left_s = -1.0
        self.tail: Tail | None = None
        self.signal: Signal | None = None

    def check_alive(self) -> None:
        """QueryPlanKilled (175) if its collection is gone, CursorKilled (237) if somebody closed it while in use."""
        if self.why_dead:
            raise CommandError(ErrorCode.QueryPlanKilled, self.why_dead)
        if self.killed:
            raise CommandError(ErrorCode.CursorKilled, f"cursor id {self.cursor_id} was killed while in use")

    def next_page(self, op: "OperationContext", wanted: int) -> "Steps[Page]":
        """The next page: `wanted` documents (0: no such bound) or as many as fit 16 MiB, at least one."""
        page = Page(wanted)
        while True:
            if not self.source.fill(op, page):
                self.exhausted = self.tail is None or self.tail.is_dead
                return page
            if page.is_full():
                return page
            op.check_interrupt()
            yield None
            self.check_alive()

    def close(self) -> None:
        self.source.close()
        if self.signal is not None:
            self.signal.notify()


class CursorRegistry:
    """The open cursors of a server, by id.

    A cursor whose collection is gone holds nothing and does not count as open, but is remembered until its next
    getMore or its timeout, because MongoDB tells a dropped collection (175) from a cursor that it never heard of (43).
    """

    def __init__(self) -> None:
        self._cursors: dict[int, ClientCursor] = {}
        self._dead: dict[int, ClientCursor] = {}
        # Those who wait for inserts, by the number of the collection.
        self._waiting: dict[int, list[Signal]] = {}
        self.opened_total = 0
        self.timed_out_total = 0

    def __len__(self) -> int:
        return len(self._cursors)

    def register(self, cursor: ClientCursor) -> int:
        """Gives the cursor an id that cannot be guessed, and keeps it."""
        while True:
            cursor_id = int.from_bytes(os.urandom(8), "little") >> 1
            if cursor_id != 0 and self.find(cursor_id) is None:
                break
        cursor.cursor_id = cursor_id
        self._cursors[cursor_id] = cursor
        self.opened_total += 1
        return cursor_id

    def all(self) -> list[ClientCursor]:
        """Those that have something to give."""
        return list(self._cursors.values())

    def get(self, cursor_id: int) -> ClientCursor:
        """The cursor, dead or alive. CursorNotFound (43) if there is none of this id."""
        cursor = self.find(cursor_id)
        if cursor is None:
            raise CommandError(ErrorCode.CursorNotFound, f"cursor id {cursor_id} not found")
        return cursor

    def find(self, cursor_id: int) -> ClientCursor | None:
        cursor = self._cursors.get(cursor_id)
        return self._dead.get(cursor_id) if cursor is None else cursor

    def close(self, cursor: ClientCursor) -> None:
        """Forgets the cursor and lets go of what it holds."""
        self._cursors.pop(cursor.cursor_id, None)
        self._dead.pop(cursor.cursor_id, None)
        cursor.killed = True
        cursor.close()

    def add_waiting(self, number: int, signal: Signal) -> None:
        """From now on the signal is notified of inserts into the collection of this number."""
        self._waiting.setdefault(number, []).append(signal)

    def remove_waiting(self, number: int, signal: Signal) -> None:
        left = [other for other in self._waiting[number] if other is not signal]
        if left:
            self._waiting[number] = left
        else:
            del self._waiting[number]

    def notify_inserted(self, number: int) -> None:
        """Called after documents were inserted into a capped collection."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            for signal in waiting:
                signal.notify()

    def close_where_namespace(self, namespace: str, why: str = "collection dropped") -> None:
        """Takes away the data of the cursors of a collection that is going away."""
        for cursor in [c for c in self._cursors.values() if c.namespace == namespace]:
            self.close(cursor)
            cursor.why_dead = f"{why}: {namespace}"
            self._dead[cursor.cursor_id] = cursor

    def close_where_session(self, session_key: bytes) -> None:
        for cursor in [c for c in [*self._cursors.values(), *self._dead.values()] if c.session_key == session_key]:
            self.close(cursor)

    def close_idle(self, before_s: float) -> None:
        """Closes cursors last used before this instant of elapsed time, but for those with noCursorTimeout."""
        idle = [c for c in self._cursors.values() if c.last_used_s < before_s and not c.no_timeout and not c.in_use]
        for cursor in idle:
            self.close(cursor)
            self.timed_out_total += 1
        for cursor in [c for c in self._dead.values() if c.last_used_s < before_s]:
            self.close(cursor)

    def close_orphaned(self, sessions: SessionRegistry) -> None:
        """Closes cursors whose session is no longer known, those with noCursorTimeout too."""
        orphaned: list[ClientCursor] = []
        for cursor in self._cursors.values():
            if cursor.session_key is not None and not cursor.in_use and sessions.find(cursor.session_key) is None:
                orphaned.append(cursor)
        for cursor in orphaned:
            self.close(cursor)

    def close_all(self) -> None:
        for cursor in [*self._cursors.values(), *self._dead.values()]:
            self.close(cursor)
