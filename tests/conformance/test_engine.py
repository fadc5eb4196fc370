"""The engine: units of work, idents, catalog entries, dropping."""

from pathlib import Path

import pytest

from mongottl.config import STORAGE_ENGINES
from mongottl.config.setting import STORES
from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine, open_stored_data, storage_engine, storage_engine_schemes
from mongottl.storage.stores import ExpiryIndex, KeyRange
from tests.conformance.conftest import ENGINES
from tests.postgres import missing


class Failed(Exception):
    """What an operation raises in these tests."""


def test_a_unit_left_without_commit_leaves_nothing(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("index", True)
        store.insert_records([(b"aa", 1, 0), (b"bb", 2, 3)])
        data.insert([(b"a", 1), (b"b", 2)])
        unit.commit()
    kept = store.scan(0, 10)[0]
    with pytest.raises(Failed), engine.unit_of_work():
        store.insert_record(b"cccc", 1, 0)
        store.update_record(kept[0], (1, b"longer", 5, 5))
        store.delete_record(kept[1])
        data.remove([(b"a", 1)])
        data.insert_one(b"c", 3)
        engine.put_catalog_entry("key", b"value")
        assert store.count() == 2
        assert store.size_bytes() == 10
        raise Failed
    assert store.scan(0, 10)[0] == kept
    assert (store.count(), store.size_bytes()) == (2, 4)
    assert data.scan(KeyRange(b"", b"z"), None, 10)[0] == [(b"a", 1), (b"b", 2)]
    assert engine.catalog_entries() == []
    assert engine.catalog_entry("key") is None
    assert store.due_seconds(ExpiryIndex.BY_OWN, 0, 10) == [5]
    with engine.unit_of_work() as unit:
        assert store.insert_record(b"d", 1, 0) > 2
        unit.commit()
    assert (store.count(), store.size_bytes()) == (3, 5)


def test_several_stores_in_one_unit_are_restored_together(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        stores = [engine.create_record_store(f"records {n}") for n in range(3)]
        for store in stores:
            store.insert_record(b"x", 1, 0)
        unit.commit()
    with engine.unit_of_work():
        for number, store in enumerate(stores):
            store.insert_records([(b"yy", 1, 0)] * (number + 1))
    assert [(store.count(), store.size_bytes()) for store in stores] == [(1, 1)] * 3


def test_actions_run_on_commit_in_order_and_on_rollback_in_reverse(engine: StorageEngine) -> None:
    seen: list[str] = []
    with engine.unit_of_work() as unit:
        unit.on_commit(lambda: seen.append("first"))
        unit.on_rollback(lambda: seen.append("never"))
        unit.on_commit(lambda: seen.append("second"))
        assert seen == []
        unit.commit()
        assert seen == ["first", "second"]
    with engine.unit_of_work() as unit:
        unit.on_commit(lambda: seen.append("never"))
        unit.on_rollback(lambda: seen.append("third"))
        unit.on_rollback(lambda: seen.append("fourth"))
    assert seen == ["first", "second", "fourth", "third"]
    with engine.unit_of_work() as unit:
        unit.commit()
    assert seen == ["first", "second", "fourth", "third"]


def test_the_listener_is_called_after_each_commit_and_before_its_actions(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        unit.commit()  # there is no listener yet
    seen: list[object] = []
    engine.set_commit_listener(lambda: seen.append(engine.committed_number))
    before = engine.committed_number
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("key", b"value")
        unit.on_commit(lambda: seen.append("action"))
        assert seen == []
        unit.commit()
        assert seen == [before + 1, "action"]
    with engine.unit_of_work() as unit:
        unit.commit()  # also of a unit that wrote nothing
    assert seen == [before + 1, "action", before + 2]


def test_the_listener_is_not_called_after_a_rollback(engine: StorageEngine) -> None:
    seen: list[str] = []
    engine.set_commit_listener(lambda: seen.append("replaced"))
    engine.set_commit_listener(lambda: seen.append("called"))
    with engine.unit_of_work():
        engine.put_catalog_entry("key", b"value")
    with pytest.raises(Failed), engine.unit_of_work():
        raise Failed
    assert seen == []
    with engine.unit_of_work() as unit:
        unit.commit()
    assert seen == ["called"]


def test_a_unit_whose_commit_action_fails_is_committed(engine: StorageEngine) -> None:
    seen: list[str] = []
    engine.set_commit_listener(lambda: seen.append("called"))

    def fail() -> None:
        raise Failed

    with pytest.raises((AssertionError, Failed)), engine.unit_of_work() as unit:
        engine.put_catalog_entry("key", b"value")
        unit.on_commit(fail)
        unit.on_rollback(lambda: seen.append("never"))
        unit.commit()
    assert (seen, engine.catalog_entries()) == (["called"], [("key", b"value")])


def test_a_failed_unit_that_is_committed_is_rolled_back(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        store.insert_record(b"a", 1, 0)
        unit.commit()
    with pytest.raises(EngineUnavailable), engine.unit_of_work() as unit:
        store.insert_record(b"b", 1, 0)
        with pytest.raises(WriteConflict):
            store.delete_record((1, b"another", 1, 0))
        unit.commit()
    assert [record[1] for record in store.scan(0, 10)[0]] == [b"a"]
    with engine.unit_of_work() as unit:
        store.insert_record(b"c", 1, 0)
        unit.commit()
    assert store.count() == 2


def test_units_do_not_nest(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("key", b"value")
        with pytest.raises((AssertionError, RuntimeError)), engine.unit_of_work():
            pass
        unit.commit()
    assert engine.catalog_entries() == [("key", b"value")]


def test_nothing_is_written_after_commit(engine: StorageEngine) -> None:
    with pytest.raises((AssertionError, RuntimeError)), engine.unit_of_work() as unit:
        unit.commit()
        engine.put_catalog_entry("key", b"value")
    assert engine.catalog_entries() == []
    with engine.unit_of_work() as unit:
        engine.put_catalog_entry("key", b"value")
        unit.commit()


def test_idents_come_and_go(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("r'; --")
        data = engine.create_sorted_data("index", False)
        unit.commit()
    assert sorted(engine.idents()) == ["index", "r'; --"]
    assert engine.record_store("r'; --") is store
    assert engine.sorted_data("index", False) is data
    with engine.unit_of_work() as unit:
        engine.drop_ident("index")
        unit.commit()
    assert engine.idents() == ["r'; --"]


def test_creating_and_dropping_roll_back(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("kept")
        store.insert_record(b"x", 1, 0)
        index = engine.create_sorted_data("kept index", True)
        index.insert_one(b"x", 1)
        unit.commit()
    with pytest.raises(Failed), engine.unit_of_work():
        engine.drop_ident("kept")
        engine.drop_ident("kept index")
        engine.create_record_store("kept")
        engine.create_sorted_data("new", True)
        raise Failed
    assert sorted(engine.idents()) == ["kept", "kept index"]
    assert engine.record_store("kept") is store
    assert store.scan(0, 10)[0] == [(1, b"x", 1, 0)]
    assert store.count() == 1
    assert index.fetch_exact(store, b"x") == (1, b"x", 1, 0)
    with engine.unit_of_work() as unit:
        assert engine.create_sorted_data("new", True).scan(KeyRange(b"", b"z"), None, 5)[0] == []
        unit.commit()


def test_an_ident_dropped_in_a_unit_may_be_created_again_in_it(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        engine.create_record_store("records").insert_record(b"x", 1, 0)
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.drop_ident("records")
        store = engine.create_record_store("records")
        unit.commit()
    assert store.count() == 0
    assert store.scan(0, 5)[0] == []


@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 1001, 3500])
def test_dropping_gives_the_name_free_at_once_and_the_space_bit_by_bit(engine: StorageEngine, rows: int) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        ids = store.insert_records([(b"x" * 20, n, n % 2) for n in range(rows)])
        # One key for all: a piece of the work must be bounded even so.
        engine.create_sorted_data("plain", False).insert([(b"same key", record_id) for record_id in ids])
        engine.create_sorted_data("unique", True).insert([(b"%d" % record_id, record_id) for record_id in ids])
        unit.commit()
    with engine.unit_of_work() as unit:
        for ident in engine.idents():
            engine.drop_ident(ident)
        unit.commit()
    assert engine.idents() == []
    with engine.unit_of_work() as unit:
        again = engine.create_record_store("records")
        unit.commit()
    assert again.count() == 0
    rounds = 0
    while engine.drop_some(500):
        rounds += 1
    assert engine.statistics().get("dropped_idents", 0) == 0
    assert rounds >= (3 * rows // 500 if rows > 1000 and frees_in_steps(engine) else 0)
    assert engine.idents() == ["records"]
    assert not engine.drop_some(500)


def test_long_records_count_as_more_when_dropped(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        engine.create_record_store("records").insert_records([(b"x" * 100_000, 1, 0) for _ in range(40)])
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.drop_ident("records")
        unit.commit()
    rounds = 1
    while engine.drop_some(1000):
        rounds += 1
    assert rounds > 5 or not frees_in_steps(engine)


def frees_in_steps(engine: StorageEngine) -> bool:
    """Whether an engine leaves the space of dropped idents to `drop_some`, and then says how many there are."""
    return "dropped_idents" in engine.statistics()


def test_the_embedded_engines_free_space_in_steps(engine: StorageEngine) -> None:
    assert frees_in_steps(engine) or engine.name not in ("memory", "sqlite")


def test_clear_leaves_nothing(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        engine.create_record_store("records").insert_record(b"x", 1, 0)
        engine.create_sorted_data("index", True)
        engine.put_catalog_entry("key", b"value")
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.clear()
        unit.commit()
    assert engine.idents() == []
    assert engine.catalog_entries() == []


def test_catalog_entries_are_replaced_and_ordered_by_bytes(engine: StorageEngine) -> None:
    keys = ["b", "a", "Z", "ä", "\uffff", "\U00010000", "a b", "c\x00d", "c"]
    with engine.unit_of_work() as unit:
        for key in keys:
            engine.put_catalog_entry(key, b"old")
        engine.put_catalog_entry("a", b"new\x00")
        assert engine.catalog_entry("a") == b"new\x00"
        engine.delete_catalog_entry("b")
        engine.delete_catalog_entry("never there")
        unit.commit()
    assert [engine.catalog_entry(key) for key in ("a", "b", "never there")] == [b"new\x00", None, None]
    entries = engine.catalog_entries()
    assert [key for key, _ in entries] == sorted(set(keys) - {"b"}, key=lambda key: key.encode())
    assert dict(entries)["a"] == b"new\x00"


def test_flush_and_maintain_may_be_called_at_any_time(engine: StorageEngine) -> None:
    engine.flush()
    engine.maintain()
    assert engine.durable_number == engine.committed_number
    assert not engine.failed
    assert not engine.maintenance_due
    engine.flush()


def test_every_engine_is_under_test_and_can_be_chosen() -> None:
    schemes = storage_engine_schemes()
    wrapped = [kind.removeprefix("contract-") for kind in ENGINES if kind.startswith("contract-")]
    wrapped.remove("least-memory")
    alone = [kind for kind in ENGINES if not kind.startswith(("contract-", "suspending-"))]
    assert wrapped == alone
    chosen_by_store = {"postgres", "postgresql", "local-postgresql"}
    tested = {kind.partition("-")[0] for kind in alone}
    assert tested - {"postgresql"} == set(schemes) - chosen_by_store
    assert missing() or "postgresql" in tested
    assert sorted(STORAGE_ENGINES) == sorted(["auto", *set(schemes) - chosen_by_store])
    assert {name.partition(":")[0] for name in STORES} == chosen_by_store


def test_engines_are_registered_by_scheme_once(engine: StorageEngine) -> None:
    assert engine.name in storage_engine_schemes()
    with pytest.raises(ValueError, match=f"storage engine {engine.name} is registered already"):
        storage_engine(engine.name)(lambda _: engine)


def test_a_uri_that_no_engine_opens_is_refused_without_its_address() -> None:
    with pytest.raises(ValueError, match=r"^unknown storage engine 'wired'; there are: .*memory, .*sqlite$"):
        open_engine("wired://user:secret@host/")
    with pytest.raises(ValueError, match=r"^a URI of a storage engine begins with a scheme and a colon, such as .*:$"):
        open_engine("memory")
    with pytest.raises(ValueError, match=r"^unknown storage engine whose data can .* 'memory'; there are: sqlite$"):
        open_stored_data("memory:")


def test_an_engine_says_where_it_keeps_its_data(engine: StorageEngine, engine_kind: str, tmp_path: Path) -> None:
    in_folder = engine_kind.endswith("-file")
    assert engine.can_copy == in_folder
    assert engine.persistent == (in_folder or "postgresql" in engine_kind)
    assert engine.folder == (str(tmp_path / "data") if in_folder else None)
