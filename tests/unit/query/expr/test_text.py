"""Operators of strings, in bytes and in code points."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Code, Decimal128, Int64, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

DOC = {"n": None, "s": "cafétéria", "sushi": "寿司sushi", "emoji": "a😀b"}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$concat", ["a", "b", "ç"], "abç"),
        ("$concat", ["a", None], None),
        ("$concat", [], ""),
        ("$concat", ["item", " - ", "$s"], "item - cafétéria"),
        ("$concat", "$s", "cafétéria"),
        ("$concat", [""], ""),
        ("$concat", ["a", "$missing"], None),
        ("$concat", ["a\0b", "\n"], "a\0b\n"),
        ("$concat", ["e", "\u0301"], "e\u0301"),  # nothing is composed
        ("$toLower", "ÄbC", "Äbc"),  # ASCII alone
        ("$toLower", None, ""),
        ("$toLower", 123456.789, "123457"),  # six digits, as C's %g
        ("$toLower", DatetimeMS(0), "1970-01-01t00:00:00.000z"),
        ("$toLower", "ABC1", "abc1"),
        ("$toLower", "$missing", ""),
        ("$toLower", 12, "12"),
        ("$toLower", Decimal128("1E+10"), "1e+10"),
        ("$toLower", "ÀÉSS", "ÀÉss"),
        ("$toUpper", "äbC", "äBC"),
        ("$toUpper", 1.5, "1.5"),
        ("$toUpper", Timestamp(0, 7), "JAN  1 00:00:00:7"),
        ("$toUpper", Code("f()"), "F()"),
        ("$toUpper", "straße", "STRAßE"),
        ("$toUpper", "$n", ""),
        ("$toUpper", Int64(2**40), "1099511627776"),
        ("$toUpper", Decimal128("-Infinity"), "-INFINITY"),
        ("$toUpper", DatetimeMS(1), "1970-01-01T00:00:00.001Z"),
        ("$strcasecmp", ["aB", "Ab"], 0),
        ("$strcasecmp", ["a", "B"], -1),
        ("$strcasecmp", [None, ""], 0),
        ("$strcasecmp", ["13Q1", "13q4"], -1),
        ("$strcasecmp", ["13q2", "13Q2"], 0),
        ("$strcasecmp", ["b", "A"], 1),
        ("$strcasecmp", ["$missing", "$n"], 0),
        ("$strcasecmp", ["", "a"], -1),
        ("$strcasecmp", ["é", "É"], 1),  # ASCII alone
        ("$strcasecmp", [10, "9"], -1),
        ("$strcasecmp", ["abc", "ab"], 1),
        ("$strLenBytes", "é€", 5),
        ("$strLenBytes", "abcde", 5),
        ("$strLenBytes", "Hello World!", 12),
        ("$strLenBytes", "$s", 11),
        ("$strLenBytes", "", 0),
        ("$strLenBytes", {"$literal": "$€λG"}, 7),
        ("$strLenBytes", "寿司", 6),
        ("$strLenBytes", "$emoji", 6),
        ("$strLenBytes", "a\0b", 3),
        ("$strLenCP", "é€😀", 3),
        ("$strLenCP", "abcde", 5),
        ("$strLenCP", "Hello World!", 12),
        ("$strLenCP", "$s", 9),
        ("$strLenCP", "", 0),
        ("$strLenCP", {"$literal": "$€λG"}, 4),
        ("$strLenCP", "寿司", 2),
        ("$strLenCP", "$emoji", 3),
        ("$strLenCP", "e\u0301", 2),
        ("$indexOfBytes", ["aéb", "b"], 3),
        ("$indexOfBytes", ["$s", "é"], 3),
        ("$indexOfBytes", ["$s", "t"], 5),
        ("$indexOfBytes", ["foo.bar.fi", ".", 5], 7),
        ("$indexOfBytes", ["vanilla", "ll", 0, 2], -1),
        ("$indexOfBytes", ["vanilla", "ll", 12], -1),
        ("$indexOfBytes", ["vanilla", "nilla", 3], -1),
        ("$indexOfBytes", ["$missing", "x"], None),
        ("$indexOfBytes", ["$n", "x"], None),
        ("$indexOfBytes", ["abc", ""], 0),
        ("$indexOfBytes", ["abc", "", 3], 3),
        ("$indexOfBytes", ["abc", "b", 2, 1], -1),
        ("$indexOfCP", ["aéb", "b"], 2),
        ("$indexOfCP", ["abab", "b", 2], 3),
        ("$indexOfCP", ["abab", "b", 2, 3], -1),
        ("$indexOfCP", ["abc", "", 3], -1),
        ("$indexOfCP", ["abc", "", 4], -1),
        ("$indexOfCP", [None, "x"], None),
        ("$indexOfCP", ["$s", "é"], 3),
        ("$indexOfCP", ["$s", "t"], 4),
        ("$indexOfCP", ["foo.bar.fi", ".", 5], 7),
        ("$indexOfCP", ["vanilla", "ll", 0, 2], -1),
        ("$indexOfCP", ["$sushi", "s"], 2),
        ("$indexOfCP", ["$emoji", "b"], 2),
        ("$substr", ["hello", 0, 2], "he"),
        ("$substr", ["$s", 0, 3], "caf"),
        ("$substr", ["13Q1", 2, -1], "Q1"),
        ("$substr", ["13Q1", 4, 1], ""),
        ("$substr", ["$n", 0, 2], ""),
        ("$substr", [1234, 1, 2], "23"),
        ("$substr", ["abc", 1.9, 1.9], "b"),
        ("$substr", [DatetimeMS(0), 0, 10], "1970-01-01"),
        ("$substrBytes", ["hello", 1, 3], "ell"),
        ("$substrBytes", ["hello", 1, -1], "ello"),
        ("$substrBytes", ["hello", 9, 1], ""),
        ("$substrBytes", ["$sushi", 0, 3], "寿"),
        ("$substrBytes", ["$s", 6, 3], "ér"),
        ("$substrBytes", ["abc", 0, 99], "abc"),
        ("$substrBytes", ["$missing", 0, 1], ""),
        ("$substrBytes", ["abc", Int64(1), Decimal128("1")], "b"),
        ("$substrCP", ["aé€x", 1, 2], "é€"),
        ("$substrCP", [1234, 1, 2], "23"),
        ("$substrCP", ["$s", 7, 3], "ia"),
        ("$substrCP", ["$sushi", 0, 3], "寿司s"),
        ("$substrCP", ["$emoji", 1, 1], "😀"),
        ("$substrCP", ["abc", 9, 1], ""),
        ("$substrCP", ["$n", 0, 3], ""),
        ("$substrCP", ["abc", 0, 0], ""),
        ("$split", ["a-b--c", "-"], ["a", "b", "", "c"]),
        ("$split", [None, "-"], None),
        ("$split", ["June-15-2013", "-"], ["June", "15", "2013"]),
        ("$split", ["banana split", "a"], ["b", "n", "n", " split"]),
        ("$split", ["Hello World", " "], ["Hello", "World"]),
        ("$split", ["astronomical", "astro"], ["", "nomical"]),
        ("$split", ["pea green boat", "owl"], ["pea green boat"]),
        ("$split", ["", ","], [""]),
        ("$split", [",", ","], ["", ""]),
        ("$split", ["$missing", ","], None),
        ("$split", ["a", None], None),
        ("$split", ["aaa", "aa"], ["", "a"]),
        ("$trim", {"input": "  x\u00a0\n"}, "x"),
        ("$trim", {"input": "xxaxx", "chars": "x"}, "a"),
        ("$trim", {"input": None}, None),
        ("$trim", {"input": " \t\n good  bye \r\v\f\0"}, "good  bye"),
        ("$trim", {"input": "    ggggoodbyeeeee", "chars": " ge"}, "oodby"),
        ("$trim", {"input": "", "chars": "x"}, ""),
        ("$trim", {"input": "xxx", "chars": "x"}, ""),
        ("$trim", {"input": "x", "chars": None}, None),
        ("$trim", {"input": "$missing"}, None),
        ("$trim", {"input": "éaé", "chars": "é"}, "a"),
        ("$trim", {"input": "\u2003\u3000x\u200a"}, "\u3000x"),  # the ideographic space is not among those it takes
        ("$ltrim", {"input": "xxaxx", "chars": "x"}, "axx"),
        ("$ltrim", {"input": " \n good  bye \t "}, "good  bye \t "),
        ("$ltrim", {"input": " ggggoodbyeeeee", "chars": " gd"}, "oodbyeeeee"),
        ("$ltrim", {"input": " \t", "chars": " "}, "\t"),
        ("$ltrim", {"input": "", "chars": "x"}, ""),
        ("$ltrim", {"input": "$n"}, None),
        ("$ltrim", {"input": "x", "chars": "$missing"}, None),
        ("$ltrim", {"input": "ééa", "chars": "é"}, "a"),
        ("$ltrim", {"input": "abc", "chars": ""}, "abc"),
        ("$rtrim", {"input": "xxaxx", "chars": "yx"}, "xxa"),
        ("$rtrim", {"input": " \n good  bye \t "}, " \n good  bye"),
        ("$rtrim", {"input": " ggggoodbyeeeee    ", "chars": "e "}, " ggggoodby"),
        ("$rtrim", {"input": "$missing"}, None),
        ("$rtrim", {"input": "x", "chars": None}, None),
        ("$rtrim", {"input": "aéé", "chars": "é"}, "a"),
        ("$rtrim", {"input": "a\0\0"}, "a"),
        ("$rtrim", {"input": "abc", "chars": ""}, "abc"),
        ("$replaceOne", {"input": "aXbX", "find": "X", "replacement": "-"}, "a-bX"),
        ("$replaceOne", {"input": "blue paint", "find": "blue paint", "replacement": "red paint"}, "red paint"),
        ("$replaceOne", {"input": "blue and green", "find": "$missing", "replacement": "x"}, None),
        ("$replaceOne", {"input": "$n", "find": "x", "replacement": "y"}, None),
        ("$replaceOne", {"input": "a", "find": "a", "replacement": None}, None),
        ("$replaceOne", {"input": "abc", "find": "", "replacement": "-"}, "-abc"),
        ("$replaceOne", {"input": "aBb", "find": "b", "replacement": ""}, "aB"),
        ("$replaceOne", {"input": "a.b", "find": ".", "replacement": {"$literal": "$1"}}, "a$1b"),
        ("$replaceOne", {"input": "abc", "find": "x", "replacement": "y"}, "abc"),
        ("$replaceAll", {"input": "aXbX", "find": "X", "replacement": "-"}, "a-b-"),
        ("$replaceAll", {"input": "ab", "find": None, "replacement": ""}, None),
        ("$replaceAll", {"input": "blue and blue", "find": "blue", "replacement": "red"}, "red and red"),
        ("$replaceAll", {"input": "aaa", "find": "aa", "replacement": "b"}, "ba"),
        ("$replaceAll", {"input": "$missing", "find": "x", "replacement": "y"}, None),
        ("$replaceAll", {"input": "a", "find": "a", "replacement": "$n"}, None),
        ("$replaceAll", {"input": "ab", "find": "", "replacement": "-"}, "-a-b-"),
        ("$replaceAll", {"input": "éÉé", "find": "é", "replacement": "e"}, "eÉe"),
        ("$replaceAll", {"input": "abc", "find": "x", "replacement": "y"}, "abc"),
    ],
)
def test_operators_of_strings(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$concat", ["a", 1], 16702),
        ("$concat", ["a", {}], 16702),
        ("$concat", ["a", ["b"]], 16702),
        ("$concat", [DatetimeMS(0)], 16702),
        ("$toLower", True, 16007),
        ("$toLower", [[1]], 16007),
        ("$toLower", [1, 2], 16020),
        ("$toUpper", {}, 16007),
        ("$toUpper", Regex("x"), 16007),
        ("$toUpper", [], 16020),
        ("$strcasecmp", ["a"], 16020),
        ("$strcasecmp", [True, "a"], 16007),
        ("$strLenBytes", None, 34473),
        ("$strLenBytes", "$missing", 34473),
        ("$strLenBytes", 12, 34473),
        ("$strLenCP", 1, 34471),
        ("$strLenCP", "$n", 34471),
        ("$strLenCP", "$missing", 34471),
        ("$indexOfBytes", [1, "x"], 40091),
        ("$indexOfBytes", ["x", None], 40092),
        ("$indexOfBytes", ["x"], 28667),
        ("$indexOfBytes", ["x", "$missing"], 40092),
        ("$indexOfBytes", ["x", "x", "0"], 40096),
        ("$indexOfBytes", ["x", "x", -1], 40097),
        ("$indexOfBytes", ["x", "x", 0, -1], 40097),
        ("$indexOfCP", [1, "x"], 40093),
        ("$indexOfCP", ["x", 1], 40094),
        ("$indexOfCP", ["x", "x", 1.5], 40096),
        ("$indexOfCP", ["x", "x", -1], 40097),
        ("$indexOfCP", ["x", "x", 0, 0.5], 40096),
        ("$indexOfCP", ["x", "x", 0, 1, 2], 28667),
        ("$substr", [["x"], 0, 1], 16007),
        ("$substr", ["x", 0], 16020),
        ("$substrBytes", ["x", "0", 1], 16034),
        ("$substrBytes", ["x", 0, "1"], 16035),
        ("$substrBytes", ["x", -1, 1], 50752),
        ("$substrBytes", ["é", 1, 1], 28656),
        ("$substrBytes", ["é", 0, 1], 28657),
        ("$substrBytes", ["x", 1e30, 1], 31109),
        ("$substrBytes", ["$s", 4, 1], 28656),
        ("$substrBytes", ["$s", 3, 1], 28657),
        ("$substrBytes", ["x", None, 1], 16034),
        ("$substrCP", ["x", "0", 1], 34450),
        ("$substrCP", ["x", 0.5, 1], 34451),
        ("$substrCP", ["x", 0, "1"], 34452),
        ("$substrCP", ["x", 0, -1], 34454),
        ("$substrCP", ["x", -1, 1], 34455),
        ("$substrCP", [True, 0, 1], 16007),
        ("$substrCP", ["x", 0, 0.5], 34453),
        ("$substrCP", ["x", None, 1], 34450),
        ("$split", [1, "x"], 40085),
        ("$split", ["x", 1], 10503900),
        ("$split", ["x", ""], 40087),
        ("$split", ["x"], 16020),
        ("$split", [["x"], ","], 40085),
        ("$trim", "x", 50696),
        ("$trim", {"chars": "x"}, 50695),
        ("$trim", {"input": 1}, 50699),
        ("$trim", {"input": "x", "chars": 1}, 50700),
        ("$trim", {"input": "x", "y": 1}, 50694),
        ("$trim", {"input": "x", "chars": ["x"]}, 50700),
        ("$ltrim", "x", 50696),
        ("$ltrim", {"input": 1}, 50699),
        ("$ltrim", {"chars": "x"}, 50695),
        ("$ltrim", {"input": "x", "y": 1}, 50694),
        ("$rtrim", {"input": ["x"]}, 50699),
        ("$rtrim", {"input": "x", "chars": 1}, 50700),
        ("$rtrim", ["x"], 50696),
        ("$replaceOne", {"input": 1, "find": "", "replacement": ""}, 10503904),
        ("$replaceOne", {"input": "", "find": ""}, 51747),
        ("$replaceOne", 1, 51751),
        ("$replaceOne", {"input": "x", "find": "x", "replacement": "x", "y": 1}, 51750),
        ("$replaceOne", {"find": "x", "replacement": "x"}, 51749),
        ("$replaceOne", {"input": "x", "replacement": "x"}, 51748),
        ("$replaceAll", {"input": "x", "find": "x"}, 51747),
        ("$replaceAll", {"input": "x", "find": "x", "replacement": 1}, 10503902),
        ("$replaceAll", 1, 51751),
    ],
)
def test_refusals_of_operators_of_strings(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code


@pytest.mark.parametrize("before", ["a" * 65_535, "a" * 65_536, "é" * 65_535 + "a" * 65_536])
def test_long_strings_are_compared_in_parts(check: Check, before: str) -> None:
    for left, right, expected in (("", "", 0), ("x", "", 1), ("xb", "XA", 1), ("b" + before, "c", -1)):
        check({"$strcasecmp": [before + left, before.upper().replace("É", "é") + right]}, {}, expected)


def test_concat_refuses_a_string_of_more_than_16_megabytes(failure: Failure) -> None:
    assert failure({"$concat": ["$big", "$big"]}, {"big": "x" * (9 << 20)}).code == 16493


@pytest.mark.parametrize("find", ["a", "ab", "aab", "b" * 70_000, "ab" * 40_000, "c"])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_long_texts_are_replaced_in_as_short_ones(check: Check, find: str, shift: int) -> None:
    text = "a" * shift + "ab" * 50_000 + "aab" * 30_000 + "b" * 150_000 + "a"
    operand = {"input": "$t", "find": find, "replacement": "xyz"}
    check({"$replaceAll": operand}, {"t": text}, text.replace(find, "xyz"))


@pytest.mark.parametrize(
    "expression",
    [
        {"$concat": ["$$t"] * 1000},
        {"$replaceAll": {"input": "$$t", "find": "b", "replacement": "$$t"}},
        {"$replaceAll": {"input": "é", "find": "", "replacement": "$$t"}},
    ],
)
def test_texts_that_would_be_too_long_are_refused_before_they_are_made(failure: Failure, expression: object) -> None:
    """A text of 15 MB, named a thousand times, would take 15 GB."""
    assert failure({"$let": {"vars": {"t": "$t"}, "in": expression}}, {"t": "b" * 15_000_000}).code == 16493
