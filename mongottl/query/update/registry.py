"""The table of update modifiers, and what a modifier's parser is given.

    @modifier("$inc")
    def parse_inc(operand: Operand, ctx: ParseContext) -> ModifierNode: …

A parser sees one entry of the modifier's document, `path: value`; paths, positional parts and conflicts are the
business of `paths` and `tree`, not of the modifiers.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mypy_extensions import i64

from mongottl.document.types import Value
from mongottl.document.walk import decode_value
from mongottl.query.context import ParseContext
from mongottl.query.registry import Registry
from mongottl.query.update.describe import show_element
from mongottl.query.update.nodes import ModifierNode


class Operand:
    """One `path: value` of a modifier's document, its bytes in place.

    path: as written. type_code, buf, pos, end: the value and where it lies.
    """

    def __init__(self, path: str, type_code: i64, buf: bytes, pos: i64, end: i64) -> None:
        self.path = path
        self.type_code: i64 = type_code
        self.buf: bytes = buf
        self.pos: i64 = pos
        self.end: i64 = end

    def value(self) -> Value:
        return decode_value(self.buf, self.type_code, self.pos)

    def raw(self) -> bytes:
        """The value's bytes."""
        return self.buf[self.pos : self.end]

    def show(self) -> str:
        """`path: value`, for messages."""
        return show_element(self.path, self.value())


ModifierParser: TypeAlias = Callable[[Operand, ParseContext], ModifierNode]

modifiers: Final[Registry[ModifierParser]] = Registry("update modifier")


def modifier(name: str) -> Callable[[ModifierParser], ModifierParser]:
    """Registers the parser of a modifier. It raises CommandError for operands that the modifier does not take."""

    def register(parser: ModifierParser) -> ModifierParser:
        modifiers.add(name, parser)
        return parser

    return register
