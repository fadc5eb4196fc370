"""The operating system's limit of open files.

Each connection takes a file descriptor. On many systems a process begins with a limit of 256 or 1,024 of them, which it
may raise. The command line does so; a server in a thread does not change the process that it runs in.
"""

from mongottl.exec.state.open_files import OTHER_FILES


def raise_file_limit(connections: int) -> str | None:
    """Raises RLIMIT_NOFILE to what `connections` need, at most to the hard limit.

    The text of a warning if that is not enough for them, else None.
    """
    try:
        import resource
    except ImportError:
        return None  # Windows has no such limit
    wanted = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= wanted:
        return None
    most = wanted if hard in (-1, resource.RLIM_INFINITY) else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        most = soft  # macOS refuses more than a limit that it does not show
    if most >= wanted:
        return None
    spare = most - OTHER_FILES
    follows = f"at most {spare} connections are accepted" if spare > 0 else "perhaps no connection is accepted"
    return (
        f"the system allows {most} open files, so {follows}: {connections} connections (--max-connections) and the"
        f" server's own files need {wanted} (ulimit -n {wanted})"
    )
