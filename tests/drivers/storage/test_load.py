"""`--load`: what a server has after its start, and that a fault in any file leaves nothing behind."""

import gzip
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import json_util
from bson.objectid import ObjectId
from pymongo.errors import DuplicateKeyError, OperationFailure

import mongottl
from mongottl.dump.errors import DumpError
from mongottl.storage.data_folder import DATABASE_NAME
from tests.children import ended_after
from tests.on_nodes import own_figures
from tests.waiting import PATIENCE_S

Client = pymongo.MongoClient[dict[str, Any]]


def write(folder: Path, name: str, *documents: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
    """Writes documents in the format that the name says; metadata as mongodump does, beside them."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if ".bson" in name:
        data = b"".join(map(bson.encode, documents))
    elif name.endswith(".json") and len(documents) > 1:
        data = json_util.dumps(documents).encode()
    else:
        data = "".join(json_util.dumps(document) + "\n" for document in documents).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    if metadata is not None:
        text = json_util.dumps(metadata, json_options=json_util.CANONICAL_JSON_OPTIONS).encode()
        stem = path.name.partition(".")[0]
        if name.endswith(".gz"):
            (path.parent / f"{stem}.metadata.json.gz").write_bytes(gzip.compress(text))
        else:
            (path.parent / f"{stem}.metadata.json").write_bytes(text)


def test_documents_of_all_formats(tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    oid = ObjectId()
    write(tmp_path, "shop/a.bson", {"_id": oid, "at": now})
    write(tmp_path, "shop/b.bson.gz", {"_id": 1}, {"_id": 2})
    write(tmp_path, "shop/c.json", {"_id": 1}, {"_id": 2})
    write(tmp_path, "shop/d.jsonl", {"_id": oid, "at": now}, {"x": 1})
    write(tmp_path, "shop/e.ndjson.gz", {"_id": 1, "n": bson.Int64(2**40)})
    write(tmp_path, "f.json", {"_id": 1})
    with mongottl.start_server(load=str(tmp_path)) as server, Client(server.uri, tz_aware=True) as client:
        shop = client.shop
        assert shop.list_collection_names() and client.list_database_names() == [
            "admin",
            "config",
            "local",
            "shop",
            "test",
        ]
        assert shop.a.find_one() == {"_id": oid, "at": now}
        assert list(shop.b.find()) == list(shop.c.find()) == [{"_id": 1}, {"_id": 2}]
        first, second = shop.d.find()
        assert first == {"_id": oid, "at": now}
        assert isinstance(second["_id"], ObjectId)
        assert shop.e.find_one() == {"_id": 1, "n": 2**40}
        assert client.test.f.count_documents({}) == 1
        with pytest.raises(DuplicateKeyError):
            shop.b.insert_one({"_id": 2})
        shop.b.insert_one({"_id": 3})
        assert shop.b.count_documents({}) == 3


def test_empty_timestamps_stay_as_they_are_in_the_file(tmp_path: Path) -> None:
    empty = {"_id": 1, "at": bson.Timestamp(0, 0)}
    write(tmp_path, "shop/a.bson", empty)
    write(tmp_path, "shop/b.json", empty)
    with mongottl.start_server(load=str(tmp_path)) as server, Client(server.uri) as client:
        assert [client.shop[name].find_one() for name in "ab"] == [empty, empty]


def test_options_indexes_and_views_of_the_metadata(tmp_path: Path) -> None:
    indexes = [
        {"v": 2, "key": {"_id": 1}, "name": "_id_", "ns": "shop.a"},
        {"v": 2, "key": {"n": 1}, "name": "n_1", "unique": True},
        {"v": 2, "key": {"tags": -1, "s": 1}, "name": "tags", "sparse": True},
    ]
    write(
        tmp_path,
        "shop/a.bson",
        *({"_id": number, "n": number, "tags": ["a", "b"]} for number in range(1000)),
        metadata={"options": {}, "indexes": indexes, "uuid": "00", "collectionName": "a", "type": "collection"},
    )
    write(
        tmp_path,
        "shop/capped.bson",
        *({"_id": number} for number in range(20)),
        metadata={"options": {"capped": True, "size": 100_000, "max": 10}, "indexes": []},
    )
    write(tmp_path, "shop/empty.bson", metadata={"options": {"validator": {"x": 1}}, "indexes": []})
    write(tmp_path, "shop/old.bson", {"_id": 1}, metadata={"options": {"validator": {"x": 1}}, "indexes": []})
    write(tmp_path, "shop/series.json", {"t": datetime(2026, 1, 1), "m": 1, "x": 2.5})
    (tmp_path / "shop/series.metadata.json").write_text(
        '{"options": {"timeseries": {"timeField": "t", "metaField": "m", "granularity": "hours"}}, "indexes": []}'
    )
    (tmp_path / "shop/clustered.metadata.json").write_text(
        '{"options": {"clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "k", "unique": true}},'
        ' "indexes": [{"v": 2, "key": {"_id": 1}, "name": "k", "unique": true, "clustered": true}]}'
    )
    (tmp_path / "shop/av.metadata.json").write_text(
        '{"options": {"viewOn": "zv", "pipeline": [{"$limit": 2}]}, "indexes": [], "type": "view"}'
    )
    (tmp_path / "shop/zv.metadata.json").write_text(
        '{"options": {"viewOn": "a", "pipeline": [{"$match": {"n": {"$gt": 5}}}]}, "indexes": []}'
    )
    with mongottl.start_server(load=str(tmp_path)) as server, Client(server.uri) as client:
        shop = client.shop
        found = shop.a.index_information()
        assert list(found) == ["_id_", "n_1", "tags"]
        assert (found["n_1"]["unique"], found["tags"]["sparse"]) == (True, True)
        plan = shop.a.find({"tags": "a"}).explain()["queryPlanner"]["winningPlan"]
        assert (plan["inputStage"]["indexName"], plan["inputStage"]["isMultiKey"]) == ("tags", True)
        with pytest.raises(DuplicateKeyError):
            shop.a.insert_one({"n": 7})
        assert [document["_id"] for document in shop.capped.find()] == list(range(10, 20))
        assert shop.capped.options()["capped"] is True
        assert shop.old.count_documents({}) == 1  # older than its validator
        with pytest.raises(OperationFailure, match="validation"):
            shop.empty.insert_one({})
        assert shop.series.distinct("x") == [2.5]
        assert [document["n"] for document in shop.av.find()] == [6, 7]
        assert "clusteredIndex" in shop.clustered.options()
        for name in ("a", "capped", "old", "clustered"):
            assert shop.validate_collection(name, full=True)["valid"]


def test_indexes_without_collation_in_a_collection_with_one(tmp_path: Path) -> None:
    """In metadata, as in `listIndexes`, an index without collation compares bytes, whatever its collection does."""
    german = {"locale": "de", "strength": 1}
    indexes = [
        {"v": 2, "key": {"_id": 1}, "name": "_id_", "collation": german},
        {"v": 2, "key": {"a": 1}, "name": "a_1"},
        {"v": 2, "key": {"b": 1}, "name": "b_1", "collation": german},
        {"v": 2, "key": {"place": "2d"}, "name": "place_2d"},
    ]
    write(tmp_path, "shop/c.bson", {"_id": "a"}, metadata={"options": {"collation": german}, "indexes": indexes})
    with mongottl.start_server(load=str(tmp_path)) as server, Client(server.uri) as client:
        found = client.shop.c.index_information()
        assert [name for name, index in found.items() if "collation" in index] == ["_id_", "b_1"]
        assert list(found) == ["_id_", "a_1", "b_1", "place_2d"]


@own_figures
def test_time_to_live_begins_at_the_start(tmp_path: Path) -> None:
    write(
        tmp_path,
        "shop/carts.json",
        {"_id": 1, "_ts": 5},
        {"_id": 2, "ttl": 10},
        metadata={"indexes": [{"key": {"_ts": 1}, "name": "ttl", "expireAfterSeconds": 20}]},
    )
    with mongottl.start_server(load=str(tmp_path)) as server, Client(server.uri) as client:
        carts = client.shop.carts
        assert list(carts.find({"_id": 1})) == [{"_id": 1, "_ts": 5}]  # as with inserts, a field of one's own
        server.clock.advance(10)
        assert [document["_id"] for document in carts.find()] == [1]
        server.clock.advance(10)
        assert carts.count_documents({}) == 0
        status = client.admin.command("serverStatus")
        assert status["metrics"]["ttl"]["deletedDocuments"] == 2


def test_users_of_a_dump_can_log_in(tmp_path: Path) -> None:
    with mongottl.start_server(auth=True, user="root", password="s") as server, Client(server.uri) as client:
        client.shop.command("createRole", "r", privileges=[], roles=[])
        client.shop.command("createUser", "ann", pwd="s3", roles=["readWrite", "r"])
        for name in ("system.users", "system.roles"):
            write(tmp_path, f"admin/{name}.bson", *client.admin[name].find())
        write(tmp_path, "admin/system.version.bson", {"_id": "authSchema", "currentVersion": 5})
    with mongottl.start_server(auth=True, user="root", password="s", load=str(tmp_path)) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(f"mongodb://ann:s3@{address}/shop") as client:
            client.shop.a.insert_one({})
            with pytest.raises(OperationFailure, match="not authorized"):
                client.admin.a.insert_one({})
        with Client(server.uri) as client:  # the first user is the one of the dump
            assert client.admin.command("usersInfo")["users"]
            assert client.shop.command("rolesInfo", "r")["roles"]


def test_a_data_directory_keeps_what_was_loaded_and_is_not_loaded_again(tmp_path: Path) -> None:
    folder, data = tmp_path / "files", str(tmp_path / "data")
    write(folder, "shop/a.bson", *({"_id": number} for number in range(3000)))
    (folder / "shop/v.metadata.json").write_text('{"options": {"viewOn": "a", "pipeline": []}}')
    with mongottl.start_server(load=str(folder), data_dir=data) as server, Client(server.uri) as client:
        client.shop.a.delete_one({"_id": 7})
    write(folder, "shop/b.json", {"_id": 1})
    for _ in range(2):
        with (
            mongottl.start_server(load=str(folder), data_dir=data, quiet=False) as server,
            Client(server.uri) as client,
        ):
            assert (client.shop.a.count_documents({}), client.shop.v.count_documents({})) == (2999, 2999)
            assert client.shop.b.count_documents({}) == 1
            log = client.admin.command("getLog", "global")["log"]
            entries = [json.loads(line)["attr"] for line in log if '"Not loaded"' in line]
            assert "shop.a exists already" in [entry["why"] for entry in entries]
            assert client.shop.validate_collection("a", full=True)["valid"]
    with mongottl.start_server(data_dir=data) as server, Client(server.uri) as client:
        assert client.shop.a.count_documents({}) == 2999


FAULTS: dict[str, tuple[dict[str, str], str]] = {
    "no JSON": ({"shop/z.json": '{"_id": 1}\n{"_id": }'}, "z.json, line 2: Expecting value"),
    "no BSON": ({"shop/z.bson": "\x05\x00\x00\x00\x00\x07"}, "z.bson, byte 5: the file ends within a document"),
    "an _id twice": (
        {"shop/z.json": '{"_id": 1}\n{"_id": 2}\n{"_id": 1}'},
        "z.json, line 3: E11000 duplicate key error collection: shop.z",
    ),
    "a unique key twice": (
        {
            "shop/z.json": '{"n": 1}\n{"n": 1}',
            "shop/z.metadata.json": '{"indexes": [{"key": {"n": 1}, "name": "n_1", "unique": true}]}',
        },
        "z.json, line 2: E11000",
    ),
    "an _id of a wrong type": (
        {"shop/z.json": '{"_id": [1]}'},
        "z.json, line 1: can't use a value of type array for _id",
    ),
    "no index": (
        {"shop/z.metadata.json": '{"indexes": [{"key": {"n": "x"}, "name": "n"}]}'},
        "z.metadata.json: Error in specification",
    ),
    "no option": ({"shop/z.metadata.json": '{"options": {"cap": true}}'}, "z.metadata.json: BSON field 'create.cap'"),
    "no name": ({"shop/$z.json": "{}"}, "$z.json: Invalid collection name: $z"),
    "no database": ({"a b/z.json": "{}"}, "z.json: Invalid database name: 'a b'"),
    "databases that differ in case": ({"SHOP/z.json": "{}"}, "already exists with different case"),
    "a view of itself": (
        {
            "shop/v.metadata.json": '{"options": {"viewOn": "w", "pipeline": []}}',
            "shop/w.metadata.json": '{"options": {"viewOn": "v", "pipeline": []}}',
        },
        "w.metadata.json: View cycle detected",
    ),
    "a view with indexes": (
        {
            "shop/v.metadata.json": '{"options": {"viewOn": "w", "pipeline": []},'
            ' "indexes": [{"key": {"n": 1}, "name": "n_1"}]}'
        },
        "v.metadata.json: shop.v is a view, which has no indexes",
    ),
    "a view with documents": (
        {"shop/v.metadata.json": '{"options": {"viewOn": "w", "pipeline": []}}', "shop/v.json": "{}"},
        "v.json: shop.v is a view, which has no documents of its own",
    ),
    "not a file of ours": ({"shop/z.csv": ""}, "z.csv: neither .bson"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_stops_the_start_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    folder, data = tmp_path / "files", str(tmp_path / "data")
    write(folder, "shop/a.bson", *({"_id": number} for number in range(3000)))
    files, what = FAULTS[kind]
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode("latin-1"))
    for where in (None, data):
        with pytest.raises(DumpError) as caught:
            mongottl.start_server(load=str(folder), data_dir=where).__enter__()
        assert what in str(caught.value)
    with mongottl.start_server(data_dir=data) as server, Client(server.uri) as client:
        assert client.shop.list_collection_names() == []
        client.shop.a.insert_one({"_id": 1})


def test_large_documents_and_many_collections(tmp_path: Path) -> None:
    write(tmp_path, "d/large.bson", *({"_id": number, "s": "x" * 15_000_000} for number in range(3)))
    for number in range(150):
        write(tmp_path, f"d/c{number}.json", {"_id": number})
    with mongottl.start_server(load=str(tmp_path)) as server, Client(server.uri) as client:
        assert len(client.d.list_collection_names()) == 151
        assert [len(document["s"]) for document in client.d.large.find()] == [15_000_000] * 3


def test_the_dialect_cosmos_refuses_what_it_refuses(tmp_path: Path) -> None:
    write(tmp_path, "shop/a.json", {"_id": 1, "s": "x" * 3_000_000})
    with pytest.raises(DumpError, match=r"a\.json, line 1: .*size"):
        mongottl.start_server(load=str(tmp_path), dialect="cosmos").__enter__()
    write(tmp_path, "shop/a.json", {"_id": 1, "ttl": 5})
    with mongottl.start_server(load=str(tmp_path), dialect="cosmos") as server, Client(server.uri) as client:
        assert client.shop.a.find_one() == {"_id": 1, "ttl": 5}


COMMAND = [sys.executable, "-P", "-m", "mongottl", "--port", "0"]


def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    ended = subprocess.run([*COMMAND, "--load", str(tmp_path)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"{tmp_path}/a.json, line 1: " in ended.stderr
    ended = subprocess.run([*COMMAND, "--load", "/does/not/exist"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "cannot load /does/not/exist: there is no such folder" in ended.stderr


@pytest.mark.skipif(os.name != "posix", reason="a shell's limit on the size of files")
def test_a_disk_that_is_full_ends_the_loading(tmp_path: Path) -> None:
    write(tmp_path / "dump", "shop/big.json", *[{"_id": n, "s": "x" * 300} for n in range(5000)])
    command = [*COMMAND, "--data-dir", str(tmp_path / "data"), "--load", str(tmp_path / "dump")]
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -f 1000 && exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Cannot start" in ended.stderr and "disk" in ended.stderr and "Traceback" not in ended.stderr
    with mongottl.start_server(data_dir=tmp_path / "data") as server, Client(server.uri) as client:
        assert client.shop.list_collection_names() == []


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_signal_ends_the_loading(tmp_path: Path) -> None:
    """What was loaded so far is not there at the next start."""
    folder, data = tmp_path / "files", tmp_path / "data"
    # Many seconds' work, also compiled.
    (folder / "d").mkdir(parents=True)
    (folder / "d/a.json").write_text("".join(f'{{"_id": {number}}}\n' for number in range(1_000_000)))
    server = subprocess.Popen(
        [*COMMAND, "--load", str(folder), "--data-dir", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    log = data / f"{DATABASE_NAME}-wal"
    with ended_after(server):
        while not (log.exists() and log.stat().st_size > 10_000_000):
            assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        stdout, _ = server.communicate(timeout=PATIENCE_S)
    assert (server.returncode, stdout) == (0, "")
    with mongottl.start_server(data_dir=str(data)) as running, Client(running.uri) as client:
        assert client.d.list_collection_names() == []
