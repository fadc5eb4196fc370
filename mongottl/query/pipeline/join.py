"""`$lookup $unionWith $graphLookup`: documents of other collections, asked of the RunContext.

An equality join without an index on the foreign field reads the foreign collection once and keeps it by value, batch by
batch; with an index, or for values whose equality is not plain, each document asks with a filter of its own. A pipeline
of `$lookup` is parsed again for each outer document, with its `let` variables as constants, so that filters in it can
use indexes.
"""

from typing import Final

from mongottl.document.annotated import carried
from mongottl.document.bson_field import check_known, read_fields, unknown_field, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.build import encode_value as encode_typed
from mongottl.document.collation import Collation
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, check_field_path, values_at
from mongottl.document.types import MISSING, Date, Int64, Missing, ObjectId, Regex, Undefined, Value
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import UNBOUND, Expression, parse_expression
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.numbers import whole, width
from mongottl.query.expr.parser import show, type_of
from mongottl.query.expr.path import check_user_name, value_at
from mongottl.query.match import parse_match
from mongottl.query.pipeline.basic import MatchSource, MatchSpec
from mongottl.query.pipeline.effect import KEEPS_ALL, Effect
from mongottl.query.pipeline.optimise import optimise
from mongottl.query.pipeline.source import DocumentSource, EqualityProbe, RunContext, TransformSource
from mongottl.query.pipeline.stage import StageSpec, open_pipeline, parse_pipeline, requested_by, stage
from mongottl.query.pipeline.unwind import MAX_OUTPUT, UnwindSpec, set_path, with_index

HASH_JOIN_BYTES: Final = 100 << 20  # of foreign documents that an equality join keeps
_DOCUMENT_TYPE: Final = 3
GRAPH_VALUES: Final = 1000  # that one filter of a $graphLookup asks an index for
_PROBED: Final = 64  # documents of one value that are fetched without a plan
_ASKED_AT_ONCE: Final = 8  # how often one call asks the foreign collection for a batch


class LookupSpec(StageSpec):
    """foreign, local: paths, both or neither. let: names and expressions. pipeline: its stages as written.

    unwind: of what is joined, done here at once. narrowing: a filter that joined documents must pass.
    """

    def __init__(
        self,
        database: str,
        collection: str,
        local: FieldPath | None,
        foreign: FieldPath | None,
        let: list[tuple[str, Expression]],
        pipeline: list[Value] | None,
        into: FieldPath,
        ctx: ParseContext,
        unwind: UnwindSpec | None = None,
        narrowing: bytes | None = None,
    ) -> None:
        self.name = "$lookup"
        self.database: Final = database
        self.collection: Final = collection
        self.local: Final = local
        self.foreign: Final = foreign
        self.let: Final = let
        self.pipeline: Final = pipeline
        self.into: Final = into
        self.ctx: Final = ctx
        self.unwind: Final = unwind
        self.narrowing: Final = narrowing
        self.one_to_one = unwind is None

    def effect(self) -> Effect | None:
        changed = [self.into.parts[0]]
        if self.unwind is not None and self.unwind.index_path is not None:
            changed.append(self.unwind.index_path.parts[0])
        return Effect(changed)

    def coalesced(self, following: StageSpec) -> StageSpec | None:
        """With an `$unwind` of what is joined no array is made of it."""
        if self.unwind is None and isinstance(following, UnwindSpec) and following.path.dotted == self.into.dotted:
            return self._changed(following, None)
        return None

    def joined_path(self) -> str:
        unwind = self.unwind
        if unwind is None or unwind.preserve or unwind.index_path is not None or self.into.depth > 1:
            return ""
        return self.into.dotted

    def joining(self, filter: bytes) -> StageSpec:
        return self._changed(self.unwind, filter)

    def _changed(self, unwind: UnwindSpec | None, filter: bytes | None) -> "LookupSpec":
        if filter is not None and self.narrowing is not None:
            filter = encode({"$and": [self.narrowing, filter]})
        changed = LookupSpec(
            self.database,
            self.collection,
            self.local,
            self.foreign,
            self.let,
            self.pipeline,
            self.into,
            self.ctx,
            unwind,
            filter,
        )
        changed.requested = self.requested
        return changed

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return LookupSource(source, self, run)

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = [("from", self.collection), ("as", self.into.dotted)]
        if self.local is not None and self.foreign is not None:
            described.append(("localField", self.local.dotted))
            described.append(("foreignField", self.foreign.dotted))
        stages: list[Value] = [] if self.pipeline is None else list(self.pipeline)
        if self.narrowing is not None:
            stages.append(encode({"$match": self.narrowing}))
        if self.pipeline is not None or stages:
            described.append(("let", encode_fields([(name, node.describe()) for name, node in self.let])))
            described.append(("pipeline", stages))
        if self.unwind is not None:
            unwinding: dict[str, Value] = {"preserveNullAndEmptyArrays": self.unwind.preserve}
            if self.unwind.index_path is not None:
                unwinding["includeArrayIndex"] = self.unwind.index_path.dotted
            described.append(("unwinding", encode(unwinding)))
        return encode({"$lookup": encode_fields(described)})


