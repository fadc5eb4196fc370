"""Streams of documents, pulled batch by batch, and what stages may ask of the world around them.

[] from `next_batch` means: nothing yet, ask again. A stage that must read everything first (`$sort`, `$group`)
takes in one batch per call and answers [] until it has, so that no call takes long and others get their turn.
"""

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from mongottl.config import MemoryLimits
from mongottl.document.annotated import carried
from mongottl.document.types import Value
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext
from mongottl.query.spill import SpillSpace

if TYPE_CHECKING:
    from mongottl.query.pipeline.near import GeoNearSpec
    from mongottl.query.pipeline.output import MergeRequest

BATCH_SIZE: Final = 256  # documents; architecture decision 4


@mypyc_attr(allow_interpreted_subclasses=True)
class DocumentSource:
    """A stream of raw documents."""

    def next_batch(self) -> list[bytes] | None:
        """The next documents, at most about BATCH_SIZE; [] if there are none yet; None behind the last."""
        raise NotImplementedError

    def is_outdated(self) -> bool:
        """Whether one of the documents given so far may have expired since."""
        return False

    def statistics(self) -> dict[str, Value]:
        """What explain shows of the stage's work, in mongod's names, besides what it shows of every stage."""
        return {}

    def close(self) -> None:
        """Lets go of whatever is held; the stream is not asked again."""


class ListSource(DocumentSource):
    """Documents from memory."""

    def __init__(self, documents: list[bytes], batch_size: int = BATCH_SIZE) -> None:
        self._documents: Final = documents
        self._batch_size: Final = batch_size
        self._position = 0

    def next_batch(self) -> list[bytes] | None:
        start = self._position
        if start >= len(self._documents):
            return None
        self._position = start + self._batch_size
        return self._documents[start : self._position]


class TransformSource(DocumentSource):
    """Base of stages that read another stream."""

    def __init__(self, source: DocumentSource) -> None:
        self.source: Final = source

    def close(self) -> None:
        self.source.close()


def carry_all(batch: list[bytes], results: list[bytes]) -> list[bytes]:
    """Results with the metadata of the documents that they were made of, one of each."""
    return [carried(batch[i], results[i]) for i in range(len(results))]


class BlockingSource(DocumentSource):
    """Base of stages that must have read everything before they can give anything."""

    def __init__(self, source: DocumentSource) -> None:
        self.source: Final = source
        self._reading = True

    def next_batch(self) -> list[bytes] | None:
        if self._reading:
            batch = self.source.next_batch()
            if batch is not None:
                self.absorb(batch)
                return []
            self._reading = False
            self.finish()
        return self.emit()

    def absorb(self, batch: list[bytes]) -> None:
        """Takes in one batch."""
        raise NotImplementedError

    def finish(self) -> None:
        """Everything has been read."""

    def emit(self) -> list[bytes] | None:
        """The next batch of results, after `finish`."""
        raise NotImplementedError

    def close(self) -> None:
        self.source.close()


