from collections.abc import Callable
from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match

Document = dict[str, Any]


@pytest.fixture
def matching() -> Callable[[Document, list[Any]], list[Any]]:
    """Which of some values of the field `a` a filter finds; `...` stands for a document without the field."""

    def find(filter: Document, values: list[Any]) -> list[Any]:
        expression = parse_match(bson.encode(filter), ParseContext(now_ms=1_700_000_000_000))
        found = []
        for value in values:
            document: Document = {"_id": 1} if value is ... else {"_id": 1, "a": value}
            if expression.matches(bson.encode(document)):
                found.append(value)
        return found

    return find


@pytest.fixture
def refusal() -> Callable[[Document], tuple[int, str]]:
    """Code and message with which a filter is refused."""

    def refuse(filter: Document) -> tuple[int, str]:
        with pytest.raises(CommandError) as caught:
            parse_match(bson.encode(filter), ParseContext())
        return caught.value.code, caught.value.message

    return refuse
