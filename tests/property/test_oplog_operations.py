"""What is written of an operation of the oplog is what `applyOps` reads of it."""

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mongottl.catalog import change_kinds as kinds
from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.types import BinData
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.oplog.change import LoggedChange
from mongottl.oplog.documents import operations_of, oplog_document
from mongottl.oplog.entry import OplogEntry, TransactionPart
from mongottl.oplog.operations import KINDS, Operation, contained, read_operation, several
from mongottl.query.update.logged import parse_logged_update
from tests.changes import entry_of, update_change

NAMES = st.sampled_from(["a", "b", "0", "1", "x.y"])
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.none(), st.text(max_size=3))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
RAW = st.builds(bson.encode, DOCUMENTS)
IDS = st.one_of(SCALARS, DOCUMENTS)
UUIDS = st.builds(BinData, st.binary(min_size=16, max_size=16), st.just(4))
TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=8)
OPERATIONS = st.builds(
    Operation,
    st.sampled_from(KINDS),
    TEXTS,
    RAW,
    RAW.filter(lambda key: key != EMPTY_DOCUMENT),
    st.none() | UUIDS,
    st.booleans(),
)
# What the server tells of changes of collections, by their kind.
DETAILS: dict[int, Any] = {
    kinds.CREATE: {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}},
    kinds.DROP: None,
    kinds.RENAME: {"to": {"db": "e", "coll": "f"}, "dropTarget": bson.Binary(bytes(16), 4)},
    kinds.DROP_DATABASE: None,
    kinds.CREATE_INDEXES: {"indexes": [{"v": 2, "key": {"a": 1}, "name": "a_1"}, {"key": {"b": 1}, "name": "b_1"}]},
    kinds.DROP_INDEXES: {"indexes": [{"v": 2, "key": {"a": 1}, "name": "a_1"}]},
    kinds.MODIFY: {"operationDescription": {"validationLevel": "off"}, "stateBeforeChange": {}},
    kinds.NOOP: {"msg": "why"},
}


@st.composite
def entries(draw: st.DrawFn) -> OplogEntry:
    """An entry of each kind, of a transaction or not."""
    kind = draw(st.sampled_from([kinds.INSERT, kinds.UPDATE, kinds.DELETE, *DETAILS]))
    uuid = None if kind in (kinds.DROP_DATABASE, kinds.NOOP) else draw(UUIDS)
    if kind in DETAILS:
        detail = DETAILS[kind]
        return entry_of(LoggedChange(kind, "d", "c", uuid, detail=None if detail is None else bson.encode(detail)))
    ids = draw(st.lists(IDS, min_size=1, max_size=3))
    before, after = (tuple(bson.encode({"_id": each, **draw(DOCUMENTS)}) for each in ids) for _ in range(2))
    change = LoggedChange(
        kind,
        "d",
        "c",
        uuid,
        () if kind == kinds.INSERT else before,
        () if kind == kinds.DELETE else after,
        kind == kinds.UPDATE and draw(st.booleans()),
        is_described=kind != kinds.UPDATE,
    )
    parts = st.builds(
        TransactionPart, st.just(bson.encode({"id": 1})), st.just(3), st.integers(0, 2), st.integers(0, 2)
    )
    return entry_of(change.described(), 5, 9, draw(st.none() | parts))


@given(OPERATIONS)
def test_stored_operations_are_read_alike(operation: Operation) -> None:
    document = encode_fields(operation.elements())
    assert read_operation(document) == operation
    assert encode_fields(read_operation(document).elements()) == document


@given(st.lists(OPERATIONS, max_size=3), st.booleans())
def test_several_operations_contain_what_they_are_made_of(operations: list[Operation], is_partial: bool) -> None:
    whole = several(operations, is_partial)
    read = read_operation(encode_fields(whole.elements()))
    inner = contained(read)
    assert read == whole and inner is not None
    assert [read_operation(document) for document in inner] == operations
    assert (get_value(read.document, "partialTxn") is True) == is_partial


@given(entries())
def test_documents_of_the_oplog_are_read_as_the_operations_of_their_entries(entry: OplogEntry) -> None:
    read = read_operation(oplog_document(entry))
    inner = contained(read)
    found = [read] if inner is None else [read_operation(document) for document in inner]
    assert found == operations_of(entry.change)


@given(IDS, DOCUMENTS, DOCUMENTS, st.booleans())
def test_an_update_that_is_read_makes_the_new_document(
    key: Any, old: dict[str, Any], new: dict[str, Any], replaced: bool
) -> None:
    before, after = (bson.encode({"_id": key, **document}) for document in (old, new))
    entry = entry_of(update_change(before, after, replaced).described())
    operation = read_operation(oplog_document(entry))
    made = parse_logged_update(operation.document).apply(before, None, False).document
    assert bson.decode(made) == bson.decode(after)
    assert operation.key == encode({"_id": get_value(after, "_id")})


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"ns": "d.c", "o": {}}, 14),
        ({"op": "i", "ns": "d.c"}, 14),
        ({"op": "i", "ns": 1, "o": {}}, 14),
        ({"op": "u", "ns": "d.c", "o": {}}, 14),
        ({"op": "i", "ns": "d.c", "o": {}, "ui": 1}, 207),
        ({"op": "i", "ns": "d.c", "o": {}, "ui": bson.Binary(bytes(15), 4)}, 207),
    ],
)
def test_other_documents_are_no_operations(document: dict[str, Any], code: int) -> None:
    with pytest.raises(CommandError) as refused:
        read_operation(bson.encode(document))
    assert refused.value.code == code
