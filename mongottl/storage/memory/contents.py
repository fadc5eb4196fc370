"""What a store or sorted data holds, as a value that its object and saved states share.

    store ──────┐
                ├──► Contents (holders: 2)          right after saving or restoring
    saved state ┘

    store ─────────► its own, which it changes      after its first write: blocks are shared until they are changed
    saved state ───► Contents (holders: 1)

Saving and restoring are therefore a matter of references, whatever the number of records.
"""

from abc import ABC, abstractmethod
from typing import Final

# A store with at most these rows, and bytes of documents, is freed at once rather than by `StorageEngine.drop_some`.
SMALL_ROWS: Final = 1000
SMALL_BYTES: Final = 1 << 20


class Lifetime:
    """Whether contents are still held, for those that were forked from them. It does not keep them in memory."""

    def __init__(self) -> None:
        self.ended = False


class Contents(ABC):
    """holders: how many saved states have it, and one more for the store while it has not been changed since.

    lifetime: until the last holder releases it. origin: the lifetime of the contents that these were forked from; None
    if they were not, or if others were forked from these.
    """

    def __init__(self) -> None:
        self.holders: int = 0
        self.lifetime: Final = Lifetime()
        self.origin: Lifetime | None = None

    @abstractmethod
    def rows(self) -> int:
        """How many records or entries there are."""
        raise NotImplementedError

    @abstractmethod
    def size_bytes(self) -> int:
        """The size of the documents."""
        raise NotImplementedError

    @abstractmethod
    def drop(self, limit: int) -> bool:
        """Frees about `limit` rows, fewer if they are long, that nothing else has; whether there are more."""
        raise NotImplementedError

    @abstractmethod
    def leave_shared(self) -> None:
        """Keeps only the blocks that nothing else has. For contents without holders whose origin is held."""
        raise NotImplementedError

    def become_origin(self) -> Lifetime:
        """Before the store forks its own from these: the origin of what it forks."""
        self.origin = None
        return self.lifetime

    def leave_to_origin(self) -> None:
        """Lets go in one step of what the origin, if it is held, has as well: only the rest has to be freed in more."""
        origin = self.origin
        if origin is not None:
            self.origin = None
            if not origin.ended:
                self.leave_shared()

    def is_small(self) -> bool:
        """Whether freeing it is fast."""
        return self.rows() <= SMALL_ROWS and self.size_bytes() <= SMALL_BYTES
