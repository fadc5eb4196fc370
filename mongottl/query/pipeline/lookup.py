"""`$lookup`: joins documents of another collection, which the RunContext opens, to each document.

An equality join without an index on the foreign field reads the foreign collection once into a hash table
(`foreign_table`). If that needs too much memory, it reads the collection once for each batch of outer documents, into a
table of the values that these have; if even that needs too much, for each half of the batch, and so on. With an index,
or for values whose equality is not equality of keys, each document queries the collection with a filter. A pipeline of
`$lookup` is parsed again for each outer document, with its `let` variables as constants, so that filters in it can use
indexes.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.annotated import copy_metadata
from mongottl.document.bson_field import check_known, missing_field, read_fields, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.set_path import set_path, with_value
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext, with_room_for
from mongottl.query.expr import UNBOUND, Expression, parse_expression
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import check_user_name
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.foreign_table import ForeignTable, are_plain, is_simple, key_of, local_values
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
from mongottl.query.spill import SpillSpace
from mongottl.versions import LOOKUP_WITH_BOTH, OLDEST, SYNTAX

_MAX_PROBED: Final = 64  # foreign documents of one value that are fetched by an equality probe
_MAX_BATCHES_PER_CALL: Final = 8  # batches that one call reads from the foreign collection
_MAX_CACHED_BYTES: Final = 16 << 20  # of foreign documents, cached for the other outer documents of a batch


class LookupSpec(StageSpec):
    """`$lookup`.

    foreign, local: paths, both or neither. let: names and expressions. pipeline: its original stages.

    unwind: a following `$unwind` of the joined array, performed here. extra_filter: a filter on foreign documents.
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
        extra_filter: bytes | None = None,
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
        self.extra_filter: Final = extra_filter
        self.one_to_one = unwind is None

    def effect(self) -> Effect | None:
        changed = [self.into.parts[0]]
        if self.unwind is not None and self.unwind.index_path is not None:
            changed.append(self.unwind.index_path.parts[0])
        return Effect(changed)

    def coalesced(self, following: StageSpec) -> StageSpec | None:
        """Absorbs an `$unwind` of the joined array, so that no array is built."""
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
        if filter is not None and self.extra_filter is not None:
            filter = all_of([self.extra_filter, filter])
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
        if self.extra_filter is not None:
            stages.append(encode({"$match": self.extra_filter}))
        if self.pipeline is not None or stages:
            let: list[tuple[str, Value]] = list_for(len(self.let))
            for name, node in self.let:
                give_way()
                let.append((name, node.describe()))
            described.append(("let", encode_fields(let)))
            described.append(("pipeline", stages))
        if self.unwind is not None:
            unwinding: dict[str, Value] = {"preserveNullAndEmptyArrays": self.unwind.preserve}
            if self.unwind.index_path is not None:
                unwinding["includeArrayIndex"] = self.unwind.index_path.dotted
            described.append(("unwinding", encode(unwinding)))
        return encode({"$lookup": encode_fields(described)})


