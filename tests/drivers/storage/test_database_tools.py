"""The requests that MongoDB's database tools make, by users with the roles that are meant for them.

What mongodump writes is written here as it does it, and read by `--load`, and put back as mongorestore does it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import json_util
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure
from pymongo.operations import IndexModel

import mongottl

Client = pymongo.MongoClient[dict[str, Any]]
RAW = bson.CodecOptions(document_class=RawBSONDocument)


@pytest.fixture
def guarded() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(auth=True, user="root", password="s") as server:
        with Client(server.uri) as client:
            for role in ("backup", "restore", "readWriteAnyDatabase"):
                client.admin.command("createUser", role, pwd="s", roles=[role])
        yield server


def as_user(server: mongottl.RunningServer, name: str) -> Client:
    return Client(f"mongodb://{name}:s@127.0.0.1:{server.port}/")


def fill(client: Client) -> None:
    shop = client.shop
    shop.carts.create_indexes(
        [
            IndexModel("n", unique=True),
            IndexModel([("tags", 1), ("s", -1)], name="tags", sparse=True),
            IndexModel({"text": "text"}, name="text", weights={"text": 3}, default_language="german"),
            IndexModel({"_ts": 1}, name="ttl", expireAfterSeconds=100_000),
            IndexModel("at", expireAfterSeconds=3600, partialFilterExpression={"n": {"$gt": 5}}),
        ]
    )
    shop.carts.insert_many(
        [{"_id": n, "n": n, "tags": ["a"], "s": "ü", "text": "Birnen", "d": 1.0} for n in range(500)]
    )
    shop.create_collection("capped", capped=True, size=100_000, max=50)
    shop.capped.insert_many([{"_id": n} for n in range(10)])
    shop.create_collection("checked", validator={"n": {"$gt": 1}}, validationLevel="moderate")
    shop.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=1000)
    shop.create_collection("view", viewOn="carts", pipeline=[{"$match": {"n": {"$lt": 3}}}])
    shop.create_collection("pre", changeStreamPreAndPostImages={"enabled": True})
    shop["odd/ name%"].insert_one({"_id": bson.Int64(1), "x": bson.Regex("a", "i")})
    client.shop.command("createRole", "seller", privileges=[], roles=["read"])
    client.shop.command("createUser", "ann", pwd="pwd of ann", roles=["seller"])


def dump(client: Client, folder: Path) -> None:
    """All databases of users, in the format of mongodump, by the requests that it makes."""
    client.admin.command("ping")
    assert client.admin.command({"getParameter": 1, "authSchemaVersion": 1})["authSchemaVersion"] == 5
    for name in client.list_database_names():
        if name in ("local", "config"):
            continue
        database = client[name]
        (folder / name).mkdir()
        for info in database.list_collections():
            if info["name"] == "system.views":
                continue
            stem = folder / name / info["name"].replace("%", "%25").replace("/", "%2F").replace(" ", "%20")
            is_view = info["type"] == "view"
            indexes = [] if is_view else list(database.get_collection(info["name"]).list_indexes())
            metadata = {"options": info["options"], "indexes": indexes, "collectionName": info["name"]}
            if not is_view:
                metadata["uuid"] = info["info"]["uuid"].hex()
                count = database[info["name"]].estimated_document_count()
                documents = list(database.get_collection(info["name"], codec_options=RAW).find())
                assert len(documents) == count
                stem.with_name(stem.name + ".bson").write_bytes(b"".join(map(bson.encode, documents)))
            text = json_util.dumps(metadata, json_options=json_util.CANONICAL_JSON_OPTIONS)
            stem.with_name(stem.name + ".metadata.json").write_text(text)


def described(client: Client, name: str) -> dict[str, Any]:
    database = client[name]
    return {
        "hash": database.command("dbHash")["md5"],
        "collections": sorted(
            (info["name"], info["type"], str(info["options"]), str(info.get("idIndex")))
            for info in database.list_collections()
        ),
        "indexes": {
            info["name"]: [dict(index) for index in database[info["name"]].list_indexes()]
            for info in database.list_collections()
            if info["type"] == "collection"
        },
    }


def test_a_dump_by_the_role_backup_is_loaded_byte_for_byte(guarded: mongottl.RunningServer, tmp_path: Path) -> None:
    with Client(guarded.uri) as client:
        fill(client)
        wanted = described(client, "shop")
    with as_user(guarded, "backup") as client:
        dump(client, tmp_path)
    with mongottl.start_server(load=str(tmp_path), auth=True) as server:
        with as_user(server, "root") as client:
            assert described(client, "shop") == wanted
            assert [document["n"] for document in client.shop.view.find()] == [0, 1, 2]
            assert client.shop.validate_collection("carts", full=True)["valid"]
        with Client(f"mongodb://ann:pwd%20of%20ann@127.0.0.1:{server.port}/shop") as client:
            assert client.shop.carts.count_documents({}) == 500


def test_a_dump_of_the_users_of_one_database(guarded: mongottl.RunningServer) -> None:
    with Client(guarded.uri) as client:
        fill(client)
    with as_user(guarded, "backup") as client:
        for name in ("system.users", "system.roles"):
            assert [document["db"] for document in client.admin[name].find({"db": "shop"})] == ["shop"]
        assert list(client.admin["system.version"].find()) == []


def test_a_restore_by_the_role_restore(guarded: mongottl.RunningServer) -> None:
    """Collections with their options and indexes, documents in bulks without validation, users and roles."""
    with Client(guarded.uri) as client:
        fill(client)
        wanted = described(client, "shop")
        infos = list(client.shop.list_collections())
        contents = {
            info["name"]: (
                list(client.shop.get_collection(info["name"], codec_options=RAW).find()),
                [dict(index) for index in client.shop[info["name"]].list_indexes()],
            )
            for info in infos
            if info["type"] == "collection"
        }
        users, roles = (list(client.admin[name].find({"db": "shop"})) for name in ("system.users", "system.roles"))
        client.drop_database("shop")
        client.shop.command("dropAllUsersFromDatabase")
        client.shop.command("dropAllRolesFromDatabase")
    with as_user(guarded, "restore") as client:
        for info in infos:
            if info["name"] != "system.views":
                client.shop.command({"create": info["name"], **info["options"]})
        for name, (documents, indexes) in contents.items():
            if name == "system.views":
                continue
            if documents:
                client.shop.command(
                    {"insert": name, "documents": documents, "ordered": False, "bypassDocumentValidation": True}
                )
            specs = [{**index, "ns": f"shop.{name}"} for index in indexes if index["name"] != "_id_"]
            specs = [index for index in specs if not index.get("clustered")]
            if specs:
                client.shop.command({"createIndexes": name, "indexes": specs, "ignoreUnknownIndexOptions": True})
        client.admin.tempusers.insert_many(users)
        client.admin.temproles.insert_many(roles)
        client.admin.command(
            {
                "_mergeAuthzCollections": 1,
                "tempUsersCollection": "admin.tempusers",
                "tempRolesCollection": "admin.temproles",
                "drop": True,
                "db": "shop",
                "writeConcern": {"w": "majority"},
            }
        )
        client.admin.tempusers.drop()
        client.admin.temproles.drop()
    with Client(guarded.uri) as client:
        assert described(client, "shop") == wanted
        assert len(client.admin.command("usersInfo", {"forAllDBs": True})["users"]) == 5
    with Client(f"mongodb://ann:pwd%20of%20ann@127.0.0.1:{guarded.port}/shop") as client:
        assert client.shop.carts.count_documents({}) == 500


def names(client: Client) -> list[str]:
    return sorted(user["_id"] for user in client.admin.command("usersInfo", {"forAllDBs": True})["users"])


def test_merging_users(guarded: mongottl.RunningServer) -> None:
    with Client(guarded.uri) as client:
        client.shop.command("createUser", "ann", pwd="s", roles=[], customData={"v": 1})
        client.bank.command("createUser", "bob", pwd="s", roles=[])
        [ann] = client.admin["system.users"].find({"user": "ann"})
        others = [name for name in names(client) if name.startswith("admin.")]
        temporary = client.admin.tempusers
        temporary.insert_many(
            [
                {**ann, "customData": {"v": 2}},
                {**ann, "_id": "shop.eve", "user": "eve"},
                {**ann, "_id": "else.eve", "user": "eve", "db": "else"},
            ]
        )
        merge = {"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers"}
        client.admin.command({**merge, "db": "shop", "drop": False})
        assert names(client) == [*others, "bank.bob", "shop.ann", "shop.eve"]
        assert client.shop.command("usersInfo", "ann")["users"][0]["customData"] == {"v": 2}
        temporary.delete_one({"_id": "shop.ann"})
        client.admin.command({**merge, "db": "shop", "drop": True})
        assert names(client) == [*others, "bank.bob", "shop.eve"]
        client.admin.command({**merge, "db": "", "drop": False})
        assert names(client) == [*others, "bank.bob", "else.eve", "shop.eve"]
        for wrong in ({"_id": "shop.x"}, {**ann, "_id": "x"}, {**ann, "roles": 5}, {**ann, "credentials": 5}):
            temporary.delete_many({})
            temporary.insert_one(wrong)
            with pytest.raises(OperationFailure) as caught:
                client.admin.command({**merge, "drop": True})
            assert caught.value.code == 2
        assert names(client) == [*others, "bank.bob", "else.eve", "shop.eve"]
        with pytest.raises(OperationFailure, match="Must provide at least one"):
            client.admin.command({"_mergeAuthzCollections": 1})
        for namespace in ("shop.tempusers", "admin.system.users", "tempusers"):
            with pytest.raises(OperationFailure):
                client.admin.command({"_mergeAuthzCollections": 1, "tempUsersCollection": namespace})
        client.admin.command("createUser", "owner", pwd="s", roles=[{"role": "userAdmin", "db": "shop"}])
    # Users of one database may have roles of any, so who manages only that may not merge them.
    for name in ("readWriteAnyDatabase", "owner"):
        with as_user(guarded, name) as client, pytest.raises(OperationFailure, match="not authorized"):
            client.admin.command({**merge, "db": "shop"})


def test_requests_of_database_tools_for_buckets_are_refused_by_name() -> None:
    with mongottl.start_server() as server, Client(server.uri) as client:
        client.shop.create_collection("series", timeseries={"timeField": "t"})
        client.shop.series.insert_one({"t": datetime(2026, 1, 1, tzinfo=UTC)})
        # A dump of a time series collection would have no measurements.
        assert list(client.shop.list_collections(filter={"name": "system.buckets.series"})) == []
        buckets = client.shop["system.buckets.series"]
        for request in (buckets.estimated_document_count, buckets.find_one, lambda: buckets.insert_one({})):
            with pytest.raises(OperationFailure, match=r"has no buckets here: .*mongoexport and mongoimport"):
                request()


def test_the_oplog_of_a_dump(guarded: mongottl.RunningServer) -> None:
    """mongodump --oplog: the entries from the newest before the dump to the newest after it."""
    with Client(guarded.uri) as root, as_user(guarded, "backup") as client:
        oplog = client.local["oplog.rs"]
        assert "oplog.rs" in client.local.list_collection_names()
        first = oplog.find_one({}, sort=[("$natural", -1)])
        assert first is not None
        root.shop.carts.insert_many([{"_id": n} for n in range(10)])
        last = oplog.find_one({}, sort=[("$natural", -1)])
        assert last is not None
        between = list(oplog.find({"ts": {"$gte": first["ts"], "$lte": last["ts"]}}))
        assert between[0] == first
        assert [change["o"]["_id"] for change in between[-1]["o"]["applyOps"]] == list(range(10))
        oldest = oplog.find_one({}, sort=[("$natural", 1)])
        assert oldest is not None and oldest["ts"] <= first["ts"]
