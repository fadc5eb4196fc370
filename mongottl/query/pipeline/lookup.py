"""`$lookup`: documents of another collection joined to each document, asked of the RunContext.

An equality join without an index on the foreign field reads the foreign collection once and keeps it by value, batch by
batch (`foreign_table`); with an index, or for values whose equality is not plain, each document asks with a filter of
its own. A pipeline of `$lookup` is parsed again for each outer document, with its `let` variables as constants, so that
filters in it can use indexes.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.annotated import copy_metadata
from mongottl.document.bson_field import check_known, missing_field, read_fields, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.set_path import set_path, with_value
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import UNBOUND, Expression, parse_expression
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import check_user_name
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.foreign_table import ForeignTable, are_plain, is_simple, local_values
from mongottl.query.pipeline.pushdown import all_of
from mongottl.query.pipeline.run_context import EqualityProbe, RunContext
from mongottl.query.pipeline.source import BATCH_BYTES, DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, parse_pipeline, stage
from mongottl.query.pipeline.subpipeline import (
    brings_documents,
    open_on_collection,
    parse_sub_pipeline,
    target_namespace,
)
from mongottl.query.pipeline.unwind import MAX_OUTPUT, UnwindSpec, with_index

_PROBED: Final = 64  # documents of one value that are fetched without a plan
_ASKED_AT_ONCE: Final = 8  # how often one call asks the foreign collection for a batch
_REMEMBERED_BYTES: Final = 16 << 20  # of foreign documents that are kept for further outer documents of a batch


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
            filter = all_of([self.narrowing, filter])
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


class LookupSource(TransformSource):
    """Where what is joined is unwound, foreign documents are joined as they come: an outer document and a batch of
    foreign ones are held at most. Otherwise all of one outer document are, up to the limit.
    """

    def __init__(self, source: DocumentSource, spec: LookupSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._ev: Final = run.evaluation()
        self._batch: list[bytes] = []
        self._position = 0
        self._table: ForeignTable | None = None
        self._remembered: Final[dict[bytes, list[Value]]] = {}
        self._remembered_bytes: i64 = 0
        # Of the outer document at `_position`: whether it has been looked at; foreign documents that are read but not
        # joined yet, from `_place` on; how many have been joined; where more come from, None for no more.
        self._begun = False
        self._found: list[Value] = []
        self._place = 0
        self._joined = 0
        self._foreign: DocumentSource | None = None
        # What has been found for it, all of it, unless that is too much to be remembered under this key.
        self._all: list[Value] | None = None
        self._found_bytes: i64 = 0
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
            self._remembered_bytes = 0
            foreign = self._spec.foreign
            if foreign is not None and self._table is not None and self._table.is_outdated():
                self._table = self._new_table(foreign)
        table = self._table
        if table is not None and not table.complete and self._batch:
            table.read()
            if table.too_large:
                self._table = None
            return []
        foreign_path = self._spec.foreign
        self._probed = 0
        if self._may_probe and self._table is None and foreign_path is not None and self._batch:
            self._probe = self._run.equality_probe(self._spec.database, self._spec.collection, foreign_path.dotted)
        unwind = self._spec.unwind
        joined: list[bytes] = []
        room: i64 = BATCH_BYTES
        asked = 0
        while self._position < len(self._batch) and asked < _ASKED_AT_ONCE and self._probed < MAX_OUTPUT:
            doc = self._batch[self._position]
            if not self._begun:
                self._begin(doc)
            if unwind is not None:
                room = self._unwind(doc, unwind, joined, room)
            if room > 0 and len(joined) < MAX_OUTPUT:
                if self._foreign is not None:
                    asked += 1
                    self._ask(self._foreign)
                    continue
                if unwind is None:
                    changed = self._with_all(doc)
                    room -= i64(len(changed))
                    joined.append(changed)
                elif self._joined == 0 and unwind.preserve:
                    joined.append(self._with_none(doc, unwind))
                self._end()
            if room <= 0 or len(joined) >= MAX_OUTPUT:
                break
        return joined

    def close(self) -> None:
        if self._foreign is not None:
            self._foreign.close()
        self.source.close()

    def _with_all(self, doc: bytes) -> bytes:
        """A document with an array of all that has been found for it."""
        return with_value(doc, self._spec.into, self._found)

    def _with_none(self, doc: bytes, unwind: UnwindSpec) -> bytes:
        """A document that `$unwind` keeps although nothing is joined to it."""
        into = self._spec.into
        emptied = set_path(with_value(doc, into, []), 0, into.part_bytes, 0, 0, b"")
        return with_index(copy_metadata(doc, emptied), unwind.index_path, None)

    def _unwind(self, doc: bytes, unwind: UnwindSpec, into: list[bytes], room: i64) -> i64:
        """Joins a document to each of those that have been found, as long as there is room; what is left of that."""
        found = self._found
        place = self._place
        path = self._spec.into
        while place < len(found) and room > 0 and len(into) < MAX_OUTPUT:
            changed = with_index(with_value(doc, path, found[place]), unwind.index_path, self._joined)
            into.append(changed)
            room -= i64(len(changed))
            self._joined += 1
            place += 1
        if place >= len(found):
            self._found = []
            place = 0
        self._place = place
        return room

    def _count(self, batch: list[Value] | list[bytes]) -> None:
        """Counts what has been found for a document. 4568 if that is too much for one array."""
        for document in batch:
            if isinstance(document, bytes):
                self._found_bytes += i64(len(document))
        limit = self._run.limits.lookup_document_bytes
        if self._spec.unwind is None and self._found_bytes > limit:
            raise CommandError(
                4568,
                f"Total size of documents in {self._spec.collection} matching pipeline's $lookup stage exceeds"
                f" {limit} bytes",
            )

    def _new_table(self, foreign: FieldPath) -> "ForeignTable":
        spec = self._spec
        source = self._run.open_collection(spec.database, spec.collection, spec.narrowing, spec.ctx)
        return ForeignTable(source, foreign, spec.ctx.collation, self._run.limits.lookup_table_bytes)

    def _begin(self, doc: bytes) -> None:
        """Finds what is joined to a document, or opens what gives it."""
        self._begun = True
        self._found = []
        self._place = 0
        self._joined = 0
        self._all = None
        self._found_bytes = 0
        spec = self._spec
        local = spec.local
        if local is None:
            self._foreign = self._open_pipeline(doc, None)
            return
        values = local_values(doc, local)
        if spec.pipeline is not None:
            self._foreign = self._open_pipeline(doc, self._filter(values))
            return
        table = self._table
        if table is not None and are_plain(values):
            self._found = table.find(values)
            self._count(self._found)
            return
        probe = self._probe
        if probe is not None and len(values) == 1 and is_simple(values[0]):
            probed = probe.find(values[0], _PROBED)
            if probed is not None:
                self._probed += len(probed)
                self._found = probed
                self._count(probed)
                return
        self._key = encode_value(values)
        known = self._remembered.get(self._key)
        if known is not None:
            self._found = known
            self._count(known)
            return
        match = self._filter(values)
        if spec.narrowing is not None:
            match = encode({"$and": [match, spec.narrowing]})
        self._foreign = self._run.open_collection(spec.database, spec.collection, match, spec.ctx)
        self._all = []

    def _ask(self, foreign: DocumentSource) -> None:
        """Takes in a batch of what is joined to the current document."""
        batch = foreign.next_batch()
        if batch is None:
            self._foreign = None
            foreign.close()
            everything = self._all
            if everything is not None:
                self._remembered[self._key] = everything
                self._remembered_bytes += self._found_bytes
                self._all = None
            return
        self._count(batch)
        everything = self._all
        if everything is not None:
            if self._remembered_bytes + self._found_bytes > _REMEMBERED_BYTES:
                self._all = None
            else:
                everything.extend(batch)
        self._found.extend(batch)

    def _end(self) -> None:
        """The current document has got all that there is to join."""
        self._begun = False
        self._found = []
        self._position += 1

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


_LOOKUP_FIELDS: Final = ["from", "localField", "foreignField", "let", "pipeline", "as"]


@stage("$lookup", StageTraits(streaming=True, multiplies=True, joined_field="from", has_pipeline=True, planned=True))
def parse_lookup(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{from, localField, foreignField, let, pipeline, as}`. FailedToParse for a bad shape, 51047 for `$out` inside."""
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse, f"the $lookup specification must be an object, but found type {type_of(argument)}"
        )
    written = read_fields("$lookup", argument)
    for key in ("as", "localField", "foreignField"):
        value = written.get(key, MISSING)
        if is_nullish(value) or (value == "" and key != "as"):
            written.pop(key, None)  # null is as good as absent, and so is a field without a name
        elif not isinstance(value, str):
            raise wrong_type(f"$lookup.{key}", value, "string")
    pipeline = written.get("pipeline", MISSING)
    has_documents = brings_documents(pipeline)
    if "from" in written:
        if has_documents:
            raise CommandError(ErrorCode.InvalidNamespace, "$documents must not be used with a collection in 'from'")
        database, collection = target_namespace("$lookup", written["from"], ctx)
    else:
        if not has_documents:
            raise CommandError(ErrorCode.FailedToParse, "must specify 'pipeline' when 'from' is empty")
        database, collection = ctx.database, "$cmd.aggregate"
    into = written.get("as", MISSING)
    if not isinstance(into, str):
        raise missing_field("$lookup.as")
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
    check_field_path(into)
    return [LookupSpec(database, collection, local, foreign, let, stages, FieldPath(into), ctx)]


def _path(value: Value) -> FieldPath | None:
    if not isinstance(value, str):
        return None
    check_field_path(value)
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
