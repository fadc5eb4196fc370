"""Frames of `$setWindowFields`: which documents around one document its window spans.

{documents: [-1, 1]}    by their places        {range: [-10, "current"], unit: "day"}    by their `sortBy` values
"""

from typing import Final

from mongottl.document.compare import compare_values
from mongottl.document.path import FieldPath
from mongottl.document.types import Date, Missing, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.arithmetic import Sum
from mongottl.query.expr.calendar import UTC
from mongottl.query.expr.datemath import add_units, unit_of
from mongottl.query.expr.numbers import fits_long, whole, width
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import value_at
from mongottl.query.pipeline.join import read_fields
from mongottl.query.sort import SortPattern

_DOCUMENT_TYPE: Final = 3
_NO_END: Final = 1 << 62


class Partition:
    """The documents of one partition, in order. sort_path: of the first `sortBy` field, None without one."""

    def __init__(self, pattern: SortPattern | None) -> None:
        self.documents: Final[list[bytes]] = []
        self.sort_keys: Final[list[bytes]] = []
        self._sort_values: Final[list[Value]] = []
        self._sort_path: Final[FieldPath | None] = None if pattern is None else pattern.paths[0]

    def add(self, document: bytes, sort_key: bytes) -> None:
        self.documents.append(document)
        self.sort_keys.append(sort_key)

    def sort_value(self, place: int) -> Value:
        """The value of the first `sortBy` field; null if it has none."""
        path = self._sort_path
        values = self._sort_values
        while len(values) <= place:
            value: Value = None
            if path is not None:
                value = value_at(self.documents[len(values)], _DOCUMENT_TYPE, 0, path.part_bytes, 0)
            values.append(None if isinstance(value, Missing) else value)
        return values[place]


class Frame:
    """Base of frames. slides: whether it leaves documents behind as it goes on."""

    def __init__(self, slides: bool) -> None:
        self.slides: Final = slides

    def begin(self) -> None:
        """A new partition."""

    def bounds(self, partition: Partition, place: int) -> tuple[int, int]:
        """The places of the first document in the frame and of the first behind it."""
        return 0, len(partition.documents)


class DocumentsFrame(Frame):
    """lower, upper: places relative to the document; None for no bound."""

    def __init__(self, lower: int | None, upper: int | None) -> None:
        super().__init__(lower is not None)
        self.lower: Final = lower
        self.upper: Final = upper

    def bounds(self, partition: Partition, place: int) -> tuple[int, int]:
        count = len(partition.documents)
        first = 0 if self.lower is None else min(max(place + self.lower, 0), count)
        behind = count if self.upper is None else min(max(place + self.upper + 1, 0), count)
        return first, max(first, behind)


class RangeFrame(Frame):
    """lower, upper: what is added to the `sortBy` value, None for no bound. unit: of time, "" for numbers.

    Bounds never go back while the document goes on, so each is looked for from where it was.
    """

    def __init__(self, lower: Value, upper: Value, unit: str) -> None:
        super().__init__(lower is not None)
        self.lower: Final = lower
        self.upper: Final = upper
        self.unit: Final = unit
        self._first = 0
        self._behind = 0

    def begin(self) -> None:
        self._first = 0
        self._behind = 0

    def bounds(self, partition: Partition, place: int) -> tuple[int, int]:
        base = partition.sort_value(place)
        if self.unit:
            if not isinstance(base, Date):
                raise CommandError(
                    5429513, f"Invalid range: Expected the sortBy field to be a Date, but it was {type_of(base)}"
                )
        elif width(base) == 0:
            raise CommandError(
                5429414, f"Invalid range: Expected the sortBy field to be a number, but it was {type_of(base)}"
            )
        count = len(partition.documents)
        if self.lower is not None:
            lowest = self._moved(base, self.lower)
            while self._first < count and compare_values(partition.sort_value(self._first), lowest) < 0:
                self._first += 1
        if self.upper is None:
            self._behind = count
        else:
            highest = self._moved(base, self.upper)
            while self._behind < count and compare_values(partition.sort_value(self._behind), highest) <= 0:
                self._behind += 1
        return self._first, max(self._first, self._behind)

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

    FailedToParse (9) for a bad shape; 5339900 for bounds the wrong way round, 5339901 and 5339902 for those that need
    another `sortBy`, 8947401 for a range over a descending one.
    """
    if not isinstance(value, bytes):
        raise CommandError(ErrorCode.FailedToParse, "'window' field must be an object")
    written = read_fields("window", value)
    for name in written:
        if name not in ("documents", "range", "unit"):
            raise CommandError(
                ErrorCode.FailedToParse,
                f"'window' field can only contain 'documents', 'range' and 'unit', not '{name}'",
            )
    if "documents" in written and "range" in written:
        raise CommandError(ErrorCode.FailedToParse, "Window bounds can specify either 'documents' or 'unit', not both.")
    if "documents" in written:
        if "unit" in written:
            raise CommandError(ErrorCode.FailedToParse, "'unit' can only be specified with 'range' bounds")
        lower, upper = _pair("documents", written["documents"])
        first = _document_bound(lower)
        last = _document_bound(upper)
        if first is not None and last is not None and first > last:
            raise CommandError(5339900, "Lower bound must not exceed upper bound")
        if pattern is None and (first is not None or last is not None):
            raise CommandError(5339901, "Document-based bounds require a sortBy")
        return DocumentsFrame(first, last)
    unit = ""
    if "unit" in written:
        given = written["unit"]
        if not isinstance(given, str):
            raise CommandError(ErrorCode.FailedToParse, "'unit' must be a string")
        unit = unit_of("window", given, ErrorCode.FailedToParse)
    if "range" not in written:
        if unit:
            raise CommandError(ErrorCode.FailedToParse, "'unit' can only be specified with 'range' bounds")
        return default_frame()
    lower, upper = _pair("range", written["range"])
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
    place = whole(value) if width(value) else None
    if place is None:
        raise CommandError(
            ErrorCode.FailedToParse, "Numeric document-based bounds must be an integer, 'unbounded' or 'current'"
        )
    return max(-_NO_END, min(_NO_END, place))


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
