"""The difference by the fields that an update names is the difference of the whole documents."""

from typing import Any

import bson
from hypothesis import given
from hypothesis import strategies as st

from mongottl.query.difference import difference

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
