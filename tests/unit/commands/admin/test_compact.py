"""compact and autoCompact: their replies and refusals, and what they give back."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Decimal128, Int64

from mongottl.errors import CommandError
from mongottl.exec.running.steps import WithoutWriters
from mongottl.exec.state.compaction import Compaction
from mongottl.storage.errors import DiskFull
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from tests.running import Running

MB = 1 << 20


@pytest.fixture
def running() -> Running:
    return Running()


def opened(data: Path) -> StorageEngine:
    return open_engine(f"sqlite:{data}")


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Running]:
    """Over a data folder."""
    engine = opened(tmp_path / "data")
    yield Running(engine)
    engine.close()


@pytest.fixture
def stored_by_an_old_version(tmp_path: Path) -> Iterator[Running]:
    """Over a data folder as versions made it that could not give back space."""
    opened(tmp_path / "data").close()
    raw = sqlite3.connect(tmp_path / "data" / "mongottl.sqlite3", isolation_level=None)
    raw.execute("PRAGMA auto_vacuum = NONE")
    raw.execute("VACUUM")
    raw.close()
    engine = opened(tmp_path / "data")
    yield Running(engine)
    engine.close()


def fill_and_delete(running: Running, megabytes: int) -> None:
    """Leaves so much of the file unused, and one document."""
    running.insert(*({"_id": number, "x": bytes(MB - 4096)} for number in range(megabytes)))
    running.run({"update": "c", "updates": [{"q": {"_id": "kept"}, "u": {"$set": {}}, "upsert": True}]})
    running.run({"delete": "c", "deletes": [{"q": {"_id": {"$gte": 0}}, "limit": 0}]})


def test_without_unused_space_nothing_is_given_back(running: Running) -> None:
    running.insert({"_id": 1})
    assert running.run({"compact": "c", "force": True}) == {"bytesFreed": 0}
    assert running.run({"compact": "c", "force": 1, "dryRun": True}) == {"estimatedBytesFreed": 0}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"compact": "c"}, 20),
        ({"compact": "none", "force": True}, 26),
        ({"compact": "v", "force": True}, 166),
        ({"compact": "c", "freeSpaceTargetMB": 0}, 2),
        ({"compact": "c", "dryrun": True}, 40415),
        ({"autoCompact": 1}, 14),
        ({"autoCompact": None}, 40414),
        ({"autoCompact": True, "runOnce": 1}, 14),
        ({"autoCompact": True, "freeSpaceTargetMB": "20"}, 14),
        ({"autoCompact": True, "freeSpaceTargetMB": 0.9}, 2),
        ({"autoCompact": True, "freeSpaceTargetMB": Decimal128("0.5")}, 2),
        ({"autoCompact": True, "freeSpaceTargetMB": Int64(1 << 43)}, 2),
        ({"autoCompact": False, "freeSpaceTargetMB": 0}, 2),
        ({"autoCompact": True, "more": 1}, 40415),
    ],
)
def test_compact_refuses_invalid_arguments(running: Running, options: dict[str, Any], code: int) -> None:
    running.insert({"_id": 1})
    running.run({"create": "v", "viewOn": "c"})
    assert running.code(options) == code


def test_auto_compact_is_turned_off_before_its_options_change(running: Running) -> None:
    assert running.run({"autoCompact": False}) == {}
    assert running.run({"autoCompact": True}) == {}
    assert running.run({"autoCompact": True, "freeSpaceTargetMB": 20}) == {}  # the same
    for options in ({"freeSpaceTargetMB": 21}, {"runOnce": True}):
        assert running.code({"autoCompact": True, **options}) == 2
    assert running.run({"autoCompact": False, "freeSpaceTargetMB": Int64(1 << 43)}) == {}
    assert running.run({"autoCompact": True, "freeSpaceTargetMB": Int64((1 << 43) - 1)}) == {}


def test_compact_gives_back_the_space_of_all_collections(stored: Running) -> None:
    fill_and_delete(stored, 3)
    stored.run({"create": "empty"})
    unused = stored.engine.unused_bytes
    assert 3 * MB - 100_000 < unused < 4 * MB
    compact = {"compact": "empty", "force": True}
    assert stored.run(compact) == {"bytesFreed": 0}  # less than 20 MB
    assert stored.run({**compact, "freeSpaceTargetMB": 3, "dryRun": True}) == {"estimatedBytesFreed": 0}
    assert stored.run({**compact, "freeSpaceTargetMB": 2, "dryRun": True}) == {"estimatedBytesFreed": unused}
    assert stored.engine.unused_bytes == unused
    assert stored.run({**compact, "freeSpaceTargetMB": 2}) == {"bytesFreed": unused}
    assert stored.engine.unused_bytes == 0
    assert stored.listed({"find": "c", "filter": {}}) == [{"_id": "kept"}]


def test_compact_gives_back_the_space_of_dropped_collections(stored: Running) -> None:
    stored.insert(*({"_id": number, "x": bytes(1900)} for number in range(1200)))
    stored.run({"drop": "c"})
    stored.run({"create": "d"})
    reply = stored.run({"compact": "d", "force": True, "freeSpaceTargetMB": 2})
    assert 2 * MB < reply["bytesFreed"] < 4 * MB


def test_writers_and_operations_run_between_the_steps_of_compact(stored: Running) -> None:
    fill_and_delete(stored, 2)
    steps = stored.steps({"compact": "c", "force": True, "freeSpaceTargetMB": 1})
    inserted = 0
    for step in steps:
        assert step is None
        stored.insert({"_id": 1000 + inserted})
        inserted += 1
    assert inserted > 8
    assert stored.run({"count": "c"})["n"] == 1 + inserted


def test_compact_ends_when_it_is_interrupted(stored: Running) -> None:
    fill_and_delete(stored, 2)
    steps = stored.steps({"compact": "c", "force": True, "freeSpaceTargetMB": 1})
    next(steps)
    stored.service.stopping = True
    with pytest.raises(CommandError) as error:
        next(steps)
    assert error.value.code == 11600
    assert MB < stored.engine.unused_bytes < 2 * MB


def test_a_folder_of_an_old_version_is_rewritten_while_writers_wait(stored_by_an_old_version: Running) -> None:
    running = stored_by_an_old_version
    fill_and_delete(running, 2)
    assert running.code({"autoCompact": True}) == 20
    unused = running.engine.unused_bytes
    steps = running.steps({"compact": "c", "force": True, "freeSpaceTargetMB": 1})
    step = next(steps)
    assert isinstance(step, WithoutWriters)
    step.run()
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert unused - MB // 4 < end.value.value["bytesFreed"] <= unused
    assert running.listed({"find": "c", "filter": {}}) == [{"_id": "kept"}]
    assert running.run({"autoCompact": True}) == {}


def test_a_disk_without_room_to_rewrite_the_folder(
    stored_by_an_old_version: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = stored_by_an_old_version
    fill_and_delete(running, 2)

    def refuse(proceed: object) -> int:
        raise DiskFull("to rewrite the database takes 5 MiB of the disk for a time, and 4 MiB are free")

    monkeypatch.setattr(running.engine, "rewrite", refuse)
    error = running.refusal({"compact": "c", "force": True, "freeSpaceTargetMB": 1})
    assert (error.code, error.message) == (
        14031,
        "compact: to rewrite the database takes 5 MiB of the disk for a time, and 4 MiB are free",
    )


def test_compact_during_a_backup(stored: Running, tmp_path: Path) -> None:
    fill_and_delete(stored, 2)
    codes: list[int] = []
    stored.engine.copy_to(
        str(tmp_path / "copy"),
        lambda: codes.append(stored.code({"compact": "c", "force": True, "freeSpaceTargetMB": 1})),
    )
    assert codes and set(codes) == {314}


def run_dry(compaction: Compaction) -> int:
    """Takes steps while they are due; how many."""
    steps = 0
    while compaction.is_due() and compaction.take_step():
        steps += 1
    return steps


def test_auto_compact_gives_all_back_whenever_its_target_is_unused(stored: Running) -> None:
    compaction = stored.service.compaction
    woken: list[int] = []
    compaction.wake = lambda: woken.append(1)
    stored.run({"autoCompact": True, "freeSpaceTargetMB": 2})
    assert woken == [1]
    fill_and_delete(stored, 1)
    assert not compaction.is_due()
    for _ in range(2):
        fill_and_delete(stored, 3)
        assert run_dry(compaction) > 8
        assert stored.engine.unused_bytes == 0
    stored.run({"autoCompact": False})
    fill_and_delete(stored, 3)
    assert not compaction.is_due()


def test_auto_compact_that_runs_once_turns_itself_off(stored: Running) -> None:
    compaction = stored.service.compaction
    options = {"autoCompact": True, "freeSpaceTargetMB": 2, "runOnce": True}
    fill_and_delete(stored, 3)
    stored.run(options)
    assert run_dry(compaction) > 8
    assert (compaction.target_bytes, stored.engine.unused_bytes) == (0, 0)
    stored.run(options)
    assert not compaction.is_due()  # there is nothing to do
    assert compaction.target_bytes == 0


def test_the_setting_gives_back_what_is_more_than_half_of_the_file(stored: Running) -> None:
    engine, compaction = stored.engine, stored.service.compaction
    # What is written to `local` is not in the oplog, which would have as many bytes.
    for number in range(8):
        stored.run({"insert": "c", "documents": [{"_id": number, "x": bytes(5 * MB)}]}, "local")
    stored.run({"delete": "c", "deletes": [{"q": {"_id": {"$lt": 3}}, "limit": 0}]}, "local")
    assert not compaction.is_due()  # three of eight
    stored.run({"delete": "c", "deletes": [{"q": {"_id": {"$lt": 5}}, "limit": 0}]}, "local")
    assert not Compaction(engine, stored.clock, 0).is_due()
    assert run_dry(compaction) > 50
    assert abs(4 * engine.unused_bytes - engine.stored_bytes) < 4 * 4096
    assert not compaction.is_due()


def test_the_setting_leaves_a_small_file_as_it_is(stored: Running) -> None:
    fill_and_delete(stored, 19)
    assert stored.engine.unused_bytes > 18 * MB
    assert not stored.service.compaction.is_due()
