from typing import Any

import pytest
from bson import Decimal128

from tests.running import Running

NOTE = "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines."


@pytest.mark.parametrize(
    "command",
    [
        {"profile": 0},
        {"profile": -1},
        {"profile": 0.0, "slowms": None, "sampleRate": None},
        {"profile": 0, "slowms": 100, "sampleRate": Decimal128("1"), "filter": "unset"},
    ],
)
def test_the_profiler_is_off_at_first(command: dict[str, Any]) -> None:
    assert Running().run(command) == {"was": 0, "slowms": 100, "sampleRate": 1.0}


@pytest.mark.parametrize(
    ("commands", "settings"),
    [
        ([{"profile": 1}], {"was": 1}),
        ([{"profile": 2.9}], {"was": 2}),
        ([{"profile": 2}, {"profile": 3}], {"was": 2}),
        ([{"profile": 2}, {"profile": -2}], {"was": 2}),
        ([{"profile": 2}, {"profile": 0}], {"was": 0}),
        ([{"profile": 0, "slowms": -1, "sampleRate": 0.5}], {"slowms": -1, "sampleRate": 0.5}),
        ([{"profile": 0, "slowms": 2**40}], {"slowms": 2**31 - 1}),
        ([{"profile": 1, "filter": {"op": "query"}}], {"was": 1, "filter": {"op": "query"}, "note": NOTE}),
        ([{"profile": 0, "filter": {"op": "query"}}, {"profile": -1, "filter": "unset"}], {}),
    ],
)
def test_profile_shows_the_settings(commands: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    running = Running()
    for command in commands:
        running.run(command)
    assert running.run({"profile": -1}) == {"was": 0, "slowms": 100, "sampleRate": 1.0, **settings}
    assert "filter" not in running.run({"profile": -1}, "other")


@pytest.mark.parametrize(
    ("command", "code"),
    [
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
def test_profile_refuses_invalid_arguments(command: dict[str, Any], code: int) -> None:
    assert Running().code(command) == code
