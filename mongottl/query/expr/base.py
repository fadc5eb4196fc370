"""The base classes of expression trees, evaluation context, scopes and the registry of operators.

    expression = parse_expression("$a.b", ctx)      # once
    ev = EvaluationContext()
    for doc in batch:
        ev.root = doc                               # no allocation per document
        value = expression.evaluate(ev)             # MISSING if there is no value

A node has its operands, for constant folding, collecting of the fields it reads, and explain. Variables bound by
`$let`, `$map` and others are stored in numbered slots of the context; the numbers are assigned during parsing by
nesting depth, so that two variables in scope at once never share one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mypy_extensions import i64

from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.collation import Collation
from mongottl.document.copied import COPIED, COUNTED_BYTES
from mongottl.document.freeing import LONG, LongDict, LongList, LongSet, freed_in_slices, put_aside
from mongottl.document.interrupt import begin_evaluation, end_evaluation, give_way
from mongottl.document.memory_size import size_of
from mongottl.document.types import MISSING, Date, Missing, Timestamp, Undefined, Value
from mongottl.errors import CommandError, ErrorCode, is_interruption
from mongottl.query.context import ParseContext
from mongottl.query.registry import Registry
from mongottl.query.timestamps import timestamp_seconds
from mongottl.versions import Version


class Unbound:
    """In `ParseContext.let`: a variable that is defined, but whose value is not known yet.

    Pipelines of `$lookup` are parsed once with such variables, to check them, and again for each outer document.
    """


UNBOUND: Final = Unbound()


# What the values may take that an expression holds at once. mongod holds a field's value once, wherever the expression
# names it, and has no such limit, but most of its operators have one of 100 MB for themselves. Here each mention of a
# field is decoded. All fields of a document of 16 MB take 80 MB, if they are arrays of the shortest values.
MAX_HELD_BYTES: Final = 256 << 20
# Up to this number of bytes the elements of a list are short; and what an element takes besides.
_SHORT_BYTES: Final[i64] = 32
_ELEMENT_BYTES: Final[i64] = 40


def _size_of_new(value: Value, copied: i64) -> i64:
    """About the memory of a value in bytes. copied: as that of `hold`."""
    if isinstance(value, list) and 0 < copied <= _SHORT_BYTES * len(value):
        return copied + _ELEMENT_BYTES * len(value)
    return size_of(value)


class EvaluationContext:
    """The document that expressions read, and the current values of variables.

    root: the document, `$$ROOT`; assign the next document to it.
    slots: values of the bound variables, by slot number.
    held: how many bytes the values take that are held while others are evaluated, such as the operands before the
    present one. Whoever holds values calls `hold` for each if `COPIED.bytes` has changed, since something long has been
    made; for others only if there are many of them, or they make a list. Then it calls `release`, or sets `held` as
    before.
    """

    def __init__(self, root: bytes = EMPTY_DOCUMENT) -> None:
        self.root: bytes = root
        self.slots: list[Value] = []
        self.held: i64 = 0

    def hold(self, value: Value, copied: i64) -> None:
        """Counts a value. ExceededMemoryLimit (146).

        copied: how many bytes have been copied to make it. If these are few, its elements are short and not measured.
        """
        self.hold_bytes(_size_of_new(value, copied))

    def hold_bytes(self, size: i64) -> None:
        """Counts this size. ExceededMemoryLimit (146)."""
        self.held += size
        if self.held > MAX_HELD_BYTES:
            raise CommandError(
                ErrorCode.ExceededMemoryLimit,
                f"The values that an expression holds at once exceed the memory limit of {MAX_HELD_BYTES} bytes",
            )

    def release(self, held: i64) -> None:
        """Called when values have been used, or put into a list that is returned. held: as it was before."""
        more: i64 = self.held - held
        if more >= COUNTED_BYTES:
            COPIED.bytes += more  # for whoever holds that list
        self.held = held

    def bind(self, slot: i64, value: Value) -> None:
        """Stores a value in a slot, extending the slots if needed."""
        slots = self.slots
        while len(slots) <= slot:
            slots.append(MISSING)
        slots[slot] = value


class Expression:
    """A node of an expression tree. Immutable once parsed."""

    def evaluate(self, ev: EvaluationContext) -> Value:
        """The value for the context's document, as a value of `document.types`; MISSING if there is none.

        Raises CommandError with mongod's code for invalid operands.
        """
        raise NotImplementedError

    def operands(self) -> list["Expression"]:
        """The operands of this expression."""
        return []

    def describe(self) -> Value:
        """The expression in full form, for explain: constants are `{$const: …}`, documents raw."""
        raise NotImplementedError

    def collect_paths(self, paths: set[str]) -> bool:
        """Adds the dotted paths it reads to `paths`; returns False if it needs the whole document."""
        for operand in self.operands():
            give_way()
            if not operand.collect_paths(paths):
                return False
        return True

    def collect_fields(self, fields: set[str]) -> bool:
        """Adds the root fields it reads to `fields`; returns False if it needs the whole document."""
        paths: set[str] = set()
        known = self.collect_paths(paths)
        if known:
            for path in paths:
                give_way()
                fields.add(path.partition(".")[0])
        put_aside(paths)
        return known

    def dependencies(self) -> set[str] | None:
        """Names of the root fields that it reads; None for the whole document."""
        fields: set[str] = LongSet()
        return fields if self.collect_fields(fields) else None

    def foldable(self) -> bool:
        """Whether it may be evaluated during parsing if all operands are constants."""
        return True


# Operands after which others may run, as a mask, and the work that they count as.
OPERANDS_MASK: Final = 63
OPERANDS_WEIGHT: Final = 8


def evaluate_all(operands: list[Expression], ev: EvaluationContext, values: list[Value]) -> None:
    """Appends the values of operands, and counts them as held; if one fails, those before it."""
    many: bool = len(operands) > OPERANDS_MASK
    copied: i64 = COPIED.bytes
    for operand in operands:
        value = operand.evaluate(ev)
        values.append(value)
        if COPIED.bytes != copied or (isinstance(value, str) and len(value) >= COUNTED_BYTES):
            ev.hold(value, COPIED.bytes - copied)
            copied = COPIED.bytes
        elif many:
            if isinstance(value, (str, bytes, list)):
                ev.hold(value, 0)
            if len(values) & OPERANDS_MASK == 0:
                give_way(OPERANDS_WEIGHT)


class Constant(Expression):
    def __init__(self, value: Value) -> None:
        self.value: Final = value

    def evaluate(self, ev: EvaluationContext) -> Value:
        return self.value

    def describe(self) -> Value:
        if isinstance(self.value, Missing):
            return "$$REMOVE"
        return encode({"$const": self.value})

    def foldable(self) -> bool:
        return False


class Scope:
    """The names in scope at a position of an expression: the parse context and the variables bound around it.

    slots: of the variables that are bound here; those around it are in the scopes around it (`slot_of`): an expression
    may bind 100,000 variables, and have as many within that bind another.
    """

    def __init__(self, ctx: ParseContext, parent: "Scope | None" = None) -> None:
        self.ctx: Final = ctx
        self.slots: dict[str, int] = {}
        self._around: Scope | None = parent
        self.constants: dict[str, Value] = {} if parent is None else parent.constants
        self.next_slot: int = 0 if parent is None else parent.next_slot

    def bind(self, names: list[str]) -> "Scope":
        """The scope inside an expression that binds these names, to slots from `self.next_slot` on."""
        inner = Scope(self.ctx, self)
        if len(names) >= LONG:
            inner.slots = LongDict({})
        for name in names:
            give_way()
            inner.slots[name] = inner.next_slot
            inner.next_slot += 1
        return inner

    def slot_of(self, name: str) -> int:
        """The slot of a variable, -1 if none has this name."""
        scope: Scope | None = self
        while scope is not None:
            slot = scope.slots.get(name, -1)
            if slot >= 0:
                return slot
            scope = scope._around
        return -1

    def reserve(self, count: int) -> "Scope":
        """A scope with the same names that leaves `count` slots free for variables bound around the inner
        expressions."""
        inner = Scope(self.ctx)
        inner.slots = self.slots
        inner._around = self._around
        inner.constants = self.constants
        inner.next_slot = self.next_slot
        inner.next_slot += count
        return inner

    def define(self, constants: dict[str, Value]) -> "Scope":
        """A scope with additional names for constant values (`$$PRUNE` inside `$redact`)."""
        inner = Scope(self.ctx, self)
        inner.constants = {**self.constants, **constants}
        return inner

    def system_variable(self, name: str) -> Value:
        """The value of `$$NOW` and other constants; UNBOUND for other system variables. 51144 if it is not defined."""
        if not self.ctx.runtime_constants and (name == "NOW" or name == "CLUSTER_TIME"):
            raise CommandError(51144, f"Builtin variable '$${name}' is not available")
        if name == "NOW":
            return Date(self.ctx.now_ms)
        if name == "CLUSTER_TIME":
            at = self.ctx.cluster_time
            return Timestamp(timestamp_seconds(self.ctx.now_ms), 1) if at is None else at.timestamp
        if name == "REMOVE":
            return MISSING
        if name == "USER_ROLES":
            return []
        return UNBOUND


ExpressionParser: TypeAlias = Callable[[str, Value, Scope], Expression]
ValueFunction: TypeAlias = Callable[[list[Value]], Value]
UnaryFunction: TypeAlias = Callable[[Value], Value]
CollatedFunction: TypeAlias = Callable[[list[Value], Collation | None], Value]


# How an operator takes its operands. But for the first kind, those after a null are not evaluated.
ALL_FIRST: Final = 0  # evaluates all of them first
IN_ORDER: Final = 1
ASSOCIATIVE: Final = 2  # also combines constants that follow each other, when it is parsed
COMMUTATIVE: Final = 3  # also combines all constants, and takes them last


# Neither compared nor printed: each method that a dataclass generates delays the first query.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class Operator:
    """An entry of the registry: either a parser, or a function with the number of its arguments."""

    parser: ExpressionParser | None = None
    function: ValueFunction | None = None
    unary: UnaryFunction | None = None
    collated: CollatedFunction | None = None
    minimum: int = 0
    # -1 for any number.
    maximum: int = -1
    # Whether it is evaluated when it is parsed, if its operands are constants.
    foldable: bool = True
    # ALL_FIRST, IN_ORDER, ASSOCIATIVE or COMMUTATIVE.
    grouping: int = ALL_FIRST


EXPRESSIONS: Final[Registry[Operator]] = Registry("expression")


def expression_parser(name: str, *, since: Version) -> Callable[[ExpressionParser], ExpressionParser]:
    """Registers `def parse(name, argument, scope) -> Expression` for an operator with a special syntax.

    since: as for `Registry.add`.
    """

    def register(parser: ExpressionParser) -> ExpressionParser:
        EXPRESSIONS.add(name, Operator(parser=parser), since)
        return parser

    return register


def expression(
    name: str,
    minimum: int = 0,
    maximum: int | None = None,
    foldable: bool = True,
    grouping: int = ALL_FIRST,
    *,
    since: Version,
) -> Callable[[ValueFunction], ValueFunction]:
    """Registers `def function(values: list[Value]) -> Value` for an operator that takes a list of arguments.

    minimum, maximum: number of arguments; without `maximum` exactly `minimum`; maximum -1 for any number. grouping: as
    that of Operator. since: as for `Registry.add`.
    """

    def register(function: ValueFunction) -> ValueFunction:
        limit = minimum if maximum is None else maximum
        operator = Operator(function=function, minimum=minimum, maximum=limit, foldable=foldable, grouping=grouping)
        EXPRESSIONS.add(name, operator, since)
        return function

    return register


def collated_expression(
    name: str, minimum: int, maximum: int | None = None, grouping: int = ALL_FIRST, *, since: Version
) -> Callable[[CollatedFunction], CollatedFunction]:
    """Registers `def function(values, collation) -> Value` for an operator whose value depends on the collation.

    minimum, maximum, grouping, since: as for `expression`.
    """

    def register(function: CollatedFunction) -> CollatedFunction:
        limit = minimum if maximum is None else maximum
        EXPRESSIONS.add(name, Operator(collated=function, minimum=minimum, maximum=limit, grouping=grouping), since)
        return function

    return register


def unary_expression(name: str, *, since: Version) -> Callable[[UnaryFunction], UnaryFunction]:
    """Registers `def function(value: Value) -> Value` for an operator with exactly one argument.

    since: as for `Registry.add`.
    """

    def register(function: UnaryFunction) -> UnaryFunction:
        EXPRESSIONS.add(name, Operator(unary=function, minimum=1, maximum=1), since)
        return function

    return register


class FunctionExpression(Expression):
    """An operator that is a function of its operands' values."""

    def __init__(self, name: str, function: ValueFunction, arguments: list[Expression], foldable: bool = True) -> None:
        self.name: Final = name
        self.function: Final = function
        self.arguments: Final[list[Expression]] = freed_in_slices(arguments)
        self._foldable: Final = foldable

    def evaluate(self, ev: EvaluationContext) -> Value:
        give_way()
        held = ev.held
        values: list[Value] = [] if len(self.arguments) < LONG else LongList()
        evaluate_all(self.arguments, ev, values)
        ev.held = held
        return self.function(values)

    def operands(self) -> list[Expression]:
        return self.arguments

    def describe(self) -> Value:
        return encode({self.name: [argument.describe() for argument in self.arguments]})

    def foldable(self) -> bool:
        return self._foldable


