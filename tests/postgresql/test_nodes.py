"""Engines that share a schema: what one changes in the catalog the other takes over, and units of an old one fail."""

from collections.abc import Callable, Iterator

import pytest

from mongottl.clock import awake_or_not_s
from mongottl.storage.errors import CatalogChanged, DataDirectoryError, StorageError
from mongottl.storage.log import LogForm
from mongottl.storage.nodes import LEASE_S, CatalogChange, NodeFacts
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import Connection, SessionSettings
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.nodes import PostgresNodes
from mongottl.storage.postgresql.record_ids import FIRST_BLOCK
from mongottl.storage.postgresql.statements import TEXT, Statement
from mongottl.storage.postgresql.transactions import CommitUnit
from mongottl.storage.waiting import BlockingWaiter, Turn
from tests.postgresql.proxies import CuttingProxy
from tests.waiting import PATIENCE_S

ONE_OF_SEVERAL = NodeFacts("sharded", may_share=True)
ALONE = NodeFacts("replicaSet")


@pytest.fixture
def opened(cluster: LocalCluster, schema: str) -> Iterator[Callable[..., PostgresEngine]]:
    """Opens engines over one schema."""
    made: list[PostgresEngine] = []

    def opener(facts: NodeFacts = ONE_OF_SEVERAL) -> PostgresEngine:
        made.append(PostgresEngine(Address(cluster.uri), schema, facts))
        return made[-1]

    yield opener
    for engine in made:
        engine.close()


def both(opened: Callable[..., PostgresEngine]) -> tuple[PostgresEngine, PostgresEngine]:
    """Two engines that know the same catalog: an opening is a change of it, too."""
    first, second = opened(), opened()
    first.reload()
    return first, second


def make(engine: PostgresEngine, ident: str) -> None:
    with engine.unit_of_work() as unit:
        engine.create_record_store(ident)
        engine.put_catalog_entry(ident, b"entry")
        unit.commit()


def insert(engine: PostgresEngine, ident: str, document: bytes) -> None:
    with engine.concurrent_unit_of_work() as unit:
        engine.record_store(ident).insert_record(document, 1, 0)
        unit.commit()


def documents(engine: PostgresEngine, ident: str) -> list[bytes]:
    return [record[1] for record in engine.record_store(ident).scan(0, 100)[0]]


def test_a_unit_made_from_an_old_catalog_fails_and_the_next_one_knows_the_new(
    opened: Callable[..., PostgresEngine],
) -> None:
    first, second = both(opened)
    make(first, "a")
    changes: list[CatalogChange] = []
    second.nodes.on_change = changes.append
    with pytest.raises(CatalogChanged):
        make(second, "b")
    assert second.idents() == []
    make(second, "b")
    assert changes == [CatalogChange({"a": None}, ["a"], [])]
    assert sorted(second.idents()) == ["a", "b"] and dict(second.catalog_entries()) == {"a": b"entry", "b": b"entry"}
    insert(second, "a", b"of second")
    with pytest.raises(CatalogChanged):
        insert(first, "a", b"of first")
    insert(first, "a", b"of first")
    assert documents(first, "a") == documents(second, "a")
    assert sorted(documents(first, "a")) == [b"of first", b"of second"]
    assert first.record_store("a").count() == second.record_store("a").count() == 2


def test_stores_that_are_there_keep_their_objects(opened: Callable[..., PostgresEngine]) -> None:
    first, second = both(opened)
    make(first, "a")
    second.reload()
    known = second.record_store("a")
    make(first, "b")
    with first.unit_of_work() as unit:
        first.drop_ident("b")
        first.delete_catalog_entry("b")
        unit.commit()
    make(first, "b")
    second.reload()
    assert second.record_store("a") is known
    gone = second.record_store("b")
    with first.unit_of_work() as unit:
        first.drop_ident("b")
        unit.commit()
    make(first, "b")
    second.reload()
    assert second.record_store("b") is not gone


