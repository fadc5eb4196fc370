"""Percentiles of a stream of numbers in bounded memory: a merging t-digest.

Up to BUFFER numbers are stored, and percentiles are exact. Beyond that neighbouring numbers are merged into centroids
(mean, count), whose counts are small near both ends and larger in the middle:

    1 1 2 5 | 13 … 4000 … 4000 … 11 | 4 2 1 1        numbers per centroid

Source: T. Dunning, O. Ertl, "Computing extremely accurate quantiles using t-digests" (2019); MongoDB's "$percentile"
page names the same method.
"""

import math
from typing import Final

from mypy_extensions import i64

BUFFER: Final = 20_000  # numbers; sorting them takes a few milliseconds
_DELTA: Final = 2000.0  # approximate maximal number of centroids


class Digest:
    def __init__(self) -> None:
        self._numbers: list[float] = []
        self._means: list[float] = []
        self._weights: list[float] = []
        self._merged: i64 = 0  # total count of the centroids
        self._minus_infinities: i64 = 0  # count of -infinity, which is not in the centroids
        self._infinities: i64 = 0
        self._min: float = math.inf
        self._max: float = -math.inf

    def add(self, number: float) -> None:
        """Adds a number that is not NaN."""
        if number == math.inf:
            self._infinities += 1
        elif number == -math.inf:
            self._minus_infinities += 1
        else:
            self._numbers.append(number)
            if len(self._numbers) >= BUFFER:
                self._compress()

    def count(self) -> int:
        return int(self._minus_infinities + self._infinities + self._merged + i64(len(self._numbers)))

    def size(self) -> int:
        """Approximate memory in bytes."""
        return 32 * len(self._numbers) + 64 * len(self._means)

    def percentile(self, share: float) -> float | None:
        """The smallest number such that at least the fraction `share` of all numbers are not greater; None without
        numbers."""
        count = self.count()
        if count == 0:
            return None
        rank: i64 = max(math.ceil(share * count), 1) - self._minus_infinities
        if rank <= 0:
            return -math.inf
        finite: i64 = self._merged + i64(len(self._numbers))
        if rank > finite:
            return math.inf
        if not self._means:
            self._numbers.sort()
            return self._numbers[rank - 1]
        if self._numbers:
            self._compress()
        if rank == 1:
            return self._min
        if rank == finite:
            return self._max
        return self._estimate(float(rank))

    def _estimate(self, rank: float) -> float:
        means = self._means
        before = 0.0
        for i in range(len(means)):
            weight = self._weights[i]
            if before + weight >= rank:
                if weight == 1.0:
                    return means[i]
                low = means[i - 1] if i > 0 else self._min
                high = means[i + 1] if i + 1 < len(means) else self._max
                offset = (rank - before - 0.5) / weight - 0.5
                return min(max(means[i] + offset * (high - low) / 2.0, low), high)
            before += weight
        return self._max

    def _compress(self) -> None:
        """Merges the numbers into the centroids."""
        numbers = self._numbers
        numbers.sort()
        self._numbers = []
        self._min = min(self._min, numbers[0])
        self._max = max(self._max, numbers[-1])
        old_means = self._means
        old_weights = self._weights
        self._merged += i64(len(numbers))
        total = float(self._merged)
        means: list[float] = []
        weights: list[float] = []
        mean = 0.0
        weight = 0.0
        done = 0.0
        limit = _next_limit(0.0) * total
        at_number: i64 = 0
        at_old: i64 = 0
        while at_number < len(numbers) or at_old < len(old_means):
            if at_old >= len(old_means) or (at_number < len(numbers) and numbers[at_number] <= old_means[at_old]):
                value = numbers[at_number]
                more = 1.0
                at_number += 1
            else:
                value = old_means[at_old]
                more = old_weights[at_old]
                at_old += 1
            if weight == 0.0:
                mean = value
                weight = more
            elif done + weight + more <= limit:
                weight += more
                mean += (value - mean) * more / weight
            else:
                means.append(mean)
                weights.append(weight)
                done += weight
                limit = _next_limit(done / total) * total
                mean = value
                weight = more
        means.append(mean)
        weights.append(weight)
        self._means = means
        self._weights = weights


def _next_limit(share: float) -> float:
    """The fraction at which a centroid that begins at the fraction `share` must end."""
    angle = math.asin(2.0 * share - 1.0) + 2.0 * math.pi / _DELTA
    return 1.0 if angle >= math.pi / 2.0 else (math.sin(angle) + 1.0) / 2.0
