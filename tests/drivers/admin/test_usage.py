"""`top`, and what `$collStats` tells of use."""

from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.on_nodes import own_figures

pytestmark = own_figures

Documents = dict[str, Any]


def stats(database: Database[Documents], **sections: Any) -> Documents:
    [found] = database.c.aggregate([{"$collStats": sections}])
    return found


def top_of(database: Database[Documents], name: str) -> dict[str, int]:
    totals = database.client.admin.command("top")["totals"]
    return {event: timing["count"] for event, timing in totals[f"{database.name}.{name}"].items()}


def test_top(database: Database[Documents]) -> None:
    database.c.insert_many([{"_id": i} for i in range(3)])
    database.c.update_one({"_id": 1}, {"$set": {"x": 1}})
    database.c.delete_one({"_id": 2})
    assert len(list(database.c.find({}, batch_size=1))) == 2
    database.create_collection("v", viewOn="c", pipeline=[])
    used = top_of(database, "c")
    assert used == {
        "total": used["total"], "readLock": used["readLock"], "writeLock": 3,
        "queries": 1, "getmore": used["getmore"], "insert": 1, "update": 1, "remove": 1, "commands": 0,
    }  # fmt: skip
    assert used["total"] == used["readLock"] + used["writeLock"] == 4 + used["getmore"]
    assert used["getmore"] >= 1
    assert top_of(database, "v")["commands"] == 1
    database.c.drop()
    database.c.insert_one({})
    assert top_of(database, "c")["total"] == 1


def test_latencies(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1})
    database.c.find_one()
    latencies = stats(database, latencyStats={})["latencyStats"]
    assert set(latencies) == {"reads", "writes", "commands", "transactions"}
    assert latencies["writes"]["ops"] == latencies["reads"]["ops"] == 1
    assert "histogram" not in latencies["reads"]
    shown = stats(database, latencyStats={"histograms": True})["latencyStats"]
    assert sum(bucket["count"] for bucket in shown["reads"]["histogram"]) == shown["reads"]["ops"]
    assert shown["transactions"]["histogram"] == []


def test_collection_scans(database: Database[Documents]) -> None:
    database.create_collection("c", capped=True, size=4096)
    database.c.insert_many([{"_id": i} for i in range(3)])
    list(database.c.find({"x": 1}))
    database.c.find_one({"_id": 1})
    database.command({"explain": {"find": "c"}, "verbosity": "queryPlanner"})
    assert stats(database, queryExecStats={})["queryExecStats"] == {"collectionScans": {"total": 1, "nonTailable": 1}}
    database.command({"find": "c", "tailable": True, "batchSize": 2})
    scans = stats(database, queryExecStats={})["queryExecStats"]["collectionScans"]
    assert scans == {"total": 2, "nonTailable": 1}
    database.command({"killCursors": "c", "cursors": []})


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ({"latencyStats": {"histograms": 1}}, 14),
        ({"latencyStats": {"other": 1}}, 40415),
        ({"latencyStats": 1}, 14),
        ({"queryExecStats": {"x": 1}}, 31170),
        ({"count": {"x": 1}}, 31170),
        ({"storageStats": {"scale": 0}}, 2),
        ({"storageStats": {"scale": "1"}}, 14),
        ({"other": {}}, 40415),
        ({"count": {"x": 1}, "latencyStats": {"x": 1}}, 31170),
        ({"latencyStats": {"x": 1}, "count": {"x": 1}}, 40415),
    ],
    ids=str,
)
def test_coll_stats_refuses_invalid_sections(database: Database[Documents], sections: Documents, code: int) -> None:
    database.c.insert_one({"_id": 1})
    with pytest.raises(OperationFailure) as caught:
        stats(database, **sections)
    assert caught.value.code == code


def test_sections_that_are_null_are_left_out(database: Database[Documents]) -> None:
    database.c.insert_one({"_id": 1})
    assert set(stats(database, count=None, latencyStats=None, storageStats={"unknown": 1})) == {
        "ns", "host", "localTime", "storageStats",
    }  # fmt: skip


def test_views_over_views_that_begin_with_coll_stats(database: Database[Documents]) -> None:
    """Such a view is not resolved any further: the statistics are those of the view below it."""
    database.c.insert_one({"_id": 1})
    database.create_collection("below", viewOn="c", pipeline=[{"$match": {"a": 1}}])
    database.create_collection("use", viewOn="below", pipeline=[{"$collStats": {"latencyStats": {}}}])
    database.create_collection("above", viewOn="use", pipeline=[{"$project": {"ns": 1}}])
    namespace = f"{database.name}.below"
    assert [found["ns"] for found in database.use.aggregate([])] == [namespace]
    assert [found["ns"] for found in database.use.find({"latencyStats": {"$exists": True}})] == [namespace]
    assert list(database.above.aggregate([])) == [{"ns": namespace}]
    joined = database.c.aggregate([{"$lookup": {"from": "above", "pipeline": [], "as": "l"}}])
    assert list(joined) == [{"_id": 1, "l": [{"ns": namespace}]}]
    assert database.command("explain", {"find": "above", "filter": {}})["ok"] == 1
    database.create_collection("counted", viewOn="c", pipeline=[{"$collStats": {"count": {}}}])
    database.create_collection("number", viewOn="counted", pipeline=[{"$project": {"count": 1}}])
    assert list(database.number.find()) == [{"count": 1}]
    database.create_collection("miscounted", viewOn="below", pipeline=[{"$collStats": {"count": {}}}])
    with pytest.raises(OperationFailure) as refused:
        list(database.miscounted.find())
    assert refused.value.code == 166