class LookupSource(TransformSource):
    """With `unwind`, foreign documents are joined as they are read: at most an outer document and a batch of foreign
    ones are in memory. Otherwise all foreign documents of one outer document are, up to the limit.
    """

    def __init__(self, source: DocumentSource, spec: LookupSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._ev: Final = run.evaluation()
        self._batch: list[bytes] = []
        self._position = 0
        self._table: ForeignTable | None = None
        self._table_share: Final = run.memory.share()
        self._share: Final = run.memory.share()  # of all else
        self._has_dropped_table = False
        # Whether a table of the whole collection is too large. Then a table has the values of the outer documents up to
        # `_part_end`, and is None if only one of them can use it.
        self._in_parts = False
        self._part_end = 0
        self._cached: Final[dict[bytes, list[Value]]] = {}
        self._cached_bytes: i64 = 0
        # State of the outer document at `_position`: whether it has been started; foreign documents that are read,
        # joined up to `_next_foreign`; how many have been joined; the source of further ones, None at its end.
        self._begun = False
        self._found: list[Value] = []
        self._next_foreign = 0
        self._joined = 0
        self._foreign: DocumentSource | None = None
        # All foreign documents of the outer one, to be cached under this key unless they are too large.
        self._all: list[Value] | None = None
        self._found_bytes: i64 = 0
        self._key = b""
        # Whether an equality probe may be used, and the probe of this call with the number of its documents.
        self._may_probe = False
        self._probe: EqualityProbe | None = None
        self._probed = 0
        foreign = spec.foreign
        if foreign is not None and spec.pipeline is None:
            plain = all(index < 0 for index in foreign.indexes)
            self._may_probe = plain and spec.extra_filter is None and spec.ctx.collation is None
            if plain and not run.has_index(spec.database, spec.collection, foreign.dotted):
                self._table = self._new_table(foreign, None)

    def next_batch(self) -> list[bytes] | None:
        if self._has_dropped_table:
            self._restore_table()
        if self._position >= len(self._batch):
            batch = self.source.next_batch()
            if batch is None:
                return None
            self._batch = batch
            self._position = 0
            self._cached.clear()
            self._cached_bytes = 0
            self._part_end = 0
            foreign = self._spec.foreign
            if foreign is not None and self._table is not None and not self._in_parts and self._table.is_outdated():
                self._table = self._new_table(foreign, None)
        end = len(self._batch)
        if self._in_parts and end > 0:
            if self._position >= self._part_end:
                self._begin_part()
            end = self._part_end
        table = self._table
        if table is not None and not table.complete and self._batch:
            table.read()
            if table.too_large:
                self._reduce_table(table)
            return []
        foreign_path = self._spec.foreign
        self._probed = 0
        if self._may_probe and self._table is None and foreign_path is not None and self._batch:
            self._probe = self._run.equality_probe(self._spec.database, self._spec.collection, foreign_path.dotted)
        unwind = self._spec.unwind
        joined: list[bytes] = []
        room: i64 = BATCH_BYTES
        batches = 0
        while self._position < end and batches < _MAX_BATCHES_PER_CALL and self._probed < MAX_OUTPUT:
            doc = self._batch[self._position]
            if not self._begun:
                self._begin(doc)
            if unwind is not None:
                room = self._unwind(doc, unwind, joined, room)
            if room > 0 and len(joined) < MAX_OUTPUT:
                if self._foreign is not None:
                    batches += 1
                    self._read_foreign(self._foreign)
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

    def held_bytes(self) -> int:
        held = self.source.held_bytes() + int(self._cached_bytes) + int(self._found_bytes)
        return held if self._table is None else held + self._table.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        """Drops what can be read again: the table, and the cached documents."""
        self._cached.clear()
        self._cached_bytes = 0
        if self._table is not None and self._table.held_bytes():
            self._drop_table()
            self._has_dropped_table = True
        return self.source.spill(space)

    def _restore_table(self) -> None:
        """Begins the table that was dropped again."""
        self._has_dropped_table = False
        foreign = self._spec.foreign
        if self._in_parts:
            self._part_end = self._position
        elif foreign is not None:
            self._table = self._new_table(foreign, None)

    def close(self) -> None:
        if self._foreign is not None:
            self._foreign.close()
        self._drop_table()
        self._cached.clear()
        self._found = []
        self._share.release()
        self.source.close()

    def _drop_table(self) -> None:
        table = self._table
        self._table = None
        if table is not None:
            table.close()

    def _with_all(self, doc: bytes) -> bytes:
        """A document with the array of its foreign documents."""
        return with_value(doc, self._spec.into, self._found)

    def _with_none(self, doc: bytes, unwind: UnwindSpec) -> bytes:
        """A document without foreign documents, as `$unwind` keeps it with preserveNullAndEmptyArrays."""
        into = self._spec.into
        emptied = set_path(with_value(doc, into, []), 0, into.part_bytes, 0, 0, b"")
        return with_index(copy_metadata(doc, emptied), unwind.index_path, None)

    def _unwind(self, doc: bytes, unwind: UnwindSpec, into: list[bytes], room: i64) -> i64:
        """Joins a document to each of its foreign documents while there is room; returns the remaining room in
        bytes."""
        found = self._found
        next_foreign = self._next_foreign
        path = self._spec.into
        while next_foreign < len(found) and room > 0 and len(into) < MAX_OUTPUT:
            changed = with_index(with_value(doc, path, found[next_foreign]), unwind.index_path, self._joined)
            into.append(changed)
            room -= i64(len(changed))
            self._joined += 1
            next_foreign += 1
        if next_foreign >= len(found):
            self._found = []
            next_foreign = 0
        self._next_foreign = next_foreign
        return room

    def _count(self, batch: list[Value] | list[bytes]) -> None:
        """Adds to the size of the foreign documents of the current one.

        4568 if they are too large for one array; 146 if all running operations hold too much.
        """
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
        if not self._share.hold(self._found_bytes + self._cached_bytes):
            self._cached.clear()
            self._cached_bytes = 0
            if not self._share.need(self._found_bytes) and self._spec.unwind is None:
                raise self._share.memory.exceeded("$lookup")

    def _new_table(self, foreign: FieldPath, wanted: set[bytes] | None) -> "ForeignTable":
        spec = self._spec
        source = self._run.open_collection(spec.database, spec.collection, spec.extra_filter, spec.ctx)
        limit = self._run.limits.lookup_table_bytes
        return ForeignTable(source, foreign, spec.ctx.collation, limit, self._table_share, wanted)

    def _begin_part(self) -> None:
        """Begins a table of the values of the remaining outer documents, unless only one of them can use it."""
        self._drop_table()
        self._part_end = len(self._batch)
        wanted = self._wanted_in_part()
        spec = self._spec
        foreign = spec.foreign
        if wanted and foreign is not None and not self._run.has_index(spec.database, spec.collection, foreign.dotted):
            self._table = self._new_table(foreign, wanted)

    def _reduce_table(self, table: ForeignTable) -> None:
        """Restricts a table that is too large to the values of fewer outer documents, each time half as many."""
        while table.too_large:
            if self._in_parts:
                self._part_end = self._position + (self._part_end - self._position) // 2
            else:
                self._in_parts = True
                self._part_end = len(self._batch)
            wanted = self._wanted_in_part()
            if not wanted:
                self._drop_table()
                self._part_end = max(self._part_end, self._position + 1)
                return
            table.reduce(wanted)

    def _wanted_in_part(self) -> set[bytes]:
        """The keys of the values that the outer documents of the part look for; empty if there is at most one."""
        spec = self._spec
        local = spec.local
        if local is None:
            raise AssertionError("a table without fields")
        wanted: set[bytes] = set()
        count = 0
        for doc in self._batch[self._position : self._part_end]:
            values = local_values(doc, local)
            if are_plain(values):
                count += 1
                wanted.update([key_of(value, spec.ctx.collation) for value in values])
        return wanted if count > 1 else set()

    def _begin(self, doc: bytes) -> None:
        """Finds the foreign documents of a document, or opens their source."""
        self._begun = True
        self._found = []
        self._next_foreign = 0
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
            probed = probe.find(values[0], _MAX_PROBED)
            if probed is not None:
                self._probed += len(probed)
                self._found = probed
                self._count(probed)
                return
        self._key = encode_value(values)
        known = self._cached.get(self._key)
        if known is not None:
            self._found = known
            self._count(known)
            return
        match = self._filter(values)
        if spec.extra_filter is not None:
            match = encode({"$and": [match, spec.extra_filter]})
        self._foreign = self._run.open_collection(spec.database, spec.collection, match, spec.ctx)
        self._all = []

    def _read_foreign(self, foreign: DocumentSource) -> None:
        """Reads a batch of foreign documents of the current document."""
        batch = foreign.next_batch()
        if batch is None:
            self._foreign = None
            foreign.close()
            everything = self._all
            if everything is not None:
                self._cached[self._key] = everything
                self._cached_bytes += self._found_bytes
                self._all = None
            return
        self._count(batch)
        everything = self._all
        if everything is not None:
            if self._cached_bytes + self._found_bytes > _MAX_CACHED_BYTES:
                self._all = None
            else:
                everything.extend(batch)
        self._found.extend(batch)

    def _end(self) -> None:
        """Ends the current document, whose foreign documents are all read."""
        self._begun = False
        self._found = []
        self._position += 1

    def _filter(self, values: list[Value]) -> bytes:
        """The filter for a foreign field that equals one of the values."""
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
        let = with_room_for(spec.ctx.let, len(spec.let))
        self._ev.root = doc
        for name, node in spec.let:
            give_way()
            let[name] = node.evaluate(self._ev)
        outer = spec.ctx
        namespace = f"{spec.database}.{spec.collection}"
        ctx = ParseContext(outer.now_ms, let, namespace, collation=outer.collation, cluster_time=outer.cluster_time)
        ctx.open_scripts = outer.open_scripts
        if spec.extra_filter is not None:
            stages = [*stages, encode({"$match": spec.extra_filter})]
        return open_on_collection(parse_pipeline(stages, ctx), ctx, self._run, match)


_LOOKUP_FIELDS: Final = ["from", "localField", "foreignField", "let", "pipeline", "as"]


@stage(
    "$lookup",
    StageTraits(streaming=True, multiplies=True, joined_field="from", has_pipeline=True, planned=True),
    since=OLDEST,
)
def parse_lookup(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{from, localField, foreignField, let, pipeline, as}`. FailedToParse for a bad shape, 51047 for `$out` inside."""
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse, f"the $lookup specification must be an object, but found type {type_of(argument)}"
        )
    parameters = read_fields("$lookup", argument)
    for key in ("as", "localField", "foreignField"):
        value = parameters.get(key, MISSING)
        if is_nullish(value) or (value == "" and key != "as"):
            parameters.pop(key, None)  # null counts as absent, and so does an empty field name
        elif not isinstance(value, str):
            raise wrong_type(f"$lookup.{key}", value, "string")
    pipeline = parameters.get("pipeline", MISSING)
    has_documents = brings_documents(pipeline)
    if "from" in parameters:
        if has_documents:
            raise CommandError(ErrorCode.InvalidNamespace, "$documents must not be used with a collection in 'from'")
        database, collection = target_namespace("$lookup", parameters["from"], ctx)
    else:
        if not has_documents:
            raise CommandError(ErrorCode.FailedToParse, "must specify 'pipeline' when 'from' is empty")
        database, collection = ctx.database, "$cmd.aggregate"
    into = parameters.get("as", MISSING)
    if not isinstance(into, str):
        raise missing_field("$lookup.as")
    if ("localField" in parameters) != ("foreignField" in parameters):
        raise CommandError(
            ErrorCode.FailedToParse, "$lookup requires both or neither of 'localField' and 'foreignField'"
        )
    if "localField" in parameters and not isinstance(pipeline, Missing) and ctx.lacks(SYNTAX, LOOKUP_WITH_BOTH):
        raise CommandError(
            ErrorCode.FailedToParse,
            "$lookup with 'pipeline' may not specify 'localField' or 'foreignField'",
            advice=ctx.advice(SYNTAX, LOOKUP_WITH_BOTH),
        )
    if isinstance(pipeline, Missing):
        if "localField" not in parameters:
            raise CommandError(
                ErrorCode.FailedToParse, "$lookup requires either 'pipeline' or both 'localField' and 'foreignField'"
            )
        if not is_nullish(parameters.get("let", MISSING)):
            raise CommandError(ErrorCode.FailedToParse, "$lookup with a 'let' argument must also specify 'pipeline'")
    check_known("$lookup", parameters, _LOOKUP_FIELDS)
    let = _let_variables(parameters.get("let", MISSING), ctx)
    stages: list[Value] | None = None
    if not isinstance(pipeline, Missing):
        names = with_room_for(ctx.let, len(let))
        for name, _ in let:
            give_way()
            names[name] = UNBOUND
        inner = ParseContext(
            ctx.now_ms, names, f"{database}.{collection}", collation=ctx.collation, cluster_time=ctx.cluster_time
        ).inheriting(ctx)
        parse_sub_pipeline(pipeline, "$lookup", 51047, inner)
        stages = pipeline if isinstance(pipeline, list) else None
    local = _path(parameters.get("localField", MISSING))
    foreign = _path(parameters.get("foreignField", MISSING))
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
    members = fields(value)
    let: list[tuple[str, Expression]] = list_for(len(members))
    for name, expression in members:
        give_way()
        check_user_name(name)
        let.append((name, parse_expression(expression, ctx)))
    return let
