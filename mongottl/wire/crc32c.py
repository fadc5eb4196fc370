"""CRC-32C (Castagnoli), the checksum of OP_MSG.

Drivers send checksums only if configured to, so a dependency with a binary wheel is not worth it: eight bytes in each
step from a table ("slicing by 8") are fast enough. The table is bytes that are read with `read_i64_le`, which compiles
to plain loads. Source of the algorithm's parameters: RFC 3720, appendix B.4.
"""

from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

_POLYNOMIAL: Final = 0x82F63B78  # 0x1EDC6F41, bits reversed


def _make_tables() -> bytes:
    """Eight tables of 256 int64: entry (k, b) is the CRC of byte b followed by k zero bytes."""
    rows: list[list[int]] = []
    first: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
        first.append(crc)
    rows.append(first)
    for k in range(1, 8):
        before = rows[k - 1]
        rows.append([(crc >> 8) ^ first[crc & 0xFF] for crc in before])
    return b"".join([crc.to_bytes(8, "little") for row in rows for crc in row])


# 16 KB. Entry (k, b) stands at offset k * 2048 + b * 8.
_TABLES: Final = _make_tables()


def crc32c(data: bytes) -> int:
    """The CRC-32C of `data`, 0 to 2**32 - 1."""
    return crc32c_of_part(data, 0, len(data), 0)


def crc32c_of_part(data: bytes, start: i64, end: i64, before: i64) -> int:
    """The CRC-32C of some bytes and `data[start:end]` behind them. before: that of these bytes, 0 if there are none."""
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
