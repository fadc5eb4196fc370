"""Updates of many fields at once give what a few at a time would, in the order in which fields are applied."""

import random
from collections.abc import Callable
from typing import Any

import bson
import bson.raw_bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.update import UpdateOutcome, new_document_for_upsert, parse_update

Update = Callable[..., UpdateOutcome]
Refusal = Callable[..., CommandError]
Change = tuple[str, str, Any]  # modifier, path, operand

FEW = 4


def in_one(apply: Update, document: dict[str, Any], changes: list[Change]) -> bytes:
    update: dict[str, dict[str, Any]] = {}
    for modifier, path, operand in changes:
        update.setdefault(modifier, {})[path] = operand
    return apply(document, update).document


def few_at_a_time(apply: Update, document: dict[str, Any], changes: list[Change]) -> bytes:
    raw = bson.encode(document)
    for first in range(0, len(changes), FEW):
        raw = in_one(apply, bson.decode(raw), changes[first : first + FEW])
    return raw


@pytest.mark.parametrize("seed", range(12))
def test_fields_of_a_document(apply: Update, seed: int) -> None:
    chance = random.Random(seed)
    document: dict[str, Any] = {"_id": 1, "d": {f"f{i}": i for i in range(30) if chance.random() < 0.6}}
    changes: list[Change] = []
    for name in sorted(f"f{i}" for i in range(30)):
        modifier = chance.choice(["$set", "$unset", "$inc"])
        changes.append((modifier, f"d.{name}", chance.randrange(100)))
    assert in_one(apply, document, changes) == few_at_a_time(apply, document, changes)


@pytest.mark.parametrize("seed", range(6))
def test_renamed_fields(apply: Update, seed: int) -> None:
    chance = random.Random(seed)
    document: dict[str, Any] = {"_id": 1, "d": {f"f{i}": i for i in range(30) if chance.random() < 0.6}}
    document["e"] = {f"g{i}": -i for i in range(30) if chance.random() < 0.3}
    changes: list[Change] = []
    for name in range(30):
        change = chance.choice([("$rename", f"d.f{name}", f"e.g{name:02}"), ("$set", f"d.f{name}", -1)])
        changes.append(change)
    changes.sort(key=lambda change: change[2] if change[0] == "$rename" else change[1])
    assert bson.decode(in_one(apply, document, changes)) == bson.decode(few_at_a_time(apply, document, changes))


def test_the_first_of_many_arrays_on_the_way_is_named(refuse: Refusal) -> None:
    paths = {f"f{i}.n": f"g{i}.n" for i in range(20)}
    error = refuse({"_id": 1, "f9": {"n": 1}, "g9": [1]}, {"$rename": paths})
    assert "destination field cannot be an array element" in error.message
    error = refuse({"_id": 1, "f9": 5}, {"$rename": paths})
    assert error.message == "Cannot use the part (n) of (f9.n) to traverse the element ({f9: 5})"


@pytest.mark.parametrize("size", [0, 3, 20, 40])
@pytest.mark.parametrize("step", [1, 3])
def test_elements_of_an_array(apply: Update, size: int, step: int) -> None:
    chance = random.Random(size)
    document: dict[str, Any] = {"_id": 1, "a": [{"n": i} for i in range(size)]}
    changes: list[Change] = []
    for index in range(0, 30 * step, step):
        modifier = chance.choice(["$set", "$unset"])
        changes.append((modifier, f"a.{index}.n" if chance.random() < 0.5 else f"a.{index}", index))
    assert in_one(apply, document, changes) == few_at_a_time(apply, document, changes)


def test_indexes_that_mean_the_same_element(apply: Update) -> None:
    changes = {f"a.{index}": index for index in range(12)} | {"a.03": -3}
    found = bson.decode(apply({"_id": 1, "a": [0] * 12}, {"$set": changes}).document)["a"]
    assert len(found) == 12
    assert found[3] in (3, -3)


def test_nothing_changes(apply: Update) -> None:
    document = {"_id": 1, "a": list(range(20)), **{f"f{i}": i for i in range(20)}}
    same = {**{f"a.{i}": i for i in range(20)}, **{f"f{i}": i for i in range(20)}}
    assert not apply(document, {"$set": same}).modified


def test_the_first_of_two_fields_of_one_name_changes(apply: Update) -> None:
    fields = {f"f{i}": i for i in range(20)}
    raw = bson.encode({"_id": 1, **fields})
    twice = bson.encode({"x": 1})[4:-1]
    body = raw[4:-1] + twice + twice
    document = bson.raw_bson.RawBSONDocument((len(body) + 5).to_bytes(4, "little") + body + b"\0")
    changed = apply(document, {"$set": {**fields, "x": 2}}).document
    assert changed.count(bson.encode({"x": 2})[4:-1]) == 1
    assert changed.index(bson.encode({"x": 2})[4:-1]) < changed.index(twice)


def test_errors(refuse: Refusal) -> None:
    names = {f"a.{index}": index for index in range(12)}
    assert refuse({"_id": 1, "a": [1]}, {"$set": {**names, "a.2000000": 1}}).code == 34
    assert refuse({"_id": 1, "a": [1]}, {"$set": {**names, "a.x": 1}}).code == 28
    assert refuse({"_id": 1, "f1": 5}, {"$set": {**{f"f{i}": i for i in range(2, 20)}, "f1.x": 1}}).code == 28
    assert refuse({"_id": 1}, {"$set": {**{f"f{i}": i for i in range(20)}, "_id": 2}}).code == 66


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a-", "", "a0", "\x01"]), min_size=1, max_size=4), max_size=8))
def test_the_document_of_an_upsert_has_the_fields_of_its_filter_in_the_order_of_their_paths(
    paths: list[list[str]],
) -> None:
    filter = {".".join(parts): number for number, parts in enumerate(paths) if parts[0]}
    ctx = ParseContext()
    empty = parse_update(bson.encode({"$setOnInsert": {"_id": 0}}), ctx)

    def conflicts(a: str, b: str) -> bool:
        return a != b and (a + ".").startswith(b + ".")

    expected: dict[str, Any] = {"_id": 0}
    for path in sorted(filter):
        at = expected
        *outer, last = path.split(".")
        for name in outer:
            at = at.setdefault(name, {}) if isinstance(at, dict) else {}
        if isinstance(at, dict):
            at[last] = filter[path]
    if any(conflicts(a, b) for a in filter for b in filter):
        with pytest.raises(CommandError) as refused:
            new_document_for_upsert(empty, parse_match(bson.encode(filter), ctx), ctx)
        assert refused.value.code == 54
    else:
        made = new_document_for_upsert(empty, parse_match(bson.encode(filter), ctx), ctx)
        assert made == bson.encode(expected)
