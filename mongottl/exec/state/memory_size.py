"""How much memory this process may use."""

import os
from contextlib import suppress
from typing import Final

# Where a container's limit stands: version 2 of Linux' control groups, and version 1.
_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# Assumed where the system does not give its memory.
_UNKNOWN_BYTES: Final = 4 << 30


def available_memory_bytes() -> int:
    """The machine's memory, or the limit of the container."""
    sizes: list[int] = []
    with suppress(AttributeError, ValueError, OSError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMIT_FILES:
        try:
            with open(path, encoding="ascii") as file:
                sizes.append(int(file.read()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    known = [size for size in sizes if size > 0]
    return min(known) if known else _UNKNOWN_BYTES
