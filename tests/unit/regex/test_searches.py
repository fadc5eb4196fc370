"""Which searches are done at once, which by other processes, and that both find the same."""

import itertools
import os
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.document.interrupt import clear_check, set_check
from mongottl.errors import CommandError
from mongottl.processes.pool import WorkerProcesses
from mongottl.regex.compiled import CompiledRegex, Matches
from mongottl.regex.searching import PROGRAM, Search
from mongottl.regex.worker import PATTERN, SEARCH, Searcher
from tests.unit.javascript.conftest import never_await, never_pause
from tests.unit.javascript.test_scripts import started_by
from tests.unit.regex.conftest import Elsewhere


@pytest.mark.parametrize(
    ("pattern", "options", "size"),
    [
        (b"foo", "i", 10_000),
        (b"foo|bar", "", 10_000),
        (b"foo[a-z]", "i", 500_000),
        (b"^(?:foo|bar)[a-z]\\d?", "m", 10_000),
        (b"foo.*bar", "", 4_000),
        (b"\\w+@\\w+\\.com", "", 4_000),
        (b"^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$", "", 200),
    ],
)
def test_ordinary_searches_are_done_at_once(elsewhere: Elsewhere, pattern: bytes, options: str, size: int) -> None:
    text = b"Some words, a few numbers: 17 or 4; and no more than that. "
    CompiledRegex(pattern, options).found_in(text * (size // len(text)))
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (b"foo.*bar", b"foo bar " * 1_000),
        (b"\\X", "\u0301".encode() * 3_000),
        (b"foo|bar", b"foo" * 100_000),
        (b"foo", b"foo" * 1_000_000),
    ],
)
def test_searches_that_may_take_long_are_not(elsewhere: Elsewhere, pattern: bytes, text: bytes) -> None:
    assert CompiledRegex(pattern, "i").found_in(text)
    assert elsewhere.asked == [1]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (b"(a+)+b", b"a" * 40 + b"\nb"),
        (b"(.*)\\1[bc]", b"a" * 4_000),
        (b"(?:a?){300}b", b"a" * 3_000 + b"\nb"),
        (b"(a|b|ab|aa)" * 300 + b"b", b"a" * 4_000 + b"\nb"),
    ],
)
def test_a_limit_of_steps_ends_what_takes_long_in_a_short_text(
    elsewhere: Elsewhere, pattern: bytes, text: bytes
) -> None:
    regex = CompiledRegex(pattern, "")
    assert regex._found_at_once(text, 0, 0) is None


def test_machine_code_needs_no_larger_stack_than_it_has(elsewhere: Elsewhere) -> None:
    regex = CompiledRegex(b"^(a|b)*$", "")
    assert regex.found_in(b"ab" * 5_000)
    assert not regex.found_in(b"ab" * 5_000 + b"c")
    assert len(elsewhere.asked) == 2


@pytest.mark.parametrize(
    ("pattern", "options", "text"),
    [
        # Each step goes through the pattern, which makes 28 seconds.
        (b"(?(DEFINE)(" + b"^" * 15_500 + b"[!?]))(?:" + b"|".join([b"(?1)"] * 140) + b")", "m", b"\n" * 256),
        (b"(*LIMIT_MATCH=10000000)(a+)+[bc]", "", (b"a" * 20 + b"X") * 12),
        (b"(*NO_JIT)(a+)+[bc]", "", (b"a" * 20 + b"X") * 12),
        (b"(?J)" + b"(?<n>a)" * 2000 + b"\\k<n>" * 400, "", b"a"),  # compiling it to machine code takes long
        (b"\\H" * 2_000 + b"[XZ]", "", b"a" * 4_985),
        (b"^" * 16_300 + b"[!?]", "m", b"\n" * 256),
    ],
)
def test_patterns_that_take_long_in_a_short_text_are_not_searched_at_once(
    elsewhere: Elsewhere, pattern: bytes, options: str, text: bytes
) -> None:
    assert CompiledRegex(pattern, options)._found_at_once(text, 0, 0) is None


def test_options_may_be_repeated(elsewhere: Elsewhere) -> None:
    regex = CompiledRegex(b"a.*B", "i" * 100_000)
    assert regex.found_in(b"a" * 5_000 + b"b")
    assert elsewhere.asked == [1]


