"""Exchanges with a real server: units as one pipeline, what they fail with, what is left of them."""

import select
import struct
from collections.abc import Callable

import pytest

from mongottl.storage.postgresql.connection import Connection, SessionSettings
from mongottl.storage.postgresql.failures import (
    CONFLICT,
    DUPLICATE,
    FENCE,
    GONE,
    LOCKED,
    NO_TABLES,
    OUT_OF_TIME,
    UNEXPECTED,
    StoreFailure,
)
from mongottl.storage.postgresql.statements import (
    BOOL,
    BYTEA,
    BYTEA_ARRAY,
    INT2,
    INT4,
    INT4_ARRAY,
    INT8,
    INT8_ARRAY,
    SYNC,
    TEXT,
    Parameter,
    Statement,
    boolean,
    bytea_array,
    int2,
    int4,
    int4_array,
    int8,
    int8_array,
    text,
)
from mongottl.storage.waiting import READABLE, BlockingWaiter
from tests.waiting import until

ADD = Statement("add", "INSERT INTO numbers VALUES ($1, $2)", (INT8, BYTEA))
ALL = Statement("all", "SELECT n, b FROM numbers ORDER BY n")
COUNT = Statement("count", "SELECT count(*) FROM numbers")
DIVIDE = Statement("divide", "SELECT 1 / $1", (INT4,))
BEGIN = Statement("begin", "BEGIN ISOLATION LEVEL REPEATABLE READ")
ROLLBACK = Statement("rollback", "ROLLBACK")
COMMIT = Statement("commit", "COMMIT")


def add(number: int, content: Parameter = None) -> tuple[Statement, tuple[Parameter, ...]]:
    return ADD.with_(int8(number), content)


def failure_of(connection: Connection, *calls: tuple[Statement, tuple[Parameter, ...]]) -> StoreFailure:
    with pytest.raises(StoreFailure) as caught:
        connection.run(calls)
    return caught.value


def count(connection: Connection) -> int:
    found: int = connection.run_one(COUNT.with_()).value()
    return found


@pytest.mark.parametrize(
    ("number", "encoded", "value"),
    [
        (BOOL, boolean(True), True),
        (INT2, int2(-2), -2),
        (INT4, int4(-4), -4),
        (INT8, int8(-(2**63)), -(2**63)),
        (BYTEA, b"", b""),
        (BYTEA, bytes(range(256)), bytes(range(256))),
        (TEXT, text("größer"), "größer"),
        (INT8_ARRAY, int8_array([]), []),
        (INT8_ARRAY, int8_array([1, -2, 2**63 - 1]), [1, -2, 2**63 - 1]),
        (INT4_ARRAY, int4_array([]), []),
        (INT4_ARRAY, int4_array([7, -7]), [7, -7]),
        (BYTEA_ARRAY, bytea_array([]), []),
        (BYTEA_ARRAY, bytea_array([b"a", None, b""]), [b"a", None, b""]),
        (INT8, None, None),
    ],
)
def test_parameters_come_back_as_rows(connection: Connection, number: int, encoded: Parameter, value: object) -> None:
    statement = Statement(f"same_{number}", "SELECT $1, 5", (number,))
    assert connection.run_one(statement.with_(encoded)).rows() == [(value, 5)]


def test_answers_are_in_the_order_of_the_calls(connection: Connection) -> None:
    first, second, rows, none = connection.run(
        [add(1, b"x"), add(2), ALL.with_(), Statement("none", "SELECT n FROM numbers WHERE n = 9").with_()]
    )
    assert (first.changed, second.changed) == (1, 1)
    assert rows.rows() == [(1, b"x"), (2, None)]
    assert rows.changed == 2
    assert none.rows() == []
    assert none.row() is None


def test_a_statement_is_prepared_once(connection: Connection) -> None:
    for _ in range(3):
        connection.run([add(count(connection)), add(100 + count(connection))])
    prepared = Statement("prepared", "SELECT name FROM pg_prepared_statements ORDER BY name")
    names = [name for (name,) in connection.run_one(prepared.with_()).rows()]
    assert names == sorted(["add", "count", "make_numbers", "make_schema", "prepared"])


def test_no_call_of_a_unit_counts_if_one_fails(connection: Connection) -> None:
    failure = failure_of(connection, add(1), DIVIDE.with_(int4(0)), add(2))
    assert (failure.kind, failure.call, failure.may_be_committed) == (FENCE, 1, False)
    assert connection.is_ready
    assert count(connection) == 0


def test_a_statement_that_cannot_be_prepared_fails_its_call(connection: Connection) -> None:
    absent = Statement("absent", "SELECT * FROM absent")
    failure = failure_of(connection, add(1), absent.with_(), absent.with_())
    assert (failure.kind, failure.call) == (NO_TABLES, 1)
    assert failure_of(connection, absent.with_()).kind == NO_TABLES
    assert failure_of(connection, Statement("wrong", "SELEC 1").with_()).kind == UNEXPECTED
    assert count(connection) == 0


