"""Commits in the log of a stopped server that SQLite passes over, because something before them is damaged.

    header │ frame 1 │ frame 2 │ … │ frame n │ frame n+1 │ … │ frame m
           └──── what SQLite reads ──────────┘ └ does not ┘

A frame is one page, and its checksum goes on from that of the frame before it. Where a checksum is wrong, SQLite takes
the log to end there: a process that was killed leaves the beginning of a transaction at its end. But it does not leave
whole commits of the same log after it. Those show that the log was damaged, or that a power failure has taken a part
of it that was not yet on disk.

Source: SQLite's file format, section 4 (the write-ahead log).
"""

import os
import struct
from typing import Final

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
# The lowest bit says that the words of the checksums are big-endian.
_MAGIC: Final = 0x377F0682
# In the place of salts, which have 8 bytes.
DAMAGED_HEADER: Final = b"damaged"


def commits_behind_damage(path: str, frames: int) -> int:
    """How many commits stand in a log after those that SQLite reads; -1 if it reads none, as the header is damaged.

    frames: how many SQLite reads.
    """
    # Unbuffered: of most frames only the head is read, so that a long log takes little time.
    with open(path, "rb", buffering=0) as log:
        size_bytes = os.fstat(log.fileno()).st_size
        head = log.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return 0
        magic, _, page_bytes, _, salt_1, salt_2, sum_1, sum_2 = _HEADER.unpack(head)
        order = ">" if magic & 1 else "<"
        if magic & ~1 != _MAGIC or _checksum(order, head[:24], 0, 0) != (sum_1, sum_2):
            return -1 if size_bytes > _HEADER.size else 0
        found = 0
        frame_bytes = _FRAME.size + page_bytes
        before = (sum_1, sum_2)
        for number in range(max(0, frames - 1), (size_bytes - _HEADER.size) // frame_bytes):
            log.seek(_HEADER.size + number * frame_bytes)
            frame = log.read(_FRAME.size)
            _, pages, own_1, own_2, sum_1, sum_2 = _FRAME.unpack(frame)
            # Only the last frame of a commit has a number of pages. One commit that is whole is proof.
            if number >= frames and pages > 0 and own_1 == salt_1 and own_2 == salt_2:
                whole = found > 0 or _checksum(order, frame[:8] + log.read(page_bytes), *before) == (sum_1, sum_2)
                found += whole
            before = (sum_1, sum_2)
    return found


def header_salts(path: str) -> bytes:
    """The salts in the header of a log, in which it differs from the next one; empty if there is no header,
    DAMAGED_HEADER if its checksum is wrong."""
    try:
        with open(path, "rb", buffering=0) as log:
            head = log.read(_HEADER.size)
    except FileNotFoundError:
        return b""
    if len(head) < _HEADER.size:
        return b""
    magic, _, _, _, _, _, sum_1, sum_2 = _HEADER.unpack(head)
    whole = magic & ~1 == _MAGIC and _checksum(">" if magic & 1 else "<", head[:24], 0, 0) == (sum_1, sum_2)
    return head[16:24] if whole else DAMAGED_HEADER


def _checksum(order: str, data: bytes, first: int, second: int) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for position in range(0, len(words), 2):
        first = (first + words[position] + second) & 0xFFFFFFFF
        second = (second + words[position + 1] + first) & 0xFFFFFFFF
    return first, second
