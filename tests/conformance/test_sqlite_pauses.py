"""SQLite writes what takes long in parts, between which the server answers those whose requests touch no data."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from mongottl.storage.sqlite.engine import SqliteEngine
from mongottl.storage.stores import KeyEntry, Record

LONG = bytes(3 << 20)
ENTRIES: list[KeyEntry] = [(number.to_bytes(4, "big"), number) for number in range(20_000)]


class Paused:
    """An engine over a folder with a record store, a log and two sorted data. pauses: how often it has paused."""

    def __init__(self, folder: Path) -> None:
        self.engine: StorageEngine = open_engine(f"sqlite:{folder}")
        with self.engine.unit_of_work() as work:
            self.records = self.engine.create_record_store("records")
            self.log = self.engine.create_record_store("log", is_log=True)
            self.sorted = self.engine.create_sorted_data("sorted", unique=False)
            self.unique = self.engine.create_sorted_data("unique", unique=True)
            self.stored: list[Record] = []
            for document in [LONG] * 4 + [b"short"] * 4:
                record_id = self.records.insert_record(document, 1, -1)
                self.stored.append((record_id, document, 1, -1))
            self.sorted.insert(ENTRIES)
            work.commit()
        self.pauses = 0
        self.engine.set_pause(self._pause)

    def _pause(self) -> None:
        assert self.engine.failed is False
        self.pauses += 1

    def figures(self) -> list[int]:
        counts = [data.count_range(ALL_KEYS) for data in (self.sorted, self.unique)]
        return [*counts, self.records.count(), self.records.size_bytes(), self.log.count()]

    def in_unit(self, write: Callable[["Paused"], object]) -> int:
        """How often it pauses while it writes, until the commit."""
        self.pauses = 0
        with self.engine.unit_of_work() as work:
            write(self)
            work.commit()
        return self.pauses


@pytest.fixture
def paused(tmp_path: Path) -> Iterator[Paused]:
    made = Paused(tmp_path / "data")
    yield made
    made.engine.close()


def changed(records: list[Record]) -> list[Record]:
    return [(record_id, b"x" + document[1:], ts, ttl) for record_id, document, ts, ttl in records]


# What is written, and how often it pauses at least: between two parts.
LONG_WRITES: dict[str, tuple[Callable[[Paused], object], int]] = {
    "keys": (lambda made: made.unique.insert(ENTRIES), 4),
    "keys of an index that is not unique": (lambda made: made.sorted.insert([(b"x" + k, n) for k, n in ENTRIES]), 4),
    "removed keys": (lambda made: made.sorted.remove(ENTRIES), 4),
    "record": (lambda made: made.records.insert_record(LONG, 1, -1), 2),
    "entry of the log": (lambda made: made.log.insert_record(LONG, 1, -1), 1),
    "records": (lambda made: made.records.insert_records([(LONG, 1, -1)] * 5), 4),
    "changed record": (lambda made: made.records.update_record(made.stored[0], changed(made.stored[:1])[0]), 2),
    "changed records": (lambda made: made.records.update_records(made.stored[:4], changed(made.stored[:4])), 4),
    "deleted record": (lambda made: made.records.delete_record(made.stored[0]), 2),
    "deleted records": (lambda made: made.records.delete_records(made.stored[:4]), 4),
    "deleted records that are read": (
        lambda made: (made.records.scan(0, 100, True), made.records.delete_records(made.stored[:4])),
        4,
    ),
    "new record store": (lambda made: made.engine.create_record_store("new"), 6),
    "new sorted data": (lambda made: made.engine.create_sorted_data("new keys", unique=True), 2),
    "dropped log": (lambda made: made.engine.drop_ident("log"), 2),
}


@pytest.mark.parametrize("name", LONG_WRITES)
def test_a_long_write_pauses(name: str, paused: Paused) -> None:
    write, least = LONG_WRITES[name]
    assert paused.in_unit(write) >= least


def test_a_short_write_does_not_pause(paused: Paused) -> None:
    def write(made: Paused) -> None:
        short = made.stored[4:]
        made.records.update_records(short[:2], changed(short[:2]))
        made.records.delete_records(short[2:])
        made.records.insert_records([(b"short", 1, -1)] * 100)
        made.unique.insert(ENTRIES[:1000])
        made.log.insert_record(b"short", 1, -1)

    assert paused.in_unit(write) == 0


def test_another_thread_writes_very_long_documents(tmp_path: Path) -> None:
    """The one of the engine waits, and pauses."""
    engine = open_engine(f"sqlite:{tmp_path / 'data'}")
    assert isinstance(engine, SqliteEngine)
    threads: list[int] = []
    very_long = bytes(5 << 20)
    with engine.unit_of_work() as work:
        records = engine.create_record_store("records")
        log = engine.create_record_store("log", is_log=True)
        record_id = records.insert_record(very_long, 1, -1)
        work.commit()
    engine._connection.raw.set_trace_callback(lambda _: threads.append(threading.get_ident()))
    stored: Record = (record_id, very_long, 1, -1)
    writes: list[Callable[[], object]] = [
        lambda: records.insert_record(very_long, 1, -1),
        lambda: records.update_record(stored, changed([stored])[0]),
        lambda: records.delete_records(changed([stored])),
        lambda: log.insert_record(very_long, 1, -1),
    ]
    for write in writes:
        threads.clear()
        with engine.unit_of_work() as work:
            write()
            work.commit()
        assert len(set(threads)) == 2
    threads.clear()
    with engine.unit_of_work() as work:
        records.insert_record(b"short", 1, -1)
        work.commit()
    assert set(threads) == {threading.get_ident()}
    assert [len(record[1]) for record in records.scan(0, 10, True)[0]] == [len(very_long), 5]
    engine.close()


def test_a_refused_key_is_found_in_a_later_part(paused: Paused) -> None:
    paused.in_unit(lambda made: made.unique.insert(ENTRIES[9_000:9_001]))
    with paused.engine.unit_of_work() as work:
        paused.unique.insert(ENTRIES)
        work.commit()
    assert paused.unique.count_range(ALL_KEYS) == len(ENTRIES)


def test_an_error_in_a_pause_undoes_the_unit(paused: Paused) -> None:
    """An operation that is attempted without a stack is given up there, and begins again on one."""

    class GivenUp(BaseException):
        pass

    def give_up() -> None:
        raise GivenUp

    before = paused.figures()
    paused.engine.set_pause(give_up)
    for write, _ in LONG_WRITES.values():
        with pytest.raises(GivenUp), paused.engine.unit_of_work() as work:
            write(paused)
            work.commit()
        assert paused.figures() == before
    records, _ = paused.records.scan(0, 100, True)
    assert records == paused.stored
