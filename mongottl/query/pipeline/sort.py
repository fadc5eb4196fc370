"""`$sort`: everything is read, in runs of bounded size, each of them sorted when full; then the runs are merged.

    batches -> [run 0: sorted] [run 1: sorted] … -> merged, a batch per call

So no call sorts more than one run. With a limit behind it (`$sort` then `$limit`, coalesced), only the first so many
are kept.
"""

import heapq
from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from mongottl.document.annotated import annotated
from mongottl.document.build import encode
from mongottl.document.types import Int64, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.metadata import SORT_KEY
from mongottl.query.pipeline.source import (
    BATCH_SIZE,
    BlockingSource,
    DocumentSource,
    OutputQueue,
    RunContext,
)
from mongottl.query.pipeline.stage import StageSpec, stage
from mongottl.query.sort import SortPattern, TopK, parse_sort

RUN_SIZE: Final = 8192  # documents; sorting them takes a few milliseconds
MAX_TOP_K: Final = 100_000  # documents; a greater limit sorts runs, which cost no second cut


class SortSpec(StageSpec):
    """limit: how many are wanted, 0 for all."""

    def __init__(self, specification: bytes, pattern: SortPattern, limit: int = 0) -> None:
        self.name = "$sort"
        self.specification: Final = specification
        self.pattern: Final = pattern
        self.limit: Final = limit

    def with_limit(self, limit: int) -> "SortSpec":
        if self.limit and self.limit < limit:
            limit = self.limit
        return SortSpec(self.specification, self.pattern, limit)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        if 0 < self.limit <= MAX_TOP_K:
            return TopSource(source, self.pattern, self.limit, run)
        return SortSource(source, self.pattern, self.limit, run)

    def describe(self) -> Value:
        key: dict[str, Value] = {"sortKey": self.specification}
        if self.limit:
            key["limit"] = Int64(self.limit)
        return encode({"$sort": key})


class TopSource(BlockingSource):
    def __init__(self, source: DocumentSource, pattern: SortPattern, limit: int, run: RunContext) -> None:
        super().__init__(source)
        self._pattern: Final = pattern
        self._gives_key: Final = SORT_KEY in run.metadata
        self._top: Final = TopK(limit)
        self._output: Final = OutputQueue()

    def absorb(self, batch: list[bytes]) -> None:
        pattern = self._pattern
        top = self._top
        for doc in batch:
            top.push(pattern.sort_key(doc), doc)

    def finish(self) -> None:
        self._output.put(self._top.finish())

    def emit(self) -> list[bytes] | None:
        batch = self._output.take()
        return with_sort_keys(batch, self._pattern) if batch is not None and self._gives_key else batch


class SortSource(BlockingSource):
    """Entries are (key, arrival, document): equal keys stay in the order in which they came."""

    def __init__(self, source: DocumentSource, pattern: SortPattern, limit: int, run: RunContext) -> None:
        super().__init__(source)
        self._pattern: Final = pattern
        self._left: i64 = limit if limit else -1
        self._runs: list[list[tuple[bytes, int, bytes]]] = []
        self._current: list[tuple[bytes, int, bytes]] = []
        self._arrived = 0
        self._size = 0
        self._run: Final = run
        self._merged: Iterator[tuple[bytes, int, bytes]] = iter([])

    def absorb(self, batch: list[bytes]) -> None:
        pattern = self._pattern
        current = self._current
        arrived = self._arrived
        size = self._size
        for doc in batch:
            key = pattern.sort_key(doc)
            current.append((key, arrived, doc))
            arrived += 1
            size += len(key) + len(doc)
        self._arrived = arrived
        self._size = size
        if size > self._run.memory_limit_bytes and not self._run.allow_disk_use:
            raise CommandError(
                ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed,
                f"Sort exceeded memory limit of {self._run.memory_limit_bytes} bytes, but did not opt in to external "
                "sorting.",
            )
        if len(current) >= RUN_SIZE:
            self._close_run()

    def _close_run(self) -> None:
        self._current.sort()
        self._runs.append(self._current)
        self._current = []

    def finish(self) -> None:
        if self._current:
            self._close_run()
        self._merged = iter(self._runs[0]) if len(self._runs) == 1 else iter(heapq.merge(*self._runs))
        self._runs = []

    def emit(self) -> list[bytes] | None:
        batch: list[bytes] = []
        count: i64 = BATCH_SIZE
        if self._left >= 0:
            count = min(count, self._left)
            self._left -= count
        merged = self._merged
        while count > 0:
            entry = next(merged, None)
            if entry is None:
                break
            batch.append(entry[2])
            count -= 1
        if not batch:
            return None
        return with_sort_keys(batch, self._pattern) if SORT_KEY in self._run.metadata else batch


def with_sort_keys(batch: list[bytes], pattern: SortPattern) -> list[bytes]:
    """The documents with the values they are sorted by, for `{$meta: "sortKey"}`."""
    return [annotated(doc, SORT_KEY, pattern.sort_values(doc)) for doc in batch]


@stage("$sort")
def parse_sort_stage(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$sort: {path: 1 | -1, …}}`. 15973 if it is no document, 15976 if it is empty; errors of `parse_sort`."""
    if not isinstance(argument, bytes):
        raise CommandError(15973, "the $sort key specification must be an object")
    pattern = parse_sort(argument)
    if pattern.is_empty():
        raise CommandError(15976, "$sort stage must have at least one sort key")
    ctx.metadata.requested.update(pattern.metadata)
    return [SortSpec(argument, pattern)]
