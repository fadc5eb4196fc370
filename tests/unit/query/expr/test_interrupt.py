"""Loops over one long array learn that their operation is to end."""

from collections.abc import Iterator

import pytest

from mongottl.document.interrupt import CHECK_EVERY, clear_check, set_check
from mongottl.errors import CommandError, ErrorCode
from tests.unit.query.expr.conftest import evaluate

LONG = 5 * int(CHECK_EVERY)


@pytest.fixture
def asked() -> Iterator[list[int]]:
    """How often it was asked; the third time, the operation's time is over."""
    times: list[int] = []

    def check() -> None:
        times.append(1)
        if len(times) == 3:
            raise CommandError(ErrorCode.MaxTimeMSExpired, "operation exceeded time limit")

    set_check(check)
    yield times
    clear_check()


@pytest.mark.parametrize(
    "expression",
    [
        {"$map": {"input": "$a", "in": 1}},
        {"$filter": {"input": "$a", "cond": True}},
        {"$reduce": {"input": "$a", "initialValue": 0, "in": "$$this"}},
        {"$setUnion": ["$a", []]},
        {"$setDifference": ["$a", [1]]},
        {"$setIntersection": ["$a", "$a"]},
        {"$setIsSubset": [[1], "$a"]},
        {"$map": {"input": "$few", "in": {"$size": {"$map": {"input": "$a", "in": 1}}}}},
    ],
    ids=str,
)
def test_a_loop_ends_when_its_time_is_over(asked: list[int], expression: object) -> None:
    with pytest.raises(CommandError) as caught:
        evaluate(expression, {"a": list(range(LONG)), "few": [1, 2]})
    assert caught.value.code == ErrorCode.MaxTimeMSExpired
    assert len(asked) == 3


def test_short_arrays_do_not_ask(asked: list[int]) -> None:
    evaluate({"$map": {"input": "$a", "in": 1}}, {"a": list(range(int(CHECK_EVERY) - 1))})
    assert asked == []


def test_without_an_operation_nothing_is_asked() -> None:
    evaluate({"$map": {"input": "$a", "in": 1}}, {"a": list(range(LONG))})
