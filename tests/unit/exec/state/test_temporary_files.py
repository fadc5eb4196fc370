"""Temporary files: no directory entry, reads and writes at offsets, and the error when the disk is full."""

import io
import os
from pathlib import Path

import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.state.temporary_files import TemporaryFile, TemporaryFiles


def test_bytes_are_read_back_from_any_place(tmp_path: Path) -> None:
    file = TemporaryFiles(str(tmp_path)).create()
    assert [file.append(b"abc"), file.append(b""), file.append(b"defg")] == [0, 3, 3]
    assert file.read(1, 4) == b"bcde"
    assert file.append(b"h") == 7
    assert file.read(5, 100) == b"fgh"
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.append(b"x")


@pytest.mark.skipif(os.name != "posix", reason="elsewhere the file goes when it is closed")
def test_nothing_is_seen_in_the_folder(tmp_path: Path) -> None:
    file = TemporaryFiles(str(tmp_path)).create()
    file.append(b"x" * 100_000)
    assert list(tmp_path.iterdir()) == []
    file.close()


class FullDisk(io.RawIOBase):
    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        return place

    def write(self, data: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as refused:
        TemporaryFile(FullDisk()).append(b"x")  # type: ignore[arg-type]
    assert refused.value.code == ErrorCode.OutOfDiskSpace
    with pytest.raises(CommandError) as refused:
        TemporaryFiles(str(tmp_path / "gone")).create()
    assert refused.value.code == ErrorCode.OutOfDiskSpace
