"""The keys of one document in a compound index have a bound in bytes, too: each has the values of all paths.

A document of 1 MB whose 2,000 elements are each keyed beside a text of 1 MB would take 2 GB, and one of 16 MB a million
times as much as itself.
"""

from typing import Any

import bson
import pytest

from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.keys import KeyGenerator
from mongottl.document.build import encode, encode_fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.fulltext.fields import TextFields
from mongottl.query.fulltext.languages import ENGLISH

TEXT = "x" * 1_000_000
NUMBERS = list(range(2_000))
POINTS = {"type": "MultiPoint", "coordinates": [[number / 100, 0] for number in NUMBERS]}
PRODUCTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a text and an array": ({"a": 1, "b": 1}, {"a": TEXT, "b": NUMBERS}),
    "an array and a text": ({"b": 1, "a": 1}, {"a": TEXT, "b": NUMBERS}),
    "a text and documents": ({"b.n": 1, "a": 1}, {"a": TEXT, "b": [{"n": number} for number in NUMBERS]}),
    "a text and words": ({"a": 1, "b": "text"}, {"a": TEXT, "b": " ".join(f"word{number}" for number in NUMBERS)}),
    "words and a text": ({"b": "text", "a": 1}, {"a": TEXT, "b": " ".join(f"word{number}" for number in NUMBERS)}),
    "a text and fields": ({"a": 1, "b.$**": 1}, {"a": TEXT, "b": {f"f{number}": number for number in NUMBERS}}),
    "fields and a text": ({"b.$**": 1, "a": 1}, {"a": TEXT, "b": {f"f{number}": number for number in NUMBERS}}),
    "a text and points": ({"a": 1, "p": "2dsphere"}, {"a": TEXT, "p": POINTS}),
    "points and a text": ({"p": "2d", "a": 1}, {"a": TEXT, "p": [[number / 100, 0] for number in NUMBERS]}),
}


def generator(pattern: dict[str, Any]) -> KeyGenerator:
    spec = encode({"v": 2, "key": encode_fields(pattern.items()), "name": "i"})
    return parse_index_spec(spec).key_generator()


@pytest.mark.parametrize("name", PRODUCTS)
def test_keys_that_repeat_a_long_value_are_refused(name: str) -> None:
    pattern, document = PRODUCTS[name]
    with pytest.raises(CommandError, match="more than 268435456 bytes") as refused:
        generator(pattern).keys_of(bson.encode(document))
    assert refused.value.code == ErrorCode.CannotBuildIndexKeys


def test_equal_keys_count_once() -> None:
    keys = generator({"a": 1, "b": 1}).keys_of(bson.encode({"a": TEXT, "b": [5] * 1_000}))
    assert len(keys) == 1


def test_a_long_value_is_keyed_once() -> None:
    keys = generator({"a": 1, "b": 1}).keys_of(bson.encode({"a": "x" * 16_000_000, "b": [1, 2]}))
    assert len(keys) == 2


def test_words_are_not_looked_at_once_there_are_too_many() -> None:
    """Each takes 0.06 ms: those of 16 MB took a minute and a half."""
    fields = TextFields({"a": 1, "b": 1}, ENGLISH, "language", 3)
    words = " ".join(f"word{number}" for number in range(1_000))
    assert len(fields.scores(bson.encode({"a": words, "b": "others"}), 10)) == 11
    assert len(fields.scores(bson.encode({"a": words, "b": "others"}), 2_000)) == 1_001
