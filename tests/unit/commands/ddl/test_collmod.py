from datetime import UTC
from typing import Any

import pytest
from bson import Int64

from mongottl.errors import CommandError
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
    assert running.service.expiry.wheel.next_due_s() is None
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
        (change(name="a_1", bogus=1), 40415),
        ({"collMod": "c", "index": 1}, 14),
        ({"collMod": "c", "bogus": 1}, 40415),
        ({"collMod": "c", "validator": 1}, 14),
        ({"collMod": "c", "validator": {"a": {"$near": [0, 0]}}}, 5626500),
        ({"collMod": "c", "validator": {"$or": []}}, 2),
        ({"collMod": "c", "validationLevel": "OFF"}, 2),
        ({"collMod": "c", "validationAction": "error "}, 2),
        ({"collMod": "c", "validationAction": 1}, 14),
        ({"collMod": "c", "expireAfterSeconds": 100}, 72),
        ({"collMod": "c", "expireAfterSeconds": "on"}, 72),
        ({"collMod": "c", "expireAfterSeconds": True}, 14),
        ({"collMod": "c", "expireAfterSeconds": None}, 14),
        ({"collMod": "c", "timeseries": {}}, 72),
        ({"collMod": "c", "timeseries": {"timeField": "t"}}, 40415),
        ({"collMod": "c", "timeseries": {"granularity": "days"}}, 2),
        ({"collMod": "c", "timeseries": {"bucketMaxSpanSeconds": 0}}, 2),
        ({"collMod": "c", "changeStreamPreAndPostImages": {}}, 40414),
        ({"collMod": "c", "cappedSize": 0}, 2),
        ({"collMod": "c", "cappedMax": 2**31}, 2),
        ({"collMod": "c", "cappedMax": 10}, 72),
        ({"collMod": "c", "cappedMax": "x"}, 14),
        ({"collMod": "none", "cappedMax": 10}, 26),
        ({"collMod": "c", "dryRun": True, "index": {"name": "a_1", "hidden": True}}, 72),
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


# Options.


def options(running: Running) -> dict[str, Any]:
    [listed] = running.listed({"listCollections": 1, "filter": {"name": "c"}})
    shown: dict[str, Any] = listed["options"]
    return shown


def test_changing_a_validator(running: Running) -> None:
    assert running.run({"collMod": "c", "validator": {"a": 1}, "validationAction": "errorAndLog"}) == {}
    assert options(running) == {"validator": {"a": 1}, "validationAction": "errorAndLog"}
    assert running.run({"insert": "c", "documents": [{"a": 2}]})["writeErrors"][0]["code"] == 121
    running.run({"collMod": "c", "validationLevel": "off"})
    assert running.run({"insert": "c", "documents": [{"a": 2}]}) == {"n": 1}
    running.run({"collMod": "c", "validator": {}, "validationLevel": "strict", "validationAction": None})
    assert options(running) == {"validationLevel": "strict", "validationAction": "errorAndLog"}
    assert running.run({"insert": "c", "documents": [{"a": 2}]}) == {"n": 1}


@pytest.mark.parametrize("database", ["admin", "config", "local"])
def test_no_validators_among_mongods_own_data(running: Running, database: str) -> None:
    assert running.code({"collMod": "c", "validator": {"a": 1}}, database) == 72


def test_changing_images(running: Running) -> None:
    running.run({"collMod": "c", "changeStreamPreAndPostImages": {"enabled": True}})
    assert options(running) == {"changeStreamPreAndPostImages": {"enabled": True}}
    running.run({"collMod": "c", "changeStreamPreAndPostImages": {"enabled": False}})
    assert options(running) == {}


def test_changing_the_bounds_of_a_capped_collection() -> None:
    running = Running()
    running.run({"create": "c", "capped": True, "size": 4096})
    running.run({"collMod": "c", "cappedSize": 8192.9, "cappedMax": 2})
    assert options(running) == {"capped": True, "size": 8192, "max": 2}
    running.insert(*({"_id": i} for i in range(5)))
    assert running.ids() == [3, 4]
    running.run({"collMod": "c", "cappedMax": -1})
    assert options(running) == {"capped": True, "size": 8192}
    running.insert({"_id": 5})
    assert running.ids() == [3, 4, 5]


