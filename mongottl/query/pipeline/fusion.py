"""`$rankFusion`: combines several rankings of a collection's documents by reciprocal rank fusion.

    {$rankFusion: {input: {pipelines: {a: [{$sort: …}], b: [{$match: …}, {$sort: …}]}}, combination: {weights: {b: 2}}}}

Each input pipeline selects and orders documents without changing them. A document's rank is its place, counted from 1;
documents with equal sort keys have the same rank, and the next one that of its place. Its score is the sum of weight /
(60 + rank) over the inputs that return it; documents are returned by descending score, then by `_id`. The score
is metadata (`score`), and so are its details, if they are requested (`scoreDetails`).

The documents are collected in memory. Source: MongoDB's "$rankFusion" page; the ranked stages of Atlas Search that it
mentions are not supported.
"""

from typing import Final

from mongottl.document.annotated import annotated, metadata_of, plain
from mongottl.document.bson_field import check_known, missing_field, read_fields, wrong_type
from mongottl.document.build import encode
from mongottl.document.compare import compare_values
from mongottl.document.freeing import list_for, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.numbers import to_double
from mongottl.document.render import render_value
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import MISSING, Value, is_number
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.metadata import GEO_NEAR_DISTANCE, SORT_KEY
from mongottl.query.pipeline.facet import FeedSource
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, OutputQueue
from mongottl.query.pipeline.stage import StageSpec, StageTraits, open_pipeline, parse_pipeline, stage, traits_of
from mongottl.query.pipeline.subpipeline import open_on_collection
from mongottl.query.spill import SpillSpace

NAME: Final = "$rankFusion"
SCORE: Final = "score"
SCORE_DETAILS: Final = "scoreDetails"
# The constant of reciprocal rank fusion.
RANK_CONSTANT: Final = 60

_DESCRIPTION: Final = (
    "value output by reciprocal rank fusion algorithm, computed as sum of (weight * (1 / (60 + rank))) across input"
    " pipelines from which this document is output, from:"
)


class RankFusionSpec(StageSpec):
    """`$rankFusion`.

    names, pipelines, weights: of the inputs, in their order. contexts: the parse context of each pipeline.
    """

    def __init__(
        self,
        argument: bytes,
        names: list[str],
        pipelines: list[list[StageSpec]],
        contexts: list[ParseContext],
        weights: list[float],
        details: bool,
    ) -> None:
        self.name = NAME
        self.first_only = True
        self.first_only_code = 10170100
        self.argument: Final = argument
        self.names: Final = names
        self.pipelines: Final = pipelines
        self.contexts: Final = contexts
        self.weights: Final = weights
        self.details: Final = details

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return RankFusionSource(source, self, run)

    def check(self, run: RunContext) -> None:
        if run.is_time_series(self.contexts[0].namespace):
            raise CommandError(10557301, f"{NAME} is not supported on time series collections")

    def describe(self) -> Value:
        return encode({NAME: self.argument})


_DOCUMENT_BYTES: Final = 400  # approximate memory of a document besides its bytes


class Ranked:
    """A document, its rank in each of the inputs, 0 if it is not in it, and its score in the end."""

    def __init__(self, document: bytes, inputs: int) -> None:
        self.document: Final = document
        self.ranks: Final[list[int]] = [0] * inputs
        self.score = 0.0


