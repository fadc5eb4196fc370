"""Units of work of several operations at once: beside each other, or alone, in the order of asking."""

from collections.abc import Iterator
from functools import partial

import pytest
import trio

from mongottl.errors import CommandError, ErrorCode
from mongottl.storage.errors import DuplicateKey, EngineUnavailable, StorageError, UnitLost, WriteConflict
from mongottl.storage.interface import StorageEngine
from mongottl.storage.nodes import NodeFacts
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.failures import StoreFailure
from mongottl.storage.postgresql.isolation import PostgresIsolation
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


def insert_slowly(engine: PostgresEngine, commits: bool, alone: bool = True) -> None:
    with engine.unit_of_work() if alone else engine.concurrent_unit_of_work() as unit:
        engine.record_store("records").insert_record(b"one", 1, 0)
        engine.require().ask(NAP)
        if commits:
            unit.commit()


def test_nobody_goes_before_those_who_wait(loop: Loop, engine: PostgresEngine) -> None:
    begun: list[str] = []

    def unit(name: str, again: int = 0) -> None:
        for number in range(again + 1):
            with engine.unit_of_work() as work:
                begun.append(f"{name}{number}" if again else name)
                engine.require().ask(NAP)
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


def test_concurrent_units_are_open_at_once_and_alone_ones_are_not(loop: Loop, engine: PostgresEngine) -> None:
    open_now: set[int] = set()
    most: dict[bool, int] = {True: 0, False: 0}
    beside_alone: list[int] = []

    def unit(number: int, alone: bool) -> None:
        with engine.unit_of_work() if alone else engine.concurrent_unit_of_work() as work:
            assert work.alone is alone
            open_now.add(number)
            engine.record_store("records").insert_record(b"one", 1, 0)
            engine.require().ask(NAP)
            most[alone] = max(most[alone], len(open_now))
            if alone:
                beside_alone.append(len(open_now))
            open_now.discard(number)
            work.commit()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(loop.call, partial(unit, number, number in (5, 6)))

    loop.run(main)
    assert most[False] >= 3
    assert beside_alone == [1, 1]
    assert engine.record_store("records").count() == 12


def test_a_lost_connection_ends_its_own_unit_alone(loop: Loop, engine: PostgresEngine) -> None:
    lost: list[Exception] = []

    def lose_connection() -> None:
        try:
            with engine.concurrent_unit_of_work():
                engine.record_store("records").insert_record(b"lost", 1, 0)
                engine.require().ask(END)
        except UnitLost as error:
            lost.append(error)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(loop.call, partial(insert_slowly, engine, number % 2 == 0, False))
            nursery.start_soon(loop.call, lose_connection)

    loop.run(main)
    assert len(lost) == 1
    records, _ = engine.record_store("records").scan(0, 100)
    assert [record[1] for record in records] == [b"one"] * 4
    assert engine.record_store("records").count() == 4


def test_a_unit_that_is_alone_may_hold(loop: Loop, engine: PostgresEngine) -> None:
    held: list[int] = []

    def unit(number: int) -> None:
        with engine.unit_of_work() as work:
            engine.record_store("records").insert_record(b"one", 1, 0)
            guard = engine.undivided_guard()
            guard.begin()
            engine.require().ask(NAP)
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


def test_units_of_the_operation_that_holds_are_alone(loop: Loop, engine: PostgresEngine) -> None:
    """And nobody else commits meanwhile."""
    committed: list[tuple[int, int]] = []

    def unit() -> None:
        guard = engine.undivided_guard()
        guard.begin()
        before = engine.committed_number
        with engine.concurrent_unit_of_work() as work:
            assert work.alone
            engine.record_store("records").insert_record(b"one", 1, 0)
            engine.require().ask(NAP)
            committed.append((before, engine.committed_number))
            work.commit()
        guard.end()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(loop.call, partial(insert_slowly, engine, True, False) if number % 2 else unit)

    loop.run(main)
    assert len(committed) == 3
    assert all(before == after for before, after in committed)
    assert engine.record_store("records").count() == 6


def test_a_unit_that_was_asked_for_and_not_begun_holds_nobody_up(loop: Loop, engine: PostgresEngine) -> None:
    """As where a collection was dropped meanwhile, so that the operation makes it again."""
    ended: list[bool] = []

    def unit() -> None:
        asked = engine.concurrent_unit_of_work()
        insert_slowly(engine, True)  # alone
        try:
            with asked as work:
                engine.record_store("records").insert_record(b"one", 1, 0)
                work.commit()
            ended.append(True)
        except WriteConflict:
            ended.append(False)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(loop.call, unit)

    loop.run(main)
    assert len(ended) == 3
    assert engine.record_store("records").count() == 3 + sum(ended)


def test_a_unit_that_was_asked_for_and_not_begun_does_not_keep_an_old_catalog(
    loop: Loop, engine: PostgresEngine
) -> None:
    """An insert whose collection was dropped while it waited to be alone began again, and was refused for ever."""

    def unit() -> None:
        engine.unit_of_work()
        engine.units.is_stale = True  # which another operation has met meanwhile
        insert(engine)

    async def main() -> None:
        await loop.call(unit)

    loop.run(main)
    assert engine.record_store("records").count() == 1


def test_two_units_that_wait_for_each_other_do_not(loop: Loop, engine: PostgresEngine) -> None:
    """Both are open beside the other, and then want to be alone: one of them has to begin again."""
    ended: list[str] = []

    def unit() -> None:
        try:
            with engine.concurrent_unit_of_work() as work:
                engine.record_store("records").insert_record(b"one", 1, 0)
                engine.require().ask(NAP)
                guard = engine.undivided_guard()
                guard.begin()
                guard.end()
                work.commit()
            ended.append("committed")
        except WriteConflict:
            ended.append("conflict")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(loop.call, unit)

    loop.run(main)
    assert sorted(ended) == ["committed", "conflict"]


def test_a_key_that_two_concurrent_units_insert(loop: Loop, engine: PostgresEngine) -> None:
    """One has it; the other fails at its commit, and finds out who has it when it begins again."""
    with engine.unit_of_work() as unit:
        data = engine.create_sorted_data("keys", unique=True)
        unit.commit()
    seen: list[object] = []

    def insert_key(number: int) -> None:
        for _ in range(3):
            try:
                with engine.concurrent_unit_of_work() as work:
                    data.insert_one(b"key", number)
                    work.commit()
                seen.append(number)
                return
            except DuplicateKey as duplicate:
                seen.append((duplicate.key, duplicate.existing_record_id))
                return
            except WriteConflict:
                seen.append("conflict")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in (1, 2):
                nursery.start_soon(loop.call, partial(insert_key, number))

    loop.run(main)
    winner = next(each for each in seen if isinstance(each, int))
    assert sorted(map(str, seen)) == sorted(map(str, [winner, "conflict", (b"key", winner)]))
    assert data.find_exact([b"key"]) == [(b"key", winner)]


def test_nobody_waits_outside_of_operations(loop: Loop, engine: PostgresEngine) -> None:
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
        connection = engine.require().connection
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


def test_all_connections_are_tried_for_as_long_as_the_server_says(cluster: LocalCluster, schema: str) -> None:
    engine = PostgresEngine(Address(cluster.uri), schema, NodeFacts(timeout_s=7.0))
    try:
        assert engine.units.pool.timeout_s == 7.0
        isolation = engine.isolation
        assert isinstance(isolation, PostgresIsolation)
        assert isolation.pool.timeout_s == 7.0
    finally:
        engine.close()
