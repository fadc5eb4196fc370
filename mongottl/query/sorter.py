"""External merge sort in steps of bounded duration.

Entries are collected in runs of bounded size, each sorted when it is full. Beyond the memory limit all runs are merged
into a run in a temporary file; at the end the runs in memory and in the file are merged while they are returned:

    add, add, … -> [run] [run] [run] --limit--> file: [ run 0      ]
    add, add, … -> [run] [run]       --limit--> file: [ run 0      ][ run 1  ]
    finish                                      take: merge(run 0, run 1, runs in memory)

With a limit on the number of entries, runs are merged as soon as they have twice as many, and only the first `limit`
entries are kept; later entries with keys not less than the last kept one are dropped. The sort is stable.

No method does more than a few milliseconds of work: while `pending` is true, call `work` before any other method.
"""

import heapq
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, cast

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from mongottl.document.annotated import encoded_metadata, with_encoded_metadata
from mongottl.document.freeing import LongList, freed_in_slices
from mongottl.document.interrupt import give_way_after
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.memory import OperationMemory
from mongottl.query.spill import SpillFile, SpillSpace, SpillStatistics

# (key, arrival number, document, and three numbers for the caller: a record's id, `_ts` and `ttl`).
SortEntry: TypeAlias = tuple[bytes, int, bytes, int, int, int]
# An entry that is only passed on. Compiled code takes a SortEntry apart where it gets one, and makes another where it
# hands it on.
PassedEntry: TypeAlias = Any

RUN_LENGTH: Final = 4096  # entries; sorting them takes about two milliseconds
MAX_LIMIT_CUT_BY_SORT: Final = 2048  # up to this limit, the entries beyond it are cut by one sort instead of a merge
MERGE_STEP: Final = 1024  # entries that one call merges
MERGE_STEP_BYTES: Final = 512 << 10  # bytes that one call writes to the file
MAX_FILE_RUNS: Final = 64  # runs merged at once; if there are more, they are first merged into longer runs
READ_BYTES: Final = 64 << 10
LEAST_RUN_BYTES: Final = 256 << 10  # shorter runs are not written because other operations hold too much
# Approximate memory of an entry besides its key and document.
ENTRY_BYTES: Final = 128
_HEADER_BYTES: Final = 44


class FileRun:
    """An iterator over a sorted run in a file, at the offsets `start` to `end`, read in pieces."""

    def __init__(self, file: SpillFile, start: int, end: int) -> None:
        self._file: Final = file
        self._offset: i64 = start  # offset of the part that is not read yet
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

    def release(self) -> None:
        """Frees the part that was read ahead, which is read again."""
        self._offset -= i64(len(self._buffer)) - self._position
        self._buffer = b""
        self._position = 0

    def held_bytes(self) -> int:
        return len(self._buffer)

    def _has(self, size: i64) -> bool:
        """Reads until the next `size` bytes are in the buffer; False at the end."""
        missing: i64 = size - (i64(len(self._buffer)) - self._position)
        if missing <= 0:
            return True
        if self._offset >= self._end:
            return False
        wanted: i64 = missing if missing > READ_BYTES else READ_BYTES
        if wanted > self._end - self._offset:
            wanted = self._end - self._offset
        self._buffer = self._buffer[self._position :] + self._file.read(self._offset, wanted)
        self._position = 0
        self._offset += wanted
        return True


def write_entry(writer: BytesWriter, entry: SortEntry) -> None:
    """Writes an entry in the format that `FileRun` reads."""
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


class MemoryRun:
    """An iterator over a sorted run in memory, which releases entries as it returns them.

    `spill` moves the next entries to a file; they are returned from there, before those that are still in memory.
    """

    def __init__(self, entries: list[PassedEntry]) -> None:
        entries.reverse()
        self._entries: Final = entries
        self._spilled: Final[list[FileRun]] = []

    def __iter__(self) -> "MemoryRun":
        return self

    def __next__(self) -> object:  # a SortEntry; compiled, this method may return no tuple type
        while self._spilled:
            entry: object = next(self._spilled[0], None)
            if entry is not None:
                return entry
            del self._spilled[0]
        if not self._entries:
            raise StopIteration
        return self._entries.pop()

    def count(self) -> int:
        """How many entries are in memory."""
        return len(self._entries)

    def spill(self, file: SpillFile) -> None:
        """Moves the next entries in memory to the file, about MERGE_STEP_BYTES of them."""
        writer = BytesWriter()
        entries = self._entries
        while entries and i64(len(writer)) < MERGE_STEP_BYTES:
            write_entry(writer, entries.pop())
        data = writer.getvalue()
        start = file.append(data)
        self._spilled.append(FileRun(file, start, start + len(data)))

    def release(self) -> None:
        """Frees what was read ahead from the file."""
        for run in self._spilled:
            run.release()

    def buffered_bytes(self) -> int:
        return sum([run.held_bytes() for run in self._spilled])


def entries_of(run: MemoryRun | FileRun) -> Iterator[PassedEntry]:
    """The entries of a run."""
    return cast("Iterator[PassedEntry]", run)


