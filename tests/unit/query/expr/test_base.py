from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Int64
from bson.datetime_ms import DatetimeMS

from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import EXPRESSIONS, UNBOUND, Constant, EvaluationContext, parse_expression

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

NESTED = {"a": {"b": 5}, "l": [{"x": 1}, {"y": 2}, {"x": [3, 4]}, 7, [{"x": 8}]], "n": None}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$a.b", 5),
        ("$a", {"b": 5}),
        ("$a.c", ...),
        ("$a.b.c", ...),
        ("$nothing", ...),
        ("$n", None),
        ("$n.x", ...),
        ("$l.x", [1, [3, 4]]),
        ("$l.0", []),  # a number is no index here: none of the documents has a field "0"
        ("$l.x.z", [[]]),
        ("$$ROOT", NESTED),
        ("$$CURRENT", NESTED),
        ("$$ROOT.a.b", 5),
        ("$$CURRENT.l.y", [2]),
        ("$$REMOVE", ...),
        ("$$NOW", DatetimeMS(1_700_000_000_123)),
        ("$$NOW.x", ...),
        ("$$user", 7),
    ],
)
def test_paths_and_variables(check: Check, expression: object, expected: object) -> None:
    check(expression, NESTED, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (1, 1),
        ("text", "text"),
        ([], []),
        ({}, {}),
        (["$a.b", "$a.c", 2], [5, None, 2]),
        ({"p": "$a.b", "q": "$a.c", "r": {"s": ["$n"]}}, {"p": 5, "r": {"s": [None]}}),
        ({"$literal": "$a"}, "$a"),
        ({"$literal": {"$add": [1]}}, {"$add": [1]}),
        ({"$const": ["$$x"]}, ["$$x"]),
    ],
)
def test_literals_objects_and_arrays(check: Check, expression: object, expected: object) -> None:
    check(expression, NESTED, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"$let": {"vars": {"x": "$a.b", "y": 2}, "in": {"$add": ["$$x", "$$y"]}}}, 7),
        ({"$let": {"vars": {"x": 1}, "in": {"$let": {"vars": {"x": 2, "y": "$$x"}, "in": ["$$x", "$$y"]}}}}, [2, 1]),
        # A binder inside a value does not disturb the values before it.
        (
            {
                "$let": {
                    "vars": {"x": 1, "y": {"$let": {"vars": {"z": 5, "w": 6}, "in": "$$z"}}},
                    "in": ["$$x", "$$y"],
                }
            },
            [1, 5],
        ),
        ({"$let": {"vars": {"CURRENT": "$a"}, "in": "$b"}}, 5),
        ({"$let": {"vars": {"CURRENT": "$a"}, "in": "$$ROOT.n"}}, None),
        ({"$let": {"vars": {"l": "$l"}, "in": "$$l.x"}}, [1, [3, 4]]),
        ({"$let": {"vars": {}, "in": 3}}, 3),
    ],
)
def test_let(check: Check, expression: object, expected: object) -> None:
    check(expression, NESTED, expected)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$foo": 1}, ErrorCode.InvalidPipelineOperator),
        ({"a": {"$foo": 1}}, ErrorCode.InvalidPipelineOperator),
        ({"$add": [1], "$abs": 1}, 15983),
        ({"a": 1, "$add": [1]}, 16410),
        ({"a.b": 1}, 16412),
        ("$", 16872),
        ("$$", ErrorCode.FailedToParse),
        ("$$1x", ErrorCode.FailedToParse),
        ("$$x-y", ErrorCode.FailedToParse),
        ("$$unknown", 17276),
        ("$$PRUNE", 17276),  # known to $redact alone
        ("$a.", 40353),
        ("$a..b", 15998),
        ("$a.$b", 16410),
        ({"$let": 1}, 16874),
        ({"$let": {"vars": {}, "in": 1, "x": 1}}, 16875),
        ({"$let": {"in": 1}}, 16876),
        ({"$let": {"vars": {}}}, 16877),
        ({"$let": {"vars": {"X": 1}, "in": 1}}, ErrorCode.FailedToParse),
        ({"$let": {"vars": {"ROOT": 1}, "in": 1}}, ErrorCode.FailedToParse),
        ({"$let": {"vars": {"": 1}, "in": 1}}, ErrorCode.FailedToParse),
        ({"$abs": [1, 2]}, 16020),
        ({"$eq": [1]}, 16020),
        ({"$round": [1, 2, 3]}, 28667),
    ],
)
def test_parse_errors(failure: Failure, expression: object, code: int) -> None:
    assert failure(expression, {}).code == code


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (1, 31260),
        ({"args": [], "lang": "js"}, 31261),
        ({"body": 1, "args": [], "lang": "js"}, 31262),
        ({"body": "", "lang": "js"}, 31263),
        ({"body": "", "args": [], "lang": "js", "else": 1}, 31264),
        ({"body": "", "args": []}, 31418),
        ({"body": "", "args": [], "lang": "py"}, 31419),
        ({"body": "$x", "args": [], "lang": "js"}, 31432),
    ],
)
def test_errors_of_javascript_functions(failure: Failure, argument: object, code: int) -> None:
    assert failure({"$function": argument}, {}).code == code


