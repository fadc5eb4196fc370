"""Plans that buffer records over several steps: concurrent writes are not lost and leave no extra index entries.

The storage engine compares what a write takes as the old record with what is stored, and the write is tried again.
"""

from typing import Any

import pytest

from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.running import Running

POINTS = 400
NEAR_ALL = {"loc": {"$near": {"$geometry": {"type": "Point", "coordinates": [0.0, 0.0]}}}}


@pytest.fixture(params=["memory", "sqlite"])
def running(request: pytest.FixtureRequest) -> Running:
    running = Running(ContractEngine(open_engine(f"{request.param}:")))
    running.insert(*({"_id": i, "n": 0, "loc": [i / 1000, 0.0]} for i in range(POINTS)))
    running.index({"loc": "2dsphere"}, "loc")
    running.index({"n": 1}, "n")
    return running


def update(filter: dict[str, Any], change: dict[str, Any], multi: bool) -> dict[str, Any]:
    return {"update": "c", "updates": [{"q": filter, "u": change, "multi": multi}]}


def test_an_update_by_distance_loses_no_write_of_others(running: Running) -> None:
    increments = dict.fromkeys(range(POINTS), 0)
    steps = running.steps(update(NEAR_ALL, {"$inc": {"n": 1}}, True))
    victim = 7
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            assert stop.value["nModified"] == POINTS
            break
        victim = (victim * 31 + 11) % POINTS
        running.run(update({"_id": victim}, {"$inc": {"n": 1}}, False))
        increments[victim] += 1
    assert sum(increments.values()) > 3
    assert {d["_id"]: d["n"] for d in running.listed({"find": "c"})} == {i: n + 1 for i, n in increments.items()}
    assert running.run({"validate": "c"})["valid"]


def test_a_delete_by_distance_spares_what_was_deleted_and_leaves_no_entries(running: Running) -> None:
    steps = running.steps({"delete": "c", "deletes": [{"q": {**NEAR_ALL, "n": 0}, "limit": 0}]})
    changed: set[int] = set()
    gone: set[int] = set()
    victim = POINTS
    while True:
        try:
            next(steps)
        except StopIteration:
            break
        victim -= 1
        if victim % 2:
            changed.update([victim] * running.run(update({"_id": victim}, {"$inc": {"n": 1}}, False))["n"])
        else:
            gone.update([victim] * running.run({"delete": "c", "deletes": [{"q": {"_id": victim}, "limit": 1}]})["n"])
    assert changed
    assert gone
    assert running.ids() == sorted(changed)
    assert running.run({"validate": "c"})["valid"]
