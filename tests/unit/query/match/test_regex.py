from collections.abc import Callable
from typing import Any

import pytest
from bson import Regex

from mongottl.query.match.regex import literal_prefix
from mongottl.regex.compiled import CompiledRegex

Matching = Callable[[dict[str, Any], list[Any]], list[Any]]
Refusal = Callable[[dict[str, Any]], tuple[int, str]]


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        (Regex("b"), ["abc", "xyz", 1, ..., ["x", "b"], Regex("b"), Regex("b", "i")], ["abc", ["x", "b"], Regex("b")]),
        (Regex("^b"), ["abc", "bc"], ["bc"]),
        ({"$regex": "B", "$options": "i"}, ["abc", "x"], ["abc"]),
        ({"$options": "i", "$regex": "B"}, ["abc", "x"], ["abc"]),
        ({"$regex": Regex("B"), "$options": "i"}, ["abc", "x"], ["abc"]),
        ({"$regex": "É", "$options": "i"}, ["é", "e"], ["é"]),
        ({"$regex": "^b", "$options": "m"}, ["a\nb", "ab"], ["a\nb"]),
        ({"$regex": "a.b", "$options": "s"}, ["a\nb", "ab"], ["a\nb"]),
        ({"$regex": "a b # c", "$options": "x"}, ["ab", "a b"], ["ab"]),
        ({"$regex": "a.b", "$options": "u"}, ["aéb", "a\nb"], ["aéb"]),
        ({"$regex": "^.$"}, ["é", "日", "xx", ""], ["é", "日"]),
        ({"$regex": "a$"}, ["a", "a\n", "ab"], ["a", "a\n"]),  # `$` also matches before a final newline
        ({"$regex": "\\w"}, ["é", "e"], ["e"]),  # ASCII, unless the pattern says otherwise
        ({"$regex": "(*UCP)\\w"}, ["é", "-"], ["é"]),
        ({"$regex": "\\Qa.b\\E"}, ["a.b", "axb"], ["a.b"]),
        ({"$regex": "[[:digit:]]++"}, ["x1", "x"], ["x1"]),
        ({"$regex": "(?<year>\\d{4})-\\g{year}"}, ["2024-2024", "2024-2023"], ["2024-2024"]),
        ({"$regex": "^(?:(a)|b)(?(1)c|d)$"}, ["ac", "bd", "bc"], ["ac", "bd"]),
        ({"$regex": ""}, ["", "x", 1], ["", "x"]),
        ({"$regex": "a", "$gt": "b"}, ["ca", "aa", "c"], ["ca"]),
        ({"$regex": "(a+)+$"}, ["a" * 40 + "b", "aa"], ["aa"]),  # beyond PCRE2's limits: no match, and no hang
    ],
)
def test_regex(matching: Matching, condition: Any, values: list[Any], found: list[Any]) -> None:
    assert matching({"a": condition}, values) == found


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ({"$regex": 1}, 2),
        ({"$regex": "a\0b"}, 2),
        ({"$options": "i"}, 2),
        ({"$regex": "a", "$options": 1}, 2),
        ({"$regex": "("}, 51091),
        ({"$regex": "a" * 16385}, 51091),
        ({"$regex": "a", "$options": "g"}, 51108),
        ({"$in": [Regex("(")]}, 51091),
        ({"$regex": Regex("a", "i"), "$options": "m"}, 51075),
        ({"$options": "m", "$regex": Regex("a", "i")}, 51074),
    ],
)
def test_refused(refusal: Refusal, condition: Any, code: int) -> None:
    assert refusal({"a": condition})[0] == code


@pytest.mark.parametrize(
    ("pattern", "options", "prefix"),
    [
        ("^abc", "", "abc"),
        ("^abc.*", "", "abc"),
        ("\\Aab", "", "ab"),
        ("^ab*", "", "a"),
        ("^ab?c", "", "a"),
        ("^ab{2}", "", "a"),
        ("^ab+", "", "ab"),
        ("^a\\.b\\d", "", "a.b"),
        ("^ab|cd", "", ""),
        ("^(ab)", "", ""),
        ("abc", "", ""),
        ("^abc", "i", ""),
        ("^abc", "m", ""),
        ("^abc", "s", "abc"),
        ("^", "", ""),
        ("^é[x]", "", "é"),
    ],
)
def test_literal_prefix(pattern: str, options: str, prefix: str) -> None:
    assert literal_prefix(pattern, options) == prefix


def test_spans_are_byte_ranges_of_match_and_groups() -> None:
    regex = CompiledRegex("(é)(x)?b".encode(), "")
    assert regex.first_match("aéb éb".encode()) == [(1, 4), (1, 3), (-1, -1)]
    matches = regex.next_matches("aéb éb".encode(), 3)
    assert matches.count == 1
    assert matches.spans(0) == [(5, 8), (5, 7), (-1, -1)]
    assert matches.next_start == -1
    assert regex.first_match(b"zz") is None
    assert CompiledRegex(b"b", "").next_matches(b"abb", 2).spans(0) == [(2, 3)]
    assert CompiledRegex(b"b", "").next_matches(b"abb", 0).next_start == 2


def test_the_longest_pattern() -> None:
    CompiledRegex(b"a" * 16384, "")


def test_only_a_search_from_the_start_reads_all_of_the_subject() -> None:
    # As many searches as a long text has matches would be quadratic. What is not UTF-8 shows who read it.
    regex = CompiledRegex(b"[ab]", "")
    assert regex.first_match(b"ab\xff") is None
    assert regex.next_matches(b"ab\xff", 1).spans(0) == [(1, 2)]
