"""A copy of the stored database, for the command mongottlBackup: made by another thread, read piece by piece.

The file lies in the data directory and loses its name as soon as it is complete. One that a killed server leaves is
removed by the next.
"""

import hashlib
import os
import threading
from typing import IO, Final

from mongottl.document.build import encode
from mongottl.document.types import BinData, Int64
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.cursors import Page, PageSource
from mongottl.storage.data_folder import COPY_PREFIX, DATABASE_NAME

# A piece of the file, and how many of them a reply has: other clients wait while it is read and sent.
_PIECE_BYTES: Final = 512 << 10
_PIECES: Final = 4
_DIGEST: Final = "sha256"


class DatabaseCopy:
    """The copy of a database, in a file without a name."""

    def __init__(self, op: OperationContext, folder: str) -> None:
        self._op = op
        self._folder = folder
        self.file: IO[bytes] | None = None
        self.size = 0
        self.digest = ""

    def make(self) -> None:
        """Makes the copy; on any thread. CommandError if it fails, or if the operation is to end."""
        path = os.path.join(self._folder, f"{COPY_PREFIX}{os.getpid()}-{id(self):x}")
        try:
            try:
                self._op.service.engine.copy_to(path, self._op.check_interrupt)
                self.file = open(path, "rb", buffering=0)  # noqa: SIM115  # `close` closes it
            finally:
                if os.path.exists(path):
                    os.unlink(path)
            self.size = os.fstat(self.file.fileno()).st_size
            self.digest = hashlib.file_digest(self.file, _DIGEST).hexdigest()
        except OSError as error:
            raise CommandError(ErrorCode.OutOfDiskSpace, f"the data cannot be copied: {error.strerror}") from error

    def close(self) -> None:
        """Closes the file, which takes long, since the system then frees what it occupies; so not on this thread."""
        if self.file is not None:
            threading.Thread(target=self.file.close, name="mongottl-copy").start()
            self.file = None


class DatabaseCopyPages(PageSource):
    """The description of a copy, and then its pieces in order."""

    def __init__(self, copy: DatabaseCopy) -> None:
        self._copy = copy
        self._offset = -1

    def fill(self, op: OperationContext, page: Page) -> bool:
        copy = self._copy
        if self._offset < 0:
            self._offset = 0
            page.add(encode({"file": DATABASE_NAME, "bytes": Int64(copy.size), _DIGEST: copy.digest}))
            return True
        if copy.file is None:
            return False
        copy.file.seek(self._offset)
        data = copy.file.read(_PIECE_BYTES)
        if not data:
            return False
        page.add(encode({"offset": Int64(self._offset), "data": BinData(data)}))
        self._offset += len(data)
        if page.count >= _PIECES:
            page.close()
        return self._offset < copy.size

    def close(self) -> None:
        self._copy.close()
