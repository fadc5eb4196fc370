"""The cost of a long request grows with its length, not with the square of it.

Counted are the lines of Python that are run, so the answer is the same on every machine. Loops inside of C functions
are not seen: `x in a_list` over a long list must not stand in a loop.
"""

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from mongottl.build_info import is_compiled
from mongottl.errors import CommandError
from tests.running import Running
from tests.unit.exec.growth_cases import KINDS, TEMPLATES, Case, commands, members, registered

pytestmark = pytest.mark.skipif(is_compiled(), reason="lines can only be counted where they are interpreted")

SMALL = 40
LARGE = 4 * SMALL
# Linear is 4 at most; what is sorted by a Python function takes n log n comparisons.
GROWTH = 5.6
# Fewer lines than these for LARGE hide no loop over all pairs of its elements.
LINES_AT_LEAST = LARGE * LARGE // 2


class LineCount:
    """Counts the lines that are executed within a `with` block."""

    def __init__(self) -> None:
        self.lines = 0

    def __enter__(self) -> "LineCount":
        lines = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal lines
            lines += 1
            return trace

        self._read: Callable[[], int] = lambda: lines
        self._before = sys.gettrace()
        sys.settrace(trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)
        self.lines = self._read()


def world(width: int = 0) -> Running:
    """A few documents, an index of each kind that plans may take for many paths, and a partial one.

    width: the first document, which `growth_cases.update` asks for, has as many fields that requests name.
    """
    running = Running()
    running.insert(
        *[
            {"_id": i, "a": i, "b": {"x": i}, "list": [{"x": 1}, {"x": 2}]} | members(0 if i else width)
            for i in range(3)
        ]
    )
    running.insert({"_id": 1, "a": 1}, into="w")
    running.index({"a": 1})
    running.index({"p": 1}, partialFilterExpression={"p": {"$gt": 0}})
    running.index({"$**": 1}, on="w")
    return running


def lines_of(running: Running, command: dict[str, Any]) -> int:
    with LineCount() as count, contextlib.suppress(CommandError):
        running.run(command)
    return count.lines


def is_linear(case: Case, running: Running | None) -> bool:
    """Whether the work grows with the length. running: where the request may be sent twice; None for a new world each
    time."""

    def lines(n: int) -> int:
        request = case(n)
        projection = request.get("projection")
        # Fields of a filter or an expression are searched for one by one, as mongod does: those of $elemMatch, too.
        is_wide = "updates" in request or (
            isinstance(projection, dict) and {"$elemMatch": {"x": 1}} not in projection.values()
        )
        return lines_of(running or world(n if is_wide else 0), request)

    large = lines(LARGE)
    if large <= LINES_AT_LEAST or large <= GROWTH * lines(SMALL):
        return True
    # Or another code path begins between the two lengths.
    return lines(4 * LARGE) <= GROWTH * large


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_work_of_a_long_request_is_linear(name: str) -> None:
    assert is_linear(TEMPLATES[name], None)


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_of_whatever_is_registered_is_linear(kind: str) -> None:
    running = None if kind.startswith("modifier") else world()
    assert [name for name, case in registered(kind) if not is_linear(case, running)] == []


def test_the_work_of_every_field_of_a_command_is_linear() -> None:
    running = world()
    assert [name for name, writes, case in commands() if not is_linear(case, None if writes else running)] == []
