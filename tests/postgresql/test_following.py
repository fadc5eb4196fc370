"""What servers learn of the catalog that others change: as they start, and when they read all of it anew."""

import io
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import bson
import pytest

from mongottl.catalog.catalog import Catalog, new_uuid
from mongottl.catalog.collection import Collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.document.build import encode
from mongottl.document.interrupt import in_undivided
from mongottl.document.types import BinData
from mongottl.document.walk import fields
from mongottl.exec.operation.refreshing import carry_out, follow_others
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.server.log import Log
from mongottl.server.node_dispatch import NodeDispatcher
from mongottl.storage.nodes import CatalogChange, NodeFacts
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.connection import Connection, SessionSettings
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.local_cluster import LocalCluster
from mongottl.storage.postgresql.statements import Statement
from mongottl.wire.messages import OpMsg

ONE_OF_SEVERAL = NodeFacts("sharded", may_share=True)


@pytest.fixture
def opened(cluster: LocalCluster, schema: str) -> Iterator[Callable[[], PostgresEngine]]:
    """Opens engines over one schema, whose PostgreSQL has two addresses."""
    folder = f"host={cluster.run_folder}"
    assert folder in cluster.uri
    uri = cluster.uri.replace(folder, f"{folder},{cluster.run_folder}/")
    made: list[PostgresEngine] = []

    def opener() -> PostgresEngine:
        made.append(PostgresEngine(Address(uri), schema, ONE_OF_SEVERAL))
        return made[-1]

    yield opener
    for engine in made:
        engine.close()


class ClockOfStart(VirtualClock):
    """Has `action` carried out once when a start asks for the time a second time, after it has loaded the catalog."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.looks = 0
        self.action = action

    def now_ms(self) -> int:
        self.looks += 1
        if self.looks == 2:
            self.action()
        return super().now_ms()


def test_changes_are_taken_that_are_read_between_the_loading_of_the_catalog_and_its_end(
    opened: Callable[[], PostgresEngine],
) -> None:
    """The start writes then, and reads the catalog anew before that where it is known to be old."""
    engine, starting = opened(), opened()
    engine.reload()
    catalog = Catalog(engine)
    dropped = catalog.create_collection("shop", "dropped")
    starting.reload()

    def change() -> None:
        catalog.create_collection("shop", "carts")
        catalog.drop_collection(dropped)
        starting.nodes.look_elsewhere()

    service = carry_out(starting, partial(ServiceContext, ServerConfig(), ClockOfStart(change), starting))
    follow_others(service)
    assert sorted(each.namespace for each in service.catalog.all_collections()) == ["local.oplog.rs", "shop.carts"]
    assert service.catalog.stored_collection("shop", "carts") is not None


class Follower:
    """A catalog that follows others. parsed: how many entries it has parsed since it was loaded."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine
        self.catalog = Catalog(engine)
        self.parsed = 0
        self.changed: list[str] = []
        self.gone: list[str] = []
        engine.nodes.follow(self.take)

    def take(self, change: CatalogChange) -> None:
        refreshed = self.catalog.refresh(change, self.note_parsed)
        self.changed += [collection.name for collection in refreshed.changed]
        self.gone += [collection.name for collection in refreshed.gone]

    def note_parsed(self) -> None:
        self.parsed += 1

    def collection(self, name: str) -> Collection:
        found = self.catalog.stored_collection("shop", name)
        assert found is not None
        return found


def make_collections(catalog: Catalog, count: int) -> None:
    """Each with an index."""
    for number in range(count):
        made = catalog.create_collection("shop", f"c{number}")
        spec = encode({"v": 2, "key": encode({"n": 1}), "name": "n_1"})
        catalog.finish_indexes(made, catalog.start_indexes(made, [IndexDescriptor(spec)]))


