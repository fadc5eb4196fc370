"""The catalog as a snapshot sees it: without what was changed after it."""

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.errors import CommandError, ErrorCode


class SnapshotCatalog(Catalog):
    """Lookups for a snapshot. version: of the catalog when the snapshot was taken.

    SnapshotUnavailable (246) for a collection that was created, dropped, renamed or indexed after it.
    """

    def __init__(self, shared: Catalog, version: int) -> None:
        self.share(shared)
        self.shared = shared
        self.snapshot_version = version

    def find(self, database: str, name: str) -> Collection | View | None:
        found = super().find(database, name)
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
