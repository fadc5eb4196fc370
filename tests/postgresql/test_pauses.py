"""What takes long is made for PostgreSQL in parts, between which those are answered whose requests touch no data."""

from collections.abc import Callable, Iterator

import pytest

from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.storage.interface import StorageEngine
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.stores import KeyEntry, Record

LONG = bytes(3 << 20)
ENTRIES: list[KeyEntry] = [(number.to_bytes(4, "big"), number) for number in range(20_000)]
MORE: list[KeyEntry] = [(b"x" + key, number) for key, number in ENTRIES]
# What every exchange with PostgreSQL, and the commit, pause for.
SHORT_PAUSES = 3


class Stored:
    """An engine with four long records, and two sorted data that have the entries."""

    def __init__(self, engine: StorageEngine) -> None:
        self.engine = engine
        with engine.unit_of_work() as work:
            self.records = engine.create_record_store("records")
            self.sorted = engine.create_sorted_data("sorted", unique=False)
            self.unique = engine.create_sorted_data("unique", unique=True)
            self.old: list[Record] = [(self.records.insert_record(LONG, 1, -1), LONG, 1, -1) for _ in range(4)]
            self.sorted.insert(ENTRIES)
            self.unique.insert(ENTRIES)
            work.commit()
        self.new: list[Record] = [(number, b"x" + document, ts, ttl) for number, document, ts, ttl in self.old]

    def pauses_of(self, write: Callable[["Stored"], object]) -> int:
        """How often the engine pauses in a unit of work that writes so."""
        pauses: list[None] = []
        self.engine.set_pause(lambda: pauses.append(None))
        with self.engine.unit_of_work() as work:
            write(self)
            work.commit()
        return len(pauses)


@pytest.fixture
def stored(cluster: LocalCluster, schema: str) -> Iterator[Stored]:
    engine = PostgresEngine(Address(cluster.uri), schema)
    yield Stored(engine)
    engine.close()


# Each with how often it pauses at least, and what is there then: entries that are not unique, unique ones, records and
# their bytes.
WRITES: dict[str, tuple[Callable[[Stored], object], int, tuple[int, int, int, int]]] = {
    "keys": (lambda s: s.sorted.insert(MORE), 8, (40_000, 20_000, 4, 4 * len(LONG))),
    "unique keys": (lambda s: s.unique.insert(MORE), 3, (20_000, 40_000, 4, 4 * len(LONG))),
    "removed keys": (lambda s: s.sorted.remove(ENTRIES), 6, (0, 20_000, 4, 4 * len(LONG))),
    "records": (lambda s: s.records.insert_records([(LONG, 1, -1)] * 3), 4, (20_000, 20_000, 7, 7 * len(LONG))),
    "changed record": (
        lambda s: s.records.update_record(s.old[0], s.new[0]),
        6,
        (20_000, 20_000, 4, 4 * len(LONG) + 1),
    ),
    "changed records": (
        lambda s: s.records.update_records(s.old, s.new[::-1]),
        20,
        (20_000, 20_000, 4, 4 * len(LONG) + 4),
    ),
    "deleted record": (lambda s: s.records.delete_record(s.old[0]), 6, (20_000, 20_000, 3, 3 * len(LONG))),
    "deleted records": (lambda s: s.records.delete_records(s.old), 17, (20_000, 20_000, 0, 0)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_long_write_pauses(name: str, stored: Stored) -> None:
    write, least, figures = WRITES[name]
    assert stored.pauses_of(write) >= least
    entries, unique = (data.count_range(ALL_KEYS) for data in (stored.sorted, stored.unique))
    assert (entries, unique, stored.records.count(), stored.records.size_bytes()) == figures


def test_a_short_write_pauses_for_its_exchanges_alone(stored: Stored) -> None:
    def write(stored: Stored) -> None:
        stored.records.insert_record(b"short", 1, -1)
        stored.sorted.insert(MORE[:10])
        stored.unique.insert(MORE[:10])

    assert stored.pauses_of(write) <= 2 * SHORT_PAUSES


def test_an_error_in_a_pause_undoes_the_unit(stored: Stored) -> None:
    def fail() -> None:
        raise InterruptedError

    stored.engine.set_pause(fail)
    with pytest.raises(InterruptedError), stored.engine.unit_of_work() as work:
        stored.sorted.insert(MORE)
        work.commit()
    stored.engine.set_pause(lambda: None)
    assert stored.sorted.count_range(ALL_KEYS) == len(ENTRIES)
    assert stored.pauses_of(lambda stored: stored.sorted.insert(MORE)) >= 8
