"""The interface through which a running pipeline uses the server, and the requests of that interface."""

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
from mongottl.query.memory import OperationMemory
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.spill import SpillSpace


@mypyc_attr(allow_interpreted_subclasses=True)
class EqualityProbe:
    """Lookup of documents by the value of one field through an index. Valid until other operations run."""

    def find(self, value: Value, max_documents: int) -> list[Value] | None:
        """The visible documents in which the field has this value, which is not null, an array or a regular expression.

        None if there are more than `max_documents`.
        """
        raise NotImplementedError


class MergeRequest:
    """The write of one document by `$merge`.

    match: the filter for the document in the target. when_matched: "replace", "merge", "keepExisting", "fail" or
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
    """The query of a `$geoNear`.

    argument: the original argument of the stage. center, unit, min_distance, max_distance: as `NearExpression` has
    them.
    key: the path, "" for that of the geospatial index. query: an additional filter.
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
        """The filter for this path."""
        near = NearExpression(FieldPath(path), encode({"$near": self.argument}), self.center, self.unit)
        near.min_distance = self.min_distance
        near.max_distance = self.max_distance
        return AndExpression([near, self.query]).simplify()


@mypyc_attr(allow_interpreted_subclasses=True)
class RunContext:
    """The services of the server for a running pipeline; `exec` implements it, one per operation.

    now_ms: the operation's time. limits: memory limits of stages. space: temporary files for data beyond the limits;
    None if the operation may not use the disk and fails with error 292 instead.
    memory: what the operation holds. metadata: keywords that some `{$meta: …}` reads; documents have no other metadata.
    """

    def __init__(
        self,
        now_ms: int = 0,
        limits: MemoryLimits | None = None,
        space: SpillSpace | None = None,
        memory: OperationMemory | None = None,
    ) -> None:
        self.now_ms: Final = now_ms
        self.limits: Final = MemoryLimits() if limits is None else limits
        self.space: Final = space
        self.memory: Final = OperationMemory() if memory is None else memory
        self.metadata: set[str] = set()

    def evaluation(self) -> EvaluationContext:
        """A new evaluation context, for one stage."""
        return EvaluationContext()

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        """The visible documents of a collection or view that match a filter, if one is given.

        ctx: the parse context of the filter, with its variables.
        """
        raise NotImplementedError

    def open_near(self, request: NearRequest, metadata: frozenset[str]) -> DocumentSource:
        """The documents of a `$geoNear`, annotated with these keywords of distance and location.

        NamespaceNotFound (26) without the collection, IndexNotFound (27) without a suitable index.
        """
        raise NotImplementedError

    def has_index(self, database: str, collection: str, path: str) -> bool:
        """Whether an index supports equality on a path; an equality join then queries it for each document."""
        return False

    def equality_probe(self, database: str, collection: str, path: str) -> EqualityProbe | None:
        """A probe for documents by values at a path, if an index allows it without planning a query; else None."""
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
        """The number of documents. NamespaceNotFound (26) without the collection."""
        raise NotImplementedError

    def index_statistics(self, namespace: str) -> list[bytes]:
        """A document per index, for `$indexStats`; [] without the collection."""
        raise NotImplementedError

    def cluster_catalog(self, database: str, shards: bool) -> list[bytes]:
        """The collections of a database, or of all databases if it is `admin`, for `$listClusterCatalog`."""
        raise NotImplementedError

    def operations(self, options: dict[str, Value]) -> list[bytes]:
        """The running operations, for `$currentOp`; with `idleConnections` and similar options also idle ones."""
        raise NotImplementedError

    def plan_cache(self, namespace: str) -> list[bytes]:
        """The cached plans, for `$planCacheStats`. 50933 without the collection."""
        raise NotImplementedError

    def query_settings(self, debug: bool) -> list[bytes]:
        """The query settings, for `$querySettings`. debug: include the query shapes."""
        raise NotImplementedError

    def query_statistics(self, hmac_key: bytes | None) -> DocumentSource:
        """The recorded queries, for `$queryStats`. hmac_key: replaces names by their HMAC."""
        raise NotImplementedError

    def sessions(self, options: dict[str, Value]) -> list[bytes]:
        """`{_id: <lsid>, lastUse}` of each logical session."""
        raise NotImplementedError

    def is_time_series(self, namespace: str) -> bool:
        """Whether this is a time series collection."""
        return False

    def random(self) -> float:
        """A number from [0, 1), for `$sample`."""
        raise NotImplementedError

    def check_out(self, database: str, collection: str, time_series: bytes | None) -> None:
        """Checks whether `$out` may replace a collection. 7268700 if that would change its kind."""
        raise NotImplementedError

    def open_output(self, database: str, collection: str, time_series: bytes | None) -> str:
        """Creates a temporary collection with the options and indexes of the target; returns its name.

        time_series: the original options if the target is to be a time series collection, or None.
        """
        raise NotImplementedError

    def insert_output(self, database: str, temporary: str, collection: str, documents: list[bytes]) -> None:
        """Inserts a batch of documents into the temporary collection of a target. DuplicateKeyError (11000)."""
        raise NotImplementedError

    def stamp_output(self, database: str, temporary: str, after: int) -> int:
        """Sets `_ts` of the next documents of a temporary collection to now, if the target has a TTL.

        after: the last record of the call before, 0 at first. Returns the last record of this call, 0 after the end.
        """
        raise NotImplementedError

    def publish_output(self, database: str, temporary: str, collection: str) -> None:
        """Renames a temporary collection to its target, dropping an existing target, in one unit of work."""
        raise NotImplementedError

    def discard_output(self, database: str, temporary: str) -> None:
        """Drops a temporary collection if it still exists."""
        raise NotImplementedError

    def check_merge(self, database: str, collection: str, on: list[str], named: bool) -> bool:
        """Whether the unique index on these paths is sparse. 51183 if there is no such index."""
        raise NotImplementedError

    def with_id(self, document: bytes) -> bytes:
        """The document with a generated `_id` if it has none."""
        raise NotImplementedError

    def merge_together(self, database: str, collection: str, requests: list[MergeRequest]) -> list[MergeRequest]:
        """Writes results of `$merge` together; those that are left are to be written one by one."""
        raise NotImplementedError

    def merge_document(self, database: str, collection: str, request: MergeRequest) -> None:
        """Writes one result of `$merge`. 13113 if no document matches and whenNotMatched is "fail"."""
        raise NotImplementedError
