"""A pattern with its options, as filters and expressions use it.

Patterns and subjects are UTF-8 bytes, as in BSON. Patterns that are plain text, with or without a leading `^`, are
matched without the library.

Differences from mongod: the binding always sets PCRE2_ALT_BSUX (`\\uhhhh` is a code point, where mongod refuses
`\\u`) and PCRE2_NEVER_BACKSLASH_C (`\\C`, one byte of a character, is refused). A search that exceeds PCRE2's own
limits finds nothing, as in mongod.
"""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from mongottl.document.interrupt import LOOKED_WORK, give_way
from mongottl.document.utf8 import is_valid_utf8
from mongottl.errors import CommandError
from mongottl.regex.library import OPTIONS, code_of, library, next_start

# mongod's codes: the pattern does not compile; an option letter is unknown.
REGEX_COMPILE_ERROR: Final = 51091
REGEX_OPTION_ERROR: Final = 51108
# mongod refuses longer patterns without parsing them.
MAX_PATTERN_BYTES: Final = 16 * 1024

# What a search counts as in `give_way`: it may take a microsecond or, with a bad pattern, some milliseconds.
_SEARCH_WORK: Final = 64

# Searches that are done at once take about this time at most, in nanoseconds, on a machine of our days.
_MOST_NS: Final = 40_000_000
# A search begins at each place of a text and takes steps from there, of which it gets a limit. Each may go through the
# rest of the text, by a character in a nanosecond, and through the whole pattern: by a byte of it in 30, if that may be
# an assertion, or else in 8. So the limit depends on the lengths of the pattern and of the text; it is computed for
# these lengths, and is the same for shorter texts.
_TEXT_BYTES: Final = (64, 256, 1024, 4096)  # as in `_at_once`
_ASSERTION_NS: Final = 30
_CHARACTER_NS: Final = 8
# Without repetitions a step goes through the pattern alone, so that the text may be longer: with this limit of steps.
# Without alternatives there are no steps back.
_STEPS_OF_LONG_TEXTS: Final = 4

# How a pattern begins to refer to itself or to a group.
_RECURSIONS: Final = (
    b"(?R",
    b"(?&",
    b"(?P>",
    b"\\g<",
    b"\\g'",
    *[b"(?%d" % digit for digit in range(10)],
    b"(?+",
    b"(?-",
)
# The library takes 15 ms to compile 400 of them to what they stand in, and four times as long for twice as many.
_MOST_RECURSIONS: Final = 400
# Where these are, neither the time of a step nor that of compiling to machine code is known, or a limit has no effect:
# references, groups of the same name (the option J), settings and verbs.
_UNKNOWN_TIME: Final = re.compile(rb"\(\?(?:R|P>|&|[0-9+-]|[a-zA-Z^]*J)|\\g[<']|\(\*|\(\?\(DEFINE")

_SPECIAL: Final = frozenset(b"\\^$.[]|()?*+{}")
# What repeats, looks around or refers; and letters that make one character, a place or a class after a backslash.
_REPEATING: Final = (b"*", b"+", b"{", b"(?")
_PLAIN_ESCAPES: Final = frozenset(b"dDwWsSbBAzZnrtfvhHN")

# How many matches another process is asked for at once. It gives fewer if these take much room.
_MANY: Final = 100_000

# Of texts that are searched ahead, how many and how many bytes of them one request has, about; and what is kept of all.
_AHEAD: Final = 64
_AHEAD_BYTES: Final = 256 * 1024
_KEPT_BYTES: Final = 4 << 20


@mypyc_attr(allow_interpreted_subclasses=True)
class SearchElsewhere(ABC):
    """Searches in other processes. Both methods return None if none can be asked here."""

    @abstractmethod
    def search(self, pattern: bytes, options: str, subject: bytes, start: int, most: int) -> Sequence[int] | None:
        """The numbers of a reply of `worker`. most: how many matches are wanted, 0: only whether there is one."""
        raise NotImplementedError

    @abstractmethod
    def search_many(self, pattern: bytes, options: str, subjects: list[bytes]) -> bytes | None:
        """For each subject 1 if there is a match, else 0. For fewer of them if it takes long, but at least one."""
        raise NotImplementedError


# Of the server that runs in a thread.
_elsewhere: Final[dict[int, SearchElsewhere]] = {}


def set_search_elsewhere(elsewhere: SearchElsewhere | None) -> None:
    """Sets what searches for the evaluations of the present thread where that may take long."""
    if elsewhere is None:
        _elsewhere.pop(threading.get_ident(), None)
    else:
        _elsewhere[threading.get_ident()] = elsewhere


class Matches:
    """The next matches in a subject, at least one if there is any.

    count: how many these are. next_start: where the search for others begins, -1 if there are none.
    """

    def __init__(self, numbers: Sequence[int], groups: int) -> None:
        # As in a reply of `worker`.
        self._numbers = numbers
        self._width: Final = 2 * (groups + 1)
        self.next_start: int = numbers[0]
        self.count: Final = len(numbers) // self._width

    def spans(self, index: int) -> list[tuple[int, int]]:
        """Begin and end of a match, then of its groups ((-1, -1) if unset), as bytes."""
        first = 1 + index * self._width
        numbers = self._numbers
        return [(numbers[at], numbers[at + 1]) for at in range(first, first + self._width, 2)]


