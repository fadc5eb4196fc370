"""Values that pass through JavaScript unchanged: BSON, JSON, QuickJS and back."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.document.build import encode_fields
from mongottl.document.types import (
    BinData,
    Date,
    DBPointer,
    Decimal128,
    Int64,
    JavaScript,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    Undefined,
    Value,
)
from mongottl.javascript.library import missing_reason
from mongottl.javascript.scripts import PROGRAM, Scripts
from mongottl.processes.pool import WorkerProcesses
from tests.unit.javascript.conftest import never_await, never_pause

pytestmark = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# JavaScript puts the names that are array indexes first, and has each name once.
NAMES = TEXT.filter(lambda name: "\0" not in name and not name.isdigit())
OIDS = st.binary(min_size=12, max_size=12)

# JavaScript's dates have a smaller range than BSON's.
DATES = st.integers(-8_640_000_000_000_000, 8_640_000_000_000_000)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    TEXT,
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    DATES.map(Date),
    OIDS.map(ObjectId),
    st.builds(BinData, st.binary(max_size=20), st.sampled_from([0, 3, 4, 5, 128])),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.decimals(allow_nan=False, places=3, min_value=-(10**20), max_value=10**20).map(Decimal128),
    st.sampled_from([Decimal128("NaN"), Decimal128("-Infinity"), Decimal128("1E+6000"), Decimal128("-0.000")]),
    st.sampled_from([MinKey(), MaxKey(), Undefined()]),
    st.sampled_from([Regex("a+", ""), Regex("/\n", "im"), Regex("x", "sx")]),
    st.sampled_from([JavaScript("function() {}"), JavaScript("x("), JavaScript("x", encode_fields([("a", Int64(1))]))]),
    st.builds(DBPointer, TEXT.filter(lambda text: "\0" not in text), OIDS),
)


def documents(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    members = st.lists(st.tuples(NAMES, values), max_size=4, unique_by=lambda member: member[0])
    return members.map(encode_fields)


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # An int32 stays one as a field of a document.
    return st.one_of(documents(st.one_of(values, st.integers(-(2**31), 2**31 - 1))), st.lists(values, max_size=4))


VALUES = st.recursive(SCALARS, containers, max_leaves=12)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    processes = WorkerProcesses(PROGRAM, time.monotonic)
    yield Scripts(processes, never_pause, never_await, time.monotonic, lambda line: None, 0, "8.2.0", 60_000)
    processes.close()


@given(values=st.lists(VALUES, max_size=5))
def test_identity(scripts: Scripts, values: list[Value]) -> None:
    given = encode_fields([("v", values)])
    assert encode_fields([("v", scripts.call("function(...values) { return values; }", values))]) == given


@given(value=VALUES)
def test_identity_of_what_is_printed(scripts: Scripts, value: Value) -> None:
    """tojson takes every value, and changes none."""
    code = "function(value) { return [value, tojson(value).length, tojsononeline(value).length]; }"
    found = scripts.call(code, [value])
    assert isinstance(found, list)
    assert encode_fields([("v", found[0])]) == encode_fields([("v", value)])
