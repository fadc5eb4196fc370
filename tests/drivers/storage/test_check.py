"""`mongottl check`: data that servers leave behind is in order, and every kind of fault is found and named."""

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.operations import IndexModel
from pymongo.write_concern import WriteConcern

import mongottl
from mongottl.cli import main
from mongottl.offline.check import DataCheck
from mongottl.storage.errors import DataDirectoryError
from tests.children import ended_after

Client = pymongo.MongoClient[dict[str, Any]]
DATABASE = "mongottl.sqlite3"
PAGE = 4096


def fill(client: Client) -> None:
    """Collections and indexes of every kind."""
    shop = client.shop
    shop.carts.create_indexes(
        [
            IndexModel({"n": 1}, unique=True),
            IndexModel({"tags": 1, "s": -1}, name="tags"),
            IndexModel({"s": "hashed"}, name="hashed"),
            IndexModel({"text": "text"}, name="text"),
            IndexModel({"at": "2dsphere"}, name="at"),
            IndexModel({"w.$**": 1}, name="wild"),
            IndexModel({"n": -1}, name="some", partialFilterExpression={"n": {"$gt": 100}}),
            IndexModel({"_ts": 1}, name="ttl", expireAfterSeconds=100_000),
        ]
    )
    shop.carts.insert_many(
        [
            {
                "_id": number,
                "n": number,
                "tags": ["a", f"t{number % 7}"],
                "s": f"text number {number}",
                "text": "apples and pears",
                "at": [number % 90, number % 80],
                "w": {"x": number, "y": [number, {"z": 1}]},
                "ttl": number % 3 * 1000,
            }
            for number in range(1500)
        ]
    )
    shop.carts.update_many({"n": {"$gt": 1400}}, {"$set": {"tags": []}})
    shop.carts.delete_many({"n": {"$lt": 50}})
    shop.create_collection("capped", capped=True, size=4096)
    shop.capped.insert_many([{"x": "y" * 100} for _ in range(100)])
    shop.create_collection("view", viewOn="carts", pipeline=[{"$limit": 1}])
    shop.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    shop.clustered.insert_many([{"_id": number} for number in range(100)])
    shop.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    shop.series.insert_many([{"t": datetime(2026, 1, 1, tzinfo=UTC), "m": number} for number in range(10)])
    shop.large.insert_many([{"_id": number, "x": "x" * 300_000} for number in range(5)])
    client.admin.command("createUser", "ann", pwd="s", roles=["root"])
    with client.start_session() as session, session.start_transaction():
        shop.carts.insert_one({"_id": "t", "n": -1}, session=session)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that was stopped."""
    path = tmp_path_factory.mktemp("stopped") / "data"
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        fill(client)
    return path


def picture(path: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()}


def faults(path: Path) -> list[str]:
    return list(DataCheck(str(path)).faults())


def test_the_data_of_a_stopped_server_are_in_order(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = picture(stopped)
    assert main(["check", str(stopped)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{stopped}: 7 collections, 1,5")
    assert output.endswith("oplog entries: no fault\n")
    assert picture(stopped) == before


@pytest.mark.skipif(os.name != "posix", reason="kills the server")
def test_the_data_of_a_killed_server_are_in_order_and_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "data"
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "mongottl", "--port", "0", "--data-dir", str(path), "--quiet"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with ended_after(server):
        assert server.stdout is not None
        with Client(server.stdout.readline().split()[-1]) as client:
            fill(client)
            with pytest.raises(DataDirectoryError, match="is in use by another server"):
                faults(path)
    assert (path / f"{DATABASE}-wal").stat().st_size > 0
    for leave_shm in (True, False):
        if not leave_shm:
            (path / f"{DATABASE}-shm").unlink()
        before = picture(path)
        data = DataCheck(str(path))
        assert list(data.faults()) == []
        assert (data.collections, data.records > 1500) == (7, True)
        after = picture(path)
        before.pop(f"{DATABASE}-shm", None)
        assert leave_shm is (after.pop(f"{DATABASE}-shm", None) is not None)
        assert after == before


@pytest.fixture(scope="module")
def flushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that has ended without a chance to copy its log, which it has noted to be on disk."""
    path = tmp_path_factory.mktemp("killed") / "data"
    with mongottl.start_server(data_dir=str(path)) as server, Client(server.uri) as client:
        for number in range(50):
            client.shop.carts.insert_one({"_id": number})
        client.shop.get_collection("carts", write_concern=WriteConcern(j=True)).insert_one({})
        return Path(shutil.copytree(path, path.with_name("copy")))


