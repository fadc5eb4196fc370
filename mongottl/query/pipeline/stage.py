"""Pipelines, parsed: the list of stage specifications, and the registry that they come from."""

from collections.abc import Callable
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

MAX_STAGES: Final = 1000  # mongod's internalPipelineLengthLimit


class StageSpec:
    """One stage as parsed. Immutable: it may be opened any number of times.

    Positions: `first_only` and `last_only` say where in a pipeline the stage may stand; `first_only_code` is that of
    the error. What is true of a stage whatever its argument is stands in its `StageTraits`.
    keeps_metadata: whether documents come out with the metadata of those they were made of.
    requested: keywords that it reads by `{$meta: …}`. searches: whether it asks a text index, which only the first can.
    one_to_one: whether it makes one document of each, in their order, whatever the others are.
    shrinks: whether it passes documents on as they come, or parts of them, and makes none more or larger.
    written: the stage in the client's pipeline that it stems from, where that is known.
    """

    name: str = ""
    first_only: bool = False
    first_only_code: int = 40602
    last_only: bool = False
    keeps_metadata: bool = True
    requested: frozenset[str] = frozenset()
    searches: bool = False
    one_to_one: bool = False
    shrinks: bool = False
    written: str = ""
    _effect: Effect | None = None
    _effect_is_known: bool = False

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        """The stage at work on a stream."""
        raise NotImplementedError

    def describe(self) -> Value:
        """The stage in full form, `{$name: …}`, for explain: a raw document."""
        raise NotImplementedError

    def check(self, run: RunContext) -> None:
        """Errors that depend on what there is in the world, and come before anything runs, in explain too."""

    def effect(self) -> Effect | None:
        """What it does to the fields of each document; None where a filter behind it cannot be put before it."""
        return None

    def known_effect(self) -> Effect | None:
        """The result of `effect`, which is computed once: every filter behind the stage asks for it."""
        if not self._effect_is_known:
            self._effect = self.effect()
            self._effect_is_known = True
        return self._effect

    def narrowed(self, filter: bytes) -> "StageSpec":
        """The stage, where a filter behind it is put before it: what it brings along itself must pass as well."""
        return self

    def joined_path(self) -> str:
        """Where documents of another collection stand, one in each result; empty for nowhere."""
        return ""

    def joining(self, filter: bytes) -> "StageSpec":
        """The stage joining only documents of the other collection that pass a filter."""
        raise NotImplementedError

    def coalesced(self, following: "StageSpec") -> "StageSpec | None":
        """This stage and the one behind it as one; None if they are two."""
        return None

    def sub_pipelines(self) -> list[list["StageSpec"]]:
        """The pipelines inside the stage."""
        return []

    @property
    def traits(self) -> "StageTraits":
        """What its declaration says."""
        return traits_of(self.name)

    @property
    def multiplies(self) -> bool:
        """Whether it may make several documents of one while it passes documents on as they come."""
        return traits_of(self.name).multiplies and not self.one_to_one


StageParser: TypeAlias = Callable[[Value, ParseContext], list[StageSpec]]