def test_javascript_is_refused_by_name_where_scripts_are_not_allowed(failure: Failure) -> None:
    error = failure({"$function": {"body": "", "args": [], "lang": "js"}}, {})
    assert error.code == ErrorCode.BadValue
    assert "$function" in error.message


def _parse(expression: object) -> object:
    return get_value(bson.encode({"v": expression}), "v")


def test_constants_are_folded() -> None:
    tree = parse_expression(_parse({"$add": [1, {"$multiply": [2, 3]}]}), ParseContext())
    assert isinstance(tree, Constant)
    assert tree.value == 7


def test_an_error_in_folding_is_raised_while_parsing() -> None:
    with pytest.raises(CommandError) as caught:
        parse_expression(_parse({"$cond": ["$c", {"$divide": [1, 0]}, 2]}), ParseContext())
    assert caught.value.code == ErrorCode.BadValue


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"$add": [{"$divide": [1, 0]}, {"$nothing": 1}]}, 168),
        ({"$lt": [{"$toDate": 0}, "$$nothing"]}, 17276),
        ({"$cond": [{"$abs": "x"}, {"$eq": [1]}, 2]}, 16020),
        ({"a": {"$abs": "x"}, "b": {"$eq": [1]}}, 16020),
        ({"$add": [{"$abs": "x"}, {"$divide": [1, 0]}]}, 28765),
    ],
)
def test_parse_errors_come_before_errors_of_constant_folding(expression: object, code: int) -> None:
    with pytest.raises(CommandError) as caught:
        parse_expression(_parse(expression), ParseContext())
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("$a.b.c", {"a"}),
        ({"$add": ["$a", {"$cond": ["$b.x", "$c", 1]}]}, {"a", "b", "c"}),
        ({"$let": {"vars": {"x": "$p"}, "in": {"$add": ["$$x", "$q"]}}}, {"p", "q"}),
        ("$$ROOT", None),
        ({"x": "$$CURRENT", "y": "$a"}, None),
        (1, set()),
    ],
)
def test_dependencies(expression: object, fields: set[str] | None) -> None:
    assert parse_expression(_parse(expression), ParseContext()).dependencies() == fields


@pytest.mark.parametrize(
    ("expression", "described"),
    [
        ("$a.b", "$a.b"),
        (5, {"$const": 5}),
        ({"$add": ["$a", 1]}, {"$add": ["$a", {"$const": 1}]}),
        ({"$abs": "$a"}, {"$abs": ["$a"]}),
        ({"x": ["$a"]}, {"x": ["$a"]}),
        (
            {"$let": {"vars": {"x": "$a"}, "in": "$$x.y"}},
            {"$let": {"vars": {"x": "$a"}, "in": "$$x.y"}},
        ),
    ],
)
def test_describe(expression: object, described: object) -> None:
    tree = parse_expression(_parse(expression), ParseContext())
    assert tree.describe() == _parse(described)


def test_a_context_is_pointed_at_one_document_after_another() -> None:
    tree = parse_expression(_parse({"$add": ["$v", Int64(1)]}), ParseContext())
    ev = EvaluationContext()
    results = []
    for number in range(3):
        ev.root = bson.encode({"v": number})
        results.append(tree.evaluate(ev))
    assert results == [1, 2, 3]


def test_an_unbound_variable_is_known_but_not_folded() -> None:
    tree = parse_expression(_parse({"$abs": "$$outer.n"}), ParseContext(0, {"outer": UNBOUND}))
    assert not isinstance(tree, Constant)


def test_no_operator_is_registered_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        EXPRESSIONS.add_unsupported("$add", "", since=(3, 6))
