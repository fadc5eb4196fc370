"""What is due in many stores, found by one statement: a server looks at all collections with TTL again and again.

The stores are parameters, each with the seconds of its expiry indexes, or the range of its keys. What a statement says
of a store are two probes of an index.
"""

from typing import Final

from mongottl.storage.postgresql.records import NEVER_S
from mongottl.storage.postgresql.sorted_data import divided
from mongottl.storage.postgresql.statements import (
    BYTEA_ARRAY,
    INT4_ARRAY,
    INT8_ARRAY,
    Call,
    Statement,
    bytea_array,
    int4_array,
    int8_array,
)
from mongottl.storage.stores import ExpiryIndex, KeyRange

_STORES: Final = "unnest($1, $2, $3) WITH ORDINALITY AS u (store, by_default, by_own, place)"
_BY_DEFAULT: Final = "records WHERE store = u.store AND ttl = 0 AND ts <= u.by_default"
_BY_OWN: Final = "records WHERE store = u.store AND ttl > 0 AND (ts + ttl) <= u.by_own"
_TYPES: Final = (INT4_ARRAY, INT8_ARRAY, INT8_ARRAY)
_COUNT: Final = Statement(
    "count_due",
    f"SELECT u.place - 1, (SELECT count(*) FROM {_BY_DEFAULT}) + (SELECT count(*) FROM {_BY_OWN}) FROM {_STORES}",
    _TYPES,
)
# The order has PostgreSQL read the index also where it knows nothing of the table yet.
_FIND: Final = Statement(
    "have_due",
    f"SELECT u.place - 1 FROM {_STORES}"
    f" WHERE (SELECT 1 FROM {_BY_DEFAULT} ORDER BY store, ts, rid LIMIT 1) IS NOT NULL"
    f" OR (SELECT 1 FROM {_BY_OWN} ORDER BY store, (ts + ttl), rid LIMIT 1) IS NOT NULL",
    _TYPES,
)
_FIND_KEYS: Final = {
    unique: Statement(
        f"have_{table}",
        "SELECT u.place - 1 FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY"
        " AS u (store, key, tail, end_key, end_tail, place)"
        f" WHERE (SELECT 1 FROM {table} e WHERE e.store = u.store AND (e.key, e.tail) >= (u.key, u.tail)"
        " AND (e.key, e.tail) < (u.end_key, u.end_tail) ORDER BY e.store, e.key LIMIT 1) IS NOT NULL",
        (INT4_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY),
    )
    for unique, table in ((False, "entries"), (True, "unique_entries"))
}


def count_due(wanted: list[tuple[int, dict[ExpiryIndex, int]]]) -> Call:
    """What counts due records: rows of a place in the list and the number there. wanted: stores by number."""
    return _COUNT, _seconds(wanted)


def find_due(wanted: list[tuple[int, dict[ExpiryIndex, int]]]) -> Call:
    """What finds the places in the list of stores with due records."""
    return _FIND, _seconds(wanted)


def find_keys(unique: bool, wanted: list[tuple[int, KeyRange]]) -> Call:
    """What finds the places in the list of sorted data, by number, with entries in their ranges."""
    stores: list[int] = []
    parts: tuple[list[bytes], ...] = ([], [], [], [])
    for store, key_range in wanted:
        stores.append(store)
        low, _, low_tail = divided(key_range.low)
        high, _, high_tail = divided(key_range.high)
        for part, value in zip(parts, (low, low_tail, high, high_tail), strict=True):
            part.append(value)
    return _FIND_KEYS[unique], (int4_array(stores), *map(bytea_array, parts))


def _seconds(wanted: list[tuple[int, dict[ExpiryIndex, int]]]) -> tuple[bytes, ...]:
    by_index = [[seconds.get(index, NEVER_S) for _, seconds in wanted] for index in ExpiryIndex]
    return int4_array([store for store, _ in wanted]), *map(int8_array, by_index)
