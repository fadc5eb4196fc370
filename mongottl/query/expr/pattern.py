"""`$regexFind $regexFindAll $regexMatch`, with the regular expressions of filters (`regex.compiled`)."""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.freeing import LONG, LongList
from mongottl.document.interrupt import give_way
from mongottl.document.types import Regex, Value
from mongottl.document.utf8 import decode_text, encode_text, is_valid_text
from mongottl.errors import CommandError
from mongottl.query.expr.base import (
    EvaluationContext,
    Expression,
    NamedExpression,
    Scope,
    expression_parser,
    is_nullish,
)
from mongottl.query.expr.named import Syntax
from mongottl.query.expr.parser import check_string
from mongottl.regex.compiled import MAX_PATTERN_BYTES, REGEX_COMPILE_ERROR, CompiledRegex
from mongottl.regex.library import OPTIONS

_REGEX: Final = Syntax(51103, 31024, [("input", 31022), ("regex", 31023)], ["options"])

FIND: Final = 0
FIND_ALL: Final = 1
MATCH: Final = 2


class RegexExpression(NamedExpression):
    """`$regexFind`, `$regexFindAll` and `$regexMatch`.

    kind: FIND, FIND_ALL or MATCH. The last compiled pattern is cached, since patterns are nearly always
    constants.
    """

    def __init__(self, name: str, kind: int, parameters: dict[str, Expression]) -> None:
        super().__init__(name, parameters)
        self.kind: Final = kind
        self.input: Final = parameters["input"]
        self.regex: Final = parameters["regex"]
        self.options: Final = parameters.get("options")
        self._pattern: str = ""
        self._letters: str = ""
        self._compiled: CompiledRegex | None = None

    def evaluate(self, ev: EvaluationContext) -> Value:
        text = self.input.evaluate(ev)
        compiled = self._compile(ev)
        if not is_nullish(text) and not isinstance(text, str):
            raise CommandError(51104, f"{self.name} needs 'input' to be of type string")
        if not isinstance(text, str) or compiled is None:
            return self._none()
        if not is_valid_text(text):
            raise CommandError(
                51156,
                f"Error occurred while executing the regular expression in {self.name}: 'input' is not valid UTF-8",
            )
        subject = encode_text(check_string(text))
        if self.kind == MATCH:
            return compiled.found_in(subject)
        if self.kind == FIND:
            spans = compiled.first_match(subject)
            return None if spans is None else _found(subject, spans, 0, 0)[0]
        return _find_all(compiled, subject)

    def _none(self) -> Value:
        if self.kind == MATCH:
            return False
        empty: list[Value] = []
        return None if self.kind == FIND else empty

    def _compile(self, ev: EvaluationContext) -> CompiledRegex | None:
        """The compiled pattern, None if it is null. Codes 51105 to 51111 for invalid ones."""
        regex = self.regex.evaluate(ev)
        letters = ""
        pattern: str | None = None
        if isinstance(regex, Regex):
            pattern = regex.pattern
            letters = "".join([letter for letter in regex.options if letter in OPTIONS])
        elif isinstance(regex, str):
            pattern = regex
        elif not is_nullish(regex):
            raise CommandError(51105, f"{self.name} needs 'regex' to be of type string or regex")
        if self.options is not None:
            options = self.options.evaluate(ev)
            if not is_nullish(options):
                if not isinstance(options, str):
                    raise CommandError(51106, f"{self.name} needs 'options' to be of type string")
                if letters:
                    raise CommandError(
                        51107, f"{self.name}: found regex option(s) specified in both 'regex' and 'option' fields"
                    )
                letters = options
        if pattern is None:
            return None
        if len(pattern) > MAX_PATTERN_BYTES or len(encode_text(pattern)) > MAX_PATTERN_BYTES:
            raise CommandError(51111, f"Invalid Regex in {self.name}: pattern string is longer than the limit")
        if "\0" in pattern:
            raise CommandError(51109, f"{self.name}: regular expression cannot contain an embedded null byte")
        if "\0" in letters:
            raise CommandError(51110, f"{self.name}: regular expression options cannot contain an embedded null byte")
        compiled = self._compiled
        if compiled is None or pattern != self._pattern or letters != self._letters:
            try:
                compiled = CompiledRegex(encode_text(pattern), letters)
            except CommandError as error:
                code = 51111 if error.code == REGEX_COMPILE_ERROR else error.code
                raise CommandError(code, f"Invalid Regex in {self.name}: {error.message}") from None
            self._pattern = pattern
            self._letters = letters
            self._compiled = compiled
        return compiled


def _found(subject: bytes, spans: list[tuple[int, int]], known: int, known_index: int) -> tuple[bytes, int]:
    """(`{match, idx, captures}`, idx): idx counts code points, starting from a known byte position and its index."""
    start, end = spans[0]
    index = known_index + len(decode_text(subject[known:start]))
    captures: list[Value] = []
    for first, last in spans[1:]:
        captures.append(None if first < 0 else decode_text(subject[first:last]))
    return encode({"match": decode_text(subject[start:end]), "idx": index, "captures": captures}), index


def _find_all(compiled: CompiledRegex, subject: bytes) -> list[Value]:
    found: list[Value] = [] if len(subject) < LONG else LongList()
    position = 0
    known = 0
    index = 0
    size = 0
    while position >= 0:
        matches = compiled.next_matches(subject, position)
        for at in range(matches.count):
            spans = matches.spans(at)
            document, index = _found(subject, spans, known, index)
            known = spans[0][0]
            found.append(document)
            size += len(document)
            if size > 64 << 20:
                raise CommandError(51151, "$regexFindAll: the size of buffer to store output exceeded the 64MB limit")
            give_way()
        position = matches.next_start
    return found


@expression_parser("$regexFind", since=(4, 2))
def parse_regex_find(name: str, argument: Value, scope: Scope) -> Expression:
    """`{input, regex, options}`: `{match, idx, captures}` of the first match, or null."""
    return RegexExpression(name, FIND, _REGEX.parse(name, argument, scope))


@expression_parser("$regexFindAll", since=(4, 2))
def parse_regex_find_all(name: str, argument: Value, scope: Scope) -> Expression:
    return RegexExpression(name, FIND_ALL, _REGEX.parse(name, argument, scope))


@expression_parser("$regexMatch", since=(4, 2))
def parse_regex_match(name: str, argument: Value, scope: Scope) -> Expression:
    return RegexExpression(name, MATCH, _REGEX.parse(name, argument, scope))
