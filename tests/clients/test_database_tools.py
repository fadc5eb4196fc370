"""MongoDB's own database tools: what mongodump reads, mongorestore writes back byte for byte, in each of their forms.

The tools are built from their Go module. Where that cannot be done, those that are installed are used; a folder that
`MONGOTTL_DATABASE_TOOLS` names comes before both.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import (
    Binary,
    Code,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    json_util,
)
from bson.raw_bson import RawBSONDocument
from pymongo.operations import IndexModel

import mongottl
from mongottl.dump.errors import DumpError
from tests.clients.conftest import LIMIT_S, install_or_reason

pytestmark = pytest.mark.slow

Client = pymongo.MongoClient[dict[str, Any]]
RAW = bson.CodecOptions(document_class=RawBSONDocument)
FOLDER_VARIABLE = "MONGOTTL_DATABASE_TOOLS"


class Tools:
    """Runs the tools of a folder, or those that are installed."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else str(folder)

    def command(self, tool: str, server: mongottl.RunningServer | str, *arguments: str | Path) -> list[str]:
        found = shutil.which(tool, path=self._path)
        if found is None:
            pytest.skip(f"{tool} is not installed")
        uri = server if isinstance(server, str) else server.uri
        # Otherwise a user would be one of the database that the arguments name.
        users = ["--authenticationDatabase", "admin"] if "@" in uri else []
        return [found, "--uri", uri, *users, *map(str, arguments)]

    def ended(
        self, tool: str, server: mongottl.RunningServer | str, *arguments: str | Path, stdin: bytes = b""
    ) -> tuple[int, bytes, str]:
        """Exit status, standard output, standard error."""
        command = self.command(tool, server, *arguments)
        ended = subprocess.run(command, input=stdin, capture_output=True, timeout=LIMIT_S, check=False)
        return ended.returncode, ended.stdout, ended.stderr.decode()

    def run(
        self, tool: str, server: mongottl.RunningServer | str, *arguments: str | Path, stdin: bytes = b""
    ) -> tuple[bytes, str]:
        """Standard output and error of a tool that has to end well."""
        status, output, said = self.ended(tool, server, *arguments, stdin=stdin)
        assert status == 0, said
        return output, said


@pytest.fixture(scope="session")
def tools() -> Tools:
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        return Tools(Path(folder))
    built = install_or_reason("tools")
    if isinstance(built, Path):
        return Tools(built)
    if shutil.which("mongodump") is None:
        pytest.skip(f"mongodump is not installed, and {built}")
    return Tools(None)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[mongottl.RunningServer]:
    """The server that is restored to: it checks users, over TLS, and keeps its data on the disk."""
    settings: dict[str, Any] = {"tls_self_signed": True, "data_dir": str(tmp_path / "other")}
    with mongottl.start_server(auth=True, user="root", password="s€cret", **settings) as running:
        yield running


