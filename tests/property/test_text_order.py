"""Strings of any bytes are ordered by their bytes, on each engine, with an index and without one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.contract import ContractEngine
from mongottl.storage.opening import open_engine
from tests.running import Running

# Parts of characters, whole ones of each length, and bytes that no character has.
PIECES = [b"a", b"\x01", b"\x7f", b"\x80", b"\xbf", b"\xc3", b"\xc3\xa9", b"\xed\xa0\x80", b"\xee\x80\x80"]
PIECES += [b"\xef\xbf\xbf", b"\xf0\x9f\x98\x80", b"\xf4\x8f\xbf\xbf", b"\xf5", b"\xff"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join)
RANGES = {"$lt": bytes.__lt__, "$lte": bytes.__le__, "$gt": bytes.__gt__, "$gte": bytes.__ge__, "$eq": bytes.__eq__}


def pipeline_result(server: Running, *stages: dict[str, Any]) -> Any:
    (document,) = server.listed({"aggregate": "c", "pipeline": [*stages], "cursor": {}})
    return document["v"]


def check(server: Running, texts: list[bytes], bound: bytes) -> None:
    limit = decode_text(bound)
    ordered = sorted(set(texts))

    def found(**options: Any) -> list[bytes]:
        return [encode_text(document["a"]) for document in server.listed({"find": "c", **options})]

    for hint in ({"$natural": 1}, {"a": 1}):
        assert found(sort={"a": 1}, filter={"a": {"$type": "string"}}, hint=hint) == sorted(texts)
        assert found(sort={"a": -1}, hint=hint) == sorted(texts, reverse=True)
        for name, compare in RANGES.items():
            expected = [text for text in sorted(texts) if compare(text, bound)]
            assert found(filter={"a": {name: limit}}, sort={"a": 1}, hint=hint) == expected
        wanted = [decode_text(text) for text in [*texts[:2], bound, b"\xff"]]
        expected = [text for text in sorted(texts) if decode_text(text) in wanted]
        assert found(filter={"a": {"$in": wanted}}, sort={"a": 1}, hint=hint) == expected
    distinct = [encode_text(value) for value in server.run({"distinct": "c", "key": "a"})["values"]]
    assert sorted(distinct) == ordered
    stages = [{"$group": {"_id": "$a"}}, {"$sort": {"_id": 1}}]
    groups = server.listed({"aggregate": "c", "pipeline": stages, "cursor": {}})
    assert [encode_text(group["_id"]) for group in groups] == ordered
    if texts:
        extremes = pipeline_result(
            server,
            {"$group": {"_id": 1, "low": {"$min": "$a"}, "high": {"$max": "$a"}}},
            {"$project": {"v": ["$low", "$high"]}},
        )
        assert [encode_text(value) for value in extremes] == [ordered[0], ordered[-1]]
        values = pipeline_result(
            server,
            {"$group": {"_id": 1, "all": {"$push": "$a"}}},
            {"$project": {"v": {"$sortArray": {"input": {"$setUnion": ["$all", []]}, "sortBy": 1}}}},
        )
        assert [encode_text(value) for value in values] == ordered


@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_strings_are_ordered_by_their_bytes(name: str) -> None:
    server = Running(ContractEngine(open_engine(f"{name}:")))
    server.run({"create": "c"})
    server.index({"a": 1})

    @settings(max_examples=40, deadline=None)
    @given(st.lists(TEXTS, max_size=7), TEXTS)
    def run(texts: list[bytes], bound: bytes) -> None:
        server.run({"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
        if texts:
            server.insert(*[{"_id": n, "a": decode_text(text)} for n, text in enumerate(texts)])
        check(server, texts, bound)

    run()
