"""dbHash."""

import hashlib
from typing import Any

import bson
import pytest
from pymongo.database import Database

from tests.drivers.refusals import refusal

Documents = dict[str, Any]


def test_db_hash_digests_documents_by_id_or_in_capped_order(database: Database[Documents]) -> None:
    database.a.insert_many([{"_id": i, "x": i} for i in (3, 1, 2)])
    database.create_collection("b")
    database.create_collection("log", capped=True, size=4096)
    database.log.insert_many([{"_id": i} for i in (3, 1, 2)])
    reply = database.command("dbHash")
    expected = {
        "a": hashlib.md5(b"".join(bson.encode({"_id": i, "x": i}) for i in (1, 2, 3))).hexdigest(),
        "b": hashlib.md5(b"").hexdigest(),
        "log": hashlib.md5(b"".join(bson.encode({"_id": i}) for i in (3, 1, 2))).hexdigest(),
    }
    assert reply["collections"] == expected
    assert reply["md5"] == hashlib.md5("".join(expected.values()).encode()).hexdigest()
    assert reply["capped"] == ["log"]
    assert set(reply["uuids"]) == {"a", "b", "log"}
    some = database.command("dbHash", collections=["b", "none"])
    assert some["collections"] == {"b": expected["b"]}
    assert database.command("dbHash", collections=[])["collections"] == expected


def test_time_series_collections_go_by_the_name_of_their_buckets(database: Database[Documents]) -> None:
    database.create_collection("t", timeseries={"timeField": "t"})
    database.create_collection("a")
    assert list(database.command("dbHash")["collections"]) == ["a", "system.buckets.t"]
    assert list(database.command("dbHash", collections=["system.buckets.t"])["uuids"]) == ["system.buckets.t"]


def test_expired_documents_do_not_count(database: Database[Documents]) -> None:
    database.a.create_index("_ts", expireAfterSeconds=10)
    database.a.insert_one({"_id": 1})
    database.client.admin.command("advanceClock", 11)
    assert database.command("dbHash")["collections"] == {"a": hashlib.md5(b"").hexdigest()}


@pytest.mark.parametrize(("arguments", "code"), [({"collections": [1]}, 2), ({"collections": ["a", None]}, 2)])
def test_db_hash_refuses_names_that_are_no_strings(
    database: Database[Documents], arguments: Documents, code: int
) -> None:
    assert refusal(database, {"dbHash": 1, **arguments}) == code
