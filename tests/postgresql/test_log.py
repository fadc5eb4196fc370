"""The log of a store: positions, the horizon, counts, trimming."""

import random
import threading
from collections.abc import Callable, Iterator

import pytest
import trio

from mongottl.storage.log import ExecutedStatement, LogForm, position_of, time_of
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import Connection, SessionSettings
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.failures import StoreFailure
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.log import PostgresLog
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.statements import INT4, Statement, int4
from mongottl.storage.postgresql.units import engine_error
from mongottl.storage.waiting import BlockingWaiter
from tests.postgresql.test_store_waits import Loop

BEGIN = Statement("test_begin", "BEGIN")
COMMIT = Statement("test_commit", "COMMIT")
NAP = Statement("test_nap", "SELECT pg_sleep(0.02)")
MAKE = Statement("make_hot", "CREATE TABLE hot (row int PRIMARY KEY, version int NOT NULL)")
FILL = Statement("fill_hot", "INSERT INTO hot SELECT i, 0 FROM generate_series(0, 19) AS i")
CHANGE = Statement("change_hot", "UPDATE hot SET version = version + 1 WHERE row = $1 RETURNING version", (INT4,))
UNITS_OF = "mongottl unit test"


@pytest.fixture
def engine(cluster: LocalCluster, schema: str) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(Address(cluster.uri), schema)
    yield engine
    engine.close()


def log_of(cluster: LocalCluster, schema: str, engine: PostgresEngine, name: str) -> tuple[PostgresLog, ConnectionPool]:
    """The log as another server would use it."""
    waiter = BlockingWaiter()
    session = f"{UNITS_OF} {name}"
    pool = ConnectionPool(Address(cluster.uri), SessionSettings(schema, session, lock_timeout_ms=0), waiter)
    log = PostgresLog(pool, waiter, session, UNITS_OF, engine_error)
    log.load(engine.log.epoch, engine.nodes.number)
    return log, pool


def append(engine: PostgresEngine, *forms: bytes, not_before: int = 0, statement: int = -1) -> int:
    with engine.unit_of_work() as unit:
        for number, form in enumerate(forms):
            executed = ExecutedStatement(b"session", 7, statement + number) if statement >= 0 else None
            unit.log(LogForm(form, not_before, executed))
        unit.commit()
    return unit.position


def everything(engine: PostgresEngine) -> list[tuple[int, bytes]]:
    engine.log.refresh()
    return engine.log.read(0, engine.log.horizon, 1000, 1 << 20)


def test_positions_that_nobody_has_committed_may_be_given_again(
    cluster: LocalCluster, schema: str, engine: PostgresEngine
) -> None:
    """As by a PostgreSQL that has crashed, or a standby that was promoted: sequences are durable with commits alone."""
    first = append(engine, b"first")
    _, pool = log_of(cluster, schema, engine, "lost")
    for _ in range(5):
        pool.write([Statement("test_take", "SELECT nextval('oplog_pos')").with_()])
    engine.log.refresh()
    assert everything(engine)[-1] == (first, b"first")
    read_through = engine.log.horizon
    pool.write([Statement("test_crash", f"SELECT setval('oplog_pos', {first})").with_()])
    again = append(engine, b"again")
    assert again > read_through
    assert everything(engine)[-1] == (again, b"again")


def test_nothing_is_missing_below_the_horizon_and_rows_change_in_order(
    cluster: LocalCluster, schema: str, engine: PostgresEngine
) -> None:
    """Writers on hot rows, some of which are slow between their position and their commit. Two forms of the horizon
    that seemed right have lost entries here within seconds."""
    _, setup_pool = log_of(cluster, schema, engine, "setup")
    setup_pool.write([MAKE.with_(), FILL.with_()])
    units, writers = 150, 6
    acknowledged: list[list[tuple[int, bytes]]] = [[] for _ in range(writers)]

    def write(writer: int) -> None:
        log, pool = log_of(cluster, schema, engine, f"writer {writer}")
        chance = random.Random(writer)
        connection = pool.acquire()
        for unit in range(units):
            row = chance.randrange(20)
            [_, changed] = connection.run([BEGIN.with_(), CHANGE.with_(int4(row))])
            forms = [b"%d %d %d" % (row, changed.value(), part) for part in range(chance.choice([1, 1, 1, 3]))]
            number = writer * units + unit + 1
            calls = log.append_calls(number, log.epoch, [LogForm(form, 0) for form in forms], {})
            if chance.random() < 0.05:
                calls.append(NAP.with_())
            position = connection.run([*calls, COMMIT.with_()])[len(calls) - (2 if calls[-1][0] is NAP else 1)].value()
            first = position - len(forms) + 1
            acknowledged[writer] += [(first + part, form) for part, form in enumerate(forms)]
        pool.release(connection)
        pool.close()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    read: list[tuple[int, bytes]] = []
    log, pool = log_of(cluster, schema, engine, "reader")
    through = 0
    held_back = 0
    is_last = False
    while not is_last:
        is_last = not any(thread.is_alive() for thread in threads)
        log.refresh()
        held_back += log.horizon < log.position
        while rows := log.read(through + 1, log.horizon, 50, 1 << 20):
            read += rows
            through = rows[-1][0]
    log.refresh()
    read += log.read(through + 1, log.horizon, 10_000, 1 << 20)
    pool.close()
    setup_pool.close()
    wanted = sorted(one for each in acknowledged for one in each)
    assert len(wanted) >= units * writers
    assert read == wanted
    assert held_back
    versions: dict[int, int] = {}
    for _, form in read:
        row, version, part = map(int, form.split())
        assert version == versions.get(row, 0) + (part == 0)
        versions[row] = version


