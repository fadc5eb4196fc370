"""How many connections a server establishes per second: MongoDB's ingress connection establishment rate limiter.

    rate R, burst B seconds     a bucket of R × B tokens, filled with R per second; each new connection takes one
    no token, queue depth Q     up to Q connections wait for theirs; others are closed at once

Source: MongoDB's manual, "Configure the Ingress Connection Establishment Rate Limiter"; the driver specifications'
tests of connection pools under overload.
"""

import sys
from typing import Final

UNLIMITED_RATE: Final = 2**31 - 1


class ConnectionRate:
    """The limiter, with its parameters. per_second: connections. burst_s: seconds. queue_depth: connections."""

    def __init__(self) -> None:
        self.enabled = False
        self.per_second: int = UNLIMITED_RATE
        self.burst_s: float = sys.float_info.max
        self.queue_depth: int = 0
        # Below zero: the number of tokens promised to connections that wait.
        self._tokens: float = 0.0
        self._filled_s: float = 0.0
        self._full = True

    def refill(self) -> None:
        """Begins with a full bucket again, after a change of the parameters."""
        self._full = True

    def setting(self) -> tuple[bool, int, float, int]:
        """The parameters, for `restore`."""
        return self.enabled, self.per_second, self.burst_s, self.queue_depth

    def restore(self, setting: tuple[bool, int, float, int]) -> None:
        """Sets the parameters as they were."""
        if setting != self.setting():
            self.enabled, self.per_second, self.burst_s, self.queue_depth = setting
            self.refill()

    def admit(self, now_s: float) -> float:
        """Seconds that a new connection has to wait, 0.0 for none; -1.0 if it is to be closed. now_s: monotonic."""
        capacity = self.per_second * self.burst_s
        if self._full:
            self._full = False
            self._tokens = capacity
        else:
            self._tokens = min(capacity, self._tokens + (now_s - self._filled_s) * self.per_second)
        self._filled_s = now_s
        if self._tokens < 1.0 and self._tokens - 1.0 < -self.queue_depth:
            return -1.0
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self.per_second)
