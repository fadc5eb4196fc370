from mongottl.document.annotated import annotated, copy_metadata, metadata_of, plain
from mongottl.document.build import encode


def test_an_annotated_document_is_its_bytes() -> None:
    raw = encode({"a": 1})
    document = annotated(raw, "textScore", 1.5)
    assert document == raw
    assert hash(document) == hash(raw)
    assert metadata_of(raw) == {}
    assert metadata_of(document) == {"textScore": 1.5}
    assert metadata_of(document[:]) == {}
    assert type(plain(document)) is bytes
    assert plain(document) == raw
    assert plain(raw) is raw


def test_annotations_add_up_and_leave_others_alone() -> None:
    first = annotated(encode({"a": 1}), "x", 1)
    second = annotated(first, "y", 2)
    third = annotated(second, "x", 3)
    assert metadata_of(first) == {"x": 1}
    assert metadata_of(second) == {"x": 1, "y": 2}
    assert metadata_of(third) == {"x": 3, "y": 2}


def test_metadata_is_carried_to_what_is_made_of_a_document() -> None:
    made = encode({"b": 1})
    assert metadata_of(copy_metadata(annotated(encode({"a": 1}), "x", 1), made)) == {"x": 1}
    assert copy_metadata(encode({"a": 1}), made) is made
