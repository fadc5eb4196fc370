"""What of the system's limit of open files is kept for which files.

    0 ─── connections, and all that there is besides ───┬─── and temporary files ───┬─── modules, scripts, … ─── limit
                                                   is_reserved                   is_last

The system gives the lowest free descriptor, so all below it are in use, by whatever in the process.
"""

from typing import Final

# Files that a server needs beside its connections: database, log, listeners, trio's own, and what is kept for sorts
# that use temporary files, for scripts, and for modules that are imported when a command is first used.
OTHER_FILES: Final = 64


def is_reserved(descriptor: int) -> bool:
    """Whether a connection with this file descriptor would take what the server keeps for its own files."""
    limit = _limit()
    return limit is not None and descriptor >= limit - min(OTHER_FILES, limit // 4)


def is_last(descriptor: int) -> bool:
    """Whether a temporary file with this descriptor would take what is kept for modules, scripts and the database."""
    limit = _limit()
    return limit is not None and descriptor >= limit - min(OTHER_FILES, limit // 4) // 2


def _limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None  # Windows has no such limit
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit in (-1, resource.RLIM_INFINITY) else limit