class RankFusionSource(DocumentSource):
    """Reads the inputs one after the other. In a `$facet`, the first input reads the documents of the facet."""

    def __init__(self, source: DocumentSource, spec: RankFusionSpec, run: RunContext) -> None:
        self._spec: Final = spec
        self._run: Final = run
        self._fed: Final = isinstance(source, FeedSource)
        self._source: Final = source
        if not self._fed:
            source.close()
        self._found: dict[bytes, Ranked] = {}
        self._share: Final = run.memory.share()
        self._size = 0
        self._input_index = 0
        self._place = 0
        self._rank = 0
        self._last_key: Value = MISSING
        self._input: DocumentSource | None = None
        self._output: OutputQueue | None = None

    def next_batch(self) -> list[bytes] | None:
        output = self._output
        if output is not None:
            return output.take()
        current = self._input
        if current is None:
            if self._input_index >= len(self._spec.pipelines):
                self._output = OutputQueue()
                self._output.put(self._fused())
                self._forget_found()
                self._size = 0
                return []
            current = self._open()
            self._input = current
            self._place = 0
            self._last_key = MISSING
        batch = current.next_batch()
        if batch is None:
            self._input = None
            self._input_index += 1
            return []
        inputs = len(self._spec.pipelines)
        for document in batch:
            self._place += 1
            sort_key = _sort_key(document)
            if sort_key is MISSING or self._last_key is MISSING or compare_values(sort_key, self._last_key) != 0:
                self._rank = self._place
            self._last_key = sort_key
            key = encode_value(get_value(document, "_id"))
            ranked = self._found.get(key)
            if ranked is None:
                self._size += len(document) + len(key) + _DOCUMENT_BYTES
                if self._size > self._run.limits.group_bytes:
                    raise CommandError(
                        ErrorCode.ExceededMemoryLimit,
                        f"{NAME} exceeded memory limit of {self._run.limits.group_bytes} bytes",
                    )
                if not self._share.need(self._size):
                    raise self._share.memory.exceeded(NAME)
                ranked = Ranked(plain(document), inputs)
                self._found[key] = ranked
            ranked.ranks[self._input_index] = self._rank
        return []

    def _open(self) -> DocumentSource:
        specs = self._spec.pipelines[self._input_index]
        if self._fed and self._input_index == 0 and not specs[0].first_only:
            return open_pipeline(specs, self._source, self._run)
        return open_on_collection(specs, self._spec.contexts[self._input_index], self._run, None)

    def _fused(self) -> list[bytes]:
        found: list[Ranked] = list_for(len(self._found))
        keys: list[bytes] = list_for(len(self._found))
        for key, ranked in self._found.items():
            give_way()
            for i in range(len(ranked.ranks)):
                if ranked.ranks[i]:
                    ranked.score += self._spec.weights[i] * (1.0 / (RANK_CONSTANT + ranked.ranks[i]))
            found.append(ranked)
            keys.append(encode_value(-ranked.score) + key)
        documents: list[bytes] = list_for(len(found))
        requested = self._run.metadata
        for ranked in sorted_by_keys(found, keys):
            give_way()
            document = ranked.document
            if SCORE in requested:
                document = annotated(document, SCORE, ranked.score)
            if SCORE_DETAILS in requested and self._spec.details:
                document = annotated(document, SCORE_DETAILS, self._details(ranked.score, ranked))
            documents.append(document)
        return documents

    def _details(self, score: float, ranked: Ranked) -> Value:
        none: list[Value] = []
        details: list[Value] = []
        for i in range(len(ranked.ranks)):
            known: dict[str, Value] = {"inputPipelineName": self._spec.names[i], "rank": "NA"}
            if ranked.ranks[i]:
                known["rank"] = ranked.ranks[i]
                known["weight"] = self._spec.weights[i]
                known["details"] = none
            details.append(encode(known))
        return encode({"value": score, "description": _DESCRIPTION, "details": details})

    def _forget_found(self) -> None:
        put_aside(self._found)
        self._found = {}

    def held_bytes(self) -> int:
        return self._size if self._output is None else self._output.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self._output is not None and self._output.spill(space)

    def close(self) -> None:
        self._share.release()
        self._forget_found()
        self._source.close()
        if self._input is not None:
            self._input.close()
        if self._output is not None:
            self._output.close()


def _sort_key(document: bytes) -> Value:
    """The values by which an input ordered a document; MISSING if its stages give none."""
    metadata = metadata_of(document)
    return metadata.get(SORT_KEY, metadata.get(GEO_NEAR_DISTANCE, MISSING))


