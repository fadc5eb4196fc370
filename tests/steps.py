"""Going on with operations that were left, without doing what they wait for."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar, overload

from mongottl.exec.running.stack import Steps
from mongottl.exec.service.service import ServiceContext

T = TypeVar("T")


def begin(service: ServiceContext, function: Callable[[], T]) -> Steps[T]:
    """The steps of an operation that is left before its end. It is left wherever it gives way."""
    service.stacks.times.together_s = 0.0
    outcome = service.stacks.begin(function)
    assert isinstance(outcome, Steps)
    return outcome


def steps_of(outcome: T | Steps[T]) -> Steps[T]:
    """The steps of an operation that has begun; none if it was not left."""
    if isinstance(outcome, Steps):
        return outcome
    result: T = outcome
    steps: Any = _no_steps(result)
    taken: Steps[T] = steps
    return taken


def _no_steps(result: T) -> Generator[None, None, T]:
    yield from ()
    return result


@overload
def counted(outcome: Steps[T]) -> tuple[T, int]: ...
@overload
def counted(outcome: T | Steps[T]) -> tuple[T, int]: ...
def counted(outcome: T | Steps[T]) -> tuple[T, int]:
    """The result of an operation that has begun, and how often it was left."""
    if not isinstance(outcome, Steps | Generator):
        return outcome, 0
    steps: Any = outcome
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, taken
        taken += 1


@overload
def run_to_end(outcome: Steps[T]) -> T: ...
@overload
def run_to_end(outcome: T | Steps[T]) -> T: ...
def run_to_end(outcome: T | Steps[T]) -> T:
    """The result of an operation that has begun. outcome: what `Stacks.begin` or `steps_of` has returned."""
    return counted(outcome)[0]
