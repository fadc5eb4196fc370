"""`$out` and `$merge`: stages that write results into a collection.

They output no documents. Storing is implemented by the RunContext.
"""

from typing import Final

from mongottl.document.annotated import plain
from mongottl.document.bson_field import check_known, checked_word, missing_field, read_fields, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.freeing import list_for, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.types import MISSING, Missing, Value
from mongottl.document.walk import fields, get_value
from mongottl.errors import CommandError, ErrorCode, is_interruption
from mongottl.query.context import ParseContext, with_room_for
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.base import is_nullish
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import check_user_name, value_at
from mongottl.query.pipeline.run_context import MergeRequest, RunContext
from mongottl.query.pipeline.source import DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, check_length, stage
from mongottl.versions import OLDEST

WRITE_BATCH: Final = 64  # documents per call
WRITE_BYTES: Final = 2 << 20  # of the documents of a call, before the last one
_INTERNAL_DATABASES: Final = ("admin", "config", "local")
_DOCUMENT_TYPE: Final = 3
# What users must be allowed on the target.
_INSERT: Final = "insert"
_UPDATE: Final = "update"
# Not `linearizable`, as the manual has it. Nor `snapshot` (assumed): what they write is no part of what they read.
_READ_LEVELS: Final = frozenset(("local", "available", "majority"))


def end_of_write(batch: list[bytes], start: int) -> int:
    """Where the documents end that one call writes, of those from `start` on."""
    end = start
    room = WRITE_BYTES
    while end < len(batch) and end - start < WRITE_BATCH and room > 0:
        room -= len(batch[end])
        end += 1
    return end


class OutputSpec(StageSpec):
    """Base of `$out` and `$merge`. database, collection: the target."""

    def __init__(self, name: str, database: str, collection: str) -> None:
        self.name = name
        self.last_only = True
        self.database: Final = database
        self.collection: Final = collection


class OutSpec(OutputSpec):
    """`$out`.

    time_series: the original options if the target is to be a time series collection, or None.
    """

    def __init__(self, database: str, collection: str, time_series: bytes | None) -> None:
        super().__init__("$out", database, collection)
        self.time_series: Final = time_series

    def check(self, run: RunContext) -> None:
        run.check_out(self.database, self.collection, self.time_series)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return OutSource(source, self, run)

    def describe(self) -> Value:
        return encode({"$out": {"coll": self.collection, "db": self.database}})