class StageTraits:
    """What is true of a stage whatever its argument is, as its declaration says (`@stage`).

    streaming: passes documents on as they come, so that no more need be read than a page lacks.
    multiplies: may make several documents of one, unless `StageSpec.one_to_one` says that it does not.
    writes: writes its input into a collection, and gives nothing.
    joined_field: the field of its argument that names another collection to read; empty if it reads none.
    has_pipeline: has a pipeline on that collection in its field `pipeline`.
    nested: may stand in the pipelines of views and of other stages.
    server_wide: is about the server, so that it cannot stand in a pipeline that another stage runs on a collection.
    collectionless: may come first where no collection is named, `{aggregate: 1}`.
    in_facet: may stand in `$facet`. parsed_before_facet: errors of its argument come before the refusal there (40600).
    in_update: may stand in an update's pipeline, as it makes one document of one.
    read_levels: the levels of read concern that it can be read at; None for all.
    stable: is part of the Stable API, version 1; where `stable_argument` is not empty, with that as its only field.
    selects: selects or orders documents and leaves them as they are. ranks: gives an order where it comes first.
    hybrid: merges the results of several searches.
    planned: may be taken into a plan by mongod, alone or by what it is made of.
    """

    def __init__(
        self,
        *,
        streaming: bool = False,
        multiplies: bool = False,
        writes: bool = False,
        joined_field: str = "",
        has_pipeline: bool = False,
        nested: bool = True,
        server_wide: bool = False,
        collectionless: bool = False,
        in_facet: bool = True,
        parsed_before_facet: bool = False,
        in_update: bool = False,
        read_levels: frozenset[str] | None = None,
        stable: bool = True,
        stable_argument: str = "",
        selects: bool = False,
        ranks: bool = False,
        hybrid: bool = False,
        planned: bool = False,
    ) -> None:
        self.streaming: Final = streaming
        self.multiplies: Final = multiplies
        self.writes: Final = writes
        self.joined_field: Final = joined_field
        self.has_pipeline: Final = has_pipeline
        self.nested: Final = nested
        self.server_wide: Final = server_wide
        self.collectionless: Final = collectionless
        self.in_facet: Final = in_facet
        self.parsed_before_facet: Final = parsed_before_facet
        self.in_update: Final = in_update
        self.read_levels: Final = read_levels
        self.stable: Final = stable
        self.stable_argument: Final = stable_argument
        self.selects: Final = selects
        self.ranks: Final = ranks
        self.hybrid: Final = hybrid
        self.planned: Final = planned


class StageDeclaration:
    """A row of the table of stages. parser: None for a stage that is refused by name."""

    def __init__(self, name: str, parser: StageParser | None, traits: StageTraits) -> None:
        self.name: Final = name
        self.parser: Final = parser
        self.traits: Final = traits


STAGES: Final[Registry[StageDeclaration]] = Registry("stage")
_NO_TRAITS: Final = StageTraits()
# At the level of read concern of what is known on this server alone and is not replicated.
LOCAL_LEVEL: Final = frozenset(("local",))


def stage(name: str, traits: StageTraits = _NO_TRAITS) -> Callable[[StageParser], StageParser]:
    """Registers `def parse(argument, ctx) -> list[StageSpec]`: one stage, or several that it is short for."""

    def register(parser: StageParser) -> StageParser:
        STAGES.add(name, StageDeclaration(name, parser, traits))
        return parser

    return register


def traits_of(name: str) -> StageTraits:
    """What is declared of a stage, supported or not; of an unknown one, what is true of most."""
    declaration = STAGES.known(name)
    return _NO_TRAITS if declaration is None else declaration.traits


def is_stable(name: str, argument: Value) -> bool:
    """Whether a stage with this argument is part of the Stable API, version 1."""
    traits = traits_of(name)
    if traits.stable_argument:
        return isinstance(argument, bytes) and [field for field, _ in fields(argument)] == [traits.stable_argument]
    return traits.stable


def parse_pipeline(stages: list[Value], ctx: ParseContext, available: set[str] | None = None) -> list[StageSpec]:
    """The stages of a pipeline, in order; not yet optimised (see `optimise`).

    available: metadata of the documents that it reads, for a pipeline inside a stage; None where it reads a collection.
    Errors: TypeMismatch for a stage that is no object, 40323 for one with other than one field, 40324 for an unknown
    name, CommandNotSupported or SearchNotEnabled for a refused one, 40601 and 40602 for one in the wrong place,
    InvalidNamespace (73) where the first needs a collection and none is named, 7749501 for too many, 40218 for metadata
    that is not there, 17313 for a `$match` with `$text` that is not the first stage.
    """
    if len(stages) > MAX_STAGES:
        raise CommandError(7749501, f"Pipeline length must be no longer than {MAX_STAGES} stages")
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
            spec.written = name
            spec.requested = frozenset(ctx.metadata.requested)
            spec.searches = searches
        at_hand = at_hand | ctx.metadata.provided if all(spec.keeps_metadata for spec in parsed) else set()
        whole.include(ctx.metadata)
        ctx.metadata = whole
        specs.extend(parsed)
    if available is None and ctx.namespace.endswith(".$cmd.aggregate"):
        _check_collectionless(specs)
    check_positions(specs)
    return specs


