"""The registry of update modifiers, and the input of their parsers.

    @modifier("$inc", since=OLDEST)
    def parse_inc(operand: Operand, ctx: ParseContext) -> ModifierNode: …

A parser gets one field of the modifier's document, `path: value`; paths, positional components and conflicts are
handled by `paths` and `tree`.
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
from mongottl.versions import Version


class Operand:
    """One field `path: value` of a modifier's document.

    path: not split. type_code, buf, pos, end: the value is buf[pos:end].
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


def modifier(name: str, *, since: Version) -> Callable[[ModifierParser], ModifierParser]:
    """Registers the parser of a modifier, which raises CommandError for invalid operands.

    since: as for `Registry.add`.
    """

    def register(parser: ModifierParser) -> ModifierParser:
        modifiers.add(name, parser, since)
        return parser

    return register
