"""Parsing of pipelines into stage specifications, and the registry of stages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.metadata import TEXT_SCORE, MetadataUse, check_available
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.registry import Registry
from mongottl.versions import OLDEST, Version

MAX_STAGES: Final = 1000  # mongod's internalPipelineLengthLimit


class StageSpec:
    """One stage as parsed. Immutable: it may be opened any number of times.

    Properties that do not depend on the argument are in `StageTraits`.
    """

    name: str = ""
    # Whether it must be the first stage, and the code of the error if it is not.
    first_only: bool = False
    first_only_code: int = 40602
    # Whether stages without effect may stand before it nevertheless; whether it is one, such as {$match: {}}.
    first_executed: bool = False
    no_op: bool = False
    # Whether it must be the last stage.
    last_only: bool = False
    # Whether output documents have the metadata of their input documents.
    keeps_metadata: bool = True
    # The keywords that it reads by `{$meta: …}`.
    requested: frozenset[str] = frozenset()
    # Whether it uses a text index, so that it must be first.
    searches: bool = False
    # Whether it outputs one document for each, in the same order, independently of other documents.
    one_to_one: bool = False
    # Whether it outputs input documents or parts of them, not more documents and not larger ones.
    shrinks: bool = False
    # The name of the client's stage from which it was derived, if known.
    client_stage: str = ""
    # Whether it is not the last stage of its pipeline.
    followed: bool = False
    _effect: Effect | None = None
    _effect_is_known: bool = False

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        """The stage's output for an input."""
        raise NotImplementedError

    def describe(self) -> Value:
        """The stage in full form, `{$name: …}`, for explain, as a raw document."""
        raise NotImplementedError

    def check(self, run: RunContext) -> None:
        """Errors that depend on the catalog (missing collections, views), raised before execution and by explain."""

    def effect(self) -> Effect | None:
        """How it changes the fields of documents; None if a later filter can never be moved before it."""
        return None

    def known_effect(self) -> Effect | None:
        """The result of `effect`, cached."""
        if not self._effect_is_known:
            self._effect = self.effect()
            self._effect_is_known = True
        return self._effect

    def narrowed(self, filter: bytes) -> "StageSpec":
        """The stage after a later filter was moved before it: the filter is also applied to documents that the stage
        adds."""
        return self

    def joined_path(self) -> str:
        """The path of the foreign document in each output document; "" if there is none."""
        return ""

    def joining(self, filter: bytes) -> "StageSpec":
        """The stage restricted to foreign documents that pass a filter."""
        raise NotImplementedError

    def coalesced(self, following: "StageSpec") -> "StageSpec | None":
        """One stage that replaces this stage and the next one; None if that is not possible."""
        return None

    def sub_pipelines(self) -> list[list["StageSpec"]]:
        """The nested pipelines."""
        return []

    @property
    def traits(self) -> "StageTraits":
        """The traits of its declaration."""
        return traits_of(self.name)

    @property
    def multiplies(self) -> bool:
        """Whether it is streaming and may output several documents for one."""
        return traits_of(self.name).multiplies and not self.one_to_one


StageParser: TypeAlias = Callable[[Value, ParseContext], list[StageSpec]]


# Database and argument of a stage to database, collection and actions there; None for an argument that is not valid.
TargetOf: TypeAlias = Callable[[str, Value], tuple[str, str, list[str]] | None]


# Neither compared nor printed: each method that a dataclass generates delays the first query.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class StageTraits:
    """Properties of a stage that do not depend on its argument, declared with `@stage`."""

    # Whether it outputs documents while it reads, so that no more input is read than the batch needs.
    streaming: bool = False
    # Whether it may output several documents for one, unless `StageSpec.one_to_one` is set.
    multiplies: bool = False
    # Whether it writes its input into a collection, and outputs nothing.
    writes: bool = False
    # The field of its argument that names another collection to read; empty if it reads none.
    joined_field: str = ""
    # Whether it has a pipeline on that collection in its field `pipeline`.
    has_pipeline: bool = False
    # Whether it is allowed in the pipelines of views and of other stages.
    nested: bool = True
    # Whether it returns metadata of the server, so that it is refused in pipelines that other stages run on a
    # collection.
    server_wide: bool = False
    # Whether it may be the first stage if there is no collection, `{aggregate: 1}`.
    collectionless: bool = False
    # Whether it is allowed in `$facet`.
    in_facet: bool = True
    # Whether errors of its argument precede the refusal in `$facet` (40600).
    parsed_before_facet: bool = False
    # Whether it is allowed in an update's pipeline, since it outputs one document for one.
    in_update: bool = False
    # The read concern levels that it supports; None for all.
    read_levels: frozenset[str] | None = None
    # Whether it is part of the Stable API, version 1; if `stable_argument` is not empty, only with that as the only
    # field of its argument.
    stable: bool = True
    stable_argument: str = ""
    # The fields of its argument that are not part of the Stable API.
    unstable_fields: tuple[str, ...] = ()
    # Whether it selects or orders documents without changing them.
    selects: bool = False
    # Whether it defines an order if it is the first stage.
    ranks: bool = False
    # Whether it merges the results of several searches.
    hybrid: bool = False
    # Whether mongod may execute it, or stages that it consists of, in the query planner.
    planned: bool = False
    # What a user must be allowed on the collection of a pipeline that begins with it.
    actions: tuple[str, ...] = ("find",)
    # What a user must be allowed on the server, if not empty; if `cluster_action_field` is set, only where that field
    # of its argument is true.
    cluster_action: str = ""
    cluster_action_field: str = ""
    # A field of its argument, and what a user must be allowed on the server besides where the field is not given.
    action_without: tuple[str, str] | None = None
    # Finds what a stage that writes writes to.
    target: TargetOf | None = None
    # Whether it is allowed in a multi-document transaction.
    in_transaction: bool = True
    # Whether it is allowed after `$changeStream`, and whether it is allowed nowhere else.
    in_change_stream: bool = False
    only_in_change_stream: bool = False


