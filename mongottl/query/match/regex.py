"""`{field: /pattern/}`, `$regex` with `$options`.

A regex matches strings and symbols, and a stored regex that has the same pattern and options.
"""

from librt.strings import read_i32_le
from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.compare import BRACKET_STRING
from mongottl.document.path import FieldPath
from mongottl.document.types import REGEX, STRING, SYMBOL, Regex, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import decode_value
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match.interval import Interval, bracket_interval, point, union
from mongottl.query.match.registry import ANY_TYPE, bad_value, match_operator
from mongottl.query.match.tree import MatchExpression, PathExpression
from mongottl.regex.compiled import CompiledRegex
from mongottl.versions import OLDEST


class RegexExpression(PathExpression):
    """`{path: /pattern/options}`.

    pattern, options: the original ones.
    """

    def __init__(self, path: FieldPath, pattern: str, options: str) -> None:
        super().__init__(path)
        self.pattern = pattern
        self.options = options
        self._regex = CompiledRegex(encode_text(pattern), options)
        # Within `test_ahead`: the strings that it is asked about.
        self._ahead: list[bytes] | None = None

    def asks_processes(self) -> bool:
        return self._regex.asks_processes

    def test_ahead(self, documents: list[bytes]) -> None:
        if len(documents) < 2:
            return
        ahead: list[bytes] = []
        self._ahead = ahead
        try:
            for document in documents:
                self.matches(document)
        finally:
            self._ahead = None
        self._regex.search_ahead(ahead)

    def end_ahead(self) -> None:
        self._regex.end_ahead()

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code == STRING or type_code == SYMBOL:
            subject = buf[pos + 4 : pos + 3 + i64(read_i32_le(buf, pos))]
            if self._ahead is not None:
                self._ahead.append(subject)
                return False
            return self._regex.found_in(subject)
        if type_code == REGEX:
            stored = decode_value(buf, type_code, pos)
            return isinstance(stored, Regex) and stored.pattern == self.pattern and stored.options == self.options
        return False

    def describe_operand(self) -> dict[str, Value]:
        if self.options:
            return {"$regex": self.pattern, "$options": self.options}
        return {"$regex": self.pattern}

    def intervals(self) -> list[Interval] | None:
        prefix = literal_prefix(self.pattern, self.options)
        itself = point(Regex(self.pattern, self.options), exact=False)
        if prefix == "":
            return union([bracket_interval(BRACKET_STRING, exact=False), itself])
        end = _end_of_prefix(prefix)
        if end is None:
            return union([bracket_interval(BRACKET_STRING, exact=False), itself])
        return union([Interval(prefix, True, end, False, exact=False), itself])

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        orders.append(None)


def _end_of_prefix(prefix: str) -> str | None:
    """The smallest string greater than all strings with the prefix; None if there is none."""
    while prefix:
        code = ord(prefix[-1]) + 1
        if code == 0xD800:
            code = 0xE000  # surrogates are not characters
        if code <= 0x10FFFF:
            return prefix[:-1] + chr(code)
        prefix = prefix[:-1]
    return None


def literal_prefix(pattern: str, options: str) -> str:
    """The text with which every match begins: "abc" for `^abc.*`; "" if it is unknown."""
    if options.strip("su"):
        return ""
    if pattern.startswith("^"):
        rest = pattern[1:]
    elif pattern.startswith("\\A"):
        rest = pattern[2:]
    else:
        return ""
    if "|" in rest:
        return ""
    prefix: list[str] = []
    i = 0
    while i < len(rest):
        character = rest[i]
        if character in "*?{":
            # The last character is optional.
            return "".join(prefix[:-1])
        if character == "\\":
            i += 1
            if i == len(rest) or (rest[i].isascii() and rest[i].isalnum()):
                break  # a class, an assertion, a back reference
            character = rest[i]
        elif character in "^$.[()+":
            break
        prefix.append(character)
        i += 1
    return "".join(prefix)


def make_regex(path: FieldPath, pattern: str, options: str) -> RegexExpression:
    """A regex match; BadValue for NUL in the pattern, 51108 for an unknown option, 51091 if it does not compile."""
    if "\0" in pattern:
        raise bad_value("Regular expression cannot contain an embedded null byte")
    return RegexExpression(path, pattern, options)


@match_operator(
    "$regex",
    order=80,
    reasons=("regular expression did not match", "regular expression did match"),
    types=("regex", "string", "symbol"),
    since=OLDEST,
)
def parse_regex(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$regex: "pattern" or /pattern/}}` without `$options`."""
    if isinstance(operand, Regex):
        return make_regex(path, operand.pattern, operand.options)
    if isinstance(operand, str):
        return make_regex(path, operand, "")
    raise bad_value("$regex has to be a string")


@match_operator("$options", order=None, reasons=None, types=ANY_TYPE, since=OLDEST)
def parse_regex_with_options(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`$regex` beside `$options`: the operand is [pattern, options, whether $options came first].

    Options in both are refused with 51075, or with 51074 if `$options` came first.
    """
    if not isinstance(operand, list):
        raise bad_value("$options needs a $regex")
    pattern, options, options_first = operand
    if not isinstance(options, str):
        raise bad_value("$options has to be a string")
    if isinstance(pattern, Regex):
        if pattern.options and (options or not options_first):
            code = 51074 if options_first else 51075
            raise CommandError(code, "options set in both $regex and $options")
        return make_regex(path, pattern.pattern, pattern.options or options)
    if not isinstance(pattern, str):
        raise bad_value("$regex has to be a string")
    return make_regex(path, pattern, options)
