"""`local.oplog.rs` as tools read and tail it, and change streams that resume over a restart of the server."""

from collections.abc import Callable, Iterator
from typing import Any

import pymongo
import pytest
from bson import SON, Int64, Timestamp
from pymongo.collection import Collection
from pymongo.cursor import CursorType
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl
from tests.on_nodes import drops_old_writes
from tests.on_store import needs_one_machine

Documents = dict[str, Any]
QUICK: Any = {"max_await_time_ms": 1}


@pytest.fixture
def client() -> Iterator["pymongo.MongoClient[Documents]"]:
    with mongottl.start_server() as server, pymongo.MongoClient[Documents](server.uri) as connected:
        yield connected


@pytest.fixture
def oplog(client: "pymongo.MongoClient[Documents]") -> Collection[Documents]:
    return client.local["oplog.rs"]


def write_everything(database: Database[Documents]) -> None:
    """One write of each kind."""
    database.c.insert_one({"_id": 1, "a": [1, 2, 3], "b": {"c": 1}})
    database.c.insert_many([{"_id": 2}, {"_id": 3}])
    database.c.update_one({"_id": 1}, {"$set": {"a.1": 7, "b.c": 2, "x": 1}})
    database.c.update_one({"_id": 1}, [{"$set": {"a": [1]}}, {"$unset": "b"}])
    database.c.update_one({"_id": 3}, {"$set": {"x": {"1": 5, "p.q": 3}}})
    database.c.update_one({"_id": 3}, [{"$set": {"x.1": 6}}])
    database.c.replace_one({"_id": 2}, {"z": 1})
    database.c.delete_one({"_id": 2})
    database.c.create_index("a")
    database.c.drop_index("a_1")
    with database.client.start_session() as session, session.start_transaction():
        database.c.insert_one({"_id": 8}, session=session)
        database.other.insert_one({"_id": 9}, session=session)
    database.c.delete_many({})
    database.c.rename("d")
    database.d.drop()


