"""The difference by the fields that an update names is the difference of the whole documents."""

from collections.abc import Callable
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.build_info import is_compiled
from mongottl.query.difference import difference
from tests.gaps import ELEMENTS, STALL_S, longest_stall_s, measured
from tests.unit.exec.test_growth import GROWTH, LARGE, SMALL, LineCount

NAMES = st.sampled_from(["a", "b", "c", "0", "é"])
VALUES = st.recursive(
    st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=5)


@given(DOCUMENTS, DOCUMENTS, st.permutations(["a", "b", "c", "0", "é"]))
def test_named_fields_tell_all(before: dict[str, Any], after: dict[str, Any], names: list[str]) -> None:
    """A path that no document has makes the other way of comparing be taken."""
    old, new = bson.encode({"_id": 1, **before}), bson.encode({"_id": 1, **after})
    expected = difference(old, new, (*names, "none.none")).describe(True)
    assert difference(old, new, tuple(names)).describe(True) == expected


@given(DOCUMENTS, DOCUMENTS)
def test_many_named_fields_are_compared_as_few_are(before: dict[str, Any], after: dict[str, Any]) -> None:
    old, new = bson.encode({"_id": 1, **before}), bson.encode({"_id": 1, **after})
    names = ("a", "b", "c", "0", "é")
    others = tuple(f"other {number}" for number in range(100))
    assert difference(old, new, (*names, *others)).describe(True) == difference(old, new, names).describe(True)


# By name: the document before and after, and the paths that were named, for a number of them.
MANY: dict[str, Callable[[int], tuple[dict[str, Any], dict[str, Any], list[str]]]] = {
    "new fields": lambda n: ({}, {f"f{i}": i for i in range(n)}, [f"f{i}" for i in range(n)]),
    "removed fields": lambda n: ({f"f{i}": i for i in range(n)}, {}, [f"f{i}" for i in range(n)]),
    "changed fields of a document": lambda n: (
        {"a": {f"f{i}": i for i in range(n)}},
        {"a": {f"f{i}": -i for i in range(n)}},
        [f"a.f{i}" for i in range(n)],
    ),
    "changed elements": lambda n: (
        {"a": [*range(n)]},
        {"a": [-i for i in range(n)]},
        [f"a.{i}" for i in range(n)],
    ),
    "elements by filters": lambda n: (
        {"a": [{"n": i} for i in range(n)]},
        {"a": [{"n": -i} for i in range(n)]},
        [f"a.$[e{i}].n" for i in range(n)],
    ),
}


def compared(name: str, number: int) -> Callable[[], object]:
    before, after, paths = MANY[name](number)
    old, new, touched = bson.encode({"_id": 1, **before}), bson.encode({"_id": 1, **after}), tuple(paths)
    return lambda: difference(old, new, touched).describe(True)


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_no_difference_of_many_paths_stalls_others(name: str) -> None:
    assert longest_stall_s(compared(name, ELEMENTS)) <= STALL_S


@pytest.mark.parametrize(
    ("before", "after", "named", "least"),
    [
        ({"a": [*range(1000)]}, {"a": [*range(1001)]}, ["a"], 1500),
        (
            {f"f{i}": i for i in range(1000)},
            {f"f{i}": i for i in range(1001)},
            [f"f{i}" for i in range(990, 1001)],
            500,
        ),
    ],
    ids=["an element is added to a long array", "a few of many fields are named"],
)
def test_others_run_while_what_is_compared_is_listed(
    before: dict[str, Any], after: dict[str, Any], named: list[str], least: int
) -> None:
    old, new = bson.encode(before), bson.encode(after)
    names = (*named, *[f"other {number}" for number in range(20)]) if len(named) > 1 else tuple(named)
    with measured() as gaps:
        difference(old, new, names)
    assert gaps.count >= least


@pytest.mark.skipif(is_compiled(), reason="lines can only be counted where they are interpreted")
@pytest.mark.parametrize("name", MANY)
def test_the_cost_does_not_grow_with_the_square_of_the_paths(name: str) -> None:
    """It did: an update of 400,000 fields stopped the server for hours."""
    lines: list[int] = []
    for number in (SMALL, LARGE):
        compute = compared(name, number)
        with LineCount() as counted:
            compute()
        lines.append(counted.lines)
    assert lines[1] <= GROWTH * lines[0]