@stage(NAME, StageTraits(hybrid=True), since=(8, 0))
def parse_rank_fusion(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{input: {pipelines: {<name>: [<stage>, …], …}}, combination: {weights: {…}}, scoreDetails: <bool>}`.

    FailedToParse (9) if it is not an object, 40414 and 40415 for missing and unknown fields, 10473002 if nested,
    9834300 for an empty input, 9191103 for a stage that changes documents, 9191100 for an input without an order,
    InvalidNamespace (73) without a collection, 10557301 on a time series; for weights see `_weights`.
    """
    if not isinstance(argument, bytes):
        raise CommandError(
            ErrorCode.FailedToParse, f"The {NAME} stage specification must be an object, found {type_of(argument)}"
        )
    parameters = read_fields(NAME, argument)
    check_known(NAME, parameters, ["input", "combination", "scoreDetails"])
    inputs = _object(_required(parameters, "input", NAME), f"{NAME}.input", ["pipelines"])
    pipelines = _object(_required(inputs, "pipelines", f"{NAME}.input"), f"{NAME}.input.pipelines", None)
    given_weights: dict[str, Value] = {}
    if parameters.get("combination") is not None:
        combination = _object(parameters["combination"], f"{NAME}.combination", ["weights"])
        given_weights = _object(
            _required(combination, "weights", f"{NAME}.combination"), f"{NAME}.combination.weights", None
        )
    details = parameters.get("scoreDetails")
    if details is not None and not isinstance(details, bool):
        raise wrong_type(f"{NAME}.scoreDetails", details, "bool")
    if ctx.namespace.endswith(".$cmd.aggregate"):
        raise CommandError(ErrorCode.InvalidNamespace, f"{NAME} is not valid for 'aggregate: 1'")
    if not pipelines:
        raise CommandError(ErrorCode.BadValue, f"{NAME} requires at least one input pipeline")
    names: list[str] = []
    specs: list[list[StageSpec]] = []
    contexts: list[ParseContext] = []
    for name, stages in pipelines.items():
        _check_name(name)
        inner = ParseContext(ctx.now_ms, ctx.let, ctx.namespace, cluster_time=ctx.cluster_time).inheriting(ctx)
        specs.append(_parse_input(name, stages, inner))
        names.append(name)
        contexts.append(inner)
    found = _weights(given_weights, names)
    ctx.metadata.provided.add(SCORE)
    if details:
        ctx.metadata.provided.add(SCORE_DETAILS)
    return [RankFusionSpec(argument, names, specs, contexts, found, bool(details))]


def _required(parameters: dict[str, Value], key: str, path: str) -> Value:
    value = parameters.get(key)
    if value is None:
        raise missing_field(f"{path}.{key}")
    return value


def _object(value: Value, path: str, known: list[str] | None) -> dict[str, Value]:
    """The fields of an object, in order; empty for null."""
    if value is None:
        return {}
    if not isinstance(value, bytes):
        raise wrong_type(path, value, "object")
    parameters = read_fields(path, value)
    if known is not None:
        check_known(path, parameters, known)
    return parameters


def _check_name(name: str) -> None:
    """15998 for an empty name, 16410 for one that starts with `$`, 16412 for one with a dot."""
    if name == "":
        raise CommandError(15998, f"{NAME} pipeline names may not be empty strings")
    if name.startswith("$"):
        raise CommandError(16410, f"{NAME} pipeline names may not start with '$': {name}")
    if "." in name:
        raise CommandError(16412, f"{NAME} pipeline names may not contain '.': {name}")


def _parse_input(name: str, stages: Value, ctx: ParseContext) -> list[StageSpec]:
    if not isinstance(stages, list):
        raise wrong_type(f"{NAME}.input.pipelines.{name}", stages, "array")
    kinds: list[str] = []
    for item in stages:
        if not isinstance(item, bytes):
            raise CommandError(ErrorCode.TypeMismatch, "Each element of the 'pipeline' array must be an object")
        kinds.append(first_field_name(item))
    if not kinds:
        raise CommandError(9834300, f"{NAME} input pipeline '{name}' must not be empty")
    if any(traits_of(kind).hybrid for kind in kinds):
        raise CommandError(10473002, f"{NAME} input pipeline '{name}' may not have a hybrid search stage in it")
    specs = parse_pipeline(stages, ctx)
    for spec in specs:
        if spec.name == "$sort":
            spec.requested |= {SORT_KEY}
        elif spec.name == "$geoNear":
            spec.requested |= {GEO_NEAR_DISTANCE}
    for index, kind in enumerate(kinds):
        if not traits_of(kind).selects or (kind == "$geoNear" and _adds_fields(stages[index])):
            raise CommandError(
                9191103, f"{NAME} input pipeline '{name}' must only select and order documents, and has {kind} in it"
            )
    if not traits_of(kinds[0]).ranks and "$sort" not in kinds:
        raise CommandError(
            9191100, f"{NAME} input pipeline '{name}' must begin with a ranked stage or have a $sort in it"
        )
    return specs


def _adds_fields(near: Value) -> bool:
    """Whether a `$geoNear` adds distances or locations to the documents."""
    argument = get_value(near, "$geoNear") if isinstance(near, bytes) else None
    names = [name for name, _ in fields(argument)] if isinstance(argument, bytes) else []
    return "distanceField" in names or "includeLocs" in names


def _weights(given_weights: dict[str, Value], names: list[str]) -> list[float]:
    """A weight for each input, 1 by default. 9460301 for more weights than inputs, 9967500 for an unknown name,
    13118 for a value that is not a number, 9460300 for a negative one."""
    if len(given_weights) > len(names):
        raise CommandError(
            9460301, f"{NAME} input has more weights ({len(given_weights)}) than pipelines ({len(names)})"
        )
    for name, value in given_weights.items():
        if name not in names:
            raise CommandError(9967500, f"{NAME} has a weight for '{name}', which is no input pipeline")
        if isinstance(value, bool) or not is_number(value):
            raise CommandError(13118, f"{NAME} pipeline weight must be a number, and is {render_value(value)}")
        weight = to_double(value)
        if not weight >= 0:
            raise CommandError(9460300, f"{NAME} pipeline weight must be non-negative, and is {render_value(value)}")
    return [to_double(given_weights[name]) if name in given_weights else 1.0 for name in names]
