"""The stored form of entries, and the diffs of updates, by their laws."""

from typing import Any

import bson
from hypothesis import given
from hypothesis import strategies as st

from mongottl.document.types import BinData, Timestamp
from mongottl.oplog.documents import update_diff
from mongottl.oplog.entry import DELETE, INSERT, UPDATE, OplogEntry, loaded_form, stored_form
from tests.oplog_replay import apply_diff

NAMES = st.sampled_from(["a", "b", "0", "1", "x.y", "$c"])
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.none(), st.text(max_size=3))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
UUID = BinData(bytes(range(16)), 4)


def updated(before: dict[str, Any], after: dict[str, Any]) -> OplogEntry:
    entry = OplogEntry(UPDATE, "d", "c", UUID, [bson.encode(before)], [bson.encode(after)])
    entry.set_time(Timestamp(5, 6), 7)
    return entry


@given(DOCUMENTS, DOCUMENTS)
def test_a_diff_makes_the_new_document_of_the_old_one(before: dict[str, Any], after: dict[str, Any]) -> None:
    diff = bson.decode(update_diff(updated(before, after).describe(0, True)))
    assert apply_diff(before, diff) == after


@given(DOCUMENTS, DOCUMENTS)
def test_a_stored_update_is_described_as_before(before: dict[str, Any], after: dict[str, Any]) -> None:
    entry = updated({"_id": 1, **before}, {"_id": 1, **after})
    loaded = loaded_form(stored_form(entry))
    for expanded in (False, True):
        assert loaded.describe(0, expanded) == entry.describe(0, expanded)
    assert (loaded.id_of(0), loaded.count, loaded.at, loaded.wall_ms) == (1, 1, Timestamp(5, 6), 7)


@given(st.sampled_from([INSERT, DELETE]), st.lists(DOCUMENTS, min_size=1, max_size=3), st.booleans())
def test_a_stored_entry_keeps_what_events_tell(kind: int, documents: list[dict[str, Any]], images: bool) -> None:
    raw = [bson.encode({"_id": i, **document}) for i, document in enumerate(documents)]
    if kind == DELETE and not images:
        raw = [bson.encode({"_id": i}) for i in range(len(raw))]
    entry = OplogEntry(kind, "d", "c", UUID, raw if kind == DELETE else [], raw if kind == INSERT else [], images)
    entry.lsid = bson.encode({"id": 1})
    entry.txn_number = 3
    entry.first_index = 4
    entry.following = 5
    loaded = loaded_form(stored_form(entry))
    assert (loaded.kind, loaded.database, loaded.collection, loaded.uuid) == (kind, "d", "c", UUID)
    assert (loaded.lsid, loaded.txn_number, loaded.first_index, loaded.following) == (entry.lsid, 3, 4, 5)
    assert [loaded.id_of(i) for i in range(loaded.count)] == list(range(len(raw)))
    assert (loaded.before, loaded.after) == (entry.before, entry.after)
