"""Steps that are left in the middle and gone on with later."""

from typing import Any

import pytest

from mongottl.exec.operation.script_steps import ScriptSteps
from mongottl.exec.operation.steps import Steps, Wait
from mongottl.javascript.library import missing_reason
from mongottl.javascript.scripts import AwaitTurn, Pause

pytestmark = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())


class FakeScripts:
    """What ScriptSteps needs of the scripts: their release."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def open_steps() -> tuple[ScriptSteps, FakeScripts]:
    scripts = FakeScripts()

    def open_scripts(pause: Pause, await_turn: AwaitTurn) -> Any:
        return scripts

    return ScriptSteps(open_scripts), scripts


def test_a_pause_is_a_step() -> None:
    steps, _ = open_steps()
    done: list[str] = []

    def run() -> Steps[str]:
        done.append("a")
        assert steps.pause(0.5, -1, False)
        done.append("b")
        yield None
        assert steps.pause(0.25, -1, False)
        return "end"

    running: Steps[Any] = run()
    paused = steps.advance(running, None)
    assert isinstance(paused, Wait)
    assert paused.seconds == 0.5
    assert done == ["a"]
    entered = [steps.is_entered]
    assert steps.advance(running, None) is None
    entered.append(steps.is_entered)
    assert done == ["a", "b"]
    assert entered == [True, False]
    assert isinstance(steps.advance(running, None), Wait)
    with pytest.raises(StopIteration) as stop:
        steps.advance(running, None)
    assert stop.value.value == "end"
    assert not steps.is_entered


def test_there_is_no_pause_outside_of_a_step() -> None:
    steps, _ = open_steps()
    assert not steps.pause(1.0, -1, False)

    def run() -> Steps[None]:
        yield None
        assert steps.pause(1.0, -1, False)

    running: Steps[Any] = run()
    steps.advance(running, None)
    assert not steps.pause(1.0, -1, False)
    steps.advance(running, None)
    assert not steps.pause(1.0, -1, False)  # while the step is paused, in the code of another operation
    steps.end()


def test_two_operations_pause_side_by_side() -> None:
    order: list[str] = []

    def run(name: str, steps: ScriptSteps) -> Steps[None]:
        for i in range(3):
            order.append(f"{name}{i}")
            assert steps.pause(0.0, -1, False)
        yield None

    pairs = [(steps, run(name, steps)) for name, (steps, _) in (("a", open_steps()), ("b", open_steps()))]
    for _ in range(4):
        for steps, running in pairs:
            steps.advance(running, None)  # type: ignore[arg-type]
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_an_error_is_thrown_into_the_steps() -> None:
    steps, _ = open_steps()

    def run() -> Steps[None]:
        try:
            yield None
        except KeyError:
            assert steps.pause(1.0, -1, False)
            raise ValueError("of the step") from None

    running: Steps[Any] = run()
    steps.advance(running, None)
    assert isinstance(steps.advance(running, KeyError("x")), Wait)
    with pytest.raises(ValueError, match="of the step"):
        steps.advance(running, None)
    assert not steps.is_entered


def test_a_paused_step_that_is_given_up() -> None:
    steps, scripts = open_steps()
    done: list[str] = []

    def run() -> Steps[None]:
        try:
            steps.pause(1.0, -1, False)
            done.append("went on")
        except Exception:
            done.append("caught")
        finally:
            done.append("cleaned up")
        yield None

    running: Steps[Any] = run()
    steps.advance(running, None)
    steps.end()
    running.close()
    assert done == ["cleaned up"]
    assert scripts.released == 1
    assert not steps.is_entered
