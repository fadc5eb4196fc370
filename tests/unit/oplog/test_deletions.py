"""What the oplog keeps in memory of deleted documents: their `_id`, or all of them where a collection keeps images."""

from typing import Any

import bson
import pytest

from tests.running import Running

LARGE = "x" * 100_000


def test_a_deletion_keeps_only_ids_without_images() -> None:
    running = Running()
    running.insert(*({"_id": number, "x": LARGE} for number in range(3)))
    before = running.service.oplog.size_bytes
    running.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
    entry = running.service.oplog.entry(running.service.oplog.end - 1)
    assert [bson.decode(document) for document in entry.change.before] == [{"_id": 0}, {"_id": 1}, {"_id": 2}]
    assert running.service.oplog.size_bytes - before < 2000


def test_a_purge_of_large_documents_does_not_fill_the_oplog() -> None:
    running = Running()
    running.index({"_ts": 1}, expireAfterSeconds=5)
    running.insert(*({"_id": number, "x": LARGE} for number in range(20)))
    before = running.service.oplog.size_bytes
    running.advance(6)
    assert running.run({"count": "c"})["n"] == 0
    assert running.service.oplog.size_bytes - before < 20_000


@pytest.mark.parametrize(
    ("options", "collection", "kept"),
    [
        ({"create": "c", "changeStreamPreAndPostImages": {"enabled": True}}, "c", {"_id": 1, "x": LARGE}),
        ({"create": "c", "capped": True, "size": 4096, "max": 1}, "c", {"_id": 1}),
    ],
)
def test_images_and_what_a_capped_collection_displaces(
    options: dict[str, Any], collection: str, kept: dict[str, Any]
) -> None:
    running = Running()
    running.run(options)
    running.insert({"_id": 1, "x": LARGE if "capped" not in options else "x" * 3000})
    if "capped" in options:
        running.insert({"_id": 2})
    else:
        running.run({"delete": collection, "deletes": [{"q": {}, "limit": 0}]})
    entry = running.service.oplog.entry(running.service.oplog.end - 1)
    assert [bson.decode(document) for document in entry.change.before] == [kept]


def test_a_dropped_view_is_told_whole() -> None:
    running = Running()
    running.run({"create": "v", "viewOn": "c", "pipeline": []})
    running.run({"drop": "v"})
    entry = running.service.oplog.entry(running.service.oplog.end - 1)
    assert bson.decode(entry.change.before[0]) == {"_id": "test.v", "viewOn": "c", "pipeline": []}
