"""The accumulators of `$group`, `$bucket` and `$bucketAuto`: their registry and their arguments.

`{total: {$sum: "$v"}}` is an AccumulatorSpec: the expression `"$v"`, evaluated per document, and a state per group,
which accumulates its values (`query.expr.accumulators`).
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.types import Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, EvaluationContext, Expression, parse_expression
from mongottl.query.expr.accumulators import (
    AccumulatorState,
    AddToSetState,
    AvgState,
    ConcatArraysState,
    CountState,
    ExtremeState,
    FirstState,
    LastState,
    MergeObjectsState,
    PushState,
    SetUnionState,
    StdDevState,
    SumState,
)
from mongottl.query.registry import Registry
from mongottl.versions import OLDEST, Version

StateFactory: TypeAlias = Callable[[Collation | None], AccumulatorState]


class AccumulatorSpec:
    """One output field of a group.

    argument: evaluated for each document; its values are added to the state.
    """

    def __init__(self, field: str, name: str, argument: Expression) -> None:
        self.field: Final = field
        self.field_bytes: Final = encode_text(field)
        self.name: Final = name
        self.argument: Final = argument

    def start(self, key: Value) -> AccumulatorState:
        """A new state for a group with this key; the key of a window or of a `$bucketAuto` is null."""
        raise NotImplementedError

    def describe(self) -> Value:
        return encode({self.name: self.argument.describe()})


def of_key(argument: Expression, key: Value) -> Value:
    """An argument that is evaluated once for each group (`n`, `initArgs`), on the key if that is a document.

    So its fields are named without `_id`. For another key it is evaluated on an empty document.
    """
    return argument.evaluate(EvaluationContext(key) if isinstance(key, bytes) else EvaluationContext())


class SimpleAccumulator(AccumulatorSpec):
    """An accumulator whose argument is one expression."""

    def __init__(
        self, field: str, name: str, argument: Expression, factory: StateFactory, collation: Collation | None
    ) -> None:
        super().__init__(field, name, argument)
        self._factory: Final = factory
        self._collation: Final = collation

    def start(self, key: Value) -> AccumulatorState:
        return self._factory(self._collation)


AccumulatorParser: TypeAlias = Callable[[str, str, Value, ParseContext], AccumulatorSpec]

ACCUMULATORS: Final[Registry[AccumulatorParser]] = Registry("accumulator")


def accumulator(name: str, *, since: Version) -> Callable[[AccumulatorParser], AccumulatorParser]:
    """Registers `def parse(field, name, argument, ctx) -> AccumulatorSpec`. since: as for `Registry.add`."""

    def register(parser: AccumulatorParser) -> AccumulatorParser:
        ACCUMULATORS.add(name, parser, since)
        return parser

    return register


def parse_accumulator(field: str, value: Value, ctx: ParseContext) -> AccumulatorSpec:
    """`<field>: {<accumulator>: <argument>}`. 40234 to 40238 for a bad shape, 15952 for an unknown accumulator."""
    if "." in field:
        raise CommandError(40235, f"The field name '{field}' cannot contain '.'")
    if field.startswith("$"):
        raise CommandError(40236, f"The field name '{field}' cannot be an operator name")
    if not isinstance(value, bytes):
        raise CommandError(40234, f"The field '{field}' must be an accumulator object")
    members = fields(value)
    if not members:
        raise CommandError(40234, f"The field '{field}' must be an accumulator object")
    if len(members) != 1:
        raise CommandError(40238, f"The field '{field}' must specify one accumulator")
    name, argument = members[0]
    if not name.startswith("$"):
        raise CommandError(40234, f"The field '{field}' must be an accumulator object")
    if ctx.lacks(ACCUMULATORS.kind, name):
        raise _unknown(name, ACCUMULATORS.advice(ctx.features, name))
    parser = ACCUMULATORS.get(name)
    if parser is None:
        if isinstance(argument, list):
            raise CommandError(40237, f"The {name} accumulator is a unary operator")
        reason = ACCUMULATORS.unsupported_reason(name)
        if reason is not None:
            raise CommandError(ErrorCode.CommandNotSupported, f"The accumulator {name} is not supported: {reason}")
        raise _unknown(name)
    return parser(field, name, argument, ctx)


def _unknown(name: str, advice: str = "") -> CommandError:
    return CommandError(15952, f"unknown group operator '{name}'", advice=advice)


def parse_unary(name: str, argument: Value, ctx: ParseContext) -> Expression:
    """The expression of an accumulator's single argument. 40237 for an array, even of one element."""
    if isinstance(argument, list):
        raise CommandError(40237, f"The {name} accumulator is a unary operator")
    return parse_expression(argument, ctx)


