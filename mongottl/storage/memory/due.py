"""Which entries of the expiry indexes a batch of records has: ordered pairs of a second and a record id.

The second stands as eight bytes that sort like the number.
"""

from typing import Final

# Added to seconds to make them unsigned, so that their bytes sort like the numbers. The sums are short integers in
# mypyc.
_SECOND_OFFSET: Final = 1 << 61
# Above the keys of all seconds.
END: Final = b"\xff" * 9


def second_key(second: int) -> bytes:
    return (second + _SECOND_OFFSET).to_bytes(8, "big")


def second_of(key: bytes) -> int:
    return int.from_bytes(key, "big") - _SECOND_OFFSET


def key_behind(second: int) -> bytes:
    """The lower bound of the keys of later seconds."""
    if second >= _SECOND_OFFSET - 1:
        return END
    if second < -_SECOND_OFFSET:
        return b""
    return second_key(second + 1)


class DueEntries:
    """The entries of a batch of records in both expiry indexes, collected to be inserted or removed together."""

    def __init__(self) -> None:
        self.default_keys: list[bytes] = []
        self.default_ids: list[int] = []
        self.own_keys: list[bytes] = []
        self.own_ids: list[int] = []
        # The second that was turned into a key last.
        self._second: int = 0
        self._key = b""

    def add(self, record_id: int, ts: int, ttl: int) -> None:
        if ttl < 0:
            return
        second = ts + ttl
        if second != self._second or not self._key:
            self._second = second
            self._key = second_key(second)
        if ttl == 0:
            self.default_keys.append(self._key)
            self.default_ids.append(record_id)
        else:
            self.own_keys.append(self._key)
            self.own_ids.append(record_id)

    def sort(self) -> None:
        """Sorts the entries, so that those of one block are inserted or removed together."""
        if len(self.own_keys) > 1:
            entries = sorted(zip(self.own_keys, self.own_ids, strict=True))
            self.own_keys = [key for key, _ in entries]
            self.own_ids = [record_id for _, record_id in entries]
