"""What of the commits is known to be on disk, noted beside the database: so that a log that was cut is noticed.

A log that ends early looks like one that was never longer: SQLite reads it up to the last commit that is whole. So each
flush that has succeeded notes the length of the log that it covers, and the last row that these commits have added to a
log of the engine (`SqliteLog`, the oplog). The note itself is not waited for, but for every 64th: after a power failure
it may be older, and then says less, never too much.

    mongottl.durable    magic │ salts of the log │ frames │ id of the row's store │ its record id │ checksum, 40 bytes

The salts are those of the log's header, which SQLite changes when it begins the log anew.

    the log has these salts, and as many frames    all is there
    it has these salts, and fewer frames           it was cut or damaged: no program makes a log shorter otherwise
    it has others, no header, or there is none     the database has the row, or a later one: all is there, as after a
                                                   program that has copied the log to the database, and removed it or
                                                   begun it anew. It does not: the log was removed, or is damaged

The rows show it, since commits reach the database in their order. Where no row is noted, only a header that is damaged
shows a loss. So a note may be of an earlier log, as it is from when the log begins anew until the next flush. A
server that stops removes the file before the log.

Source: SQLite's file formats, of the log (section 4), and of the header of its index (walformat.html, section 2.1).
"""

import os
import struct
import sys
from contextlib import suppress
from typing import Final, NamedTuple

from mongottl.storage.checksums import crc32c_after
from mongottl.storage.data_folder import sync_directory, sync_file
from mongottl.storage.sqlite.stored_log import DAMAGED_HEADER, header_salts

_NOTE: Final = struct.Struct("<8s8sIqqI")
_MAGIC: Final = b"mttldur1"
_NOTES_PER_SYNC: Final = 64
# Of the header of the log's index, which stands there twice: its length, and the places of two of its fields.
_HEADER_BYTES: Final = 48
_FRAMES_AT: Final = 16
_SALTS_AT: Final = 32
_ATTEMPTS: Final = 8


class LogLength(NamedTuple):
    """A length of a log. salts: which log."""

    salts: bytes
    frames: int


# The ids of a log of the engine and of a record in it: later commits have later places.
Place = tuple[int, int]
NO_PLACE: Final = (0, 0)


class DurableState(NamedTuple):
    """What is on disk. place: of the last row of a log; NO_PLACE if there is none."""

    salts: bytes
    frames: int
    place: Place


def committed_length(shm_file: int) -> LogLength | None:
    """The length of all commits so far, from the log's index; None if it cannot be read while another thread writes.

    Not on Windows.
    """
    if sys.platform == "win32":
        return None
    for _ in range(_ATTEMPTS):
        header = os.pread(shm_file, 2 * _HEADER_BYTES, 0)
        if len(header) == 2 * _HEADER_BYTES and header[:_HEADER_BYTES] == header[_HEADER_BYTES:]:
            frames = int.from_bytes(header[_FRAMES_AT : _FRAMES_AT + 4], sys.byteorder)
            return LogLength(header[_SALTS_AT : _SALTS_AT + 8], frames)
    return None


class DurableLog:
    """The note of one data directory. path: of its file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._notes = 0

    def note(self, length: LogLength, place: Place | None) -> None:
        """Notes what is on disk. An error of the disk leaves the last note, which then says less.

        place: of a row that is within this length; None if there is none.
        """
        begun = _NOTE.pack(_MAGIC, length.salts, length.frames, *(place or NO_PLACE), 0)[:-4]
        note = begun + crc32c_after(0, begun).to_bytes(4, "little")
        with suppress(OSError):
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            os.pwrite(self._file, note, 0)
            self._notes += 1
            if self._notes % _NOTES_PER_SYNC == 1:
                sync_file(self._file)

    def forget(self) -> None:
        """Removes the note without waiting for the disk: a power failure may bring it back. OSError."""
        self.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def remove(self) -> None:
        """To be called before the log is removed; waits until the note is gone from the disk, too. OSError."""
        if os.path.exists(self._path):
            self.forget()
            sync_directory(os.path.dirname(self._path))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def noted_state(path: str) -> DurableState | None:
    """What the last flush has noted; None if there is no note, or none that can be read. OSError."""
    try:
        with open(path, "rb") as file:
            note = file.read(_NOTE.size + 1)
    except FileNotFoundError:
        return None
    if len(note) != _NOTE.size:
        return None
    magic, salts, frames, store_id, record_id, found = _NOTE.unpack(note)
    if magic != _MAGIC or crc32c_after(0, note[:-4]) != found:
        return None
    return DurableState(salts, frames, (store_id, record_id))


def loss(noted: DurableState, wal_path: str, frames: int, newest: Place) -> str:
    """Describes what is missing of a log of which more was on disk; empty if nothing is known to be
    missing. OSError.

    frames: how many SQLite reads. newest: the place of the last row of a log in the database, as SQLite reads it.
    """
    salts = header_salts(wal_path)
    if salts == noted.salts:
        return f"its last {noted.frames - frames} pages are missing" if frames < noted.frames else ""
    if noted.place == NO_PLACE:
        return "its header is damaged" if salts == DAMAGED_HEADER else ""
    if newest >= noted.place:
        return ""
    if salts == DAMAGED_HEADER:
        return "its header is damaged"
    return "it was replaced by another" if salts else "it was removed or emptied"
