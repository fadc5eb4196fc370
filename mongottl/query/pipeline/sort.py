"""`$sort`: reads the whole input, then outputs it sorted (`query.sorter`).

With a following `$limit`, which is coalesced with it, only that many documents are kept.
"""

from typing import Final

from mongottl.document.annotated import annotated
from mongottl.document.build import encode
from mongottl.document.types import Int64, Value
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.metadata import SORT_KEY
from mongottl.query.pipeline.effect import KEEPS_ALL, Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.sorting import SortingSource
from mongottl.query.pipeline.source import BATCH_SIZE, DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.versions import OLDEST


class SortSpec(StageSpec):
    """`$sort`, with the limit of a following `$limit`.

    limit: number of documents to output, 0 for all.
    """

    def __init__(self, specification: bytes, pattern: SortPattern, limit: int = 0) -> None:
        self.name = "$sort"
        self.specification: Final = specification
        self.pattern: Final = pattern
        self.limit: Final = limit

    def with_limit(self, limit: int) -> "SortSpec":
        if self.limit and self.limit < limit:
            limit = self.limit
        return SortSpec(self.specification, self.pattern, limit)

    def effect(self) -> Effect | None:
        """Documents that a later filter removes need not be sorted, unless there is a limit."""
        return None if self.limit else KEEPS_ALL

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return SortSource(source, self.pattern, self.limit, run)

    def describe(self) -> Value:
        key: dict[str, Value] = {"sortKey": self.specification}
        if self.limit:
            key["limit"] = Int64(self.limit)
        return encode({"$sort": key})


class SortSource(SortingSource):
    def __init__(self, source: DocumentSource, pattern: SortPattern, limit: int, run: RunContext) -> None:
        super().__init__(source, run, run.limits.sort_bytes, limit)
        self._pattern: Final = pattern
        self._gives_key: Final = SORT_KEY in run.metadata

    def add(self, batch: list[bytes]) -> None:
        pattern = self._pattern
        sorter = self.sorter
        for doc in batch:
            sorter.add(pattern.sort_key(doc), doc)

    def output(self) -> list[bytes] | None:
        entries = self.sorter.take(BATCH_SIZE)
        if not entries:
            return None
        batch = [entry[2] for entry in entries]
        return with_sort_keys(batch, self._pattern) if self._gives_key else batch

    def statistics(self) -> dict[str, Value]:
        found: dict[str, Value] = {"totalDataSizeSortedBytesEstimate": Int64(int(self.sorter.total_bytes))}
        found.update(self.sorter.spilled.describe())
        return found


def with_sort_keys(batch: list[bytes], pattern: SortPattern) -> list[bytes]:
    """The documents annotated with their sort values, for `{$meta: "sortKey"}`."""
    return [annotated(doc, SORT_KEY, pattern.sort_values(doc)) for doc in batch]


@stage("$sort", StageTraits(selects=True, planned=True), since=OLDEST)
def parse_sort_stage(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$sort: {path: 1 | -1, …}}`. 15973 if it is not a document, 15976 if it is empty; errors of `parse_sort`."""
    if not isinstance(argument, bytes):
        raise CommandError(15973, "the $sort key specification must be an object")
    takes_dollar_names = ctx.features is not None and ctx.features.sorts_by_dollar_names
    pattern = parse_sort(argument, ctx.collation, takes_dollar_names)
    if pattern.is_empty():
        raise CommandError(15976, "$sort stage must have at least one sort key")
    ctx.metadata.requested.update(pattern.metadata)
    return [SortSpec(argument, pattern)]
