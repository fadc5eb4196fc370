"""The diffs of the oplog, as `applyOps` applies them."""

from typing import Any

import bson
import pytest

from mongottl.errors import CommandError
from mongottl.query.update.logged import apply_diff

Document = dict[str, Any]


def apply(document: Document, diff: Document) -> Document:
    return bson.decode(apply_diff(bson.encode(document), bson.encode(diff)))


def refuse(document: Document, diff: Document) -> int:
    with pytest.raises(CommandError) as raised:
        apply(document, diff)
    return raised.value.code


def test_nulls_before_an_element() -> None:
    assert apply({"l": [1]}, {"sl": {"a": True, "u4": 2, "u2": 3}}) == {"l": [1, None, 3, None, 2]}
    assert apply({"l": [1, 2, 3]}, {"sl": {"a": True, "l": 1, "u2": 4}}) == {"l": [1, None, 4]}
    assert apply({"l": [[1]]}, {"sl": {"a": True, "s0": {"a": True, "u2": 2}}}) == {"l": [[1, None, 2]]}


@pytest.mark.slow
def test_nulls_of_all_arrays_are_limited_before_they_are_made() -> None:
    """As with other updates: each array may get 1.5 million nulls, all together what a document may be."""
    largest: Document = {"a": True, "u1500000": 1}
    document: Document = {"l": [], "m": [[], []], "o": {"l": []}}
    assert refuse(document, {"sl": {"a": True, "u1500001": 1}}) == 34
    assert refuse(document, {"sl": largest | {"u3000000": 1}}) == 17419
    assert refuse(document, {"sl": largest, "so": {"sl": largest}}) == 17419
    assert refuse(document, {"sm": {"a": True, "s0": largest, "s1": largest}}) == 17419


@pytest.mark.parametrize("section", ["u", "u-1", "ux", "x1", "u" + "9" * 5000, "s" + "9" * 5000])
def test_sections_that_arrays_do_not_have(section: str) -> None:
    assert refuse({"l": [1]}, {"sl": {"a": True, section: {}}}) == 9
