"""Servers that start while another one changes the catalog."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from mongottl.catalog.catalog import Catalog
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.exec.operation.refreshing import carry_out, follow_others
from mongottl.exec.service.service import ServiceContext
from mongottl.storage.nodes import NodeFacts
from mongottl.storage.postgresql.address import Address
from mongottl.storage.postgresql.engine import PostgresEngine
from mongottl.storage.postgresql.local_cluster import LocalCluster

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
