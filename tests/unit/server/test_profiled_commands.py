"""Of a long command the profiler and the log have the beginning of its text, at the cost of that."""

import time
from typing import Any

import bson
import pytest

from mongottl.document.render import render_logged
from mongottl.server.profiling.entries import shortened_command

LONG: dict[str, Any] = {
    "numbers": {"find": "c", "filter": {"a": {"$in": [float(number) for number in range(300_000)]}}},
    "nulls": {"find": "c", "comment": [None] * 300_000},
    "nested": {"find": "c", "filter": {"a": [[[number, [number]]] for number in range(60_000)]}},
    "documents": {"aggregate": "c", "pipeline": [{"$match": {"a": number}} for number in range(60_000)]},
    "fields": {f"field{number}": number for number in range(100_000)},
    "long text": {"find": "c", "filter": {"a": "ä" * 5_000_000}, "limit": 1},
    "long text behind another": {"a": "ä" * 20_000 + "ab" * 7_000, "b": "ö" * 5_000_000},
    "long binary": {"find": "c", "filter": {"a": bson.Binary(bytes(5_000_000), 0)}},
    "sensitive": {"find": "c", "filter": {"a": bson.Binary(bytes(5_000_000), 8), "b": "x"}},
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_command_is_cut_off(name: str) -> None:
    command = bson.encode(LONG[name])
    began_s = time.thread_time()
    shortened = shortened_command(command)
    taken_s = time.thread_time() - began_s
    assert isinstance(shortened, dict)
    text = shortened["$truncated"]
    assert isinstance(text, str)
    if name == "sensitive":
        assert text.startswith('{ find: "c", filter: { a: "###"')
    else:
        assert text == render_logged(command)[: 10 * 1024]
    # Interpreted; rendering the whole takes a second for most of these.
    assert taken_s < 0.1


def test_a_short_command_is_whole() -> None:
    command = bson.encode({"find": "c", "filter": {"a": "ä" * 20_000}})
    assert shortened_command(command) == command
