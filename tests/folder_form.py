"""The form of a data folder, described in words that can be compared: what another version has to know to read it.

`python -m tests.folder_form` prints the description that `tests/conformance/folders` keeps of the present format.
"""

import json
import re
import sqlite3
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import bson
import pymongo

import mongottl
from tests.waiting import until

_DATABASE = "mongottl.sqlite3"
_RESERVE = "mongottl.reserve"
_NOW = "2026-01-01T12:00:00Z"
_PRAGMAS = ("application_id", "user_version", "encoding", "page_size", "auto_vacuum", "journal_mode")


def describe(folder: Path) -> dict[str, Any]:
    """The form of a folder in which a server stores one of each kind of what there is."""
    with (
        mongottl.start_server(data_dir=str(folder), now=_NOW, enable_test_commands=True) as server,
        pymongo.MongoClient[dict[str, Any]](server.uri) as client,
    ):
        # The time runs until its first use, and moving it would be stored: on a machine that takes a second, once more.
        if server.clock.now().replace(microsecond=0) != datetime.fromisoformat(_NOW):
            return describe(folder.with_name(f"{folder.name}-again"))
        shop = client.shop
        shop.create_collection("last", capped=True, size=4096, max=2)
        shop.create_collection("view", viewOn="things", pipeline=[{"$match": {"a": 1}}])
        shop.things.create_index([("a", 1), ("text", -1)], unique=True)
        shop.things.create_index("_ts", expireAfterSeconds=60)
        shop.things.insert_many([{"_id": 1, "a": 1, "text": "x"}, {"_id": 2.5, "a": [True, None], "ttl": 30}])
        shop.things.update_one({"_id": 1}, {"$set": {"a": 2}})
        shop["last"].insert_one({"_id": 1})
        client.admin.command("createUser", "ann", pwd="secret", roles=["root"], mechanisms=["SCRAM-SHA-256"])
        client.admin.command("fsync")
        until((folder / _RESERVE).exists)  # made beside everything else
        files = sorted(file.name for file in folder.iterdir())
    raw = sqlite3.connect(folder / _DATABASE)
    try:
        return {"files": files, **_described(raw)}
    finally:
        raw.close()


def _described(raw: sqlite3.Connection) -> dict[str, Any]:
    entries = {key: bson.decode(value) for key, value in raw.execute("SELECT key, value FROM catalog")}
    idents = dict(raw.execute("SELECT ident, id FROM stores"))
    collections = {value["ns"]: value for value in entries.values() if "ns" in value}
    things = collections["shop.things"]["number"]
    records = f"r{idents[f'collection_{things}']}"
    oplog = f"r{idents['oplog-0']}"
    definitions = {
        re.sub(r"\d+", "N", sql) for (sql,) in raw.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL")
    }
    keys = {
        key.hex()
        for ident, number in idents.items()
        if ident.startswith("index_")
        for (key,) in raw.execute(f"SELECT key FROM k{number}")
    }
    return {
        "pragmas": {name: raw.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS},
        "definitions": sorted(definitions),
        "stores": sorted({re.sub(r"\d+", "N", ident) for ident in idents}),
        "catalog": sorted({re.sub(r"\d+", "N", key) for key in entries}),
        "entries": {
            collections[key]["ns"] if key in collections else key: _shape(value)
            for key, value in sorted({**{k: v for k, v in entries.items() if "ns" not in v}, **collections}.items())
        },
        "records": [
            [doc.hex(), ts, ttl, checksum.hex() if isinstance(checksum, bytes) else checksum]
            for doc, ts, ttl, checksum in raw.execute(f"SELECT doc, ts, ttl, sum FROM {records} ORDER BY rid")
        ],
        "keys": sorted(keys),
        "oplog": sorted({json.dumps(_shape(bson.decode(doc))) for (doc,) in raw.execute(f"SELECT doc FROM {oplog}")}),
    }


def _shape(value: Any) -> Any:
    """The names and types in a document; of arrays the different ones of their elements."""
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        shapes = [_shape(inner) for inner in value]
        return [shape for number, shape in enumerate(shapes) if shape not in shapes[:number]]
    return type(value).__name__


def as_text(description: dict[str, Any]) -> str:
    return json.dumps(description, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(as_text(describe(Path(place) / "data")), end="")