def with_value(doc: bytes, path: FieldPath, value: Value) -> bytes:
    """The document with a value at a path; what is on the way and no document is replaced by one."""
    type_code, raw = encode_typed(value)
    return carried(doc, set_path(doc, 0, path.part_bytes, 0, type_code, raw))


class LookupSource(TransformSource):
    def __init__(self, source: DocumentSource, spec: LookupSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._ev: Final = run.evaluation()
        self._batch: list[bytes] = []
        self._position = 0
        self._table: ForeignTable | None = None
        self._remembered: Final[dict[bytes, list[Value]]] = {}
        # The foreign documents of the outer document at `_position`, and what they have given so far.
        self._foreign: DocumentSource | None = None
        self._found: list[Value] = []
        self._key = b""
        # Whether a probe may answer, and the one of this call with what it has found so far.
        self._may_probe = False
        self._probe: EqualityProbe | None = None
        self._probed = 0
        foreign = spec.foreign
        if foreign is not None and spec.pipeline is None:
            plain = all(index < 0 for index in foreign.indexes)
            self._may_probe = plain and spec.narrowing is None and spec.ctx.collation is None
            if plain and not run.has_index(spec.database, spec.collection, foreign.dotted):
                self._table = self._new_table(foreign)

    def next_batch(self) -> list[bytes] | None:
        if self._position >= len(self._batch):
            batch = self.source.next_batch()
            if batch is None:
                return None
            self._batch = batch
            self._position = 0
            self._remembered.clear()
            foreign = self._spec.foreign
            if foreign is not None and self._table is not None and self._table.is_outdated():
                self._table = self._new_table(foreign)
        table = self._table
        if table is not None and not table.complete and self._batch:
            table.read()
            if table.too_large:
                self._table = None
            return []
        joined: list[bytes] = []
        asked = 0
        foreign_path = self._spec.foreign
        self._probed = 0
        if self._may_probe and self._table is None and foreign_path is not None and self._batch:
            self._probe = self._run.equality_probe(self._spec.database, self._spec.collection, foreign_path.dotted)
        while self._position < len(self._batch) and asked < _ASKED_AT_ONCE and self._probed < MAX_OUTPUT:
            doc = self._batch[self._position]
            found = self._matches(doc)
            if found is None:
                asked += 1
                continue
            joined.extend(self._joined(doc, found))
            self._position += 1
            if len(joined) >= MAX_OUTPUT:
                break
        return joined

    def close(self) -> None:
        if self._foreign is not None:
            self._foreign.close()
        self.source.close()

    def _joined(self, doc: bytes, found: list[Value]) -> list[bytes]:
        """A document with what is joined to it; one for each of these where they are unwound."""
        into = self._spec.into
        unwind = self._spec.unwind
        if unwind is None:
            changed = with_value(doc, into, found)
            if len(changed) - len(doc) > self._run.limits.lookup_document_bytes:
                raise CommandError(
                    4568,
                    f"Total size of documents in {self._spec.collection} matching pipeline's $lookup stage exceeds"
                    f" {self._run.limits.lookup_document_bytes} bytes",
                )
            return [changed]
        results: list[bytes] = []
        for place in range(len(found)):
            results.append(with_index(with_value(doc, into, found[place]), unwind.index_path, place))
        if not found and unwind.preserve:
            emptied = set_path(with_value(doc, into, []), 0, into.part_bytes, 0, 0, b"")
            results.append(with_index(carried(doc, emptied), unwind.index_path, None))
        return results

    def _new_table(self, foreign: FieldPath) -> "ForeignTable":
        spec = self._spec
        source = self._run.open_collection(spec.database, spec.collection, spec.narrowing, spec.ctx)
        return ForeignTable(source, foreign, spec.ctx.collation)

    def _matches(self, doc: bytes) -> list[Value] | None:
        """What is joined to a document; None if the foreign collection has been asked and is to be asked for more."""
        foreign = self._foreign
        if foreign is not None:
            return self._next_found(foreign)
        spec = self._spec
        local = spec.local
        if local is None:
            self._foreign = self._open_pipeline(doc, None)
            return None
        values = _local_values(doc, local)
        if spec.pipeline is not None:
            self._foreign = self._open_pipeline(doc, self._filter(values))
            return None
        table = self._table
        if table is not None and _are_plain(values):
            return table.find(values)
        probe = self._probe
        if probe is not None and len(values) == 1 and _is_simple(values[0]):
            probed = probe.find(values[0], _PROBED)
            if probed is not None:
                self._probed += len(probed)
                return probed
        self._key = encode_value(values)
        known = self._remembered.get(self._key)
        if known is None:
            match = self._filter(values)
            if spec.narrowing is not None:
                match = encode({"$and": [match, spec.narrowing]})
            self._foreign = self._run.open_collection(spec.database, spec.collection, match, spec.ctx)
        return known

    def _next_found(self, foreign: DocumentSource) -> list[Value] | None:
        batch = foreign.next_batch()
        if batch is not None:
            self._found.extend(batch)
            return None
        found = self._found
        self._found = []
        self._foreign = None
        foreign.close()
        if self._spec.pipeline is None:
            self._remembered[self._key] = found
        return found

    def _filter(self, values: list[Value]) -> bytes:
        """The filter that the foreign field equals one of the values."""
        foreign = self._spec.foreign
        if foreign is None:
            raise AssertionError("a local field without a foreign one")
        alternatives: list[Value] = []
        for item in values:
            alternatives.append(encode({foreign.dotted: encode({"$eq": item})}))
        if not alternatives:
            return encode({"$alwaysFalse": 1})
        return encode({"$or": alternatives})

    def _open_pipeline(self, doc: bytes, match: bytes | None) -> DocumentSource:
        spec = self._spec
        stages = spec.pipeline
        if stages is None:
            raise AssertionError("neither fields nor a pipeline")
        let = dict(spec.ctx.let)
        self._ev.root = doc
        for name, node in spec.let:
            let[name] = node.evaluate(self._ev)
        ctx = ParseContext(spec.ctx.now_ms, let, f"{spec.database}.{spec.collection}", collation=spec.ctx.collation)
        if spec.narrowing is not None:
            stages = [*stages, encode({"$match": spec.narrowing})]
        return open_on_collection(parse_pipeline(stages, ctx), ctx, self._run, match)


def open_on_collection(
    specs: list[StageSpec], ctx: ParseContext, run: RunContext, match: bytes | None
) -> DocumentSource:
    """A pipeline opened on the collection of its context, whose first `$match` narrows what is read."""
    run.metadata |= requested_by(specs)
    specs = optimise(specs, ctx)
    if specs and specs[0].first_only:
        first_source = specs[0].open(EmptySource(), run)
        if match is not None:
            first_source = MatchSource(first_source, parse_match(match, ctx))
        return open_pipeline(specs[1:], first_source, run)
    if specs and isinstance(specs[0], MatchSpec):
        first = specs[0].filter
        match = first if match is None else encode({"$and": [match, first]})
        specs = specs[1:]
    database, _, collection = ctx.namespace.partition(".")
    return open_pipeline(specs, run.open_collection(database, collection, match, ctx), run)


class EmptySource(DocumentSource):
    def next_batch(self) -> list[bytes] | None:
        return None


def _local_values(doc: bytes, path: FieldPath) -> list[Value]:
    """What the local field offers for comparison: the elements of arrays, and null where there is nothing."""
    values = values_at(doc, path)
    if values:
        return [None if is_nullish(value) else value for value in values]
    if path.depth == 1 and isinstance(value_at(doc, _DOCUMENT_TYPE, 0, path.part_bytes, 0), list):
        return []
    return [None]


def _is_simple(value: Value) -> bool:
    """Whether a value is of a type whose equality is that of its keys in any index."""
    if isinstance(value, float):
        return value == value
    return isinstance(value, (str, int, ObjectId, Date))


def _are_plain(values: list[Value]) -> bool:
    """Whether equality with each is equality of keys: not so for null, arrays and patterns."""
    return all(not isinstance(value, (list, Regex)) and value is not None for value in values)


class ForeignTable:
    """The documents of a collection by the values of a field."""

    def __init__(self, source: DocumentSource, path: FieldPath, collation: Collation | None) -> None:
        self._source: Final = source
        self._collation: Final = collation
        self._path: Final = path
        self._by_key: Final[dict[bytes, list[int]]] = {}
        self._documents: Final[list[bytes]] = []
        self._size = 0
        self.complete = False
        self.too_large = False

    def read(self) -> None:
        """Takes in one batch."""
        batch = self._source.next_batch()
        if batch is None:
            self.complete = True
            return
        for doc in batch:
            place = len(self._documents)
            self._documents.append(doc)
            self._size += len(doc)
            for value in values_at(doc, self._path):
                places = self._by_key.setdefault(self._key_of(value), [])
                if not places or places[-1] != place:
                    places.append(place)
        if self._size > HASH_JOIN_BYTES:
            self.too_large = True
            self._source.close()

    def _key_of(self, value: Value) -> bytes:
        return encode_value(value, False, self._collation)

    def is_outdated(self) -> bool:
        return self._source.is_outdated()

    def find(self, values: list[Value]) -> list[Value]:
        """The documents whose field has one of the values, in the collection's order."""
        if len(values) == 1:
            return [self._documents[place] for place in self._by_key.get(self._key_of(values[0]), [])]
        places: set[int] = set()
        for value in values:
            places.update(self._by_key.get(self._key_of(value), []))
        return [self._documents[place] for place in sorted(places)]


def target_namespace(stage_name: str, value: Value, ctx: ParseContext) -> tuple[str, str]:
    """(database, collection) of a `from` or `coll`: a collection's name in the same database."""
    if isinstance(value, bytes):
        for key, part in fields(value):
            if key not in ("db", "coll"):
                raise unknown_field(f"{stage_name}.from.{key}")
            if not isinstance(part, str):
                raise wrong_type(f"{stage_name}.from.{key}", part, "string")
    if not isinstance(value, str):
        raise CommandError(
            ErrorCode.FailedToParse, f"{stage_name} argument 'from' must be a string, is type {type_of(value)}"
        )
    if value == "" or "\0" in value or value.startswith("."):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid collection name: '{value}'")
    return ctx.database, value


_ADMIN_STAGES: Final = frozenset({"$currentOp", "$listSessions", "$listLocalSessions"})
_MAX_NESTING: Final = 20  # pipelines inside pipelines


def parse_sub_pipeline(value: Value, name: str, code: int, ctx: ParseContext) -> list[StageSpec]:
    """A pipeline inside another stage. `code` refuses `$out` and `$merge`; 232 for more than 20 inside each other."""
    if not isinstance(value, list):
        raise wrong_type(f"{name}.pipeline", value, "array")
    if _nesting(value) > _MAX_NESTING:
        raise CommandError(232, f"Maximum number of nested sub-pipelines exceeded. Limit is {_MAX_NESTING}")
    for item in value:
        if not isinstance(item, bytes):
            raise CommandError(ErrorCode.TypeMismatch, "Each element of the 'pipeline' array must be an object")
        stage_name = first_field_name(item)
        if stage_name in ("$out", "$merge", "$changeStream"):
            raise CommandError(code, f"{stage_name} is not allowed within a {name}'s sub-pipeline")
        if stage_name in _ADMIN_STAGES:
            raise CommandError(ErrorCode.InvalidNamespace, f"{stage_name} must be run against the 'admin' database")
    return parse_pipeline(value, ctx)


def _nesting(stages: list[Value]) -> int:
    """How many pipelines stand inside each other, this one included."""
    deepest = 0
    for item in stages:
        if isinstance(item, bytes) and first_field_name(item) in ("$lookup", "$unionWith"):
            argument = get_value(item, first_field_name(item))
            inner = get_value(argument, "pipeline") if isinstance(argument, bytes) else MISSING
            if isinstance(inner, list):
                deepest = max(deepest, _nesting(inner))
    return deepest + 1


_LOOKUP_FIELDS: Final = ["from", "localField", "foreignField", "let", "pipeline", "as"]


@stage("$lookup")
def parse_lookup(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{from, localField, foreignField, let, pipeline, as}`. FailedToParse for a bad shape, 51047 for `$out` inside."""
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse, f"the $lookup specification must be an object, but found type {type_of(argument)}"
        )
    written = read_fields("$lookup", argument)
    for key in ("as", "localField", "foreignField"):
        if key in written and not isinstance(written[key], str):
            raise CommandError(
                ErrorCode.FailedToParse,
                f"$lookup argument '{key}: {show(written[key])}' must be a string, is type {type_of(written[key])}",
            )
    into = written.get("as", MISSING)
    if not isinstance(into, str):
        raise CommandError(ErrorCode.FailedToParse, "must specify 'as' field for a $lookup")
    pipeline = written.get("pipeline", MISSING)
    brings_documents = _brings_documents(pipeline)
    if "from" in written:
        if brings_documents:
            raise CommandError(ErrorCode.InvalidNamespace, "$documents must not be used with a collection in 'from'")
        database, collection = target_namespace("$lookup", written["from"], ctx)
    else:
        if not brings_documents:
            raise CommandError(ErrorCode.FailedToParse, "must specify 'pipeline' when 'from' is empty")
        database, collection = ctx.database, "$cmd.aggregate"
    if ("localField" in written) != ("foreignField" in written):
        raise CommandError(
            ErrorCode.FailedToParse, "$lookup requires both or neither of 'localField' and 'foreignField'"
        )
    if isinstance(pipeline, Missing):
        if "localField" not in written:
            raise CommandError(
                ErrorCode.FailedToParse, "$lookup requires either 'pipeline' or both 'localField' and 'foreignField'"
            )
        if not is_nullish(written.get("let", MISSING)):
            raise CommandError(ErrorCode.FailedToParse, "$lookup with a 'let' argument must also specify 'pipeline'")
    check_known("$lookup", written, _LOOKUP_FIELDS)
    let = _let_variables(written.get("let", MISSING), ctx)
    stages: list[Value] | None = None
    if not isinstance(pipeline, Missing):
        names = dict(ctx.let)
        for name, _ in let:
            names[name] = UNBOUND
        inner = ParseContext(ctx.now_ms, names, f"{database}.{collection}", collation=ctx.collation)
        parse_sub_pipeline(pipeline, "$lookup", 51047, inner)
        stages = pipeline if isinstance(pipeline, list) else None
    local = _path(written.get("localField", MISSING))
    foreign = _path(written.get("foreignField", MISSING))
    check_dbref_path(into)
    return [LookupSpec(database, collection, local, foreign, let, stages, FieldPath(into), ctx)]


def _brings_documents(pipeline: Value) -> bool:
    if not isinstance(pipeline, list) or not pipeline:
        return False
    first = pipeline[0]
    return isinstance(first, bytes) and first_field_name(first) == "$documents"


def check_dbref_path(path: str) -> None:
    """The errors of `check_field_path`, but the field names of DBRefs are allowed."""
    check_field_path(".".join([part[1:] if part in ("$id", "$ref", "$db") else part for part in path.split(".")]))


def _path(value: Value) -> FieldPath | None:
    if not isinstance(value, str):
        return None
    check_dbref_path(value)
    return FieldPath(value)


def _let_variables(value: Value, ctx: ParseContext) -> list[tuple[str, Expression]]:
    if is_nullish(value):
        return []
    if not isinstance(value, bytes):
        raise wrong_type("$lookup.let", value, "object")
    let: list[tuple[str, Expression]] = []
    for name, expression in fields(value):
        check_user_name(name)
        let.append((name, parse_expression(expression, ctx)))
    return let


class UnionSpec(StageSpec):
    def __init__(self, database: str, collection: str, pipeline: list[StageSpec], ctx: ParseContext) -> None:
        self.name = "$unionWith"
        self.database: Final = database
        self.collection: Final = collection
        self.pipeline: Final = pipeline
        self.ctx: Final = ctx

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return UnionSource(source, self, run)

    def describe(self) -> Value:
        stages: list[Value] = [spec.describe() for spec in self.pipeline]
        return encode({"$unionWith": {"coll": self.collection, "pipeline": stages}})

    def sub_pipelines(self) -> list[list[StageSpec]]:
        return [self.pipeline]

    def effect(self) -> Effect | None:
        return KEEPS_ALL

    def narrowed(self, filter: bytes) -> StageSpec:
        behind = MatchSpec(filter, parse_match(filter, self.ctx))
        narrowed = UnionSpec(self.database, self.collection, [*self.pipeline, behind], self.ctx)
        narrowed.requested = self.requested
        return narrowed


class UnionSource(TransformSource):
    def __init__(self, source: DocumentSource, spec: UnionSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._second: DocumentSource | None = None

    def next_batch(self) -> list[bytes] | None:
        second = self._second
        if second is not None:
            return second.next_batch()
        batch = self.source.next_batch()
        if batch is not None:
            return batch
        self._second = open_on_collection(self._spec.pipeline, self._spec.ctx, self._run, None)
        return []

    def close(self) -> None:
        self.source.close()
        if self._second is not None:
            self._second.close()


@stage("$unionWith")
def parse_union_with(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`<collection>` or `{coll, pipeline}`. FailedToParse for another shape, 31441 for `$out` inside."""
    collection: Value = argument
    pipeline: Value = []
    if isinstance(argument, bytes):
        written = read_fields("$unionWith", argument)
        check_known("$unionWith", written, ["coll", "pipeline"])
        if "coll" not in written and not _brings_documents(written.get("pipeline", MISSING)):
            raise CommandError(
                ErrorCode.FailedToParse, "$unionWith needs 'coll' or a pipeline that begins with $documents"
            )
        collection = written.get("coll", "$cmd.aggregate")
        pipeline = written.get("pipeline", [])
    elif not isinstance(argument, str):
        raise CommandError(
            ErrorCode.FailedToParse,
            f"the $unionWith stage specification must be an object or string, but found {type_of(argument)}",
        )
    database, name = target_namespace("$unionWith", collection, ctx)
    inner = ParseContext(ctx.now_ms, ctx.let, f"{database}.{name}", collation=ctx.collation)
    return [UnionSpec(database, name, parse_sub_pipeline(pipeline, "$unionWith", 31441, inner), inner)]


class GraphLookupSpec(StageSpec):
    """max_depth: -1 for no limit. restrict: a further filter, or None."""

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
    """One search after the other, level by level: `_wanted` are the values of the level that are not asked for yet,
    `_frontier` those that the next one begins with.
    """

    def __init__(self, source: DocumentSource, spec: GraphLookupSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._ev: Final = run.evaluation()
        # With an index a few values are asked for at a time, without one all of a level, as each time costs a scan.
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
        self._found: list[Value] = []
        self._size = 0

    def next_batch(self) -> list[bytes] | None:
        if self._position >= len(self._batch):
            batch = self.source.next_batch()
            if batch is None:
                return None
            self._batch = batch
            self._position = 0
            return []
        for _ in range(_ASKED_AT_ONCE):
            if self._is_found():
                doc = self._batch[self._position]
                self._position += 1
                found = self._found
                self._found = []
                return [with_value(doc, self._spec.into, found)]
        return []

    def close(self) -> None:
        if self._foreign is not None:
            self._foreign.close()
        self.source.close()

    def _is_found(self) -> bool:
        """A step of the search for the current outer document; True at its end."""
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
                self._take(batch)
            return False
        if self._wanted:
            self._ask()
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
        self._next_level()
        self._searching = True

    def _next_level(self) -> None:
        """The values of the frontier that have not been asked for yet are wanted now."""
        for value in self._frontier:
            value = None if isinstance(value, Missing) else value
            key = encode_value(value, False, self._spec.ctx.collation)
            if key not in self._seen_values:
                self._seen_values.add(key)
                self._wanted.append(value)
        self._frontier = []

    def _ask(self) -> None:
        """Asks the foreign collection for some of the wanted values, or all."""
        wanted = self._wanted[: self._asked_at_once]
        del self._wanted[: self._asked_at_once]
        spec = self._spec
        self._foreign = self._run.open_collection(spec.database, spec.collection, self._filter(wanted), spec.ctx)

    def _take(self, batch: list[bytes]) -> None:
        spec = self._spec
        for match in batch:
            identity = encode_value(_id_of(match))
            if identity in self._seen_documents:
                continue
            self._seen_documents.add(identity)
            reached = value_at(match, _DOCUMENT_TYPE, 0, spec.connect_from.part_bytes, 0)
            if isinstance(reached, list):
                self._frontier.extend(reached)
            elif not isinstance(reached, Missing):
                self._frontier.append(reached)
            self._size += len(match)
            if self._size > self._run.limits.graph_lookup_bytes:
                raise CommandError(40099, "$graphLookup reached maximum memory consumption")
            if spec.depth_field is not None:
                match = with_value(match, spec.depth_field, Int64(self._depth))
            self._found.append(match)

    def _filter(self, values: list[Value]) -> bytes:
        plain: list[Value] = []
        alternatives: list[Value] = []
        for value in values:
            if isinstance(value, (Regex, Undefined)):
                # In `$in` they would be a pattern, and refused.
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
    return value_at(doc, _DOCUMENT_TYPE, 0, [b"_id"], 0)


@stage("$graphLookup")
def parse_graph_lookup(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{from, startWith, connectFromField, connectToField, as, maxDepth, depthField, restrictSearchWithMatch}`.

    FailedToParse without `from`, whatever else is wrong; 40105 without another that is needed.
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
                raise CommandError(40102, f"maxDepth could not be represented as a long long: {show(value)}")
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
