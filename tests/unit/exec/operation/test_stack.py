"""Steps that are left in the middle and gone on with later."""

from typing import Any

import pytest

from mongottl.document.interrupt import begin_evaluation, clear_check, end_evaluation, set_check
from mongottl.exec.operation.script_steps import ScriptSteps
from mongottl.exec.operation.stack import LEFT_AFTER_S, Raised, Stack, StepTimes
from mongottl.exec.operation.steps import Steps, Wait


class Elapsed:
    """A monotonic clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def read(self) -> float:
        return self.now_s


def new_stack(clock: Elapsed | None = None) -> Stack:
    return Stack((clock or Elapsed()).read, [], StepTimes(together_s=0.0))


def advance(stack: Stack, steps: Steps[Any], error: Exception | None = None) -> Wait | None:
    """The next step; raises what it raises."""
    step = stack.advance(steps, error, lambda seconds: None)
    if isinstance(step, Raised):
        raise step.error
    assert step is None or isinstance(step, Wait)
    return step


def test_what_is_left_is_a_step() -> None:
    stack = new_stack()
    done: list[str] = []

    def run() -> Steps[str]:
        done.append("a")
        assert stack.leave(Wait(0.5))
        done.append("b")
        yield None
        assert stack.leave(Wait(0.25))
        return "end"

    running = run()
    left = advance(stack, running)
    assert isinstance(left, Wait)
    assert left.seconds == 0.5
    assert done == ["a"]
    assert stack.was_left
    entered = [stack.is_entered]
    assert advance(stack, running) is None
    entered.append(stack.is_entered)
    assert done == ["a", "b"]
    assert entered == [True, False]
    assert isinstance(advance(stack, running), Wait)
    with pytest.raises(StopIteration) as stop:
        advance(stack, running)
    assert stop.value.value == "end"
    assert not stack.is_entered


def test_nothing_is_left_outside_of_a_step() -> None:
    stack = new_stack()
    assert not stack.leave(None)

    def run() -> Steps[None]:
        yield None
        assert stack.leave(None)

    running = run()
    advance(stack, running)
    assert not stack.leave(None)
    advance(stack, running)
    assert not stack.leave(None)  # while the step is left, in the code of another operation
    stack.end()


def test_two_operations_side_by_side() -> None:
    order: list[str] = []

    def run(name: str, stack: Stack) -> Steps[None]:
        for i in range(3):
            order.append(f"{name}{i}")
            assert stack.leave(None)
        yield None

    stacks = {"a": new_stack(), "b": new_stack()}
    pairs = [(stack, run(name, stack)) for name, stack in stacks.items()]
    for _ in range(4):
        for stack, running in pairs:
            advance(stack, running)
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_one_operation_within_the_step_of_another() -> None:
    """As the server's thread does while it answers others: the step that is left goes on from wherever it is."""
    outer, inner = new_stack(), new_stack()
    order: list[str] = []

    def run_inner() -> Steps[str]:
        order.append("inner begins")
        assert inner.leave(None)
        order.append("inner ends")
        yield from ()
        return "inner"

    waiting = run_inner()
    assert advance(inner, waiting) is None

    def run_outer() -> Steps[str]:
        with pytest.raises(StopIteration) as stop:
            advance(inner, waiting)
        order.append(stop.value.value)
        assert outer.leave(None)
        yield from ()
        return "outer"

    running = run_outer()
    assert advance(outer, running) is None
    with pytest.raises(StopIteration):
        advance(outer, running)
    assert order == ["inner begins", "inner ends", "inner"]


def test_an_error_is_thrown_into_the_steps() -> None:
    stack = new_stack()

    def run() -> Steps[None]:
        try:
            yield None
        except KeyError:
            assert stack.leave(Wait(1.0))
            raise ValueError("of the step") from None

    running = run()
    advance(stack, running)
    assert isinstance(advance(stack, running, KeyError("x")), Wait)
    with pytest.raises(ValueError, match="of the step"):
        advance(stack, running)
    assert not stack.is_entered


def test_a_step_that_is_given_up() -> None:
    stack = new_stack()
    done: list[str] = []

    def run() -> Steps[None]:
        try:
            stack.leave(None)
            done.append("went on")
        except Exception:
            done.append("caught")
        finally:
            done.append("cleaned up")
        yield None

    running = run()
    advance(stack, running)
    stack.end()
    running.close()
    assert done == ["cleaned up"]
    assert not stack.is_entered


class TestEvaluations:
    """They are left when their step has taken long; nothing else is."""

    def test_only_when_it_is_due(self) -> None:
        clock = Elapsed()
        stack = new_stack(clock)
        left: list[bool] = []

        def note() -> None:
            before = stack.was_left
            stack.leave_if_due()
            left.append(stack.was_left and not before)

        def run() -> Steps[None]:
            begin_evaluation()
            note()
            clock.now_s += LEFT_AFTER_S
            note()
            end_evaluation()
            yield None

        set_check(stack.leave_if_due)
        try:
            running = run()
            assert advance(stack, running) is None
            assert left == [False]
            assert not end_evaluation()  # what others do meanwhile is no evaluation
            assert advance(stack, running) is None
            assert left == [False, True]
        finally:
            clear_check()

    def test_what_is_no_evaluation_is_not_left(self) -> None:
        clock = Elapsed()
        stack = new_stack(clock)

        def run() -> Steps[str]:
            clock.now_s += 1.0
            stack.leave_if_due()
            yield from ()
            return "at once"

        set_check(stack.leave_if_due)
        try:
            with pytest.raises(StopIteration):
                advance(stack, run())
        finally:
            clear_check()
        assert not stack.was_left

    def test_what_a_computation_depends_on_is_checked_after_it_was_left(self) -> None:
        stack = new_stack()
        changed: list[str] = []

        def compute() -> str:
            stack.leave(None)
            return "computed"

        def check() -> None:
            if changed:
                raise KeyError(changed[0])

        def run() -> Steps[Any]:
            found = stack.compute(compute, check)
            with pytest.raises(KeyError):
                stack.compute(compute, check)
            stack.leave(None)  # no computation any more
            yield from ()
            return found

        running = run()
        advance(stack, running)
        advance(stack, running)
        changed.append("x")
        advance(stack, running)
        with pytest.raises(StopIteration) as stop:
            advance(stack, running)
        assert stop.value.value == "computed"


def test_scripts_pause_the_step_of_their_operation() -> None:
    released: list[bool] = []

    class FakeScripts:
        """What ScriptSteps needs of the scripts: their release."""

        def release(self) -> None:
            released.append(True)

    scripts: Any = FakeScripts()
    steps = ScriptSteps(lambda pause, await_turn: scripts)
    assert not steps.pause(0.5, -1, False)
    stack = steps.stack = new_stack()

    def run() -> Steps[None]:
        assert steps.pause(0.5, -1, False)
        yield None

    paused = advance(stack, run())
    assert isinstance(paused, Wait)
    assert paused.seconds == 0.5
    stack.end()
    steps.end()
    assert released == [True]
    assert not steps.pause(0.5, -1, False)
