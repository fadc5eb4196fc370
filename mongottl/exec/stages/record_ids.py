"""Sets of the record ids that a read, an update or a delete has met, in little memory.

Ids are given to records in ascending order, so those of a collection mostly stand close together. They are kept as bits
of whole numbers, 1024 ids to a number: about a third of a byte for each id where there are no gaps, and no more than
MAX_BYTES_PER_ID where every id stands alone. A set of Python's takes 60 to 100 bytes for each.
"""

from typing import Final

from mongottl.storage.interface import Record

_BITS: Final = 10
_MASK: Final = (1 << _BITS) - 1
# What an id takes that has no neighbour: the number, its key, its place in the dict with room to grow.
MAX_BYTES_PER_ID: Final = 400


class RecordIdSet:
    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}

    def add(self, record_id: int) -> bool:
        """Whether the id was not in the set yet."""
        chunk = record_id >> _BITS
        bit = 1 << (record_id & _MASK)
        bits = self._chunks.get(chunk, 0)
        if bits & bit:
            return False
        self._chunks[chunk] = bits | bit
        return True

    def discard(self, records: list[Record]) -> None:
        """Takes the ids of these records out of the set again."""
        for record in records:
            chunk = record[0] >> _BITS
            bits = self._chunks.get(chunk, 0) & ~(1 << (record[0] & _MASK))
            if bits:
                self._chunks[chunk] = bits
            else:
                self._chunks.pop(chunk, None)

    def unseen(self, records: list[Record]) -> list[Record]:
        """The records whose ids were not in the set; they are now."""
        return [record for record in records if self.add(record[0])]
