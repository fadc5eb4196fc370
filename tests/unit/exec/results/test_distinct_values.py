"""`DistinctValues.in_order`: the result, and how the work is divided into steps."""

import random

import bson
import pytest

from mongottl.document.build import encode
from mongottl.document.path import FieldPath
from mongottl.exec.results.distinct_values import DistinctValues
from tests.running import Running
from tests.steps import counted

COUNT = 1 << 16
AT_ONCE = 4096


def shuffled() -> list[int]:
    values = list(range(COUNT))
    random.Random(1).shuffle(values)
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        shuffled(),
        list(range(COUNT)),
        list(reversed(range(COUNT))),
        [i // 2 if i % 2 else COUNT - i // 2 for i in range(COUNT)],
        list(range(AT_ONCE + 1)),
        list(range(AT_ONCE)),
        [1],
        [],
    ],
    ids=["shuffled", "ascending", "descending", "from both ends", "a run and one", "a run", "one", "none"],
)
def test_values_are_sorted_a_part_in_each_step(values: list[int]) -> None:
    distinct = DistinctValues(FieldPath("n"), None)
    distinct.add([bson.encode({"n": value}) for value in values])
    result = distinct.in_order(Running().op())
    assert bson.decode(encode({"values": result}))["values"] == sorted(values)


@pytest.mark.slow
def test_no_step_merges_more_than_others() -> None:
    distinct = DistinctValues(FieldPath("n"), None)
    distinct.add([bson.encode({"n": value}) for value in shuffled()])
    runs = COUNT // AT_ONCE
    running = Running()
    steps = counted(running.service.stacks.begin(lambda: distinct.in_order(running.op())))[1]
    # A step sorts one run, merges at most two runs' keys (four rounds for 16 runs), or encodes one run's values.
    assert steps >= runs + 4 * runs // 2 + runs
