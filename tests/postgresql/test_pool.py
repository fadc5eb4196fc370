"""Few connections for many: in turn, made anew when they are lost, repeated only what was certainly not done."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import Connection, SessionSettings, connect
from mongottl.storage.postgresql.failures import BUSY, DUPLICATE, GONE, LOGIN, NO_DATABASE, READ_ONLY, StoreFailure
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.pool import ConnectionPool
from mongottl.storage.postgresql.statements import BYTEA, INT4, INT8, Call, Statement, int4, int8
from mongottl.storage.waiting import BlockingWaiter, Waiter
from tests.postgresql.proxies import AFTER_COMMIT, BEFORE_COMMIT, CuttingProxy
from tests.postgresql.test_pipeline import InterruptedWaiter
from tests.waiting import PATIENCE_S, until

ADD = Statement("add", "INSERT INTO numbers VALUES ($1, $2)", (INT8, BYTEA))
COUNT = Statement("count", "SELECT count(*) FROM numbers WHERE n = $1", (INT8,))
BACKEND = Statement("backend", "SELECT pg_backend_pid()")
TERMINATE = Statement("terminate", "SELECT pg_terminate_backend($1)", (INT4,))
BEGIN = Statement("begin", "BEGIN")
SLEEP = Statement("sleep", "SELECT pg_sleep(0.1)")

Opener = Callable[..., ConnectionPool]


@pytest.fixture
def open_pool(cluster: LocalCluster, schema: str) -> Iterator[Opener]:
    pools: list[ConnectionPool] = []

    def make(uri: str = "", most: int = 2, timeout_s: float = 30.0, waiter: Waiter | None = None) -> ConnectionPool:
        address = Address(uri or cluster.uri)
        waiter = waiter or BlockingWaiter()
        pools.append(ConnectionPool(address, SessionSettings(schema), waiter, most, timeout_s))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def proxy(cluster: LocalCluster) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(f"{cluster.run_folder}/.s.PGSQL.5432")
    yield proxy
    proxy.close()


def through(proxy: CuttingProxy) -> str:
    return f"postgresql://mongottl@localhost:{proxy.port}/postgres?sslmode=disable"


def add(number: int) -> Call:
    return ADD.with_(int8(number), None)


def is_added(connection: Connection, number: int) -> bool:
    return bool(connection.run_one(COUNT.with_(int8(number))).value())


def test_a_connection_is_used_again(open_pool: Opener) -> None:
    pool = open_pool()
    backends = {pool.read([BACKEND.with_()])[0].value() for _ in range(5)}
    assert len(backends) == 1
    assert pool.statistics() == {
        "open": 1,
        "idle": 1,
        "waiting": 0,
        "connected": 1,
        "lost": 0,
        "settled": 0,
        "repeated": 0,
    }


def test_no_more_connections_are_made_than_allowed(open_pool: Opener) -> None:
    pool = open_pool(timeout_s=0.05)
    first, second = pool.acquire(), pool.acquire()
    with pytest.raises(StoreFailure, match=r"all 2 connections to .* are in use") as caught:
        pool.acquire()
    assert caught.value.kind == BUSY
    pool.release(first)
    assert pool.acquire() is first
    pool.release(first)
    pool.release(second)
    assert pool.statistics()["open"] == pool.statistics()["idle"] == 2


def test_an_open_transaction_is_rolled_back_when_it_is_given_back(open_pool: Opener, connection: Connection) -> None:
    pool = open_pool()
    used = pool.acquire()
    used.run([BEGIN.with_(), add(1)])
    pool.release(used)
    assert pool.acquire() is used
    assert used.is_ready
    pool.release(used)
    assert not is_added(connection, 1)
    assert pool.statistics()["settled"] == 1


@pytest.mark.parametrize("is_held", [False, True])
def test_a_connection_is_used_again_after_a_cancellation_that_cannot_come_later(
    open_pool: Opener, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    waiter = InterruptedWaiter()
    pool = open_pool(through(proxy), waiter=waiter)
    first = pool.read([BACKEND.with_()])[0].value()
    if is_held:
        monkeypatch.setattr("mongottl.storage.postgresql.connection._CANCEL_S", 0.02)
        proxy.hold_cancellations()
    waiter.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pool.read([SLEEP.with_()])
    assert (pool.read([BACKEND.with_()])[0].value() == first) is not is_held
    proxy.speak()
    assert pool.statistics()["open"] == pool.statistics()["idle"] == 1


def test_a_failed_unit_is_not_repeated(open_pool: Opener, connection: Connection) -> None:
    pool = open_pool()
    pool.write([add(1)])
    with pytest.raises(StoreFailure) as caught:
        pool.write([add(2), add(1)])
    assert (caught.value.kind, caught.value.call) == (DUPLICATE, 1)
    assert pool.statistics()["repeated"] == 0
    assert not is_added(connection, 2)


def test_units_go_on_after_all_unused_connections_were_ended(open_pool: Opener, connection: Connection) -> None:
    pool = open_pool()
    used = [pool.acquire(), pool.acquire()]
    for each in used:
        pool.release(each)
    for each in used:
        assert connection.run_one(TERMINATE.with_(int4(each.backend_id))).value() is True
    until(lambda: not any(each.is_alive for each in used))
    pool.write([add(1)])
    assert is_added(connection, 1)
    assert pool.statistics()["lost"] == 2


def test_a_unit_that_ends_its_own_session_is_repeated_in_vain(open_pool: Opener) -> None:
    """It is certainly not done, so that it is repeated, but not for ever."""
    pool = open_pool(timeout_s=0.3)
    itself = Statement("itself", "SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(StoreFailure) as caught:
        pool.write([itself.with_()])
    assert (caught.value.kind, caught.value.may_be_committed) == (GONE, False)
    assert caught.value.sqlstate in ("57P01", "")  # the last attempt may have had no time to connect
    assert 0 < pool.statistics()["repeated"] < 20


def test_a_unit_cut_off_before_its_commit_reached_the_server(
    open_pool: Opener, proxy: CuttingProxy, connection: Connection
) -> None:
    pool = open_pool(through(proxy))
    pool.ping(30.0)
    proxy.cut = BEFORE_COMMIT
    with pytest.raises(StoreFailure) as caught:
        pool.write([add(1)])
    assert (caught.value.kind, caught.value.may_be_committed) == (GONE, True)
    assert not is_added(connection, 1)
    pool.write([add(1)])
    assert is_added(connection, 1)
    assert proxy.cuts == 1


def test_a_unit_cut_off_after_its_commit(open_pool: Opener, proxy: CuttingProxy, connection: Connection) -> None:
    pool = open_pool(through(proxy))
    pool.ping(30.0)
    proxy.cut = AFTER_COMMIT
    with pytest.raises(StoreFailure) as caught:
        pool.write([add(1)])
    assert (caught.value.kind, caught.value.may_be_committed) == (GONE, True)
    assert is_added(connection, 1)
    assert pool.statistics()["repeated"] == 0


@pytest.mark.parametrize("when", [BEFORE_COMMIT, AFTER_COMMIT])
def test_a_read_that_is_cut_off_is_repeated(open_pool: Opener, proxy: CuttingProxy, when: str) -> None:
    pool = open_pool(through(proxy))
    pool.ping(30.0)
    proxy.cut = when
    assert isinstance(pool.read([BACKEND.with_()])[0].value(), int)
    assert (proxy.cuts, pool.statistics()["repeated"]) == (1, 1)


def test_a_server_that_is_away_is_asked_until_the_time_is_over(open_pool: Opener, proxy: CuttingProxy) -> None:
    pool = open_pool(through(proxy), timeout_s=0.5)
    proxy.refuses = True
    with pytest.raises(StoreFailure) as caught:
        pool.read([BACKEND.with_()])
    assert caught.value.kind == GONE
    assert proxy.accepted > 1
    assert pool.last_failure is caught.value
    assert pool.statistics()["open"] == 0
    proxy.refuses = False
    pool.ping(30.0)
    assert pool.last_failure is None


def test_a_closed_pool_gives_no_connection(open_pool: Opener) -> None:
    pool = open_pool()
    used = pool.acquire()
    pool.close()
    with pytest.raises(StoreFailure, match="closed"):
        pool.acquire()
    pool.release(used)
    assert used.is_lost


def test_a_wrong_database_or_user_is_not_tried_again(open_pool: Opener, cluster: LocalCluster) -> None:
    for uri, kind, text in [
        (cluster.uri.replace("dbname=postgres", "dbname=absent"), NO_DATABASE, 'database "absent" does not exist'),
        (cluster.uri.replace("user=mongottl", "user=absent"), LOGIN, 'role "absent" does not exist'),
    ]:
        pool = open_pool(uri)
        with pytest.raises(StoreFailure, match=text) as caught:
            pool.acquire()
        assert caught.value.kind == kind
        assert "\n" not in caught.value.message


def test_a_wrong_password_is_said_in_a_line_that_does_not_show_it(
    open_pool: Opener, cluster: LocalCluster, connection: Connection, schema: str
) -> None:
    user = f"{schema}_ann"
    rules = Path(cluster.data) / "pg_hba.conf"
    rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")
    connection.run([Statement("ann", f"CREATE ROLE {user} LOGIN PASSWORD 'right'").with_()])
    connection.run([Statement("reload", "SELECT pg_reload_conf()").with_()])
    uri = cluster.uri.replace("user=mongottl", f"user={user}")

    def refusal(password: str) -> str:
        with pytest.raises(StoreFailure) as caught:
            open_pool(f"{uri} password={password}").acquire()
        assert caught.value.kind == LOGIN
        return caught.value.message

    def needs_password() -> bool:
        pool = open_pool(uri)
        try:
            pool.ping(PATIENCE_S)
        except StoreFailure as failure:
            return failure.kind == LOGIN
        pool.close()
        return False

    until(needs_password)
    message = refusal("mistaken")
    assert f'password authentication failed for user "{user}"' in message
    assert "mistaken" not in message and "\n" not in message
    open_pool(f"{uri} password=right").ping(PATIENCE_S)


def test_a_server_that_takes_no_more_connections_is_asked_again(
    open_pool: Opener, cluster: LocalCluster, connection: Connection, schema: str
) -> None:
    user = f"{schema}_bob"
    connection.run([Statement("bob", f"CREATE ROLE {user} LOGIN CONNECTION LIMIT 1").with_()])
    uri = cluster.uri.replace("user=mongottl", f"user={user}")
    pool = open_pool(uri)
    pool.ping(PATIENCE_S)
    other = open_pool(uri, timeout_s=1.0)
    with pytest.raises(StoreFailure, match="too many connections") as caught:
        other.acquire()
    assert caught.value.kind == BUSY
    pool.close()
    other.ping(PATIENCE_S)


def test_a_host_that_is_unknown_or_closed_is_named(open_pool: Opener) -> None:
    with pytest.raises(StoreFailure, match=r"host no-such-host\.invalid is unknown"):
        open_pool("postgresql://no-such-host.invalid/x", timeout_s=0.05).acquire()
    with pytest.raises(StoreFailure, match="port 1 failed: Connection refused"):
        open_pool("postgresql://127.0.0.1:1/x", timeout_s=0.05).acquire()


def test_hosts_are_tried_in_turn_for_one_that_can_write(open_pool: Opener, proxy: CuttingProxy) -> None:
    uri = f"postgresql://mongottl@127.0.0.1:1,127.0.0.1:{proxy.port}/postgres?sslmode=disable"
    pool = open_pool(uri)
    pool.ping(30.0)
    reads_only = f"{uri}&options=-c%20default_transaction_read_only%3Don"
    waiter = BlockingWaiter()
    with pytest.raises(StoreFailure) as caught:
        connect(Address(reads_only), SessionSettings(), waiter, waiter.monotonic_s() + PATIENCE_S)
    assert caught.value.kind == READ_ONLY


def test_a_host_that_does_not_answer_is_passed_over(open_pool: Opener, proxy: CuttingProxy) -> None:
    """As one does not whose machine is gone: not even by refusing connections."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{proxy.port}"
        pool = open_pool(f"postgresql://mongottl@{hosts}/postgres?sslmode=disable")
        pool.ping(5.0)  # no longer than an attempt to connect takes where there is one host
        for _ in range(2):
            pool.acquire()
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_all_unused_connections_go_when_the_server_is_no_longer_the_primary(
    open_pool: Opener, connection: Connection
) -> None:
    pool = open_pool(timeout_s=0.3)
    used = [pool.acquire(), pool.acquire()]
    for each in used:
        each.run([Statement("read_only", "SET default_transaction_read_only = on").with_()])
        pool.release(each)
    pool.write([add(1)])
    assert is_added(connection, 1)
    assert (pool.statistics()["lost"], pool.statistics()["repeated"]) == (2, 1)