def test_two_transactions_can_be_sent_at_once(connection: Connection) -> None:
    failure = failure_of(connection, add(1), SYNC, add(2), DIVIDE.with_(int4(0)), SYNC, add(3))
    assert (failure.kind, failure.call) == (FENCE, 3)
    assert [n for n, _ in connection.run_one(ALL.with_()).rows()] == [1, 3]
    assert len(connection.run([COUNT.with_(), SYNC, COUNT.with_()])) == 2


def test_a_duplicate_names_its_index_and_its_call(connection: Connection) -> None:
    connection.run([add(1)])
    failure = failure_of(connection, add(2), add(1))
    assert (failure.kind, failure.call, failure.constraint) == (DUPLICATE, 1, "numbers_pkey")


def test_a_locked_row_fails_soon(connection: Connection, connect_to: Callable[..., Connection], schema: str) -> None:
    other = connect_to(settings=SessionSettings(schema))
    change = Statement("change", "UPDATE numbers SET b = $1 WHERE n = 1", (BYTEA,))
    connection.run([add(1)])
    other.run([BEGIN.with_(), change.with_(b"other")])
    assert failure_of(connection, change.with_(b"mine")).kind == LOCKED
    other.run([ROLLBACK.with_()])
    connection.run([change.with_(b"mine")])


def test_a_change_after_the_snapshot_is_a_conflict(
    connection: Connection, connect_to: Callable[..., Connection], schema: str
) -> None:
    other = connect_to(settings=SessionSettings(schema))
    change = Statement("change", "UPDATE numbers SET b = $1 WHERE n = 1", (BYTEA,))
    connection.run([add(1)])
    other.run([BEGIN.with_(), COUNT.with_()])
    connection.run([change.with_(b"first")])
    assert failure_of(other, change.with_(b"second")).kind == CONFLICT
    assert not other.is_ready
    assert other.settle(ROLLBACK.with_())
    assert other.is_ready


def test_statements_are_ended_by_the_server_in_time(connect_to: Callable[..., Connection]) -> None:
    connection = connect_to(settings=SessionSettings("public", statement_s=1))
    failure = failure_of(connection, Statement("sleep", "SELECT pg_sleep(600)").with_())
    assert (failure.kind, connection.is_ready) == (OUT_OF_TIME, True)


def test_a_batch_that_is_long_in_both_directions_ends(connection: Connection) -> None:
    """Both sides would wait for the other to read, if what is sent were flushed once."""
    echo = Statement("echo", "SELECT repeat('x', 50000)::bytea, $1", (BYTEA,))
    answers = connection.run([echo.with_(bytes(50_000)) for _ in range(400)])
    assert {len(value) for answer in answers for row in answer.rows() for value in row} == {50_000}


def test_long_parameters_are_stored_whole(connection: Connection) -> None:
    content = struct.pack("<I", 7) * 4_000_000
    connection.run([add(1, content)])
    assert connection.run_one(ALL.with_()).rows() == [(1, content)]


class InterleavedWaiter(BlockingWaiter):
    """Has another answer of the same connection read whenever others may run."""

    connection: Connection
    times = 0

    def let_others_run(self) -> None:
        self.times += 1
        assert self.connection.run_one(DIVIDE.with_(int4(1))).rows() == [(1,)]


# How many rows of which length are answered, and how often others run meanwhile.
@pytest.mark.parametrize(
    ("count", "length", "times"),
    [(4, 2 << 20, 4), (32, 256 << 10, 8), (32, 1000, 0), (1, 2 << 20, 1), (36, 480 << 10, 5), (500, 10, 0)],
)
def test_others_run_between_long_rows(
    count: int, length: int, times: int, connect_to: Callable[..., Connection]
) -> None:
    waiter = InterleavedWaiter()
    connection = waiter.connection = connect_to(waiter=waiter)
    rows = Statement(
        "rows", "SELECT n::text, n, convert_to(repeat('x', $2), 'UTF8') FROM generate_series(1, $1) n", (INT4, INT4)
    )
    answer = connection.run_one(rows.with_(int4(count), int4(length)))
    assert answer.rows() == [(str(number), number, b"x" * length) for number in range(1, count + 1)]
    assert waiter.times == times