def test_only_entries_that_have_changed_are_parsed_where_all_are_read(opened: Callable[[], PostgresEngine]) -> None:
    engine, other = opened(), opened()
    engine.reload()
    catalog = Catalog(engine)
    make_collections(catalog, 5)
    other.reload()
    follower = Follower(other)
    generations = [follower.collection(f"c{number}").generation for number in range(5)]
    other.reload(True)
    assert follower.parsed == 0 and follower.changed == []
    assert generations == [follower.collection(f"c{number}").generation for number in range(5)]
    changed = catalog.stored_collection("shop", "c3")
    assert changed is not None
    catalog.rename_collection(changed, "shop", "renamed", None)
    other.reload(True)
    assert follower.parsed == 1 and follower.changed == ["renamed"]
    assert follower.catalog.stored_collection("shop", "c3") is None


def test_a_store_that_was_made_anew_is_used_though_its_entry_is_the_same(
    opened: Callable[[], PostgresEngine], connect_to: Callable[..., Connection], schema: str
) -> None:
    """As where an index was lost with a primary, and another server has built it once more."""
    engine, other = opened(), opened()
    engine.reload()
    make_collections(Catalog(engine), 2)
    other.reload()
    follower = Follower(other)
    index = follower.collection("c1").index_named("n_1")
    assert index is not None
    rebuild = f"UPDATE stores SET id = 1000 WHERE ident = '{index.ident}'"
    connect_to(settings=SessionSettings(schema)).run_one(Statement("rebuild", rebuild).with_())
    other.reload(True)
    rebuilt = follower.collection("c1").index_named("n_1")
    assert rebuilt is not None
    assert rebuilt.data is other.sorted_data(index.ident, False) and rebuilt.data is not index.data
    assert follower.changed == ["c1"] and follower.parsed == 1


def test_a_number_that_was_given_again_is_that_of_another_collection(opened: Callable[[], PostgresEngine]) -> None:
    """As where a collection was lost with a primary, and another server has made one that had never heard of it."""
    engine, other = opened(), opened()
    engine.reload()
    make_collections(Catalog(engine), 2)
    other.reload()
    follower = Follower(other)
    lost = follower.collection("c1")
    key = str(lost.number)
    entry = engine.catalog_entry(key)
    assert entry is not None
    with engine.unit_of_work() as work:
        engine.put_catalog_entry(
            key, encode({**dict(fields(entry)), "uuid": BinData(new_uuid(), 4), "ns": "shop.other"})
        )
        work.commit()
    other.reload(True)
    made = follower.collection("other")
    assert lost.dropped and not made.dropped and made.number == lost.number and made.uuid != lost.uuid
    assert follower.catalog.stored_collection("shop", "c1") is None
    assert follower.changed == ["other"] and follower.gone == ["c1"]


def test_a_ping_in_the_middle_of_a_unit_of_work_does_not_wait_for_the_place(
    opened: Callable[[], PostgresEngine],
) -> None:
    """Which its server has lost, or for what others have changed: the unit of work cannot be left."""
    engine = opened()
    service = carry_out(engine, partial(ServiceContext, ServerConfig(), VirtualClock(), engine))
    dispatcher = NodeDispatcher(service, Log(stream=io.StringIO()), engine.nodes)
    service.stacks.times.left_after_s = 0.0
    replies: list[Any] = []

    def ask() -> None:
        body = bson.encode({"ping": 1, "$db": "admin"})
        message = OpMsg(1, 0, 0, body, [], size_bytes=len(body))
        reply = dispatcher.handle(message, ClientInfo(2, "127.0.0.1:1", "127.0.0.1:2"))
        assert isinstance(reply, bytes)
        replies.append(bson.decode(reply))

    def write() -> None:
        with engine.unit_of_work() as work:
            engine.create_record_store("records")
            service.stacks.let_ask()
            work.commit()

    engine.nodes.lease_clock_s = lambda: math.inf
    service.stacks.answer_apart = ask
    service.stacks.begin(write)
    assert replies and all(reply["ok"] == 1.0 for reply in replies), replies[0]
    assert not in_undivided() and not service.stacks.asks