class InOrderExpression(FunctionExpression):
    """An operator that ends at its first null operand: the operands after it are not evaluated."""

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        values: list[Value] = [] if len(self.arguments) < LONG else LongList()
        try:
            evaluate_all(self.arguments, ev, values)
        except CommandError as error:
            ev.held = held
            if values and not is_interruption(error) and self.function(values) is None:
                return None
            raise
        ev.held = held
        return self.function(values)


class CollatedExpression(FunctionExpression):
    """An operator that is a function of its operands' values and the collation."""

    def __init__(
        self, name: str, function: CollatedFunction, arguments: list[Expression], collation: Collation | None
    ) -> None:
        super().__init__(name, _no_function, arguments)
        self.collated: Final = function
        self.collation: Final = collation

    def evaluate(self, ev: EvaluationContext) -> Value:
        give_way()
        held = ev.held
        values: list[Value] = [] if len(self.arguments) < LONG else LongList()
        evaluate_all(self.arguments, ev, values)
        ev.held = held
        return self.collated(values, self.collation)


class CollatedInOrderExpression(CollatedExpression):
    """An InOrderExpression whose value also depends on the collation."""

    def evaluate(self, ev: EvaluationContext) -> Value:
        held = ev.held
        values: list[Value] = [] if len(self.arguments) < LONG else LongList()
        try:
            evaluate_all(self.arguments, ev, values)
        except CommandError as error:
            ev.held = held
            if values and not is_interruption(error) and self.collated(values, self.collation) is None:
                return None
            raise
        ev.held = held
        return self.collated(values, self.collation)


