"""The operating system's limit of open files.

Each connection takes a file descriptor. On many systems a process begins with a limit of 256 or 1,024 of them, which it
may raise. The command line does so; a server in a thread does not change the process that it runs in.
"""

from typing import Final

# Files that a server needs beside its connections: database, log, listeners, trio's own, and what is kept for sorts
# that use temporary files, for scripts, and for modules that are imported when a command is first used.
_OTHER_FILES: Final = 64


def is_reserved(descriptor: int) -> bool:
    """Whether a connection with this file descriptor would take what the server keeps for its own files.

    The system gives the lowest free descriptor, so all below it are in use, by whatever in the process.
    """
    try:
        import resource
    except ImportError:
        return False
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit in (-1, resource.RLIM_INFINITY):
        return False
    return descriptor >= limit - min(_OTHER_FILES, limit // 4)


def raise_file_limit(connections: int) -> str | None:
    """Raises the limit of open files as far as `connections` need it, or as far as it may be raised.

    The text of a warning if that is not enough for them, else None.
    """
    try:
        import resource
    except ImportError:
        return None  # Windows has no such limit
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= wanted:
        return None
    most = wanted if hard in (-1, resource.RLIM_INFINITY) else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        most = soft  # macOS refuses more than a limit that it does not tell
    if most >= wanted:
        return None
    spare = most - _OTHER_FILES
    follows = f"at most {spare} connections are accepted" if spare > 0 else "perhaps no connection is accepted"
    return (
        f"the system allows {most} open files, so {follows}: {connections} connections (--max-connections) and the"
        f" server's own files need {wanted} (ulimit -n {wanted})"
    )
