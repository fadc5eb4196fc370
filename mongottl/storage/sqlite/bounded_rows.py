"""Reads rows up to a number of bytes: a loop of its own, which is compiled, because a first reading runs it for each
record."""

from typing import Any

from mypy_extensions import i64


def rows_within(cursor: Any, counted_at: int, max_bytes: i64) -> tuple[list[Any], i64]:
    """The first rows of a cursor, up to the one whose document or key reaches `max_bytes`, and the bytes that are left:
    0 or less if the limit was reached. counted_at: the index of the document or key in a row."""
    rows: list[Any] = []
    left = max_bytes
    for row in cursor:
        rows.append(row)
        left -= len(row[counted_at])
        if left <= 0:
            break
    return rows, left
