"""Documents that are written at once share an entry of the oplog

and a cluster time. MongoDB gives each document that an insert stores an entry and a time of its own (manual, "Replica
Set Oplog"). It also logs what `$out` writes into its temporary collection, and fields that a pipeline moves. It keeps
images for change streams in `config.system.preimages` ("Change Streams with Document Pre- and Post-Images").
"""

from typing import Any

import pymongo
from pymongo.database import Database


def test_the_documents_of_a_batch_share_a_cluster_time(database: Database[dict[str, Any]]) -> None:
    with database.c.watch() as stream:
        database.c.insert_many([{}, {}])
        first, second = next(stream), next(stream)
    assert first["clusterTime"] == second["clusterTime"]
    assert first["_id"]["_data"] < second["_id"]["_data"]


def test_the_documents_of_a_batch_share_an_entry(database: Database[dict[str, Any]]) -> None:
    database.c.insert_many([{}, {}])
    latest = next(database.client.local["oplog.rs"].find().sort("$natural", -1).limit(1))
    assert [operation["op"] for operation in latest["o"]["applyOps"]] == ["i", "i"]


def test_updates_by_id_of_a_batch_share_an_entry_and_others_do_not(database: Database[dict[str, Any]]) -> None:
    database.c.insert_many([{"_id": 1}, {"_id": 2}])
    for filters in ([{"_id": 1}, {"_id": 2}], [{"_id": 1, "n": 1}, {"_id": 2, "n": 1}]):
        database.c.bulk_write([pymongo.UpdateOne(filter, {"$inc": {"n": 1}}) for filter in filters])
    entries = list(database.client.local["oplog.rs"].find().sort("$natural", -1).limit(3))
    assert [entry["op"] for entry in entries] == ["u", "u", "c"]
    assert [operation["op"] for operation in entries[2]["o"]["applyOps"]] == ["u", "u"]


def test_the_statements_of_a_transaction_have_entries_of_their_own(database: Database[dict[str, Any]]) -> None:
    database.create_collection("c")
    with database.client.start_session() as session, session.start_transaction():
        database.c.insert_one({}, session=session)
        database.c.insert_one({}, session=session)
    first, last = database.client.local["oplog.rs"].find(
        {"lsid": {"$exists": True}, "o.applyOps.ns": f"{database.name}.c"}
    )
    assert first["o"]["partialTxn"] and last["prevOpTime"]["ts"] == first["ts"]


def test_streams_tell_of_the_rename_at_the_end_of_out(database: Database[dict[str, Any]]) -> None:
    database.c.insert_many([{}, {}])
    with database.watch(show_expanded_events=True, max_await_time_ms=1) as stream:
        list(database.c.aggregate([{"$out": "d"}]))
        event = stream.try_next()
        assert event is not None
        assert (event["operationType"], event["to"]["coll"]) == ("rename", "d")
        assert stream.try_next() is None


def test_that_a_pipeline_moves_fields_is_not_in_the_oplog(database: Database[dict[str, Any]]) -> None:
    """MongoDB's diff has fields in another place as deleted and inserted."""
    database.c.insert_one({"_id": 1, "a": 1, "b": 2})
    database.c.update_one({}, [{"$replaceWith": {"_id": 1, "b": "$b", "a": "$a"}}])
    latest = next(database.client.local["oplog.rs"].find().sort("$natural", -1).limit(1))
    assert latest["o"] == {"$v": 2, "diff": {}}


def test_images_are_not_shown_as_a_collection(database: Database[dict[str, Any]]) -> None:
    database.create_collection("c", changeStreamPreAndPostImages={"enabled": True})
    database.c.insert_one({"_id": 1})
    with database.c.watch(full_document_before_change="required") as stream:
        database.c.delete_one({"_id": 1})
        assert next(stream)["fullDocumentBeforeChange"] == {"_id": 1}
    assert database.client.config["system.preimages"].count_documents({}) == 0
