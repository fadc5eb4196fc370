"""`$sample`: a random sample of documents, in random order."""

import struct
from typing import Final

from mongottl.document.annotated import annotated
from mongottl.document.build import encode
from mongottl.document.numbers import clamp_to_long
from mongottl.document.types import MISSING, Int64, Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import type_of
from mongottl.query.metadata import RANDOM_VALUE
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.sorting import SortingSource
from mongottl.query.pipeline.source import BATCH_SIZE, DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import OLDEST

_MAX_SIZE: Final = 1 << 40  # more than any number of documents


class SampleSpec(StageSpec):
    def __init__(self, size: int) -> None:
        self.name = "$sample"
        self.size: Final = size

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return SampleSource(source, self.size, run)

    def describe(self) -> Value:
        return encode({"$sample": {"size": Int64(self.size)}})


class SampleSource(SortingSource):
    """Assigns each document a random sort key, and keeps those with the smallest keys."""

    def __init__(self, source: DocumentSource, size: int, run: RunContext) -> None:
        super().__init__(source, run, run.limits.sort_bytes, min(size, _MAX_SIZE))
        self._run: Final = run

    def add(self, batch: list[bytes]) -> None:
        requested = RANDOM_VALUE in self._run.metadata
        sorter = self.sorter
        for doc in batch:
            value = self._run.random()
            sorter.add(struct.pack(">d", value), annotated(doc, RANDOM_VALUE, value) if requested else doc)

    def output(self) -> list[bytes] | None:
        entries = self.sorter.take(BATCH_SIZE)
        return [entry[2] for entry in entries] if entries else None


@stage("$sample", StageTraits(selects=True), since=OLDEST)
def parse_sample(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{size: n}`. Codes 28745 to 28749."""
    if not isinstance(argument, bytes):
        raise CommandError(28745, f"the $sample stage specification must be an object, but found {type_of(argument)}")
    size: Value = MISSING
    for name, value in fields(argument):
        if name != "size":
            raise CommandError(28748, f"unrecognized option to $sample: {name}")
        if width(value) == 0:
            raise CommandError(28746, "size argument to $sample must be a number")
        size = value
    if isinstance(size, Missing):
        raise CommandError(28749, "$sample stage must specify a size")
    number = clamp_to_long(size)
    if number <= 0:
        raise CommandError(28747, "size argument to $sample must be a positive integer")
    return [SampleSpec(number)]
