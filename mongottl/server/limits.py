"""What the operating system allows a server's process.

Each connection takes a file descriptor. Many systems give a process 256 or 1,024 of them and let it have more for the
asking, so the command line asks; a server in a thread leaves its host process alone.
"""

from typing import Final

# Files that a server needs beside its connections: database, log, listeners, trio's own.
_OTHER_FILES: Final = 64


def raise_file_limit(connections: int) -> str | None:
    """Lets this process open as many files as so many connections take, or as many as it may.

    Gives what to warn of, or None.
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
    return f"the system allows {most} open files, so at most {max(0, most - _OTHER_FILES)} connections of {connections}"