def _no_function(values: list[Value]) -> Value:
    raise AssertionError("a collated function stands in its place")


class UnaryExpression(Expression):
    """An operator with one operand."""

    def __init__(self, name: str, function: UnaryFunction, argument: Expression) -> None:
        self.name: Final = name
        self.function: Final = function
        self.argument: Final = argument

    def evaluate(self, ev: EvaluationContext) -> Value:
        give_way()
        return self.function(self.argument.evaluate(ev))

    def operands(self) -> list[Expression]:
        return [self.argument]

    def describe(self) -> Value:
        return encode({self.name: [self.argument.describe()]})


class NamedExpression(Expression):
    """Base of operators whose argument is an object of named parameters, `{$op: {input: …, chars: …}}`."""

    def __init__(self, name: str, parameters: dict[str, Expression]) -> None:
        self.name: Final = name
        self.parameters: Final = parameters

    def parameter(self, key: str) -> Expression | None:
        return self.parameters.get(key)

    def operands(self) -> list[Expression]:
        return list(self.parameters.values())

    def describe(self) -> Value:
        fields: list[tuple[str, Value]] = [(key, node.describe()) for key, node in self.parameters.items()]
        return encode({self.name: encode_fields(fields)})


def is_nullish(value: Value) -> bool:
    """Whether a value is null, undefined or MISSING."""
    return value is None or isinstance(value, (Missing, Undefined))


