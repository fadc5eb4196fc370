from typing import Any

import pytest
from bson import Decimal128

from tests.running import Running


@pytest.mark.parametrize(
    "command",
    [
        {"profile": 0},
        {"profile": -1},
        {"profile": 0.0, "slowms": None, "sampleRate": None},
        {"profile": 0, "slowms": 100, "sampleRate": Decimal128("1"), "filter": "unset"},
    ],
)
def test_the_profiler_is_off(command: dict[str, Any]) -> None:
    assert Running().run(command) == {"was": 0, "slowms": 100, "sampleRate": 1.0}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"profile": 1}, 115),
        ({"profile": 2}, 115),
        ({"profile": 0, "slowms": 5}, 115),
        ({"profile": 0, "sampleRate": 0.5}, 115),
        ({"profile": 0, "filter": {"ns": "a"}}, 115),
        ({"profile": None}, 40414),
        ({"profile": True}, 14),
        ({"profile": "0"}, 14),
        ({"profile": 0, "slowms": True}, 14),
        ({"profile": 0, "sampleRate": "1"}, 14),
        ({"profile": 0, "sampleRate": -0.1}, 2),
        ({"profile": 0, "sampleRate": 1.1}, 2),
        ({"profile": 0, "sampleRate": float("nan")}, 2),
        ({"profile": 1, "filter": "UNSET"}, 2),
        ({"profile": 1, "filter": None}, 2),
        ({"profile": 1, "filter": []}, 2),
        ({"profile": 1, "filter": {"$bad": 1}}, 2),
        ({"profile": 0, "unknown": 1}, 40415),
    ],
)
def test_what_is_refused(command: dict[str, Any], code: int) -> None:
    assert Running().code(command) == code
