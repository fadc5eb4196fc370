"""Under a collation too there is one order: its laws, keys that agree with comparison, plans that agree with scans."""

import random
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.document.build import encode
from mongottl.document.collation import Collation, with_keys
from mongottl.document.compare import compare_raw, compare_values
from mongottl.document.keystring import encode_raw, encode_value
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import find_field
from mongottl.errors import CommandError
from mongottl.exec.plan.planner import plan_query
from mongottl.exec.results.counting import count_documents
from mongottl.query import icu
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.sort import parse_sort
from tests.planning import NATURAL, Bench, stages_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not icu.is_available(), reason="ICU is not installed")]

DOCUMENTS: list[dict[str, Any]] = [
    {"locale": "en"},
    {"locale": "en", "strength": 1},
    {"locale": "en", "strength": 2},
    {"locale": "en", "strength": 4, "alternate": "shifted"},
    {"locale": "en", "strength": 5},
    {"locale": "en", "alternate": "shifted", "maxVariable": "space"},
    {"locale": "en", "strength": 1, "caseLevel": True, "caseFirst": "upper"},
    {"locale": "en", "numericOrdering": True},
    {"locale": "fr_CA", "strength": 2},
    {"locale": "tr", "strength": 1},
    {"locale": "de@collation=phonebook"},
    {"locale": "zh"},
    {"locale": "ja", "normalization": True},
]
# Letters in several cases and with accents, digits, spaces and signs: much of it equal to something else.
LETTERS = "aAáÁbBßsSeéıiİI09 -_\u00a0\u0301\0あア漢\U0001f34e"

texts = st.text(LETTERS, max_size=6) | st.text(max_size=6)
scalars = texts | st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abA"), inner, max_size=2),
    max_leaves=5,
)
collations = st.sampled_from(DOCUMENTS)


def collation_of(document: dict[str, Any]) -> Collation:
    found = parse_collation(bson.encode(document))
    assert found is not None
    return found


def as_value(value: Any) -> Value:
    """The server's form of a Python value."""
    if isinstance(value, dict):
        return encode({name: as_value(member) for name, member in value.items()})
    if isinstance(value, list):
        return [as_value(item) for item in value]
    return value


@given(collations, values, values, values)
@settings(max_examples=400)
def test_laws(document: dict[str, Any], x: Any, y: Any, z: Any) -> None:
    collation = collation_of(document)
    a, b, c = as_value(x), as_value(y), as_value(z)
    order = compare_values(a, b, collation)
    assert compare_values(a, a, collation) == 0
    assert compare_values(b, a, collation) == -order
    if order <= 0 and compare_values(b, c, collation) <= 0:
        assert compare_values(a, c, collation) <= 0


@given(collations, values, values)
@settings(max_examples=400)
def test_keys_agree(document: dict[str, Any], x: Any, y: Any) -> None:
    collation = collation_of(document)
    a, b = as_value(x), as_value(y)
    order = int(compare_values(a, b, collation))
    raw_a, raw_b = encode({"": a}), encode({"": b})
    type_a, pos_a = find_field(raw_a, b"")
    type_b, pos_b = find_field(raw_b, b"")
    assert compare_raw(raw_a, type_a, pos_a, raw_b, type_b, pos_b, collation) == order
    for descending in (False, True):
        key_a = encode_value(a, descending, collation)
        key_b = encode_value(b, descending, collation)
        found = (key_a > key_b) - (key_a < key_b)
        assert found == (-order if descending else order)
        assert encode_raw(raw_a, type_a, pos_a, descending, collation) == key_a
        # Ranges of index keys are made of values in which keys stand for the texts.
        assert encode_value(with_keys(a, collation), descending) == key_a
    assert int(compare_values(with_keys(a, collation), with_keys(b, collation))) == order


@given(collations, texts)
def test_without_collation_nothing_changes(document: dict[str, Any], text: str) -> None:
    assert encode_value(text, False, None) == encode_value(text)
    assert with_keys(text, None) == text
    assert collation_of(document).text_key(text) == collation_of(document).text_key(text)