def test_own_changes_need_no_reload(opened: Callable[..., PostgresEngine]) -> None:
    engine = opened()
    engine.nodes.on_change = lambda before: pytest.fail("the catalog was read again")
    for ident in "abc":
        make(engine, ident)
        insert(engine, ident, b"one")


def test_rows_of_dropped_stores_stay_until_all_know(opened: Callable[..., PostgresEngine]) -> None:
    first, second = both(opened)
    make(first, "a")
    insert(first, "a", b"one")
    second.reload()
    second.nodes.attend()
    store = second.record_store("a")
    with first.unit_of_work() as unit:
        first.drop_ident("a")
        unit.commit()
    assert not first.drop_some(10)
    assert [record[1] for record in store.scan(0, 10)[0]] == [b"one"]
    second.nodes.attend()
    assert "a" not in second.idents()
    while first.drop_some(10):
        pass
    assert store.scan(0, 10)[0] == []


def test_an_engine_that_shares_with_nobody_is_refused_and_refuses(opened: Callable[..., PostgresEngine]) -> None:
    first = opened()
    with pytest.raises(DataDirectoryError, match=r"is in use by another server: process [0-9]+, --topology sharded"):
        opened(ALONE)
    first.close()
    opened(ALONE)
    with pytest.raises(DataDirectoryError, match=r"is in use by another server: process [0-9]+, --topology replicaSet"):
        opened()


