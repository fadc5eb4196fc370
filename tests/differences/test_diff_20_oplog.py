"""The documents that a statement writes at once share an entry of the oplog

and a cluster time. MongoDB gives each document that an insert stores an entry and a time of its own (manual, "Replica
Set Oplog").
"""

from typing import Any

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


def test_the_statements_of_a_transaction_have_entries_of_their_own(database: Database[dict[str, Any]]) -> None:
    database.create_collection("c")
    with database.client.start_session() as session, session.start_transaction():
        database.c.insert_one({}, session=session)
        database.c.insert_one({}, session=session)
    first, last = database.client.local["oplog.rs"].find(
        {"lsid": {"$exists": True}, "o.applyOps.ns": f"{database.name}.c"}
    )
    assert first["o"]["partialTxn"] and last["prevOpTime"]["ts"] == first["ts"]
