"""Renews this server's place among those that have its store open, as long as it runs (`storage.nodes`)."""

from collections.abc import Awaitable, Callable
from typing import Final

from mongottl.storage.nodes import StoreNodes


class Attendance:
    """run_operation: runs a function that may wait for the store."""

    def __init__(self, nodes: StoreNodes, run_operation: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
        self._nodes: Final = nodes
        self._run_operation: Final = run_operation

    async def run(self) -> None:
        while True:
            await self._run_operation(self._attend)

    def _attend(self) -> bool:
        self._nodes.attend()
        return True
