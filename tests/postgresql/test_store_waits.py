"""Many operations on few connections: each is left while it waits, in its greenlet, and goes on when its answer is
there."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from mongottl.clock import SystemClock
from mongottl.document.interrupt import Undivided, in_undivided
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.running.stack import Stacks, Steps, StepTimes
from mongottl.server.driving import drive, perform
from mongottl.server.durability import Durability
from mongottl.server.log import Log
from mongottl.server.poller import Poller
from mongottl.server.store_waits import StackWaiter
from mongottl.storage.opening import open_engine
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import APPLICATION_NAME, Connection, SessionSettings
from mongottl.storage.postgresql.failures import StoreFailure
from mongottl.storage.postgresql.local_cluster import LocalCluster, stop_cluster
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.statements import BYTEA, INT4, INT8, Statement, int4, int8
from tests import postgres
from tests.running import new_operation
from tests.waiting import PATIENCE_S

ADD = Statement("add", "INSERT INTO numbers VALUES ($1, $2)", (INT8, BYTEA))
SUM = Statement("sum", "SELECT count(*), sum(n)::int8 FROM numbers")
SLEEP = Statement("sleep", "SELECT pg_sleep(600)")
ECHO = Statement("echo", "SELECT repeat('x', 50000)::bytea, $1", (BYTEA,))
THERE = Statement("there", "SELECT n FROM numbers WHERE n = $1", (INT8,))
MAKE_NUMBERS = Statement("make_numbers", "CREATE TABLE numbers (n int8 PRIMARY KEY, b bytea)")
OTHERS = Statement(
    "others",
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'mongottl' AND pid <> $1 LIMIT 1",
    (INT4,),
)
SLEEPING = Statement("sleeping", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
TERMINATE = Statement("terminate", "SELECT pg_terminate_backend($1)", (INT4,))


class Loop:
    """A server's loop around operations of a test: poller, stacks, waiter."""

    def __init__(self, uri: str, schema: str, most: int, session: str = APPLICATION_NAME) -> None:
        self.clock = SystemClock()
        self.stacks = Stacks(self.clock.monotonic_s, StepTimes())
        self.poller = Poller(self.clock, self.stacks)
        self.durability = Durability(open_engine("memory:"), self.clock, Log(stream=io.StringIO()))
        self.waiter = StackWaiter(self.clock, self.stacks, self.poller, self.durability)
        self.pool = ConnectionPool(Address(uri), SessionSettings(schema, session), self.waiter, most, PATIENCE_S)

    async def call(self, function: Callable[[], Any]) -> Any:
        """Runs an operation."""
        return await drive(self.stacks.begin(function), self.clock, self.durability)

    def run(self, main: Callable[[], Any]) -> None:
        async def all_of_it() -> None:
            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.poller.run)
                    nursery.start_soon(self.poller.resume_due)
                    nursery.start_soon(self.waiter.run)
                    await trio.testing.wait_all_tasks_blocked()
                    await main()
                    nursery.cancel_scope.cancel()

        trio.run(all_of_it)


@pytest.fixture
def loop(cluster: LocalCluster, schema: str) -> Iterator[Loop]:
    loop = Loop(cluster.uri, schema, 3)
    yield loop
    loop.pool.close()
    loop.poller.close()


def test_many_operations_share_few_connections(loop: Loop, connection: Connection) -> None:
    def work(number: int) -> None:
        for step in range(5):
            loop.pool.write([ADD.with_(int8(number * 5 + step), None)])

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(loop.call, partial(work, number))

    loop.run(main)
    assert connection.run_one(SUM.with_()).rows() == [(200, sum(range(200)))]
    assert loop.pool.statistics()["connected"] <= 3
    assert loop.waiter.blocked == 0


def test_others_run_while_one_waits(loop: Loop, connection: Connection) -> None:
    said: list[int] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.call, lambda: loop.pool.read([SLEEP.with_()]))
            while not connection.run_one(SLEEPING.with_()).value():
                await trio.sleep(0.001)
            for number in range(20):
                said.append(len(await loop.call(lambda: loop.pool.read([ECHO.with_(b"")]))))
                assert number == len(said) - 1
            nursery.cancel_scope.cancel()
        # The statement is cancelled, and its connection used again.
        while loop.pool.statistics()["idle"] < loop.pool.statistics()["open"]:
            await trio.sleep(0.001)

    loop.run(main)
    assert len(said) == 20
    assert loop.pool.statistics()["settled"] == 1
    assert loop.pool.statistics()["lost"] == 0


