"""When a command has to end, and how long it waits: set before it begins, from `maxTimeMS` and the dialect's limits.

`OperationContext.check_interrupt` keeps them.
"""

from typing import Final


class TimeLimits:
    """It is never changed: each limit that is set makes another one. UNLIMITED is that of commands without any."""

    def __init__(self, deadline_s: float = 0.0, latest_ms: int = 0, await_s: float = -1.0) -> None:
        # Monotonic time (`clock.monotonic_s`) at which `maxTimeMS` is over; 0.0 for none.
        self.deadline_s: Final[float] = deadline_s
        # Wall time (`clock.now_ms`) at which it has taken as long as the dialect lets it; 0 for no limit.
        self.latest_ms: Final[int] = latest_ms
        # Seconds for which a getMore waits for data, its `maxTimeMS`; -1.0 if it has none.
        self.await_s: Final[float] = await_s

    def with_deadline(self, deadline_s: float) -> "TimeLimits":
        return TimeLimits(deadline_s, self.latest_ms, self.await_s)

    def with_latest(self, latest_ms: int) -> "TimeLimits":
        return TimeLimits(self.deadline_s, latest_ms, self.await_s)

    def with_await(self, await_s: float) -> "TimeLimits":
        return TimeLimits(self.deadline_s, self.latest_ms, await_s)


UNLIMITED: Final = TimeLimits()
