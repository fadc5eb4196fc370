"""The external sort: the same order as `sorted`, whatever does not fit into memory."""

import gc
import random
from pathlib import Path

import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.state.temporary_files import TemporaryFiles
from mongottl.query.sorter import MAX_FILE_RUNS, Sorter
from mongottl.query.spill import SpillFile, SpillSpace

Pair = tuple[bytes, bytes]


class CountingSpace(SpillSpace):
    def __init__(self, folder: Path) -> None:
        self._space = TemporaryFiles(str(folder))
        self.files: list[SpillFile] = []

    def create(self) -> SpillFile:
        self.files.append(self._space.create())
        return self.files[-1]


def pairs_of(count: int, distinct: int) -> list[Pair]:
    """Keys that repeat, and documents that tell in which order they came."""
    numbers = random.Random(count)
    return [(b"%06d" % numbers.randrange(distinct), b"document %d" % place) for place in range(count)]


def fill(sorter: Sorter, pairs: list[Pair]) -> None:
    for place, (key, document) in enumerate(pairs):
        sorter.add(key, document, place, -place, place * 7)
        if place % 100 == 99:
            sorter.check()
            while sorter.pending:
                sorter.work()
    sorter.finish()
    while sorter.pending:
        sorter.work()


def taken(sorter: Sorter) -> list[Pair]:
    found: list[Pair] = []
    while entries := sorter.take(37):
        for key, _, document, place, negative, sevenfold in entries:
            assert negative == -place and sevenfold == place * 7
            found.append((key, document))
    return found


@pytest.mark.parametrize("limit", [0, 1, 50, 64, 700, 3000, 20_000])
@pytest.mark.parametrize("memory_limit_bytes", [100 << 20, 500_000, 60_000])
def test_order(tmp_path: Path, limit: int, memory_limit_bytes: int) -> None:
    pairs = pairs_of(9000, 500)
    sorter = Sorter(limit, memory_limit_bytes, TemporaryFiles(str(tmp_path)))
    sorter.run_length = 250
    fill(sorter, pairs)
    expected = sorted(pairs, key=lambda pair: pair[0])
    assert taken(sorter) == (expected[:limit] if limit else expected)
    assert sorter.take(1) == []


@pytest.mark.parametrize("limit", [0, 5000])
def test_entries_are_passed_on_and_not_made_anew(limit: int) -> None:
    """Else all of them would be new to the garbage collector, which examines what is new at once."""
    sorter = Sorter(limit, 100 << 20, None)
    sorter.run_length = 500
    for key, document in pairs_of(11_000, 500):
        sorter.add(key, document)
    gc.collect()
    gc.disable()
    try:
        sorter.check()
        while sorter.pending:
            sorter.work()
        sorter.finish()
        taken = sorter.take(4000)
        new = sum(isinstance(one, tuple) for one in gc.get_objects(generation=0))
    finally:
        gc.enable()
    assert len(taken) == 4000
    assert new < 100


def test_more_runs_than_are_merged_at_once(tmp_path: Path) -> None:
    pairs = pairs_of(12_000, 12_000)
    sorter = Sorter(0, 10_000, TemporaryFiles(str(tmp_path)))
    fill(sorter, pairs)
    assert sorter.spilled.spills > MAX_FILE_RUNS
    # Merging runs of the file into longer ones is no spill.
    assert sorter.spilled.records <= 12_000
    assert taken(sorter) == sorted(pairs, key=lambda pair: pair[0])


def test_documents_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    pairs = [(b"%d" % (i % 7), bytes([i]) * 200_000) for i in range(30)]
    sorter = Sorter(0, 1_000_000, TemporaryFiles(str(tmp_path)))
    for key, document in pairs:
        sorter.add(key, document)
        sorter.check()
        while sorter.pending:
            sorter.work()
    sorter.finish()
    found = [(entry[0], entry[2]) for _ in range(30) for entry in sorter.take(1)]
    assert found == sorted(pairs, key=lambda pair: pair[0])
    assert sorter.spilled.spills > 3
    assert sorter.take(1) == []


def test_the_limit_keeps_memory_small_enough(tmp_path: Path) -> None:
    space = CountingSpace(tmp_path)
    sorter = Sorter(10, 100_000, space)
    fill(sorter, pairs_of(20_000, 20_000))
    assert len(taken(sorter)) == 10
    assert space.files == []


def test_refusal() -> None:
    sorter = Sorter(0, 10_000, None)
    with pytest.raises(CommandError) as refused:
        fill(sorter, pairs_of(1000, 10))
    assert refused.value.code == ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed
    assert "10000 bytes" in refused.value.message


def test_files_are_closed_at_the_end_and_by_close(tmp_path: Path) -> None:
    for ended in (True, False):
        space = CountingSpace(tmp_path)
        sorter = Sorter(0, 20_000, space)
        fill(sorter, pairs_of(2000, 2000))
        if ended:
            taken(sorter)
        else:
            sorter.take(5)
            sorter.close()
            sorter.close()
        assert sorter.take(1) == []
        assert len(space.files) == 1
        with pytest.raises(ValueError, match="closed"):
            space.files[0].read(0, 1)


def test_a_step_is_bounded(tmp_path: Path) -> None:
    sorter = Sorter(0, 1_000_000, TemporaryFiles(str(tmp_path)))
    steps = 0
    for place, (key, document) in enumerate(pairs_of(20_000, 20_000)):
        sorter.add(key, document)
        if place % 100 == 99:
            sorter.check()
            while sorter.pending:
                before = sorter.spilled.records
                sorter.work()
                assert sorter.spilled.records - before <= 1024
                steps += 1
    assert steps > 5
    sorter.close()
