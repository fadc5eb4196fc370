"""Searches in short steps find what the library finds in one."""

from typing import Any

import pcre2
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mongottl.query.match.pcre import CompiledRegex

FLAGS = int(pcre2.UNICODE | pcre2.ASCII)
# What long texts are made of, and patterns.
PARTS = ["a", "b", "ab", " ", "\n", "é", "漢", "a" * 40, "ba" * 30]
ATOMS = [
    "a",
    "b",
    "é",
    ".",
    "[ab]",
    "[^a]",
    "\\w",
    "\\b",
    "^",
    "$",
    "\\z",
    "(?<=b)",
    "(?<!a)",
    "(?=.*b)",
    "(?!ab)",
    "\\s",
]
REPEATS = ["", "", "", "*", "+", "?", "*?", "+?", "{2,30}", "++"]


def patterns() -> st.SearchStrategy[str]:
    atoms = st.builds(lambda atom, repeat: atom + repeat, st.sampled_from(ATOMS), st.sampled_from(REPEATS))
    rows = st.lists(atoms, min_size=1, max_size=4).map("".join)
    return st.recursive(
        rows,
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"{a}|{b}", inner, inner),
            st.builds(lambda a, repeat: f"({a}){repeat}", inner, st.sampled_from(REPEATS)),
            st.builds(lambda a, b: f"({a}){b}\\1", inner, inner),
            st.builds(lambda a: f"(?i){a}", inner),
            st.builds(lambda a: f"(?m:{a})", inner),
        ),
        max_leaves=4,
    )


def texts() -> st.SearchStrategy[bytes]:
    """Long enough for windows, unless the pattern repeats nothing."""
    parts = st.lists(st.sampled_from(PARTS), min_size=1, max_size=12)
    return st.builds(
        lambda head, row, times, tail: ("".join(head) + "".join(row) * times + "".join(tail)).encode(),
        parts,
        parts,
        st.integers(0, 60),
        parts,
    )


def spans_at_once(code: Any, groups: int, text: bytes, start: int) -> list[tuple[int, int]] | None:
    found = pcre2._cy.match(code, text, len(text), start, pcre2._EMPTY_MATCH_CONTEXT)[0]
    if found is None:
        return None
    return [pcre2._cy.match_substring_span_bynumber(found, text, group) for group in range(groups + 1)]


@given(patterns(), texts(), st.booleans())
def test_searches_in_steps_find_what_one_search_finds(pattern: str, text: bytes, goes_on: bool) -> None:
    try:
        # Of the steps at one place, a search in steps takes more.
        compiled = pcre2.compile(b"(*LIMIT_MATCH=200000)" + pattern.encode(), FLAGS)
    except pcre2.PatternError:
        assume(False)
    bounded = CompiledRegex(pattern.encode(), "")
    try:
        expected = spans_at_once(compiled._pcre2_code, compiled.groups, text, 0)
        assert bounded.spans(text) == expected
        if goes_on and expected is not None and expected[0][1] > 0:
            start = expected[0][1]
            assert bounded.spans(text, start) == spans_at_once(compiled._pcre2_code, compiled.groups, text, start)
    except pcre2.LibraryError:
        pass  # more steps than the library takes


@pytest.mark.parametrize(
    ("pattern", "options", "text", "expected"),
    [
        ("(?=.*b)c", "", "a" * 5000 + "cab", [(5000, 5001)]),
        ("a.*[bc]", "", "é\n" + "a" * 9000 + "c", [(3, 9004)]),
        ("x*", "", "a" * 5000, [(0, 0)]),
        ("y+ # the rest", "x", "ab*" * 2000 + "yyy", [(6000, 6003)]),
        ("(?x)(a|aa)+z # the rest", "", "a" * 22 + "\naaz", [(23, 26), (24, 25)]),
        ("(a|aa)+\\Qz", "", "a" * 22 + "\naaz", [(23, 26), (24, 25)]),
        ("(*UCP)(?:\\w|\\w\\w)+!", "", "é" * 20 + " é!", [(41, 44)]),
        ("\\((?:[^()]|(?R))*+\\)", "", "(" * 300 + "(a(b)c)", [(300, 307)]),
        ("(?:a|aa)+$", "", "a" * 20 + "!" + "a" * 300, [(21, 321)]),
        ("^(a|b)*$", "", "ab" * 10_000, [(0, 20_000), (19_999, 20_000)]),
        ("(?:a|b)" * 2000, "", "c" + "ab" * 1000, [(1, 2001)]),
        ("(a)|" * 4000 + "b", "", "cb", [(1, 2), (-1, -1)]),  # too large for machine code
    ],
)
def test_searches_that_take_many_steps(pattern: str, options: str, text: str, expected: list[tuple[int, int]]) -> None:
    found = CompiledRegex(pattern.encode(), options).spans(text.encode())
    assert found is not None and found[: len(expected)] == expected
