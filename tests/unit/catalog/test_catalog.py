"""The catalogue in memory and in storage: they agree after every change, every failure and every restart."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
import pytest

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.options import CollectionOptions
from mongottl.document.types import MISSING
from mongottl.errors import CommandError
from mongottl.storage.contract import ContractEngine
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.interface import StorageEngine, WriteUnitOfWork
from mongottl.storage.opening import open_engine


@pytest.fixture
def engine() -> Iterator[StorageEngine]:
    opened = ContractEngine(open_engine("sqlite:"))
    yield opened
    opened.close()


@pytest.fixture
def catalog(engine: StorageEngine) -> Catalog:
    return Catalog(engine)


def spec(**options: Any) -> Any:
    return parse_index_spec(bson.encode({"key": {"a": 1}, "name": "a_1", **options}))


def build(catalog: Catalog, collection: Collection, **options: Any) -> CollectionIndex:
    [index] = catalog.start_indexes(collection, [spec(**options)])
    catalog.finish_indexes(collection, [index])
    return index


def state(catalog: Catalog) -> list[tuple[Any, ...]]:
    """All that a catalogue says of its collections."""
    found = []
    for database in catalog.database_names():
        for collection in catalog.collections(database):
            indexes = [(i.descriptor.spec, i.ident, i.multikey, i.data is None) for i in collection.indexes if i.ready]
            found.append(
                (
                    collection.namespace,
                    collection.number,
                    collection.uuid,
                    collection.options.raw,
                    collection.default_ttl_s,
                    [index.name for index in collection.date_ttl_indexes if index.ready],
                    indexes,
                )
            )
    return found


def assert_stored(catalog: Catalog) -> None:
    """A catalogue loaded from the same engine says the same."""
    assert state(Catalog(catalog.engine)) == state(catalog)


def test_a_database_exists_while_it_has_a_collection(catalog: Catalog) -> None:
    assert catalog.database_names() == []
    first = catalog.create_collection("db", "a")
    second = catalog.create_collection("db", "b")
    assert catalog.database_names() == ["db"]
    assert catalog.collections("db") == [first, second]
    assert catalog.lookup("db", "a") is first
    assert catalog.lookup("db", "z") is None
    assert catalog.lookup("other", "a") is None
    assert catalog.by_number(first.number) is first
    catalog.drop_collection(first)
    assert first.dropped
    assert catalog.by_number(first.number) is None
    assert catalog.database_names() == ["db"]
    catalog.drop_collection(second)
    assert catalog.database_names() == []
    assert catalog.engine.idents() == []


def test_collections_differ_in_number_and_uuid(catalog: Catalog) -> None:
    first = catalog.create_collection("db", "a")
    second = catalog.create_collection("db", "b")
    assert first.number != second.number
    assert first.uuid != second.uuid
    assert first.uuid.subtype == 4
    assert first.uuid.data[6] >> 4 == 4


def test_a_new_catalogue_over_the_same_engine_is_the_same(catalog: Catalog) -> None:
    first = catalog.create_collection("db", "a", CollectionOptions(bson.encode({"validationLevel": "off"})))
    build(catalog, first, unique=True)
    build(catalog, first, key={"_ts": 1}, name="ttl", expireAfterSeconds=10)
    build(catalog, first, key={"when": 1}, name="date", expireAfterSeconds=0)
    build(catalog, first, key={"b": 1}, name="partial", partialFilterExpression={"b": {"$gt": 1}})
    catalog.create_collection("other", "a.b.c")
    assert_stored(catalog)
    loaded = Catalog(catalog.engine)
    again = loaded.lookup("db", "a")
    assert again is not None
    assert again.default_ttl_s == 10
    assert [index.name for index in again.date_ttl_indexes] == ["date"]
    assert [index.name for index in again.indexes] == ["_id_", "a_1", "ttl", "date", "partial"]
    assert again.id_index is again.indexes[0]
    partial = again.index_named("partial")
    assert partial is not None
    assert partial.keys_of(bson.encode({"b": 1})) == []
    assert len(partial.keys_of(bson.encode({"b": 2}))) == 1


def test_type_bits_of_older_entries(catalog: Catalog) -> None:
    """Entries of older versions have them as `kinds`, or not at all: then they are not known."""
    collection = catalog.create_collection("db", "a")
    index = build(catalog, collection)
    index.type_bits = 5
    entry: dict[str, Any] = bson.decode(collection.entry_document())
    old = entry["indexes"][1]
    assert old.pop("typeBits") == 5
    for fields, expected in [({"typeBits": 5}, 5), ({"kinds": 5}, 5), ({}, -1)]:
        stored = bson.encode({**entry, "indexes": [entry["indexes"][0], {**old, **fields}]})
        with catalog.engine.unit_of_work() as work:
            catalog.engine.put_catalog_entry(str(collection.number), stored)
            work.commit()
        loaded = Catalog(catalog.engine).lookup("db", "a")
        assert loaded is not None
        assert [index.type_bits for index in loaded.indexes] == [0, expected]


def test_numbers_are_not_given_twice(catalog: Catalog) -> None:
    first = catalog.create_collection("db", "a")
    setting = build(catalog, first, key={"_ts": 1}, name="ttl", expireAfterSeconds=10)
    loaded = Catalog(catalog.engine)
    second = loaded.create_collection("db", "b")
    idents = [index.ident for index in second.indexes]
    assert setting.ident not in idents
    assert second.number > first.number


def test_an_unfinished_index_does_not_survive(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    before = sorted(catalog.engine.idents())
    index = catalog.start_indexes(collection, [spec()])[0]
    assert not index.ready
    assert index.ident in catalog.engine.idents()
    loaded = Catalog(catalog.engine)
    again = loaded.lookup("db", "a")
    assert again is not None
    assert [entry.name for entry in again.indexes] == ["_id_"]
    assert sorted(catalog.engine.idents()) == before


def test_indexes_are_finished_together(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    first = catalog.start_indexes(collection, [spec()])[0]
    setting = catalog.start_indexes(collection, [spec(key={"_ts": 1}, name="ttl", expireAfterSeconds=10)])[0]
    assert collection.default_ttl_s == 0  # not before the index is ready
    catalog.finish_indexes(collection, [first, setting])
    assert first.ready
    assert collection.default_ttl_s == 10


def test_removing_indexes(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    first = build(catalog, collection)
    setting = build(catalog, collection, key={"_ts": 1}, name="ttl", expireAfterSeconds=10)
    unfinished = catalog.start_indexes(collection, [spec(name="later", key={"z": 1})])[0]
    catalog.remove_indexes(collection, [first, setting, unfinished])
    assert [index.name for index in collection.indexes] == ["_id_"]
    assert collection.default_ttl_s == 0
    assert first.ident not in catalog.engine.idents()
    assert unfinished.ident not in catalog.engine.idents()
    assert_stored(catalog)


def test_renaming_carries_everything_over(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    build(catalog, collection)
    number, uuid = collection.number, collection.uuid
    catalog.rename_collection(collection, "other", "b", None)
    assert catalog.database_names() == ["other"]
    assert catalog.lookup("other", "b") is collection
    assert collection.namespace == "other.b"
    assert (collection.number, collection.uuid) == (number, uuid)
    assert_stored(catalog)


def test_renaming_onto_another_collection_drops_it(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    target = catalog.create_collection("db", "b")
    build(catalog, target)
    catalog.rename_collection(collection, "db", "b", target)
    assert target.dropped
    assert not collection.dropped
    assert catalog.collections("db") == [collection]
    assert catalog.by_number(target.number) is None
    assert_stored(catalog)
    assert len(catalog.engine.idents()) == 2


def test_changing_an_index_keeps_it(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    index = build(catalog, collection)
    catalog.replace_descriptor(collection, index, index.descriptor.with_option("hidden", True))
    assert collection.indexes[1] is index
    assert index.descriptor.hidden
    assert_stored(catalog)
    catalog.replace_descriptor(collection, index, index.descriptor.with_option("hidden", MISSING))
    assert bson.decode(index.descriptor.spec) == {"v": 2, "key": {"a": 1}, "name": "a_1"}
    catalog.replace_descriptor(collection, index, index.descriptor.with_option("expireAfterSeconds", 7))
    assert collection.date_ttl_indexes == [index]
    assert_stored(catalog)


def test_an_index_on_ts_that_becomes_the_ttl_setting_loses_its_keys(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    index = build(catalog, collection, key={"_ts": 1}, name="ts")
    catalog.replace_descriptor(collection, index, index.descriptor.with_option("expireAfterSeconds", 7))
    assert collection.default_ttl_s == 7
    assert collection.writable_indexes == collection.indexes[:1]
    assert index.ident not in catalog.engine.idents()
    assert_stored(catalog)


def is_multikey(index: CollectionIndex) -> bool:
    return index.multikey


def test_the_multikey_mark_goes_with_its_unit_of_work(catalog: Catalog) -> None:
    collection = catalog.create_collection("db", "a")
    index = build(catalog, collection)
    path = index.descriptor.paths[0].dotted
    index.keys_of(bson.encode({path: [1, 2]}))
    with catalog.engine.unit_of_work() as work:
        catalog.record_multikey_change(collection, index, work)
        assert is_multikey(index)
    assert not is_multikey(index)
    assert_stored(catalog)
    with catalog.engine.unit_of_work() as work:
        catalog.record_multikey_change(collection, index, work)
        work.commit()
    assert is_multikey(index)
    assert index.arrays.paths == {path}
    assert_stored(catalog)


def test_database_names_that_differ_in_case_only_are_refused(catalog: Catalog) -> None:
    catalog.create_collection("Test", "a")
    catalog.check_new_name("Test", "b")
    with pytest.raises(CommandError) as caught:
        catalog.check_new_name("test", "b")
    assert caught.value.code == 13297
    with pytest.raises(CommandError) as caught:
        catalog.check_new_name("Test", "a$b")
    assert caught.value.code == 73


class FailingEngine(ContractEngine):
    """Fails at a commit when told to: the disk is full."""

    failing = False

    def unit_of_work(self) -> WriteUnitOfWork:
        work = super().unit_of_work()
        if self.failing:
            work.commit = _disk_full  # type: ignore[method-assign]
        return work


def _disk_full() -> None:
    raise EngineUnavailable("disk full")


Change = Callable[[Catalog, Collection, CollectionIndex], object]

CHANGES: dict[str, Change] = {
    "create": lambda catalog, c, i: catalog.create_collection("db", "new"),
    "drop": lambda catalog, c, i: catalog.drop_collection(c),
    "rename": lambda catalog, c, i: catalog.rename_collection(c, "x", "y", None),
    "rename onto": lambda catalog, c, i: catalog.rename_collection(c, "db", "b", catalog.lookup("db", "b")),
    "start": lambda catalog, c, i: catalog.start_indexes(c, [spec(name="n", key={"n": 1})]),
    "remove": lambda catalog, c, i: catalog.remove_indexes(c, [i]),
    "replace": lambda catalog, c, i: catalog.replace_descriptor(c, i, i.descriptor.with_option("hidden", True)),
    "to ttl": lambda catalog, c, i: catalog.replace_descriptor(
        c, c.indexes[2], c.indexes[2].descriptor.with_option("expireAfterSeconds", 7)
    ),
    "options": lambda catalog, c, i: catalog.set_options(c, CollectionOptions(bson.encode({"validator": {"a": 1}}))),
    "finish": lambda catalog, c, i: catalog.finish_indexes(c, [c.indexes[3]]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_storage_refuses_leaves_no_trace(change: Change) -> None:
    engine = FailingEngine(open_engine("sqlite:"))
    catalog = Catalog(engine)
    collection = catalog.create_collection("db", "a")
    catalog.create_collection("db", "b")
    index = build(catalog, collection)
    build(catalog, collection, key={"_ts": 1}, name="ts")
    catalog.start_indexes(collection, [spec(name="unfinished", key={"u": 1})])
    before = state(catalog)
    names = [(entry.name, entry.ready) for entry in collection.indexes]
    stored = (engine.catalog_entries(), sorted(engine.idents()))
    engine.failing = True
    with pytest.raises(EngineUnavailable):
        change(catalog, collection, index)
    engine.failing = False
    assert state(catalog) == before
    assert [(entry.name, entry.ready) for entry in collection.indexes] == names
    assert not collection.dropped
    assert (engine.catalog_entries(), sorted(engine.idents())) == stored
    change(catalog, collection, index)
    assert_stored(catalog)


def test_the_catalogue_survives_a_restart(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:{tmp_path}")
    catalog = Catalog(engine)
    collection = catalog.create_collection("db", "a")
    build(catalog, collection)
    catalog.start_indexes(collection, [spec(name="n", key={"n": 1})])
    before = state(catalog)
    engine.close()
    engine = open_engine(f"sqlite:{tmp_path}")
    assert state(Catalog(engine)) == before
    assert len(engine.idents()) == 3
    engine.close()


def test_temporary_collections_end_with_the_server(catalog: Catalog) -> None:
    temporary = CollectionOptions(bson.encode({"temp": True}))
    build(catalog, catalog.create_collection("a", "gone", temporary))
    catalog.create_collection("b", "gone", temporary)
    renamed = catalog.create_collection("a", "tmp", temporary)
    catalog.rename_collection(renamed, "a", "kept", None)
    catalog.create_collection("a", "kept too")
    assert renamed.options.raw == bson.encode({})
    idents = len(catalog.engine.idents())

    loaded = Catalog(catalog.engine)

    assert sorted(collection.namespace for collection in loaded.collections("a")) == ["a.kept", "a.kept too"]
    assert loaded.database_names() == ["a"]
    assert len(list(loaded.engine.catalog_entries())) == 2
    assert len(catalog.engine.idents()) == idents - 5  # two collections and their three indexes
