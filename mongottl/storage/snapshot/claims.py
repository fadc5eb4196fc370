"""Who writes what: the records and unique keys that open transactions have written. The first writer wins.

A transaction claims what it writes until it ends (`WriteSet.release`). Another transaction that wants to write the same
fails (SnapshotConflict); a plain write meets ClaimedByTransaction, waits until that transaction has ended, and tries
again.

    record store, or unique sorted data ──► one set for each transaction that has written there

So the claims of a transaction end with a few sets, however much it has written, and are freed in slices (`freeing`).
"""

from typing import Final, Generic, TypeVar

from mongottl.document.freeing import LONG, LongSet
from mongottl.storage.errors import ClaimedByTransaction, ClaimOwner, SnapshotConflict

T = TypeVar("T")


class _Claimed(Generic[T]):
    """What a transaction has claimed of one store: record ids, or keys."""

    def __init__(self, owner: ClaimOwner) -> None:
        self.owner: Final = owner
        self.members: set[T] = set()

    def add(self, member: T) -> None:
        self.members.add(member)
        if len(self.members) == LONG:
            self.members = LongSet(self.members)


class _Table(Generic[T]):
    """The claims of all open transactions, by the ident of the store. It has no empty list."""

    def __init__(self) -> None:
        self.by_ident: Final[dict[str, list[_Claimed[T]]]] = {}

    def owner(self, ident: str, member: T) -> ClaimOwner | None:
        for claimed in self.by_ident.get(ident, ()):
            if member in claimed.members:
                return claimed.owner
        return None

    def claim(self, ident: str, member: T, owner: ClaimOwner) -> bool:
        """False if another transaction has it."""
        found = self.by_ident.setdefault(ident, [])
        own: _Claimed[T] | None = None
        for claimed in found:
            if claimed.owner is owner:
                own = claimed
            elif member in claimed.members:
                return False
        if own is None:
            own = _Claimed(owner)
            found.append(own)
        own.add(member)
        return True

    def release(self, owner: ClaimOwner) -> None:
        for ident in list(self.by_ident):
            left = [claimed for claimed in self.by_ident[ident] if claimed.owner is not owner]
            if left:
                self.by_ident[ident] = left
            else:
                del self.by_ident[ident]


class Claims:
    """The claims of all open transactions. any: whether there are any."""

    def __init__(self) -> None:
        self.any = False
        self._records: Final[_Table[int]] = _Table()
        self._keys: Final[_Table[bytes]] = _Table()

    def record_owner(self, ident: str, record_id: int) -> ClaimOwner | None:
        """Who has written this record of a record store."""
        return self._records.owner(ident, record_id)

    def key_owner(self, ident: str, key: bytes) -> ClaimOwner | None:
        """Who has added or removed this key of a unique sorted data."""
        return self._keys.owner(ident, key)

    def count_records(self, ident: str) -> int:
        """How many records of a record store are claimed."""
        return sum([len(claimed.members) for claimed in self._records.by_ident.get(ident, ())])

    def claim_record(self, ident: str, record_id: int, owner: ClaimOwner) -> None:
        """SnapshotConflict if another transaction has the record."""
        if not self._records.claim(ident, record_id, owner):
            raise SnapshotConflict("another transaction has written the record")
        self.any = True

    def claim_key(self, ident: str, key: bytes, owner: ClaimOwner) -> None:
        """SnapshotConflict if another transaction has the key."""
        if not self._keys.claim(ident, key, owner):
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

    def release(self, owner: ClaimOwner) -> None:
        """Ends the claims of a transaction."""
        if self.any:
            self._records.release(owner)
            self._keys.release(owner)
            self.any = len(self._records.by_ident) > 0 or len(self._keys.by_ident) > 0
