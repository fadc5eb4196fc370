"""CRC-32C (Castagnoli), the checksum of OP_MSG.

Drivers send checksums only if configured to, so a dependency with a binary wheel is not worth it: eight bytes in each
step from a table ("slicing by 8") are fast enough. The table is bytes that are read with `read_i64_le`, which compiles
to plain loads. Source of the algorithm's parameters: RFC 3720, appendix B.4.
"""

from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

_POLYNOMIAL: Final = 0x82F63B78  # 0x1EDC6F41, bits reversed


def _first_table() -> list[int]:
    """Entry b is the CRC of byte b, without the inversions at the begin and at the end."""
    table: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
        table.append(crc)
    return table


def _make_tables() -> bytes:
    """Eight tables of 256 int64: entry (k, b) is the CRC of byte b followed by k zero bytes."""
    first = _first_table()
    rows: list[list[int]] = [first]
    for k in range(1, 8):
        before = rows[k - 1]
        rows.append([(crc >> 8) ^ first[crc & 0xFF] for crc in before])
    return b"".join([crc.to_bytes(8, "little") for row in rows for crc in row])


def registers_before() -> bytes:
    """Four tables of 256 int64: entry (k, b) is what the register was before four zero bytes if afterwards it has byte
    b in its place k, and else zeros. It is also the four bytes that bring the register from 0 to there."""
    first = _first_table()
    # The highest bytes of the entries differ, so they identify the entry that a step has taken.
    taken = [0] * 256
    for byte, crc in enumerate(first):
        taken[crc >> 24] = byte
    registers: list[int] = []
    for k in range(4):
        for byte in range(256):
            register = byte << 8 * k
            for _ in range(4):
                low = taken[register >> 24]
                register = (register ^ first[low]) << 8 & 0xFFFFFFFF | low
            registers.append(register)
    return b"".join([register.to_bytes(8, "little") for register in registers])


# 16 KB. Entry (k, b) stands at offset k * 2048 + b * 8.
_TABLES: Final = _make_tables()


def crc32c(data: bytes) -> int:
    """The CRC-32C of `data`, 0 to 2**32 - 1."""
    return crc32c_of_part(data, 0, len(data), 0)


def crc32c_of_part(data: bytes, start: i64, end: i64, before: i64) -> int:
    """The CRC-32C of some bytes and `data[start:end]` after them. before: that of these bytes, 0 if there are none."""
    table = _TABLES
    crc: i64 = before ^ 0xFFFFFFFF
    pos: i64 = start
    while pos + 8 <= end:
        # The CRC goes into the low half of the next eight bytes; the sign of the int64 does no harm under the masks.
        word: i64 = read_i64_le(data, pos) ^ crc
        crc = (
            read_i64_le(table, 14336 + ((word & 0xFF) << 3))
            ^ read_i64_le(table, 12288 + (((word >> 8) & 0xFF) << 3))
            ^ read_i64_le(table, 10240 + (((word >> 16) & 0xFF) << 3))
            ^ read_i64_le(table, 8192 + (((word >> 24) & 0xFF) << 3))
            ^ read_i64_le(table, 6144 + (((word >> 32) & 0xFF) << 3))
            ^ read_i64_le(table, 4096 + (((word >> 40) & 0xFF) << 3))
            ^ read_i64_le(table, 2048 + (((word >> 48) & 0xFF) << 3))
            ^ read_i64_le(table, ((word >> 56) & 0xFF) << 3)
        )
        pos += 8
    while pos < end:
        byte: i64 = data[pos]
        crc = (crc >> 8) ^ read_i64_le(table, ((crc ^ byte) & 0xFF) << 3)
        pos += 1
    return int(crc ^ 0xFFFFFFFF)


def register_after(register: i64, word: i64) -> i64:
    """What the register is after eight more bytes, which are those of an int64, little-endian."""
    table = _TABLES
    mixed: i64 = word ^ register
    return (
        read_i64_le(table, 14336 + ((mixed & 0xFF) << 3))
        ^ read_i64_le(table, 12288 + (((mixed >> 8) & 0xFF) << 3))
        ^ read_i64_le(table, 10240 + (((mixed >> 16) & 0xFF) << 3))
        ^ read_i64_le(table, 8192 + (((mixed >> 24) & 0xFF) << 3))
        ^ read_i64_le(table, 6144 + (((mixed >> 32) & 0xFF) << 3))
        ^ read_i64_le(table, 4096 + (((mixed >> 40) & 0xFF) << 3))
        ^ read_i64_le(table, 2048 + (((mixed >> 48) & 0xFF) << 3))
        ^ read_i64_le(table, ((mixed >> 56) & 0xFF) << 3)
    )
