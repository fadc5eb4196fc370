"""A log: a record store with whose rows an engine may keep the counters of all stores."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mongottl.storage.interface import StorageEngine
from mongottl.storage.sqlite import connection
from mongottl.storage.sqlite.directory import open_data_directory
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.sqlite.records import SqliteLog
from mongottl.storage.stores import NO_BYTE_LIMIT, ExpiryIndex, Record, RecordStore

Opener = Callable[[str, Path], StorageEngine]


def test_a_log_is_a_record_store(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        log = engine.create_record_store("log", is_log=True)
        assert log.insert_record(b"a", 5, 0) == 1
        assert log.find_record(1) == (1, b"a", 5, 0)
        assert log.insert_record(b"bb", 0, -1) == 2
        assert log.insert_records([(b"ccc", 1, 2), (b"d", 1, 2)]) == [3, 4]
        assert log.insert_record(b"e" * 100_000, 0, -1) == 5
        unit.commit()
    with engine.unit_of_work() as unit:
        log.update_record((2, b"bb", 0, -1), (2, b"BB", 0, -1))
        log.delete_record((1, b"a", 5, 0))
        log.insert_record(b"f", 0, -1)
        assert [record[0] for record in log.scan(0, 10)[0]] == [2, 3, 4, 5, 6]
        unit.commit()
    assert log.scan(0, 2)[0] == [(2, b"BB", 0, -1), (3, b"ccc", 1, 2)]
    assert (log.count(), log.size_bytes()) == (5, 100_007)
    assert log.due(ExpiryIndex.BY_OWN, 3, 10) == [(3, b"ccc", 1, 2), (4, b"d", 1, 2)]
    with engine.unit_of_work() as unit:
        log.insert_record(b"gone", 0, -1)
    assert (log.count(), log.size_bytes()) == (5, 100_007)
    assert log.scan(5, 10)[0] == [(6, b"f", 0, -1)]


class Writer:
    """Writes at random into three stores and a log, whose counters a reopened engine must have exactly."""

    def __init__(self, engine: StorageEngine, generator: random.Random) -> None:
        self.engine = engine
        self.random = generator

    @property
    def stores(self) -> list[RecordStore]:
        return [self.engine.record_store(ident) for ident in sorted(self.engine.idents()) if ident.startswith("s")]

    @property
    def log(self) -> RecordStore:
        newest = max(
            [ident for ident in self.engine.idents() if ident.startswith("log")], key=lambda name: int(name[3:])
        )
        return self.engine.record_store(newest)

    def begin(self) -> None:
        with self.engine.unit_of_work() as unit:
            for ident in ("s1", "s2", "s3"):
                self.engine.create_record_store(ident)
            self.engine.create_record_store("log1", is_log=True)
            unit.commit()

    def write(self) -> None:
        generator = self.random
        with self.engine.unit_of_work() as unit:
            if generator.random() < 0.05:
                number = int(self.log.ident[3:]) + 1
                if generator.random() < 0.5:
                    self.engine.drop_ident(self.log.ident)
                self.engine.create_record_store(f"log{number}", is_log=True)
            if generator.random() < 0.05:
                ident = generator.choice(("s1", "s2", "s3"))
                self.engine.drop_ident(ident)
                self.engine.create_record_store(ident)
            store = generator.choice(self.stores)
            records, _ = store.scan(0, 3)
            if records and generator.random() < 0.4:
                store.delete_record(generator.choice(records))
            else:
                store.insert_record(b"x" * generator.randrange(1, 50), 1, 0)
            if generator.random() < 0.6:
                self.log.insert_record(b"l" * generator.randrange(1, 90), 0, -1)
            if generator.random() < 0.1:
                generator.choice(self.stores).insert_record(b"behind the log", 1, 0)
            if generator.random() < 0.9:
                unit.commit()

    def contents(self) -> dict[str, tuple[list[Record], int, int]]:
        return {
            ident: (store.scan(0, 10_000, True, NO_BYTE_LIMIT)[0], store.count(), store.size_bytes())
            for ident in sorted(self.engine.idents())
            for store in [self.engine.record_store(ident)]
        }


@pytest.mark.parametrize("kind", ["sqlite-file", "contract-sqlite-file"])
@pytest.mark.parametrize("seed", range(6))
def test_counters_survive_every_end(
    engine_opener: Opener, kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_UNITS_UNTIL_SETTLED", 7)
    generator = random.Random(seed)
    path = tmp_path / "0"
    writer = Writer(engine_opener(kind, path), generator)
    writer.begin()
    for end in range(12):
        for _ in range(generator.randrange(1, 30)):
            writer.write()
        expected = writer.contents()
        for records, count, size in expected.values():
            assert (count, size) == (len(records), sum([len(record[1]) for record in records]))
        following = tmp_path / str(end + 1)
        crashes = generator.random() < 0.7
        if not crashes:
            writer.engine.close()
        shutil.copytree(path, following)
        if crashes:
            writer.engine.close()
        path = following
        writer = Writer(engine_opener(kind, path), generator)
        assert writer.contents() == expected
    writer.engine.close()


def test_ids_are_not_given_twice_after_a_crash(engine_opener: Opener, tmp_path: Path) -> None:
    engine = engine_opener("sqlite-file", tmp_path / "data")
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        log = engine.create_record_store("log", is_log=True)
        unit.commit()
    with engine.unit_of_work() as unit:
        store.insert_record(b"a", 1, 0)
        store.delete_record((1, b"a", 1, 0))
        log.insert_record(b"l", 0, -1)
        unit.commit()
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    engine.close()
    engine = engine_opener("sqlite-file", tmp_path / "crashed")
    with engine.unit_of_work() as unit:
        assert engine.record_store("records").insert_record(b"b", 1, 0) == 2
        assert engine.record_store("log").insert_record(b"m", 0, -1) == 2
        unit.commit()
    engine.close()


def test_the_log_of_a_store_that_was_dropped_says_nothing_of_later_ones(engine_opener: Opener, tmp_path: Path) -> None:
    engine = engine_opener("sqlite-file", tmp_path / "data")
    with engine.unit_of_work() as unit:
        log = engine.create_record_store("log", is_log=True)
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.create_record_store("dropped").insert_record(b"a", 1, 0)
        log.insert_record(b"l", 0, -1)
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.drop_ident("dropped")
        unit.commit()
    for copy in ("second", "third"):
        shutil.copytree(tmp_path / "data", tmp_path / copy)
        engine.close()
        engine = engine_opener("sqlite-file", tmp_path / copy)
        if "new" not in engine.idents():
            with engine.unit_of_work() as unit:
                engine.create_record_store("new")
                unit.commit()
        assert engine.record_store("new").count() == 0
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(tmp_path / copy, tmp_path / "data")
    engine.close()


def test_dropping_the_log_keeps_the_counters(engine_opener: Opener, tmp_path: Path) -> None:
    engine = engine_opener("sqlite-file", tmp_path / "data")
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("records")
        log = engine.create_record_store("log", is_log=True)
        unit.commit()
    for _ in range(3):
        with engine.unit_of_work() as unit:
            store.insert_record(b"a", 1, 0)
            log.insert_record(b"l", 0, -1)
            unit.commit()
    with engine.unit_of_work() as unit:
        engine.drop_ident("log")
        unit.commit()
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    engine.close()
    engine = engine_opener("sqlite-file", tmp_path / "crashed")
    assert engine.record_store("records").count() == 3
    engine.close()


def test_closing_leaves_nothing_to_read_from_the_log(tmp_path: Path) -> None:
    engine = SqliteEngine(open_data_directory(str(tmp_path / "data")))
    with engine.unit_of_work() as unit:
        engine.create_record_store("log", is_log=True)
        unit.commit()
    with engine.unit_of_work() as unit:
        engine.record_store("log").insert_record(b"l", 0, -1)
        unit.commit()
    engine.close()
    engine = SqliteEngine(open_data_directory(str(tmp_path / "data")))
    log = engine.record_store("log")
    assert isinstance(log, SqliteLog)
    assert log.count() == 1
    with closing(sqlite3.connect(tmp_path / "data" / "mongottl.sqlite3")) as raw:
        settled = raw.execute("SELECT record_count, next_record_id FROM stores WHERE ident = 'log'").fetchall()
    assert settled == [(1, 2)]
    engine.close()
