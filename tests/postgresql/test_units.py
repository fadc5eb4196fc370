"""Units of work of several operations at once: one is open at a time, in the order of asking."""

from collections.abc import Iterator
from functools import partial

import pytest
import trio

from mongottl.errors import CommandError, ErrorCode
from mongottl.storage.interface import DuplicateKey, EngineUnavailable, StorageEngine, StorageError, WriteConflict
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.failures import StoreFailure
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.statements import Statement
from tests.postgresql.test_store_waits import Loop
from tests.running import new_operation

NAP = Statement("nap", "SELECT pg_sleep(0.15)")
DIVISION = Statement("division", "SELECT 1 / 0")
END = Statement("end_session", "SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.fixture
def loop(cluster: LocalCluster, schema: str) -> Iterator[Loop]:
    loop = Loop(cluster.uri, schema, 3)
    yield loop
    loop.pool.close()
    loop.poller.close()


@pytest.fixture
def engine(cluster: LocalCluster, schema: str, loop: Loop) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(Address(cluster.uri), schema)
    with engine.unit_of_work() as unit:
        engine.create_record_store("records")
        unit.commit()
    engine.wait_by(loop.waiter, loop.waiter.present)
    yield engine
    engine.close()


def insert(engine: StorageEngine) -> None:
    with engine.unit_of_work() as unit:
        engine.record_store("records").insert_record(b"one", 1, 0)
        unit.commit()


def insert_slowly(engine: PostgresEngine, commits: bool) -> None:
    with engine.unit_of_work() as unit:
        engine.record_store("records").insert_record(b"one", 1, 0)
        engine.units.ask(NAP)
        if commits:
            unit.commit()


def test_nobody_goes_before_those_who_wait(loop: Loop, engine: PostgresEngine) -> None:
    begun: list[str] = []

    def unit(name: str, again: int = 0) -> None:
        for number in range(again + 1):
            with engine.unit_of_work() as work:
                begun.append(f"{name}{number}" if again else name)
                engine.units.ask(NAP)
                work.commit()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.call, lambda: unit("greedy", 2))
            while not begun:
                await trio.sleep(0.001)
            for name in ("first", "second"):
                nursery.start_soon(loop.call, partial(unit, name))
                await trio.sleep(0.001)

    loop.run(main)
    assert begun == ["greedy0", "first", "second", "greedy1", "greedy2"]


def test_one_unit_is_begun_while_its_connection_is_made(loop: Loop, engine: PostgresEngine) -> None:
    def lose_connection() -> None:
        with engine.unit_of_work(), pytest.raises(WriteConflict):
            engine.units.ask(END)

    async def main() -> None:
        await loop.call(lose_connection)
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(loop.call, partial(insert_slowly, engine, number % 2 == 0))

    loop.run(main)
    records, _ = engine.record_store("records").scan(0, 100)
    assert [record[0] for record in records] == [1, 2, 3, 4]
    assert engine.record_store("records").count() == 4


def test_a_unit_that_joins_others_may_hold(loop: Loop, engine: PostgresEngine) -> None:
    held: list[int] = []

    def unit(number: int) -> None:
        with engine.unit_of_work() as work:
            engine.record_store("records").insert_record(b"one", 1, 0)
            guard = engine.undivided_guard()
            guard.begin()
            engine.units.ask(NAP)
            held.append(number)
            guard.end()
            work.commit()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(loop.call, partial(unit, number))

    loop.run(main)
    assert len(held) == 4
    assert engine.record_store("records").count() == 4


def test_an_operation_about_to_begin_a_unit_holds_without_waiting(loop: Loop, engine: PostgresEngine) -> None:
    committed: list[tuple[int, int]] = []

    def unit() -> None:
        work = engine.unit_of_work()
        before = engine.committed_number
        guard = engine.undivided_guard()
        guard.begin()
        guard.end()
        committed.append((before, engine.committed_number))
        with work:
            engine.record_store("records").insert_record(b"one", 1, 0)
            engine.units.ask(NAP)
            work.commit()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(loop.call, unit)

    loop.run(main)
    assert all(before == after for before, after in committed)
    assert engine.record_store("records").count() == 4


def test_nobody_joins_outside_of_operations(loop: Loop, engine: PostgresEngine) -> None:
    refused: list[StorageError] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(loop.call, lambda: insert_slowly(engine, True))
            for _ in range(100):
                await trio.sleep(0.005)
                try:
                    insert(engine)
                except EngineUnavailable as error:
                    refused.append(error)

    loop.run(main)
    assert refused
    assert engine.record_store("records").count() == 3 + 100 - len(refused)


def test_an_operation_that_ends_while_it_waits_passes_on_its_turn(loop: Loop, engine: PostgresEngine) -> None:
    killed = new_operation()
    ended: list[int] = []

    def wait_in_vain() -> None:
        loop.stacks.carry(killed)
        try:
            insert(engine)
        except CommandError as error:
            ended.append(error.code)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.call, lambda: insert_slowly(engine, False))
            await trio.sleep(0.01)
            nursery.start_soon(loop.call, wait_in_vain)
            await trio.sleep(0.001)
            nursery.start_soon(loop.call, lambda: insert(engine))
            await trio.sleep(0.001)
            killed.kill()

    loop.run(main)
    assert ended == [ErrorCode.Interrupted]
    assert engine.record_store("records").count() == 1


def test_the_size_is_found_aside_where_no_operation_runs(loop: Loop, engine: PostgresEngine) -> None:
    sizes: list[int] = []

    async def main() -> None:
        blocked = loop.waiter.blocked
        while not engine.statistics()["database_bytes"]:
            await trio.sleep(0.001)
        assert loop.waiter.blocked == blocked
        sizes.append(await loop.call(lambda: engine.stored_bytes))

    loop.run(main)
    assert sizes[0] > 0


def test_units_that_are_rolled_back_instead_of_committed_have_failed(engine: PostgresEngine) -> None:
    """As where a statement has failed that nobody asked about."""
    store = engine.record_store("records")
    with pytest.raises(EngineUnavailable, match="aborted"), engine.unit_of_work() as unit:
        store.insert_record(b"one", 1, 0)
        assert store.scan(0, 5)[0] == [(1, b"one", 1, 0)]
        connection = engine.units._connection
        assert connection is not None
        with pytest.raises(StoreFailure):
            connection.run_one(DIVISION.with_())
        unit.commit()
    assert store.scan(0, 5)[0] == []
    assert store.count() == 0
    insert(engine)
    assert store.count() == 1


def test_a_refused_attempt_undoes_nothing_else(engine: PostgresEngine) -> None:
    with engine.unit_of_work() as unit:
        unique = engine.create_sorted_data("unique", True)
        unique.insert([(b"a", 1), (b"b", 2)])
        unit.commit()
    records = engine.record_store("records")
    with engine.unit_of_work() as unit:
        records.insert_records([(b"one", 1, 0), (b"two", 1, 0)])
        with pytest.raises(DuplicateKey) as refused:
            unique.insert([(b"c", 3), (b"b", 4), (b"d", 5)])
        assert (refused.value.key, refused.value.existing_record_id, refused.value.position) == (b"b", 2, 1)
        unique.insert([(b"c", 3), (b"b", 2), (b"d", 5)])  # one is there already, for the same record
        unit.commit()
    assert [record[1] for record in records.scan(0, 9)[0]] == [b"one", b"two"]
    assert unique.find_exact([b"a", b"b", b"c", b"d"]) == [(b"a", 1), (b"b", 2), (b"c", 3), (b"d", 5)]
