"""Percentiles: exact for few numbers, near enough for many, in bounded memory."""

import math
import random

import pytest

from mongottl.query.expr.digest import BUFFER, Digest
from mongottl.query.expr.ranking import percentile

SHARES = [0.0, 0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999, 1.0]


def digest_of(numbers: list[float]) -> Digest:
    digest = Digest()
    for number in numbers:
        digest.add(number)
    return digest


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000, BUFFER - 1])
def test_few_numbers_are_exact(count: int) -> None:
    numbers = [random.Random(count).uniform(-5, 5) for _ in range(count)]
    digest = digest_of(numbers)
    for share in SHARES:
        assert digest.percentile(share) == percentile(sorted(numbers), share)
    assert digest.count() == count


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["even", "normal", "ascending", "few-values"])
def test_many_numbers_are_near(shape: str) -> None:
    chance = random.Random(3)
    count = 90_000
    numbers = {
        "even": [chance.random() for _ in range(count)],
        "normal": [chance.gauss(0, 1) for _ in range(count)],
        "ascending": [float(i) for i in range(count)],
        "few-values": [float(chance.randrange(5)) for _ in range(count)],
    }[shape]
    digest = digest_of(numbers)
    ordered = sorted(numbers)
    for share in SHARES:
        found = digest.percentile(share)
        assert found is not None
        # By rank: how far is what was found from where it should be?
        low = sum(1 for number in numbers if number < found) / count
        high = sum(1 for number in numbers if number <= found) / count
        assert low - 0.002 <= share <= high + 0.002, (share, found)
    assert digest.percentile(0.0) == ordered[0]
    assert digest.percentile(1.0) == ordered[-1]
    assert digest.size() < 1_000_000


def test_infinities() -> None:
    digest = digest_of([math.inf, -math.inf, 1.0, 2.0, math.inf])
    assert [digest.percentile(share) for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)] == [
        -math.inf,
        -math.inf,
        1.0,
        2.0,
        math.inf,
        math.inf,
    ]
    assert Digest().percentile(0.5) is None
