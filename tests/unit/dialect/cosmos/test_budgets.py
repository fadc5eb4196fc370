"""Budgets of throughput, by whole seconds."""

from hypothesis import given
from hypothesis import strategies as st

from mongottl.dialect.cosmos.budgets import Budgets

NOW_MS = 1_700_000_000_250


def test_a_budget_starts_afresh_with_each_second() -> None:
    budgets = Budgets()
    assert budgets.wait_ms("shop.orders", 400, NOW_MS) == 0
    budgets.spend("shop.orders", 39_999, NOW_MS)
    assert budgets.wait_ms("shop.orders", 400, NOW_MS) == 0
    budgets.spend("shop.orders", 5000, NOW_MS + 100)
    assert budgets.wait_ms("shop.orders", 400, NOW_MS + 100) == 650
    assert budgets.wait_ms("shop.orders", 500, NOW_MS + 100) == 0
    assert budgets.wait_ms("shop.carts", 400, NOW_MS + 100) == 0
    assert budgets.wait_ms("shop.orders", 400, NOW_MS + 749) == 1
    assert budgets.wait_ms("shop.orders", 400, NOW_MS + 750) == 0


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 30_000))), st.integers(0, 3999))
def test_after_the_wait_there_is_something_left(charges: list[tuple[int, int]], later_ms: int) -> None:
    budgets = Budgets()
    now_ms = NOW_MS
    for step_ms, hundredths in charges:
        now_ms += step_ms
        budgets.spend("shop", hundredths, now_ms)
    now_ms += later_ms
    wait_ms = budgets.wait_ms("shop", 400, now_ms)
    assert 0 <= wait_ms <= 1000
    assert budgets.wait_ms("shop", 400, now_ms + wait_ms) == 0


def test_budgets_of_earlier_seconds_are_forgotten() -> None:
    budgets = Budgets()
    for number in range(12_000):
        budgets.spend(f"shop.c{number}", 100, NOW_MS + number * 1000)
    spent = budgets.spent()
    assert len(spent) <= 10_000
    assert spent["shop.c11999"][1] == 100