def test_long_batches_in_both_directions_share_connections(loop: Loop) -> None:
    sizes: list[int] = []

    def work() -> None:
        answers = loop.pool.read([ECHO.with_(bytes(50_000)) for _ in range(100)])
        sizes.append(sum(len(value) for answer in answers for row in answer.rows() for value in row))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(loop.call, work)

    loop.run(main)
    assert sizes == [100 * 100_000] * 6


def test_operations_wait_for_their_turns_longer_than_for_the_store(loop: Loop) -> None:
    """As long as others get theirs; not where nobody gives a connection back."""
    loop.pool.timeout_s = 0.5
    done: list[int] = []

    def work() -> None:
        loop.pool.read([Statement("nap", "SELECT pg_sleep(0.05)").with_()])
        done.append(1)

    async def main() -> None:
        began_s = loop.clock.monotonic_s()
        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(loop.call, work)
        assert loop.clock.monotonic_s() - began_s > 2 * loop.pool.timeout_s
        assert len(done) == 60
        held = [await loop.call(loop.pool.acquire) for _ in range(3)]
        with pytest.raises(StoreFailure, match="are in use"):
            await loop.call(loop.pool.acquire)
        for each in held:
            loop.pool.release(each)

    loop.run(main)


def test_operations_that_wait_for_a_store_that_is_away_fail_together(schema: str) -> None:
    """Not a few at a time, one after another for as long as each may try."""
    loop = Loop("postgresql://nobody@127.0.0.1:1/none", schema, 3)
    loop.pool.timeout_s = 0.2
    failures: list[StoreFailure] = []

    def work() -> None:
        try:
            loop.pool.read([SUM.with_()])
        except StoreFailure as failure:
            failures.append(failure)

    async def main() -> None:
        began_s = loop.clock.monotonic_s()
        async with trio.open_nursery() as nursery:
            for _ in range(90):
                nursery.start_soon(loop.call, work)
        assert loop.clock.monotonic_s() - began_s < 10 * loop.pool.timeout_s  # of the 30 turns that there would be

    loop.run(main)
    loop.pool.close()
    loop.poller.close()
    assert len(failures) == 90


def test_operations_get_connections_in_the_order_of_asking(loop: Loop) -> None:
    order: list[int] = []

    def work(number: int) -> None:
        used = loop.pool.acquire()
        order.append(number)
        used.run([Statement("nap", "SELECT pg_sleep(0.01)").with_()])
        loop.pool.release(used)

    async def main() -> None:
        held = [await loop.call(loop.pool.acquire) for _ in range(2)]
        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(loop.call, partial(work, number))
                await trio.testing.wait_all_tasks_blocked()

        for each in held:
            loop.pool.release(each)

    loop.run(main)
    assert order == list(range(12))
    assert loop.pool.statistics()["open"] == loop.pool.statistics()["idle"] == 3


def test_connections_that_end_while_unused_are_replaced(loop: Loop, connection: Connection) -> None:
    used: list[Connection] = []

    async def main() -> None:
        used.append(await loop.call(loop.pool.acquire))
        await loop.call(lambda: used[0].run_one(ECHO.with_(b"")))
        loop.pool.release(used[0])
        connection.run([TERMINATE.with_(int4(used[0].backend_id))])
        while used[0].is_alive:
            await trio.sleep(0.001)
        await loop.call(lambda: loop.pool.write([ADD.with_(int8(1), None)]))

    loop.run(main)
    assert used[0].is_lost
    assert connection.run_one(SUM.with_()).rows() == [(1, 1)]


def add_once(pool: ConnectionPool, numbers: range) -> None:
    """Adds numbers, each exactly once: a unit whose outcome is unknown is looked up."""
    for number in numbers:
        while True:
            try:
                pool.write([ADD.with_(int8(number), None)])
            except StoreFailure as failure:
                assert failure.may_be_committed
                if not pool.read([THERE.with_(int8(number))])[0].rows():
                    continue
            break


def test_operations_go_on_while_sessions_are_ended(loop: Loop, connection: Connection) -> None:
    ended = 0

    async def main() -> None:
        nonlocal ended
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(loop.call, partial(add_once, loop.pool, range(number * 10, number * 10 + 10)))
            for _ in range(15):
                await trio.sleep(0.003)
                for (victim,) in connection.run_one(OTHERS.with_(int4(connection.backend_id))).rows():
                    connection.run([TERMINATE.with_(int4(victim))])
                    ended += 1

    loop.run(main)
    assert ended > 0
    assert connection.run_one(SUM.with_()).rows() == [(200, sum(range(200)))]