class InterruptedWaiter(BlockingWaiter):
    """Raises an exception where an operation waits, when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.forgotten: list[int] = []

    def wait_socket(self, fd: int, events: int, until_s: float, must_end: bool = False) -> int:
        if self.error is not None and not must_end:
            error = self.error
            self.error = None
            raise error
        return super().wait_socket(fd, events, until_s, must_end)


def test_a_statement_whose_operation_has_ended_is_cancelled(connect_to: Callable[..., Connection]) -> None:
    waiter = InterruptedWaiter()
    connection = connect_to(waiter=waiter)
    waiter.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        connection.run([Statement("sleep", "SELECT pg_sleep(600)").with_()])
    assert not connection.is_ready
    with pytest.raises(RuntimeError):
        connection.run([DIVIDE.with_(int4(1))])
    assert connection.settle(ROLLBACK.with_())
    assert connection.run_one(DIVIDE.with_(int4(1))).value() == 1


def test_a_statement_that_was_prepared_in_vain_is_prepared_again(connect_to: Callable[..., Connection]) -> None:
    waiter = InterruptedWaiter()
    connection = connect_to(waiter=waiter)
    waiter.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        connection.run([DIVIDE.with_(int4(1))])
    assert connection.settle(ROLLBACK.with_())
    assert connection.run_one(DIVIDE.with_(int4(1))).value() == 1


def test_a_transaction_whose_operation_has_ended_is_rolled_back(
    connection: Connection, connect_to: Callable[..., Connection], schema: str
) -> None:
    waiter = InterruptedWaiter()
    other = connect_to(settings=SessionSettings(schema), waiter=waiter)
    other.run([BEGIN.with_(), add(1)])
    waiter.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        other.run([add(2), SYNC, add(3)])
    assert other.settle(ROLLBACK.with_())
    assert count(connection) == 0
    other.run([add(4)])
    assert count(connection) == 1


def test_a_change_of_data_is_not_interrupted(connect_to: Callable[..., Connection]) -> None:
    waiter = InterruptedWaiter()
    connection = connect_to(waiter=waiter)
    waiter.error = KeyboardInterrupt()
    assert connection.run([DIVIDE.with_(int4(1))], must_end=True)[0].value() == 1


def terminate(connection: Connection, victim: Connection) -> None:
    ended = Statement("terminate", "SELECT pg_terminate_backend($1)", (INT4,))
    assert connection.run_one(ended.with_(int4(victim.backend_id))).value() is True


def is_there(connection: Connection, victim: Connection) -> bool:
    there = Statement("is_there", "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", (INT4,))
    return bool(connection.run_one(there.with_(int4(victim.backend_id))).value())


def test_a_connection_that_is_ended_while_unused_is_noticed(
    connection: Connection, connect_to: Callable[..., Connection]
) -> None:
    victim = connect_to()
    was_alive = victim.is_alive
    terminate(connection, victim)
    until(lambda: is_hung_up(victim))
    # PostgreSQL has said why before it has closed the connection: all that is read at the first look.
    assert was_alive and not victim.is_alive
    assert victim.is_lost and not victim.is_ready


def is_hung_up(connection: Connection) -> bool:
    """Whether the other side has closed the connection."""
    poll = select.poll()
    poll.register(connection._fd, 0)
    return bool(poll.poll(0))


def test_a_unit_on_a_connection_that_had_been_ended_is_certainly_not_done(
    connection: Connection, connect_to: Callable[..., Connection], schema: str
) -> None:
    victim = connect_to(settings=SessionSettings(schema))
    terminate(connection, victim)
    until(lambda: not is_there(connection, victim))
    failure = failure_of(victim, add(1))
    assert (failure.kind, failure.sqlstate, failure.may_be_committed) == (GONE, "57P01", False)
    assert victim.is_lost
    assert count(connection) == 0


@pytest.mark.parametrize("limit", ["idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_transaction_that_the_server_has_ended_is_a_lost_connection(
    connection: Connection, connect_to: Callable[..., Connection], schema: str, limit: str
) -> None:
    """The owner of the database may limit transactions for all its users."""
    if limit == "transaction_timeout" and connection.server_version < 170_000:
        pytest.skip("came with PostgreSQL 17")
    victim = connect_to(settings=SessionSettings(schema))
    victim.run([Statement("limit", f"SET {limit} = '10ms'").with_()])
    victim.run([BEGIN.with_()])
    until(lambda: not is_there(connection, victim))
    assert failure_of(victim, add(1)).kind == GONE
    assert victim.is_lost


def test_a_unit_whose_statement_is_ended_is_certainly_not_done(
    connection: Connection, connect_to: Callable[..., Connection], schema: str
) -> None:
    class Terminating(BlockingWaiter):
        """Ends the session as soon as its second statement runs."""

        waits = False

        def wait_socket(self, fd: int, events: int, until_s: float, must_end: bool = False) -> int:
            if self.waits and events == READABLE:
                self.waits = False
                runs = Statement(
                    "runs", "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", (INT4,)
                )
                until(lambda: bool(connection.run_one(runs.with_(int4(victim.backend_id))).value()))
                terminate(connection, victim)
            return super().wait_socket(fd, events, until_s, must_end)

    waiter = Terminating()
    victim = connect_to(settings=SessionSettings(schema), waiter=waiter)
    waiter.waits = True
    failure = failure_of(victim, add(1), Statement("sleep", "SELECT pg_sleep(600)").with_(), add(2))
    assert (failure.kind, failure.call, failure.may_be_committed) == (GONE, 1, False)
    assert victim.is_lost
    assert count(connection) == 0
