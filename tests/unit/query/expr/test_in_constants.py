"""`$in` with a long array of constants finds the values that it finds in a short one."""

from typing import Any

import bson
import pytest
from bson import Decimal128, Int64

from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression

VALUES: list[Any] = [None, 1, 1.0, Int64(1), Decimal128("1"), "a", "A", [1], [], {"x": 1}, True, float("nan"), -0.0]
PADDING = [f"none {number}" for number in range(40)]


@pytest.mark.parametrize("strength", [0, 2])
@pytest.mark.parametrize("wanted", [*VALUES, "missing"])
def test_long_arrays(wanted: Any, strength: int) -> None:
    context = ParseContext()
    if strength:
        context.collation = parse_collation(bson.encode({"locale": "en", "strength": strength}))
    evaluation = EvaluationContext()
    evaluation.root = bson.encode({} if wanted == "missing" else {"a": wanted})
    for value in VALUES:
        results = [
            parse_expression(bson.encode({"$in": ["$a", [value, *padding]]}), context).evaluate(evaluation)
            for padding in ([], PADDING)
        ]
        assert results[0] == results[1], value
