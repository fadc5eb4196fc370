"""The stored form of entries, and the diffs of updates, by their laws."""

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.catalog.change_kinds import DELETE, INSERT, UPDATE
from mongottl.document.interrupt import begin_undivided, end_undivided
from mongottl.document.types import Timestamp
from mongottl.oplog.change import LoggedChange, only_ids
from mongottl.oplog.documents import update_diff
from mongottl.oplog.entry import TransactionPart, loaded_form, stored_form
from tests.changes import UUID, entry_of, id_of, update_change
from tests.gaps import measured
from tests.oplog_replay import apply_diff

NAMES = st.sampled_from(["a", "b", "0", "1", "x.y", "$c"])
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.none(), st.text(max_size=3))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


@given(DOCUMENTS, DOCUMENTS)
def test_a_diff_makes_the_new_document_of_the_old_one(before: dict[str, Any], after: dict[str, Any]) -> None:
    described = update_change(bson.encode(before), bson.encode(after), whole=True).described()
    diff = bson.decode(update_diff(described.description(0, True)))
    assert apply_diff(before, diff) == after


@given(DOCUMENTS, DOCUMENTS, st.booleans())
def test_a_stored_update_is_described_as_before(before: dict[str, Any], after: dict[str, Any], whole: bool) -> None:
    change = update_change(bson.encode({"_id": 1, **before}), bson.encode({"_id": 1, **after}), whole=whole)
    entry = entry_of(change, 5, 6)
    loaded = loaded_form(stored_form(entry))
    described = entry.described().change
    for expanded in (False, True):
        assert loaded.change.description(0, expanded) == described.description(0, expanded)
    assert (id_of(loaded), loaded.change.count, loaded.at, loaded.wall_ms) == (1, 1, Timestamp(5, 6), 5000)
    assert (loaded.change.before, loaded.change.after) == (described.before, described.after)


def test_others_are_answered_while_an_update_is_described_in_a_unit_of_work() -> None:
    """An update of 100,000 fields of a store was described in 0.35 s of CPU, in which no ping was answered."""
    fields = [f"f{number}" for number in range(1000)]
    before, after = (bson.encode({"_id": 1, **dict.fromkeys(fields, value)}) for value in (1, 2))
    entry = entry_of(update_change(before, after))
    with measured(evaluates=False) as gaps:
        suspended = begin_undivided()
        stored_form(entry)
        end_undivided(suspended)
    assert gaps.count >= len(fields)


@given(DOCUMENTS, DOCUMENTS, st.booleans(), st.booleans())
def test_described_change_keeps_documents_only_where_requested(
    before: dict[str, Any], after: dict[str, Any], whole: bool, replaced: bool
) -> None:
    old, new = (bson.encode({"_id": 1, **document}) for document in (before, after))
    change = update_change(old, new, replaced, whole)
    described = change.described()
    assert described.described() is described
    assert (described.descriptions == ()) == replaced
    assert described.before == ((old,) if whole else (bson.encode({"_id": 1}),))
    assert described.after == ((new,) if whole or replaced else ())


@given(DOCUMENTS, DOCUMENTS)
def test_a_description_without_ambiguous_paths_has_all_other_fields(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    described = update_change(bson.encode({"_id": 1, **before}), bson.encode({"_id": 1, **after})).described()
    whole = bson.decode(described.description(0, True))
    assert bson.decode(described.description(0, False)) == {
        name: value for name, value in whole.items() if name != "disambiguatedPaths"
    }
    assert list(whole)[-1] == "disambiguatedPaths"


@given(st.sampled_from([INSERT, DELETE]), st.lists(DOCUMENTS, min_size=1, max_size=3), st.booleans())
def test_a_stored_entry_keeps_the_data_of_its_events(kind: int, documents: list[dict[str, Any]], images: bool) -> None:
    raw = tuple(bson.encode({"_id": i, **document}) for i, document in enumerate(documents))
    if kind == DELETE and not images:
        raw = only_ids(raw)
    before, after = ((), raw) if kind == INSERT else (raw, ())
    change = LoggedChange(kind, "d", "c", UUID, before, after, whole=images, images=images)
    entry = entry_of(change, part=TransactionPart(bson.encode({"id": 1}), 3, 4, 5))
    loaded = loaded_form(stored_form(entry))
    found = loaded.change
    assert (found.kind, found.database, found.collection, found.uuid) == (kind, "d", "c", UUID)
    assert loaded.transaction == entry.transaction
    assert (loaded.lsid, loaded.txn_number, loaded.first_index, loaded.following) == (entry.lsid, 3, 4, 5)
    assert [id_of(loaded, i) for i in range(found.count)] == list(range(len(raw)))
    assert (found.before, found.after, found.images) == (before, after, images)


@pytest.mark.parametrize(
    ("field", "key"),
    [
        (b"", {"_id": 1}),
        (b"_id", {"_id": 1}),
        (b"a", {"_id": 1, "a": {"b": 2}}),
        (b"missing", {"_id": 1}),
    ],
)
def test_the_key_of_a_sharded_document_has_the_field_of_its_shard_key(field: bytes, key: dict[str, Any]) -> None:
    before, after = (bson.encode({"n": number, "a": {"b": 2}, "_id": 1}) for number in range(2))
    change = LoggedChange(UPDATE, "d", "c", UUID, (before,), (after,), is_described=False, shard_field=field)
    loaded = loaded_form(stored_form(entry_of(change))).change
    assert bson.decode(loaded.before[0]) == bson.decode(change.described().before[0]) == key
    assert bson.decode(loaded.key_of(0)) == {"_id": 1}