@needs_one_machine
def test_each_write_has_a_document(client: "pymongo.MongoClient[Documents]", oplog: Collection[Documents]) -> None:
    write_everything(client.shop)
    client.drop_database("shop")
    first, *documents = oplog.find()
    assert (first["op"], first["ns"], first["o"]) == ("n", "", {"msg": "initiating set"})
    assert [list(document) for document in documents[:3]] == [
        ["op", "ns", "ui", "o", "ts", "t", "v", "wall"],
        ["op", "ns", "ui", "o", "o2", "ts", "t", "v", "wall"],
        ["op", "ns", "o", "ts", "t", "v", "wall"],
    ]
    shown = [(document["op"], document["ns"], document["o"], document.get("o2")) for document in documents]
    assert shown[:9] == [
        ("c", "shop.$cmd", {"create": "c", "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}, None),
        ("i", "shop.c", {"_id": 1, "a": [1, 2, 3], "b": {"c": 1}}, {"_id": 1}),
        ("c", "admin.$cmd", {"applyOps": [inserted(documents, 2), inserted(documents, 3)]}, None),
        (
            "u",
            "shop.c",
            {"$v": 2, "diff": {"u": {"x": 1}, "sa": {"a": True, "u1": 7}, "sb": {"u": {"c": 2}}}},
            {"_id": 1},
        ),
        ("u", "shop.c", {"$v": 2, "diff": {"d": {"b": False}, "sa": {"a": True, "l": 1}}}, {"_id": 1}),
        ("u", "shop.c", {"$v": 2, "diff": {"u": {"x": {"1": 5, "p.q": 3}}}}, {"_id": 3}),
        ("u", "shop.c", {"$v": 2, "diff": {"sx": {"u": {"1": 6}}}}, {"_id": 3}),
        ("u", "shop.c", {"_id": 2, "z": 1}, {"_id": 2}),
        ("d", "shop.c", {"_id": 2}, None),
    ]
    commands = [next(iter(document["o"])) for document in documents[9:]]
    assert commands == [
        "createIndexes",
        "dropIndexes",
        "create",
        "applyOps",
        "applyOps",
        "applyOps",
        "renameCollection",
        "drop",
        "drop",
        "dropDatabase",
    ]
    created, dropped = documents[9:11]
    assert created["o"] == {"createIndexes": "c", "v": 2, "key": {"a": 1}, "name": "a_1"}
    assert dropped["o"] == {"dropIndexes": "c", "index": "a_1"}
    assert dropped["o2"] == {"v": 2, "key": {"a": 1}, "name": "a_1"}
    times = [document["ts"] for document in documents]
    assert times == sorted(set(times))


def test_several_indexes_that_are_created_together(
    client: "pymongo.MongoClient[Documents]", oplog: Collection[Documents]
) -> None:
    client.shop.c.create_indexes([pymongo.IndexModel("a"), pymongo.IndexModel("b", sparse=True)])
    *_, latest = oplog.find()
    assert [operation["o"] for operation in latest["o"]["applyOps"]] == [
        {"createIndexes": "c", "v": 2, "key": {"a": 1}, "name": "a_1"},
        {"createIndexes": "c", "v": 2, "key": {"b": 1}, "name": "b_1", "sparse": True},
    ]


def inserted(documents: list[Documents], key: int) -> Documents:
    return {"op": "i", "ns": "shop.c", "ui": documents[0]["ui"], "o": {"_id": key}, "o2": {"_id": key}}


def test_the_documents_of_a_transaction_are_linked(
    client: "pymongo.MongoClient[Documents]", oplog: Collection[Documents]
) -> None:
    client.shop.create_collection("c")
    with client.shop.c.watch(**QUICK) as stream, client.start_session() as session:
        with session.start_transaction():
            client.shop.c.insert_one({"_id": 1}, session=session)
            client.shop.c.update_one({"_id": 1}, {"$set": {"n": 2}}, session=session)
        told = next(stream)
        lsid = session.session_id["id"]
    first, last = oplog.find({"txnNumber": {"$exists": True}})
    assert first["lsid"]["id"] == last["lsid"]["id"] == lsid
    assert first["o"]["partialTxn"] is True
    assert first["prevOpTime"] == {"ts": Timestamp(0, 0), "t": -1}
    assert "partialTxn" not in last["o"]
    assert last["prevOpTime"] == {"ts": first["ts"], "t": 1}
    assert told["clusterTime"] == last["ts"]


def test_the_oplog_is_tailed(client: "pymongo.MongoClient[Documents]", oplog: Collection[Documents]) -> None:
    client.shop.c.insert_one({"_id": 1})
    latest = next(oplog.find().sort("$natural", -1).limit(1))
    cursor = oplog.find({"ts": {"$gt": latest["ts"]}}, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(1)
    assert list(cursor) == []
    cursor = oplog.find({"ts": {"$gte": latest["ts"]}}, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(1)
    assert next(cursor)["o"] == {"_id": 1}
    client.shop.c.insert_one({"_id": 2})
    assert next(cursor)["o"] == {"_id": 2}
    assert cursor.alive


def test_images_that_have_expired_stay_expired(tmp_path: Any) -> None:
    options: Any = {"data_dir": str(tmp_path), "enable_test_commands": True}
    with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
        kept: Documents = {"preAndPostImages": {"expireAfterSeconds": 100}}
        client.admin.command("setClusterParameter", {"changeStreamOptions": kept})
        client.shop.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
        token = client.shop.c.watch().resume_token
        client.shop.c.insert_one({"_id": 1})
        client.shop.c.update_one({"_id": 1}, {"$set": {"n": 1}})
        server.clock.advance(-200)
        client.shop.c.update_one({"_id": 1}, {"$set": {"n": 2}})
        server.clock.reset()

    def images(client: "pymongo.MongoClient[Documents]") -> list[bool]:
        events = client.shop.c.watch(resume_after=token, full_document_before_change="whenAvailable", **QUICK)
        return [
            event["fullDocumentBeforeChange"] is not None for event in (next(events), next(events), next(events))[1:]
        ]

    for forever in (False, True):
        with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
            asked = client.admin.command("getClusterParameter", "changeStreamOptions")["clusterParameters"][0]
            assert asked["preAndPostImages"] == {"expireAfterSeconds": 100}
            assert images(client) == [True, False]
            if forever:
                off: Documents = {"preAndPostImages": {"expireAfterSeconds": "off"}}
                client.admin.command("setClusterParameter", {"changeStreamOptions": off})
                assert images(client) == [True, False]


@needs_one_machine
@pytest.mark.parametrize("restarts", [False, True], ids=["in memory", "stored"])
def test_oplog_queries_with_ts_read_only_entries_in_its_range(tmp_path: Any, restarts: bool) -> None:
    """A tailing tool begins where it stopped, in an oplog of millions of entries."""
    options: Any = {"data_dir": str(tmp_path)} if restarts else {}
    with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
        write_everything(client.shop)
        for n in range(600):
            client.shop.many.insert_one({"_id": n})
        write_everything(client.other)
        if not restarts:
            _check_spans(client)
    if restarts:
        with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
            _check_spans(client)


def _check_spans(client: "pymongo.MongoClient[Documents]") -> None:
    oplog = client.local["oplog.rs"]
    everything = list(oplog.find())
    times = [document["ts"] for document in everything]
    assert times == sorted(set(times))
    between = Timestamp(times[60].time, times[60].inc)
    for low, high in ((5, 9), (20, 60), (60, 61), (0, len(times) - 1), *((i, i + 1) for i in range(10, 20))):
        first, last = times[low], times[high]
        for filter, wanted in (
            ({"$gte": first, "$lte": last}, range(low, high + 1)),
            ({"$gt": first, "$lt": last}, range(low + 1, high)),
            ({"$in": [last, first]}, (low, high)),
            ({"$eq": last}, (high,)),
        ):
            expected = [everything[i] for i in wanted]
            assert list(oplog.find({"ts": filter})) == expected
            assert list(oplog.find({"ts": filter}).sort("$natural", -1)) == expected[::-1]
            assert list(oplog.find({"$and": [{"ts": filter}, {"ts": {"$lte": last}}]})) == expected
            assert oplog.count_documents({"ts": filter}) == len(expected)
    for filter, most in (
        ({"$gte": times[-3]}, 4),
        ({"$gt": times[-1]}, 2),
        ({"$gte": between, "$lt": times[62]}, 256),
        ({"$eq": between}, 256),
    ):
        plan = oplog.find({"ts": filter}).explain()
        assert plan["queryPlanner"]["winningPlan"]["stage"] == "COLLSCAN"
        assert plan["executionStats"]["totalDocsExamined"] <= most, filter
    backward = oplog.find({"ts": {"$gte": times[-2]}}).sort("$natural", -1).explain()
    assert backward["executionStats"]["totalDocsExamined"] <= 256
    assert list(oplog.find({"ts": {"$gte": Timestamp(times[-1].time + 100, 1)}})) == []
    assert list(oplog.find({"ts": {"$lt": Timestamp(1, 1)}}).sort("$natural", -1)) == []
    assert list(oplog.find({"ts": {"$gte": Timestamp(1, 1)}})) == everything
    assert list(oplog.find({"$or": [{"ts": times[3]}, {"ts": {"$gt": times[-2]}}]})) == [everything[3], everything[-1]]


def test_tools_find_its_size_and_its_ends(
    client: "pymongo.MongoClient[Documents]", oplog: Collection[Documents]
) -> None:
    client.shop.c.insert_many([{"_id": i} for i in range(3)])
    assert client.local.list_collection_names() == ["oplog.rs"]
    listed = next(iter(client.local.list_collections()))
    assert listed["options"]["capped"] is True
    stats = client.local.command("collStats", "oplog.rs")
    assert (stats["count"], stats["maxSize"], stats["capped"]) == (3, 64 << 20, True)
    assert stats["size"] > 0
    assert oplog.count_documents({}) == oplog.estimated_document_count() == 3
    assert list(oplog.list_indexes()) == []
    assert client.local.command("validate", "oplog.rs")["valid"] is True
    assert "local" in client.list_database_names()


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lambda oplog: oplog.insert_one({}), 73),
        (lambda oplog: oplog.update_one({}, {"$set": {"a": 1}}), 73),
        (lambda oplog: oplog.delete_many({}), 73),
        (lambda oplog: oplog.find_one_and_delete({}), 73),
        (lambda oplog: oplog.create_index("a"), 73),
        (lambda oplog: oplog.drop_indexes(), 73),
        (lambda oplog: oplog.database.command("convertToCapped", "oplog.rs", size=4096), 73),
        (lambda oplog: oplog.database.command("create", "oplog.rs"), 48),
        (lambda oplog: oplog.database.command("collMod", "oplog.rs", cappedSize=4096), 72),
        (lambda oplog: oplog.drop(), 20),
        (lambda oplog: oplog.rename("x"), 20),
        (lambda oplog: oplog.database.client.drop_database("local"), 20),
    ],
)
def test_clients_cannot_change_it(
    oplog: Collection[Documents], action: Callable[[Collection[Documents]], object], code: int
) -> None:
    oplog.database.client.shop.c.insert_one({})
    with pytest.raises(OperationFailure) as caught:
        action(oplog)
    assert caught.value.code == code
    assert oplog.count_documents({"op": {"$ne": "n"}}) == 2


def test_bulk_writes_cannot_change_it(client: "pymongo.MongoClient[Documents]") -> None:
    reply = client.admin.command(
        SON([("bulkWrite", 1), ("ops", [{"insert": 0, "document": {}}]), ("nsInfo", [{"ns": "local.oplog.rs"}])])
    )
    assert reply["cursor"]["firstBatch"][0]["code"] == 73


def events_of(collection: Any, **options: Any) -> list[Documents]:
    with collection.watch(**QUICK, **options) as stream:
        told = []
        while stream.alive and (event := stream.try_next()) is not None:
            told.append(event)
        return told


def test_streams_resume_over_a_restart(tmp_path: Any) -> None:
    """Whatever was told before the restart is told again behind it, to the byte."""
    folder = str(tmp_path / "data")
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[Documents](server.uri) as client:
        with client.watch(show_expanded_events=True, **QUICK) as stream:
            write_everything(client.shop)
            told = []
            while (event := stream.try_next()) is not None:
                told.append(event)
        documents = list(client.local["oplog.rs"].find())
    assert len(told) == 20
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[Documents](server.uri) as client:
        for index in range(len(told)):
            again = events_of(client, resume_after=told[index]["_id"], show_expanded_events=True)
            assert again == told[index + 1 :]
        plain = events_of(client, start_at_operation_time=told[0]["clusterTime"])
        assert len(plain) < len(told) and "disambiguatedPaths" not in plain[3]["updateDescription"]
        assert list(client.local["oplog.rs"].find()) == documents
        client.shop.c.insert_one({"_id": 100})
        assert [event["operationType"] for event in events_of(client, resume_after=told[-1]["_id"])] == ["insert"]


def test_a_stream_goes_on_within_an_entry_that_only_the_disk_has(tmp_path: Any) -> None:
    """The memory keeps the latest 8 MiB of a stored oplog, and a stream reads 256 operations at once."""
    with (
        mongottl.start_server(data_dir=tmp_path) as server,
        pymongo.MongoClient[Documents](server.uri) as client,
        client.shop.c.watch(batch_size=10, **QUICK) as stream,
    ):
        client.shop.c.insert_many([{"_id": i} for i in range(1000)])
        ids = [next(stream)["documentKey"]["_id"] for _ in range(15)]
        client.shop.large.insert_many([{"text": "x" * 500_000} for _ in range(20)])
        ids += [next(stream)["documentKey"]["_id"] for _ in range(985)]
        assert ids == list(range(1000))
        assert stream.try_next() is None


def test_images_are_told_after_a_restart(tmp_path: Any) -> None:
    folder = str(tmp_path / "data")
    images: Any = {"full_document": "required", "full_document_before_change": "required"}
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[Documents](server.uri) as client:
        client.shop.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
        with client.shop.c.watch(**QUICK) as stream:
            client.shop.c.insert_one({"_id": 1, "n": 1})
            token = next(stream)["_id"]
        client.shop.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        client.shop.c.delete_one({"_id": 1})
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[Documents](server.uri) as client:
        updated, deleted = events_of(client.shop.c, resume_after=token, **images)
    assert updated["fullDocument"] == {"_id": 1, "n": 2}
    assert updated["fullDocumentBeforeChange"] == {"_id": 1, "n": 1}
    assert deleted["fullDocumentBeforeChange"] == {"_id": 1, "n": 2}


@pytest.mark.parametrize("restarts", [False, True])
def test_beyond_its_bound_the_oldest_entries_are_gone(tmp_path: Any, restarts: bool) -> None:
    folder = str(tmp_path / "data")
    options: Any = {"data_dir": folder, "oplog_size_mb": 1}
    with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
        with client.shop.c.watch(**QUICK) as stream:
            client.shop.c.insert_one({"_id": 1})
            token = next(stream)["_id"]
        for i in range(2, 42):
            client.shop.c.insert_one({"_id": i, "text": "x" * 50_000})
        kept = read_kept(client)
        if not restarts:
            assert_lost(client, token)
    if restarts:
        with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
            assert read_kept(client) == kept
            assert_lost(client, token)


def read_kept(client: "pymongo.MongoClient[Documents]") -> list[Documents]:
    """The documents of the oplog: from somewhere on, all that were inserted, within the bound; and their events."""
    kept = list(client.local["oplog.rs"].find())
    ids = [document["o"]["_id"] for document in kept]
    assert ids == list(range(ids[0], 42))
    assert 10 < len(ids) <= 22
    told = events_of(client.shop.c, start_at_operation_time=kept[0]["ts"])
    assert [event["documentKey"]["_id"] for event in told] == ids
    assert client.local.command("collStats", "oplog.rs")["size"] <= 1 << 20
    return kept


def assert_lost(client: "pymongo.MongoClient[Documents]", token: Any) -> None:
    with pytest.raises(OperationFailure) as caught:
        client.shop.c.watch(resume_after=token)
    assert caught.value.code == 286


@pytest.mark.parametrize("stored", [pytest.param(False, marks=drops_old_writes), True])
def test_a_transaction_is_kept_whole_beyond_the_bound(tmp_path: Any, stored: bool) -> None:
    options: Any = {"oplog_size_mb": 1}
    if stored:
        options["data_dir"] = str(tmp_path / "data")
    with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
        client.shop.create_collection("c")
        with client.shop.c.watch(**QUICK) as stream, client.start_session() as session:
            before = stream.resume_token
            with session.start_transaction():
                for i in range(40):
                    client.shop.c.insert_one({"_id": i, "text": "x" * 50_000}, session=session)
            told = events_of(client.shop.c, start_at_operation_time=session.operation_time)
            assert [event["documentKey"]["_id"] for event in told] == list(range(40))
        # The next ones drop it whole.
        for i in range(40, 80):
            client.shop.c.insert_one({"_id": i, "text": "x" * 50_000})
        for token in (before, told[0]["_id"], told[20]["_id"], told[38]["_id"]):
            assert_lost(client, token)
        assert (
            client.local["oplog.rs"].count_documents({"lsid": {"$exists": True}, "o.applyOps.0.o2._id": {"$lt": 40}})
            == 0
        )
        assert client.local.command("collStats", "oplog.rs")["size"] <= 1 << 20


@pytest.mark.parametrize("stored", [pytest.param(False, marks=drops_old_writes), True])
def test_young_entries_are_kept_beyond_the_bound(tmp_path: Any, stored: bool) -> None:
    options: Any = {"oplog_size_mb": 1, "oplog_min_retention_hours": 1, "enable_test_commands": True}
    if stored:
        options["data_dir"] = str(tmp_path / "data")
    with mongottl.start_server(**options) as server, pymongo.MongoClient[Documents](server.uri) as client:
        for i in range(40):
            client.shop.c.insert_one({"_id": i, "text": "x" * 50_000})
        assert client.local["oplog.rs"].count_documents({}) == 42
        client.admin.command("advanceClock", 3601)
        for i in range(40, 44):
            client.shop.c.insert_one({"_id": i, "text": "x" * 50_000})
        assert 10 < client.local["oplog.rs"].count_documents({}) <= 22


def test_a_failed_write_leaves_nothing(tmp_path: Any) -> None:
    folder = str(tmp_path / "data")
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[Documents](server.uri) as client:
        client.shop.c.insert_one({"_id": 1})
        for _ in range(3):
            with pytest.raises(pymongo.errors.DuplicateKeyError):
                client.shop.c.insert_one({"_id": 1})
        client.shop.c.insert_one({"_id": Int64(2)})
        assert [document["o"].get("_id") for document in client.local["oplog.rs"].find()] == [None, None, 1, 2]
