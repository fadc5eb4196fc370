from datetime import UTC
from typing import Any

import pytest
from bson import Int64

from tests.running import Running


@pytest.fixture
def running() -> Running:
    made = Running()
    made.index({"a": 1})
    made.index({"when": 1}, expireAfterSeconds=100)
    made.index({"b": 1, "c": 1})
    return made


def change(**fields: Any) -> dict[str, Any]:
    return {"collMod": "c", "index": fields}


def spec_of(running: Running, name: str) -> dict[str, Any]:
    [spec] = [index for index in running.listed({"listIndexes": "c"}) if index["name"] == name]
    return spec


@pytest.mark.parametrize("index", [{"name": "when_1"}, {"keyPattern": {"when": 1}}, {"keyPattern": {"when": 1.0}}])
def test_changing_a_ttl(running: Running, index: dict[str, Any]) -> None:
    reply = running.run(change(**index, expireAfterSeconds=200))
    assert reply == {"expireAfterSeconds_old": 100, "expireAfterSeconds_new": 200}
    assert isinstance(reply["expireAfterSeconds_new"], Int64)
    assert spec_of(running, "when_1") == {"v": 2, "key": {"when": 1}, "name": "when_1", "expireAfterSeconds": 200}


def test_a_plain_index_becomes_a_ttl_index(running: Running) -> None:
    assert running.run(change(name="a_1", expireAfterSeconds=5)) == {"expireAfterSeconds_new": 5}
    assert spec_of(running, "a_1")["expireAfterSeconds"] == 5
    assert "a_1" in [index.name for index in running.collection().date_ttl_indexes]


def test_dates_that_became_due_are_purged(running: Running) -> None:
    from datetime import datetime

    now = datetime.fromtimestamp(running.clock.now_ms() / 1000, tz=UTC)
    running.insert({"_id": 1, "a": now})
    running.run(change(name="a_1", expireAfterSeconds=5))
    running.advance(4)
    assert running.reap() == 0
    running.advance(2)
    assert running.reap() == 1


# The default TTL.


def test_changing_the_default_ttl(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=10)
    running.insert({"_id": 1})
    running.advance(10)
    assert running.ids() == []
    reply = running.run(change(keyPattern={"_ts": 1}, expireAfterSeconds=20))
    assert reply == {"expireAfterSeconds_old": 10, "expireAfterSeconds_new": 20}
    assert running.ids() == [1]
    assert running.reap() == 0
    running.advance(10)
    assert running.ids() == []
    assert running.run(change(name="_ts_1", expireAfterSeconds=-1))["expireAfterSeconds_new"] == -1
    assert running.ids() == [1]
    assert running.service.wheel.next_due_s() is None
    running.run(change(name="_ts_1", expireAfterSeconds=1))
    assert running.reap() == 1


@pytest.mark.parametrize(("value", "expected"), [(0, 2), (-2, 2), (1.5, 2), (2**31, 2), ("1", 14), (True, 14)])
def test_a_default_out_of_range(running: Running, value: Any, expected: int) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=10)
    assert running.code(change(name="_ts_1", expireAfterSeconds=value)) == expected
    assert running.collection().default_ttl_s == 10


def test_an_index_on_a_field_named_ts_becomes_the_setting(running: Running) -> None:
    running.insert({"_id": 1, "_ts": 7})
    running.index({"_ts": 1})
    idents = len(running.engine.idents())
    assert running.run(change(name="_ts_1", expireAfterSeconds=10)) == {"expireAfterSeconds_new": 10}
    assert running.collection().default_ttl_s == 10
    assert len(running.engine.idents()) == idents - 1
    assert running.ids(filter={"_ts": 7}) == [1]
    running.insert({"_id": 2, "_ts": 7})
    running.advance(10)
    assert running.ids() == []


