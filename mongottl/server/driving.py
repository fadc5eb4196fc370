"""Going on with operations that were left (`exec.running.stack`): what they wait for is done, and other tasks run.

Connections decide by themselves when other tasks run, since they also answer clients that wait (`connection`); all
others use `drive`. What an operation waits for is done here for both.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from mongottl.clock import Clock
from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Aside, Flush, InThread, Wait, WithoutWriters
from mongottl.server.durability import Durability
from mongottl.storage.errors import EngineUnavailable

T = TypeVar("T")

# A task that has run this long lets others run before it goes on.
SLICE_S: Final = 0.002
# How many functions are called aside at the same time. More would take the processor from the server's own thread, and
# memory: the key of a text of 16 MB takes 100 MB while it is made.
_MOST_ASIDE: Final = 1
_aside: Final[trio.lowlevel.RunVar[trio.CapacityLimiter]] = trio.lowlevel.RunVar("aside")


async def drive(
    outcome: T | Steps[T], clock: Clock, durability: Durability, slice_s: float = SLICE_S, writes: bool = True
) -> T:
    """The result of an operation, which has begun; other tasks run after every `slice_s` seconds.

    outcome: what `Stacks.begin` has returned.
    writes: whether the operation may write, and so has to wait while maintenance of the engine's log holds writers up.
    """
    if not isinstance(outcome, Steps):
        return outcome
    steps: Steps[T] = outcome
    slice_end = clock.monotonic_s() + slice_s
    error: EngineUnavailable | None = None
    try:
        while True:
            try:
                step = next(steps) if error is None else steps.throw(error)
            except StopIteration as stop:
                value: T = stop.value
                return value
            error = None
            if step is not None:
                error = await perform(step, durability)
            elif clock.monotonic_s() >= slice_end:
                await trio.lowlevel.checkpoint()
                if writes:
                    await durability.wait_until_writers_may_go()
            else:
                continue
            slice_end = clock.monotonic_s() + slice_s
    finally:
        steps.close()


async def perform(
    step: Wait | Flush | InThread,
    durability: Durability,
    until: Callable[[], Awaitable[Exception | None]] = trio.sleep_forever,
) -> EngineUnavailable | None:
    """Does what a step waits for; the error to throw into its steps, which answer with it, None for none.

    until: ends a `Wait` early by returning; an exception that it returns is raised.
    """
    if isinstance(step, Wait):
        await _wait(step, until)
    elif isinstance(step, Flush):
        try:
            await durability.flush()
        except EngineUnavailable as error:
            return error
    elif isinstance(step, WithoutWriters):
        await durability.run_without_writers(step.run)
    elif isinstance(step, Aside):
        await trio.to_thread.run_sync(step.run, limiter=_aside_limiter())
    else:
        await trio.to_thread.run_sync(step.run)
    return None


def _aside_limiter() -> trio.CapacityLimiter:
    """Of the present server's event loop."""
    try:
        return _aside.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_MOST_ASIDE)
        _aside.set(limiter)
        return limiter


async def _wait(step: Wait, until: Callable[[], Awaitable[Exception | None]]) -> None:
    """Waits as long as the step says, or until its signal or its file, or until `until` returns."""
    signal = step.signal
    error: Exception | None = None
    with trio.move_on_after(step.seconds) as scope:
        if signal is not None:
            if signal.notified:
                return
            signal.wake = scope.cancel
        try:
            if step.file < 0:
                error = await until()
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_wait_for_file, step, scope)
                    error = await until()
                    scope.cancel()
        finally:
            if signal is not None:
                signal.wake = None
    if error is not None:
        raise error


async def _wait_for_file(step: Wait, scope: trio.CancelScope) -> None:
    """Ends a wait, which `scope` cancels, when the step's file can be read or written to."""
    await (trio.lowlevel.wait_writable(step.file) if step.to_write else trio.lowlevel.wait_readable(step.file))
    scope.cancel()