class StageDeclaration:
    """An entry of the registry of stages. parser: None for an unsupported stage."""

    def __init__(self, name: str, parser: StageParser | None, traits: StageTraits) -> None:
        self.name: Final = name
        self.parser: Final = parser
        self.traits: Final = traits


STAGES: Final[Registry[StageDeclaration]] = Registry("stage")
_NO_TRAITS: Final = StageTraits()
# The read concern level of data that is not replicated.
LOCAL_LEVEL: Final = frozenset(("local",))


def stage(name: str, traits: StageTraits = _NO_TRAITS, *, since: Version) -> Callable[[StageParser], StageParser]:
    """Registers `def parse(argument, ctx) -> list[StageSpec]`: one stage, or several that it is an abbreviation of.

    since: as for `Registry.add`.
    """

    def register(parser: StageParser) -> StageParser:
        STAGES.add(name, StageDeclaration(name, parser, traits), since)
        return parser

    return register


def traits_of(name: str) -> StageTraits:
    """The traits of a stage, supported or not; the defaults for an unknown one."""
    declaration = STAGES.known(name)
    return _NO_TRAITS if declaration is None else declaration.traits


def is_stable(name: str, argument: Value) -> bool:
    """Whether a stage with this argument is part of the Stable API, version 1."""
    traits = traits_of(name)
    if traits.stable_argument:
        return isinstance(argument, bytes) and [field for field, _ in fields(argument)] == [traits.stable_argument]
    if traits.unstable_fields and isinstance(argument, bytes):
        return all(field not in traits.unstable_fields for field, _ in fields(argument))
    return traits.stable


def check_length(stages: Sequence[Value]) -> None:
    """7749501 for more than MAX_STAGES: asked before anything is done for each of them."""
    if len(stages) > MAX_STAGES:
        raise CommandError(7749501, f"Pipeline length must be no longer than {MAX_STAGES} stages")


def parse_pipeline(stages: list[Value], ctx: ParseContext, available: set[str] | None = None) -> list[StageSpec]:
    """The stages of a pipeline, in order; not yet optimised (see `optimise`).

    available: metadata of the input documents, for a nested pipeline; None if the pipeline reads a collection.
    Errors: TypeMismatch for a stage that is not an object, 40323 unless it has one field, 40324 for an unknown name,
    CommandNotSupported or SearchNotEnabled for an unsupported one, 40601 and 40602 for a stage at a wrong position,
    InvalidNamespace (73) if the first needs a collection and there is none, 7749501 for too many, 40218 for metadata
    that is not available, 17313 for a `$match` with `$text` that is not the first stage.
    """
    check_length(stages)
    specs: list[StageSpec] = []
    whole = ctx.metadata
    at_hand = set() if available is None else available
    for value in stages:
        name, argument = _named(value)
        ctx.metadata = MetadataUse()
        ctx.metadata.available = at_hand
        parsed = parse_stage(name, argument, ctx)
        searches = TEXT_SCORE in ctx.metadata.provided
        if searches and (specs or available is not None):
            raise _search_not_first()
        check_available(ctx.metadata.requested, at_hand | ctx.metadata.provided)
        for spec in parsed:
            spec.client_stage = name
            spec.requested = frozenset(ctx.metadata.requested)
            spec.searches = searches
        at_hand = at_hand | ctx.metadata.provided if all(spec.keeps_metadata for spec in parsed) else set()
        whole.include(ctx.metadata)
        ctx.metadata = whole
        specs.extend(parsed)
    if available is None and ctx.namespace.endswith(".$cmd.aggregate"):
        _check_collectionless(specs)
    check_positions(specs)
    for spec in specs[:-1]:
        spec.followed = True
    return specs