@mypyc_attr(allow_interpreted_subclasses=True)
class EqualityProbe:
    """A way to documents by the value of one field, through an index. Good until others run."""

    def find(self, value: Value, most: int) -> list[Value] | None:
        """The visible documents in which the field has this value, which is neither null nor an array nor a pattern.

        None if there are more than `most`.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class RunContext:
    """What a running pipeline may ask of the outside; `exec` implements it, one per operation.

    now_ms: the operation's instant. limits: what a stage may hold in memory. space: where it goes on beyond that, None
    where the operation may not use the disk and fails with error 292 instead.
    metadata: keywords that `{$meta: …}` reads somewhere; where there are none, no document carries anything.
    """

    def __init__(self, now_ms: int = 0, limits: MemoryLimits | None = None, space: SpillSpace | None = None) -> None:
        self.now_ms: Final = now_ms
        self.limits: Final = MemoryLimits() if limits is None else limits
        self.space: Final = space
        self.metadata: set[str] = set()

    def evaluation(self) -> EvaluationContext:
        """A fresh evaluation context for a stage of its own."""
        return EvaluationContext()

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        """The visible documents of a collection or view, already narrowed by a filter where one is given.

        ctx: what the filter was written in; its variables are known to it.
        """
        raise NotImplementedError

    def open_near(self, near: "GeoNearSpec") -> DocumentSource:
        """What a `$geoNear` finds, with distance and place as metadata. Errors: see `exec.geo_near`."""
        raise NotImplementedError

    def has_index(self, database: str, collection: str, path: str) -> bool:
        """Whether equality on a path is answered by an index: an equality join then asks for each document."""
        return False

    def equality_probe(self, database: str, collection: str, path: str) -> EqualityProbe | None:
        """The shortest way from values at a path to documents, where an index answers without a plan."""
        return None

    def describe_collection(self, namespace: str) -> list[tuple[str, Value]]:
        """The fields that `$collStats` always has: `ns`, `host`, `localTime`."""
        raise NotImplementedError

    def storage_statistics(self, namespace: str, scale: Value) -> Value:
        """Sizes in units of `scale` bytes, as a raw document. BadValue (2) and TypeMismatch (14) for a bad scale."""
        raise NotImplementedError

    def latency_statistics(self, namespace: str, histograms: bool) -> Value:
        """`{reads: {latency, ops}, writes, commands, transactions}`, as a raw document; latency in microseconds."""
        raise NotImplementedError

    def execution_statistics(self, namespace: str) -> Value:
        """`{collectionScans: {total, nonTailable}}`, as a raw document. NamespaceNotFound (26) without collection."""
        raise NotImplementedError

    def count_collection(self, namespace: str) -> Value:
        """How many documents there are. NamespaceNotFound (26) without collection."""
        raise NotImplementedError

    def index_statistics(self, namespace: str) -> list[bytes]:
        """A document per index, for `$indexStats`; none without collection."""
        raise NotImplementedError

    def cluster_catalog(self, database: str, shards: bool) -> list[bytes]:
        """What there is in a database, or everywhere if it is `admin`, for `$listClusterCatalog`."""
        raise NotImplementedError

    def operations(self, options: dict[str, Value]) -> list[bytes]:
        """What runs now, for `$currentOp`; with `idleConnections` and the like what does not, too."""
        raise NotImplementedError

    def plan_cache(self, namespace: str) -> list[bytes]:
        """The plans that are remembered. 50933 without collection."""
        raise NotImplementedError

    def query_settings(self, debug: bool) -> list[bytes]:
        """What is laid down for query shapes. debug: with the shapes themselves."""
        raise NotImplementedError

    def sessions(self) -> list[bytes]:
        """`{_id: <lsid>, lastUse}` of each logical session."""
        raise NotImplementedError

    def is_time_series(self, namespace: str) -> bool:
        """Whether this is a time series collection."""
        return False

    def random(self) -> float:
        """A number from [0, 1), for `$sample`."""
        raise NotImplementedError

    def check_out(self, database: str, collection: str, time_series: bytes | None) -> None:
        """Whether `$out` may replace a collection. 7268700 where it would have to become one of another kind."""
        raise NotImplementedError

    def open_output(self, database: str, collection: str, time_series: bytes | None) -> str:
        """Makes a temporary collection with the options and indexes of the target; its name.

        time_series: the options of a target that is to be made a time series collection, as written.
        """
        raise NotImplementedError

    def insert_output(self, database: str, temporary: str, documents: list[bytes]) -> None:
        """Inserts a few documents into a temporary collection. DuplicateKeyError (11000)."""
        raise NotImplementedError

    def publish_output(self, database: str, temporary: str, collection: str) -> None:
        """Gives a temporary collection its target's name, and drops what had that name, in one unit of work."""
        raise NotImplementedError

    def discard_output(self, database: str, temporary: str) -> None:
        """Drops a temporary collection if it is still there."""
        raise NotImplementedError

    def check_merge(self, database: str, collection: str, on: list[str], named: bool) -> bool:
        """Whether the unique index on these paths is sparse. 51183 if there is no such index."""
        raise NotImplementedError

    def with_id(self, document: bytes) -> bytes:
        """The document with an `_id` of its own."""
        raise NotImplementedError

    def merge_document(self, database: str, collection: str, request: "MergeRequest") -> None:
        """Writes one result of `$merge`. 13113 where it meets no document and should."""
        raise NotImplementedError


def drain(source: DocumentSource) -> list[bytes]:
    """All documents that are left."""
    documents: list[bytes] = []
    while True:
        batch = source.next_batch()
        if batch is None:
            return documents
        documents.extend(batch)


class OutputQueue:
    """Results that are ready, handed out in batches."""

    def __init__(self) -> None:
        self._documents: list[bytes] = []
        self._position = 0

    def put(self, documents: list[bytes]) -> None:
        self._documents.extend(documents)

    def take(self) -> list[bytes] | None:
        """The next batch; None if nothing is left."""
        start = self._position
        if start >= len(self._documents):
            self._documents = []
            self._position = 0
            return None
        self._position = start + BATCH_SIZE
        return self._documents[start : self._position]


def as_document(value: Value) -> bytes:
    """A value that is known to be a document."""
    if isinstance(value, bytes):
        return value
    raise TypeError("not a document")
