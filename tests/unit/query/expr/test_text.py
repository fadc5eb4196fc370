from collections.abc import Callable
from typing import Any

import pytest
from bson import Code, Decimal128, Int64, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$concat": ["a", "b", "ç"]}, "abç"),
        ({"$concat": ["a", None]}, None),
        ({"$concat": []}, ""),
        ({"$toLower": "ÄbC"}, "Äbc"),  # ASCII alone
        ({"$toUpper": "äbC"}, "äBC"),
        ({"$toLower": None}, ""),
        ({"$toUpper": 1.5}, "1.5"),
        ({"$toLower": 123456.789}, "123457"),  # six digits, as C's %g
        ({"$toLower": DatetimeMS(0)}, "1970-01-01t00:00:00.000z"),
        ({"$toUpper": Timestamp(0, 7)}, "JAN  1 00:00:00:7"),
        ({"$toUpper": Code("f()")}, "F()"),
        ({"$strcasecmp": ["aB", "Ab"]}, 0),
        ({"$strcasecmp": ["a", "B"]}, -1),
        ({"$strcasecmp": [None, ""]}, 0),
        ({"$strLenBytes": "é€"}, 5),
        ({"$strLenCP": "é€😀"}, 3),
        ({"$indexOfBytes": ["aéb", "b"]}, 3),
        ({"$indexOfCP": ["aéb", "b"]}, 2),
        ({"$indexOfCP": ["abab", "b", 2]}, 3),
        ({"$indexOfCP": ["abab", "b", 2, 3]}, -1),
        ({"$indexOfCP": ["abc", "", 3]}, -1),
        ({"$indexOfCP": ["abc", "", 4]}, -1),
        ({"$indexOfCP": [None, "x"]}, None),
        ({"$substrBytes": ["hello", 1, 3]}, "ell"),
        ({"$substrBytes": ["hello", 1, -1]}, "ello"),
        ({"$substrBytes": ["hello", 9, 1]}, ""),
        ({"$substr": ["hello", 0, 2]}, "he"),
        ({"$substrCP": ["aé€x", 1, 2]}, "é€"),
        ({"$substrCP": [1234, 1, 2]}, "23"),
        ({"$split": ["a-b--c", "-"]}, ["a", "b", "", "c"]),
        ({"$split": [None, "-"]}, None),
        ({"$trim": {"input": "  x\u00a0\n"}}, "x"),
        ({"$trim": {"input": "xxaxx", "chars": "x"}}, "a"),
        ({"$ltrim": {"input": "xxaxx", "chars": "x"}}, "axx"),
        ({"$rtrim": {"input": "xxaxx", "chars": "yx"}}, "xxa"),
        ({"$trim": {"input": None}}, None),
        ({"$replaceOne": {"input": "aXbX", "find": "X", "replacement": "-"}}, "a-bX"),
        ({"$replaceAll": {"input": "aXbX", "find": "X", "replacement": "-"}}, "a-b-"),
        ({"$replaceAll": {"input": "ab", "find": None, "replacement": ""}}, None),
        ({"$regexMatch": {"input": "Hello", "regex": "^h", "options": "i"}}, True),
        ({"$regexMatch": {"input": None, "regex": "x"}}, False),
        (
            {"$regexFind": {"input": "éab12", "regex": Regex("(\\d)(x)?")}},
            {"match": "1", "idx": 3, "captures": ["1", None]},
        ),
        ({"$regexFind": {"input": "abc", "regex": "z"}}, None),
        (
            {"$regexFindAll": {"input": "éaéa", "regex": "a"}},
            [{"match": "a", "idx": 1, "captures": []}, {"match": "a", "idx": 3, "captures": []}],
        ),
        (
            {"$regexFindAll": {"input": "ab", "regex": ""}},
            [{"match": "", "idx": 0, "captures": []}, {"match": "", "idx": 1, "captures": []}],
        ),
        ({"$regexFindAll": {"input": "ab", "regex": None}}, []),
        ({"$toString": Int64(7)}, "7"),
        ({"$toString": Decimal128("1.50")}, "1.50"),
    ],
)
def test_values(check: Check, expression: object, expected: object) -> None:
    check(expression, {}, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$concat": ["a", 1]}, 16702),
        ({"$toLower": True}, 16007),
        ({"$toUpper": {}}, 16007),
        ({"$strLenBytes": None}, 34473),
        ({"$strLenCP": 1}, 34471),
        ({"$indexOfBytes": [1, "x"]}, 40091),
        ({"$indexOfBytes": ["x", None]}, 40092),
        ({"$indexOfCP": [1, "x"]}, 40093),
        ({"$indexOfCP": ["x", 1]}, 40094),
        ({"$indexOfCP": ["x", "x", 1.5]}, 40096),
        ({"$indexOfCP": ["x", "x", -1]}, 40097),
        ({"$substrBytes": ["x", "0", 1]}, 16034),
        ({"$substrBytes": ["x", 0, "1"]}, 16035),
        ({"$substrBytes": ["x", -1, 1]}, 50752),
        ({"$substrBytes": ["é", 1, 1]}, 28656),
        ({"$substrBytes": ["é", 0, 1]}, 28657),
        ({"$substrBytes": ["x", 1e30, 1]}, 31109),
        ({"$substrCP": ["x", "0", 1]}, 34450),
        ({"$substrCP": ["x", 0.5, 1]}, 34451),
        ({"$substrCP": ["x", 0, "1"]}, 34452),
        ({"$substrCP": ["x", 0, -1]}, 34454),
        ({"$substrCP": ["x", -1, 1]}, 34455),
        ({"$split": [1, "x"]}, 40085),
        ({"$split": ["x", 1]}, 10503900),
        ({"$split": ["x", ""]}, 40087),
        ({"$trim": "x"}, 50696),
        ({"$trim": {"chars": "x"}}, 50695),
        ({"$trim": {"input": 1}}, 50699),
        ({"$trim": {"input": "x", "chars": 1}}, 50700),
        ({"$trim": {"input": "x", "y": 1}}, 50694),
        ({"$replaceOne": {"input": 1, "find": "", "replacement": ""}}, 10503904),
        ({"$replaceOne": {"input": "", "find": ""}}, 51747),
        ({"$regexMatch": {"input": 1, "regex": "x"}}, 51104),
        ({"$regexMatch": {"input": "x", "regex": 1}}, 51105),
        ({"$regexMatch": {"input": "x", "regex": Regex("x", "i"), "options": "i"}}, 51107),
        ({"$regexMatch": {"input": "x", "regex": "x", "options": "q"}}, 51108),
        ({"$regexMatch": {"input": "x", "regex": "("}}, 51111),
        ({"$concat": ["$big", "$big"]}, 16493),
    ],
)
def test_errors(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {"big": "x" * (9 << 20)}).code == code
