"""How many documents the writes of one operation have matched and changed, for the profiler."""

from mongottl.catalog.change_kinds import INSERT, UPDATE
from mongottl.oplog.change import Change


class WrittenCounts:
    """matched: the documents that updates have found. inserted, deleted, and modified: those that were changed, without
    the ones of which an update has renewed only `_ts`."""

    def __init__(self) -> None:
        self.matched: int = 0
        self.inserted: int = 0
        self.modified: int = 0
        self.deleted: int = 0

    @property
    def any(self) -> bool:
        return self.matched + self.inserted + self.deleted > 0

    def taken(self) -> "WrittenCounts":
        """What was counted so far; it counts anew."""
        taken = WrittenCounts()
        taken.matched, taken.inserted, taken.modified, taken.deleted = (
            self.matched,
            self.inserted,
            self.modified,
            self.deleted,
        )
        self.matched = self.inserted = self.modified = self.deleted = 0
        return taken

    def add(self, changes: list[Change]) -> None:
        """Counts what the statement of a unit of work has changed: neither what it displaces, nor what it purges."""
        if not changes or changes[0].expired:
            return
        change = changes[0]
        if change.kind == INSERT:
            self.inserted += len(change.rows)
        elif change.kind == UPDATE:
            for index, document in enumerate(change.before):
                if document != change.rows[index][0]:
                    self.modified += 1
        else:
            self.deleted += len(change.before)
