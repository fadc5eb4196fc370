"""The oplog of change streams is in memory, and bounded by 64 MiB.

MongoDB keeps it in a capped collection, `local.oplog.rs` (manual, "Replica Set Oplog"), from which streams resume after
a restart.
"""

from typing import Any

import pymongo
import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

import mongottl


def test_streams_do_not_resume_over_a_restart(tmp_path: Any) -> None:
    folder = str(tmp_path / "data")
    with (
        mongottl.start_server(data_dir=folder) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
        client.test.c.watch() as stream,
    ):
        client.test.c.insert_one({"_id": 1})
        token = next(stream)["_id"]
    with mongottl.start_server(data_dir=folder) as server, pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        with pytest.raises(OperationFailure) as caught:
            client.test.c.watch(resume_after=token)
        assert caught.value.code == 286


def test_there_is_no_oplog_collection(database: Database[dict[str, Any]]) -> None:
    database.c.insert_one({})
    assert database.client.local.list_collection_names() == []


def test_the_documents_of_a_batch_share_a_cluster_time(database: Database[dict[str, Any]]) -> None:
    with database.c.watch() as stream:
        database.c.insert_many([{}, {}])
        first, second = next(stream), next(stream)
    assert first["clusterTime"] == second["clusterTime"]
    assert first["_id"]["_data"] < second["_id"]["_data"]
