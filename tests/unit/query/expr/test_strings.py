"""Strings in bytes and in code points, and regular expressions; see test_text for the plain cases."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64, Regex
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

DOC = {"n": None, "s": "cafétéria", "sushi": "寿司sushi", "emoji": "a😀b"}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$concat", ["item", " - ", "$s"], "item - cafétéria"),
        ("$concat", "$s", "cafétéria"),
        ("$concat", [""], ""),
        ("$concat", ["a", "$missing"], None),
        ("$concat", ["a\0b", "\n"], "a\0b\n"),
        ("$concat", ["e", "\u0301"], "e\u0301"),  # nothing is composed
        ("$toLower", "ABC1", "abc1"),
        ("$toLower", "$missing", ""),
        ("$toLower", 12, "12"),
        ("$toLower", Decimal128("1E+10"), "1e+10"),
        ("$toLower", "ÀÉSS", "ÀÉss"),
        ("$toUpper", "straße", "STRAßE"),
        ("$toUpper", "$n", ""),
        ("$toUpper", Int64(2**40), "1099511627776"),
        ("$toUpper", Decimal128("-Infinity"), "-INFINITY"),
        ("$toUpper", DatetimeMS(1), "1970-01-01T00:00:00.001Z"),
        ("$strcasecmp", ["13Q1", "13q4"], -1),
        ("$strcasecmp", ["13q2", "13Q2"], 0),
        ("$strcasecmp", ["b", "A"], 1),
        ("$strcasecmp", ["$missing", "$n"], 0),
        ("$strcasecmp", ["", "a"], -1),
        ("$strcasecmp", ["é", "É"], 1),  # ASCII alone
        ("$strcasecmp", [10, "9"], -1),
        ("$strcasecmp", ["abc", "ab"], 1),
        ("$strLenBytes", "abcde", 5),
        ("$strLenBytes", "Hello World!", 12),
        ("$strLenBytes", "$s", 11),
        ("$strLenBytes", "", 0),
        ("$strLenBytes", {"$literal": "$€λG"}, 7),
        ("$strLenBytes", "寿司", 6),
        ("$strLenBytes", "$emoji", 6),
        ("$strLenBytes", "a\0b", 3),
        ("$strLenCP", "abcde", 5),
        ("$strLenCP", "Hello World!", 12),
        ("$strLenCP", "$s", 9),
        ("$strLenCP", "", 0),
        ("$strLenCP", {"$literal": "$€λG"}, 4),
        ("$strLenCP", "寿司", 2),
        ("$strLenCP", "$emoji", 3),
        ("$strLenCP", "e\u0301", 2),
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
        ("$indexOfCP", ["$s", "é"], 3),
        ("$indexOfCP", ["$s", "t"], 4),
        ("$indexOfCP", ["foo.bar.fi", ".", 5], 7),
        ("$indexOfCP", ["vanilla", "ll", 0, 2], -1),
        ("$indexOfCP", ["$sushi", "s"], 2),
        ("$indexOfCP", ["$emoji", "b"], 2),
        ("$substr", ["$s", 0, 3], "caf"),
        ("$substr", ["13Q1", 2, -1], "Q1"),
        ("$substr", ["13Q1", 4, 1], ""),
        ("$substr", ["$n", 0, 2], ""),
        ("$substr", [1234, 1, 2], "23"),
        ("$substr", ["abc", 1.9, 1.9], "b"),
        ("$substr", [DatetimeMS(0), 0, 10], "1970-01-01"),
        ("$substrBytes", ["$sushi", 0, 3], "寿"),
        ("$substrBytes", ["$s", 6, 3], "ér"),
        ("$substrBytes", ["abc", 0, 99], "abc"),
        ("$substrBytes", ["$missing", 0, 1], ""),
        ("$substrBytes", ["abc", Int64(1), Decimal128("1")], "b"),
        ("$substrCP", ["$s", 7, 3], "ia"),
        ("$substrCP", ["$sushi", 0, 3], "寿司s"),
        ("$substrCP", ["$emoji", 1, 1], "😀"),
        ("$substrCP", ["abc", 9, 1], ""),
        ("$substrCP", ["$n", 0, 3], ""),
        ("$substrCP", ["abc", 0, 0], ""),
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
        ("$trim", {"input": " \t\n good  bye \r\v\f\0"}, "good  bye"),
        ("$trim", {"input": "    ggggoodbyeeeee", "chars": " ge"}, "oodby"),
        ("$trim", {"input": "", "chars": "x"}, ""),
        ("$trim", {"input": "xxx", "chars": "x"}, ""),
        ("$trim", {"input": "x", "chars": None}, None),
        ("$trim", {"input": "$missing"}, None),
        ("$trim", {"input": "éaé", "chars": "é"}, "a"),
        ("$trim", {"input": "\u2003\u3000x\u200a"}, "\u3000x"),  # the ideographic space is not among those it takes
        ("$ltrim", {"input": " \n good  bye \t "}, "good  bye \t "),
        ("$ltrim", {"input": " ggggoodbyeeeee", "chars": " gd"}, "oodbyeeeee"),
        ("$ltrim", {"input": " \t", "chars": " "}, "\t"),
        ("$ltrim", {"input": "", "chars": "x"}, ""),
        ("$ltrim", {"input": "$n"}, None),
        ("$ltrim", {"input": "x", "chars": "$missing"}, None),
        ("$ltrim", {"input": "ééa", "chars": "é"}, "a"),
        ("$ltrim", {"input": "abc", "chars": ""}, "abc"),
        ("$rtrim", {"input": " \n good  bye \t "}, " \n good  bye"),
        ("$rtrim", {"input": " ggggoodbyeeeee    ", "chars": "e "}, " ggggoodby"),
        ("$rtrim", {"input": "$missing"}, None),
        ("$rtrim", {"input": "x", "chars": None}, None),
        ("$rtrim", {"input": "aéé", "chars": "é"}, "a"),
        ("$rtrim", {"input": "a\0\0"}, "a"),
        ("$rtrim", {"input": "abc", "chars": ""}, "abc"),
        ("$replaceOne", {"input": "blue paint", "find": "blue paint", "replacement": "red paint"}, "red paint"),
        ("$replaceOne", {"input": "blue and green", "find": "$missing", "replacement": "x"}, None),
        ("$replaceOne", {"input": "$n", "find": "x", "replacement": "y"}, None),
        ("$replaceOne", {"input": "a", "find": "a", "replacement": None}, None),
        ("$replaceOne", {"input": "abc", "find": "", "replacement": "-"}, "-abc"),
        ("$replaceOne", {"input": "aBb", "find": "b", "replacement": ""}, "aB"),
        ("$replaceOne", {"input": "a.b", "find": ".", "replacement": {"$literal": "$1"}}, "a$1b"),
        ("$replaceOne", {"input": "abc", "find": "x", "replacement": "y"}, "abc"),
        ("$replaceAll", {"input": "blue and blue", "find": "blue", "replacement": "red"}, "red and red"),
        ("$replaceAll", {"input": "aaa", "find": "aa", "replacement": "b"}, "ba"),
        ("$replaceAll", {"input": "$missing", "find": "x", "replacement": "y"}, None),
        ("$replaceAll", {"input": "a", "find": "a", "replacement": "$n"}, None),
        ("$replaceAll", {"input": "ab", "find": "", "replacement": "-"}, "-a-b-"),
        ("$replaceAll", {"input": "éÉé", "find": "é", "replacement": "e"}, "eÉe"),
        ("$replaceAll", {"input": "abc", "find": "x", "replacement": "y"}, "abc"),
    ],
)
def test_strings(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, DOC, expected)


def found(match: str, index: int, *captures: str | None) -> dict[str, object]:
    return {"match": match, "idx": index, "captures": list(captures)}


@pytest.mark.parametrize(
    ("parameters", "matches"),
    [
        # The rows of the example: spaces, a group, a line break, options.
        ({"input": "Single LINE description.", "regex": Regex("line")}, []),
        ({"input": "First lines\nsecond line", "regex": Regex("line")}, [found("line", 6), found("line", 19)]),
        ({"input": "Single LINE description.", "regex": "lin(e|k)", "options": "i"}, [found("LINE", 7, "E")]),
        ({"input": "fine", "regex": Regex("(C(ar)*)", "i")}, []),
        (
            {"input": "First lines\nsecond line", "regex": Regex("^S", "im")},
            [found("s", 12)],
        ),
        ({"input": "a\nb", "regex": "a.b", "options": "s"}, [found("a\nb", 0)]),
        ({"input": "abc", "regex": "a b # all", "options": "x"}, [found("ab", 0)]),
        ({"input": "寿司sushi", "regex": "s."}, [found("su", 2), found("sh", 4)]),
        ({"input": "😀😀", "regex": "😀$"}, [found("😀", 1)]),
        ({"input": "ab", "regex": "(a)|(b)"}, [found("a", 0, "a", None), found("b", 1, None, "b")]),
        ({"input": "aab", "regex": "(a)+(?<last>b)"}, [found("aab", 0, "a", "b")]),
        ({"input": "$n", "regex": "x"}, []),
        ({"input": "$missing", "regex": "x"}, []),
        ({"input": "x", "regex": "$missing"}, []),
        ({"input": "a\0b", "regex": "b"}, [found("b", 2)]),
    ],
)
def test_regular_expressions(check: Check, parameters: dict[str, object], matches: list[object]) -> None:
    check({"$regexMatch": parameters}, DOC, bool(matches))
    check({"$regexFind": parameters}, DOC, matches[0] if matches else None)
    check({"$regexFindAll": parameters}, DOC, matches)


@pytest.mark.parametrize("operator", ["$regexMatch", "$regexFind", "$regexFindAll"])
@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        (1, 51103),
        ({"input": "x", "regex": "x", "y": 1}, 31024),
        ({"regex": "x"}, 31022),
        ({"input": "x"}, 31023),
        ({"input": 1, "regex": "x"}, 51104),
        ({"input": ["x"], "regex": "x"}, 51104),
        ({"input": "x", "regex": ["x"]}, 51105),
        ({"input": "x", "regex": "x", "options": 1}, 51106),
        ({"input": "x", "regex": Regex("x", "i"), "options": "m"}, 51107),
        ({"input": "x", "regex": "x", "options": "I"}, 51108),
        ({"input": "x", "regex": "x\0"}, 51109),
        ({"input": "x", "regex": "x", "options": "i\0"}, 51110),
        ({"input": "x", "regex": "[a"}, 51111),
        ({"input": "x", "regex": "a{2,1}"}, 51111),
    ],
)
def test_refusals_of_regular_expressions(failure: Failure, operator: str, parameters: object, code: int) -> None:
    assert failure({operator: parameters}, DOC).code == code


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$concat", ["a", {}], 16702),
        ("$concat", ["a", ["b"]], 16702),
        ("$concat", [DatetimeMS(0)], 16702),
        ("$toLower", [[1]], 16007),
        ("$toLower", [1, 2], 16020),
        ("$toUpper", Regex("x"), 16007),
        ("$toUpper", [], 16020),
        ("$strcasecmp", ["a"], 16020),
        ("$strcasecmp", [True, "a"], 16007),
        ("$strLenBytes", "$missing", 34473),
        ("$strLenBytes", 12, 34473),
        ("$strLenCP", "$n", 34471),
        ("$strLenCP", "$missing", 34471),
        ("$indexOfBytes", ["x"], 28667),
        ("$indexOfBytes", ["x", "$missing"], 40092),
        ("$indexOfBytes", ["x", "x", "0"], 40096),
        ("$indexOfBytes", ["x", "x", -1], 40097),
        ("$indexOfBytes", ["x", "x", 0, -1], 40097),
        ("$indexOfCP", ["x", "x", 0, 0.5], 40096),
        ("$indexOfCP", ["x", "x", 0, 1, 2], 28667),
        ("$substr", [["x"], 0, 1], 16007),
        ("$substr", ["x", 0], 16020),
        ("$substrBytes", ["$s", 4, 1], 28656),
        ("$substrBytes", ["$s", 3, 1], 28657),
        ("$substrBytes", ["x", None, 1], 16034),
        ("$substrCP", [True, 0, 1], 16007),
        ("$substrCP", ["x", 0, 0.5], 34453),
        ("$substrCP", ["x", None, 1], 34450),
        ("$split", ["x"], 16020),
        ("$split", [["x"], ","], 40085),
        ("$trim", {"input": "x", "chars": ["x"]}, 50700),
        ("$ltrim", "x", 50696),
        ("$ltrim", {"input": 1}, 50699),
        ("$ltrim", {"chars": "x"}, 50695),
        ("$ltrim", {"input": "x", "y": 1}, 50694),
        ("$rtrim", {"input": ["x"]}, 50699),
        ("$rtrim", {"input": "x", "chars": 1}, 50700),
        ("$rtrim", ["x"], 50696),
        ("$replaceOne", 1, 51751),
        ("$replaceOne", {"input": "x", "find": "x", "replacement": "x", "y": 1}, 51750),
        ("$replaceOne", {"find": "x", "replacement": "x"}, 51749),
        ("$replaceOne", {"input": "x", "replacement": "x"}, 51748),
        ("$replaceAll", {"input": "x", "find": "x"}, 51747),
        ("$replaceAll", {"input": "x", "find": "x", "replacement": 1}, 10503902),
        ("$replaceAll", 1, 51751),
    ],
)
def test_refusals(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code
