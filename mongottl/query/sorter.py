"""Sorting more than fits into memory, a bounded step at a time.

Entries are gathered in runs of bounded size, each sorted when it is full. What exceeds the memory limit is merged into
a run in a temporary file; at the end all runs, in memory and in the file, are merged while they are handed out:

    add, add, … -> [run] [run] [run] --limit--> file: [ run 0      ]
    add, add, … -> [run] [run]       --limit--> file: [ run 0      ][ run 1  ]
    finish                                      take: merge(run 0, run 1, what is left in memory)

With a limit on the entries wanted, runs are merged as soon as they hold twice as many, the rest falls away, and so does
whatever comes later and is not before the last one kept. Entries with equal keys stay in the order in which they came.

No method does more than a few milliseconds of work: as long as `pending`, call `work` before anything else.
"""

import heapq
from collections.abc import Iterator
from typing import Final, TypeAlias, cast

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from mongottl.document.annotated import encoded_metadata, with_encoded_metadata
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.spill import SpillFile, SpillSpace, SpillStatistics

# (key, arrival, document, and three numbers that the caller gets back: a record's id, `_ts` and `ttl`).
SortEntry: TypeAlias = tuple[bytes, int, bytes, int, int, int]

RUN_LENGTH: Final = 4096  # entries; sorting them takes about two milliseconds
CUT_AT_ONCE: Final = 2048  # a limit up to which what is kept beside it is sorted in one go
MERGE_STEP: Final = 1024  # entries that one call merges
MERGE_STEP_BYTES: Final = 512 << 10  # and how much of them goes to the file at once
MAX_FILE_RUNS: Final = 64  # that are merged at once; more are merged into longer ones before
READ_BYTES: Final = 64 << 10
# What an entry takes in memory beside its key and document, roughly.
ENTRY_BYTES: Final = 128
_HEADER_BYTES: Final = 44


class MemoryRun:
    """A sorted run, handed out from its start; what is handed out is let go of."""

    def __init__(self, entries: list[SortEntry]) -> None:
        entries.reverse()
        self._entries: Final = entries

    def __iter__(self) -> "MemoryRun":
        return self

    def __next__(self) -> object:  # a SortEntry; compiled, this method may return no tuple type
        if not self._entries:
            raise StopIteration
        return self._entries.pop()


class FileRun:
    """A sorted run in a file, from `place` to `end`, read in pieces."""

    def __init__(self, file: SpillFile, place: int, end: int) -> None:
        self._file: Final = file
        self._place: i64 = place  # of what is not read yet
        self._end: Final[i64] = end
        self._buffer = b""
        self._position: i64 = 0

    def __iter__(self) -> "FileRun":
        return self

    def __next__(self) -> object:  # a SortEntry; compiled, this method may return no tuple type
        if not self._has(_HEADER_BYTES):
            raise StopIteration
        at = self._position
        key_size: i64 = i64(read_i32_le(self._buffer, at))
        size: i64 = i64(read_i32_le(self._buffer, at + 4))
        metadata_size: i64 = i64(read_i32_le(self._buffer, at + 40))
        if not self._has(_HEADER_BYTES + key_size + size + metadata_size):
            raise AssertionError("an entry is cut off")
        buffer = self._buffer
        at = self._position
        key_at: i64 = at + _HEADER_BYTES
        document_at: i64 = key_at + key_size
        metadata_at: i64 = document_at + size
        self._position = metadata_at + metadata_size
        document = buffer[document_at:metadata_at]
        if metadata_size:
            document = with_encoded_metadata(document, buffer[metadata_at : metadata_at + metadata_size])
        return (
            buffer[key_at:document_at],
            read_i64_le(buffer, at + 8),
            document,
            read_i64_le(buffer, at + 16),
            read_i64_le(buffer, at + 24),
            read_i64_le(buffer, at + 32),
        )

    def _has(self, size: i64) -> bool:
        """Makes sure that the next `size` bytes are in the buffer; False at the end."""
        missing: i64 = size - (i64(len(self._buffer)) - self._position)
        if missing <= 0:
            return True
        if self._place >= self._end:
            return False
        wanted: i64 = missing if missing > READ_BYTES else READ_BYTES
        if wanted > self._end - self._place:
            wanted = self._end - self._place
        self._buffer = self._buffer[self._position :] + self._file.read(self._place, wanted)
        self._position = 0
        self._place += wanted
        return True


