"""MongoDB's own TTL: an index with `expireAfterSeconds` on a date field.

Its documents stay visible until they are purged, as in MongoDB; the reaper does that within a second.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

import mongottl
from tests.drivers.ttl.conftest import Bench, make_bench


@pytest.fixture
def bench(module_server: "mongottl.RunningServer", module_client: MongoClient[dict[str, Any]]) -> Iterator[Bench]:
    """The reaper is always at work: a date TTL shows itself by the purge alone."""
    yield from make_bench(module_server, module_client, purged=True)


@pytest.fixture
def dated(bench: Bench) -> Bench:
    bench.collection.create_index("at", expireAfterSeconds=60)
    return bench


def at(bench: Bench, seconds: float) -> datetime:
    """A date this many seconds from the server's now, in whole milliseconds as BSON has them."""
    moment = bench.server.clock.now() + timedelta(seconds=seconds)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def test_dates_expire(dated: Bench) -> None:
    dated.collection.insert_many([{"_id": n, "at": at(dated, n)} for n in (0, 10, 20)])
    dated.advance(58)
    assert dated.ids() == [0, 10, 20]
    dated.advance(3)
    assert dated.ids() == [10, 20]
    dated.advance(20)
    assert dated.ids() == []


def test_milliseconds_count_where_the_clock_is_moved(dated: Bench) -> None:
    """Applications store dates with milliseconds: a test moves the time to the end of their lives, and no further."""
    dated.server.clock.set("2030-01-01T00:00:00.250Z")
    dated.collection.insert_many([{"_id": 1, "at": at(dated, 0)}, {"_id": 2, "at": [at(dated, 0.5), at(dated, 9)]}])
    assert dated.advance(59.999) == 0
    assert dated.ids() == [1, 2]
    assert dated.advance(0.001) == 1
    assert dated.ids() == [2]
    dated.hold_reaper(True)
    assert dated.advance(0.5) == 0
    dated.hold_reaper(False)
    assert dated.advance(0) == 1
    assert dated.ids() == []


def test_milliseconds_count_in_numbers_of_cosmos_db() -> None:
    account = mongottl.start_server(
        dialect="cosmos", cosmos_capability=("EnableTtlOnCustomPath",), now="2030-01-01T00:00:00.250Z"
    )
    with account as server, MongoClient[dict[str, Any]](server.uri) as client:
        client.shop.carts.create_index("at", expireAfterSeconds=60)
        now_ms = int(server.clock.now().timestamp() * 1000)
        client.shop.carts.insert_many([{"_id": 1, "at": now_ms}, {"_id": 2, "at": float(now_ms + 1)}])
        assert [server.clock.advance(seconds) for seconds in (59.999, 0.001, 0.001)] == [0, 1, 1]


def test_a_date_in_the_past_goes_at_once(dated: Bench) -> None:
    dated.collection.insert_one({"_id": 1, "at": datetime(1971, 1, 1, tzinfo=UTC)})
    dated.advance(0)
    assert dated.ids() == []


def test_the_earliest_date_of_an_array_counts(dated: Bench) -> None:
    dated.collection.insert_one({"_id": 1, "at": [at(dated, 1000), "x", at(dated, 10), 5]})
    dated.advance(68)
    assert dated.ids() == [1]
    dated.advance(3)
    assert dated.ids() == []


@pytest.mark.parametrize("value", [None, 5, "2001-01-01", {"at": 1}, [], ["x"], True], ids=repr)
def test_values_that_are_no_date_do_not_expire(dated: Bench, value: Any) -> None:
    dated.collection.insert_many([{"_id": 1, "at": value}, {"_id": 2}])
    dated.advance(10**8)
    assert dated.ids() == [1, 2]


def test_an_updated_date_counts_anew(dated: Bench) -> None:
    dated.collection.insert_one({"_id": 1, "at": at(dated, 0)})
    dated.advance(50)
    dated.collection.update_one({"_id": 1}, {"$set": {"at": at(dated, 0)}})
    dated.advance(58)
    assert dated.ids() == [1]
    dated.advance(3)
    assert dated.ids() == []


def test_a_nested_descending_index(bench: Bench) -> None:
    bench.collection.create_index([("meta.at", -1)], expireAfterSeconds=0)
    bench.collection.insert_many([{"_id": 1, "meta": {"at": at(bench, 5)}}, {"_id": 2, "meta": [{"at": at(bench, 9)}]}])
    bench.advance(7)
    assert bench.ids() == [2]
    bench.advance(7)
    assert bench.ids() == []


@pytest.mark.parametrize(
    ("path", "nested"),
    [
        ("a.0", lambda date: {"a": [date, 1]}),
        ("a.1", lambda date: {"a": [1, date]}),
        ("a.0.b", lambda date: {"a": [{"b": date}]}),
        ("a.b.0", lambda date: {"a": {"b": [date]}}),
        ("a.b.0", lambda date: {"a": [{"b": [date]}]}),
        ("a.0.0", lambda date: {"a": [[date]]}),
        ("a.0", lambda date: {"a": {"0": date}}),
    ],
)
def test_a_path_that_names_an_element(bench: Bench, path: str, nested: Any) -> None:
    bench.collection.create_index(path, expireAfterSeconds=0)
    bench.collection.insert_many([{"_id": 1, **nested(at(bench, 5))}, {"_id": 2, **nested(at(bench, 50))}])
    bench.advance(7)
    assert 1 not in bench.ids()
    assert 2 in bench.ids()


def test_an_index_over_existing_documents(bench: Bench) -> None:
    bench.collection.insert_many([{"_id": n, "at": at(bench, n)} for n in (-100, 0, 100)])
    bench.collection.create_index("at", expireAfterSeconds=50)
    bench.advance(0)
    assert bench.ids() == [0, 100]
    bench.advance(52)
    assert bench.ids() == [100]


def test_both_kinds_together(dated: Bench) -> None:
    dated.set_default(100)
    dated.collection.insert_many([{"_id": "date", "at": at(dated, -30)}, {"_id": "ts"}, {"_id": "own", "ttl": 10}])
    dated.advance(10)
    assert dated.ids() == ["date", "ts"]
    dated.advance(22)
    assert dated.ids() == ["ts"]
    dated.advance(70)
    assert dated.ids() == []


def test_coll_mod_of_a_date_ttl(dated: Bench) -> None:
    dated.collection.insert_one({"_id": 1, "at": at(dated, 0)})
    dated.database.command({"collMod": "documents", "index": {"keyPattern": {"at": 1}, "expireAfterSeconds": 5}})
    dated.advance(7)
    assert dated.ids() == []


def test_dropping_the_index_stops_it(dated: Bench) -> None:
    dated.collection.insert_one({"_id": 1, "at": at(dated, 0)})
    dated.collection.drop_index("at_1")
    dated.advance(10**6)
    assert dated.ids() == [1]


@pytest.mark.parametrize(("value", "code"), [(-1, 67), (2**31, 67), ("60", 67)], ids=repr)
def test_refused_values(bench: Bench, value: Any, code: int) -> None:
    with pytest.raises(OperationFailure) as refusal:
        bench.database.command(
            {"createIndexes": "documents", "indexes": [{"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": value}]}
        )
    assert refusal.value.code == code
