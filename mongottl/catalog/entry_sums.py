"""Comparing the entries of an index with those that its records should have, in one pass over each."""

from array import array
from typing import Final

from mongottl.catalog.key_ranges import keys_with_prefix
from mongottl.storage.stores import SortedDataInterface

_BUCKETS: Final = 16 * 1024
_HASH_MASK: Final = (1 << 64) - 1


class EntrySums:
    """For each bucket of records, the sum of the hashes of expected index entries minus that of existing ones.

    Records share a fixed number of buckets, so that memory does not grow with their number. A bucket with sum zero has
    no extra entries; in the others each entry is compared with its record, which is slow for large arrays. Concurrent
    writes make some sums other than zero as well.
    """

    def __init__(self) -> None:
        self._sums = array("Q", bytes(8 * _BUCKETS))

    def add(self, key: bytes, rid: int) -> None:
        """Adds an expected entry."""
        bucket = rid % _BUCKETS
        self._sums[bucket] = (self._sums[bucket] + hash((key, rid))) & _HASH_MASK

    def subtract(self, key: bytes, rid: int) -> None:
        """Subtracts an existing entry."""
        bucket = rid % _BUCKETS
        self._sums[bucket] = (self._sums[bucket] - hash((key, rid))) & _HASH_MASK

    def differ(self) -> bool:
        """Whether some record may have wrong entries."""
        return any(self._sums)

    def differ_at(self, rid: int) -> bool:
        """Whether this record may have wrong entries."""
        return self._sums[rid % _BUCKETS] != 0


def has_entry(data: SortedDataInterface, key: bytes, rid: int) -> bool:
    """Whether an index has an entry; the cost does not grow with the number of entries of the same key."""
    after = (key, rid - 1) if rid > 1 else None
    return data.scan(keys_with_prefix(key), after, 1)[0] == [(key, rid)]
