"""Compact sets of record ids, for the records that a read, update or delete has already processed.

Record ids are assigned in ascending order, so those of a collection are mostly adjacent. They are stored as bits of
integers, 1024 ids to an integer: about a third of a byte for each id where there are no gaps, and at most
MAX_BYTES_PER_ID where no id is near another. A Python set takes 60 to 100 bytes for each.
"""

from typing import Final

from mongottl.storage.stores import Record

_BITS: Final = 10
_MASK: Final = (1 << _BITS) - 1
# Bytes of an id without neighbours: the integer, its key, its slot in the dict with room to grow.
MAX_BYTES_PER_ID: Final = 400


class RecordIdSet:
    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}

    def add(self, record_id: int) -> bool:
        """Adds an id; whether it was not in the set yet."""
        chunk = record_id >> _BITS
        bit = 1 << (record_id & _MASK)
        bits = self._chunks.get(chunk, 0)
        if bits & bit:
            return False
        self._chunks[chunk] = bits | bit
        return True

    def discard(self, records: list[Record]) -> None:
        """Removes the ids of the records."""
        for record in records:
            chunk = record[0] >> _BITS
            bits = self._chunks.get(chunk, 0) & ~(1 << (record[0] & _MASK))
            if bits:
                self._chunks[chunk] = bits
            else:
                self._chunks.pop(chunk, None)

    def held_bytes(self) -> int:
        """Approximate memory of the set."""
        return MAX_BYTES_PER_ID * len(self._chunks)

    def unseen(self, records: list[Record]) -> list[Record]:
        """Adds the ids of the records; those records whose ids were not in the set yet."""
        return [record for record in records if self.add(record[0])]
