"""`$graphLookup`: a breadth-first search through the documents of another collection."""

from typing import Final

from mongottl.document.build import encode, encode_fields
from mongottl.document.keystring import encode_value
from mongottl.document.memory_size import size_of
from mongottl.document.numbers import whole
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.render import render_result
from mongottl.document.set_path import with_value
from mongottl.document.types import DOCUMENT, Int64, Missing, Regex, Undefined, Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Expression, parse_expression
from mongottl.query.expr.numbers import width
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import value_at
from mongottl.query.match import parse_match
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.pipeline.subpipeline import target_namespace
from mongottl.versions import OLDEST

GRAPH_VALUES: Final = 1000  # values in one filter of a $graphLookup that uses an index
_VALUE_BYTES: Final = 120  # approximate memory of a visited value besides its key
_MAX_BATCHES_PER_CALL: Final = 8  # batches that one call reads from the foreign collection


class GraphLookupSpec(StageSpec):
    """`$graphLookup`.

    max_depth: -1 for no limit. restrict: an additional filter, or None.
    """

    def __init__(
        self,
        database: str,
        collection: str,
        start: Expression,
        connect_from: FieldPath,
        connect_to: FieldPath,
        into: FieldPath,
        max_depth: int,
        depth_field: FieldPath | None,
        restrict: bytes | None,
        ctx: ParseContext,
    ) -> None:
        self.name = "$graphLookup"
        self.ctx: Final = ctx
        self.database: Final = database
        self.collection: Final = collection
        self.start: Final = start
        self.connect_from: Final = connect_from
        self.connect_to: Final = connect_to
        self.into: Final = into
        self.max_depth: Final = max_depth
        self.depth_field: Final = depth_field
        self.restrict: Final = restrict
        self.one_to_one = True

    def effect(self) -> Effect | None:
        return Effect([self.into.parts[0]])

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return GraphLookupSource(source, self, run)

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = [
            ("from", self.collection),
            ("as", self.into.dotted),
            ("connectToField", self.connect_to.dotted),
            ("connectFromField", self.connect_from.dotted),
            ("startWith", self.start.describe()),
        ]
        return encode({"$graphLookup": encode_fields(described)})


