"""Frames of `$setWindowFields`: the documents around one document that its window contains.

{documents: [-1, 1]}    by position            {range: [-10, "current"], unit: "day"}    by their `sortBy` values
"""

from bisect import bisect_right
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from mongottl.document.bson_field import read_fields
from mongottl.document.compare import compare_values
from mongottl.document.freeing import put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import whole
from mongottl.document.path import FieldPath
from mongottl.document.types import Date, Missing, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.arithmetic import Sum
from mongottl.query.expr.date.arithmetic import add_units, unit_of
from mongottl.query.expr.date.calendar import UTC
from mongottl.query.expr.numbers import fits_long, width
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import value_at
from mongottl.query.memory import OperationMemory
from mongottl.query.pipeline.partition import read_chunk, write_keyed
from mongottl.query.sort import SortPattern
from mongottl.query.spill import SpillFile, SpillSpace, SpillStatistics

_DOCUMENT_TYPE: Final = 3
_NO_END: Final = 1 << 62
# Up to this number of documents it takes as long to remove one from a sum as to add all.
_NARROW: Final = 12
PAGE: Final = 64  # maximal number of documents
PAGE_BYTES: Final = 256 << 10  # maximal size in bytes, the last document not counted
_MIN_PAGES_IN_MEMORY: Final = 16  # for the start and end of frames, and the current documents
_LEAST_PAGES_IN_MEMORY: Final = 4  # the same where all running operations hold too much
_ENTRY_BYTES: Final = 160  # approximate memory of a document besides its bytes and key


class Partition:
    """The documents of one partition, in order, with their sort keys. sort_path: of the first `sortBy` field, None
    without one.

    They are stored in pages. Beyond the memory limit the pages that have been in memory longest are written to a
    temporary file, and read again when one of their documents is needed: frames access a partition at few positions.
    """

    def __init__(
        self,
        pattern: SortPattern | None,
        memory_limit_bytes: int,
        space: SpillSpace | None,
        spilled: SpillStatistics,
        memory: OperationMemory,
    ) -> None:
        self.count = 0
        self._spilled: Final = spilled
        self._sort_path: Final[FieldPath | None] = None if pattern is None else pattern.paths[0]
        self._memory_limit_bytes: Final[i64] = memory_limit_bytes
        self._space: Final = space
        self._share: Final = memory.share()
        self._states_share: Final = memory.share()
        self._states_size: i64 = 0  # of all functions
        self._pages: list[list[tuple[bytes, bytes]] | None] = []  # None for pages that are only in the file
        self._starts: Final[list[int]] = []  # the position of each page's first document
        self._sizes: Final[list[int]] = []
        self._in_file: Final[dict[int, tuple[int, int]]] = {}  # page number to (offset, size)
        self._in_memory: Final[dict[int, bool]] = {}  # page numbers, the longest in memory first
        self._held_bytes: i64 = 0
        self._found = 0  # the page of the last access
        self._file: SpillFile | None = None

    def add(self, document: bytes, sort_key: bytes) -> None:
        """Appends a document. Error 292 beyond the memory limit, if the disk may not be used."""
        number = len(self._pages) - 1
        page = self._pages[number] if number >= 0 else None
        if page is None or len(page) >= PAGE or self._sizes[number] >= PAGE_BYTES:
            number += 1
            page = []
            self._pages.append(page)
            self._starts.append(self.count)
            self._sizes.append(0)
            self._in_memory[number] = True
            if not self._share.hold(self._held_bytes):
                self._evict(self._share.granted, _LEAST_PAGES_IN_MEMORY)
        page.append((document, sort_key))
        size = len(document) + len(sort_key) + _ENTRY_BYTES
        self._sizes[number] += size
        self._held_bytes += size
        self.count += 1
        if self._held_bytes > self._memory_limit_bytes:
            self._evict(self._memory_limit_bytes)

    def document(self, position: int) -> bytes:
        page = self._page(position)
        return page[position - self._starts[self._found]][0]

    def sort_key(self, position: int) -> bytes:
        page = self._page(position)
        return page[position - self._starts[self._found]][1]

    def sort_value(self, position: int) -> Value:
        """The value of the document's first `sortBy` field; null if it is missing."""
        path = self._sort_path
        if path is None:
            return None
        value = value_at(self.document(position), _DOCUMENT_TYPE, 0, path.part_bytes, 0)
        return None if isinstance(value, Missing) else value

    def check_gathered(self, size: int, before: int) -> None:
        """Counts the state of a function, in bytes, and what it was at the last call. 5414201 if it exceeds the memory
        limit of the partition; 146 if all running operations hold too much."""
        if size > self._memory_limit_bytes:
            raise CommandError(
                5414201,
                f"Exceeded memory limit in DocumentSourceSetWindowFields, used {size} bytes but max allowed is"
                f" {self._memory_limit_bytes}",
            )
        self._states_size += size - before
        if not self._states_share.need(self._states_size):
            raise self._states_share.memory.exceeded("$setWindowFields")

    def held_bytes(self) -> int:
        return int(self._held_bytes)

    def spill(self, space: SpillSpace) -> bool:
        """Moves a page from memory to the file; False if only the last one is in memory."""
        for number in self._in_memory:
            if number == len(self._pages) - 1:
                continue
            if number not in self._in_file:
                if self._file is None:
                    self._file = space.create()
                self._write(number)
            del self._in_memory[number]
            self._pages[number] = None
            self._held_bytes -= self._sizes[number]
            return True
        self._share.hold(self._held_bytes, True)
        return False

    def close(self) -> None:
        """Gives memory back and deletes the file. May be called more than once."""
        put_aside(self._pages)
        self._pages = []
        self._held_bytes = 0
        self._share.release()
        self._states_share.release()
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _page(self, position: int) -> list[tuple[bytes, bytes]]:
        give_way()  # in each loop over the documents of a frame
        number = self._found
        starts = self._starts
        if position < starts[number] or (number + 1 < len(starts) and position >= starts[number + 1]):
            number = bisect_right(starts, position) - 1
            self._found = number
        page = self._pages[number]
        if page is None:
            file = self._file
            if file is None:
                raise AssertionError("a page is gone, and there is no file")
            at, size = self._in_file[number]
            page = [(document, key) for key, document in read_chunk(file.read(at, size))]
            self._pages[number] = page
            self._in_memory[number] = True
            self._held_bytes += self._sizes[number]
            if not self._share.hold(self._held_bytes):
                self._evict(self._share.granted, _LEAST_PAGES_IN_MEMORY)
            self._evict(self._memory_limit_bytes)
        return page

    def _evict(self, allowed: i64, least_pages: int = _MIN_PAGES_IN_MEMORY) -> None:
        """Removes pages from memory until this number of bytes is met, except for the latest ones."""
        while self._held_bytes > allowed and len(self._in_memory) > least_pages:
            number = next(iter(self._in_memory))
            if number not in self._in_file and number < len(self._pages) - 1:
                self._write(number)
            del self._in_memory[number]
            if number not in self._in_file:
                self._in_memory[number] = True  # the last page is not full yet and stays
                continue
            self._pages[number] = None
            self._held_bytes -= self._sizes[number]
        self._share.hold(self._held_bytes, True)

    def _write(self, number: int) -> None:
        page = self._pages[number]
        file = self._file
        if page is None:
            raise AssertionError("a page is written once")
        if file is None:
            if self._space is None:
                if self._held_bytes <= self._memory_limit_bytes:
                    raise self._share.memory.exceeded(
                        "$setWindowFields", ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed
                    )
                raise CommandError(
                    ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed,
                    f"Exceeded max memory. Current memory: {self._held_bytes} bytes. Max allowed memory:"
                    f" {self._memory_limit_bytes} bytes. Set 'allowDiskUse: true' to spill to disk",
                )
            file = self._space.create()
            self._file = file
        writer = BytesWriter()
        for document, key in page:
            write_keyed(writer, key, document)
        data = writer.getvalue()
        self._in_file[number] = (file.append(data), len(data))
        self._spilled.spills += 1
        self._spilled.records += len(page)
        self._spilled.bytes += len(data)


