"""Field paths and variables: `"$a.b"`, `"$$ROOT"`, `"$$this.c"`.

A path through an array gives an array of the values at the path in its elements that are documents. Elements without
the field, and nested arrays, are skipped. A component that looks like a number is a field name here, never an index.
"""

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

from mongottl.document.freeing import LONG, LONG_BYTES, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.types import ARRAY, DOCUMENT, MISSING, Missing, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import SEARCHED_BITS, cstring_end, decode_value, find_field_at, skip_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.expr.base import UNBOUND, Constant, EvaluationContext, Expression, Scope
from mongottl.versions import VARIABLE

# The time to search a document above this size for a field is counted.
_LONG_BYTES: Final = 64 * 1024
# Characters of a variable's name that are checked in one step, as a mask, and the work that they count as.
_NAME_MASK: Final = 1023
_NAME_WEIGHT: Final = 20


def value_at(buf: bytes, type_code: i64, pos: i64, parts: list[bytes], index: i64) -> Value:
    """The decoded value at the path parts[index:] from the value at `pos`; MISSING if there is none."""
    depth: i64 = len(parts)
    while index < depth:
        if type_code == DOCUMENT:
            type_code, pos = find_field_at(buf, pos, parts[index])
            index += 1
        elif type_code == ARRAY:
            return _values_in_array(buf, pos, parts, index)
        else:
            return MISSING
    return decode_value(buf, type_code, pos)


def _values_in_array(buf: bytes, start: i64, parts: list[bytes], index: i64) -> list[Value]:
    found: list[Value] = LongList() if read_i32_le(buf, start) >= LONG_BYTES else []
    pos: i64 = start + 4
    while True:
        type_code: i64 = buf[pos]
        if type_code == 0:
            return found
        give_way()
        pos = cstring_end(buf, pos + 1) + 1
        if type_code == DOCUMENT:
            value = value_at(buf, type_code, pos, parts, index)
            if not isinstance(value, Missing):
                found.append(value)
        pos = skip_value(buf, type_code, pos)


def value_in(value: Value, parts: list[bytes], index: i64) -> Value:
    """The value at the path parts[index:] from a decoded value; MISSING if there is none."""
    if index >= len(parts):
        return value
    if isinstance(value, bytes):
        return value_at(value, DOCUMENT, 0, parts, index)
    if isinstance(value, list):
        found: list[Value] = [] if len(value) < LONG else LongList()
        for item in value:
            give_way()
            if isinstance(item, bytes):
                inner = value_in(item, parts, index)
                if not isinstance(inner, Missing):
                    found.append(inner)
        return found
    return MISSING


class RootExpression(Expression):
    """`$$ROOT`, and `$$CURRENT` unless it is bound to another value."""

    def evaluate(self, ev: EvaluationContext) -> Value:
        return ev.root

    def describe(self) -> Value:
        return "$$ROOT"

    def collect_paths(self, paths: set[str]) -> bool:
        return False

    def foldable(self) -> bool:
        return False


