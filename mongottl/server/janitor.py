"""The janitor: every minute it closes cursors and forgets sessions that nobody has used for too long, and aborts
transactions that have outlived their time."""

from typing import Final

import trio

from mongottl.document.freeing import free_some
from mongottl.exec.operation.transaction_unit import abort_expired
from mongottl.exec.service.service import ServiceContext
from mongottl.server.log import Log

JANITOR_INTERVAL_S: Final = 60.0
PROCESSES_INTERVAL_S: Final = 5.0


async def run_janitor(service: ServiceContext, log: Log) -> None:
    """Runs for as long as the server does; writes what the log could not write before, too."""
    while True:
        await trio.sleep(JANITOR_INTERVAL_S)
        abort_expired(service)
        while service.close_idle():
            await trio.lowlevel.checkpoint()
        while free_some():  # what no operation has let go
            await trio.lowlevel.checkpoint()
        log.drain()


async def run_process_janitor(service: ServiceContext) -> None:
    """Ends idle processes of scripts and searches, for as long as the server runs."""
    while True:
        await trio.sleep(PROCESSES_INTERVAL_S)
        service.processes.end_idle()
