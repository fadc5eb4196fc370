"""The block on writes of users, which setUserWriteBlockMode sets and a migration tool needs while it copies.

It is stored with the data, as MongoDB stores it in `config.user_writes_critical_sections`. TTL deletion goes on.
"""

from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.namespace import SYSTEM_DATABASES
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode

# Where the catalog has it.
_ENTRY: Final = "userWriteBlock"
# Why writes may be blocked; the first is the default.
REASONS: Final = ("Unspecified", "ClusterToClusterMigrationInProgress", "DiskUseThresholdExceeded")


class UserWriteBlock:
    """reason: one of REASONS while writes are blocked, else None."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.reason: str | None = None
        self.reload()

    def reload(self) -> None:
        """Reads what is stored: at the start, and after a saved state was restored."""
        stored = self._catalog.server_entry(_ENTRY)
        reason = None if stored is None else get_value(stored, "reason")
        self.reason = reason if isinstance(reason, str) else None

    def set(self, enabled: bool, reason: str) -> None:
        """Blocks writes, or allows them again. IllegalOperation (20) if they are blocked for another reason."""
        with Undivided():
            self._set(enabled, reason)

    def _set(self, enabled: bool, reason: str) -> None:
        if self.reason is not None and self.reason != reason:
            doing = "acquire" if enabled else "release"
            raise CommandError(
                ErrorCode.IllegalOperation,
                f"Cannot {doing} user writes critical section with different reason than the already-set reason:"
                f" {self.reason}",
            )
        wanted = reason if enabled else None
        if wanted != self.reason:
            self._catalog.save_server_entry(_ENTRY, encode({"reason": wanted}))
            self.reason = wanted

    def blocks(self, database: str) -> bool:
        """Whether writes are blocked in a database."""
        return self.reason is not None and database not in SYSTEM_DATABASES

    def refusal(self) -> CommandError:
        """UserWritesBlocked (371)."""
        return CommandError(ErrorCode.UserWritesBlocked, "User writes blocked")
