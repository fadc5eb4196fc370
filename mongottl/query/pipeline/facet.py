"""`$facet`: several pipelines over the same documents; the result is one document with a field for each."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import DocumentBuilder, encode, encode_fields
from mongottl.document.freeing import LONG, LongList, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import check_object_name, type_of
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.pipeline.stage import (
    StageSpec,
    StageTraits,
    check_length,
    open_pipeline,
    parse_pipeline,
    stage,
    traits_of,
)
from mongottl.versions import OLDEST

# What the opening of one of the pipelines weighs.
_OPENED: Final[i64] = 4


class FacetSpec(StageSpec):
    def __init__(self, names: list[str], pipelines: list[list[StageSpec]]) -> None:
        self.name = "$facet"
        self.keeps_metadata = False
        self.names: Final = names
        self.pipelines: Final = pipelines

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        branches: list[Branch] = list_for(len(self.pipelines))
        for pipeline in self.pipelines:
            give_way(_OPENED)
            branches.append(Branch(pipeline, run))
        return FacetSource(source, self.names, branches, run)

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = list_for(len(self.names))
        for i in range(len(self.names)):
            give_way()
            stages: list[Value] = [spec.describe() for spec in self.pipelines[i]]
            described.append((self.names[i], stages))
        return encode({"$facet": encode_fields(described)})

    def sub_pipelines(self) -> list[list[StageSpec]]:
        return self.pipelines


class FeedSource(DocumentSource):
    """A source whose batches are supplied by `put`."""

    def __init__(self) -> None:
        self._batch: list[bytes] = []
        self.ended = False

    def put(self, batch: list[bytes]) -> None:
        self._batch = batch

    def is_empty(self) -> bool:
        return not self._batch

    def next_batch(self) -> list[bytes] | None:
        batch = self._batch
        if batch:
            self._batch = []
            return batch
        return None if self.ended else []


class Branch:
    """One of the pipelines, with its results."""

    def __init__(self, pipeline: list[StageSpec], run: RunContext) -> None:
        self.feed: Final = FeedSource()
        self.output: Final = open_pipeline(pipeline, self.feed, run)
        self.documents: list[Value] = []
        self.done = False

    def step(self) -> int:
        """Reads one batch of results; returns their size in bytes."""
        if self.done:
            return 0
        batch = self.output.next_batch()
        if batch is None:
            self.done = True
            self.output.close()
            return 0
        size = 0
        for doc in batch:
            self.documents.append(doc)
            if len(self.documents) == LONG:
                self.documents = LongList(self.documents)
            size += len(doc)
        return size


class FacetSource(DocumentSource):
    """Keeps the results of all branches until the end; 4031700 if they exceed their limit, 146 if all running
    operations hold too much."""

    def __init__(self, source: DocumentSource, names: list[str], branches: list[Branch], run: RunContext) -> None:
        self._source: Final = source
        self._limit_bytes: Final = run.limits.facet_bytes
        self._share: Final = run.memory.share()
        self._size = 0
        self._names: Final = names
        self._branches: Final = branches
        self._reading = True
        self._is_output = False

    def next_batch(self) -> list[bytes] | None:
        if self._is_output:
            return None
        if self._reading:
            self._read()
            return []
        waiting = False
        for branch in self._branches:
            give_way()
            self._step(branch)
            waiting = waiting or not branch.done
        if waiting:
            return []
        self._is_output = True
        return [self._document()]

    def _read(self) -> None:
        """Performs a step of each branch that has not read the last batch yet; if there is none, reads the next
        batch."""
        busy = False
        for branch in self._branches:
            give_way()
            if not branch.done and not branch.feed.is_empty():
                self._step(branch)
                busy = True
        if busy:
            return
        batch = self._source.next_batch()
        for branch in self._branches:
            give_way()
            if batch is None:
                branch.feed.ended = True
            elif not branch.done:
                branch.feed.put(batch)
        if batch is None:
            self._reading = False

    def _step(self, branch: Branch) -> None:
        self._size += branch.step()
        if self._size > self._limit_bytes:
            raise CommandError(
                4031700,
                f"document constructed by $facet is {self._size} bytes, which exceeds the limit of"
                f" {self._limit_bytes} bytes",
            )
        if not self._share.need(self._size):
            raise self._share.memory.exceeded("$facet")

    def _document(self) -> bytes:
        builder = DocumentBuilder()
        for i in range(len(self._names)):
            give_way()
            builder.append(self._names[i], self._branches[i].documents)
        return builder.finish()

    def close(self) -> None:
        for branch in self._branches:
            if not branch.done:
                branch.output.close()
            branch.documents.clear()
        self._share.release()
        self._source.close()


def _check_allowed(stage_document: bytes) -> None:
    """40600 for a stage that is not allowed in a facet, also within nested pipelines."""
    for name, argument in fields(stage_document):
        traits = traits_of(name)
        if not (traits.in_facet or traits.parsed_before_facet):
            raise CommandError(40600, f"{name} is not allowed to be used within a $facet stage")
        if traits.has_pipeline and isinstance(argument, bytes):
            inner = get_value(argument, "pipeline")
            for item in inner if isinstance(inner, list) else []:
                if isinstance(item, bytes) and not traits_of(first_field_name(item)).writes:
                    _check_allowed(item)


@stage("$facet", StageTraits(in_facet=False), since=OLDEST)
def parse_facet(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{<field>: [<stage>, …], …}`. 40169 to 40171 for the shape, 40600 for a stage that is not allowed in it."""
    if not isinstance(argument, bytes) or len(argument) == 5:
        raise CommandError(
            40169, f"the $facet specification must be a non-empty object, but found: {type_of(argument)}"
        )
    members = fields(argument)
    names: list[str] = list_for(len(members))
    pipelines: list[list[StageSpec]] = list_for(len(members))
    for name, value in members:
        give_way()
        if name.startswith("$"):
            raise CommandError(16410, f"FieldPath field names may not start with '$': {name}")
        check_object_name(name)
        if not isinstance(value, list):
            raise CommandError(40170, f"arguments to $facet must be arrays, {name} is type {type_of(value)}")
        check_length(value)
        for item in value:
            if not isinstance(item, bytes) or len(item) == 5:
                raise CommandError(
                    40171,
                    f"elements of arrays in $facet spec must be non-empty objects, {name} contained {type_of(item)}",
                )
            _check_allowed(item)
        names.append(name)
        pipeline = parse_pipeline(value, ctx, ctx.metadata.available)
        for spec in pipeline:
            if not spec.traits.in_facet:
                raise CommandError(40600, f"{spec.name} is not allowed to be used within a $facet stage")
        pipelines.append(pipeline)
    return [FacetSpec(names, pipelines)]