def test_positions_are_cluster_times(engine: PostgresEngine) -> None:
    second = position_of(4_000_000_000, 0)
    assert append(engine, b"first", not_before=second) == second + 1
    assert append(engine, b"second", not_before=second) == second + 2
    assert append(engine, b"a", b"b", b"c") == second + 5
    # What is near is passed by far, so that a sequence which others use meanwhile never goes back.
    assert append(engine, b"ahead", not_before=second + 9) == second + 9 + 4096 + 1
    later = position_of(4_000_000_001, 0)
    assert time_of(later + 7) == (4_000_000_001, 7)
    assert append(engine, b"later", not_before=later) == later + 1
    assert append(engine, b"earlier", not_before=second) == later + 2
    assert [form for _, form in everything(engine)] == [
        b"first", b"second", b"a", b"b", b"c", b"ahead", b"later", b"earlier",
    ]  # fmt: skip


def test_a_unit_that_is_rolled_back_is_not_in_the_log(engine: PostgresEngine) -> None:
    with engine.unit_of_work() as unit:
        unit.log(LogForm(b"lost", 0))
    append(engine, b"kept")
    assert [form for _, form in everything(engine)] == [b"kept"]


def test_reading_in_both_directions_by_parts(engine: PostgresEngine) -> None:
    positions = [append(engine, b"x" * 10) for _ in range(5)]
    log = engine.log
    log.refresh()
    assert [position for position, _ in log.read(positions[1], positions[3], 10, 100)] == positions[1:4]
    assert [position for position, _ in log.read(0, log.horizon, 2, 100)] == positions[:2]
    assert [position for position, _ in log.read(0, log.horizon, 10, 15)] == positions[:2]
    assert [position for position, _ in log.read(0, log.horizon, 2, 100, forward=False)] == positions[:2:-1]


def test_a_statement_is_in_the_log_once(engine: PostgresEngine) -> None:
    """A server that does not know that another one has executed it cannot do so again."""
    append(engine, b"done", statement=3)
    with pytest.raises(Exception, match="oplog_statements"):
        append(engine, b"again", statement=3)
    append(engine, b"two", b"three", statement=4)
    assert engine.log.read_statements(0, 10) == everything(engine)


def test_counts_are_those_of_the_log(
    cluster: LocalCluster, schema: str, engine: PostgresEngine, connect_to: Callable[..., Connection]
) -> None:
    with engine.unit_of_work() as unit:
        stores = [engine.create_record_store(name) for name in ("a", "b", "c")]
        for store in stores:
            store.insert_records([(b"12345", 1, 0)] * 3)
        unit.commit()
    with engine.unit_of_work() as unit:
        stores[0].delete_record((1, b"12345", 1, 0))
        stores[1].update_record((1, b"12345", 1, 0), (1, b"1", 1, 0))
        unit.log(LogForm(b"form", 0))
        unit.commit()

    def counts() -> list[tuple[int, int]]:
        return [(store.count(), store.size_bytes()) for store in stores]

    assert counts() == [(2, 10), (3, 11), (3, 15)]
    engine.log.refresh()
    engine.log.count_up()
    stores[2].count()
    with engine.unit_of_work() as unit:
        stores[2].insert_record(b"123", 1, 0)
        unit.commit()
    engine.close()
    again = PostgresEngine(Address(cluster.uri), schema)
    stores = [again.record_store(name) for name in ("a", "b", "c")]
    assert counts() == [(2, 10), (3, 11), (4, 18)]
    assert again.log.count == 1
    assert again.log.size_bytes == 4
    again.close()


