"""The names that an expression can use: those that are bound around it."""

import bson

from mongottl.document.walk import get_value
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression
from mongottl.query.expr.base import Scope


def test_a_scope_has_the_names_around_it_without_a_copy_of_them() -> None:
    """Otherwise a thousand `$map` within the scope of a thousand variables would take a million steps."""
    names = [f"v{number}" for number in range(1_000)]
    outer = Scope(ParseContext(0)).bind(names)
    inner = outer.reserve(5).bind(["this", "v7"])
    assert inner.slots == {"this": 1_005, "v7": 1_006}
    assert [inner.slot_of(name) for name in ("v0", "v999", "this", "v7", "other")] == [0, 999, 1_005, 1_006, -1]
    assert [outer.slot_of(name) for name in ("v7", "this")] == [7, -1]


def test_variables_are_those_bound_next() -> None:
    added = {
        "$map": {
            "input": [1, 2],
            "as": "x",
            "in": {"$add": ["$$x", "$$y", {"$let": {"vars": {"x": 100}, "in": "$$x"}}]},
        }
    }
    raw = bson.encode({"v": {"$let": {"vars": {"x": 10, "y": 20}, "in": [added, "$$x"]}}})
    tree = parse_expression(get_value(raw, "v"), ParseContext(0))
    assert tree.evaluate(EvaluationContext(bson.encode({}))) == [[121, 122], 10]