@pytest.fixture
def own_cluster() -> Iterator[LocalCluster]:
    folder = postgres.Folder()
    cluster = postgres.start_cluster(folder.path)
    yield cluster
    cluster.stop("immediate")
    folder.remove()


def is_in_use(statistics: dict[str, int]) -> bool:
    """Whether there is a connection that was made, not only one that is being made, and somebody uses it."""
    return statistics["connected"] - statistics["lost"] > statistics["idle"]


def test_operations_go_on_over_restarts_of_the_server(
    own_cluster: LocalCluster, connect_to: Callable[..., Connection]
) -> None:
    connect_to(own_cluster.uri).run([MAKE_NUMBERS.with_()])
    loop = Loop(own_cluster.uri, "public", 3)

    def restart(mode: str) -> None:
        stop_cluster(own_cluster.binaries, own_cluster.data, mode)
        own_cluster.start_again()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(loop.call, partial(add_once, loop.pool, range(number * 100, number * 100 + 100)))
            for mode in ("fast", "immediate"):
                while nursery.child_tasks and not is_in_use(loop.pool.statistics()):
                    await trio.sleep(0.001)
                await trio.to_thread.run_sync(restart, mode)

    loop.run(main)
    statistics = loop.pool.statistics()
    loop.pool.close()
    loop.poller.close()
    assert statistics["lost"] > 0
    assert connect_to(own_cluster.uri).run_one(SUM.with_()).rows() == [(1000, sum(range(1000)))]


def test_a_killed_operation_ends_while_it_waits(loop: Loop, connection: Connection) -> None:
    operation = new_operation()
    failures: list[CommandError] = []

    def work() -> None:
        loop.stacks.carry(operation)
        try:
            loop.pool.read([SLEEP.with_()])
        except CommandError as error:
            failures.append(error)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.call, work)
            while not connection.run_one(SLEEPING.with_()).value():
                await trio.sleep(0.001)
            operation.kill()
        while loop.pool.statistics()["idle"] < loop.pool.statistics()["open"]:
            await trio.sleep(0.001)

    loop.run(main)
    assert [failure.code for failure in failures] == [ErrorCode.Interrupted]
    assert operation.was_left
    assert loop.pool.statistics()["settled"] == 1


def test_others_run_where_one_has_gone_on_for_long(loop: Loop) -> None:
    """Also in an undivided block, as where it waits; not where it has gone on for less, nor outside of operations."""
    order: list[tuple[str, bool]] = []

    def work(name: str) -> None:
        with Undivided():
            for _ in range(3):
                order.append((name, in_undivided()))
                loop.waiter.let_others_run()

    async def take_turns() -> None:
        async with trio.open_nursery() as nursery:
            for name in "ab":
                nursery.start_soon(drive, loop.stacks.begin(partial(work, name)), loop.clock, loop.durability, 0.0)

    loop.waiter.let_others_run()
    loop.stacks.times = StepTimes(left_after_s=3600.0)
    loop.run(take_turns)
    assert order == [("a", True)] * 3 + [("b", True)] * 3
    order.clear()
    loop.stacks.times = StepTimes(left_after_s=0.0)
    loop.run(take_turns)
    assert sorted(order) == [("a", True)] * 3 + [("b", True)] * 3
    assert [name for name, _ in order[:2]] == ["a", "b"]


def test_an_operation_that_was_ended_is_not_ended_again_while_it_cleans_up(loop: Loop) -> None:
    operation = new_operation()
    cleaned: list[int] = []

    def work() -> None:
        loop.stacks.carry(operation)
        operation.kill()
        try:
            operation.check_interrupt()
        except CommandError:
            cleaned.append(len(loop.pool.read([ECHO.with_(b"")])))

    async def main() -> None:
        await loop.call(work)

    loop.run(main)
    assert cleaned == [1]


def test_waits_block_where_no_operation_runs(loop: Loop) -> None:
    before = loop.waiter.blocked
    loop.pool.read([ECHO.with_(b"")])
    assert loop.waiter.blocked > before


def test_an_operation_is_left_in_an_undivided_block_which_it_is_in_afterwards(loop: Loop) -> None:
    seen: list[bool] = []

    def work() -> None:
        with Undivided():
            loop.pool.read([ECHO.with_(b"")])
            seen.append(in_undivided())

    def other() -> None:
        seen.append(in_undivided())

    async def main() -> None:
        working = loop.stacks.begin(work)
        assert isinstance(working, Steps)
        loop.stacks.begin(other)
        for step in working:
            if step is not None:
                await perform(step, loop.durability)

    loop.run(main)
    assert seen == [False, True]
    assert loop.waiter.blocked == 0
