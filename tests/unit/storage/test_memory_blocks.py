"""Ordered entries over many blocks, beside a sorted list: the conformance suite's few entries all fit into one."""

import gc
import random
from bisect import bisect_left

import pytest

from mongottl.storage.memory.blocks import BLOCK, SortedBlocks

Entry = tuple[bytes, int]

END = b"\xff" * 9


class Pair:
    """Blocks, and what they should hold."""

    def __init__(self) -> None:
        self.blocks = SortedBlocks()
        self.model: list[Entry] = []

    def insert(self, entries: list[Entry]) -> None:
        held = set(self.model)
        expected: list[int] = []
        for place, entry in enumerate(entries):
            if entry in held:
                expected.append(place)
            held.add(entry)
        assert self.blocks.insert([key for key, _ in entries], [rid for _, rid in entries]) == expected
        self.model = sorted(held)

    def remove(self, entries: list[Entry]) -> None:
        held = set(self.model)
        expected: list[int] = []
        for place, entry in enumerate(entries):
            if entry not in held:
                expected.append(place)
            held.discard(entry)
        assert self.blocks.remove([key for key, _ in entries], [rid for _, rid in entries]) == expected
        self.model = sorted(held)

    def scan(self, low: bytes, high: bytes, after: Entry | None, limit: int, forward: bool = True) -> list[Entry]:
        keys, rids = self.blocks.slice(low, high, after, limit, forward)
        return list(zip(keys, rids, strict=True))

    def check(self, random_: random.Random) -> None:
        assert self.blocks.length == len(self.model)
        assert self.scan(b"", END, None, len(self.model) + 1) == self.model
        assert self.scan(b"", END, None, len(self.model) + 1, False) == self.model[::-1]
        keys = [key for key, _ in self.model] or [b"k"]
        for _ in range(5):
            low, high = sorted([random_.choice(keys), random_.choice(keys)])
            inside = self.model[bisect_left(self.model, (low, 0)) : bisect_left(self.model, (high, 0))]
            assert self.blocks.count(low, high) == len(inside)
            limit = random_.choice([1, 3, 256, 2000])
            assert self.scan(low, high, None, limit) == inside[:limit]
            assert self.scan(low, high, None, limit, False) == inside[::-1][:limit]
            if inside:
                after = (random_.choice(inside)[0], random_.choice(inside)[1])
                assert self.scan(low, high, after, limit) == [e for e in inside if e > after][:limit]
                assert self.scan(low, high, after, limit, False) == [e for e in inside[::-1] if e < after][:limit]
            distinct = sorted({key for key, _ in inside})
            assert self.blocks.distinct(low, high, limit) == distinct[:limit]
            key = random_.choice(keys)
            assert self.blocks.find(key) == [rid for k, rid in self.model if k == key]
        assert self.blocks.find(b"absent") == []


def keys_of(kind: str, random_: random.Random, number: int) -> bytes:
    if kind == "ascending":
        return b"%08d" % number
    if kind == "descending":
        return b"%08d" % (10_000_000 - number)
    if kind == "one":
        return b"same"
    if kind == "few":
        return b"key %d" % random_.randrange(4)
    return random_.randbytes(4)


@pytest.mark.parametrize("kind", ["ascending", "descending", "one", "few", "any"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_batches_leave_what_a_sorted_list_holds(kind: str, seed: int) -> None:
    random_ = random.Random(seed)
    pair = Pair()
    number = 0
    for step in range(24):
        batch: list[Entry] = []
        for _ in range(random_.choice([1, 10, 700])):
            number += 1
            # Not always ascending record ids, and some that are there already.
            rid = number if random_.random() < 0.9 else random_.randrange(1, number + 1)
            batch.append((keys_of(kind, random_, number), rid))
        if random_.random() < 0.3:
            random_.shuffle(batch)
        pair.insert(batch)
        if step % 2:
            gone = random_.sample(pair.model, random_.randrange(len(pair.model) // 2 + 1))
            if random_.random() < 0.7:
                gone.sort(reverse=random_.random() < 0.3)
            pair.remove([*gone, (b"absent", 1)])
        if step % 4 == 3:
            pair.check(random_)
    pair.remove(list(pair.model))
    pair.check(random_)
    pair.insert([(b"again", 1)])
    pair.check(random_)


def test_removing_from_the_front_as_expiry_does() -> None:
    pair = Pair()
    pair.insert([(b"%04d" % (n // 300), n + 1) for n in range(6000)])
    while pair.model:
        batch = pair.scan(b"", b"0012", None, 256) or pair.scan(b"", END, None, 256)
        pair.remove(batch)
        assert pair.scan(b"", END, None, 5) == pair.model[:5]
        assert pair.blocks.distinct(b"", END, 100) == sorted({key for key, _ in pair.model})
    assert pair.blocks.length == 0


def test_equal_keys_go_on_over_blocks_whose_lows_are_gone() -> None:
    pair = Pair()
    pair.insert([(b"k", n) for n in range(1, 4 * BLOCK)])
    # The first entries of blocks in the middle go, and come back.
    edges = [(b"k", n) for edge in (BLOCK, 2 * BLOCK, 3 * BLOCK) for n in range(edge - 2, edge + 3)]
    pair.remove(edges)
    assert pair.blocks.find(b"k") == [rid for _, rid in pair.model]
    random.Random(3).shuffle(edges)
    pair.insert(edges)
    assert pair.scan(b"", END, None, 5000) == [(b"k", n) for n in range(1, 4 * BLOCK)]


def test_dropping_takes_bounded_steps() -> None:
    blocks = SortedBlocks()
    blocks.insert([b"%06d" % n for n in range(5000)], list(range(1, 5001)))
    steps = 1
    while blocks.drop(300):
        steps += 1
        assert blocks.length == len(blocks.slice(b"", END, None, 9999, True)[0])
    assert steps == 17


def test_blocks_are_no_work_for_the_garbage_collector() -> None:
    def lists() -> int:
        return sum(1 for found in gc.get_objects() if type(found) is list and len(found) == BLOCK)

    before = lists()
    blocks = SortedBlocks()
    blocks.insert([b"%06d" % n for n in range(20 * BLOCK)], list(range(20 * BLOCK)))
    assert lists() < before + 5
    assert blocks.length == 20 * BLOCK