class GraphLookupSource(TransformSource):
    """Performs one search per input document. `_wanted`: values of the current level that have not been queried yet;
    `_frontier`: values with which the next level begins.
    """

    def __init__(self, source: DocumentSource, spec: GraphLookupSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._ev: Final = run.evaluation()
        # With an index a query asks for a few values; without one for all of a level, since each query is a scan.
        indexed = run.has_index(spec.database, spec.collection, spec.connect_to.dotted)
        self._asked_at_once: Final = GRAPH_VALUES if indexed else 1 << 30
        self._batch: list[bytes] = []
        self._position = 0  # of the outer document
        self._searching = False
        self._foreign: DocumentSource | None = None
        self._wanted: list[Value] = []
        self._frontier: list[Value] = []
        self._depth = 0
        self._seen_values: Final[set[bytes]] = set()
        self._seen_documents: Final[set[bytes]] = set()
        self._share: Final = run.memory.share()
        self._found: list[Value] = []
        # Sizes of the documents found and the values queried, and of the frontier.
        self._size = 0
        self._frontier_size = 0

    def next_batch(self) -> list[bytes] | None:
        if self._position >= len(self._batch):
            batch = self.source.next_batch()
            if batch is None:
                return None
            self._batch = batch
            self._position = 0
            return []
        for _ in range(_MAX_BATCHES_PER_CALL):
            if self._search_step():
                doc = self._batch[self._position]
                self._position += 1
                found = self._found
                self._found = []
                return [with_value(doc, self._spec.into, found)]
        return []

    def close(self) -> None:
        if self._foreign is not None:
            self._foreign.close()
        self._share.release()
        self.source.close()

    def _search_step(self) -> bool:
        """Performs a step of the search for the current outer document; True if it is complete."""
        if not self._searching:
            self._start()
            return False
        foreign = self._foreign
        if foreign is not None:
            batch = foreign.next_batch()
            if batch is None:
                self._foreign = None
                foreign.close()
            else:
                self._add_found(batch)
            return False
        if self._wanted:
            self._open_foreign()
            return False
        if self._depth != self._spec.max_depth:
            self._depth += 1
            self._next_level()
            if self._wanted:
                return False
        self._searching = False
        return True

    def _start(self) -> None:
        self._ev.root = self._batch[self._position]
        start = self._spec.start.evaluate(self._ev)
        self._seen_values.clear()
        self._seen_documents.clear()
        self._size = 0
        self._depth = 0
        self._frontier = start if isinstance(start, list) else [start]
        self._frontier_size = size_of(start)
        self._next_level()
        self._searching = True

    def _next_level(self) -> None:
        """Starts the next level: the values of the frontier that have not been queried become wanted."""
        for value in self._frontier:
            value = None if isinstance(value, Missing) else value
            key = encode_value(value, False, self._spec.ctx.collation)
            if key not in self._seen_values:
                self._seen_values.add(key)
                self._wanted.append(value)
                self._size += len(key) + _VALUE_BYTES
        self._frontier = []
        self._frontier_size = 0
        self._check_size()

    def _check_size(self) -> None:
        if self._size + self._frontier_size > self._run.limits.graph_lookup_bytes:
            raise CommandError(40099, "$graphLookup reached maximum memory consumption")
        if not self._share.need(self._size + self._frontier_size):
            raise self._share.memory.exceeded("$graphLookup")

    def _open_foreign(self) -> None:
        """Opens a query of the foreign collection for some or all of the wanted values."""
        wanted = self._wanted[: self._asked_at_once]
        del self._wanted[: self._asked_at_once]
        spec = self._spec
        self._foreign = self._run.open_collection(spec.database, spec.collection, self._filter(wanted), spec.ctx)

    def _add_found(self, batch: list[bytes]) -> None:
        spec = self._spec
        for match in batch:
            identity = encode_value(_id_of(match))
            if identity in self._seen_documents:
                continue
            self._seen_documents.add(identity)
            next_values = value_at(match, DOCUMENT, 0, spec.connect_from.part_bytes, 0)
            if isinstance(next_values, list):
                self._frontier.extend(next_values)
            elif not isinstance(next_values, Missing):
                self._frontier.append(next_values)
            self._frontier_size += size_of(next_values)
            self._size += len(identity) + len(match) + _VALUE_BYTES
            self._check_size()
            if spec.depth_field is not None:
                match = with_value(match, spec.depth_field, Int64(self._depth))
            self._found.append(match)

    def _filter(self, values: list[Value]) -> bytes:
        plain: list[Value] = []
        alternatives: list[Value] = []
        for value in values:
            if isinstance(value, (Regex, Undefined)):
                # In `$in` regular expressions would be patterns, and are refused.
                alternatives.append(encode({self._spec.connect_to.dotted: encode({"$eq": value})}))
            else:
                plain.append(value)
        if plain:
            alternatives.append(encode({self._spec.connect_to.dotted: encode({"$in": plain})}))
        either = encode({"$or": alternatives})
        restrict = self._spec.restrict
        if restrict is None:
            return either
        return encode({"$and": [restrict, either]})


def _id_of(doc: bytes) -> Value:
    return value_at(doc, DOCUMENT, 0, [b"_id"], 0)


@stage("$graphLookup", StageTraits(streaming=True, joined_field="from"), since=OLDEST)
def parse_graph_lookup(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{from, startWith, connectFromField, connectToField, as, maxDepth, depthField, restrictSearchWithMatch}`.

    FailedToParse without `from`, checked first; 40105 without another required field.
    """
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse,
            f"the $graphLookup specification must be an object, found {type_of(argument)}",
        )
    source = get_value(argument, "from")
    if isinstance(source, Missing):
        raise CommandError(ErrorCode.FailedToParse, "missing 'from' option to $graphLookup")
    database, collection = target_namespace("$graphLookup", source, ctx)
    start: Expression | None = None
    paths: dict[str, FieldPath] = {}
    max_depth = -1
    restrict: bytes | None = None
    for key, value in fields(argument):
        if key == "startWith":
            start = parse_expression(value, ctx)
        elif key == "maxDepth":
            if width(value) == 0:
                raise CommandError(40100, f"maxDepth must be numeric, found type: {type_of(value)}")
            depth = whole(value)
            if depth is None:
                raise CommandError(40102, f"maxDepth could not be represented as a long long: {render_result(value)}")
            if depth < 0:
                raise CommandError(40101, f"maxDepth requires a nonnegative argument, found: {depth}")
            max_depth = depth
        elif key == "restrictSearchWithMatch":
            if not isinstance(value, bytes):
                raise CommandError(40185, f"restrictSearchWithMatch must be an object, found {type_of(value)}")
            parse_match(value, ctx)
            restrict = value
        elif key == "from":
            continue
        elif key in ("as", "connectFromField", "connectToField", "depthField"):
            if not isinstance(value, str):
                raise CommandError(40103, f"expected string as argument for {key}, found: {type_of(value)}")
            check_field_path(value)
            paths[key] = FieldPath(value)
        else:
            raise CommandError(40104, f"Unknown argument to $graphLookup: {key}")
    complete = all(key in paths for key in ("as", "connectFromField", "connectToField"))
    if start is None or not complete:
        raise CommandError(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField'",
        )
    return [
        GraphLookupSpec(
            database,
            collection,
            start,
            paths["connectFromField"],
            paths["connectToField"],
            paths["as"],
            max_depth,
            paths.get("depthField"),
            restrict,
            ctx,
        )
    ]
