"""`mongottl copy`: the data of a folder in PostgreSQL, and back."""

import datetime
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.cli.copy import main
from tests import postgres
from tests.on_store import PREFIX, with_schema

Client = pymongo.MongoClient[dict[str, Any]]
DAY = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)

needs_postgresql = pytest.mark.skipif(bool(postgres.missing()), reason=postgres.missing())


@pytest.fixture
def client() -> None:
    """No server is shared here."""


@pytest.fixture
def clean() -> None:
    """No server is shared here."""


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    yield with_schema(PREFIX + hashlib.sha256(request.node.name.encode()).hexdigest()[:12])


def fill(client: Client) -> None:
    shop = client.shop
    shop.items.create_index("name", unique=True)
    shop.items.create_index([("tags", 1), ("n", -1)])
    shop.items.create_index("_ts", expireAfterSeconds=3600)
    shop.items.insert_many([{"_id": n, "name": f"item {n}", "n": n % 7, "tags": [n, n + 1]} for n in range(2500)])
    shop.items.delete_many({"n": 3})  # record ids with gaps
    shop.items.insert_one({"_id": "short", "name": "short", "ttl": 60})
    shop.items.insert_one({"_id": "ever", "name": "x" * 5000, "ttl": -1, "big": b"y" * 3_000_000})
    shop.create_collection("last", capped=True, size=100_000, max=3)
    shop.last.insert_many([{"_id": n} for n in range(5)])
    shop.create_collection("measured", timeseries={"timeField": "at", "metaField": "of"})
    shop.measured.insert_many([{"at": DAY, "of": n % 2, "v": n} for n in range(20)])
    shop.create_collection("seen", viewOn="items", pipeline=[{"$match": {"n": 1}}])
    shop.dated.create_index("until", expireAfterSeconds=0)
    shop.dated.insert_one({"until": DAY})
    client.admin.command("createUser", "ann", pwd="secret", roles=["readWriteAnyDatabase"])
    client.empty.create_collection("nothing")


def content(client: Client) -> dict[str, Any]:
    """What clients see of all databases."""
    found: dict[str, Any] = {}
    for database in ("shop", "empty"):
        for info in sorted(client[database].list_collections(), key=lambda info: str(info["name"])):
            collection = client[database][info["name"]]
            found[collection.full_name] = (
                info,
                sorted(collection.find({}, {"_id": 0} if info["type"] == "timeseries" else None), key=repr),
                [] if info["type"] == "view" else sorted(collection.index_information().items(), key=repr),
            )
    found["users"] = client.admin.command("usersInfo", 1)["users"]
    return found


def check(client: Client) -> None:
    for name in ("items", "last", "dated"):
        assert client.shop.validate_collection(name, full=True)["valid"]


@needs_postgresql
def test_a_folder_is_copied_to_postgresql_and_back(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with mongottl.start_server(data_dir=str(first)) as server, Client(server.uri) as client:
        fill(client)
        wanted = content(client)
        client.admin.command({"advanceClock": 30})
    assert main([str(first), store]) == 0
    printed = capsys.readouterr().out
    assert "shop.items: 2,145 documents, 4 indexes" in printed
    assert "in which nothing could write to the source" in printed
    with mongottl.start_server(store=store) as server, Client(server.uri) as client:
        assert content(client) == wanted
        check(client)
        # It goes on: unique keys, the order of a capped collection, the time that has passed.
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            client.shop.items.insert_one({"name": "item 5"})
        client.shop.items.insert_one({"_id": "later", "name": "later"})
        client.shop.last.insert_one({"_id": 9})
        assert [one["_id"] for one in client.shop.last.find()] == [3, 4, 9]
        client.admin.command({"advanceClock": 31})
        assert client.shop.items.find_one({"_id": "short"}) is None
        wanted = content(client)
    assert main([store, str(second)]) == 0
    with mongottl.start_server(data_dir=str(second)) as server, Client(server.uri) as client:
        assert content(client) == wanted
        check(client)
        client.admin.command({"advanceClock": 4000})
        assert [one["_id"] for one in client.shop.items.find()] == ["ever"]
    # Nothing is mixed with what is there.
    assert main([str(first), str(second)]) == 1
    assert "the target has collections; name one that is empty" in capsys.readouterr().err


def test_a_folder_without_data_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none"), str(tmp_path / "to")]) == 1
    assert capsys.readouterr().err == f"mongottl copy: {tmp_path / 'none'} has no data\n"
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "to").exists()


@needs_postgresql
def test_a_schema_without_data_is_not_made(tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main([store, str(tmp_path / "to")]) == 1
        assert "has no data; " in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


def test_a_folder_in_use_is_not_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mongottl.start_server(data_dir=str(tmp_path / "from")) as server, Client(server.uri) as client:
        client.shop.items.insert_one({})
        assert main([str(tmp_path / "from"), str(tmp_path / "to")]) == 1
    assert "in use" in capsys.readouterr().err


def test_an_interrupted_copy_is_as_if_it_had_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = str(tmp_path / "from"), str(tmp_path / "to")
    with mongottl.start_server(data_dir=source) as server, Client(server.uri) as client:
        client.shop.items.insert_many([{"_id": n} for n in range(10)])
        client.shop.more.insert_many([{"_id": n} for n in range(10)])

    def interrupted(collection: object, target: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("mongottl.offline.copy._copy_entries", lambda *given: interrupted(*given[:2]))
        assert main([source, target]) == 1
    with mongottl.start_server(data_dir=target) as server, Client(server.uri) as client:
        assert client.shop.list_collection_names() == []
    assert main([source, target]) == 0
    with mongottl.start_server(data_dir=target) as server, Client(server.uri) as client:
        assert client.shop.more.count_documents({}) == 10
