"""Cursors: they return a result in batches, by find or aggregate and then by getMore.

A `ClientCursor` fills pages, the batches of replies, from a `PageSource`. Sources buffer records rather than documents
if possible, so that a document that expires between two pages is not returned. Nothing is open in storage between
pages: sources remember a position.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.dialect import Dialect
from mongottl.document.build import ArrayBuilder, ArraySize
from mongottl.document.types import ARRAY, DOCUMENT, INT64, MAX_DOCUMENT_BYTES, RawArray
from mongottl.document.walk import count_fields, decode_value, find_field, find_field_at, first_field_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.pace import MAX_STEP_RECORDS
from mongottl.exec.sessions.cursor_registry import OpenCursor
from mongottl.exec.stages.tailable_scan import TailableScan
from mongottl.exec.write.waiting import await_transaction
from mongottl.query.spill import SpillSpace
from mongottl.storage.errors import ClaimedByTransaction
from mongottl.storage.stores import Record

DEFAULT_FIRST_BATCH: Final = 101
MAX_PAGE_BYTES: Final = MAX_DOCUMENT_BYTES
# The maximum size of a stored document, and 16 KiB for fields that a query adds.
_ADDED_BYTES: Final = 16 * 1024
MAX_RESULT_BYTES: Final = MAX_PAGE_BYTES + _ADDED_BYTES
# Approximate memory of an idle cursor besides what it reads: its plan, stages and counters; and of each byte of its
# request, since filters are kept as trees.
CURSOR_BYTES: Final = 8 * 1024
REQUEST_FACTOR: Final = 8
# Documents of a list that one call adds to a page.
_LISTED_AT_ONCE: Final = 2048


class Page:
    """The batch of a reply while it is filled: at most `wanted` documents (0: any number) in an array of `max_bytes`.

    A reply may be 16 KiB larger than the array, for its other fields (namespace, cursor id). dialect: may
    have smaller replies, and an advice about it; None for MongoDB's.
    """

    def __init__(self, wanted: int, max_bytes: int = MAX_PAGE_BYTES, dialect: Dialect | None = None) -> None:
        self.wanted = wanted
        self._max_bytes = max_bytes
        self._dialect = dialect
        self.count = 0
        self._size = ArraySize()
        self._array = ArrayBuilder()
        self._closed = False

    def missing(self) -> int:
        """How many more documents the page needs; 0 for any number."""
        return self.wanted - self.count if self.wanted else 0

    def fitting(self, records: list[Record], start: int, end: int) -> int:
        """The index of the first of records[start:end] whose document does not fit by size; `end` if all fit."""
        array = self._size.copy()
        for i in range(start, end):
            size = len(records[i][1])
            if array.count > 0 and array.with_one_more(size) > self._max_bytes:
                return i
            array.add(size)
        return end

    def documents(self) -> RawArray:
        """The array for the reply. No documents may be added afterwards."""
        return self._array.finish()

    def close(self) -> None:
        """Makes the page full."""
        self._closed = True

    def is_full(self) -> bool:
        return self._closed or (self.wanted > 0 and self.count >= self.wanted)

    def add(self, document: bytes) -> bool:
        """Adds the document; False if it does not fit, and then the page is full. The first one always fits.

        BSONObjectTooLarge (10334) for one that is larger than a page by more than 16 KiB, which stages may have built.
        """
        size = len(document)
        if size > self._max_bytes + _ADDED_BYTES:
            dialect = self._dialect
            raise too_large(
                document, dialect.large_reply_advice() if dialect is not None and size <= MAX_RESULT_BYTES else ""
            )
        if self.is_full():
            return False
        if self.count > 0 and self._size.with_one_more(size) > self._max_bytes:
            self._closed = True
            return False
        self._array.append(document)
        self._size.add(size)
        self.count += 1
        return True


class ReplyCursor(NamedTuple):
    """identifier: 0 for a cursor that has come to its end. returned: how many documents the batch has; None without."""

    identifier: int
    returned: int | None


def cursor_of(reply: bytes) -> ReplyCursor | None:
    """What a reply says of its cursor, if it has one. Its documents are counted where they are: a batch of 16 MB takes
    longer to decode than to make."""
    kind, cursor = find_field(reply, b"cursor")
    if kind != DOCUMENT:
        return None
    kind, place = find_field_at(reply, cursor, b"id")
    identifier = decode_value(reply, kind, place) if kind == INT64 else 0
    assert isinstance(identifier, int)
    for name in (b"firstBatch", b"nextBatch"):
        kind, batch = find_field_at(reply, cursor, name)
        if kind == ARRAY:
            return ReplyCursor(int(identifier), int(count_fields(reply, batch)))
    return ReplyCursor(int(identifier), None)


def too_large(document: bytes, advice: str = "") -> CommandError:
    size = len(document)
    return CommandError(
        ErrorCode.BSONObjectTooLarge,
        f"BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {MAX_RESULT_BYTES}(16MB) First"
        f" element: {first_field_name(document)}",
        advice=advice,
    )


class PageSource(ABC):
    """Where a cursor's documents come from."""

    @abstractmethod
    def fill(self, op: OperationContext, page: Page) -> bool:
        """Adds documents to the page by a bounded amount of work; False at the end of the result."""

    def held_bytes(self) -> int:
        """Approximate bytes of documents and states in memory between two pages."""
        return 0

    def spill(self, space: SpillSpace) -> bool:
        """Moves some of them to temporary files, a few milliseconds' work; False if none can be moved."""
        return False

    def close(self) -> None:  # noqa: B027  # most sources hold nothing
        """Releases what the source holds (spilled files, for example)."""


