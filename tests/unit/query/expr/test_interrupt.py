"""Operators on long values learn within a fraction of a second of CPU that their operation is to end.

Interpreted, most of these take many times as long as MAX_GAP_S, so one that does not check is found.
"""

from typing import Any

import bson
import pytest

from mongottl.document.build import encode
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.base import ALL_FIRST, EXPRESSIONS
from tests.gaps import MAX_GAP_S, MIN_CHECKS, measured

pytestmark = pytest.mark.slow

LENGTH = 120_000
TEXT = "a b " * 100_000
NOW_MS = 1_700_000_000_123

# By name, what it is evaluated on; documents have `a` (numbers), `docs`, `pairs`, `text` and `wide` (a document).
LONG: dict[str, Any] = {
    "$allElementsTrue": [{"$slice": ["$a", 1, LENGTH]}],
    "$anyElementTrue": ["$zeros"],
    "$arrayToObject": "$pairs",
    "$avg": "$a",
    "$bsonSize": "$$ROOT",
    "$cmp": ["$a", "$b"],
    "$concat": ["$text", "$text"],
    "$concatArrays": ["$a", "$a", "$a"],
    "$eq": ["$a", "$b"],
    "$filter": {"input": "$a", "cond": True},
    "$firstN": {"input": "$a", "n": LENGTH},
    "$gt": ["$a", "$b"],
    "$gte": ["$a", "$b"],
    "$in": [-1, "$a"],
    "$indexOfArray": ["$a", -1],
    "$indexOfBytes": ["$text", "c"],
    "$indexOfCP": ["$text", "c"],
    "$lastN": {"input": "$a", "n": LENGTH},
    "$lt": ["$a", "$b"],
    "$lte": ["$a", "$b"],
    "$ltrim": {"input": "$text", "chars": "ab "},
    "$map": {"input": "$a", "in": 1},
    "$max": "$a",
    "$maxN": {"input": "$a", "n": LENGTH},
    "$median": {"input": "$a", "method": "approximate"},
    "$mergeObjects": "$docs",
    "$min": "$a",
    "$minN": {"input": "$a", "n": LENGTH},
    "$ne": ["$a", "$b"],
    "$objectToArray": "$wide",
    "$percentile": {"input": "$a", "p": [0.5], "method": "approximate"},
    "$range": [0, 5_000_000],
    "$reduce": {"input": "$a", "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}},
    "$regexFind": {"input": "$text", "regex": "c"},
    "$regexFindAll": {"input": "$text", "regex": "b"},
    "$regexMatch": {"input": "$text", "regex": "c"},
    "$replaceAll": {"input": "$text", "find": "a", "replacement": "c"},
    "$replaceOne": {"input": "$text", "find": "c", "replacement": "c"},
    "$reverseArray": "$a",
    "$rtrim": {"input": "$text", "chars": "ab "},
    "$setDifference": ["$a", [1]],
    "$setEquals": ["$a", "$a"],
    "$setField": {"input": "$wide", "field": "new", "value": 1},
    "$setIntersection": ["$a", "$a"],
    "$setIsSubset": ["$a", "$a"],
    "$setUnion": ["$a", "$b"],
    "$size": "$a",
    "$slice": ["$a", LENGTH],
    "$sortArray": {"input": "$a", "sortBy": -1},
    "$split": ["$text", " "],
    "$stdDevPop": "$a",
    "$stdDevSamp": "$a",
    "$strLenBytes": "$text",
    "$strLenCP": "$text",
    "$strcasecmp": ["$text", "$text"],
    "$substr": ["$text", 0, 300_000],
    "$substrBytes": ["$text", 0, 300_000],
    "$substrCP": ["$text", 0, 300_000],
    "$sum": "$a",
    "$toHashedIndexKey": "$a",
    "$toLower": "$text",
    "$toUpper": "$text",
    "$trim": {"input": "$text", "chars": "ab "},
    "$unsetField": {"input": "$wide", "field": "f1"},
    "$zip": {"inputs": ["$a", "$a"]},
}
# Of these, what one call of Python's own does, in a few milliseconds.
AT_ONCE = {
    *("$bsonSize", "$concat", "$indexOfBytes", "$indexOfCP", "$ltrim", "$range", "$regexFind", "$regexMatch"),
    *("$replaceAll", "$replaceOne", "$rtrim", "$split", "$strLenBytes", "$strLenCP", "$strcasecmp", "$substr"),
    *("$substrBytes", "$substrCP", "$toLower", "$toUpper", "$trim"),
}
# Of the other operators, the operands are short, or they evaluate others, or their work is a look at a type.
SHORT = {
    *("$abs", "$acos", "$acosh", "$add", "$and", "$arrayElemAt", "$asin", "$asinh", "$atan", "$atan2", "$atanh"),
    *("$binarySize", "$bitAnd", "$bitNot", "$bitOr", "$bitXor", "$ceil", "$cond", "$const", "$convert", "$cos"),
    *("$cosh", "$dateAdd", "$dateDiff", "$dateFromParts", "$dateFromString", "$dateSubtract", "$dateToParts"),
    *("$dateToString", "$dateTrunc", "$dayOfMonth", "$dayOfWeek", "$dayOfYear", "$degreesToRadians", "$divide"),
    *("$exp", "$first", "$floor", "$function", "$getField", "$hour", "$ifNull", "$isArray", "$isNumber"),
    *("$isoDayOfWeek", "$isoWeek", "$isoWeekYear", "$last", "$let", "$literal", "$ln", "$log", "$log10", "$meta"),
    *("$millisecond", "$minute", "$mod", "$month", "$multiply", "$not", "$or", "$pow", "$radiansToDegrees", "$rand"),
    *("$round", "$second", "$sigmoid", "$sin", "$sinh", "$sqrt", "$subtract", "$switch", "$tan", "$tanh", "$toBool"),
    *("$toDate", "$toDecimal", "$toDouble", "$toInt", "$toLong", "$toObjectId", "$toString", "$toUUID", "$trunc"),
    *("$tsIncrement", "$tsSecond", "$type", "$week", "$year"),
}


@pytest.fixture(scope="module")
def document() -> bytes:
    return bson.encode(
        {
            "a": [*range(LENGTH)],
            "b": [*range(LENGTH - 1), -1],
            "zeros": [0] * LENGTH,
            "docs": [{f"f{number % 1000}": number} for number in range(LENGTH)],
            "pairs": [[f"f{number}", number] for number in range(LENGTH // 2)],
            "text": TEXT,
            "wide": {f"f{number}": number for number in range(LENGTH)},
            "last": 1,
        }
    )


def parsed(expression: object) -> Expression:
    return parse_expression(get_value(bson.encode({"v": expression}), "v"), ParseContext(NOW_MS))


def test_every_operator_is_in_one_of_the_tables() -> None:
    assert LONG.keys() | SHORT == set(EXPRESSIONS.names())
    assert not LONG.keys() & SHORT


@pytest.mark.parametrize("name", LONG)
def test_long_values_are_interrupted(name: str, document: bytes) -> None:
    tree = parsed({name: LONG[name]})
    if name == "$reduce":  # which takes minutes, since it copies its value each time
        with pytest.raises(CommandError), measured(3) as gaps:
            tree.evaluate(EvaluationContext(document))
    else:
        with measured() as gaps:
            tree.evaluate(EvaluationContext(document))
        assert name in AT_ONCE or gaps.count > MIN_CHECKS
    assert gaps.longest_s <= MAX_GAP_S


@pytest.mark.parametrize("name", ["$map", "$filter", "$setUnion", "$sortArray", "$zip", "$in", "$maxN"])
def test_an_operator_ends_when_its_time_is_over(name: str, document: bytes) -> None:
    with pytest.raises(CommandError) as caught, measured(2):
        parsed({name: LONG[name]}).evaluate(EvaluationContext(document))
    assert caught.value.code == ErrorCode.MaxTimeMSExpired


@pytest.mark.parametrize("each", ["$field", *sorted(AT_ONCE)])
def test_map_with_a_slow_expression_is_interrupted(each: str) -> None:
    """`$map` counts its elements, not what it does for them. The last field of a document has all others before it."""
    body = "$wide.f119999" if each == "$field" else {each: LONG[each]}
    if each == "$range":
        body = {each: [0, 100_000]}
    wide = {f"f{number}": number for number in range(LENGTH)}
    document = bson.encode({"text": TEXT * 20, "wide": wide, "docs": [], "a": []})
    tree = parsed({"$map": {"input": {"$range": [0, 1_000_000]}, "in": body}})
    with pytest.raises(CommandError), measured(5) as gaps:
        tree.evaluate(EvaluationContext(document))
    # The first checks come after a number of elements, when nothing is known of what each takes.
    assert gaps.longest_s <= 5 * MAX_GAP_S


@pytest.mark.parametrize("path", ["$last", "$wide.f119999"])
def test_many_fields_of_a_long_document_are_interrupted(path: str, document: bytes) -> None:
    """As a `$project` with thousands of computed fields reads them: each is searched from the document's beginning."""
    field = parsed(path)
    with pytest.raises(CommandError), measured(5) as gaps:
        for _ in range(10_000):
            field.evaluate(EvaluationContext(document))
    assert gaps.longest_s <= MAX_GAP_S


@pytest.mark.parametrize("text", ["ab", "\\udc80"])
@pytest.mark.parametrize("name", ["$trim", "$ltrim", "$rtrim"])
def test_trimming_by_many_characters_is_interrupted(name: str, text: str) -> None:
    """Each character of the text is looked for among all of them."""
    many = "".join(chr(0x4E00 + number) for number in range(20_000))
    document = encode({"text": (many[-1] + text) * 200_000, "many": many + text})
    with pytest.raises(CommandError), measured(5) as gaps:
        parsed({name: {"input": "$text", "chars": "$many"}}).evaluate(EvaluationContext(document))
    assert gaps.longest_s <= MAX_GAP_S


@pytest.mark.parametrize(
    ("name", "expected"), [("$trim", "1 2"), ("$ltrim", "1 2" + "ba" * 300_000), ("$rtrim", "ab" * 300_000 + "1 2")]
)
def test_long_texts_are_trimmed(name: str, expected: str) -> None:
    document = bson.encode({"text": "ab" * 300_000 + "1 2" + "ba" * 300_000})
    assert parsed({name: {"input": "$text", "chars": "ba"}}).evaluate(EvaluationContext(document)) == expected
    assert parsed({name: {"input": "$text", "chars": "ba 12"}}).evaluate(EvaluationContext(document)) == ""


def names_of_operators_that_end_at_a_null() -> list[str]:
    names = ["$add"]
    for name in EXPRESSIONS.names():
        operator = EXPRESSIONS.get(name)
        if operator is not None and operator.grouping != ALL_FIRST:
            names.append(name)
    return names


@pytest.mark.parametrize("code", [ErrorCode.MaxTimeMSExpired, ErrorCode.Interrupted, ErrorCode.InterruptedAtShutdown])
@pytest.mark.parametrize("name", names_of_operators_that_end_at_a_null())
def test_no_null_hides_that_an_operation_is_to_end(name: str, code: ErrorCode, document: bytes) -> None:
    """Another error of an operand after a null is none, since it is not evaluated."""
    failing = parsed({name: ["$missing", {"$divide": [1, "$zeros"]}, "$missing"]})
    assert failing.evaluate(EvaluationContext(document)) is None
    long = parsed({name: ["$missing", {"$map": {"input": "$a", "in": 1}}, "$missing"]})
    with pytest.raises(CommandError) as caught, measured(1, code=code):
        long.evaluate(EvaluationContext(document))
    assert caught.value.code == code


def test_no_constant_hides_that_an_operation_is_to_end() -> None:
    """An error of folding a constant is kept for the evaluation, or forgotten, but not that the operation is to end."""
    with pytest.raises(CommandError) as caught, measured(1, evaluates=False, code=ErrorCode.Interrupted) as gaps:
        parsed({"$cond": ["$a", {"$size": {"$range": [0, 3_000_000]}}, {"$size": {"$range": [0, 3_000_000]}}]})
    assert (caught.value.code, gaps.count) == (ErrorCode.Interrupted, 1)


def test_constants_are_folded_within_the_time_of_the_operation() -> None:
    numbers = {"$range": [0, 3_000_000]}
    with pytest.raises(CommandError), measured(2, evaluates=False) as gaps:
        parsed({"$size": {"$setUnion": [numbers, numbers]}}).evaluate(EvaluationContext())
    assert gaps.count >= 2


def test_outside_of_an_evaluation_nothing_is_asked(document: bytes) -> None:
    with measured(1, evaluates=False) as gaps:
        parsed({"$map": {"input": "$a", "in": 1}}).evaluate(EvaluationContext(document))
    assert gaps.count == 0
