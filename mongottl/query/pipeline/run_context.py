"""What a running pipeline may ask of the server around it, and the requests that it hands over."""

import math
from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.config import MemoryLimits
from mongottl.document.build import encode
from mongottl.document.path import FieldPath
from mongottl.document.types import Value
from mongottl.geometry.geojson import Position
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext
from mongottl.query.match import MatchExpression
from mongottl.query.match.near import METRES, NearExpression
from mongottl.query.match.tree import AndExpression
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.spill import SpillSpace


@mypyc_attr(allow_interpreted_subclasses=True)
class EqualityProbe:
    """A way to documents by the value of one field, through an index. Good until others run."""

    def find(self, value: Value, most: int) -> list[Value] | None:
        """The visible documents in which the field has this value, which is neither null nor an array nor a pattern.

        None if there are more than `most`.
        """
        raise NotImplementedError


class MergeRequest:
    """What is to become of one document.

    match: the filter for the document that it meets. when_matched: "replace", "merge", "keepExisting", "fail" or
    "pipeline". pipeline, let: of the last. when_not_matched: "insert", "discard" or "fail".
    """

    def __init__(
        self,
        document: bytes,
        match: bytes,
        when_matched: str,
        pipeline: list[Value],
        let: dict[str, Value],
        when_not_matched: str,
    ) -> None:
        self.document: Final = document
        self.match: Final = match
        self.when_matched: Final = when_matched
        self.pipeline: Final = pipeline
        self.let: Final = let
        self.when_not_matched: Final = when_not_matched


class NearRequest:
    """What a `$geoNear` asks of a collection.

    argument: of the stage, as written. center, unit, min_distance, max_distance: as `NearExpression` has them.
    key: the path, "" where an index tells. query: a filter besides.
    """

    def __init__(self, argument: bytes, namespace: str) -> None:
        self.argument = argument
        self.namespace = namespace
        self.center: Position = (0.0, 0.0)
        self.unit = METRES
        self.min_distance = 0.0
        self.max_distance = math.inf
        self.key = ""
        self.query: MatchExpression = AndExpression([])

    def match(self, path: str) -> MatchExpression:
        """The filter, with the distance about this path."""
        near = NearExpression(FieldPath(path), encode({"$near": self.argument}), self.center, self.unit)
        near.min_distance = self.min_distance
        near.max_distance = self.max_distance
        return AndExpression([near, self.query]).simplify()


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

    def open_near(self, request: NearRequest, metadata: frozenset[str]) -> DocumentSource:
        """What a `$geoNear` finds, with these keywords of distance and place as metadata.

        NamespaceNotFound (26) without collection, IndexNotFound (27) without an index that could answer it.
        """
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

    def merge_document(self, database: str, collection: str, request: MergeRequest) -> None:
        """Writes one result of `$merge`. 13113 where it meets no document and should."""
        raise NotImplementedError