def test_many_texts_are_searched_in_one_request(elsewhere: Elsewhere) -> None:
    regex = CompiledRegex(b"a.*b.*c", "")
    long = [b"a" + b" " * 5_000 + end for end in (b"bc", b"cb", b"abc", b"")]
    texts = [b"abc", *long, *long, b"acb", b"\xff" * 5_000]
    regex.search_ahead(texts)
    assert elsewhere.asked == [9]
    assert [regex.found_in(text) for text in texts] == [True, *[True, False, True, False] * 2, False, False]
    assert elsewhere.asked == [9]
    regex.end_ahead()
    assert regex.found_in(long[0])
    assert elsewhere.asked == [9, 1]


def test_searches_ahead_are_bounded(elsewhere: Elsewhere) -> None:
    regex = CompiledRegex(b"a.*b", "")
    texts = [b"%d" % i * 100_000 for i in range(10)] * 10
    regex.search_ahead(texts)
    assert max(elsewhere.asked) <= 3
    assert sum(elsewhere.asked) * 100_000 < 5 << 20
    assert not any(regex.found_in(text) for text in texts)


def all_matches(regex: CompiledRegex, subject: bytes) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = []
    start = 0
    while start >= 0:
        matches = regex.next_matches(subject, start)
        found += [matches.spans(i) for i in range(matches.count)]
        start = matches.next_start
    return found


@pytest.mark.parametrize("pattern", ["é|x+", "(a)|(?:b)", "(?<=é)x", "(é.*?)(b)?x"])
def test_all_matches_of_a_long_text(elsewhere: Elsewhere, pattern: str) -> None:
    text = "aéx b" * 2_000
    bytes_before = [len(text[:i].encode()) for i in range(len(text) + 1)]
    expected = [
        [
            (-1, -1) if first < 0 else (bytes_before[first], bytes_before[last])
            for first, last in [match.span(), *[match.span(group + 1) for group in range(match.re.groups)]]
        ]
        for match in re.finditer(pattern, text)
    ]
    assert all_matches(CompiledRegex(pattern.encode(), ""), text.encode()) == expected
    assert elsewhere.asked == ([] if pattern == "(a)|(?:b)" else [1])


PARTS = st.sampled_from(
    ["a", "b", ".", "é", "(a|b)", "[ab]", "\\b", "^", "$", "(?=a)", "(?<!b)", "\\w", "\\1", "(?:ab)"]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "*?", "++"])
PATTERNS = st.lists(st.tuples(PARTS, REPEATS).map("".join), min_size=1, max_size=5).map("".join)


@given(PATTERNS, st.text("abé\n", max_size=300), st.sampled_from(["", "i", "m", "s", "x"]))
def test_processes_find_what_is_found_at_once(pattern: str, text: str, options: str) -> None:
    try:
        regex = CompiledRegex(b"()" + pattern.encode(), options)
    except CommandError:
        return
    subject = text.encode()
    here = regex._found_at_once(subject, 0, 1)
    if here is None:
        return
    head = PATTERN.pack(len(regex.pattern), len(options)) + regex.pattern + options.encode()
    reply = Searcher().answer(b"S", head + SEARCH.pack(0, 1) + subject)
    there = Matches(memoryview(reply).cast("i"), regex._groups)
    assert there.count == Matches(here, regex._groups).count
    assert [there.spans(i) for i in range(there.count)] == [
        Matches(here, regex._groups).spans(i) for i in range(there.count)
    ]


def test_a_search_that_takes_long_gets_a_lower_priority() -> None:
    processes = WorkerProcesses(PROGRAM, time.monotonic)
    search = Search(processes, never_pause, never_await, time.monotonic)
    while not processes._idle:  # one whose start takes long is not kept
        search.found(b"a", "", b"a", 0, 0)
    [number] = started_by(processes._spawner)
    before = os.getpriority(os.PRIO_PROCESS, number)
    looks = itertools.count()

    def check() -> None:
        if os.getpriority(os.PRIO_PROCESS, number) > before:
            raise CommandError(1, "slowed down")
        assert next(looks) < 10_000  # one each five milliseconds

    set_check(check)
    try:
        with pytest.raises(CommandError, match="slowed down"):
            search.found(b"(?=.*b)a", "", b"a" * 1_000_000, 0, 0)
    finally:
        clear_check()
        processes.close()
    assert before < 10


def test_a_request_with_many_long_searches_ends_early(elsewhere: Elsewhere) -> None:
    regex = CompiledRegex(b"(?=.*b)a", "")
    texts = [b"%d" % i + b"a" * 10_000 for i in range(10)]  # each takes more than 50 ms
    regex.search_ahead(texts)
    assert len(elsewhere.asked) > 1
    assert not any(regex.found_in(text) for text in texts)
    assert sum(elsewhere.asked) > 10