# Factories of accumulators that compare no values ignore the collation.


def _sum_state(collation: Collation | None) -> AccumulatorState:
    return SumState()


def _avg_state(collation: Collation | None) -> AccumulatorState:
    return AvgState()


def first_state(collation: Collation | None) -> AccumulatorState:
    return FirstState()


def _last_state(collation: Collation | None) -> AccumulatorState:
    return LastState()


def _push_state(collation: Collation | None) -> AccumulatorState:
    return PushState()


def _concat_state(collation: Collation | None) -> AccumulatorState:
    return ConcatArraysState()


def _count_state(collation: Collation | None) -> AccumulatorState:
    return CountState()


def _pop_state(collation: Collation | None) -> AccumulatorState:
    return StdDevState(False)


def _sample_state(collation: Collation | None) -> AccumulatorState:
    return StdDevState(True)


def _min_state(collation: Collation | None) -> AccumulatorState:
    return ExtremeState(-1, collation)


def _max_state(collation: Collation | None) -> AccumulatorState:
    return ExtremeState(1, collation)


def exact_avg_state(collation: Collation | None) -> AccumulatorState:
    return AvgState(exact=True)


def _merge_state(collation: Collation | None) -> AccumulatorState:
    return MergeObjectsState(40400)


def _grouped_merge_state(collation: Collation | None) -> AccumulatorState:
    return MergeObjectsState(5911200)


def _add_to_set_state(collation: Collation | None) -> AccumulatorState:
    return AddToSetState(collation)


def _set_union_state(collation: Collation | None) -> AccumulatorState:
    return SetUnionState(collation)


# Accumulators that have one expression, and no more parameters.
SIMPLE: Final[dict[str, StateFactory]] = {}


# Those that mongod computes in another way in `$group` and `$bucket` than in the stages that its older engine executes,
# `$bucketAuto` and `$setWindowFields`.
_GROUPED: Final[dict[str, StateFactory]] = {"$avg": exact_avg_state, "$mergeObjects": _grouped_merge_state}


def _parse_simple(field: str, name: str, argument: Value, ctx: ParseContext) -> AccumulatorSpec:
    factory = _GROUPED.get(name, SIMPLE[name])
    return SimpleAccumulator(field, name, parse_unary(name, argument, ctx), factory, ctx.collation)


def ungrouped(spec: AccumulatorSpec, ctx: ParseContext) -> AccumulatorSpec:
    """The accumulator as stages other than `$group` and `$bucket` compute it."""
    if spec.name not in _GROUPED:
        return spec
    return SimpleAccumulator(spec.field, spec.name, spec.argument, SIMPLE[spec.name], ctx.collation)


def _simple(name: str, factory: StateFactory, *, since: Version) -> None:
    """Registers an accumulator whose argument is one expression."""
    SIMPLE[name] = factory
    accumulator(name, since=since)(_parse_simple)


_simple("$sum", _sum_state, since=OLDEST)
_simple("$avg", _avg_state, since=OLDEST)
_simple("$first", first_state, since=OLDEST)
_simple("$last", _last_state, since=OLDEST)
_simple("$min", _min_state, since=OLDEST)
_simple("$max", _max_state, since=OLDEST)
_simple("$push", _push_state, since=OLDEST)
_simple("$addToSet", _add_to_set_state, since=OLDEST)
_simple("$stdDevPop", _pop_state, since=OLDEST)
_simple("$stdDevSamp", _sample_state, since=OLDEST)
_simple("$mergeObjects", _merge_state, since=OLDEST)
_simple("$concatArrays", _concat_state, since=(8, 1))
_simple("$setUnion", _set_union_state, since=(8, 1))


@accumulator("$count", since=(5, 0))
def parse_count(field: str, name: str, argument: Value, ctx: ParseContext) -> AccumulatorSpec:
    """`{$count: {}}`. TypeMismatch for another argument."""
    if isinstance(argument, list):
        raise CommandError(40237, f"The {name} accumulator is a unary operator")
    if not isinstance(argument, bytes) or len(argument) != 5:
        raise CommandError(ErrorCode.TypeMismatch, "$count takes no arguments, i.e. $count:{}")
    return SimpleAccumulator(field, name, Constant(argument), _count_state, None)
