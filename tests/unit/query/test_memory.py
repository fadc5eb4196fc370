"""The budget of running operations, and what stages hold of it."""

import pytest

from mongottl.query.memory import (
    GIVEN_BACK_BYTES,
    LEAST_BYTES,
    MODEST_BYTES,
    STEP_BYTES,
    UNCOUNTED_BYTES,
    MemoryBudget,
    OperationMemory,
)

MB = 1 << 20


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(16 * MB)


def test_little_does_not_count(budget: MemoryBudget) -> None:
    memory = OperationMemory(budget, "ann")
    first, second = memory.share(), memory.share()
    assert first.hold(UNCOUNTED_BYTES // 2)
    assert second.hold(UNCOUNTED_BYTES // 2)
    assert budget.held_bytes == 0
    assert second.hold(UNCOUNTED_BYTES)
    assert budget.held_bytes == UNCOUNTED_BYTES // 2


def test_the_budget_is_taken_in_steps(budget: MemoryBudget) -> None:
    share = OperationMemory(budget, "ann").share()
    assert share.hold(MB + 1)
    assert share.granted == MB + STEP_BYTES
    assert budget.held_bytes == MB + STEP_BYTES - UNCOUNTED_BYTES
    assert share.hold(MB + 2)
    assert budget.held_bytes == MB + STEP_BYTES - UNCOUNTED_BYTES


def test_one_user_has_half_of_it(budget: MemoryBudget) -> None:
    anns, other_of_ann, bobs = (OperationMemory(budget, owner).share() for owner in ("ann", "ann", "bob"))
    assert anns.hold(6 * MB)
    assert not other_of_ann.hold(4 * MB)
    assert budget.refused_total == 1
    assert bobs.hold(8 * MB)
    anns.release()
    assert other_of_ann.hold(4 * MB)


def test_all_users_together_have_no_more(budget: MemoryBudget) -> None:
    anns, bobs, carls = (OperationMemory(budget, owner).share() for owner in ("ann", "bob", "carl"))
    assert anns.hold(8 * MB)
    assert bobs.hold(8 * MB)
    assert not carls.hold(MB)
    # What it needs to get on it gets in any case, as long as it is little.
    assert carls.need(LEAST_BYTES)
    assert not carls.need(LEAST_BYTES + STEP_BYTES)
    assert budget.held_bytes > 16 * MB


def test_an_operation_of_many_stages_gets_little_in_any_case() -> None:
    memory = OperationMemory(MemoryBudget(0), "ann")
    shares = [memory.share() for _ in range(50)]
    assert sum(share.need(LEAST_BYTES) for share in shares) == MODEST_BYTES // LEAST_BYTES + 1


def test_memory_share_returns_unneeded_bytes_to_the_budget(budget: MemoryBudget) -> None:
    share = OperationMemory(budget, "ann").share()
    assert share.hold(4 * MB)
    assert share.hold(4 * MB - GIVEN_BACK_BYTES // 2)
    assert budget.held_bytes == 4 * MB - UNCOUNTED_BYTES
    assert share.hold(2 * MB)
    assert budget.held_bytes == 2 * MB - UNCOUNTED_BYTES
    share.release()
    share.release()
    assert budget.held_bytes == 0


def test_the_end_of_a_command_gives_everything_back(budget: MemoryBudget) -> None:
    """What a cursor goes on holding counts elsewhere; its next command takes what comes in addition."""
    memory = OperationMemory(budget, "ann")
    kept, left = memory.share(), memory.share()
    assert kept.hold(4 * MB)
    assert left.hold(2 * MB)
    memory.settle()
    assert budget.held_bytes == 0
    assert kept.hold(6 * MB)
    assert budget.held_bytes == 2 * MB - UNCOUNTED_BYTES
    left.release()
    assert budget.held_bytes == 2 * MB - UNCOUNTED_BYTES
    kept.release()
    assert budget.held_bytes == 0
    memory.settle()
    assert budget.held_bytes == 0
    assert budget.most_bytes == 6 * MB - UNCOUNTED_BYTES


def test_without_a_budget_there_is_no_limit() -> None:
    assert OperationMemory().share().hold(1 << 50)
