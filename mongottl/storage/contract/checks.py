"""What holds for arguments and results, whatever store they are of."""

from mongottl.storage.interface import (
    MAX_RECORD_ID,
    DueEntry,
    IndexEntry,
    Record,
)

# What `ttl` may be: 2^31 - 1 is Cosmos's largest, 0 stands for none, -1 for never.
_MAX_TTL_S = (1 << 31) - 1


def check_name(name: str) -> None:
    assert type(name) is str and name, "names are strings, not empty"


def check_facts(document: bytes, ts: int, ttl: int) -> None:
    assert type(document) is bytes, f"a document is bytes, not {type(document).__name__}"
    assert type(ts) is int, "_ts is whole seconds"
    assert type(ttl) is int and -1 <= ttl <= _MAX_TTL_S, f"ttl {ttl} has no meaning"


def check_record(record: Record) -> None:
    record_id, document, ts, ttl = record
    assert type(record_id) is int and record_id > 0
    check_facts(document, ts, ttl)


def check_bytes(method: str, documents: list[bytes], max_bytes: int) -> bool:
    """Whether the documents together reach `max_bytes`. Asserts that those before the last one do not."""
    size = sum([len(document) for document in documents])
    assert not documents or size - len(documents[-1]) < max_bytes, f"{method}: beyond max_bytes"
    return size >= max_bytes


def check_due(method: str, records: list[Record], order: list[tuple[int, int]], limit: int, max_bytes: int) -> None:
    """Asserts what holds for due records by either index. order: instant and record id of each record."""
    assert len(records) <= limit
    check_bytes(method, [record[1] for record in records], max_bytes)
    for record in records:
        check_record(record)
    assert order == sorted(set(order)), f"{method}: out of order"


def check_entry(key: bytes, record_id: int) -> None:
    assert type(key) is bytes, f"a key is bytes, not {type(key).__name__}"
    assert type(record_id) is int and 0 < record_id < MAX_RECORD_ID


def check_range(method: str, low: bytes, high: bytes, after: IndexEntry | None, limit: int) -> None:
    assert type(low) is bytes and type(high) is bytes
    assert limit > 0
    assert after is None or low <= after[0] < high, f"{method}: the position is outside the range"


def check_counted(method: str, count: int, last: DueEntry | None, after: DueEntry, until: int, limit: int) -> None:
    assert 0 <= count <= limit, f"{method}: more than the limit"
    if last is not None:
        assert count == limit, f"{method}: it ends before the limit and before the end"
        assert after < last and last[0] <= until, f"{method}: the last one counted is outside the range"


def check_seconds(method: str, seconds: list[int], after: int, limit: int) -> None:
    assert len(seconds) <= limit
    last = after
    for second in seconds:
        assert type(second) is int and second > last, f"{method}: out of order"
        last = second