def test_coll_mod_of_a_view_refuses_options_of_collections(running: Running) -> None:
    running.run({"create": "v", "viewOn": "c", "pipeline": []})
    refused: list[dict[str, Any]] = [
        {"validator": {"a": 1}},
        {"validationLevel": "off"},
        {"validationAction": "warn"},
        {"expireAfterSeconds": 1},
        {"timeseries": {}},
        {"dryRun": True},
        {"cappedSize": 4096},
        {"index": {"name": "a_1", "hidden": True}},
        {"changeStreamPreAndPostImages": {"enabled": True}},
    ]
    for change_of in refused:
        assert running.code({"collMod": "v", **change_of}) == 72, change_of
    running.run({"collMod": "v", "viewOn": "d", "pipeline": None})


# Making an index unique.


def test_a_prepared_index_takes_no_more_duplicates(running: Running) -> None:
    running.insert({"_id": 1, "a": 1}, {"_id": 2, "a": 1}, {"_id": 3, "a": 3})
    assert running.run(change(name="a_1", prepareUnique=True)) == {
        "prepareUnique_old": False,
        "prepareUnique_new": True,
    }
    assert spec_of(running, "a_1")["prepareUnique"] is True
    for documents in ([{"a": 1}], [{"a": 7}, {"a": 7}], [{"a": 8}, {"a": 3}]):
        reply = running.run({"insert": "c", "documents": documents})
        assert [error["code"] for error in reply["writeErrors"]] == [11000]
    [error] = running.run({"update": "c", "updates": [{"q": {"_id": 3}, "u": {"$set": {"a": 1}}}]})["writeErrors"]
    assert error["code"] == 11000
    assert error["keyValue"] == {"a": 1}
    assert running.run({"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"z": 1}}}]})["nModified"] == 1
    assert running.run(change(name="a_1", prepareUnique=False))["prepareUnique_new"] is False
    running.insert({"a": 1})


def test_converting_an_index(running: Running) -> None:
    running.insert(*({"_id": i, "a": i % 290} for i in range(300)))
    running.run(change(name="a_1", prepareUnique=True))
    error = running.refusal(change(name="a_1", unique=True))
    assert error.code == 359
    assert error.details["violations"] == [{"ids": [i, i + 290]} for i in range(10)]
    assert running.code({**change(name="a_1", unique=True), "dryRun": True}) == 359
    running.run({"delete": "c", "deletes": [{"q": {"_id": {"$gte": 290}}, "limit": 0}]})
    names = running.index_names()
    idents = len(running.engine.idents())
    assert running.run({**change(name="a_1", unique=True), "dryRun": 1}) == {}
    assert "unique" not in spec_of(running, "a_1")
    assert running.run(change(name="a_1", unique=True)) == {"unique_new": True}
    assert spec_of(running, "a_1") == {"v": 2, "key": {"a": 1}, "name": "a_1", "unique": True}
    assert running.index_names() == names
    assert len(running.engine.idents()) == idents
    assert running.run({"insert": "c", "documents": [{"a": 1}]})["writeErrors"][0]["code"] == 11000
    assert running.ids(filter={"a": 5}) == [5]
    assert running.run(change(name="a_1", unique=True)) == {}
    again = Running(engine=running.engine)
    assert again.run({"insert": "c", "documents": [{"a": 1}]})["writeErrors"][0]["code"] == 11000


def test_expired_documents_are_no_duplicates(running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=-1)
    running.insert({"_id": 1, "a": 1, "ttl": 5}, {"_id": 2, "a": 1})
    running.run(change(name="a_1", prepareUnique=True))
    running.advance(5)
    assert running.run(change(name="a_1", unique=True)) == {"unique_new": True}


def test_an_index_that_is_dropped_while_it_is_converted(running: Running) -> None:
    running.insert(*({"_id": i, "a": i} for i in range(1000)))
    running.run(change(name="a_1", prepareUnique=True))
    for steps_before in (1, 5):
        steps = running.steps(change(name="a_1", unique=True))
        for _ in range(steps_before):
            next(steps)
        running.run({"dropIndexes": "c", "index": "a_1"})
        with pytest.raises(CommandError):
            list(steps)
        assert "a_1" not in running.index_names()
        running.index({"a": 1}, prepareUnique=True)
    assert running.index_names().count("a_1") == 1
