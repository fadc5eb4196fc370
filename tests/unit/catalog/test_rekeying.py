"""Collated indexes over restarts: with the same ICU, with another one, and with none."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bson
import pytest

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.options import CollectionOptions
from mongottl.document.keystring import HIGHEST_KEY, LOWEST_KEY, encode_value
from mongottl.query import icu
from mongottl.query.collation import parse_collation
from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import KeyRange

pytestmark = pytest.mark.skipif(not icu.is_available(), reason="ICU is not installed")

ANY_CASE = bson.encode({"locale": "en", "strength": 2})


def opened(folder: Path) -> tuple[StorageEngine, Catalog]:
    engine = open_engine(f"sqlite:{folder}")
    return engine, Catalog(engine)


def fill(folder: Path, documents: list[dict[str, Any]]) -> None:
    """A collection `db.c` with a collation, a unique index on `w` and these documents."""
    engine, catalog = opened(folder)
    found = parse_collation(ANY_CASE)
    assert found is not None
    collection = catalog.create_collection(
        "db", "c", CollectionOptions(bson.encode({"collation": bson.decode(found.spec)}))
    )
    spec = bson.encode({"key": {"w": 1}, "name": "w_1", "unique": True})
    [index] = catalog.start_indexes(collection, [parse_index_spec(spec, False, collection.collation)])
    catalog.finish_indexes(collection, [index])
    with engine.unit_of_work() as work:
        for document in documents:
            raw = bson.encode(document)
            record_id = collection.store.insert_record(raw, 1, -1)
            for entry in collection.indexes:
                assert entry.data is not None
                entry.data.insert([(key, record_id) for key in entry.keys_of(raw)])
        work.commit()
    engine.close()


def found_by_index(collection: Collection, word: str) -> list[bytes]:
    index = collection.index_named("w_1")
    assert index is not None
    assert index.data is not None
    key = encode_value(word, False, index.descriptor.collation)
    return [collection.store.find_records([record_id])[0][0][1] for _, record_id in index.data.find_exact([key])]


def age(folder: Path) -> None:
    """Makes the index one that ICU 57.1 has made, with keys that mean nothing to the ICU that is installed."""
    engine = open_engine(f"sqlite:{folder}")
    with engine.unit_of_work() as work:
        for name, entry in engine.catalog_entries():
            stored = bson.decode(entry)
            for index in stored["indexes"]:
                data = engine.sorted_data(index["ident"], True)
                entries = data.scan(KeyRange(LOWEST_KEY, HIGHEST_KEY), None, 100)[0]
                data.remove(entries)
                data.insert([(encode_value(f"old {record_id}"), record_id) for _, record_id in entries])
                index["icu"] = "57.1"
            engine.put_catalog_entry(name, bson.encode(stored))
        work.commit()
    engine.close()


@pytest.mark.parametrize("aged", [False, True])
def test_restart(tmp_path: Path, aged: bool) -> None:
    documents = [{"_id": word, "w": word} for word in ("a", "B", "é")]
    fill(tmp_path, documents)
    if aged:
        age(tmp_path)
    for _ in range(2):
        engine, catalog = opened(tmp_path)
        collection = catalog.lookup("db", "c")
        assert collection is not None
        assert found_by_index(collection, "A") == [bson.encode(documents[0])]
        assert found_by_index(collection, "b") == [bson.encode(documents[1])]
        assert found_by_index(collection, "e") == []
        assert bson.decode(engine.catalog_entries()[0][1])["indexes"][0]["icu"] == icu.icu_version()
        assert len(engine.idents()) == 3
        engine.close()


def test_keys_that_are_equal_now(tmp_path: Path) -> None:
    fill(tmp_path, [{"_id": 1, "w": "a"}, {"_id": 2, "w": "b"}])
    age(tmp_path)
    engine, catalog = opened(tmp_path)
    collection = catalog.lookup("db", "c")
    assert collection is not None
    # To the ICU that made the keys these two were different.
    old = collection.store.find_records([2])[0][0]
    with engine.unit_of_work() as work:
        collection.store.update_record(old, (2, bson.encode({"_id": 2, "w": "A"}), *old[2:]))
        work.commit()
    engine.close()
    age(tmp_path)
    with pytest.raises(DataDirectoryError, match="w_1"):
        opened(tmp_path)


WITHOUT_ICU = """
import sys
sys.modules["icu"] = None
from mongottl.catalog.catalog import Catalog
from mongottl.storage.errors import DataDirectoryError
from mongottl.storage.opening import open_engine

try:
    Catalog(open_engine("sqlite:" + sys.argv[1]))
except DataDirectoryError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_the_library(tmp_path: Path) -> None:
    """In a process of its own: what is imported stays imported."""
    fill(tmp_path, [{"_id": 1, "w": "a"}])
    path = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_ICU, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "db.c" in ran.stdout
    assert "pip install '.[collation]'" in ran.stdout
