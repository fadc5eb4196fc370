"""Writing a backup: a new data directory that a server can be started with, whole or not there at all."""

import os
import shutil
import tempfile
from types import TracebackType
from typing import NamedTuple

from mongottl.storage.data_folder import DATABASE_NAME, sync_directory
from mongottl.storage.opening import folder_uri, open_stored_data


class BackupError(OSError):
    """The backup cannot be written. The text says why."""


class BackupTarget:
    """The folder of a backup while it is written, under another name beside its place; at the end of the block it gets
    its own name, or is removed after an error.

    path: of the database in it. BackupError if there is something in its place already, or if it cannot be made.
    """

    def __init__(self, target: str) -> None:
        self._target = os.path.abspath(target)
        if os.path.lexists(self._target):
            raise BackupError(f"{target} exists already")
        parent, name = os.path.split(self._target)
        try:
            self._partial = tempfile.mkdtemp(".partial", f"{name}.", parent)
        except OSError as error:
            raise BackupError(f"{target} cannot be made: {error.strerror}") from error
        self.path = os.path.join(self._partial, DATABASE_NAME)

    def __enter__(self) -> "BackupTarget":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._publish()
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)

    def _publish(self) -> None:
        # An empty folder, which a rename would replace, may have been made meanwhile, too.
        if os.path.lexists(self._target):
            raise BackupError(f"{self._target} exists already")
        try:
            sync_directory(self._partial)
            os.rename(self._partial, self._target)
            sync_directory(os.path.dirname(self._target))
        except OSError as error:
            raise BackupError(f"{self._target} cannot be made: {error.strerror}") from error


class FolderCopy(NamedTuple):
    """A copy of a data directory. lost: why it lacks commits that stand in the directory's log, or nothing."""

    size_bytes: int
    lost: list[str]


def back_up_folder(folder: str, target: str) -> FolderCopy:
    """Copies those files of a stopped server's data directory that its start would read.

    DataDirectoryError, EngineUnavailable or BackupError if it cannot be done.
    """
    with BackupTarget(target) as backup:
        state = open_stored_data(folder_uri(folder))
        try:
            state.copy_to(backup.path)
            lost = list(state.log_faults())
        finally:
            state.close()
        return FolderCopy(os.path.getsize(backup.path), lost)
