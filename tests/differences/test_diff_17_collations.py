"""Collations use the sort keys of the installed ICU.

MongoDB has ICU 57.1 and says so in `version`; ours says the same, since drivers and dumps send it back. MongoDB
compares texts by ICU's `compare` where it has no index, and by sort keys in indexes. The two disagree in one known
corner: with `alternate: "shifted"` and `maxVariable: "space"`, ICU's `compare` tells U+00A0 from a space, its keys do
not. MongoDB shows a collated index's duplicate key, and the values of a collated sort, as sort keys, which nobody can
read and which change with ICU; ours are the texts.
"""

from typing import Any

import pytest
from pymongo.collation import Collation
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from mongottl.query.icu import icu_version, is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="ICU is not installed")


def test_a_hard_space_is_a_space_with_an_index_and_without(database: Database[dict[str, Any]]) -> None:
    spaces = Collation("en", alternate="shifted", maxVariable="space")
    collection = database["c"]
    collection.insert_many([{"w": "a b"}, {"w": "a\u00a0b"}, {"w": "a-b"}])
    assert collection.count_documents({"w": "ab"}, collation=spaces) == 2
    collection.create_index("w", collation=spaces)
    assert collection.count_documents({"w": "ab"}, collation=spaces) == 2


def test_the_version_is_mongods(database: Database[dict[str, Any]]) -> None:
    collection = database["c"]
    collection.create_index("w", collation=Collation("en"))
    shown = collection.index_information()["w_1"]["collation"]
    assert shown["version"] == "57.1" != icu_version()


def test_keys_are_shown_as_texts(database: Database[dict[str, Any]]) -> None:
    collection = database["c"]
    collection.create_index("w", unique=True, collation=Collation("en", strength=2))
    collection.insert_one({"_id": 1, "w": "Ada"})
    with pytest.raises(DuplicateKeyError) as caught:
        collection.insert_one({"w": "ADA"})
    assert caught.value.details is not None
    assert caught.value.details["keyValue"] == {"w": "ADA"}
    assert caught.value.details["errmsg"].endswith('dup key: { w: "ADA" }')
    found = collection.find({}, {"key": {"$meta": "sortKey"}}, sort=[("w", 1)], collation=Collation("en", strength=2))
    assert list(found) == [{"_id": 1, "w": "Ada", "key": ["Ada"]}]
