import bson

from mongottl.catalog.options import NO_OPTIONS, CollectionOptions, options_document
from mongottl.document.types import MISSING


def test_options_are_kept_in_mongods_order_whatever_the_clients() -> None:
    raw = options_document({"validationLevel": "off", "size": 4096, "max": MISSING, "capped": True})
    assert raw == bson.encode({"capped": True, "size": 4096, "validationLevel": "off"})


def test_omitted_options_have_their_defaults() -> None:
    assert NO_OPTIONS.raw == bson.encode({})
    assert not NO_OPTIONS.capped
    assert NO_OPTIONS.validator is None
    assert NO_OPTIONS.validation_level == "strict"
    assert NO_OPTIONS.validation_action == "error"


def test_options_are_read_from_their_document() -> None:
    options = CollectionOptions(
        bson.encode(
            {
                "capped": True,
                "size": 4096,
                "max": 10,
                "changeStreamPreAndPostImages": {"enabled": True},
                "validator": {"a": 1},
                "validationLevel": "moderate",
                "validationAction": "warn",
                "collation": {"locale": "en"},
                "timeseries": {"timeField": "t"},
                "clusteredIndex": {"key": {"_id": 1}, "unique": True},
                "expireAfterSeconds": bson.Int64(60),
            }
        )
    )
    assert options.capped
    assert options.capped_size_bytes == 4096
    assert options.capped_max_documents == 10
    assert options.records_images
    assert options.validator == bson.encode({"a": 1})
    assert options.validation_level == "moderate"
    assert options.validation_action == "warn"
    assert options.collation == bson.encode({"locale": "en"})
    assert options.time_series == bson.encode({"timeField": "t"})
    assert options.clustered_index == bson.encode({"key": {"_id": 1}, "unique": True})
    assert options.expire_after_seconds == 60


def test_changed_options_leave_the_others_alone() -> None:
    before = CollectionOptions(bson.encode({"validator": {"a": 1}, "validationAction": "warn"}))
    after = before.with_options({"validator": MISSING, "capped": True})
    assert after.raw == bson.encode({"capped": True, "validationAction": "warn"})
    assert before.validator == bson.encode({"a": 1})