class OutSource(TransformSource):
    """Fills a temporary collection, which replaces the target after the last document.

    Its documents count from when the collection replaces the target: just before that, `_ts` is set again in steps. If
    the target then waits for a transaction, both are done again afterwards.
    """

    def __init__(self, source: DocumentSource, spec: OutSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._temporary = ""
        self._batch: list[bytes] = []
        self._position = 0
        self._read = False  # whether all documents have been read
        self._stamped_through = 0  # the last record whose `_ts` was set again
        self._finished = False

    def next_batch(self) -> list[bytes] | None:
        if self._finished:
            return None
        spec = self._spec
        if self._temporary == "":
            self._temporary = self._run.open_output(spec.database, spec.collection, spec.time_series)
            return []
        if self._position < len(self._batch):
            start = self._position
            self._position = end_of_write(self._batch, start)
            self._run.insert_output(
                spec.database, self._temporary, spec.collection, self._batch[start : self._position]
            )
            return []
        if not self._read:
            batch = self.source.next_batch()
            if batch is not None:
                self._batch = [plain(document) for document in batch] if self._run.metadata else batch
                self._position = 0
                return []
            self._read = True
        self._stamped_through = self._run.stamp_output(spec.database, self._temporary, self._stamped_through)
        if self._stamped_through != 0:
            return []
        self._run.publish_output(spec.database, self._temporary, spec.collection)
        self._temporary = ""
        self._finished = True
        return None

    def close(self) -> None:
        temporary = self._temporary
        if temporary != "":
            self._temporary = ""
            self._finished = True
            self._run.discard_output(self._spec.database, temporary)
        self.source.close()


def _out_target(database: str, argument: Value) -> tuple[str, str, list[str]] | None:
    return _target(database, argument, [_INSERT, "remove"])


def _target(database: str, value: Value, actions: list[str]) -> tuple[str, str, list[str]] | None:
    """The target `"coll"` or `{db, coll}`; None for another form."""
    if isinstance(value, str):
        return database, value, actions
    if not isinstance(value, bytes):
        return None
    other = get_value(value, "db")
    collection = get_value(value, "coll")
    if not isinstance(collection, str):
        return None
    return other if isinstance(other, str) else database, collection, actions


@stage(
    "$out",
    StageTraits(
        writes=True, nested=False, in_facet=False, read_levels=_READ_LEVELS, target=_out_target, in_transaction=False
    ),
    since=OLDEST,
)
def parse_out(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`<collection>` or `{db, coll}`. 16990 for another type; InvalidNamespace (73), 17385, 31321 for bad targets."""
    database = ctx.database
    time_series: bytes | None = None
    if isinstance(argument, str):
        collection = argument
    elif isinstance(argument, bytes):
        parameters = read_fields("$out", argument)
        check_known("$out", parameters, ["db", "coll", "timeseries"])
        database = _required_string("$out", parameters, "db")
        collection = _required_string("$out", parameters, "coll")
        options = parameters.get("timeseries", MISSING)
        if not is_nullish(options):
            time_series = _checked_time_series(options)
    else:
        raise CommandError(16990, f"$out only supports a string or object argument, but found {type_of(argument)}")
    _check_target(database, collection)
    if collection.startswith("system."):
        raise CommandError(17385, f"Can't $out to special collection: {collection}")
    if database in _INTERNAL_DATABASES:
        raise CommandError(31321, f"Can't $out to internal database: {database}")
    return [OutSpec(database, collection, time_series)]


def _required_string(name: str, parameters: dict[str, Value], field: str) -> str:
    value = parameters.get(field, MISSING)
    if is_nullish(value):
        raise missing_field(f"{name}.{field}")
    if not isinstance(value, str):
        raise wrong_type(f"{name}.{field}", value, "string")
    return value


def _checked_time_series(options: Value) -> bytes:
    if not isinstance(options, bytes):
        raise wrong_type("$out.timeseries", options, "object")
    parameters = read_fields("$out.timeseries", options)
    known = ["timeField", "metaField", "granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds"]
    check_known("$out.timeseries", parameters, known)
    _required_string("$out.timeseries", parameters, "timeField")
    longest = is_nullish(parameters.get("bucketMaxSpanSeconds", MISSING))
    rounding = is_nullish(parameters.get("bucketRoundingSeconds", MISSING))
    if longest != rounding:
        raise CommandError(
            ErrorCode.InvalidOptions, "bucketMaxSpanSeconds and bucketRoundingSeconds must be given together"
        )
    return options


def _check_target(database: str, collection: str) -> None:
    """InvalidNamespace (73) for a name that is never valid for a collection."""
    bad_database = database == ""
    for character in "/\\. \0":
        if character in database:
            bad_database = True
    if bad_database or database.startswith("$"):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid namespace specified: {database}.{collection}")
    if collection == "" or "\0" in collection or collection.startswith("."):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid namespace specified: {database}.{collection}")


class MergeSpec(OutputSpec):
    """`$merge`.

    on: the paths by which documents are matched; named: whether the stage specifies them. pipeline: None unless
    when_matched is "pipeline".
    """

    def __init__(
        self,
        database: str,
        collection: str,
        on: list[FieldPath],
        named: bool,
        when_matched: str,
        pipeline: list[Value],
        let: list[tuple[str, Expression]],
        when_not_matched: str,
        ctx: ParseContext,
    ) -> None:
        super().__init__("$merge", database, collection)
        self.on: Final = on
        self.named: Final = named
        self.when_matched: Final = when_matched
        self.pipeline: Final = pipeline
        self.let: Final = let
        self.when_not_matched: Final = when_not_matched
        self.ctx: Final = ctx

    def check(self, run: RunContext) -> None:
        run.check_merge(self.database, self.collection, [path.dotted for path in self.on], self.named)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return MergeSource(source, self, run)

    def describe(self) -> Value:
        when_matched: Value = self.pipeline if self.when_matched == "pipeline" else self.when_matched
        described: list[tuple[str, Value]] = [
            ("into", encode({"db": self.database, "coll": self.collection})),
            ("on", self.on[0].dotted if len(self.on) == 1 else [path.dotted for path in self.on]),
            ("whenMatched", when_matched),
        ]
        if self.let:
            let: list[tuple[str, Value]] = list_for(len(self.let))
            for name, node in self.let:
                give_way()
                let.append((name, node.describe()))
            described.append(("let", encode_fields(let)))
        described.append(("whenNotMatched", self.when_not_matched))
        return encode({"$merge": encode_fields(described)})


class MergeSource(TransformSource):
    """If a document cannot be written, the others of its batch still are; then its error is raised. An interruption
    ends it at once."""

    def __init__(self, source: DocumentSource, spec: MergeSpec, run: RunContext) -> None:
        super().__init__(source)
        self._spec: Final = spec
        self._run: Final = run
        self._ev: Final[EvaluationContext] = run.evaluation()
        on = [path.dotted for path in spec.on]
        self._sparse: Final = run.check_merge(spec.database, spec.collection, on, spec.named)
        self._batch: list[bytes] = []
        self._position = 0
        # Those before the position that are to be written one by one.
        self._left: list[MergeRequest] = []
        self._error: CommandError | None = None

    def next_batch(self) -> list[bytes] | None:
        batch = self._batch
        if not self._left and self._position >= len(batch):
            error = self._error
            if error is not None:
                self._error = None
                raise error
            fresh = self.source.next_batch()
            if fresh is None:
                return None
            self._batch = [plain(document) for document in fresh] if self._run.metadata else fresh
            self._position = 0
            return []
        spec = self._spec
        if not self._left:
            self._left = self._run.merge_together(spec.database, spec.collection, self._requests())
        while self._left:
            try:
                # If the write has to wait for a transaction, the next call begins with the same document.
                self._run.merge_document(spec.database, spec.collection, self._left[0])
            except CommandError as error:
                if is_interruption(error):
                    raise
                if self._error is None:
                    self._error = error
            del self._left[0]
        return []

    def _requests(self) -> list[MergeRequest]:
        """The next ones, at least one. A document for which there is none ends the stage when it is the first."""
        batch = self._batch
        end = end_of_write(batch, self._position)
        requests: list[MergeRequest] = []
        while self._position < end:
            try:
                requests.append(self._request(batch[self._position]))
            except CommandError as error:
                if not requests or is_interruption(error):
                    raise
                break
            self._position += 1
        return requests

    def _request(self, document: bytes) -> MergeRequest:
        spec = self._spec
        wanted: list[tuple[str, Value]] = []
        for path in spec.on:
            value = value_at(document, _DOCUMENT_TYPE, 0, path.part_bytes, 0)
            if is_nullish(value):
                if path.dotted == "_id":
                    document = self._run.with_id(document)
                    value = value_at(document, _DOCUMENT_TYPE, 0, path.part_bytes, 0)
                elif self._sparse:
                    raise CommandError(
                        51132,
                        f"$merge write error: 'on' field '{path.dotted}' cannot be missing, null or undefined if"
                        " supporting index is sparse",
                    )
                else:
                    value = None
            if isinstance(value, list):
                raise CommandError(51185, f"$merge write error: 'on' field '{path.dotted}' cannot be an array")
            wanted.append((path.dotted, encode({"$eq": value})))
        let: dict[str, Value] = {}
        if spec.when_matched == "pipeline":
            let = with_room_for(spec.ctx.let, len(spec.let))
            self._ev.root = document
            for name, node in spec.let:
                give_way()
                value = node.evaluate(self._ev)
                let.pop(name, None)
                if not isinstance(value, Missing):
                    let[name] = value
            let["new"] = document
        return MergeRequest(
            document, encode_fields(wanted), spec.when_matched, spec.pipeline, let, spec.when_not_matched
        )


_MERGE_FIELDS: Final = ["into", "on", "let", "whenMatched", "whenNotMatched"]
_MATCHED: Final = ("replace", "keepExisting", "merge", "fail")
_NOT_MATCHED: Final = ("insert", "discard", "fail")


def _merge_target(database: str, argument: Value) -> tuple[str, str, list[str]] | None:
    """Inserting needs `insert`, changing documents `update`."""
    if not isinstance(argument, bytes):
        return _target(database, argument, [_INSERT, _UPDATE])
    actions: list[str] = []
    if get_value(argument, "whenNotMatched") not in ("discard", "fail"):
        actions.append(_INSERT)
    if get_value(argument, "whenMatched") not in ("keepExisting", "fail"):
        actions.append(_UPDATE)
    return _target(database, get_value(argument, "into"), actions or [_INSERT])


@stage(
    "$merge",
    StageTraits(
        writes=True, nested=False, in_facet=False, read_levels=_READ_LEVELS, target=_merge_target, in_transaction=False
    ),
    since=(4, 2),
)
def parse_merge(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`<collection>` or `{into, on, let, whenMatched, whenNotMatched}`.

    TypeMismatch, 40414, 40415 for a bad shape; 51178 to 51199, 51273, 5786800, 5786801 for bad fields; 51181 for a
    combination of modes that is not allowed; 31319, 31320 for targets that may not be written.
    """
    if isinstance(argument, str):
        _check_merge_target(ctx.database, argument)
        return [MergeSpec(ctx.database, argument, [FieldPath("_id")], False, "merge", [], [], "insert", ctx)]
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.TypeMismatch, f"$merge requires a string or object argument, but found {type_of(argument)}"
        )
    parameters = read_fields("$merge", argument)
    check_known("$merge", parameters, _MERGE_FIELDS)
    if "into" not in parameters:
        raise missing_field("$merge.into")
    database, collection = _into(parameters["into"], ctx)
    on = _on(parameters.get("on", "_id"))
    let_value = parameters.get("let", MISSING)
    if not is_nullish(let_value) and not isinstance(let_value, bytes):
        raise wrong_type("$merge.let", let_value, "object")
    pipeline: list[Value] = []
    when_matched = parameters.get("whenMatched", "merge")
    if isinstance(when_matched, list):
        pipeline = when_matched
        check_length(pipeline)
        for item in pipeline:
            if not isinstance(item, bytes):
                raise CommandError(ErrorCode.TypeMismatch, "Each element of the 'pipeline' array must be an object")
        mode = "pipeline"
    elif isinstance(when_matched, str):
        mode = checked_word("whenMatched", when_matched, _MATCHED)
    else:
        raise CommandError(
            51191, f"$merge 'whenMatched' field must be either a string or an array, but found {type_of(when_matched)}"
        )
    otherwise = parameters.get("whenNotMatched", "insert")
    if is_nullish(otherwise):
        otherwise = "insert"
    otherwise = checked_word("$merge.whenNotMatched", otherwise, _NOT_MATCHED)
    if isinstance(let_value, bytes) and mode != "pipeline":
        raise CommandError(51199, f"Cannot use 'let' variables with 'whenMatched: {mode}' mode")
    if mode in ("keepExisting", "fail") and otherwise != "insert":
        raise CommandError(
            51181,
            f"Combination of $merge modes 'whenMatched: {mode}' and 'whenNotMatched: {otherwise}' is not supported",
        )
    let = _let(let_value, ctx)
    _check_merge_target(database, collection)
    return [MergeSpec(database, collection, on, "on" in parameters, mode, pipeline, let, otherwise, ctx)]


def _into(value: Value, ctx: ParseContext) -> tuple[str, str]:
    if isinstance(value, str):
        if value == "":
            raise CommandError(5786800, "$merge 'into' field cannot be an empty string")
        return ctx.database, value
    if not isinstance(value, bytes):
        raise CommandError(
            51178, f"$merge 'into' field  must be either a string or an object, but found {type_of(value)}"
        )
    parameters = read_fields("into", value)
    check_known("into", parameters, ["db", "coll"])
    for key, part in parameters.items():
        if not is_nullish(part) and not isinstance(part, str):
            raise wrong_type(f"into.{key}", part, "string")
    collection = parameters.get("coll", MISSING)
    if not isinstance(collection, str) or collection == "":
        raise CommandError(5786801, "$merge 'into' field must specify a 'coll' that is not empty, null or undefined")
    database = parameters.get("db", MISSING)
    if not isinstance(database, str) or database == "":
        return ctx.database, collection
    return database, collection


def _check_merge_target(database: str, collection: str) -> None:
    _check_target(database, collection)
    if collection.startswith("system."):
        raise CommandError(31319, f"Cannot $merge to special collection: {collection}")
    if database in _INTERNAL_DATABASES:
        raise CommandError(31320, f"Cannot $merge to internal database: {database}")


def _on(value: Value) -> list[FieldPath]:
    names: list[str] = list_for(len(value)) if isinstance(value, list) else []
    if isinstance(value, str):
        names.append(value)
    elif isinstance(value, list):
        for item in value:
            give_way()
            if not isinstance(item, str):
                raise CommandError(51134, f"$merge 'on' array elements must be strings, but found {type_of(item)}")
            names.append(item)
        if not names:
            raise CommandError(51187, "If explicitly specifying $merge 'on', must include at least one field")
    else:
        raise CommandError(
            51186, f"$merge 'on' field  must be either a string or an array of strings, but found {type_of(value)}"
        )
    paths: list[FieldPath] = list_for(len(names))
    seen: set[str] = set_for(len(names))
    for name in names:
        give_way()
        check_field_path(name)
        if name in seen:
            raise CommandError(31465, f"Found a duplicate field '{name}' in $merge.on")
        seen.add(name)
        paths.append(FieldPath(name))
    return paths


def _let(value: Value, ctx: ParseContext) -> list[tuple[str, Expression]]:
    let: list[tuple[str, Expression]] = []
    if isinstance(value, bytes):
        members = fields(value)
        let = list_for(len(members))
        for name, expression in members:
            give_way()
            if name == "new":
                if not isinstance(expression, str) or expression != "$$ROOT":
                    raise CommandError(
                        51273, "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'"
                    )
                continue
            check_user_name(name)
            let.append((name, parse_expression(expression, ctx)))
    return let