def test_there_is_one_setting(running: Running) -> None:
    running.index({"_ts": -1}, expireAfterSeconds=10)
    running.index({"_ts": 1})
    assert running.code(change(name="_ts_1", expireAfterSeconds=10)) == 72
    running.run({"dropIndexes": "c", "index": "*"})
    running.index({"_ts": 1}, unique=True)
    assert running.code(change(name="_ts_1", expireAfterSeconds=10)) == 72


# Hiding.


def test_hiding_an_index(running: Running) -> None:
    assert running.run(change(name="a_1", hidden=True)) == {"hidden_old": False, "hidden_new": True}
    assert spec_of(running, "a_1")["hidden"] is True
    assert running.run(change(name="a_1", hidden=1)) == {}
    assert running.run(change(name="a_1", hidden=0.0)) == {"hidden_old": True, "hidden_new": False}
    assert spec_of(running, "a_1") == {"v": 2, "key": {"a": 1}, "name": "a_1"}


def test_a_hidden_ttl_still_expires(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=10)
    reply = running.run(change(name="_ts_1", hidden=True, expireAfterSeconds=5))
    assert set(reply) == {"hidden_old", "hidden_new", "expireAfterSeconds_old", "expireAfterSeconds_new"}
    running.insert({"_id": 1})
    running.advance(5)
    assert running.ids() == []


# Refusals.


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (change(), 72),
        (change(name="a_1"), 72),
        (change(hidden=True), 72),
        (change(name="a_1", keyPattern={"a": 1}, hidden=True), 72),
        (change(name="none", hidden=True), 27),
        (change(keyPattern={"none": 1}, hidden=True), 27),
        (change(keyPattern={}, hidden=True), 27),
        (change(name="_id_", hidden=True), 2),
        (change(name="_id_", expireAfterSeconds=1), 72),
        (change(name="b_1_c_1", expireAfterSeconds=1), 72),
        (change(name="when_1", expireAfterSeconds=-1), 72),
        (change(name="when_1", expireAfterSeconds="1"), 14),
        (change(name="when_1", expireAfterSeconds=None), 72),
        (change(name="a_1", hidden="yes"), 14),
        (change(name="a_1", hidden=None), 72),
        (change(name=1, hidden=True), 14),
        (change(keyPattern="a", hidden=True), 14),
        (change(name="a_1", unique=True), 72),
        (change(name="a_1", unique=False), 2),
        (change(name="a_1", prepareUnique=True), 115),
        (change(name="a_1", bogus=1), 40415),
        ({"collMod": "c", "index": 1}, 14),
        ({"collMod": "c", "bogus": 1}, 40415),
        ({"collMod": "c", "validator": {}}, 115),
        ({"collMod": "c", "validationLevel": "off"}, 115),
        ({"collMod": "c", "viewOn": "d"}, 72),
        ({"collMod": "c", "cappedSize": 4096}, 72),
        ({"collMod": "c", "dryRun": True}, 72),
        ({"collMod": "none"}, 26),
        ({"collMod": ""}, 73),
    ],
)
def test_changes_that_are_refused(running: Running, command: dict[str, Any], expected: int) -> None:
    before = running.listed({"listIndexes": "c"})
    assert running.code(command) == expected
    assert running.listed({"listIndexes": "c"}) == before


def test_an_ambiguous_key_pattern(running: Running) -> None:
    running.index({"a": 1}, "sparse", sparse=True)
    assert running.code(change(keyPattern={"a": 1}, hidden=True)) == 181


def test_changes_of_nothing(running: Running) -> None:
    assert running.run({"collMod": "c"}) == {}
    assert running.run({"collMod": "c", "index": None, "dryRun": False}) == {}


def test_no_change_while_an_index_is_built(running: Running) -> None:
    running.insert(*({"_id": i} for i in range(300)))
    steps = running.steps({"createIndexes": "c", "indexes": [{"key": {"z": 1}, "name": "z_1"}]})
    next(steps)
    assert running.code(change(name="a_1", hidden=True)) == 12587
    steps.close()
    running.run(change(name="a_1", hidden=True))