class FieldExpression(Expression):
    """`"$a"`: one field of the document."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.name_bytes: Final = encode_text(name)

    def evaluate(self, ev: EvaluationContext) -> Value:
        root = ev.root
        if len(root) > _LONG_BYTES:
            give_way(len(root) >> SEARCHED_BITS)
        type_code, pos = find_field_at(root, 0, self.name_bytes)
        if type_code == 0:
            return MISSING
        return decode_value(root, type_code, pos)

    def describe(self) -> Value:
        return "$" + self.name

    def collect_paths(self, paths: set[str]) -> bool:
        paths.add(self.name)
        return True

    def foldable(self) -> bool:
        return False


class FieldPathExpression(Expression):
    """`"$a.b.c"`: a path into the document."""

    def __init__(self, path: FieldPath) -> None:
        self.path: Final = path
        self.part_bytes: Final = path.part_bytes

    def evaluate(self, ev: EvaluationContext) -> Value:
        root = ev.root
        if len(root) > _LONG_BYTES:
            give_way(len(root) >> SEARCHED_BITS)
        return value_at(root, DOCUMENT, 0, self.part_bytes, 0)

    def describe(self) -> Value:
        return "$" + self.path.dotted

    def collect_paths(self, paths: set[str]) -> bool:
        paths.add(self.path.dotted)
        return True

    def foldable(self) -> bool:
        return False


class VariableExpression(Expression):
    """`"$$name"` or `"$$name.path"`, where the name is bound to a slot.

    parts: the path after the name, may be empty.
    """

    def __init__(self, name: str, slot: int, parts: list[str]) -> None:
        self.name: Final = name
        self.slot: Final[i64] = slot
        self.parts: Final = parts
        self.part_bytes: Final[list[bytes]] = [encode_text(part) for part in parts]

    def evaluate(self, ev: EvaluationContext) -> Value:
        value = ev.slots[self.slot]
        if len(self.part_bytes) == 0:
            return value
        return value_in(value, self.part_bytes, 0)

    def describe(self) -> Value:
        return "$$" + ".".join([self.name, *self.parts])

    def foldable(self) -> bool:
        return False


class UnboundExpression(Expression):
    """A variable whose value is not known yet; the tree is only checked, never evaluated."""

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def describe(self) -> Value:
        return "$$" + self.name

    def foldable(self) -> bool:
        return False


SYSTEM_VARIABLES: Final = frozenset({"NOW", "CLUSTER_TIME", "REMOVE", "USER_ROLES"})


def parse_path(text: str, scope: Scope) -> Expression:
    """The expression of a string that starts with `$`.

    Errors: 16872 for "$" alone, FailedToParse for a bad variable name, 17276 for an undefined variable, and those of
    `check_field_path` for the path.
    """
    if not text.startswith("$$"):
        dotted = text[1:]
        if dotted == "":
            raise CommandError(16872, "'$' by itself is not a valid FieldPath")
        check_field_path(dotted)
        slot = scope.slot_of("CURRENT")
        if slot >= 0:
            return VariableExpression("CURRENT", slot, dotted.split("."))
        if "CURRENT" in scope.ctx.let:
            return _parse_variable("CURRENT." + dotted, scope)
        return field_path(dotted)
    return _parse_variable(text[2:], scope)


def field_path(dotted: str) -> Expression:
    """The expression that reads a checked path from the root document."""
    if "." not in dotted:
        return FieldExpression(dotted)
    return FieldPathExpression(FieldPath(dotted))


def _parse_variable(text: str, scope: Scope) -> Expression:
    name, dot, rest = text.partition(".")
    check_readable_name(name)
    parts: list[str] = []
    if dot:
        check_field_path(text if rest == "" else rest)
        parts = rest.split(".")
    slot = scope.slot_of(name)
    if slot >= 0:
        return VariableExpression(name, slot, parts)
    if name == "ROOT" or (name == "CURRENT" and name not in scope.ctx.let):
        return field_path(rest) if parts else RootExpression()
    part_bytes = [encode_text(part) for part in parts]
    if name in scope.constants:
        return Constant(value_in(scope.constants[name], part_bytes, 0))
    if name in SYSTEM_VARIABLES and not scope.ctx.lacks(VARIABLE, name):
        return Constant(value_in(scope.system_variable(name), part_bytes, 0))
    if name == "SEARCH_META":
        raise CommandError(ErrorCode.CommandNotSupported, "$$SEARCH_META needs Atlas Search, which is not supported")
    let = scope.ctx.let
    if name not in let:
        what_helps = scope.ctx.advice(VARIABLE, name)
        raise CommandError(17276, f"Use of undefined variable: {name}", advice=what_helps)
    value = let[name]
    if value is UNBOUND:
        return UnboundExpression(text)
    return Constant(value_in(value, part_bytes, 0))


def _name_character(char: str) -> bool:
    return char.isalnum() or char == "_" or not char.isascii()


def check_readable_name(name: str) -> None:
    """FailedToParse unless the text is a valid variable name after `$$`."""
    if name == "":
        raise CommandError(ErrorCode.FailedToParse, "empty variable names are not allowed")
    if not (name[0].isalpha() or not name[0].isascii()):
        raise CommandError(ErrorCode.FailedToParse, f"'{name}' starts with an invalid character for a variable name")
    _check_characters(name)


def check_user_name(name: str) -> None:
    """FailedToParse unless the name can be bound by users: it starts with a lower-case letter, or is CURRENT."""
    if name == "":
        raise CommandError(ErrorCode.FailedToParse, "empty variable names are not allowed")
    if name == "CURRENT":
        return
    if not (("a" <= name[0] <= "z") or not name[0].isascii()):
        raise CommandError(
            ErrorCode.FailedToParse, f"'{name}' starts with an invalid character for a user variable name"
        )
    _check_characters(name)


def _check_characters(name: str) -> None:
    for i in range(len(name)):
        if i & _NAME_MASK == _NAME_MASK:
            give_way(_NAME_WEIGHT)
        char = name[i]
        if not _name_character(char):
            raise CommandError(
                ErrorCode.FailedToParse, f"'{name}' contains an invalid character for a variable name: '{char}'"
            )
