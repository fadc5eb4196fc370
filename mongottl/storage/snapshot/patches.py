"""Patches: a few records or index entries that differ from what a store has, in the order of the store."""

from bisect import bisect_left, insort
from typing import Any, Final

from mongottl.document.freeing import LONG, LongList, freed_in_slices, put_aside
from mongottl.storage.stores import KeyEntry, Record

# Ids of records that transactions have inserted begin here; an engine never comes so far.
FIRST_PROVISIONAL_ID: Final = 1 << 61
# From this number on new members are sorted into an order together: each alone moves all that come after it.
_TOGETHER: Final = 16


def _add_to_order(order: list[Any], members: dict[Any, Any]) -> None:
    """Adds the keys of `members`, none of which it has, to an ascending list."""
    if len(members) < _TOGETHER:
        for member in members:
            insort(order, member)
    else:
        order.extend(members)
        order.sort()


class RecordPatch:
    """Records by id that a view has instead of its base's. images: the record of an id, or None if the view has none.

    order: the ids, ascending.
    """

    def __init__(self) -> None:
        self.images: Final[dict[int, Record | None]] = {}
        self.order: Final[list[int]] = []

    def add(self, record_id: int, image: Record | None) -> None:
        """Sets the image of an id, which may have one."""
        if record_id not in self.images:
            insort(self.order, record_id)
        self.images[record_id] = image

    def add_all(self, images: dict[int, Record | None]) -> None:
        """Sets the images of ids that have none."""
        _add_to_order(self.order, images)
        self.images.update(images)

    def let_go(self) -> None:
        """Called when nobody uses it any more: what is long is freed in slices."""
        put_aside(self.order)
        put_aside(self.images)

    def leave(self) -> None:
        """`let_go` where a read that is under way may still use it."""
        freed_in_slices(self.order)
        if len(self.images) >= LONG:
            LongList(self.images.values())

    def discard(self, record_id: int) -> None:
        """Removes the image of an id that has one: the view then has what its base has."""
        del self.images[record_id]
        del self.order[bisect_left(self.order, record_id)]


class EntryPatch:
    """Index entries of which a view differs from its base. images: whether the view has the entry.

    order: the entries, ascending.
    """

    def __init__(self) -> None:
        self.images: Final[dict[KeyEntry, bool]] = {}
        self.order: Final[list[KeyEntry]] = []

    def add(self, entry: KeyEntry, present: bool) -> None:
        """Says whether the view has an entry."""
        if entry not in self.images:
            insort(self.order, entry)
        self.images[entry] = present

    def add_all(self, images: dict[KeyEntry, bool]) -> None:
        """Says of entries of which nothing is said yet whether the view has them."""
        _add_to_order(self.order, images)
        self.images.update(images)

    def let_go(self) -> None:
        """Called when nobody uses it any more: what is long is freed in slices."""
        put_aside(self.order)
        put_aside(self.images)

    def leave(self) -> None:
        """`let_go` where a read that is under way may still use it."""
        freed_in_slices(self.order)

    def discard(self, entry: KeyEntry) -> None:
        """Removes an entry from the patch: the view then has it if its base has it."""
        del self.images[entry]
        del self.order[bisect_left(self.order, entry)]