class CompiledRegex:
    """A compiled pattern with its options. CommandError 51091 for an invalid pattern, 51108 for an unknown option.

    pattern: UTF-8. options: letters of `imsux`, repeats allowed.
    """

    def __init__(self, pattern: bytes, options: str) -> None:
        for letter in options:
            if letter not in OPTIONS:
                raise CommandError(REGEX_OPTION_ERROR, f"invalid flag in regex options: {letter}")
        if len(pattern) > MAX_PATTERN_BYTES:
            raise CommandError(
                REGEX_COMPILE_ERROR,
                "Regular expression is invalid: pattern string is longer than the limit set by the application",
            )
        self.pattern = pattern
        # Each letter once.
        self.options = "".join([letter for letter in OPTIONS if letter in options])
        self._literal: bytes = pattern
        self._is_literal = False
        self._anchored = False
        # The longest text that is searched at once with _STEPS_OF_LONG_TEXTS.
        self._longest: i64 = 0
        self._match: Any = None
        self._context: Any = None
        self._groups = -1
        # Whether it may ask other processes about the next texts, so that `search_ahead` pays; as for the last ones.
        self.asks_processes: bool = False
        # What `search_ahead` has found.
        self._known: dict[bytes, bool] = {}
        # For each of _TEXT_BYTES, then for longer texts, and without a limit of steps; made when they are needed. None:
        # such a search may take long.
        self._limited: list[Any] = []
        self._unlimited: Any = None
        if options in ("", "s", "u"):
            if pattern.startswith(b"^"):
                self._anchored = True
                self._literal = pattern[1:]
            # The library's message says what is wrong with a pattern that is no UTF-8.
            self._is_literal = is_valid_utf8(pattern) and not any(byte in _SPECIAL for byte in self._literal)
        if not self._is_literal:
            self._check()

    def _check(self) -> None:
        """Compiles it, but not to machine code, which takes longer and is not needed before the first search."""
        found_by = library()
        self._match = found_by.match
        self._context = found_by.context
        if sum([self.pattern.count(begin) for begin in _RECURSIONS]) > _MOST_RECURSIONS:
            raise CommandError(REGEX_COMPILE_ERROR, "Regular expression is invalid: it has too many recursions")
        try:
            self._groups = int(found_by.compiled(self.pattern, self.options, False).groups)
        except found_by.pattern_error as error:
            raise CommandError(REGEX_COMPILE_ERROR, f"Regular expression is invalid: {error}") from None
        self._limited = [_UNKNOWN] * (len(_TEXT_BYTES) + 1)
        places = _MOST_NS // self._pattern_ns()
        if not _may_repeat(self.pattern):
            choices = any(choice in self.pattern for choice in b"(|?")
            self._longest = places // _STEPS_OF_LONG_TEXTS if choices else places
        elif _UNKNOWN_TIME.search(self.pattern):
            self._limited = [None] * (len(_TEXT_BYTES) + 1)
        self.asks_processes = self._longest == 0

    def _at_once(self, size: i64) -> Any:
        """The pattern with the limit with which it is searched for at once in a text of some size; None if that may
        take long."""
        kind: i64 = 4
        if size <= 256:
            kind = 0 if size <= 64 else 1
        elif size <= 4096:
            kind = 2 if size <= 1024 else 3
        elif size > self._longest:
            return None
        code = self._limited[kind]
        return self._limit(kind) if code is _UNKNOWN else code

    def _limit(self, kind: i64) -> Any:
        steps = _STEPS_OF_LONG_TEXTS if kind == len(_TEXT_BYTES) else self._most_steps(_TEXT_BYTES[kind])
        code = _machine_code(b"(*LIMIT_MATCH=%d)" % steps + self.pattern, self.options) if steps > 0 else None
        self._limited[kind] = code
        give_way(LOOKED_WORK)
        return code

    def _most_steps(self, size: int) -> int:
        """The limit of steps for texts of up to this size; 0 if there is none with which a search is short."""
        if self._longest > 0:
            return _MOST_NS // (size * self._pattern_ns())
        return _MOST_NS // (size * (size + self._pattern_ns()))

    def _pattern_ns(self) -> int:
        """How long it takes to go through the pattern, at most, in nanoseconds."""
        asserts = any(byte in self.pattern for byte in b"^$\\") or b"(?" in self.pattern
        return (_ASSERTION_NS if asserts else _CHARACTER_NS) * (len(self.pattern) + 1)

    def _found_at_once(self, subject: bytes, start: int, most: int) -> Sequence[int] | None:
        """`_found`, or None if that may take long."""
        give_way(_SEARCH_WORK)
        code = self._at_once(len(subject))
        if code is None:
            return None
        found_by = library()
        try:
            found = found_by.found(code, subject, start)
        except found_by.library_error as error:
            if _is_limit(error):
                return None
            found = None
        return self._numbers(found, subject, most)

    def _found(self, subject: bytes, start: int, most: int) -> Sequence[int]:
        """The numbers of a reply of `worker`; for one match only, if that is found here."""
        numbers = self._found_at_once(subject, start, most)
        return self._found_apart(subject, start, most) if numbers is None else numbers

    def _found_apart(self, subject: bytes, start: int, most: int) -> Sequence[int]:
        """`_found` where that may take long: by another process, if one can be asked."""
        elsewhere = _elsewhere.get(threading.get_ident())
        if elsewhere is not None:
            numbers = elsewhere.search(self.pattern, self.options, subject, start, most)
            if numbers is not None:
                self.asks_processes = True
                return numbers
        found_by = library()
        if self._unlimited is None:
            code = _machine_code(self.pattern, self.options)
            self._unlimited = code or code_of(found_by.compiled(self.pattern, self.options, False))
        try:
            found = found_by.found(self._unlimited, subject, start)
        except found_by.library_error:
            found = None
        give_way(LOOKED_WORK)
        return self._numbers(found, subject, most)

    def _numbers(self, found: Any, subject: bytes, most: int) -> Sequence[int]:
        if most == 0:
            return _NOTHING if found is None else _SOMETHING
        numbers = [-1]
        if found is not None:
            library().add_spans(numbers, found, subject, self._groups)
            numbers[0] = next_start(subject, numbers[1], numbers[2])
        return numbers

    def found_in(self, subject: bytes) -> bool:
        """Whether the pattern matches anywhere in the subject. As in mongod, nothing matches what is not UTF-8."""
        if self._is_literal:
            found = subject.startswith(self._literal) if self._anchored else self._literal in subject
            return found and is_valid_utf8(subject)
        if self._known:
            known = self._known.get(subject)
            if known is not None:
                return known
        give_way(_SEARCH_WORK)
        code = self._at_once(len(subject))
        if code is not None:
            try:
                return self._match(code, subject, len(subject), 0, self._context)[0] is not None
            except library().library_error as error:
                if not _is_limit(error):
                    return False
        return len(self._found_apart(subject, 0, 0)) > 0

    def search_ahead(self, subjects: list[bytes]) -> None:
        """Searches these, many in one request, before `found_in` is asked about each of them; then `end_ahead`."""
        self._known = {}
        self.asks_processes = False
        kept = 0
        waiting: list[bytes] = []
        waiting_bytes = 0
        for subject in subjects:
            size = len(subject)
            kept += size
            if kept > _KEPT_BYTES:
                break
            numbers = self._found_at_once(subject, 0, 0)
            if numbers is not None:
                self._known[subject] = len(numbers) > 0
                continue
            self.asks_processes = True
            waiting.append(subject)
            waiting_bytes += size
            if len(waiting) == _AHEAD or waiting_bytes >= _AHEAD_BYTES:
                self._ask_about(waiting)
                waiting = []
                waiting_bytes = 0
        if waiting:
            self._ask_about(waiting)

    def end_ahead(self) -> None:
        """Lets go what `search_ahead` has found."""
        self._known = {}

    def _ask_about(self, subjects: list[bytes]) -> None:
        elsewhere = _elsewhere.get(threading.get_ident())
        while elsewhere is not None and subjects:
            found = elsewhere.search_many(self.pattern, self.options, subjects)
            if not found:
                return
            for i in range(len(found)):
                self._known[subjects[i]] = found[i] != 0
            subjects = subjects[len(found) :]

    def first_match(self, subject: bytes) -> list[tuple[int, int]] | None:
        """`Matches.spans` of the first match; None if there is none."""
        matches = self._next(subject, 0, 1)
        return matches.spans(0) if matches.count > 0 else None

    def next_matches(self, subject: bytes, start: int) -> Matches:
        """start: 0, or `next_start` of the matches before."""
        return self._next(subject, start, _MANY)

    def _next(self, subject: bytes, start: int, most: int) -> Matches:
        if self._groups < 0:
            self._check()
        return Matches(self._found(subject, start, most), self._groups)


# In place of a pattern that was not compiled yet.
_UNKNOWN: Final = object()
_NOTHING: Final[list[int]] = []
_SOMETHING: Final[list[int]] = [0]


def _machine_code(pattern: bytes, options: str) -> Any:
    """A pattern as machine code; None if it is too large for that."""
    found_by = library()
    try:
        return code_of(found_by.compiled(pattern, options, True))
    except found_by.library_error:
        return None


def _is_limit(error: Any) -> bool:
    """Whether a search has failed because a limit was exceeded, such as those of steps and of memory."""
    return "limit" in str(error)


def _may_repeat(pattern: bytes) -> bool:
    """Whether a search may go through much of the text from one place. False if it surely does not."""
    if any(repeating in pattern.replace(b"(?:", b"(") for repeating in _REPEATING):
        return True
    at = pattern.find(b"\\")
    while at >= 0:
        letter = pattern[at + 1 : at + 2]
        if letter.isalnum() and letter[0] not in _PLAIN_ESCAPES:
            return True
        at = pattern.find(b"\\", at + 2)
    return False
