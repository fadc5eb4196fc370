"""Who writes what: the records and unique keys that open transactions have written. The first writer wins.

A transaction claims what it writes until it ends (`WriteSet.release`). Another transaction that wants to write the same
fails (SnapshotConflict); a plain write meets ClaimedByTransaction, waits until that transaction has ended, and tries
again.
"""

from typing import Final

from mongottl.storage.interface import ClaimedByTransaction, ClaimOwner, SnapshotConflict


class Claims:
    """The claims of all open transactions. any: whether there are any."""

    def __init__(self) -> None:
        self.any = False
        self._records: Final[dict[str, dict[int, ClaimOwner]]] = {}
        self._keys: Final[dict[str, dict[bytes, ClaimOwner]]] = {}

    def record_owner(self, ident: str, record_id: int) -> ClaimOwner | None:
        """Who has written this record of a record store."""
        records = self._records.get(ident)
        return None if records is None else records.get(record_id)

    def key_owner(self, ident: str, key: bytes) -> ClaimOwner | None:
        """Who has added or removed this key of a unique sorted data."""
        keys = self._keys.get(ident)
        return None if keys is None else keys.get(key)

    def count_records(self, ident: str) -> int:
        """How many records of a record store are claimed."""
        records = self._records.get(ident)
        return 0 if records is None else len(records)

    def claim_record(self, ident: str, record_id: int, owner: ClaimOwner) -> None:
        """SnapshotConflict if another transaction has the record."""
        other = self._records.setdefault(ident, {}).setdefault(record_id, owner)
        if other is not owner:
            raise SnapshotConflict("another transaction has written the record")
        self.any = True

    def claim_key(self, ident: str, key: bytes, owner: ClaimOwner) -> None:
        """SnapshotConflict if another transaction has the key."""
        other = self._keys.setdefault(ident, {}).setdefault(key, owner)
        if other is not owner:
            raise SnapshotConflict("another transaction has written the unique key")
        self.any = True

    def check_record(self, ident: str, record_id: int) -> None:
        """ClaimedByTransaction if a transaction has the record: for a plain write of it."""
        owner = self.record_owner(ident, record_id)
        if owner is not None:
            raise ClaimedByTransaction(owner)

    def check_key(self, ident: str, key: bytes) -> None:
        """ClaimedByTransaction if a transaction has the key: for a plain write of it."""
        owner = self.key_owner(ident, key)
        if owner is not None:
            raise ClaimedByTransaction(owner)

    def release(self, owner: ClaimOwner, records: list[tuple[str, int]], keys: list[tuple[str, bytes]]) -> None:
        """Ends these claims of a transaction."""
        for ident, record_id in records:
            held = self._records[ident]
            if held.get(record_id) is owner:
                del held[record_id]
            if not held:
                del self._records[ident]
        for ident, key in keys:
            held_keys = self._keys[ident]
            if held_keys.get(key) is owner:
                del held_keys[key]
            if not held_keys:
                del self._keys[ident]
        self.any = len(self._records) > 0 or len(self._keys) > 0
