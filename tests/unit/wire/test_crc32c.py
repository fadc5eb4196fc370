"""CRC-32C against published vectors."""

import pytest

from mongottl.wire.crc32c import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),  # the check value of every CRC catalogue
        # RFC 3720, appendix B.4.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (
            bytes.fromhex(
                "01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018"
                "28000000 00000000 02000000 00000000"
            ),
            0xD9963A56,
        ),
    ],
)
def test_vectors(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_every_remainder_of_eight() -> None:
    def bitwise(data: bytes) -> int:
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    data = bytes((n * 167 + 13) % 256 for n in range(40))
    for size in range(41):
        assert crc32c(data[:size]) == bitwise(data[:size])
