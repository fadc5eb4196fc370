"""Where an evaluation may be ended, but not left: in units of work of engines and of transactions, and other blocks."""

from collections.abc import Iterator

import pytest

from mongottl.document.interrupt import (
    Undivided,
    begin_evaluation,
    check_interrupt,
    clear_check,
    end_evaluation,
    may_leave,
    set_check,
)
from tests.running import Running


@pytest.fixture(autouse=True)
def evaluation() -> Iterator[None]:
    set_check(lambda: None)
    assert begin_evaluation()
    yield
    assert end_evaluation()
    clear_check()


def test_an_evaluation_may_be_left() -> None:
    assert may_leave()
    check_interrupt()


def test_blocks_are_not_left_however_deep() -> None:
    with Undivided():
        assert not may_leave()
        assert begin_evaluation()  # it may be ended
        with Undivided():
            assert begin_evaluation()
            assert not may_leave()
            end_evaluation()
        assert not may_leave()
        end_evaluation()
    assert may_leave()


def test_units_of_work_are_not_left() -> None:
    running = Running()
    running.insert({"_id": 1})
    with running.op().recovery_unit.write(running.collection()) as write:
        assert begin_evaluation()
        assert not may_leave()
        end_evaluation()
        write.commit()
    assert may_leave()


def test_statements_of_transactions_are_not_left() -> None:
    service = Running().service
    own = service.isolation.begin_transaction()
    with own.statement():
        assert begin_evaluation()
        assert not may_leave()
        end_evaluation()
    assert may_leave()
