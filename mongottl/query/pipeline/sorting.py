"""The base of stages that sort their whole input: `$sort`, `$sample`, `$bucketAuto` and `$setWindowFields`."""

from typing import Final

from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, TransformSource
from mongottl.query.sorter import Sorter
from mongottl.query.spill import SpillSpace


class SortingSource(TransformSource):
    """Adds its whole input to a sorter, one batch per call, and then outputs results from the sorted entries.

    limit: number of entries that the sorter keeps, 0 for all. memory_bytes: of entries in memory; beyond that the
    sorter writes to temporary files, or fails (292) without `allowDiskUse`.
    """

    def __init__(self, source: DocumentSource, run: RunContext, memory_bytes: int, limit: int = 0) -> None:
        super().__init__(source)
        self.sorter: Final = Sorter(limit, memory_bytes, run.space, run.memory)
        self._reading = True

    def next_batch(self) -> list[bytes] | None:
        sorter = self.sorter
        if sorter.pending:
            sorter.work()
            return []
        if not self._reading:
            return self.output()
        batch = self.source.next_batch()
        if batch is None:
            self._reading = False
            sorter.finish()
            return []
        self.add(batch)
        sorter.check()
        return []

    def add(self, batch: list[bytes]) -> None:
        """Adds the documents of one batch of the input to the sorter."""
        raise NotImplementedError

    def output(self) -> list[bytes] | None:
        """The next results, when the sorter has all entries; None at the end."""
        raise NotImplementedError

    def held_bytes(self) -> int:
        return self.sorter.held_bytes() + self.source.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self.sorter.spill(space) or self.source.spill(space)

    def close(self) -> None:
        self.sorter.close()
        self.source.close()
