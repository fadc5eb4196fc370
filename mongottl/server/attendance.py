"""Renews this server's place among those that have its store open, as long as it runs (`storage.nodes`)."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from mongottl.exec.operation.refreshing import clear_up
from mongottl.exec.service.service import ServiceContext
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.nodes import StoreNodes

# Seconds between two looks at what servers have left that are dead.
CLEAR_UP_EVERY_S: Final = 2.0
# Seconds between two looks whether the store answers.
WATCH_EVERY_S: Final = 0.25


class Attendance:
    """run_operation: runs a function that may wait for the store."""

    def __init__(
        self,
        nodes: StoreNodes,
        service: ServiceContext,
        run_operation: Callable[[Callable[[], bool]], Awaitable[bool]],
    ) -> None:
        self._nodes: Final = nodes
        self._service: Final = service
        self._run_operation: Final = run_operation

    async def run(self) -> None:
        while True:
            await self._run_operation(self._attend)

    def _attend(self) -> bool:
        self._nodes.attend()
        return True

    async def run_watch(self) -> None:
        """Looks for the store at its other hosts while it does not answer."""
        while True:
            await trio.sleep(WATCH_EVERY_S)
            if self._nodes.is_unheard:
                await self._run_operation(self._look_elsewhere)

    def _look_elsewhere(self) -> bool:
        self._nodes.look_elsewhere()
        return True

    async def run_duties(self) -> None:
        """Does what one server does for all, as long as this is the one; any server for what it has left itself."""
        while True:
            await trio.sleep(CLEAR_UP_EVERY_S)
            service = self._service
            if self._nodes.has_duties or service.exclusive or service.left_indexes:
                await self._run_operation(self._clear_up)

    def _clear_up(self) -> bool:
        with suppress(EngineUnavailable):
            clear_up(self._service)
        return True
