"""How the tests of expressions state cases: values as PyMongo writes them, compared as BSON.

So the type, the digits of a decimal and the sign of a zero count.
"""

from collections.abc import Callable

import bson
import pytest

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, parse_expression

NOW_MS = 1_700_000_000_123


def evaluate(expression: object, document: dict[str, object]) -> Value:
    argument = get_value(bson.encode({"v": expression}), "v")
    let: dict[str, Value] = {"user": 7}
    tree = parse_expression(argument, ParseContext(NOW_MS, let))
    return tree.evaluate(EvaluationContext(bson.encode(document)))


@pytest.fixture
def check() -> Callable[[object, dict[str, object], object], None]:
    """check(expression, document, expected): `...` expects no value at all."""

    def check_value(expression: object, document: dict[str, object], expected: object) -> None:
        value = evaluate(expression, document)
        if isinstance(expected, float) and expected != expected:
            assert isinstance(value, float)
            assert value != value  # the sign of a NaN is the processor's business
            return
        wanted = bson.encode({} if expected is ... else {"v": expected})
        actual = encode({"v": value})
        assert actual == wanted, f"{bson.decode(actual)} is not {bson.decode(wanted)}"

    return check_value


@pytest.fixture
def failure() -> Callable[[object, dict[str, object]], CommandError]:
    """failure(expression, document): the error that parsing or evaluating raises."""

    def error_of(expression: object, document: dict[str, object]) -> CommandError:
        with pytest.raises(CommandError) as caught:
            evaluate(expression, document)
        return caught.value

    return error_of
