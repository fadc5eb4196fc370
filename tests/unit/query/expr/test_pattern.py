"""Regular expressions: `$regexMatch`, `$regexFind` and `$regexFindAll`."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Regex

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

DOC = {"n": None, "s": "cafétéria", "sushi": "寿司sushi", "emoji": "a😀b"}


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$regexMatch", {"input": "Hello", "regex": "^h", "options": "i"}, True),
        ("$regexMatch", {"input": None, "regex": "x"}, False),
        (
            "$regexFind",
            {"input": "éab12", "regex": Regex("(\\d)(x)?")},
            {"match": "1", "idx": 3, "captures": ["1", None]},
        ),
        ("$regexFind", {"input": "abc", "regex": "z"}, None),
        (
            "$regexFindAll",
            {"input": "éaéa", "regex": "a"},
            [{"match": "a", "idx": 1, "captures": []}, {"match": "a", "idx": 3, "captures": []}],
        ),
        (
            "$regexFindAll",
            {"input": "ab", "regex": ""},
            [{"match": "", "idx": 0, "captures": []}, {"match": "", "idx": 1, "captures": []}],
        ),
        ("$regexFindAll", {"input": "ab", "regex": None}, []),
    ],
)
def test_each_operator_of_regular_expressions(check: Check, operator: str, operand: object, expected: object) -> None:
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
def test_refusals_of_all_operators_of_regular_expressions(
    failure: Failure, operator: str, parameters: object, code: int
) -> None:
    assert failure({operator: parameters}, DOC).code == code


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$regexMatch", {"input": 1, "regex": "x"}, 51104),
        ("$regexMatch", {"input": "x", "regex": 1}, 51105),
        ("$regexMatch", {"input": "x", "regex": Regex("x", "i"), "options": "i"}, 51107),
        ("$regexMatch", {"input": "x", "regex": "x", "options": "q"}, 51108),
        ("$regexMatch", {"input": "x", "regex": "("}, 51111),
    ],
)
def test_refusals_of_each_operator_of_regular_expressions(
    failure: Failure, operator: str, operand: object, code: int
) -> None:
    assert failure({operator: operand}, DOC).code == code
