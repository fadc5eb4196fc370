"""The search for an order of a register's operations finds one where there is one, and none where there is not."""

import random

import pytest

from tests.histories import CHANGE, READ, WRITE, Operation, fits_one_order


@pytest.mark.parametrize(
    ("operations", "fits"),
    [
        ([], True),
        ([Operation(READ, 1, 2, 0)], True),
        ([Operation(READ, 1, 2, 1)], False),
        ([Operation(WRITE, 1, 2, 1), Operation(READ, 3, 4, 1)], True),
        # A value that was overwritten before.
        ([Operation(WRITE, 1, 2, 1), Operation(WRITE, 3, 4, 2), Operation(READ, 5, 6, 1)], False),
        # Two reads beside a write: the later one is not older.
        ([Operation(WRITE, 1, 6, 1), Operation(READ, 2, 3, 0), Operation(READ, 4, 5, 1)], True),
        ([Operation(WRITE, 1, 6, 1), Operation(READ, 2, 3, 1), Operation(READ, 4, 5, 0)], False),
        # Of two changes from one value one is done.
        ([Operation(CHANGE, 1, 3, 1, 0), Operation(CHANGE, 2, 4, 2, 0, done=False)], True),
        ([Operation(CHANGE, 1, 3, 1, 0), Operation(CHANGE, 2, 4, 2, 0)], False),
        ([Operation(CHANGE, 1, 2, 1, 0, done=False)], False),
    ],
)
def test_orders_of_operations(operations: list[Operation], fits: bool) -> None:
    assert fits_one_order(operations, 0) == fits


@pytest.mark.parametrize("seed", range(20))
def test_operations_that_were_done_one_by_one_fit_and_others_do_not(seed: int) -> None:
    """Each takes effect at one of the moments 10, 20, … and lasts up to two others more, before and after."""
    chance = random.Random(seed)
    state = 0
    operations = []
    for number in range(1, 100):
        begun = number * 10 - chance.randrange(1, 25)
        ended = number * 10 + chance.randrange(1, 25)
        kind = chance.choice([READ, WRITE, CHANGE])
        if kind == READ:
            operations.append(Operation(READ, begun, ended, state))
        elif kind == WRITE:
            operations.append(Operation(WRITE, begun, ended, number))
            state = number
        else:
            expected = state if chance.random() < 0.5 else -1
            operations.append(Operation(CHANGE, begun, ended, number, expected, expected == state))
            state = number if expected == state else state
    assert fits_one_order(operations, 0)
    # The value that a lost write has left is read at the end.
    assert not fits_one_order([*operations, Operation(READ, 2000, 2001, -2)], 0)
    lost = next(place for place, operation in enumerate(operations) if operation.kind == WRITE)
    read = Operation(READ, operations[lost].ended + 200, operations[lost].ended + 201, operations[lost].value)
    assert not fits_one_order([*operations, read], 0)
