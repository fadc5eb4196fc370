"""What the stages and scripts of an operation hold, and give back at its end or leave to its cursor.

Made with the first sort, group or script, or by a getMore, with what the cursor has kept.
"""

from typing import Final

from mongottl.exec.running.operation_scripts import OperationScripts
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.temporary_files import OperationFiles
from mongottl.query.memory import OperationMemory


class OperationResources:
    """The resources of one operation. owner: whose limits in total count."""

    def __init__(self, service: ServiceContext, owner: str) -> None:
        self._service: Final = service
        self._owner: Final = owner
        self._memory: OperationMemory | None = None
        # The temporary files of its stages, once one may need some.
        self.files_used: OperationFiles | None = None
        # Set if something that it evaluates is in JavaScript.
        self.scripts: OperationScripts | None = None

    @property
    def memory(self) -> OperationMemory:
        """What the operation's sorts, groups and joins hold."""
        memory = self._memory
        if memory is None:
            memory = OperationMemory(self._service.operation_memory, self._owner)
            self._memory = memory
        return memory

    @property
    def files(self) -> OperationFiles:
        """Where its sorts and groups make temporary files."""
        files = self.files_used
        if files is None:
            files = OperationFiles(self._service.spill_space)
            self.files_used = files
        return files

    def take_over(self, memory: OperationMemory, files: OperationFiles | None) -> None:
        """Makes what the operation held that opened a cursor this operation's."""
        self._memory = memory
        self.files_used = files

    def end(self) -> None:
        """Gives back what is held; what a cursor has taken over stays with it."""
        if self.scripts is not None:
            self.scripts.end()
            self.scripts = None
        if self._memory is not None:
            self._memory.settle()