class ListPages(PageSource):
    """A list of documents, as of `listIndexes`."""

    def __init__(self, documents: list[bytes]) -> None:
        self._documents = documents
        self._position = 0
        self._held_bytes = sum(map(len, documents))

    def held_bytes(self) -> int:
        return self._held_bytes

    def fill(self, op: OperationContext, page: Page) -> bool:
        end = min(self._position + _LISTED_AT_ONCE, len(self._documents))
        while self._position < end:
            if not page.add(self._documents[self._position]):
                return True
            self._position += 1
        return end < len(self._documents)


class Tail(ABC):
    """The state of a tailable cursor. source: of new data, as in `CursorRegistry.add_waiting`.

    await_data: whether getMore waits for it. reads_changes: whether it is of a change stream.
    """

    def __init__(self, source: int | str, await_data: bool, reads_changes: bool = False) -> None:
        self.source = source
        self.await_data = await_data
        self.reads_changes = reads_changes

    @property
    @abstractmethod
    def is_dead(self) -> bool:
        """Whether nothing can follow, so that the cursor is closed."""

    def must_look(self, op: OperationContext) -> bool:
        """Whether there may be new data for which nobody has woken a getMore that has waited in vain."""
        return False

    def waited(self, op: OperationContext) -> None:  # noqa: B027  # most tails have no position that grows old
        """Called when the source had no new data while a getMore waited."""

    def resume_token(self) -> bytes:
        """A change stream's resume token after what it has given; b"" for other cursors."""
        return b""


class CollectionTail(Tail):
    """The state of a tailable cursor of a capped collection."""

    def __init__(self, collection: Collection, scan: TailableScan, await_data: bool) -> None:
        super().__init__(collection.number, await_data)
        self._scan = scan

    @property
    def is_dead(self) -> bool:
        """Whether the scan has read no record that is not expired: the cursor then has no position."""
        return not self._scan.started


class ClientCursor(OpenCursor):
    """An open cursor and what it reads. tail: set if it is tailable. request_bytes: the length of the command that
    opened it."""

    def __init__(self, namespace: str, source: PageSource, session_key: bytes | None, now_s: float) -> None:
        super().__init__(namespace, session_key, now_s)
        self.source = source
        self.exhausted = False
        self.tail: Tail | None = None
        self.request_bytes = 0
        # What the latest operation on it has found for its steps (`Pace.step_records`).
        self.step_records = MAX_STEP_RECORDS

    @property
    def tailable(self) -> bool:
        return self.tail is not None

    @property
    def await_data(self) -> bool:
        return self.tail is not None and self.tail.await_data

    def next_page(self, op: OperationContext, wanted: int) -> Page:
        """The next page: `wanted` documents (0: any number), or as many as fit into 16 MiB, at least one."""
        page = Page(wanted, op.service.bounds.max_page_bytes, op.service.dialect)
        op.pace.step_records = min(op.pace.step_records, self.step_records)
        while True:
            conflict: ClaimedByTransaction | None = None
            more = True
            try:
                # An evaluation that is left ends where the cursor was closed meanwhile, with all that it reads.
                more = op.compute(partial(self.source.fill, op, page), self.check_alive)
            except ClaimedByTransaction as raised:  # `$merge` and `$out` go on where they were
                conflict = raised
            if conflict is not None:
                await_transaction(op, conflict)
                continue
            if not more:
                self.exhausted = self.tail is None or self.tail.is_dead
                return page
            if page.is_full():
                self.step_records = op.pace.step_records
                return page
            op.check_interrupt()
            op.give_way()
            self.check_alive()

    def held_bytes(self) -> int:
        return CURSOR_BYTES + REQUEST_FACTOR * self.request_bytes + self.source.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self.source.spill(space)

    def close(self) -> None:
        self.source.close()
        if self.space is not None:
            self.space.close()
            self.space = None
        if self.signal is not None:
            self.signal.notify()