def test_units_are_dropped_whole_and_what_they_have_counted_stays(
    cluster: LocalCluster, schema: str, engine: PostgresEngine
) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("a")
        store.insert_records([(b"12345", 1, 0)] * 3)
        unit.log(LogForm(b"first", 0))
        unit.commit()
    append(engine, b"1", b"2", b"3", b"4")
    last = append(engine, b"last")
    log = engine.log
    log.refresh()
    assert log.trim(log.horizon, 3) == 1  # the next one has four
    assert [form for _, form in everything(engine)] == [b"1", b"2", b"3", b"4", b"last"]
    assert log.trim(log.horizon, 4) == 4
    assert (log.count, log.size_bytes) == (1, 4)
    assert everything(engine) == [(last, b"last")]
    assert log.floor < last == log.first_position
    engine.close()
    again = PostgresEngine(Address(cluster.uri), schema)
    assert again.record_store("a").count() == 3
    assert (again.log.count, again.log.size_bytes, again.log.floor) == (1, 4, log.floor)
    again.close()


def test_another_server_that_opens_the_database_ends_the_units_of_this_one(
    cluster: LocalCluster, schema: str, engine: PostgresEngine, connect_to: Callable[..., Connection]
) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("a")
        unit.commit()
    raise_epoch = Statement("raise_epoch", "UPDATE meta SET epoch = epoch + 1")
    connect_to(settings=SessionSettings(schema)).run_one(raise_epoch.with_())
    with pytest.raises(Exception, match="another server has used the data"), engine.unit_of_work() as unit:
        store.insert_record(b"lost", 1, 0)
        unit.commit()
    assert engine.failed
    assert store.scan(0, 10)[0] == []
    assert store.count() == 0


def test_a_commit_without_an_answer_is_looked_up(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine.unit_of_work() as unit:
        store = engine.create_record_store("a")
        unit.commit()
    commit = engine.units._commit
    for was_committed in (True, False):

        def lose_answer(unit: object, calls: object, was_committed: bool = was_committed) -> int:
            if was_committed:
                commit(unit, calls)  # type: ignore[arg-type]
            raise StoreFailure("gone", "the answer is lost", may_be_committed=True)

        monkeypatch.setattr(engine.units, "_commit", lose_answer, raising=True)
        if was_committed:
            with engine.unit_of_work() as unit:
                store.insert_record(b"kept", 1, 0)
                unit.commit()
            assert unit.position == engine.log.position
        else:
            with pytest.raises(Exception, match="the answer is lost"), engine.unit_of_work() as unit:
                store.insert_record(b"lost", 1, 0)
                unit.commit()
    assert [record[1] for record in store.scan(0, 10)[0]] == [b"kept"]
    assert store.count() == 1


def test_looking_up_a_commit_ends_no_session_that_is_in_use(
    cluster: LocalCluster, schema: str, engine: PostgresEngine, connect_to: Callable[..., Connection]
) -> None:
    """After all connections were lost many look at once, while others connect again."""
    session = f"{UNITS_OF} {schema}"
    loop = Loop(cluster.uri, schema, 12, session)
    log = PostgresLog(loop.pool, loop.waiter, session, UNITS_OF, engine_error)
    orphan = connect_to(settings=SessionSettings(schema, session))
    found: list[int] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(loop.call, lambda: found.append(log.find_commit(1, 0)))
                nursery.start_soon(loop.call, lambda: loop.pool.write([NAP.with_()]))

    try:
        loop.run(main)
        assert found == [0] * 6
        assert loop.pool.statistics()["lost"] == 0
        assert not orphan.is_alive
    finally:
        loop.pool.close()
        loop.poller.close()


def test_an_unsynced_commit_does_not_wait_for_the_disk(
    engine: PostgresEngine, schema: str, connect_to: Callable[..., Connection]
) -> None:
    """PostgreSQL's writer of its log brings it to the disk a little later."""
    unflushed = Statement("unflushed", "SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()")
    connection = connect_to(settings=SessionSettings(schema))

    def commits(unsynced: bool) -> Iterator[bool]:
        for _ in range(50):
            with engine.unit_of_work() as unit:
                unit.unsynced = unsynced
                unit.log(LogForm(b"form", 0))
                unit.commit()
            yield connection.run_one(unflushed.with_()).value()

    assert any(commits(unsynced=True))
    assert len(everything(engine)) <= 50
