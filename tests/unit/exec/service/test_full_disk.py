"""Entries of the server and deletions on a full disk: they need no more than the reserve."""

from collections.abc import Iterator
from pathlib import Path

import bson
import pytest

from mongottl.document.build import encode
from mongottl.storage.contract import ContractEngine
from mongottl.storage.errors import DiskFull
from mongottl.storage.forwarding import ForwardingEngine
from mongottl.storage.opening import open_engine
from tests.running import START_MS, Running


class FullDisk(ForwardingEngine):
    """An engine in a folder, whose disk can be full for the entries of its catalog. has_reserve: whether it keeps one
    that `make_room` removes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ContractEngine(open_engine(f"sqlite:{folder}")))
        self.is_full = False
        self.has_reserve = True

    def put_catalog_entry(self, key: str, value: bytes) -> None:
        if self.is_full:
            raise DiskFull("simulated")
        super().put_catalog_entry(key, value)

    def make_room(self) -> bool:
        if not self.has_reserve:
            return False
        self.has_reserve = False
        self.is_full = False
        return True


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FullDisk]:
    made = FullDisk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def running(disk: FullDisk) -> Running:
    return Running(disk)


def test_a_server_entry_is_stored_from_the_reserve(disk: FullDisk, running: Running) -> None:
    catalog = running.service.catalog
    catalog.save_server_entry("name", encode({"value": 1}))
    disk.is_full = True
    catalog.save_server_entry("name", encode({"value": 2}))
    assert catalog.server_entry("name") == encode({"value": 2})
    assert not disk.has_reserve
    disk.is_full = True
    with pytest.raises(DiskFull):
        catalog.save_server_entry("name", encode({"value": 3}))
    assert catalog.server_entry("name") == encode({"value": 2})


def test_the_clock_is_moved_on_a_full_disk_and_what_is_due_is_purged(disk: FullDisk, running: Running) -> None:
    running.index({"_ts": 1}, expireAfterSeconds=10)
    running.insert({"_id": 1})
    disk.is_full = True
    reply = running.run({"advanceClock": 20}, "admin")
    assert reply["ttlDeleted"] == 1
    assert running.ids() == []


@pytest.mark.parametrize(
    "command", [{"delete": "c", "deletes": [{"q": {}, "limit": 0}]}, {"drop": "c"}, {"dropDatabase": 1}], ids=str
)
def test_a_deletion_stores_the_limit_of_the_cluster_time_on_a_full_disk(
    disk: FullDisk, running: Running, command: dict[str, object]
) -> None:
    running.insert({"_id": 1}, {"_id": 2})
    running.clock.advance(1000)
    disk.is_full = True
    running.run(command)
    assert not disk.has_reserve
    assert running.ids() == []


def test_an_index_is_dropped_on_a_full_disk(disk: FullDisk, running: Running) -> None:
    running.index({"a": 1})
    disk.is_full = True
    running.run({"dropIndexes": "c", "index": "a_1"})
    assert not disk.has_reserve
    assert len(running.collection().indexes) == 1


def test_a_reply_stores_the_limit_of_the_cluster_time_on_a_full_disk(disk: FullDisk, running: Running) -> None:
    clock = running.service.cluster_clock
    clock.tick(START_MS + 1_000_000)
    disk.is_full = True
    reply = bson.decode(clock.with_times(encode({})))
    assert reply["operationTime"].time == (START_MS + 1_000_000) // 1000
    assert not clock.limit_due
