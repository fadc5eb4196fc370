"""Reading the keys of an index within ranges: the position of a scan, and skipping keys outside trailing bounds."""

from typing import Final

from mongottl.document.keystring import HIGHEST_KEY, LOWEST_KEY
from mongottl.exec.plan.bounds import IndexBounds
from mongottl.exec.stages.key_skipper import KeySkipper
from mongottl.storage.stores import KeyEntry, KeyRange, SortedDataInterface

# Keys that a scan with bounds of trailing components reads at once, at first and at most.
FIRST_CHUNK: Final = 4
LARGEST_CHUNK: Final = 256


class RangePosition:
    """The position of a scan in ranges of keys, which it visits in its direction.

    ranges: in the order of the scan. index: of the current range; after the last one at the end. after: the last entry
    that was read in the range, None at its beginning. bound: where the rest of the range begins after a seek; for
    backward scans where it ends, exclusive; None without a seek.
    """

    def __init__(self, ranges: list[KeyRange], forward: bool) -> None:
        self.ranges = ranges if forward else [key_range.reversed() for key_range in reversed(ranges)]
        self.forward = forward
        self.index = 0
        self.after: KeyEntry | None = None
        self.bound: bytes | None = None

    def copy(self) -> "RangePosition":
        copied = RangePosition(self.ranges, True)
        copied.forward = self.forward
        copied.index = self.index
        copied.after = self.after
        copied.bound = self.bound
        return copied

    def move_to(self, other: "RangePosition") -> None:
        """Takes over another position in the same ranges."""
        self.index = other.index
        self.after = other.after
        self.bound = other.bound

    def is_at_end(self) -> bool:
        return self.index >= len(self.ranges)

    def rest(self) -> KeyRange:
        """The rest of the current range."""
        whole = self.ranges[self.index]
        bound = self.bound
        if bound is None:
            return whole
        return KeyRange(bound, whole.high) if self.forward else KeyRange(whole.low, bound, False)

    def to_next_range(self) -> None:
        self.index += 1
        self.after = None
        self.bound = None

    def seek(self, bound: bytes) -> None:
        """Moves on to `bound`; to the next range if it lies after the current one."""
        whole = self.ranges[self.index]
        if bound >= whole.high if self.forward else bound <= whole.low:
            self.to_next_range()
        else:
            self.after = None
            self.bound = bound

    def key(self) -> KeyEntry:
        """The key and record id after which the scan continues; at the beginning of a range not those of an entry."""
        if self.after is not None:
            return self.after
        if self.index < len(self.ranges):
            rest = self.rest()
            return (rest.low if self.forward else rest.high), 0
        if not self.ranges:
            return (HIGHEST_KEY if self.forward else LOWEST_KEY), 0
        last = self.ranges[-1]
        return (last.high if self.forward else last.low), 0

    def begin_behind(self, position: KeyEntry) -> None:
        """Begins after the position (`key`) of another scan of the index."""
        key = position[0]
        ranges = self.ranges
        i = 0
        while i < len(ranges) and (ranges[i].high <= key if self.forward else ranges[i].low > key):
            i += 1
        self.index = i
        self.bound = None
        within = i < len(ranges) and (ranges[i].low <= key if self.forward else ranges[i].high > key)
        self.after = position if within else None


class KeyRangeReader:
    """Reads entries within the bounds of an index, without their records.

    With trailing bounds it reads entries in chunks. If the next key that may match lies after the chunk, it seeks
    there. The more keys of a chunk had to be examined, the larger is the next chunk, so that short distances are read
    through rather than skipped by seeks. Once the index has new array paths, all entries of the ranges are returned: a
    key outside the trailing bounds may then belong to a document that matches by its other keys.
    examined: entries that were read. out_of_bounds: how many of them were not returned.
    """

    def __init__(self, bounds: IndexBounds, position: RangePosition) -> None:
        self._bounds = bounds
        self._position = position
        self._skipper: KeySkipper | None = KeySkipper(bounds, position.forward) if bounds.trailing else None
        self._chunk = FIRST_CHUNK
        self.examined = 0
        self.out_of_bounds = 0
        self.seeks = 0

    def read(self, data: SortedDataInterface, limit: int, max_bytes: int) -> list[KeyEntry]:
        """The next entries within the bounds, up to `limit`, and moves the position after them.

        Reads one part of one range, which may have none. max_bytes: of keys; the last one may exceed it.
        """
        skipper = self._skipper
        position = self._position
        if skipper is not None:
            return self._read_chunk(skipper, data, limit, max_bytes)
        entries, more = data.scan(position.rest(), position.after, limit, max_bytes)
        self.seeks += 1
        self.examined += len(entries)
        if more:
            position.after = entries[-1]
        else:
            position.to_next_range()
        return entries

    def _read_chunk(self, skipper: KeySkipper, data: SortedDataInterface, limit: int, max_bytes: int) -> list[KeyEntry]:
        position = self._position
        forward = position.forward
        if position.after is None and position.bound is None:
            self.seeks += 1
            if forward:
                position.bound = skipper.first_low(position.index, position.ranges[position.index].low)
        rest = position.rest()
        chunk = min(self._chunk, limit)
        entries: list[KeyEntry] = []
        more = False
        if not rest.is_empty():
            entries, more = data.scan(rest, position.after, chunk, max_bytes)
        skips = self._bounds.index.arrays is self._bounds.arrays
        examined = 0
        passing: list[KeyEntry] = []
        bound: bytes | None = None
        for entry in entries:
            key = entry[0]
            if bound is not None and (key < bound) == forward:
                continue
            examined += 1
            bound = skipper.bound_behind(key) if skips else None
            if bound is None:
                passing.append(entry)
            else:
                self.seeks += 1
        self.examined += examined
        self.out_of_bounds += examined - len(passing)
        self._chunk = min(chunk * 2, LARGEST_CHUNK) if examined * 2 > chunk else max(chunk // 2, FIRST_CHUNK)
        if bound is not None and (more or (bound >= rest.high if forward else bound <= rest.low)):
            position.seek(bound)
        elif more:
            position.after = entries[-1]
        else:
            if position.index + 1 == len(position.ranges) and self._is_followed(data):
                self.examined += 1
                self.out_of_bounds += 1
            position.to_next_range()
        return passing

    def _is_followed(self, data: SortedDataInterface) -> bool:
        """Whether there is a key after the last range: mongod examines it to detect the end, and counts it."""
        last = self._position.ranges[self._position.index]
        following = KeyRange(last.high, HIGHEST_KEY) if last.forward else KeyRange(LOWEST_KEY, last.low, False)
        return bool(data.scan(following, None, 1)[0])