class Words:
    """Random documents, filters and sorts over a few paths."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        return "".join(self.random.choice("aAáb 1") for _ in range(self.random.randint(0, 3)))

    def scalar(self) -> Any:
        return self.random.choice([self.text(), self.text(), self.text(), self.random.randint(0, 3), None])

    def value(self, arrays: bool) -> Any:
        kind = self.random.random()
        if kind < 0.15:
            return {"x": self.scalar()}
        if arrays and kind < 0.35:
            return [self.scalar() for _ in range(self.random.randint(0, 3))]
        return self.scalar()

    def document(self, arrays: bool) -> dict[str, Any]:
        document = {path: self.value(arrays) for path in "ab" if self.random.random() < 0.85}
        if arrays and isinstance(document.get("a"), list) and isinstance(document.get("b"), list):
            del document["b"]  # no index takes parallel arrays
        return document

    def condition(self) -> Any:
        operator = self.random.choice(["", "$eq", "$gt", "$gte", "$lt", "$lte", "$ne", "$in", "$nin", "$regex", "$not"])
        if operator == "":
            return self.value(True)
        if operator == "$in" or operator == "$nin":
            return {operator: [self.value(True) for _ in range(self.random.randint(0, 3))]}
        if operator == "$regex":
            return {operator: "^" + self.random.choice(["a", "A", "b", ""])}
        if operator == "$not":
            return {operator: {"$gt": self.scalar()}}
        if self.random.random() < 0.3:
            return {"$gte": self.scalar(), "$lt": self.scalar()}
        if self.random.random() < 0.1:
            return {"$elemMatch": {"$gt": self.scalar(), "$regex": "^a"}}
        return {operator: self.value(True)}

    def filter(self) -> dict[str, Any]:
        filter = {path: self.condition() for path in ("a", "b", "a.x") if self.random.random() < 0.5}
        if self.random.random() < 0.15:
            filter["$or"] = [{"a": self.condition()}, {self.random.choice("ab"): self.condition()}]
        if self.random.random() < 0.25:
            operator = self.random.choice(["$eq", "$gt", "$gte", "$lt", "$lte", "$ne", "$in"])
            operand = [self.scalar(), self.scalar()] if operator == "$in" else self.scalar()
            filter["$expr"] = {operator: [self.random.choice(["$a", "$b"]), operand]}
        return filter

    def pattern(self) -> dict[str, Any]:
        paths = self.random.sample(["a", "b", "a.x"], self.random.randint(1, 2))
        return {path: self.random.choice([1, -1]) for path in paths}


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([None, *DOCUMENTS[:8]]))
@settings(max_examples=60, deadline=None)
def test_plans_agree_with_scans(seed: int, arrays: bool, document: dict[str, Any] | None) -> None:
    words = Words(seed)
    collation = None if document is None else collation_of(document)
    bench = Bench()
    for _ in range(words.random.randint(1, 4)):
        options: dict[str, Any] = {}
        theirs = words.random.choice([document, document, document, *DOCUMENTS, None])
        if theirs is not None:
            options["collation"] = bson.encode(theirs)
        if words.random.random() < 0.15:
            options["sparse"] = True
        elif words.random.random() < 0.15:
            options["partialFilterExpression"] = bson.encode({"a": words.random.choice(["a", {"$gt": "A"}, 1])})
        pattern = words.pattern()
        name = "_".join(f"{path}_{direction}" for path, direction in pattern.items())
        if bench.collection.index_named(name) is None:
            bench.index(list(pattern.items()), **options)
    for number in range(40):
        try:
            bench.insert_one({"_id": number, **words.document(arrays)})
        except CommandError as error:
            assert error.code == 171
    for _ in range(12):
        filter = words.filter()
        match = parse_match(bson.encode(filter), ParseContext(collation=collation))
        sort = parse_sort(encode(words.pattern()), collation) if words.random.random() < 0.5 else None
        op = bench.op
        plan = plan_query(op, bench.collection, match, sort=sort, hint=MISSING)
        found = bench.drain(plan.open())
        try:
            expected = bench.drain(plan_query(op, bench.collection, match, sort=sort, hint=NATURAL).open())
        except CommandError:
            continue
        where = f"{filter} {stages_of(plan)} seed {seed}"
        assert sorted(found) == sorted(expected), where
        if sort is not None:
            assert [sort.sort_key(one) for one in found] == [sort.sort_key(one) for one in expected], where
        assert count_documents(op, bench.collection, match) == len(expected), where
