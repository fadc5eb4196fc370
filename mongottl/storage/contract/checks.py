"""What holds for arguments and results, whatever store they are of."""

from mongottl.storage.stores import MAX_RECORD_ID, KeyEntry, KeyRange, Record

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


def check_entry(key: bytes, record_id: int) -> None:
    assert type(key) is bytes, f"a key is bytes, not {type(key).__name__}"
    assert type(record_id) is int and 0 < record_id < MAX_RECORD_ID


def check_range(method: str, key_range: KeyRange, after: KeyEntry | None, limit: int) -> None:
    low, high = key_range.low, key_range.high
    assert type(low) is bytes and type(high) is bytes
    assert limit > 0
    assert after is None or low <= after[0] < high, f"{method}: the position is outside the range"