EVERY_TYPE = {
    "double": [1.5, -0.0, float("nan"), float("-inf")],
    "string": "ü\0x",
    "object": {"a": {"b": []}},
    "binary": [Binary(b"abc", 128), Binary(b"0" * 16, 4), Binary(b"x", 2), Binary(b"1" * 16, 3), Binary(b"\3\0a", 9)],
    "oid": ObjectId("0" * 24),
    "bool": True,
    "date": [datetime(1960, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    "null": None,
    "regex": Regex("a/b", "imsx"),
    "code": [Code("f()"), Code("g()", {"x": 1})],
    "int": [1, Int64(1), Int64(2**62)],
    "timestamp": [Timestamp(5, 6), Timestamp(0, 0)],
    "empty": Timestamp(0, 0),
    "decimal": [Decimal128("1.50E+3"), Decimal128("NaN"), Decimal128("-0")],
    "keys": [MinKey(), MaxKey()],
    "reference": DBRef("x", ObjectId("1" * 24), "db"),
}


def fill(client: Client) -> None:
    """A database `shop` with every kind of collection and index and every type, and a database `bank`."""
    shop = client.shop
    shop.carts.create_indexes(
        [
            IndexModel("n", unique=True),
            IndexModel([("tags", 1), ("s", -1)], name="tags", sparse=True),
            IndexModel({"text": "text"}, name="text", weights={"text": 3}, default_language="german"),
            IndexModel({"_ts": 1}, name="ttl", expireAfterSeconds=1000),
            IndexModel("at", expireAfterSeconds=3600, partialFilterExpression={"n": {"$gt": 5}}),
            IndexModel("s", name="german", collation={"locale": "de", "strength": 2}),
            IndexModel({"place": "2dsphere"}),
            IndexModel({"flat": "2d"}, bits=20),
            IndexModel({"s": "hashed"}),
            IndexModel({"$**": 1}, name="wild", wildcardProjection={"a": 1}),
            IndexModel("h", hidden=True),
        ]
    )
    shop.carts.insert_many(
        [
            {"_id": n, "n": n, "tags": ["a", n], "s": "ü", "text": "Birnen", "place": [n % 90, 1], "flat": [1, 2]}
            for n in range(300)
        ]
    )
    shop.carts.insert_one({"_id": "short", "n": -1, "ttl": 10})
    shop.create_collection("capped", capped=True, size=100_000, max=50)
    shop.capped.insert_many([{"_id": n} for n in range(9, 0, -1)])
    shop.checked.insert_one({"n": "refused by the validator"})
    shop.command("collMod", "checked", validator={"n": {"$gt": 1}}, validationLevel="moderate")
    shop.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=1000)
    shop.clustered.insert_one({"_id": datetime(2030, 1, 1, tzinfo=UTC)})
    shop.create_collection("view", viewOn="carts", pipeline=[{"$match": {"n": {"$lt": 3}}}])
    shop.create_collection("pre", changeStreamPreAndPostImages={"enabled": True})
    shop.create_collection("german", collation={"locale": "de", "strength": 1})
    shop.german.create_index("a", collation={"locale": "simple"})
    shop.german.create_index("b")
    shop.german.insert_one({"_id": "ä"})
    shop["odd/ näme%"].insert_one({"_id": Int64(1)})
    # As it is, also where the driver has no type for what is in it.
    shop.command({"insert": "types", "documents": [{"_id": 0, **EVERY_TYPE}], "bypassEmptyTsReplacement": True})
    client.bank.accounts.insert_many([{"_id": n, "text": "x" * 100_000} for n in range(30)])


def described(client: Client, *names: str) -> dict[str, Any]:
    """Options, indexes and documents of databases, these as their bytes; in the order of the collection if capped."""
    found: dict[str, Any] = {}
    for name in names:
        database = client[name]
        for info in database.list_collections():
            namespace = f"{name}.{info['name']}"
            found[namespace] = [info["type"], info["options"]]
            if info["type"] == "collection":
                collection = database.get_collection(info["name"], codec_options=RAW)
                documents = list(map(bson.encode, collection.find()))
                indexes = sorted(map(dict, database[info["name"]].list_indexes()), key=lambda index: str(index["name"]))
                found[namespace] += [indexes, documents if "capped" in info["options"] else sorted(documents)]
    return found


# Without this the documents that a validator refuses, of collections that got it later, are left out.
ALL_DOCUMENTS = "--bypassDocumentValidation"


@pytest.mark.parametrize("form", [[], ["--gzip"]], ids=["plain", "gzip"])
def test_a_dump_in_a_folder_is_restored_and_loaded(
    tools: Tools, own: mongottl.RunningServer, other: mongottl.RunningServer, tmp_path: Path, form: list[str]
) -> None:
    folder = tmp_path / "dump"
    with Client(own.uri) as client:
        fill(client)
        wanted = described(client, "shop", "bank")
    tools.run("mongodump", own, "--out", folder, *form)
    tools.run("mongorestore", other, ALL_DOCUMENTS, "--numParallelCollections=8", *form, folder)
    with Client(other.uri) as client:
        assert described(client, "shop", "bank") == wanted
        assert client.shop.validate_collection("carts", full=True)["valid"]
    with mongottl.start_server(load=str(folder)) as loaded, Client(loaded.uri) as client:
        assert described(client, "shop", "bank") == wanted


def test_an_archive_over_a_pipe(tools: Tools, own: mongottl.RunningServer, other: mongottl.RunningServer) -> None:
    with Client(own.uri) as client:
        fill(client)
        wanted = described(client, "shop", "bank")
    archive, _ = tools.run("mongodump", own, "--archive", "--gzip")
    tools.run("mongorestore", other, "--archive", "--gzip", ALL_DOCUMENTS, stdin=archive)
    with Client(other.uri) as client:
        assert described(client, "shop", "bank") == wanted
    _, said = tools.run("mongorestore", other, "--archive", "--gzip", ALL_DOCUMENTS, stdin=archive)
    assert "E11000" in said
    tools.run("mongorestore", other, "--archive", "--gzip", "--drop", ALL_DOCUMENTS, stdin=archive)
    with Client(other.uri) as client:
        assert described(client, "shop", "bank") == wanted


def test_the_uuids_of_collections_are_preserved(
    tools: Tools, own: mongottl.RunningServer, other: mongottl.RunningServer
) -> None:
    def uuids(client: Client) -> dict[str, Any]:
        return {info["name"]: info["info"].get("uuid") for info in client.shop.list_collections()}

    with Client(own.uri) as client:
        fill(client)
        wanted = described(client, "shop"), uuids(client)
    archive, _ = tools.run("mongodump", own, "--archive")
    preserving = ["--archive", "--preserveUUID", "--drop", ALL_DOCUMENTS]
    for _ in range(2):
        tools.run("mongorestore", other, *preserving, stdin=archive)
        with Client(other.uri) as client:
            found = described(client, "shop"), uuids(client)
            assert (found[0], {**found[1], "system.views": None}) == (wanted[0], {**wanted[1], "system.views": None})


def change_everything(client: Client) -> None:
    """Changes of documents, collections and indexes, in transactions, too."""
    shop = client.shop
    shop.carts.insert_many([{"_id": n, "n": n} for n in range(1000, 1010)])
    shop.carts.update_many({"n": {"$lt": 5}}, {"$set": {"tags.1": "x", "new": {"a": 1}}, "$unset": {"flat": 1}})
    shop.carts.update_one({"_id": 6}, {"$push": {"tags": {"$each": [7, 8], "$slice": -2}}})
    shop.carts.update_one({"_id": 7}, [{"$set": {"tags": ["y"], "s": Timestamp(0, 0)}}])
    shop.carts.replace_one({"_id": 8}, {"n": 8.5})
    shop.carts.delete_many({"n": {"$gte": 250, "$lt": 260}})
    shop.carts.update_one({"_id": "upserted"}, {"$set": {"n": 2000}}, upsert=True)
    shop.carts.drop_index("tags")
    shop.carts.create_indexes([IndexModel("one"), IndexModel("two", unique=True, sparse=True)])
    shop.command("collMod", "carts", index={"name": "ttl", "expireAfterSeconds": 2000})
    shop.command("collMod", "checked", validationAction="warn")
    shop.create_collection("made", capped=True, size=4096)
    shop.made.insert_many([{"_id": n} for n in range(10)])
    shop.made.create_index("n")
    # Without indexes of its own: mongorestore would create them under the old name.
    shop["odd/ näme%"].rename("renamed")
    shop.pre.drop()
    shop.types.rename("capped", dropTarget=True)
    shop.create_collection("later_view", viewOn="made")
    client.drop_database("bank")
    client.bank.accounts.insert_one({"_id": "new"})
    with client.start_session() as session, session.start_transaction():
        shop.carts.insert_one({"_id": "in a transaction", "n": 3000}, session=session)
        client.bank.other.insert_one({"_id": 1}, session=session)
        shop.carts.update_one({"_id": 9}, {"$inc": {"n": 0.5}}, session=session)


@pytest.mark.parametrize("made", ["before the changes", "after the changes"])
def test_the_oplog_is_replayed(
    tools: Tools, own: mongottl.RunningServer, other: mongottl.RunningServer, tmp_path: Path, made: str
) -> None:
    """The changes that a dump lacks are made; those that it has already do no harm."""
    folder = tmp_path / "dump"
    with Client(own.uri) as client:
        fill(client)
        before = client.local["oplog.rs"].find_one(sort=[("$natural", -1)])
        assert before is not None
        if made == "before the changes":
            tools.run("mongodump", own, "--out", folder)
        change_everything(client)
        wanted = described(client, "shop", "bank")
    if made == "after the changes":
        tools.run("mongodump", own, "--out", folder)
    query = json_util.dumps({"ts": {"$gte": before["ts"]}})
    tools.run("mongodump", own, "-d", "local", "-c", "oplog.rs", "--query", query, "--out", tmp_path / "changes")
    shutil.move(tmp_path / "changes" / "local" / "oplog.rs.bson", folder / "oplog.bson")
    tools.run("mongorestore", other, "--oplogReplay", ALL_DOCUMENTS, folder)
    with Client(other.uri) as client:
        assert described(client, "shop", "bank") == wanted


def test_a_dump_with_its_oplog_is_of_one_moment(
    tools: Tools, own: mongottl.RunningServer, other: mongottl.RunningServer
) -> None:
    """A client writes to collections in turn; a dump that was made meanwhile has as much of each."""
    ended = threading.Event()

    def write() -> None:
        with Client(own.uri) as client:
            first, second, third = client.shop.first, client.shop.second, client.shop.third
            for number in itertools.count():
                if ended.is_set():
                    break
                first.insert_one({"_id": number})
                second.insert_one({"_id": number})
                first.update_one({"_id": number}, {"$set": {"updated": True}})
                third.insert_one({"_id": number})
                third.delete_one({"_id": number})

    with Client(own.uri) as client:
        fill(client)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        archive, _ = tools.run("mongodump", own, "--oplog", "--archive")
    finally:
        ended.set()
        writer.join()
    tools.run("mongorestore", other, "--archive", "--oplogReplay", ALL_DOCUMENTS, stdin=archive)
    with Client(other.uri) as client:
        first, second = ([document["_id"] for document in client.shop[name].find()] for name in ("first", "second"))
        assert (sorted(first), sorted(second)) == (list(range(len(first))), list(range(len(second))))
        assert len(first) - len(second) in (0, 1)
        assert len(second) - client.shop.first.count_documents({"updated": True}) in (0, 1)
        assert client.shop.third.count_documents({}) in (0, 1)


def test_one_database_one_collection_and_other_names(
    tools: Tools, own: mongottl.RunningServer, other: mongottl.RunningServer, tmp_path: Path
) -> None:
    folder = tmp_path / "dump"
    with Client(own.uri) as client:
        fill(client)
        wanted = described(client, "shop")
    tools.run("mongodump", own, "-d", "shop", "-c", "carts", "--query", '{"n": {"$lt": 5}}', "--out", folder)
    tools.run("mongorestore", other, "--nsInclude=shop.carts", "--nsFrom=shop.carts", "--nsTo=part.few", folder)
    with Client(other.uri) as client:
        assert sorted(document["n"] for document in client.part.few.find()) == [-1, 0, 1, 2, 3, 4]
    shutil.rmtree(folder)
    tools.run("mongodump", own, "-d", "shop", "--excludeCollection=capped", "--out", folder)
    renaming = ["--nsFrom=shop.*", "--nsTo=copy.*", "--numInsertionWorkersPerCollection=4"]
    tools.run("mongorestore", other, *renaming, ALL_DOCUMENTS, folder)
    del wanted["shop.capped"]
    with Client(other.uri) as client:
        found = {name.replace("copy.", "shop.", 1): what for name, what in described(client, "copy").items()}
    for each in (found, wanted):
        del each["shop.system.views"]  # whose `_id` has the name of the database
    assert found == wanted


def as_user(server: mongottl.RunningServer, name: str) -> str:
    """A server's URI, for another user."""
    return re.sub("//[^@]*@", f"//{name}:p@", server.uri)


def test_users_and_roles(tools: Tools, guarded: mongottl.RunningServer, tmp_path: Path) -> None:
    """Of the whole server, and of one database, by users with the roles that are meant for it."""

    def works(server: mongottl.RunningServer) -> bool:
        with Client(as_user(server, "ann"), authSource="shop") as client:
            return client.shop.carts.find_one() == {"_id": 1}

    with mongottl.start_server(auth=True, user="owner", password="s") as source:
        for server in (source, guarded):
            with Client(server.uri) as client:
                for role in ("backup", "restore"):
                    client.admin.command("createUser", role, pwd="p", roles=[role])
        with Client(source.uri) as client:
            client.shop.carts.insert_one({"_id": 1})
            client.shop.command("createRole", "seller", privileges=[], roles=["read"])
            client.shop.command("createUser", "ann", pwd="p", roles=["seller"])
        tools.run("mongodump", as_user(source, "backup"), "--out", tmp_path / "all")
        only = ["-d", "shop", "--dumpDbUsersAndRoles"]
        tools.run("mongodump", as_user(source, "backup"), *only, "--out", tmp_path / "one")
    restore = as_user(guarded, "restore")
    tools.run("mongorestore", restore, tmp_path / "all")
    assert works(guarded)
    with Client(guarded.uri) as client:
        client.drop_database("shop")
        client.shop.command("dropAllUsersFromDatabase")
        client.shop.command("dropAllRolesFromDatabase")
    tools.run("mongorestore", restore, "-d", "shop", "--restoreDbUsersAndRoles", tmp_path / "one" / "shop")
    assert works(guarded)
    with mongottl.start_server(load=str(tmp_path / "all"), auth=True, user="other", password="s") as loaded:
        assert works(loaded)
    with pytest.raises(DumpError, match="users and roles of a single database are not loaded; mongorestore restores"):
        mongottl.start_server(load=str(tmp_path / "one")).start()


def test_restored_documents_begin_to_live_when_they_are_restored(
    tools: Tools, own: mongottl.RunningServer, tmp_path: Path
) -> None:
    with Client(own.uri) as client:
        fill(client)
        own.clock.advance(9)
        tools.run("mongodump", own, "--out", tmp_path)
        own.clock.advance(990)
        assert client.shop.carts.count_documents({}) == 300
        tools.run("mongorestore", own, "--drop", ALL_DOCUMENTS, tmp_path)
        for seconds, left in ((9, 301), (1, 300), (989, 300), (1, 0)):
            own.clock.advance(seconds)
            assert client.shop.carts.count_documents({}) == left, seconds


def test_time_series_collections_are_refused_by_name(tools: Tools, own: mongottl.RunningServer, tmp_path: Path) -> None:
    """Here they have no buckets, which a dump would have. mongoexport and mongoimport copy their measurements."""
    with Client(own.uri) as client:
        shop = client.shop
        shop.create_collection("series", timeseries={"timeField": "at", "metaField": "from"})
        shop.series.insert_many([{"_id": n, "at": datetime(2026, 1, 1, n), "from": n % 2} for n in range(5)])
        measurements = list(shop.series.find())
        status, _, said = tools.ended("mongodump", own, "--out", tmp_path)
        assert status == 1 and "shop.series has no buckets here" in said and "mongoexport" in said
        exported, _ = tools.run("mongoexport", own, "-d", "shop", "-c", "series")
        shop.series.delete_many({"from": {"$in": [0, 1]}})
        tools.run("mongoimport", own, "-d", "shop", "-c", "series", "--maintainInsertionOrder", stdin=exported)
        assert list(shop.series.find()) == measurements


@pytest.mark.parametrize("form", ["canonical", "relaxed"])
@pytest.mark.parametrize("array", [[], ["--jsonArray"]], ids=["lines", "array"])
def test_json_is_exported_and_imported(
    tools: Tools,
    own: mongottl.RunningServer,
    other: mongottl.RunningServer,
    tmp_path: Path,
    form: str,
    array: list[str],
) -> None:
    folder = tmp_path / "files" / "shop"
    with Client(own.uri) as client:
        fill(client)
        # Go's NaN has other bits, and the relaxed form does not tell the types of numbers.
        left_out = {"double.2": 1} if form == "canonical" else {"int": 1, "double": 1}
        client.shop.types.update_one({}, {"$unset": left_out})
        wanted = described(client, "shop")
    for name in ("types", "carts", "capped"):
        where = ["-d", "shop", "-c", name]
        file = folder / f"{name}.json"
        tools.run("mongoexport", own, *where, f"--jsonFormat={form}", *array, "--out", file)
        order = ["--maintainInsertionOrder"] if name == "capped" else ["--numInsertionWorkers=3"]
        tools.run("mongoimport", other, *where, *array, *order, file)
        assert documents_of(other, name) == wanted[f"shop.{name}"][-1]
    with mongottl.start_server(load=str(tmp_path / "files")) as loaded:
        for name in ("types", "carts", "capped"):
            assert documents_of(loaded, name) == wanted[f"shop.{name}"][-1]


def documents_of(server: mongottl.RunningServer, name: str) -> list[bytes]:
    """The documents of a collection of `shop`, in its order if it is `capped`, else sorted."""
    with Client(server.uri) as client:
        documents = list(map(bson.encode, client.shop.get_collection(name, codec_options=RAW).find()))
    return documents if name == "capped" else sorted(documents)


def test_mongoexport_writes_the_requested_documents(tools: Tools, own: mongottl.RunningServer) -> None:
    with Client(own.uri) as client:
        fill(client)

    def exported(name: str, *arguments: str) -> list[str]:
        return tools.run("mongoexport", own, "-d", "shop", "-c", name, *arguments)[0].decode().splitlines()

    chosen = ["--query", '{"n": {"$gt": 290}}', "--sort", '{"n": -1}', "--skip=1", "--limit=2"]
    assert exported("carts", *chosen, "--fields=n,s") == ['{"_id":298,"n":298,"s":"ü"}', '{"_id":297,"n":297,"s":"ü"}']
    columns = ["--type=csv", "--fields=_id,s,tags,place.0"]
    assert exported("carts", *chosen, *columns) == [
        "_id,s,tags,place.0",
        '298,ü,"[""a"",298]",28',
        '297,ü,"[""a"",297]",27',
    ]
    assert len(exported("view")) == 4
    assert exported("missing") == []


IMPORTED = """\
_id.int32(),name.string(),at.date(2006-01-02),price.decimal(),known.boolean()
1,Ann,2020-01-02,1.50,true
2,Bob,2021-01-02,2,false
"""


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_columns_are_imported(tools: Tools, own: mongottl.RunningServer, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file"
    file.write_text(IMPORTED if kind == "csv" else IMPORTED.replace(",", "\t"))
    where = ["-d", "shop", "-c", "people", f"--type={kind}", "--headerline", "--columnsHaveTypes", "--drop"]
    for _ in range(2):
        tools.run("mongoimport", own, *where, file)
    with Client(own.uri) as client:
        # mongoimport decodes lines in several threads, whose documents come in any order.
        assert list(client.shop.people.find().sort("_id")) == [
            {"_id": 1, "name": "Ann", "at": datetime(2020, 1, 2), "price": Decimal128("1.50"), "known": True},
            {"_id": 2, "name": "Bob", "at": datetime(2021, 1, 2), "price": Decimal128("2"), "known": False},
        ]


def test_the_modes_of_an_import(tools: Tools, own: mongottl.RunningServer) -> None:
    lines = b'{"_id":1,"k":1,"b":{"c":2}}\n{"_id":2,"k":2,"at":{"$timestamp":{"t":0,"i":0}}}\n{"_id":3,"k":3}\n'
    where = ["-d", "shop", "-c", "things"]
    with Client(own.uri) as client:
        things = client.shop.things
        things.insert_one({"_id": 1, "k": 1, "other": 1})
        _, said = tools.run("mongoimport", own, *where, stdin=lines)
        assert "2 document(s) imported successfully. 1 document(s) failed to import" in said
        assert things.find_one({"_id": 2}) == {"_id": 2, "k": 2, "at": Timestamp(0, 0)}
        things.delete_many({"_id": {"$gt": 1}})
        status, _, said = tools.ended("mongoimport", own, *where, "--maintainInsertionOrder", stdin=lines)
        assert status == 1 and "E11000" in said and things.count_documents({}) == 1
        tools.run("mongoimport", own, *where, "--mode=merge", stdin=lines)
        assert things.find_one({"_id": 1}) == {"_id": 1, "k": 1, "other": 1, "b": {"c": 2}}
        tools.run("mongoimport", own, *where, "--mode=upsert", stdin=lines)
        assert things.find_one({"_id": 1}) == {"_id": 1, "k": 1, "b": {"c": 2}}
        by_key = ["--mode=upsert", "--upsertFields=k"]
        tools.run("mongoimport", own, *where, *by_key, stdin=b'{"k":3,"new":true}\n{"k":4,"new":true}\n')
        assert [document.get("new") for document in things.find().sort("k")] == [None, None, True, True]
        tools.run("mongoimport", own, *where, "--mode=delete", stdin=lines)
        assert [document["k"] for document in things.find()] == [4]


def test_files_of_gridfs(tools: Tools, guarded: mongottl.RunningServer, tmp_path: Path) -> None:
    content = os.urandom(600_000)
    sent, received = tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(content)

    def listed() -> list[str]:
        return tools.run("mongofiles", guarded, "-d", "files", "list")[0].decode().split()

    def put(*options: str) -> None:
        tools.run("mongofiles", guarded, "-d", "files", "--local", sent, *options, "put", "a file")

    put()
    put("--replace")
    assert listed() == ["a", "file", "600000"]
    tools.run("mongofiles", guarded, "-d", "files", "--local", received, "get", "a file")
    assert received.read_bytes() == content
    tools.run("mongofiles", guarded, "-d", "files", "delete", "a file")
    assert listed() == []
    with Client(guarded.uri) as client:
        assert client.files["fs.chunks"].count_documents({}) == 0


def test_the_tools_that_watch_a_server(tools: Tools, guarded: mongottl.RunningServer) -> None:
    with Client(guarded.uri) as client:
        client.shop.carts.insert_many([{"_id": n} for n in range(10)])
    shown = json.loads(tools.run("mongostat", guarded, "-n", "1", "--json")[0])
    [figures] = shown.values()
    assert figures["set"] == "globaldb" and {"insert", "query", "conn", "res", "net_in"} <= set(figures)
    shown = json.loads(tools.run("mongotop", guarded, "-n", "1", "--json", "1")[0])
    assert "shop.carts" in shown["totals"]


def test_the_dialect_cosmos(tools: Tools, tmp_path: Path) -> None:
    """As with Cosmos DB: unique indexes are created before the documents are restored, and there is no oplog."""
    indexes = [IndexModel("_ts", name="ttl", expireAfterSeconds=1000), IndexModel("n", unique=True)]
    with mongottl.start_server(dialect="cosmos") as own, mongottl.start_server(dialect="cosmos") as other:
        with Client(own.uri) as client:
            client.shop.carts.create_indexes(indexes)
            client.shop.carts.insert_many([{"_id": n, "n": n, "ttl": 500} for n in range(50)])
            client.shop.create_collection("empty")
            wanted = described(client, "shop")
        tools.run("mongodump", own, "--out", tmp_path)
        status, _, said = tools.ended("mongorestore", other, tmp_path)
        assert status == 1 and "Cannot create unique index when collection contains documents" in said
        with Client(other.uri) as client:
            client.drop_database("shop")
            client.shop.carts.create_indexes(indexes)
            tools.run("mongorestore", other, tmp_path)
            assert described(client, "shop") == wanted
            other.clock.advance(500)
            assert client.shop.carts.count_documents({}) == 0
        status, _, said = tools.ended("mongodump", own, "--oplog", "--archive")
        assert status == 1 and "oplog" in said
        with mongottl.start_server(load=str(tmp_path), dialect="cosmos") as loaded, Client(loaded.uri) as client:
            assert described(client, "shop") == wanted


@pytest.mark.parametrize("version", ["4.4", "7.0"])
def test_servers_that_announce_an_older_version(tools: Tools, own: mongottl.RunningServer, version: str) -> None:
    """They do not know `bypassEmptyTsReplacement`: mongorestore puts empty timestamps back by update pipelines."""
    with Client(own.uri) as client:
        fill(client)
        client.shop.types.insert_many([{"_id": Timestamp(0, 0)}, {"_id": 2, "sub": {"empty": Timestamp(0, 0)}}])
        for name in ("clustered", "wild"):
            client.shop[name].drop()
        client.shop.carts.drop_index("wild")
        client.shop.command("collMod", "pre", changeStreamPreAndPostImages={"enabled": False})
        wanted = described(client, "shop", "bank")
    archive, _ = tools.run("mongodump", own, "--archive")
    with mongottl.start_server(server_version=version) as older:
        tools.run("mongorestore", older, "--archive", ALL_DOCUMENTS, stdin=archive)
        with Client(older.uri) as client:
            assert described(client, "shop", "bank") == wanted