class Sorter:
    """Sorts entries by key. limit: how many are returned, 0 for all. space: None if the disk may not be used.

    total_bytes: size of the keys and documents added so far. run_length: may be changed before the first entry.
    memory: the operation's; it may be set before the first entry.
    """

    def __init__(
        self, limit: int, memory_limit_bytes: int, space: SpillSpace | None, memory: OperationMemory | None = None
    ) -> None:
        self._limit: Final[i64] = limit
        self._memory_limit_bytes: Final[i64] = memory_limit_bytes
        self._space: Final = space
        self._share = (OperationMemory() if memory is None else memory).share()
        self.run_length: i64 = RUN_LENGTH
        self.total_bytes: i64 = 0
        self.spilled: Final = SpillStatistics()
        self._entries: list[PassedEntry] = []
        self._arrived: i64 = 0
        self._bytes_in_memory: i64 = 0  # of the entries in memory
        self._count_in_memory: i64 = 0
        # Once there are `limit` entries: entries with this key or a greater one are dropped.
        self._cutoff_key: bytes | None = None
        self._runs: list[list[PassedEntry]] = []
        self._file: SpillFile | None = None
        self._file_runs: list[FileRun] = []
        self._finished = False
        self._output: Iterator[PassedEntry] | None = None
        # The runs of the output, and the approximate memory of an entry in memory.
        self._memory_output: list[MemoryRun] = []
        self._file_output: list[FileRun] = []
        self._entry_bytes: i64 = 0
        self._left: i64 = limit if limit else -1
        self._taken: i64 = 0  # entries since the share was adapted
        # The merge in progress: source, number of remaining entries, and destination.
        self.pending = False
        self._merged: Iterator[PassedEntry] = iter([])
        self._merge_left: i64 = -1
        self._merge_last = b""
        self._to_memory: list[PassedEntry] | None = None
        self._written_from = 0
        self._written_to = 0

    def add(self, key: bytes, document: bytes, number: int = 0, ts_s: int = 0, ttl_s: int = 0) -> None:
        """Adds an entry. `check` must be called at least every few hundred entries."""
        cutoff = self._cutoff_key
        if cutoff is not None and key >= cutoff:
            return
        self._entries.append((key, int(self._arrived), document, number, ts_s, ttl_s))
        self._arrived += 1
        self._count_in_memory += 1
        size: i64 = i64(len(key)) + i64(len(document))
        self.total_bytes += size
        self._bytes_in_memory += size + ENTRY_BYTES
        if i64(len(self._entries)) >= self.run_length:
            self._close_run()

    def use_memory(self, memory: OperationMemory) -> None:
        """Sets whose memory it uses, before the first entry."""
        self._share = memory.share()

    def check(self) -> None:
        """Enforces the limits. QueryExceededMemoryLimitNoDiskUseAllowed (292) if the disk may not be used."""
        limit = self._limit
        if limit and self._count_in_memory >= limit + max(limit, 64):
            self._drop_beyond_limit()
        if self._fits():
            return
        if limit and self._count_in_memory > limit and not self.pending:
            self._drop_beyond_limit()
            if not self.pending and self._fits():
                return
        if self.pending:
            return
        if self._space is None:
            if self._bytes_in_memory <= self._memory_limit_bytes:
                raise self._share.memory.exceeded("Sort", ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed)
            raise CommandError(
                ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed,
                f"Sort exceeded memory limit of {self._memory_limit_bytes} bytes, but did not opt in to external"
                " sorting.",
            )
        self._close_run()
        self._start_merge(self._take_runs(), limit if limit else -1, None)
        self.spilled.spills += 1

    def _fits(self) -> bool:
        return self._bytes_in_memory <= self._memory_limit_bytes and self._share.need(
            self._bytes_in_memory, LEAST_RUN_BYTES
        )

    def finish(self) -> None:
        """Ends the input."""
        self._finished = True
        self._close_run()
        self._prepare_output()

    def work(self) -> None:
        """Performs a step of the pending merge."""
        to_memory = self._to_memory
        writer: BytesWriter | None = None if to_memory is not None else BytesWriter()
        merged = self._merged
        left = self._merge_left
        ended = False
        count: i64 = 0
        last: PassedEntry = None
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
                self._bytes_in_memory += i64(len(entry[0])) + i64(len(entry[2])) + ENTRY_BYTES
            else:
                write_entry(writer, entry)
                if i64(len(writer)) >= MERGE_STEP_BYTES:
                    break
        self._merge_left = left
        if last is not None:
            self._merge_last = last[0]
        if writer is not None and len(writer):
            data = writer.getvalue()
            give_way_after(len(data))
            file = self._open_file()
            start = file.append(data)
            if self._written_to == 0:
                self._written_from = start
            self._written_to = start + len(data)
            if not self._finished:
                self.spilled.records += int(count)
                self.spilled.bytes += len(data)
        if ended or left == 0:
            self._end_merge()

    def take(self, count: int, max_bytes: int = 8 << 20) -> list[SortEntry]:
        """The next entries, at most `count`, and none after `max_bytes` of documents; [] at the end."""
        output = self._output
        taken: list[PassedEntry] = []
        if output is None:
            return taken
        left: i64 = count
        room: i64 = max_bytes
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
        self._taken += i64(len(taken))
        if self._taken >= RUN_LENGTH:
            self._taken = 0
            self._share.hold(self.held_bytes(), True)
        return taken

    def held_bytes(self) -> int:
        """Approximate bytes of the entries in memory."""
        if self._output is None:
            return int(self._bytes_in_memory)
        held: i64 = 0
        for run in self._memory_output:
            held += i64(run.count()) * self._entry_bytes + i64(run.buffered_bytes())
        for file_run in self._file_output:
            held += i64(file_run.held_bytes())
        return int(held)

    def spill(self, space: SpillSpace) -> bool:
        """Moves entries of the output from memory to a temporary file, a few milliseconds' work; False if there were
        none. space: used although the sort itself may not use the disk."""
        if self._output is None:
            return False
        for run in self._memory_output:
            if run.count():
                file = self._file
                if file is None:
                    file = space.create()
                    self._file = file
                run.spill(file)
                return True
        for run in self._memory_output:
            run.release()
        for file_run in self._file_output:
            file_run.release()
        self._share.hold(self.held_bytes(), True)
        return False

    def close(self) -> None:
        """Frees memory and the file. May be called more than once."""
        for entries in (self._entries, *self._runs):
            freed_in_slices(entries)
        self._entries = []
        self._memory_output = []
        self._file_output = []
        self._bytes_in_memory = 0
        self._runs = []
        self._file_runs = []
        self._output = None
        self._merged = iter([])
        self._to_memory = None
        self.pending = False
        self._share.release()
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _close_run(self) -> None:
        entries = self._entries
        if entries:
            entries.sort()
            self._runs.append(freed_in_slices(entries))
            self._entries = []

    def _take_runs(self) -> list[list[PassedEntry]]:
        runs = self._runs
        self._runs = []
        self._count_in_memory = 0
        self._bytes_in_memory = 0
        return runs

    def _drop_beyond_limit(self) -> None:
        """Drops entries beyond the first `limit`: immediately if the limit is small, else by a merge."""
        limit = self._limit
        self._close_run()
        if limit <= MAX_LIMIT_CUT_BY_SORT:
            entries: list[PassedEntry] = []
            for run in self._take_runs():
                entries.extend(run)
            entries.sort()
            while i64(len(entries)) > limit:
                entries.pop()
            for entry in entries:
                self._bytes_in_memory += i64(len(entry[0])) + i64(len(entry[2])) + ENTRY_BYTES
            self._count_in_memory = i64(len(entries))
            self._runs.append(entries)
            if self._count_in_memory == limit:
                self._lower_cutoff(entries[-1][0])
            return
        self._start_merge(self._take_runs(), limit, LongList())

    def _lower_cutoff(self, key: bytes) -> None:
        cutoff = self._cutoff_key
        if cutoff is None or key < cutoff:
            self._cutoff_key = key

    def _start_merge(
        self, runs: list[list[PassedEntry]], max_entries: i64, to_memory: list[PassedEntry] | None
    ) -> None:
        self._merged = heapq.merge(*[entries_of(MemoryRun(run)) for run in runs])
        self._merge_left = max_entries
        self._to_memory = to_memory
        self._written_to = 0
        self.pending = True

    def _end_merge(self) -> None:
        self.pending = False
        self._merged = iter([])
        to_memory = self._to_memory
        self._to_memory = None
        if self._merge_left == 0:
            self._lower_cutoff(self._merge_last)
        if to_memory is not None:
            self._count_in_memory = i64(len(to_memory))
            self._runs.append(to_memory)
        elif self._written_to:
            self._file_runs.append(FileRun(self._open_file(), self._written_from, self._written_to))
        self._share.hold(self._bytes_in_memory, True)
        if self._finished:
            self._prepare_output()

    def _prepare_output(self) -> None:
        """Prepares the output, or starts merging runs of the file if there are too many."""
        if len(self._file_runs) > MAX_FILE_RUNS:
            first = self._file_runs[:MAX_FILE_RUNS]
            del self._file_runs[:MAX_FILE_RUNS]
            self._merged = heapq.merge(*[entries_of(run) for run in first])
            self._merge_left = self._limit if self._limit else -1
            self._to_memory = None
            self._written_to = 0
            self.pending = True
            return
        iterators: list[Iterator[PassedEntry]] = []
        for run in self._runs:
            memory_run = MemoryRun(run)
            self._memory_output.append(memory_run)
            iterators.append(entries_of(memory_run))
        for file_run in self._file_runs:
            self._file_output.append(file_run)
            iterators.append(entries_of(file_run))
        self._entry_bytes = self._bytes_in_memory // max(self._count_in_memory, 1)
        self._runs = []
        self._file_runs = []
        self._share.hold(self._bytes_in_memory + READ_BYTES * i64(len(self._file_output)), True)
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
