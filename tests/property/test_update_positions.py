"""Updates of arrays, at single places and at many, against a slow, obvious model."""

import copy
from typing import Any

import bson
import pytest
from bson import Int64
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.match.tree import MatchDetails
from mongottl.query.update import parse_update
from tests.match_model import passes
from tests.pipeline_model import Unmodelled
from tests.update_model import ModelError, change, written_out

pytestmark = pytest.mark.slow

NAN = float("nan")
numbers: st.SearchStrategy[Any] = st.one_of(
    st.integers(-2, 3), st.sampled_from([1.0, 2.5, -0.0, 0.0, Int64(1), Int64(2), Int64(2**40), 2**31 - 1])
)
scalars: st.SearchStrategy[Any] = st.one_of(numbers, numbers, st.sampled_from([None, True, "", "x", NAN]))
items = st.one_of(scalars, st.lists(scalars, max_size=2), st.dictionaries(st.sampled_from("kx"), scalars, max_size=2))
entries = st.fixed_dictionaries({}, optional={"k": scalars, "l": st.lists(items, max_size=3), "x": items})
FIELDS = {
    "l": st.lists(items, max_size=4),
    "n": st.lists(numbers, max_size=4),
    "g": st.lists(st.one_of(entries, entries, entries, scalars), max_size=3),
    "d": st.one_of(entries, items),
}
documents = st.one_of(
    st.fixed_dictionaries({"_id": st.just(1), **FIELDS}), st.fixed_dictionaries({"_id": st.just(1)}, optional=FIELDS)
)
arrays_of_numbers = ["n.$[]", "n.$[e]", "n.$", "n.0", "n.2"]
PATHS = st.sampled_from(
    [
        *("l", "l.$[]", "l.$[e]", "l.$", "l.1", "l.$[].k", "l.$[e].x", "l.$[].$[e]", *arrays_of_numbers),
        *("g", "g.$[]", "g.$[e].k", "g.$[].k", "g.$[e].l", "g.$.l", "g.$.x.k", "g.$[].l.$[e]", "g.$[e].l.$[f]"),
        *("g.0.l", "g.1.k", "d", "d.l", "d.l.$[]", "d.k", "d.x.k", "d.l.3"),
    ]
)
comparisons = st.builds(
    lambda name, operand: {name: operand}, st.sampled_from(["$eq", "$gt", "$lte", "$ne"]), st.one_of(numbers, scalars)
)
conditions = st.one_of(comparisons, st.lists(scalars, max_size=3).map(lambda wanted: {"$in": wanted}))
clauses = st.fixed_dictionaries(
    {"$each": st.lists(items, max_size=3)},
    optional={
        "$position": st.integers(-3, 4),
        "$slice": st.integers(-3, 3),
        "$sort": st.sampled_from([1, -1, {"k": 1}, {"k": -1}]),
    },
)
operations = st.one_of(
    st.tuples(st.just("$set"), items),
    st.tuples(st.just("$unset"), st.just("")),
    st.tuples(st.sampled_from(["$inc", "$mul"]), st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.0, Int64(2)]))),
    st.tuples(st.sampled_from(["$min", "$max"]), scalars),
    st.tuples(st.just("$bit"), st.sampled_from([1, 6, Int64(2)]).map(lambda mask: {"or": mask})),
    st.tuples(st.just("$push"), st.one_of(items, clauses, clauses)),
    st.tuples(st.just("$addToSet"), st.one_of(items, st.lists(items, max_size=3).map(lambda each: {"$each": each}))),
    st.tuples(st.just("$pop"), st.sampled_from([1, -1])),
    st.tuples(st.just("$pull"), st.one_of(scalars, conditions, conditions.map(lambda condition: {"k": condition}))),
    st.tuples(st.just("$pullAll"), st.lists(items, max_size=3)),
)


def matched_element(document: dict[str, Any], query: dict[str, Any]) -> int | None:
    """The first element of the array in the query's path with which the document matches."""
    path, condition = next(iter(query.items()))
    name, _, rest = path.partition(".")
    array = document.get(name)
    if not isinstance(array, list) or "$ne" in condition:
        return None
    for i, item in enumerate(array):
        if passes({"v": [item]}, {f"v.{rest}" if rest else "v": condition}):
            return i
    return None


def filter_of(name: str, inside: bool, condition: Any) -> dict[str, Any]:
    return {f"{name}.k" if inside else name: condition}


@settings(max_examples=150, deadline=None)
@given(
    documents, PATHS, operations, comparisons, st.lists(st.tuples(st.booleans(), conditions), min_size=2, max_size=2)
)
def test_updates_of_arrays_equal_the_model(
    document: dict[str, Any], path: str, operation: tuple[str, Any], wanted: Any, chosen: list[tuple[bool, Any]]
) -> None:
    name, operand = operation
    filters = {key: filter_of(key, *chosen[i]) for i, key in enumerate("ef") if f"$[{key}]" in path}
    matched = None
    query = None
    if "$" in path.split("."):
        query = {"g.k" if path.startswith("g") else path[0]: wanted}
        matched = matched_element(document, query)
        assume(matched is not None)
    expected = copy.deepcopy(document)
    refused = None
    try:
        for single in written_out(document, path, matched, filters):
            change(expected, single, name, operand)
    except ModelError as error:
        refused = error
    except Unmodelled:
        assume(False)
    event(name if refused is None else "refused")
    ctx = ParseContext()
    raw = bson.encode(document)
    details = None
    if query is not None:
        details = MatchDetails()
        assert parse_match(bson.encode(query), ctx).matches_positional(raw, details)
    driver = parse_update(bson.encode({name: {path: operand}}), ctx, [bson.encode(one) for one in filters.values()])
    try:
        outcome = driver.apply(raw, details, False)
    except CommandError as error:
        assert refused is not None, error
        return
    assert refused is None
    assert outcome.document == bson.encode(expected)
    assert outcome.modified or outcome.document is raw