def _entries_of(run: MemoryRun | FileRun) -> Iterator[SortEntry]:
    return cast("Iterator[SortEntry]", run)


def write_entry(writer: BytesWriter, entry: SortEntry) -> None:
    """The form in which `FileRun` reads it."""
    key, arrived, document, number, ts_s, ttl_s = entry
    metadata = encoded_metadata(document)
    write_i32_le(writer, i32(len(key)))
    write_i32_le(writer, i32(len(document)))
    write_i64_le(writer, arrived)
    write_i64_le(writer, number)
    write_i64_le(writer, ts_s)
    write_i64_le(writer, ttl_s)
    write_i32_le(writer, i32(len(metadata)))
    writer.write(key)
    writer.write(document)
    writer.write(metadata)


class Sorter:
    """limit: how many entries are wanted, 0 for all. space: None where the disk may not be used.

    total_bytes: the keys and documents that were taken in. run_length: may be changed before the first entry.
    """

    def __init__(self, limit: int, memory_limit_bytes: int, space: SpillSpace | None) -> None:
        self._limit: Final[i64] = limit
        self._memory_limit_bytes: Final[i64] = memory_limit_bytes
        self._space: Final = space
        self.run_length: i64 = RUN_LENGTH
        self.total_bytes: i64 = 0
        self.spilled: Final = SpillStatistics()
        self._entries: list[SortEntry] = []
        self._arrived: i64 = 0
        self._held_bytes: i64 = 0  # of what is in memory
        self._held: i64 = 0
        self._worst: bytes | None = None  # once `limit` entries are known: the last key that may still stay
        self._runs: list[list[SortEntry]] = []
        self._file: SpillFile | None = None
        self._file_runs: list[FileRun] = []
        self._finished = False
        self._output: Iterator[SortEntry] | None = None
        self._left: i64 = limit if limit else -1
        # A merge under way: where from, how many more, and where to.
        self.pending = False
        self._merged: Iterator[SortEntry] = iter([])
        self._merge_left: i64 = -1
        self._merge_last = b""
        self._to_memory: list[SortEntry] | None = None
        self._written_from = 0
        self._written_to = 0

    def add(self, key: bytes, document: bytes, number: int = 0, ts_s: int = 0, ttl_s: int = 0) -> None:
        """Takes in one entry. To be followed by `check` after at most a few hundred."""
        worst = self._worst
        if worst is not None and key >= worst:
            return
        self._entries.append((key, int(self._arrived), document, number, ts_s, ttl_s))
        self._arrived += 1
        self._held += 1
        size: i64 = i64(len(key)) + i64(len(document))
        self.total_bytes += size
        self._held_bytes += size + ENTRY_BYTES
        if i64(len(self._entries)) >= self.run_length:
            self._close_run()

    def check(self) -> None:
        """Looks at the limits. QueryExceededMemoryLimitNoDiskUseAllowed (292) where the disk may not be used."""
        limit = self._limit
        if limit and self._held >= limit + max(limit, 64):
            self._cut()
        if self._held_bytes <= self._memory_limit_bytes:
            return
        if limit and self._held > limit and not self.pending:
            self._cut()
            if not self.pending and self._held_bytes <= self._memory_limit_bytes:
                return
        if self.pending:
            return
        if self._space is None:
            raise CommandError(
                ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed,
                f"Sort exceeded memory limit of {self._memory_limit_bytes} bytes, but did not opt in to external"
                " sorting.",
            )
        self._close_run()
        self._start_merge(self._take_runs(), limit if limit else -1, None)
        self.spilled.spills += 1

    def finish(self) -> None:
        """There is no more to come."""
        self._finished = True
        self._close_run()
        self._prepare_output()

    def work(self) -> None:
        """A step of what is pending."""
        to_memory = self._to_memory
        writer: BytesWriter | None = None if to_memory is not None else BytesWriter()
        merged = self._merged
        left = self._merge_left
        ended = False
        count: i64 = 0
        last: SortEntry | None = None
        while count < MERGE_STEP and left != 0:
            entry = next(merged, None)
            if entry is None:
                ended = True
                break
            last = entry
            left -= 1
            count += 1
            if writer is None:
                assert to_memory is not None
                to_memory.append(entry)
                self._held_bytes += i64(len(entry[0])) + i64(len(entry[2])) + ENTRY_BYTES
            else:
                write_entry(writer, entry)
                if i64(len(writer)) >= MERGE_STEP_BYTES:
                    break
        self._merge_left = left
        if last is not None:
            self._merge_last = last[0]
        if writer is not None and len(writer):
            data = writer.getvalue()
            file = self._open_file()
            place = file.append(data)
            if self._written_to == 0:
                self._written_from = place
            self._written_to = place + len(data)
            if not self._finished:
                self.spilled.records += int(count)
                self.spilled.bytes += len(data)
        if ended or left == 0:
            self._end_merge()

    def take(self, count: int, most_bytes: int = 8 << 20) -> list[SortEntry]:
        """The next entries, `count` at most, and none after `most_bytes` of documents; [] at the end."""
        output = self._output
        taken: list[SortEntry] = []
        if output is None:
            return taken
        left: i64 = count
        room: i64 = most_bytes
        if 0 <= self._left < left:
            left = self._left
        while left > 0 and room > 0:
            entry = next(output, None)
            if entry is None:
                break
            taken.append(entry)
            room -= i64(len(entry[2]))
            left -= 1
        if self._left >= 0:
            self._left -= i64(len(taken))
        if not taken:
            self.close()
        return taken

    def close(self) -> None:
        """Lets go of everything. May be called more than once."""
        self._entries = []
        self._runs = []
        self._file_runs = []
        self._output = None
        self._merged = iter([])
        self._to_memory = None
        self.pending = False
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _close_run(self) -> None:
        entries = self._entries
        if entries:
            entries.sort()
            self._runs.append(entries)
            self._entries = []

    def _take_runs(self) -> list[list[SortEntry]]:
        runs = self._runs
        self._runs = []
        self._held = 0
        self._held_bytes = 0
        return runs

    def _cut(self) -> None:
        """Lets go of what cannot be among the first `limit`: at once if they are few, else by a merge."""
        limit = self._limit
        self._close_run()
        if limit <= CUT_AT_ONCE:
            entries: list[SortEntry] = []
            for run in self._take_runs():
                entries.extend(run)
            entries.sort()
            while i64(len(entries)) > limit:
                entries.pop()
            for entry in entries:
                self._held_bytes += i64(len(entry[0])) + i64(len(entry[2])) + ENTRY_BYTES
            self._held = i64(len(entries))
            self._runs.append(entries)
            if self._held == limit:
                self._set_worst(entries[-1][0])
            return
        self._start_merge(self._take_runs(), limit, [])

    def _set_worst(self, key: bytes) -> None:
        worst = self._worst
        if worst is None or key < worst:
            self._worst = key

    def _start_merge(self, runs: list[list[SortEntry]], most: i64, to_memory: list[SortEntry] | None) -> None:
        self._merged = heapq.merge(*[_entries_of(MemoryRun(run)) for run in runs])
        self._merge_left = most
        self._to_memory = to_memory
        self._written_to = 0
        self.pending = True

    def _end_merge(self) -> None:
        self.pending = False
        self._merged = iter([])
        to_memory = self._to_memory
        self._to_memory = None
        if self._merge_left == 0:
            self._set_worst(self._merge_last)
        if to_memory is not None:
            self._held = i64(len(to_memory))
            self._runs.append(to_memory)
        elif self._written_to:
            self._file_runs.append(FileRun(self._open_file(), self._written_from, self._written_to))
        if self._finished:
            self._prepare_output()

    def _prepare_output(self) -> None:
        """Begins to hand out, or merges runs of the file first if they are too many."""
        if len(self._file_runs) > MAX_FILE_RUNS:
            first = self._file_runs[:MAX_FILE_RUNS]
            del self._file_runs[:MAX_FILE_RUNS]
            self._merged = heapq.merge(*[_entries_of(run) for run in first])
            self._merge_left = self._limit if self._limit else -1
            self._to_memory = None
            self._written_to = 0
            self.pending = True
            return
        iterators: list[Iterator[SortEntry]] = []
        for run in self._runs:
            iterators.append(_entries_of(MemoryRun(run)))
        for file_run in self._file_runs:
            iterators.append(_entries_of(file_run))
        self._runs = []
        self._file_runs = []
        self._output = iterators[0] if len(iterators) == 1 else heapq.merge(*iterators)

    def _open_file(self) -> SpillFile:
        file = self._file
        if file is None:
            space = self._space
            if space is None:
                raise AssertionError("the disk may not be used")
            file = space.create()
            self._file = file
        return file