class Frame:
    """Base of frames. slides: whether documents leave the frame as it moves. is_narrow: whether it never has many."""

    def __init__(self, slides: bool, is_narrow: bool = False) -> None:
        self.slides: Final = slides
        self.is_narrow: Final = is_narrow

    def begin(self) -> None:
        """Starts a new partition."""

    def bounds(self, partition: Partition, position: int) -> tuple[int, int]:
        """The positions of the first document in the frame and of the first one after it."""
        return 0, partition.count


class DocumentsFrame(Frame):
    """A frame by position, `{documents: [lower, upper]}`.

    lower, upper: positions relative to the document; None for no bound.
    """

    def __init__(self, lower: int | None, upper: int | None) -> None:
        super().__init__(lower is not None, lower is not None and upper is not None and upper - lower < _NARROW)
        self.lower: Final = lower
        self.upper: Final = upper

    def bounds(self, partition: Partition, position: int) -> tuple[int, int]:
        count = partition.count
        first = 0 if self.lower is None else min(max(position + self.lower, 0), count)
        end = count if self.upper is None else min(max(position + self.upper + 1, 0), count)
        return first, max(first, end)


class RangeFrame(Frame):
    """A frame by `sortBy` values, `{range: [lower, upper], unit}`.

    lower, upper: added to the `sortBy` value, None for no bound. unit: of time, "" for numbers.

    Bounds never decrease from one document to the next, so each search starts at the previous bound.
    """

    def __init__(self, lower: Value, upper: Value, unit: str) -> None:
        super().__init__(lower is not None)
        self.lower: Final = lower
        self.upper: Final = upper
        self.unit: Final = unit
        self._first = 0
        self._end = 0

    def begin(self) -> None:
        self._first = 0
        self._end = 0

    def bounds(self, partition: Partition, position: int) -> tuple[int, int]:
        base = partition.sort_value(position)
        if self.unit:
            if not isinstance(base, Date):
                raise CommandError(
                    5429513, f"Invalid range: Expected the sortBy field to be a Date, but it was {type_of(base)}"
                )
        elif width(base) == 0:
            raise CommandError(
                5429414, f"Invalid range: Expected the sortBy field to be a number, but it was {type_of(base)}"
            )
        count = partition.count
        if self.lower is not None:
            lowest = self._moved(base, self.lower)
            while self._first < count and compare_values(partition.sort_value(self._first), lowest) < 0:
                self._first += 1
        if self.upper is None:
            self._end = count
        else:
            highest = self._moved(base, self.upper)
            while self._end < count and compare_values(partition.sort_value(self._end), highest) <= 0:
                self._end += 1
        return self._first, max(self._first, self._end)

    def _moved(self, base: Value, by: Value) -> Value:
        if isinstance(base, Date):
            amount = whole(by)
            moved = add_units(base.ms, self.unit, 0 if amount is None else amount, UTC)
            if not fits_long(moved):
                raise CommandError(5166406, "date overflow in a range window")
            return Date(moved)
        total = Sum()
        total.add(base)
        total.add(by)
        return total.result()


