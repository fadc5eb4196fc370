"""Processes that tests start, which end with the test whatever happens in it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import AnyStr


@contextmanager
def ended_after(process: subprocess.Popen[AnyStr], group: bool = False) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kills the process at the end of the block, if it still runs then, and closes its pipes.

    A `with` of the process alone waits for it, without an end where the block has failed. group: whether the process
    leads a group (`start_new_session`), of which nothing may be left.
    """
    try:
        yield process
    finally:
        if group:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with process:
            process.kill()
