"""What a data directory keeps after a restart, after a crash, and during a flush in another thread."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.stores import ExpiryIndex, KeyRange
from tests.waiting import PATIENCE_S

Opener = Callable[[], StorageEngine]


def fill(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        data = engine.create_sorted_data("by id", True)
        engine.create_sorted_data("plain", False).insert([(b"k", 1), (b"k", 2)])
        ids = store.insert_records([(b"aa", 10, 0), (b"bbb", 11, 5), (b"c", 12, -1)])
        data.insert([(b"%d" % record_id, record_id) for record_id in ids])
        engine.put_catalog_entry("entry", b"\x00value")
        unit.commit()


def check(engine: StorageEngine) -> None:
    assert sorted(engine.idents()) == ["by id", "plain", "records"]
    store = engine.record_store("records")
    assert store.scan(0, 10)[0] == [(1, b"aa", 10, 0), (2, b"bbb", 11, 5), (3, b"c", 12, -1)]
    assert (store.count(), store.size_bytes()) == (3, 6)
    assert store.due_seconds(ExpiryIndex.BY_OWN, 0, 5) == [16]
    assert engine.sorted_data("by id", True).fetch_exact(store, b"2") == (2, b"bbb", 11, 5)
    assert engine.sorted_data("plain", False).scan(KeyRange(b"", b"z"), None, 5)[0] == [(b"k", 1), (b"k", 2)]
    assert engine.catalog_entries() == [("entry", b"\x00value")]


def test_everything_is_there_after_reopening(persistent: Opener) -> None:
    engine = persistent()
    fill(engine)
    engine.close()
    for _ in range(2):
        engine = persistent()
        check(engine)
        engine.close()
        engine.close()


def test_ids_are_not_given_twice_over_a_restart(persistent: Opener) -> None:
    engine = persistent()
    fill(engine)
    store = engine.record_store("records")
    with engine.unit_of_work() as unit:
        store.delete_records(store.scan(0, 10)[0])
        unit.commit()
    engine.close()
    engine = persistent()
    store = engine.record_store("records")
    assert (store.count(), store.size_bytes()) == (0, 0)
    with engine.unit_of_work() as unit:
        assert store.insert_record(b"x", 1, 0) == 4
        engine.drop_ident("records")
        assert engine.create_record_store("records").insert_record(b"y", 1, 0) == 1
        unit.commit()
    engine.close()


def test_a_crash_loses_nothing_committed_and_keeps_nothing_else(persistent: Opener, tmp_path: Path) -> None:
    """The files as they are while the engine runs are what a killed process leaves."""
    engine = persistent()
    fill(engine)
    store = engine.record_store("records")
    crashed = tmp_path / "crashed"
    with engine.unit_of_work():
        store.insert_records([(b"x" * 1000, 1, 0)] * 10)
        shutil.copytree(tmp_path / "data", crashed, ignore=shutil.ignore_patterns("*-shm"))
    after = open_engine(f"sqlite:{crashed}")
    check(after)
    with after.unit_of_work() as unit:
        after.record_store("records").insert_record(b"x", 1, 0)
        unit.commit()
    assert after.record_store("records").count() == 4
    after.close()
    check(engine)
    engine.close()


def test_counters_are_exact_after_every_crash(persistent: Opener, tmp_path: Path) -> None:
    engine = persistent()
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        unit.commit()
    for step in range(6):
        with engine.unit_of_work() as unit:
            store.insert_records([(b"x" * step, step, 0), (b"yy", step, 0)])
            if step % 2:
                store.delete_records(store.scan(0, 1)[0])
            if step != 3:
                unit.commit()
        crashed = tmp_path / f"crashed {step}"
        shutil.copytree(tmp_path / "data", crashed)
        after = open_engine(f"sqlite:{crashed}")
        records = after.record_store("records").scan(0, 100)[0]
        assert records == store.scan(0, 100)[0]
        assert after.record_store("records").count() == len(records) == store.count()
        assert after.record_store("records").size_bytes() == sum(len(r[1]) for r in records) == store.size_bytes()
        after.close()
    engine.close()


def test_space_of_dropped_idents_is_freed_after_a_restart(persistent: Opener) -> None:
    engine = persistent()
    with engine.unit_of_work() as unit:
        engine.create_record_store("records").insert_records([(b"x" * 600, 1, 0)] * 2000)
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.drop_ident("records")
        unit.commit()
    assert engine.drop_some(100)
    engine.close()
    engine = persistent()
    assert engine.idents() == []
    with engine.unit_of_work() as unit:
        engine.create_record_store("records").insert_record(b"new", 1, 0)
        unit.commit()
    while engine.drop_some(500):
        pass
    assert engine.record_store("records").scan(0, 5)[0] == [(1, b"new", 1, 0)]
    assert engine.statistics()["dropped_idents"] == 0
    engine.close()


def test_commits_are_numbered_and_a_flush_makes_all_before_it_durable(persistent: Opener) -> None:
    engine = persistent()
    numbers = [(engine.committed_number, engine.durable_number)]
    for _ in range(2):
        with engine.unit_of_work() as unit:
            engine.put_catalog_entry("x", b"y")
            unit.commit()
    numbers.append((engine.committed_number, engine.durable_number))
    thread = threading.Thread(target=engine.flush)
    thread.start()
    thread.join()
    numbers.append((engine.committed_number, engine.durable_number))
    with engine.unit_of_work():
        engine.put_catalog_entry("x", b"z")  # rolled back
    numbers.append((engine.committed_number, engine.durable_number))
    assert numbers == [(0, 0), (2, 0), (2, 2), (2, 2)]
    assert engine.statistics()["flushes"] == 1
    engine.close()


def test_a_commit_during_a_flush_is_not_said_to_be_durable(persistent: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = persistent()
    begun, go_on = threading.Event(), threading.Event()

    def slow_sync(descriptor: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    def commit() -> None:
        with engine.unit_of_work() as unit:
            engine.put_catalog_entry("x", b"y")
            unit.commit()

    commit()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", slow_sync)
        thread = threading.Thread(target=engine.flush)
        thread.start()
        assert begun.wait(PATIENCE_S)
        assert engine.durable_number == 0
        commit()
        go_on.set()
        thread.join()
    assert (engine.committed_number, engine.durable_number) == (2, 1)
    engine.flush()
    assert engine.durable_number == 2
    engine.close()


@pytest.mark.slow
def test_flush_and_maintain_run_beside_the_writer(persistent: Opener) -> None:
    engine = persistent()
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        unit.commit()
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                engine.flush()
                engine.maintain()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    document = b"x" * 200_000
    try:
        for _ in range(40):
            with engine.unit_of_work() as unit:
                store.insert_records([(document, 1, 0)] * 10)
                unit.commit()
            assert store.scan(0, 1)[0][0][1] == document
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert store.count() == 400
    # Twice the length from which it is due, when the machine is slow; all of it is 80 MB.
    engine.maintain()
    assert not engine.maintenance_due
    statistics = engine.statistics()
    assert statistics["checkpoints"] >= 1
    assert statistics["flushes"] >= 1
    with engine.unit_of_work() as unit:
        store.insert_record(b"last", 1, 0)
        unit.commit()
    engine.close()
    engine = persistent()
    assert engine.record_store("records").count() == 401
    assert len(engine.record_store("records").scan(0, 1000)[0]) == 401
    engine.close()