def _check_collectionless(specs: list[StageSpec]) -> None:
    """InvalidNamespace (73) for a pipeline without collection whose first stage needs one."""
    first = specs[0].client_stage if specs else ""
    if not specs or not traits_of(first).collectionless:
        what = f"'{first}'" if specs else "an empty pipeline"
        raise CommandError(
            ErrorCode.InvalidNamespace, f"{{aggregate: 1}} is not valid for {what}; a collection is required."
        )


def check_stage_names(stages: list[Value]) -> None:
    """The errors of `parse_pipeline` that do not depend on arguments: TypeMismatch, 40323 and 40324."""
    for value in stages:
        name, _ = _named(value)
        if STAGES.get(name) is None and STAGES.unsupported_reason(name) is None:
            raise _unknown(name)


def _named(stage: Value) -> tuple[str, Value]:
    if not isinstance(stage, bytes):
        raise CommandError(ErrorCode.TypeMismatch, "Each element of the 'pipeline' array must be an object")
    members = fields(stage)
    if len(members) != 1:
        raise CommandError(40323, "A pipeline stage specification object must contain exactly one field.")
    return members[0]


def _unknown(name: str) -> CommandError:
    return CommandError(40324, f"Unrecognized pipeline stage name: '{name}'")


def requested_by(specs: list[StageSpec]) -> set[str]:
    """The metadata keywords that any of the stages read."""
    requested: set[str] = set()
    for spec in specs:
        requested |= spec.requested
    return requested


def parse_stage(name: str, argument: Value, ctx: ParseContext) -> list[StageSpec]:
    if ctx.features is not None:
        if ctx.features.lacks(STAGES.kind, name):
            refused = ctx.features.refused_stage(name)
            refused.advice = STAGES.advice(ctx.features, name)
            raise refused
        ctx.check_options(name, argument)
    declaration = STAGES.get(name)
    if declaration is None or declaration.parser is None:
        reason = STAGES.unsupported_reason(name)
        if reason is not None:
            code = ErrorCode.SearchNotEnabled if reason == _NO_SEARCH else ErrorCode.CommandNotSupported
            raise CommandError(code, f"The stage {name} is not supported: {reason}")
        raise _unknown(name)
    return declaration.parser(argument, ctx)


# Stages that mongod itself refuses without Atlas Search, with SearchNotEnabled (31082).
_NO_SEARCH: Final = "Atlas Search is not available"


def _search_not_first() -> CommandError:
    return CommandError(17313, "$match with $text is only allowed as the first pipeline stage")


def check_positions(specs: list[StageSpec]) -> None:
    """40601 for a stage that must be last and is not; 40602 for one that must be first, 17313 for `$text`,
    IllegalOperation (20) for one that needs a change stream."""
    for i in range(len(specs)):
        spec = specs[i]
        if spec.last_only and i < len(specs) - 1:
            raise CommandError(40601, f"{spec.name} can only be the final stage in the pipeline")
        if spec.searches and i > 0:
            raise _search_not_first()
        if spec.first_only and i > 0 and not (spec.first_executed and all(before.no_op for before in specs[:i])):
            raise CommandError(spec.first_only_code, f"{spec.name} is only valid as the first stage in a pipeline")
        if spec.traits.only_in_change_stream and specs[0].name != "$changeStream":
            raise CommandError(ErrorCode.IllegalOperation, f"{spec.name} can only be used in a $changeStream pipeline")


def open_pipeline(specs: list[StageSpec], source: DocumentSource, run: RunContext) -> DocumentSource:
    """The output of the whole pipeline for an input."""
    for spec in specs:
        source = spec.open(source, run)
    return source


_SEARCH: Final = StageTraits(in_facet=False, stable=False)
for _name, _since, _reason, _traits in (
    ("$listCatalog", (6, 0), "it is not there yet", StageTraits(in_facet=False)),
    ("$listMqlEntities", (8, 2), "it is an internal stage", _NO_TRAITS),
    ("$listSearchIndexes", (7, 0), _NO_SEARCH, StageTraits(in_facet=False)),
    ("$scoreFusion", (8, 2), "it is not there yet", StageTraits(in_facet=False, hybrid=True)),
    ("$search", OLDEST, _NO_SEARCH, _SEARCH),
    ("$searchBeta", OLDEST, _NO_SEARCH, _SEARCH),
    ("$searchMeta", (6, 0), _NO_SEARCH, _SEARCH),
    ("$shardedDataDistribution", (6, 0), "there is no sharding", _NO_TRAITS),
    ("$vectorSearch", (7, 0), _NO_SEARCH, _SEARCH),
):
    STAGES.add_unsupported(_name, _reason, StageDeclaration(_name, None, _traits), since=_since)
