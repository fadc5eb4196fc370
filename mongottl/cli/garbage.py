"""Python's garbage collector in the process of a server.

Only the server runs in this process, so its collector may be configured. It examines what is new often, as ever. In a
full collection it examines all objects there are, a million of them for a tenth of a second in which nobody gets an
answer: that is done while nobody asks for anything. What has no reference any more is freed at once in any case; only
cycles wait for it, which few errors and tasks leave.

By itself Python examines what is new when it has allocated some thousands of objects more than it has freed. Where new
ones take the place of old ones (an update of records, the merge of a sort), that number stays as it is, however many
are new, and then it examines all of them at once: half a second for a million. So operations that take long have them
examined every few milliseconds, and short requests after some hundreds (`NewObjects`).
"""

import gc
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from mongottl.server.server import Server

# Objects allocated, and collections of the younger generation, before a collection. The second one examines 15,000
# objects, which takes two to fifteen milliseconds (50,000 took 30 to 45, and no less in all); with a million others
# would wait for a tenth of a second. Batches of records are to fit the first: with 1,000 an update of many documents
# took 1.4 % more instructions. The last one is for a server that is never idle: 10^10 objects.
_THRESHOLDS: Final = (5_000, 1, 1_000_000)
# After how many of the second one a full one is due: 10^7 objects that were not freed at once.
DUE_AFTER: Final = 1_000
# How long nobody asks for anything before it, in seconds.
IDLE_S: Final = 5.0


def configure() -> None:
    """Begins to collect. Imported modules are never freed, so the collector need not examine them. With fewer
    collections a `$group` over 400,000 documents takes half the CPU, and other clients wait 20 ms instead of 135."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_THRESHOLDS)


class NewObjects:
    """Collections of the younger generations that do not wait for Python's thresholds.

    collections: how many of the second one there were. allocated: objects before them that were not freed at once.
    """

    def __init__(self) -> None:
        self.collections = 0
        self.allocated = 0

    def examine(self) -> None:
        """Makes one of the generation whose turn it is, as Python does."""
        allocated, first_ones, _ = gc.get_count()
        self.allocated += allocated
        if first_ones > _THRESHOLDS[1]:
            self.collections += 1
            gc.collect(1)
        else:
            gc.collect(0)


class FullCollections:
    """Full collections that are made while nobody asks for anything.

    new: the collections that are made besides Python's own.
    """

    def __init__(self, due_after: int = DUE_AFTER, new: NewObjects | None = None) -> None:
        self._due_after: Final = due_after
        self._new: Final = NewObjects() if new is None else new
        self._begun_at = self._collections()
        self._requests = -1

    def look(self, requests: int, is_busy: bool) -> bool:
        """Makes one if it is due, there was no request since the last look, and none is under way; whether it did.

        requests: how many there were since the server has started.
        """
        is_idle = not is_busy and requests == self._requests
        self._requests = requests
        if not is_idle or self._collections() - self._begun_at < self._due_after:
            return False
        gc.collect()
        self._begun_at = self._collections()
        return True

    def _collections(self) -> int:
        """How many collections of the second generation there would have been if Python alone had made them."""
        made = int(gc.get_stats()[1]["collections"])
        return made - self._new.collections + self._new.allocated // (3 * _THRESHOLDS[0])


async def collect_garbage(server: "Server") -> None:
    """Has new objects examined, and makes full collections, for as long as the server runs."""
    service = server.service
    new = NewObjects()
    service.stacks.examine_new = new.examine
    collections = FullCollections(new=new)
    while True:
        await trio.sleep(IDLE_S)
        is_busy = any(running.reads_data for running in service.operations.all())
        collections.look(service.metrics.requests, is_busy)
