"""rawData: commands that may ask for the buckets of time series collections. Here there are none."""

from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from tests.drivers.refusals import refusal

Documents = dict[str, Any]

COMMANDS: list[Documents] = [
    {"find": "c"},
    {"count": "c"},
    {"distinct": "c", "key": "m"},
    {"aggregate": "c", "pipeline": [], "cursor": {}},
    {"insert": "c", "documents": [{"_id": 2}]},
    {"update": "c", "updates": [{"q": {"m": 5}, "u": {"$set": {"m": 1}}, "multi": True}]},
    {"delete": "c", "deletes": [{"q": {"m": 5}, "limit": 0}]},
    {"findAndModify": "c", "query": {"m": 5}, "update": {"$set": {"m": 1}}},
    {"listIndexes": "c"},
    {"createIndexes": "c", "indexes": [{"key": {"m": 1}, "name": "m"}]},
    {"dropIndexes": "c", "index": "m"},
    {"explain": {"find": "c"}},
]


def with_raw_data(command: Documents, value: Any) -> Documents:
    if "explain" in command:
        return {"explain": {**command["explain"], "rawData": value}}
    return {**command, "rawData": value}


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_raw_data_of_an_ordinary_collection_are_its_documents(
    database: Database[Documents], command: Documents
) -> None:
    database.c.create_index("m", name="m")
    database.c.insert_one({"_id": 1, "m": 1})
    assert refusal(database, with_raw_data(command, True)) == 0
    assert refusal(database, with_raw_data(command, "x")) == 14


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_buckets_of_a_time_series_are_refused(database: Database[Documents], command: Documents) -> None:
    database.create_collection("c", timeseries={"timeField": "at", "metaField": "m"})
    assert refusal(database, with_raw_data(command, True)) == 115
    assert refusal(database, with_raw_data(command, False)) != 115


def test_listing_and_bulk_writes(client: MongoClient[Documents], database: Database[Documents]) -> None:
    database.create_collection("series", timeseries={"timeField": "at"})
    assert database.command("listCollections", rawData=True)["cursor"]["firstBatch"][0]["name"] == "series"
    for name, code in (("c", 0), ("series", 115)):
        command = {
            "bulkWrite": 1,
            "ops": [{"insert": 0, "document": {"_id": 1}}],
            "nsInfo": [{"ns": f"{database.name}.{name}"}],
            "rawData": True,
        }
        assert refusal(client.admin, command) == code


def test_other_commands_do_not_know_it(database: Database[Documents]) -> None:
    for command in ({"ping": 1}, {"drop": "c"}, {"collMod": "c"}):
        with pytest.raises(OperationFailure) as raised:
            database.command({**command, "rawData": True})
        assert raised.value.code == 40415
