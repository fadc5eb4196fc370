"""`$meta` without a search or a sort that has metadata."""

from collections.abc import Callable
from typing import Any

import pytest

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

DOC: dict[str, object] = {}


@pytest.mark.parametrize(
    ("operator", "operand", "code"),
    [
        ("$meta", 1, 17307),
        ("$meta", "nonsense", 17308),
    ],
)
def test_meta_refuses_unknown_names(failure: Failure, operator: str, operand: object, code: int) -> None:
    assert failure({operator: operand}, DOC).code == code


def test_absent_metadata_is_missing(check: Check) -> None:
    check({"$type": {"$meta": "indexKey"}}, {}, "missing")