_NO_DOCUMENT: Final = EvaluationContext()
# What the values of operators on constants may take that are kept, of all in what is parsed with one ParseContext.
MAX_FOLDED_BYTES: Final = 128 << 20


def fold(node: Expression, ctx: ParseContext) -> Expression:
    """Replaces an operator on constants by its value.

    If the operator fails on its constants, the expression is refused, even if no document would evaluate it; but only
    after the whole expression is parsed, since mongod's optimiser, which detects it, runs after its parser. Without
    optimisation (`folding_fails` is false) the operator is kept and fails when it is evaluated. It is also kept where
    such values already take MAX_FOLDED_BYTES.
    """
    if not node.foldable():
        return node
    operands = node.operands()
    if not operands:
        return node
    for operand in operands:
        if not isinstance(operand, Constant):
            return node
    if ctx.folded_bytes > MAX_FOLDED_BYTES:
        return node
    begun = begin_evaluation()
    try:
        copied: i64 = COPIED.bytes
        value = node.evaluate(_NO_DOCUMENT)
        if COPIED.bytes != copied or isinstance(value, str):
            ctx.folded_bytes += int(_size_of_new(value, COPIED.bytes - copied))
        return Constant(value)
    except CommandError as error:
        _NO_DOCUMENT.held = 0
        if is_interruption(error):
            raise
        if ctx.folding_fails and ctx.folding_error is None:
            ctx.folding_error = error
        return node
    finally:
        if begun:
            end_evaluation()


def raise_folding_error(ctx: ParseContext) -> None:
    """Raises the first error of `fold` in the expression that has just been parsed."""
    error = ctx.folding_error
    if error is not None:
        ctx.folding_error = None
        raise error