def default_frame() -> Frame:
    return DocumentsFrame(None, None)


def parse_frame(value: Value, pattern: SortPattern | None) -> Frame:
    """`{documents: [lower, upper]}` or `{range: [lower, upper], unit}`.

    FailedToParse (9) for a bad shape; 5339900 for a lower bound above the upper one, 5339901 and 5339902 for bounds
    that need another `sortBy`, 8947401 for a range over a descending one.
    """
    if not isinstance(value, bytes):
        raise CommandError(ErrorCode.FailedToParse, "'window' field must be an object")
    parameters = read_fields("window", value)
    for name in parameters:
        if name not in ("documents", "range", "unit"):
            raise CommandError(
                ErrorCode.FailedToParse,
                f"'window' field can only contain 'documents', 'range' and 'unit', not '{name}'",
            )
    if "documents" in parameters and "range" in parameters:
        raise CommandError(ErrorCode.FailedToParse, "Window bounds can specify either 'documents' or 'unit', not both.")
    if "documents" in parameters:
        if "unit" in parameters:
            raise CommandError(ErrorCode.FailedToParse, "'unit' can only be specified with 'range' bounds")
        lower, upper = _pair("documents", parameters["documents"])
        first = _document_bound(lower)
        last = _document_bound(upper)
        if first is not None and last is not None and first > last:
            raise CommandError(5339900, "Lower bound must not exceed upper bound")
        if pattern is None and (first is not None or last is not None):
            raise CommandError(5339901, "Document-based bounds require a sortBy")
        return DocumentsFrame(first, last)
    unit = ""
    if "unit" in parameters:
        unit_name = parameters["unit"]
        if not isinstance(unit_name, str):
            raise CommandError(ErrorCode.FailedToParse, "'unit' must be a string")
        unit = unit_of("window", unit_name, ErrorCode.FailedToParse)
    if "range" not in parameters:
        if unit:
            raise CommandError(ErrorCode.FailedToParse, "'unit' can only be specified with 'range' bounds")
        return default_frame()
    lower, upper = _pair("range", parameters["range"])
    low = _range_bound(lower, unit)
    high = _range_bound(upper, unit)
    if low is not None and high is not None and compare_values(low, high) > 0:
        raise CommandError(5339900, "Lower bound must not exceed upper bound")
    if pattern is None or len(pattern.paths) != 1:
        raise CommandError(5339902, "Range-based bounds require sortBy a single field")
    if pattern.descending[0]:
        raise CommandError(8947401, "Range-based bounds require a non-descending sortBy")
    return RangeFrame(low, high, unit)


def _pair(name: str, value: Value) -> tuple[Value, Value]:
    if not isinstance(value, list) or len(value) != 2:
        raise CommandError(ErrorCode.FailedToParse, f"Window bounds must be a 2-element array: {name}")
    return value[0], value[1]


def _document_bound(value: Value) -> int | None:
    if isinstance(value, str):
        if value == "unbounded":
            return None
        if value == "current":
            return 0
    position = whole(value) if width(value) else None
    if position is None:
        raise CommandError(
            ErrorCode.FailedToParse, "Numeric document-based bounds must be an integer, 'unbounded' or 'current'"
        )
    return max(-_NO_END, min(_NO_END, position))


def _range_bound(value: Value, unit: str) -> Value:
    if isinstance(value, str):
        if value == "unbounded":
            return None
        if value == "current":
            return 0
    if width(value) == 0:
        raise CommandError(
            ErrorCode.FailedToParse, "Range-based bounds expression must be a number, 'unbounded' or 'current'"
        )
    if unit and whole(value) is None:
        raise CommandError(ErrorCode.FailedToParse, "With 'unit', range-based bounds must be an integer")
    return value