def _check_collectionless(specs: list[StageSpec]) -> None:
    """InvalidNamespace (73) for a pipeline without a collection that begins with a stage that needs one."""
    first = specs[0].written if specs else ""
    if not specs or not traits_of(first).collectionless:
        what = f"'{first}'" if specs else "an empty pipeline"
        raise CommandError(
            ErrorCode.InvalidNamespace, f"{{aggregate: 1}} is not valid for {what}; a collection is required."
        )


def check_stage_names(stages: list[Value]) -> None:
    """Of the errors of `parse_pipeline` those that take no look into a stage: TypeMismatch, 40323 and 40324."""
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
    """The metadata that some of the stages read."""
    requested: set[str] = set()
    for spec in specs:
        requested |= spec.requested
    return requested


def parse_stage(name: str, argument: Value, ctx: ParseContext) -> list[StageSpec]:
    declaration = STAGES.get(name)
    if declaration is None or declaration.parser is None:
        reason = STAGES.unsupported_reason(name)
        if reason is not None:
            code = ErrorCode.SearchNotEnabled if reason == _NO_SEARCH else ErrorCode.CommandNotSupported
            raise CommandError(code, f"The stage {name} is not supported: {reason}")
        raise _unknown(name)
    return declaration.parser(argument, ctx)


# What mongod itself refuses without Atlas Search, with SearchNotEnabled (31082).
_NO_SEARCH: Final = "Atlas Search is not available"


def _search_not_first() -> CommandError:
    return CommandError(17313, "$match with $text is only allowed as the first pipeline stage")


def check_positions(specs: list[StageSpec]) -> None:
    """40601 for a stage that must be last and is not; 40602 for one that must be first, 17313 for `$text`."""
    for i in range(len(specs)):
        spec = specs[i]
        if spec.last_only and i < len(specs) - 1:
            raise CommandError(40601, f"{spec.name} can only be the final stage in the pipeline")
        if spec.searches and i > 0:
            raise _search_not_first()
        if spec.first_only and i > 0:
            raise CommandError(spec.first_only_code, f"{spec.name} is only valid as the first stage in a pipeline")


def open_pipeline(specs: list[StageSpec], source: DocumentSource, run: RunContext) -> DocumentSource:
    """The whole pipeline at work on a stream."""
    for spec in specs:
        source = spec.open(source, run)
    return source


_SEARCH: Final = StageTraits(in_facet=False, stable=False)
for _name, _reason, _traits in (
    ("$changeStream", "change streams are not there yet", StageTraits(in_facet=False, nested=False)),
    ("$changeStreamSplitLargeEvent", "change streams are not there yet", StageTraits(in_facet=False)),
    ("$listCatalog", "it is not there yet", StageTraits(in_facet=False)),
    ("$listMqlEntities", "it is an internal stage", _NO_TRAITS),
    ("$listSampledQueries", "there is no sharding", StageTraits(in_facet=False)),
    ("$listSearchIndexes", _NO_SEARCH, StageTraits(in_facet=False)),
    ("$queryStats", "it is not there yet", StageTraits(in_facet=False)),
    ("$scoreFusion", "it is not there yet", StageTraits(in_facet=False, hybrid=True)),
    ("$search", _NO_SEARCH, _SEARCH),
    ("$searchBeta", _NO_SEARCH, _SEARCH),
    ("$searchMeta", _NO_SEARCH, _SEARCH),
    ("$shardedDataDistribution", "there is no sharding", _NO_TRAITS),
    ("$vectorSearch", _NO_SEARCH, _SEARCH),
):
    STAGES.add_unsupported(_name, _reason, StageDeclaration(_name, None, _traits))
