"""What a process does that searches: `processes.spawner` runs it in each process that it forks.

Requests begin with their pattern, as `PATTERN`, its bytes, and its options. Then:

    S  `SEARCH` and a subject. Reply: numbers as `array` has them. If it was asked whether there is a match: 0 if there
       is one, or nothing. If matches were asked for: where to go on, -1 if these were the last ones; then for each
       match its begin and end and those of its groups, as bytes
    M  the number of subjects, the length of each, and all of them. Reply: for each a byte, 1 if it has a match, else 0;
       for fewer of them if it takes long

Replies are of kind D.
"""

import resource
from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from mongottl.processes.serving import serve
from mongottl.regex.library import Library, code_of, library, next_start

# The lengths of the pattern and of its options.
PATTERN: Final = Struct("<HH")
# Where to begin, and how many matches are wanted at most; 0: only whether there is one.
SEARCH: Final = Struct("<II")
# Of numbers in replies, as `array` names them: bytes of a subject.
NUMBERS: Final = "i"

# After this time a request for many subjects is answered, though not for all.
_LONG_S: Final = 0.05
# It ends by itself after this time, in case that what kills it has ended.
_MOST_S: Final = 3600
# About how many numbers a reply has at most.
_MOST_NUMBERS: Final = 1 << 18

# A search that needs more than this memory, in KB, finds nothing, as with PCRE2's own limit, which is 20 GB. Where the
# pattern sets a higher one, this is the most, in bytes, with all else that the process has.
_HEAP_LIMIT: Final = b"(*LIMIT_HEAP=65536)"
_MEMORY_BYTES: Final = 512 << 20


class _Pattern:
    """The latest pattern, since the next request mostly has the same one."""

    def __init__(self, found_by: Library, pattern: bytes, options: str) -> None:
        self.pattern: Final = pattern
        self.options: Final = options
        self._library: Final = found_by
        self._interpreted: Any = None
        try:
            compiled = found_by.compiled(_HEAP_LIMIT + pattern, options, True)
        except found_by.library_error:  # it is too large for machine code
            compiled = found_by.compiled(_HEAP_LIMIT + pattern, options, False)
        self._code: Final = code_of(compiled)
        self.groups: Final = int(compiled.groups)

    def found(self, subject: bytes, start: int) -> Any:
        """The first match from `start` on; None if there is none, or if the search exceeds PCRE2's limits."""
        try:
            return self._library.found(self._code, subject, start)
        except self._library.library_error as error:
            if "JIT stack" not in str(error):
                return None
        # Machine code has 32 KB for what it may have to go back to.
        if self._interpreted is None:
            self._interpreted = code_of(self._library.compiled(_HEAP_LIMIT + self.pattern, self.options, False))
        try:
            return self._library.found(self._interpreted, subject, start)
        except self._library.library_error:
            return None


class Searcher:
    """Answers requests."""

    def __init__(self) -> None:
        self._library: Final = library()
        self._latest: _Pattern | None = None

    def answer(self, kind: bytes, request: bytes) -> bytes:
        pattern_bytes, options_bytes = PATTERN.unpack_from(request)
        pattern_end = PATTERN.size + pattern_bytes
        position = pattern_end + options_bytes
        pattern = request[PATTERN.size : pattern_end]
        options = request[pattern_end:position].decode("ascii")
        latest = self._latest
        if latest is None or latest.pattern != pattern or latest.options != options:
            latest = _Pattern(self._library, pattern, options)
            self._latest = latest
        if kind == b"M":
            return _found_in_each(latest, request, position)
        start, most = SEARCH.unpack_from(request, position)
        return self._found(latest, request[position + SEARCH.size :], start, most)

    def _found(self, pattern: _Pattern, subject: bytes, start: int, most: int) -> bytes:
        if most == 0:
            return array(NUMBERS, [] if pattern.found(subject, start) is None else [0]).tobytes()
        numbers = [-1]
        while start >= 0 and most > 0 and len(numbers) < _MOST_NUMBERS:
            found = pattern.found(subject, start)
            if found is None:
                start = -1
                break
            at = len(numbers)
            self._library.add_spans(numbers, found, subject, pattern.groups)
            start = next_start(subject, numbers[at], numbers[at + 1])
            most -= 1
        numbers[0] = start
        return array(NUMBERS, numbers).tobytes()

    def run(self) -> None:
        """Answers requests until there are no more."""
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_S, _MOST_S))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        serve(lambda kind, request: (b"D", [self.answer(kind, request)]))


def _found_in_each(pattern: _Pattern, request: bytes, position: int) -> bytes:
    """The reply to a request M, whose subjects begin with their number at `position`."""
    count = int.from_bytes(request[position : position + 4], "little")
    lengths = array(NUMBERS)
    lengths.frombytes(request[position + 4 : position + 4 + 4 * count])
    position += 4 + 4 * count
    began_s = _used_s()
    found = bytearray()
    for length in lengths:
        found.append(pattern.found(request[position : position + length], 0) is not None)
        position += length
        if _used_s() - began_s > _LONG_S:
            break
    return bytes(found)


def _used_s() -> float:
    """The time of the processor that the process has used, in seconds."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def prepare(arguments: list[str]) -> Callable[[], None]:
    """What `processes.spawner` calls in each process."""
    return Searcher().run