def test_a_place_that_was_cleared_away_is_taken_again(
    opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    first, second = both(opened)
    connection = connect_to(settings=SessionSettings(schema))
    connection.run_one(Statement("freeze", f"UPDATE nodes SET until_ms = 0 WHERE node = {second.nodes.number}").with_())
    first.nodes.begin()
    make(first, "a")
    first.nodes.end()  # waits for nobody
    assert [node.number for node in first.nodes.all()] == [first.nodes.number]
    second.nodes.attend()
    assert second.idents() == ["a"]
    assert [node.number for node in first.nodes.all()] == [first.nodes.number, second.nodes.number]
    assert second.nodes.is_valid


def rows(connection: Connection, select: str) -> list[tuple[object, ...]]:
    return connection.run_one(Statement(f"rows_{hash(select)}", select).with_()).rows()


def test_only_what_has_changed_is_read(
    opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    first, second = both(opened)
    make(first, "a")
    make(first, "b")
    second.reload()
    connection = connect_to(settings=SessionSettings(schema))
    connection.run_one(Statement("spoil", "UPDATE catalog SET value = 'spoiled' WHERE key <> 'b'").with_())
    make(first, "c")
    with first.unit_of_work() as unit:
        first.put_catalog_entry("b", b"changed")
        unit.commit()
    changes: list[CatalogChange] = []
    second.nodes.on_change = changes.append
    second.reload()
    assert dict(second.catalog_entries()) == {"a": b"entry", "b": b"changed", "c": b"entry"}
    assert changes == [CatalogChange({"b": b"entry", "c": None}, ["c"], [])]


def test_deleted_entries_are_forgotten_when_all_know_it(
    opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    first, second = both(opened)
    make(first, "a")
    make(first, "b")
    second.reload()
    with first.unit_of_work() as unit:
        first.delete_catalog_entry("a")
        first.drop_ident("a")
        unit.commit()
    connection = connect_to(settings=SessionSettings(schema))
    for attended, kept in ((first, [(b"a",), (b"b",)]), (second, [(b"b",)])):
        attended.nodes.attend()
        first.nodes.clear_up()
        assert rows(connection, "SELECT key FROM catalog ORDER BY key") == kept
    assert dict(second.catalog_entries()) == {"b": b"entry"} and second.idents() == ["b"]
    make(first, "a")
    second.reload()
    assert dict(second.catalog_entries()) == {"a": b"entry", "b": b"entry"}


def delete_when_taken_for_dead(
    first: PostgresEngine, second: PostgresEngine, connection: Connection, ident: str
) -> None:
    """The first server takes the second one for dead, and deletes what belongs to an ident, to the last row."""
    connection.run_one(Statement("freeze", f"UPDATE nodes SET until_ms = 0 WHERE node = {second.nodes.number}").with_())
    first.nodes.clear_up()
    first.reload()
    with first.unit_of_work() as unit:
        first.delete_catalog_entry(ident)
        first.drop_ident(ident)
        unit.commit()
    first.nodes.attend()
    first.nodes.clear_up()
    while first.drop_some(10):
        pass


@pytest.mark.parametrize("by", ["renewal", "unit"])
def test_a_server_that_was_taken_for_dead_learns_of_all_that_was_deleted_meanwhile(
    by: str, opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    first, second = both(opened)
    make(first, "a")
    make(first, "b")
    second.reload()
    changes: list[CatalogChange] = []
    second.nodes.on_change = changes.append
    connection = connect_to(settings=SessionSettings(schema))
    delete_when_taken_for_dead(first, second, connection, "a")
    assert rows(connection, "SELECT key FROM catalog") == [(b"b",)]
    if by == "renewal":
        second.nodes.attend()
    else:
        second.nodes.lease_clock_s = lambda: awake_or_not_s() + LEASE_S
        second.reload()
    assert [ident for change in changes for ident in change.dropped] == ["a"]
    assert dict(second.catalog_entries()) == {"b": b"entry"} and second.idents() == ["b"]


@pytest.mark.parametrize("alone", [False, True])
def test_a_server_that_was_taken_for_dead_gives_no_ids_of_what_was_deleted_meanwhile(
    alone: bool, opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    first, second = both(opened)
    make(first, "a")
    second.reload()
    store = second.record_store("a")
    delete_when_taken_for_dead(first, second, connect_to(settings=SessionSettings(schema)), "a")
    unit = second.exclusive_unit_of_work(store) if alone else second.concurrent_unit_of_work()
    with unit, pytest.raises(CatalogChanged):
        store.insert_records([(b"one", 1, 0)] * (FIRST_BLOCK + 1))
    second.nodes.lease_clock_s = lambda: awake_or_not_s() + LEASE_S
    second.unit_of_work()
    assert second.idents() == []


def test_stores_of_servers_without_a_place_are_known(opened: Callable[..., PostgresEngine]) -> None:
    first, second = both(opened)
    make(first, "a")
    second.reload()
    make(second, "b")
    second.close()
    first.reload()
    assert first.nodes.left_of(["a", "b"]) == ["b"]
    assert first.nodes.left_of(["a"]) == []


def test_servers_that_make_other_keys_are_refused(opened: Callable[..., PostgresEngine]) -> None:
    opened(NodeFacts("sharded", may_share=True, keys="72.1"))
    with pytest.raises(DataDirectoryError, match=r"another version of ICU, 72.1 instead of none: process [0-9]+"):
        opened()
    opened(NodeFacts("sharded", may_share=True, keys="72.1"))


def test_a_place_is_lost_while_the_machine_is_suspended(opened: Callable[..., PostgresEngine]) -> None:
    engine = opened()
    real = engine.nodes.lease_clock_s
    found = [engine.nodes.is_valid]
    engine.nodes.lease_clock_s = lambda: real() + LEASE_S
    found.append(engine.nodes.is_valid)
    engine.nodes.attend()
    assert [*found, engine.nodes.is_valid] == [True, False, True]


def test_a_server_that_only_keeps_its_place_takes_no_duties(
    opened: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is still loading files, and would not perform them before it serves."""
    monkeypatch.setattr("mongottl.storage.postgresql.nodes.RENEW_S", 0.01)
    loading, serving = both(opened)
    real = loading.nodes.lease_clock_s
    loading.nodes.lease_clock_s = lambda: real() + LEASE_S / 2
    loading.nodes.keep_place()
    assert [node.number for node in loading.nodes.latest] == [loading.nodes.number, serving.nodes.number]
    serving.nodes.attend()
    assert [loading.nodes.has_duties, serving.nodes.has_duties] == [False, True]
    serving.nodes.close(1.0)
    loading.nodes.attend()
    assert loading.nodes.has_duties


def test_forms_that_another_server_has_dropped_are_known_to_be_missing(opened: Callable[..., PostgresEngine]) -> None:
    first, second = both(opened)
    make(first, "a")
    second.reload()
    for number in range(5):
        with first.concurrent_unit_of_work() as unit:
            first.record_store("a").insert_record(b"%d" % number, 1, 0)
            unit.log(LogForm(b"form", 0))
            unit.commit()
    for engine in (first, second):
        for _ in range(3):
            engine.log.refresh()
    floor = second.log.floor
    rows = first.log.read(0, first.log.horizon, 10, 1000)
    assert len(rows) == 5
    first.log.trim(rows[2][0], 100)
    assert second.log.floor == floor
    assert second.log.read(rows[1][0], second.log.horizon, 10, 1000) == rows[3:]
    assert second.log.floor == rows[2][0]


def test_all_parts_of_a_budget_are_never_more_than_the_whole(
    opened: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mongottl.storage.postgresql.nodes.RENEW_S", 0.01)
    first = opened()
    nodes = [first.nodes]
    shares = [first.nodes.shares]
    later_s = 0.0

    def attend(node: PostgresNodes) -> None:
        node.lease_clock_s = lambda: later_s
        node.attend()  # which waits for a moment
        assert sum(1 / each.shares for each in nodes if each.shares) <= 1.001

    attend(first.nodes)
    assert [*shares, first.nodes.shares] == [0, 1]
    for _ in range(2):
        new = opened()
        nodes.append(new.nodes)
        for node in (new.nodes, *nodes, new.nodes):
            attend(node)
        assert new.nodes.shares == 0
        later_s += 1.0
        attend(new.nodes)
        assert [node.shares for node in nodes] == [len(nodes)] * len(nodes)
    gone = nodes.pop()
    gone.close(1.0)
    for _ in range(3):
        attend(first.nodes)
        assert first.nodes.shares == 3
    attend(first.nodes)
    assert first.nodes.shares == 2


def test_a_name_is_given_once_whoever_knows_of_it(
    opened: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server is killed when it has committed a transaction, before the version of the catalog is raised."""
    first, second = both(opened)
    make(first, "a")
    make(first, "b")
    second.reload()
    with monkeypatch.context() as patch:
        patch.setattr(CommitUnit, "_end_raise", lambda unit: None)
        transaction = first.isolation.begin_transaction()
        assert transaction.records_view(first.record_store("a")).count() == 0
        with transaction.final_unit(first, True) as unit:
            first.put_catalog_entry("7", b"of first")
            first.name_entry("7", "shop.carts")
            first.put_catalog_entry("a", b"changed")
            unit.commit()
    assert "7" not in dict(second.catalog_entries())
    for key in ("a", "8"):
        with pytest.raises(CatalogChanged), second.unit_of_work() as unit:
            second.put_catalog_entry(key, b"of second")
            if key == "8":
                second.name_entry(key, "shop.carts")
            unit.commit()
        second.reload()
        assert second.catalog_entry("7") == b"of first" and second.catalog_entry("a") == b"changed"
        assert second.catalog_entry("8") is None
    # The name is free again when the entry has got another, or is gone.
    with second.unit_of_work() as unit:
        second.put_catalog_entry("7", b"renamed")
        second.name_entry("7", "shop.orders")
        second.put_catalog_entry("8", b"of second")
        second.name_entry("8", "shop.carts")
        second.delete_catalog_entry("7")
        second.put_catalog_entry("9", b"of second")
        second.name_entry("9", "shop.orders")
        unit.commit()
    third = opened()
    assert third.catalog_entry("7") is None and third.catalog_entry("8") == third.catalog_entry("9") == b"of second"


def test_changes_of_a_transaction_of_a_dead_server_are_spread(
    opened: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = both(opened)
    monkeypatch.setattr(CommitUnit, "_end_raise", lambda unit: None)
    transaction = first.isolation.begin_transaction()
    with transaction.final_unit(first, True) as unit:
        first.put_catalog_entry("7", b"of first")
        unit.commit()
    first.close()
    version = second.log.epoch
    second.nodes.spread()
    assert second.catalog_entry("7") == b"of first" and second.log.epoch > version
    monkeypatch.undo()
    make(second, "a")


class OthersAttend(BlockingWaiter):
    """While one engine waits for its turn, others and itself look after their places, in the order given."""

    def __init__(self, *nodes: PostgresNodes) -> None:
        super().__init__()
        self._nodes = nodes

    def wait_turn(self, turn: Turn, until_s: float, must_end: bool = False) -> bool:
        nodes, self._nodes = self._nodes, ()
        for node in nodes:
            node.attend()
        self._nodes = nodes
        return super().wait_turn(turn, self.monotonic_s())


class NotObeyed(Exception):
    pass


ALWAYS = 1_000_000


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has places be renewed at once, and messages repeated as long as it takes."""
    monkeypatch.setattr("mongottl.storage.postgresql.nodes.RENEW_S", 0.01)
    monkeypatch.setattr("mongottl.storage.postgresql.nodes.PATIENCE_S", PATIENCE_S)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("failures", [0, 1, ALWAYS])
def test_a_node_that_fails_to_do_what_a_message_asks_for_has_not_done_it(
    failures: int, opened: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = both(opened)
    if failures == ALWAYS:
        monkeypatch.setattr("mongottl.storage.postgresql.nodes.PATIENCE_S", 0.1)
    heard: list[bytes] = []

    def obey(message: bytes) -> None:
        heard.append(message)
        if len(heard) <= failures:
            raise NotObeyed

    second.nodes.on_message = obey
    first.wait_by(OthersAttend(second.nodes, first.nodes), lambda: None)
    assert first.nodes.send(b"abort") == (failures < ALWAYS)
    assert set(heard) == {b"abort"}


@pytest.mark.usefixtures("hasty")
def test_a_node_that_may_live_again_has_to_obey(
    opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    """The database has stood still: all are taken for dead for a moment, and nobody may clear another's place away."""
    first, second = both(opened)
    heard: list[bytes] = []
    second.nodes.on_message = heard.append
    connection = connect_to(settings=SessionSettings(schema))
    connection.run_one(Statement("stand_still", "UPDATE nodes SET until_ms = 0").with_())
    first.nodes.lease_clock_s = lambda: awake_or_not_s() + LEASE_S
    first.wait_by(OthersAttend(second.nodes, first.nodes), lambda: None)
    assert first.nodes.send(b"abort")
    assert heard[:1] == [b"abort"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("is_opened", [False, True])
def test_the_sessions_of_who_is_taken_for_dead_have_ended_before_anybody_counts_on_it(
    is_opened: bool,
    opened: Callable[..., PostgresEngine],
    connect_to: Callable[..., Connection],
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """is_opened: whether another server has been opened meanwhile, and was killed as soon as it had its place."""
    first, second = both(opened)
    make(first, "a")
    second.reload()
    transaction = second.isolation.begin_transaction()
    with transaction.statement() as unit:
        transaction.own_records(second.record_store("a")).insert_record(b"of second", 1, 0)
        unit.commit()
    connection = connect_to(settings=SessionSettings(schema))
    connection.run_one(Statement("freeze", f"UPDATE nodes SET until_ms = 0 WHERE node = {second.nodes.number}").with_())
    if is_opened:
        with monkeypatch.context() as patch, pytest.raises(DataDirectoryError):
            killed = Statement("kill", "SELECT 1 / 0", (TEXT, TEXT))
            patch.setattr("mongottl.storage.postgresql.nodes._END_OTHERS", killed)
            opened()
    connection.run_one(Statement("forget", f"DELETE FROM nodes WHERE node > {second.nodes.number}").with_())
    assert first.nodes.send(b"abort")
    assert [node.number for node in first.nodes.all()] == [first.nodes.number]
    with pytest.raises(StorageError), transaction.final_unit(second, False) as unit:
        unit.commit()
    assert documents(first, "a") == []


def test_a_place_is_taken_again_where_connecting_takes_longer_than_it_is_renewed(
    cluster: LocalCluster, opened: Callable[..., PostgresEngine], schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mongottl.storage.postgresql.nodes.RENEW_S", 0.01)
    proxy = CuttingProxy(f"{cluster.run_folder}/.s.PGSQL.5432")
    try:
        linked = f"host=127.0.0.1 port={proxy.port} user=mongottl dbname=postgres"
        engine = PostgresEngine(Address(linked), schema, ONE_OF_SEVERAL)
        try:
            proxy.slow_s = 0.05
            proxy.cut_all()
            engine.nodes.lease_clock_s = lambda: awake_or_not_s() + LEASE_S
            for _ in range(10):
                engine.nodes.attend()
            assert engine.nodes.is_valid
        finally:
            engine.close()
    finally:
        proxy.close()


def test_reading_before_a_place_was_taken_again_does_not_count(
    opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    """Others may have dropped meanwhile what it was reading."""
    first, second = both(opened)
    second.nodes.begin()
    was_valid = second.nodes.is_valid
    connection = connect_to(settings=SessionSettings(schema))
    connection.run_one(Statement("freeze", f"UPDATE nodes SET until_ms = 0 WHERE node = {second.nodes.number}").with_())
    first.nodes.clear_up()
    second.nodes.attend()
    assert second.nodes.has_place
    assert [was_valid, second.nodes.is_valid] == [True, False]
    second.nodes.end()
    second.nodes.begin()
    assert second.nodes.is_valid
    second.nodes.end()


def test_all_know_what_a_transaction_has_changed_though_its_version_was_not_raised_at_once(
    opened: Callable[..., PostgresEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost that raises the version, and another server changes the catalog before it is raised."""
    first, second = both(opened)
    make(first, "a")
    second.reload()

    def end_raise(unit: CommitUnit) -> None:
        raiser, unit._raiser = unit._raiser, None
        assert raiser is not None
        first.units.pool.release(raiser)
        make(second, "b")
        second.nodes.attend()
        first.units.raise_again()

    monkeypatch.setattr("mongottl.storage.postgresql.nodes.RENEW_S", 0.01)
    monkeypatch.setattr(CommitUnit, "_end_raise", end_raise)
    first.nodes.begin()
    transaction = first.isolation.begin_transaction()
    with transaction.final_unit(first, True) as unit:
        first.put_catalog_entry("7", b"of first")
        unit.commit()
    first.wait_by(OthersAttend(second.nodes), lambda: None)
    first.nodes.end()
    assert second.catalog_entry("7") == b"of first"


def test_dropped_stores_may_be_forgotten_while_it_is_asked_whether_they_may_be_freed(
    opened: Callable[..., PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    """By a standby that has become primary without it."""
    engine = opened()
    connection = connect_to(settings=SessionSettings(schema))
    make(engine, "a")
    with engine.unit_of_work() as unit:
        engine.drop_ident("a")
        unit.commit()

    def may_free() -> bool:
        connection.run([Statement("lose", "DELETE FROM stores").with_()])
        engine.reload(everything=True)
        return True

    assert engine._stores.drop_some(10, lambda: False) is False
    assert engine._stores.drop_some(10, may_free) is False
    assert engine.drop_some(10) is False
