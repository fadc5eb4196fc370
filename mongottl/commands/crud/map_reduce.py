"""mapReduce.

Source: MongoDB's command reference.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import needing
from mongottl.commands.pipeline_access import pipeline_needs
from mongottl.commands.query_context import context_of
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, BOOL_FIELD, COLLECTION, DOCUMENT_FIELD, IGNORED, WHOLE, Field
from mongottl.commands.request_fields import BypassValidation, Collation, Sort
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.types import MISSING, Missing, Value, type_code_of, type_name
from mongottl.document.walk import ElementCursor, find_field, get_value, is_empty
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.write_options import write_options
from mongottl.exec.plan.planner import make_plan
from mongottl.exec.results.aggregation import plan_aggregation
from mongottl.exec.results.cursors import ClientCursor
from mongottl.query.context import ParseContext
from mongottl.query.expr.script import function_text
from mongottl.query.pipeline import StageSpec, optimise, parse_pipeline
from mongottl.query.pipeline.map_reduce import EmitSpec, group_by_emitted_key
from mongottl.security.privileges import Need

# The ways to write results into a collection.
_MODES: Final = ("replace", "merge", "reduce")
_OUT_FIELDS: Final = ("inline", "db", "sharded", "nonAtomic", *_MODES)


class MapReduceRequest(NamedTuple):
    collection: Annotated[str, Field("mapReduce", COLLECTION)]
    map: Annotated[Value, Field("map", ANY)]
    reduce: Annotated[Value, Field("reduce", ANY)]
    out: Annotated[Value, Field("out", ANY)]
    finalize: Annotated[Value, Field("finalize", ANY)] = MISSING
    query: Annotated[bytes, Field("query", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    sort: Sort = EMPTY_DOCUMENT
    limit: Annotated[int, Field("limit", WHOLE)] = 0
    scope: Annotated[bytes, Field("scope", DOCUMENT_FIELD)] = EMPTY_DOCUMENT
    js_mode: Annotated[bool, Field("jsMode", BOOL_FIELD)] = False
    verbose: Annotated[bool, Field("verbose", BOOL_FIELD)] = False
    collation: Collation = EMPTY_DOCUMENT
    bypass: BypassValidation = False
    splits: Annotated[Value, Field("splitInfo", IGNORED)] = None


class Output(NamedTuple):
    """Where the results go. mode: "replace", "merge", "reduce", or "inline" for the reply. named_database: whether the
    request names the database."""

    mode: str
    database: str = ""
    collection: str = ""
    named_database: bool = False

    def stage(self, functions: "Functions") -> bytes | None:
        """The `$out` or `$merge` that writes the results; None if they are returned."""
        if self.mode == "inline":
            return None
        target = encode({"db": self.database, "coll": self.collection})
        if self.mode == "replace":
            return encode({"$out": target})
        when_matched: Value = "replace"
        if self.mode == "reduce":
            both: list[Value] = ["$value", "$$new.value"]
            value = _call(functions.reduce, ["$_id", both])
            if functions.finalize:
                value = _call(functions.finalize, ["$_id", value])
            stages: list[Value] = [encode({"$project": encode({"value": value})})]
            when_matched = stages
        merge: dict[str, Value] = {
            "into": target,
            "on": "_id",
            "whenMatched": when_matched,
            "whenNotMatched": "insert",
        }
        return encode({"$merge": encode(merge)})


class Functions(NamedTuple):
    """The texts of the functions; finalize is empty if there is none."""

    map: str
    reduce: str
    finalize: str


def _call(code: str, arguments: list[Value]) -> bytes:
    return encode({"$function": encode({"body": encode({"$literal": code}), "args": arguments, "lang": "js"})})


def parse_output(database: str, out: Value) -> Output:
    """`"<collection>"`, `{inline: 1}` or `{<replace, merge or reduce>: <collection>, db: <name>}`. BadValue (2)."""
    if isinstance(out, str):
        return Output("replace", database, out)
    if not isinstance(out, bytes):
        raise CommandError(
            ErrorCode.BadValue, f"'out' must be either a string or an object, found {type_name(type_code_of(out))}"
        )
    given: dict[str, Value] = {}
    cursor = ElementCursor(out, 0)
    while cursor.next():
        name = cursor.name()
        if name not in _OUT_FIELDS:
            raise CommandError(ErrorCode.BadValue, f"unknown field of mapReduce's 'out': {shortened(name)}")
        if name in given:
            raise CommandError(ErrorCode.BadValue, f"duplicate field of mapReduce's 'out': {name}")
        given[name] = cursor.decoded_without_elements()
    modes = [name for name in (*_MODES, "inline") if name in given]
    if len(modes) != 1:
        raise CommandError(ErrorCode.BadValue, "'out' must have one of inline, replace, merge and reduce")
    if given.get("nonAtomic", True) is False:
        raise CommandError(ErrorCode.BadValue, "The nonAtomic:false option is no longer allowed in mapReduce")
    if given.get("sharded") is True:
        raise CommandError(ErrorCode.BadValue, "'out' cannot be sharded: this is a replica set")
    [mode] = modes
    if mode == "inline":
        return Output(mode)
    collection = given[mode]
    target = given.get("db", database)
    if not isinstance(collection, str) or not isinstance(target, str):
        raise CommandError(ErrorCode.BadValue, "the collection and the 'db' of 'out' must be strings")
    return Output(mode, target, collection, "db" in given)


def writes_somewhere(body: bytes) -> bool:
    """Whether a mapReduce with this body writes its results into a collection."""
    out = get_value(body, "out")
    return not (isinstance(out, bytes) and find_field(out, b"inline")[0] != 0)


def map_reduce_needs(op: OperationContext, request: MapReduceRequest) -> list[Need]:
    """What its pipeline needs."""
    stage = parse_output(op.database, request.out).stage(Functions("", "", ""))
    needs = pipeline_needs(op.database, request.collection, [])
    if stage is not None:
        written = pipeline_needs(op.database, request.collection, [stage])
        needs += [need for need in written if need not in needs]
    return needs


def _function(name: str, value: Value) -> str:
    """The text of a function. BadValue (2) for another type, and for code with a scope."""
    code = function_text(value)
    if code is None:
        raise CommandError(
            ErrorCode.BadValue, f"'{name}' must be of string or code type, found {type_name(type_code_of(value))}"
        )
    return code


def map_reduce_stages(request: MapReduceRequest, output: Output, context: ParseContext) -> list[StageSpec]:
    """The pipeline of a mapReduce. CommandNotSupported (115) if the server runs no JavaScript."""
    functions = Functions(
        _function("map", request.map),
        _function("reduce", request.reduce),
        "" if isinstance(request.finalize, Missing) else _function("finalize", request.finalize),
    )
    scripts = context.open_scripts("mapReduce")
    scripts.scope = request.scope
    first: list[Value] = []
    if not is_empty(request.query):
        first.append(encode({"$match": request.query}))
    if not is_empty(request.sort):
        first.append(encode({"$sort": request.sort}))
    if request.limit:
        first.append(encode({"$limit": request.limit}))
    last: list[Value] = []
    if functions.finalize:
        value = _call(functions.finalize, ["$_id", "$value"])
        last.append(encode({"$project": encode({"value": value})}))
    stage = output.stage(functions)
    if stage is not None:
        last.append(stage)
    return [
        *optimise(parse_pipeline(first, context), context),
        EmitSpec(functions.map, scripts),
        *parse_pipeline([encode({"$unwind": "$emits"})], context),
        group_by_emitted_key(functions.reduce, context, scripts),
        *parse_pipeline(last, context),
    ]


@command(
    "mapReduce",
    MapReduceRequest,
    access=needing(map_reduce_needs),
    help="Groups what a JavaScript function emits for each document by key, and reduces each group to a value.",
    aliases=("mapreduce",),
    writes_if=writes_somewhere,
    read_levels=frozenset(("local", "available")),
    may_be_abandoned=True,
    latency="commands",
)
def map_reduce(op: OperationContext, request: MapReduceRequest) -> Reply:
    """`{results: [{_id, value}, …]}` for `out: {inline: 1}`, else `{result: <collection>}`, or `{result: {db,
    collection}}` if `out` names a database. CommandNotSupportedOnView (166) for a view.
    """
    op.check_database()
    collection = op.catalog.lookup(op.database, request.collection)
    output = parse_output(op.database, request.out)
    op.write_options = write_options(request.bypass)
    context = context_of(op, request.collection, collation=request.collation)
    specs = op.compute(lambda: map_reduce_stages(request, output, context))
    plan = make_plan(op, collection, lambda: plan_aggregation(op, collection, specs, collation=context.collation))
    cursor = ClientCursor(
        f"{op.database}.{request.collection}", plan.open(op, True), op.session_key, op.service.clock.monotonic_s()
    )
    try:
        page = cursor.next_page(op, 0)
        if not cursor.exhausted:
            raise CommandError(ErrorCode.BSONObjectTooLarge, "the results of mapReduce are too large to be returned")
    finally:
        cursor.close()
    if output.mode == "inline":
        return {"results": page.documents()}
    if not output.named_database:
        return {"result": output.collection}
    return {"result": {"db": output.database, "collection": output.collection}}
