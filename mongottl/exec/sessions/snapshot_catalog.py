"""The catalog as a snapshot sees it: without what was changed after it."""

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.errors import CommandError, ErrorCode


class SnapshotCatalog(Catalog):
    """Lookups for a snapshot. version: of the catalog when the snapshot was taken. changed: the names of what has
    changed between the snapshot and that version, where another server has taken it.

    SnapshotUnavailable (246) for a collection that was created, dropped, renamed or indexed after it.
    """

    def __init__(self, shared: Catalog, version: int, changed: frozenset[str] = frozenset()) -> None:
        self.share(shared)
        self.shared = shared
        self.snapshot_version = version
        self._changed_names = changed

    def find(self, database: str, name: str) -> Collection | View | None:
        found = super().find(database, name)
        if self._changed_names and f"{database}.{name}" in self._changed_names:
            raise _unavailable()
        if isinstance(found, Collection):
            if found.changed_at > self.snapshot_version:
                raise _unavailable()
        elif found is None and self.was_dropped_since(f"{database}.{name}", self.snapshot_version):
            raise _unavailable()
        return found


def _unavailable() -> CommandError:
    return CommandError(
        ErrorCode.SnapshotUnavailable,
        "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation.",
    )