@pytest.fixture(scope="module")
def killed(flushed: Path) -> Path:
    """The same without the note, as after a power failure."""
    path = Path(shutil.copytree(flushed, flushed.with_name("unnoted")))
    (path / "mongottl.durable").unlink()
    return path


def warnings_at_start(path: Path) -> str:
    with mongottl.start_server(data_dir=str(path), frozen=False) as server, Client(server.uri) as client:
        return "".join(client.admin.command("getLog", "startupWarnings")["log"])


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_byte_in_the_log_that_cuts_off_commits(
    killed: Path, tmp_path: Path, part: float, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied(killed, tmp_path)
    log = (path / f"{DATABASE}-wal").read_bytes()
    place = int(len(log) * part)
    overwrite(path, place, bytes([log[place] ^ 1]), f"{DATABASE}-wal")
    found = faults(path)
    assert len(found) == 1 and "later commits are lost" in found[0], found
    backup = tmp_path / "backup"
    assert main(["backup", str(path), str(backup)]) == 3
    error = capsys.readouterr().err
    assert error == f"mongottl backup: {backup} is incomplete, as a server started with {path} would be: {found[0]}\n"
    assert faults(backup) == []
    assert "Commits are lost" in warnings_at_start(path)
    assert faults(path) == []
    assert warnings_at_start(path) == ""


def test_a_byte_in_the_header_of_the_log(killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied(killed, tmp_path)
    overwrite(path, 17, b"\xff", f"{DATABASE}-wal")
    assert "log: its header is damaged, so all commits in it are lost" in faults(path)
    assert main(["backup", str(path), str(tmp_path / "backup")]) == 3
    assert "all commits in it are lost" in capsys.readouterr().err


def cut(path: Path) -> None:
    log = path / f"{DATABASE}-wal"
    os.truncate(log, log.stat().st_size - 5 * (PAGE + 24))


def remove_log(path: Path) -> None:
    (path / f"{DATABASE}-wal").unlink()


def empty_log(path: Path) -> None:
    os.truncate(path / f"{DATABASE}-wal", 0)


def change_the_last_commit(path: Path) -> None:
    overwrite(path, (path / f"{DATABASE}-wal").stat().st_size - 1, b"\xee", f"{DATABASE}-wal")


def change_the_header(path: Path) -> None:
    overwrite(path, 17, b"\xff", f"{DATABASE}-wal")


@pytest.mark.parametrize(
    "act", [cut, remove_log, empty_log, change_the_last_commit, change_the_header], ids=lambda act: act.__name__
)
def test_commits_that_were_acknowledged_are_not_lost_silently(
    flushed: Path, tmp_path: Path, act: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied(flushed, tmp_path)
    assert faults(path) == []
    act(path)
    told = "acknowledged as durable"
    assert any(told in fault for fault in faults(path))
    before = picture(path)
    with pytest.raises(DataDirectoryError, match=f"{told} cannot be read: .* Restore a backup"):
        mongottl.start_server(data_dir=str(path)).start()
    before.pop(f"{DATABASE}-shm", None)
    after = picture(path)
    after.pop(f"{DATABASE}-shm", None)
    assert after == before
    assert main(["backup", str(path), str(tmp_path / "backup")]) == 3
    assert told in capsys.readouterr().err
    (path / "mongottl.durable").unlink()
    warnings_at_start(path)
    assert faults(path) == []


def test_a_log_that_was_begun_anew_has_lost_nothing(flushed: Path, tmp_path: Path) -> None:
    """The note is then of the log before."""
    path = copied(flushed, tmp_path)
    raw = sqlite3.connect(path / DATABASE)
    raw.execute("PRAGMA wal_checkpoint(RESTART)")
    raw.execute("CREATE TABLE some (x)")
    raw.execute("DROP TABLE some")
    raw.commit()
    shutil.copytree(path, tmp_path / "killed")
    raw.close()
    assert faults(tmp_path / "killed") == []
    assert warnings_at_start(tmp_path / "killed") == ""


def test_a_log_that_ends_within_a_commit_is_in_order(killed: Path, tmp_path: Path) -> None:
    path = copied(killed, tmp_path)
    log = (path / f"{DATABASE}-wal").read_bytes()
    for cut in (1, 4096, 4096 + 24, 5000, 9000):
        (path / f"{DATABASE}-wal").write_bytes(log[:-cut])
        assert faults(path) == []
        (path / f"{DATABASE}-wal").write_bytes(log[:-cut] + bytes(cut))
        assert faults(path) == []


def test_idents_that_the_next_start_removes_are_no_faults(stopped: Path, tmp_path: Path) -> None:
    path = copied(stopped, tmp_path)
    change(
        path, "UPDATE catalog SET value = value", "DELETE FROM catalog WHERE key = ?", (number_of(path, "shop.capped"),)
    )
    data = DataCheck(str(path))
    assert list(data.faults()) == []
    removed = "belongs to no collection; the next start of the server removes it"
    documents, index = data.notes
    assert re.fullmatch(rf"collection_\d+, with \d\d documents, {removed}", documents)
    assert re.fullmatch(rf"index_\d+ {removed}", index)


# Faults made on purpose.


def copied(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def change(path: Path, *statements: Any) -> None:
    """Executes statements, each followed by its parameters or not."""
    raw = sqlite3.connect(path / DATABASE)
    position = 0
    while position < len(statements):
        parameters: tuple[object, ...] = ()
        if position + 1 < len(statements) and isinstance(statements[position + 1], tuple):
            parameters = statements[position + 1]
        raw.execute(statements[position], parameters)
        position += 2 if parameters else 1
    raw.commit()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()


def rows(path: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    raw = sqlite3.connect(path / DATABASE)
    try:
        return raw.execute(sql, parameters).fetchall()
    finally:
        raw.close()


def entry_of(path: Path, namespace: str) -> tuple[str, dict[str, Any]]:
    for key, value in rows(path, "SELECT key, value FROM catalog"):
        if key.isdigit() and bson.decode(value)["ns"] == namespace:
            return key, bson.decode(value)
    raise KeyError(namespace)


def number_of(path: Path, namespace: str) -> str:
    return entry_of(path, namespace)[0]


def table(path: Path, namespace: str, index: str = "") -> str:
    key, entry = entry_of(path, namespace)
    ident = f"collection_{key}"
    if index:
        [ident] = [item["ident"] for item in entry["indexes"] if item["spec"]["name"] == index]
    [(store_id,)] = rows(path, "SELECT id FROM stores WHERE ident = ?", ident)
    return f"{'k' if index else 'r'}{store_id}"


def put_entry(path: Path, key: str, entry: dict[str, Any]) -> None:
    change(path, "UPDATE catalog SET value = ? WHERE key = ?", (bson.encode(entry), key))


def delete_an_entry(path: Path) -> str:
    change(path, f"DELETE FROM {table(path, 'shop.carts', 'n_1')} WHERE rid = 77")
    return "shop.carts, index n_1, record 77: _id 76: its entry is missing"


def add_an_entry(path: Path) -> str:
    change(path, f"INSERT INTO {table(path, 'shop.carts', 'tags')} VALUES (x'3000', 77)")
    return "shop.carts, index tags, record 77: _id 76: there is an entry that it should not have"


def add_an_entry_of_no_record(path: Path) -> str:
    change(path, f"INSERT INTO {table(path, 'shop.carts', 'tags')} VALUES (x'3000', 7777)")
    return "shop.carts, index tags, record 7777: there is an entry, but no such record"


def change_an_indexed_value(path: Path) -> str:
    name = table(path, "shop.carts")
    [(document,)] = rows(path, f"SELECT doc FROM {name} WHERE rid = 77")
    changed = document.replace(b"text number 76", b"text number 67")
    change(path, f"UPDATE {name} SET doc = ? WHERE rid = 77", (changed,))
    return "shop.carts, index hashed, record 77: _id 76: its entry is missing"


def break_a_document(path: Path) -> str:
    name = table(path, "shop.carts")
    change(path, f"UPDATE {name} SET doc = ? WHERE rid = 77", (b"\x07\0\0\0\x77a\0",))
    return "shop.carts, record 77: no valid document: "


def delete_a_record(path: Path) -> str:
    change(path, f"DELETE FROM {table(path, 'shop.large')} WHERE rid = 3")
    return "shop.large, index _id_, record 3: there is an entry, but no such record"


def change_the_number_of_records(path: Path) -> str:
    key = number_of(path, "shop.large")
    change(path, "UPDATE stores SET record_count = 77 WHERE ident = ?", (f"collection_{key}",))
    return "shop.large: its counter says 77 records, but there are 5"


def change_the_bytes(path: Path) -> str:
    key = number_of(path, "shop.large")
    change(path, "UPDATE stores SET size_bytes = 0 WHERE ident = ?", (f"collection_{key}",))
    return "shop.large: its counter says 0 bytes of documents, but there are 150"


def change_the_next_id(path: Path) -> str:
    key = number_of(path, "shop.large")
    change(path, "UPDATE stores SET next_record_id = 5 WHERE ident = ?", (f"collection_{key}",))
    return "shop.large: the next record id, 5, is not behind the last one, 5"


def change_a_ttl(path: Path) -> str:
    change(path, f"UPDATE {table(path, 'shop.carts')} SET ttl = 5 WHERE rid = 77")
    return "shop.carts, record 77: _id 76: the expiry index has ttl 5, the document says 1000"


def drop_an_expiry_index(path: Path) -> str:
    change(path, f"DROP INDEX {table(path, 'shop.carts')}_own")
    return "shop.carts: its index of `_ts` and `ttl` is missing"


def empty_an_expiry_index(path: Path) -> str:
    """Puts the entries of another table's index in its place."""
    name = table(path, "shop.carts")
    [(page,)] = rows(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", f"{table(path, 'shop.large')}_default")
    raw = sqlite3.connect(path / DATABASE)
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = ?", (page, f"{name}_default"))
    raw.commit()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    return "shop.carts: its index of `_ts`"


def drop_a_table(path: Path) -> str:
    change(path, f"DROP TABLE {table(path, 'shop.carts', 'hashed')}")
    return "shop.carts, index hashed: its table is missing"


def drop_a_store(path: Path) -> str:
    _, entry = entry_of(path, "shop.carts")
    [ident] = [item["ident"] for item in entry["indexes"] if item["spec"]["name"] == "wild"]
    change(path, "DELETE FROM stores WHERE ident = ?", (ident,))
    return "catalog: shop.carts, index wild has a store that is missing"


def give_two_the_same_name(path: Path) -> str:
    key, entry = entry_of(path, "shop.large")
    put_entry(path, key, {**entry, "ns": "shop.carts"})
    return "catalog: two collections are called shop.carts"


def give_two_the_same_store(path: Path) -> str:
    key, entry = entry_of(path, "shop.carts")
    indexes = {item["spec"]["name"]: item for item in entry["indexes"]}
    indexes["tags"]["ident"] = indexes["hashed"]["ident"]
    put_entry(path, key, entry)
    return "catalog: shop.carts, index "


def forget_a_multikey_path(path: Path) -> str:
    key, entry = entry_of(path, "shop.carts")
    for item in entry["indexes"]:
        item["multikeyPaths"] = []
    put_entry(path, key, entry)
    return "the catalog does not know its arrays or types in index "


def break_an_entry_of_the_catalog(path: Path) -> str:
    key = number_of(path, "shop.large")
    change(path, "UPDATE catalog SET value = substr(value, 1, 40) WHERE key = ?", (key,))
    return f"catalog, entry {key}: no valid document: "


def take_an_index_from_the_catalog(path: Path) -> str:
    key, entry = entry_of(path, "shop.carts")
    entry["indexes"][1]["spec"] = {"v": 2, "key": {"n": 1}}
    put_entry(path, key, entry)
    return "catalog, shop.carts: the index at place 1 has no name"


def make_an_index_not_unique(path: Path) -> str:
    key, entry = entry_of(path, "shop.carts")
    del entry["indexes"][1]["spec"]["unique"]
    put_entry(path, key, entry)
    return f"catalog, entry {key}: ValueError: "


def break_a_view(path: Path) -> str:
    name = table(path, "shop.system.views")
    [(document,)] = rows(path, f"SELECT doc FROM {name}")
    change(path, f"UPDATE {name} SET doc = ?", (document.replace(b"viewOn", b"viewIn"),))
    return "shop.system.views, record 1: found invalid view definition"


def oplog_table(path: Path) -> str:
    [(store_id,)] = rows(path, "SELECT id FROM stores WHERE ident = 'oplog-0'")
    return f"r{store_id}"


def delete_an_oplog_entry(path: Path) -> str:
    change(path, f"DELETE FROM {oplog_table(path)} WHERE rid = 7")
    return "oplog: entries 6 to 6 are missing in oplog-0"


def break_an_oplog_entry(path: Path) -> str:
    change(path, f"UPDATE {oplog_table(path)} SET doc = ? WHERE rid = 7", (bson.encode({"k": 1}),))
    return "oplog, entry 6: it cannot be read: "


def swap_oplog_entries(path: Path) -> str:
    name = oplog_table(path)
    [(document,)] = rows(path, f"SELECT doc FROM {name} WHERE rid = 4")
    change(path, f"UPDATE {name} SET doc = ? WHERE rid = 7", (document,))
    return "oplog, entry 6: its time "


def forget_the_oplog(path: Path) -> str:
    change(path, "DELETE FROM catalog WHERE key = 'oplog'")
    return "oplog: there are segments, but the catalog does not know the oplog"


def pages_of(path: Path, name: str) -> list[int]:
    """The pages of a table, by their places in the file."""
    raw = sqlite3.connect(path / DATABASE)
    try:
        return [row[0] for row in raw.execute("SELECT pageno FROM dbstat WHERE name = ?", (name,))]
    except sqlite3.OperationalError:
        return [row[0] for row in raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,))]
    finally:
        raw.close()


def overwrite(path: Path, offset: int, data: bytes, name: str = DATABASE) -> None:
    with (path / name).open("r+b") as file:
        file.seek(offset)
        file.write(data)


def zero_a_page_of_a_collection(path: Path) -> str:
    overwrite(path, (pages_of(path, table(path, "shop.carts"))[-1] - 1) * PAGE, bytes(PAGE))
    return "(shop.carts)"


def zero_a_page_of_an_index(path: Path) -> str:
    overwrite(path, (pages_of(path, table(path, "shop.carts", "hashed"))[-1] - 1) * PAGE, bytes(PAGE))
    return "shop.carts, index hashed"


def zero_the_page_of_the_stores(path: Path) -> str:
    overwrite(path, (pages_of(path, "stores")[0] - 1) * PAGE, b"\xff" * PAGE)
    return "the list of the stores cannot be read: "


def zero_the_page_of_the_catalog(path: Path) -> str:
    overwrite(path, (pages_of(path, "catalog")[0] - 1) * PAGE, b"\xff" * PAGE)
    return "pages: table catalog (catalog): "


def flip_bits_of_a_cell(path: Path) -> str:
    """In the part of a page that says where its rows are."""
    page = (pages_of(path, table(path, "shop.large"))[0] - 1) * PAGE
    overwrite(path, page + 8, b"\xff\xff")
    return "(shop.large)"


def make_a_null(path: Path, name: str, column: str, condition: str) -> None:
    """Makes a value NULL where the table does not allow it, as a changed byte in the header of a row can."""
    [(sql,)] = rows(path, "SELECT sql FROM sqlite_schema WHERE name = ?", name)
    set_schema = "UPDATE sqlite_schema SET sql = ? WHERE name = ?"
    change(path, "PRAGMA writable_schema = ON", set_schema, (sql.replace(" NOT NULL", ""), name))
    change(path, f"UPDATE {name} SET {column} = NULL WHERE {condition}")
    change(path, "PRAGMA writable_schema = ON", set_schema, (sql, name))


def make_a_document_null(path: Path) -> str:
    make_a_null(path, table(path, "shop.carts"), "doc", "rid = 70")
    return "shop.carts: 1 values of doc have another type"


def make_a_ttl_null(path: Path) -> str:
    make_a_null(path, table(path, "shop.carts"), "ttl", "rid = 70")
    return "shop.carts: 1 values of ttl have another type"


def make_an_oplog_entry_null(path: Path) -> str:
    make_a_null(path, oplog_table(path), "doc", "rid = 2")
    return "1 values of doc have another type"


def make_a_counter_null(path: Path) -> str:
    make_a_null(path, "stores", "record_count", "id = 1")
    return "stores: 1 values of record_count have another type"


def make_a_text_of_an_entry_of_the_catalog(path: Path) -> str:
    change(path, "UPDATE catalog SET value = CAST(value AS TEXT) WHERE key = '1'")
    return "catalog: 1 values of value have another type"


def make_a_text_of_a_key(path: Path) -> str:
    change(path, f"UPDATE {table(path, 'shop.carts', 'hashed')} SET key = 'abc' WHERE rid = 90")
    return "shop.carts, index hashed: 1 values of key have another type"


def shorten_the_counters_of_the_oplog(path: Path) -> str:
    change(path, f"UPDATE {oplog_table(path)} SET counters = x'00' WHERE rid = 2")
    return "1 values of counters have another type"


FAULTS: list[Callable[[Path], str]] = [
    delete_an_entry,
    add_an_entry,
    add_an_entry_of_no_record,
    change_an_indexed_value,
    break_a_document,
    delete_a_record,
    change_the_number_of_records,
    change_the_bytes,
    change_the_next_id,
    change_a_ttl,
    drop_an_expiry_index,
    empty_an_expiry_index,
    drop_a_table,
    drop_a_store,
    give_two_the_same_name,
    give_two_the_same_store,
    forget_a_multikey_path,
    break_an_entry_of_the_catalog,
    take_an_index_from_the_catalog,
    make_an_index_not_unique,
    break_a_view,
    delete_an_oplog_entry,
    break_an_oplog_entry,
    swap_oplog_entries,
    forget_the_oplog,
    zero_a_page_of_a_collection,
    zero_a_page_of_an_index,
    zero_the_page_of_the_stores,
    zero_the_page_of_the_catalog,
    flip_bits_of_a_cell,
    make_a_document_null,
    make_a_ttl_null,
    make_an_oplog_entry_null,
    make_a_counter_null,
    make_a_text_of_an_entry_of_the_catalog,
    make_a_text_of_a_key,
    shorten_the_counters_of_the_oplog,
]


@pytest.mark.parametrize("make", FAULTS, ids=lambda make: make.__name__)
def test_a_fault_is_found_and_named(
    stopped: Path, tmp_path: Path, make: Callable[[Path], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied(stopped, tmp_path)
    wanted = make(path)
    before = picture(path)
    assert main(["check", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(wanted in line for line in lines), "\n".join(lines)
    number = len(lines) - 1 - sum(line.startswith("note: ") for line in lines)
    assert lines[-1].endswith(f": {number} fault" + "s" * (number > 1))
    assert picture(path) == before


def test_all_records_but_the_broken_one_are_checked(stopped: Path, tmp_path: Path) -> None:
    path = copied(stopped, tmp_path)
    for make in (delete_an_entry, change_a_ttl, delete_a_record, change_the_bytes):
        make(path)
    found = faults(path)
    assert len(found) == 6, found  # with a checksum, and the number of records of the collection that has lost one


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("empty", None, "holds no data of mongottl"),
        ("other", b"hello", "is damaged or not a database"),
    ],
)
def test_check_refuses_folders_that_are_no_data_directory(
    tmp_path: Path, name: str, data: bytes | None, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if data is not None:
        (tmp_path / DATABASE).write_bytes(data)
    assert main(["check", str(tmp_path)]) == 1
    assert what in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_truncated_database(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied(stopped, tmp_path)
    os.truncate(path / DATABASE, 10 * PAGE)
    assert main(["check", str(path)]) == 1
    assert "is damaged: 40960 bytes are left of" in capsys.readouterr().err
