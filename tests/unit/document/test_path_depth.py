"""Paths have 200 components at most, as documents have levels.

An update along a path of 300,000 components ended the process, whose stack it exceeded; an index on it took all memory,
since it kept each beginning of the path.
"""

from collections.abc import Callable
from typing import Final

import bson
import pytest

from mongottl.catalog.index_spec import parse_index_spec
from mongottl.document.path import FieldPath, check_field_path
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.update.paths import split_update_path

NOW_MS: Final = 1_700_000_000_123
TAKERS: Final[dict[str, tuple[Callable[[str], object], int]]] = {
    "a path": (FieldPath, ErrorCode.Overflow),
    "a path of an expression": (check_field_path, ErrorCode.Overflow),
    "a path of an update": (split_update_path, ErrorCode.Overflow),
    "a filter": (lambda path: parse_match(bson.encode({path: 1}), ParseContext(NOW_MS)), ErrorCode.Overflow),
    "an index": (
        lambda path: parse_index_spec(bson.encode({"key": {path: 1}, "name": "i"})),
        ErrorCode.CannotCreateIndex,
    ),
    "a text index": (
        lambda path: parse_index_spec(bson.encode({"key": {path: "text"}, "name": "i"})),
        ErrorCode.CannotCreateIndex,
    ),
    "the weights of a text index": (
        lambda path: parse_index_spec(bson.encode({"key": {"a": "text"}, "name": "i", "weights": {path: 2}})),
        ErrorCode.CannotCreateIndex,
    ),
    "a wildcard index": (
        lambda path: parse_index_spec(bson.encode({"key": {f"{path}.$**": 1}, "name": "i"})),
        ErrorCode.CannotCreateIndex,
    ),
}


def path_of(components: int) -> str:
    return ".".join(["b"] * components)


@pytest.mark.parametrize("taker", TAKERS)
def test_longer_paths_are_refused(taker: str) -> None:
    take, code = TAKERS[taker]
    take(path_of(199))
    for components in (201, 300_000):
        with pytest.raises(CommandError, match="FieldPath is too long: more than 200 components") as refused:
            take(path_of(components))
        assert refused.value.code == code
