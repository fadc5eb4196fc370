"""The compressors of OP_COMPRESSED: zlib always, snappy and zstd when `python-snappy` and `zstandard` are installed.

The two packages are imported when a client first asks for them, never at start-up. Decompression is given the exact
size and never makes more than that, whatever size the data declares.
"""

import functools
import importlib
import zlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, TypeAlias

from mongottl.errors import ProtocolError
from mongottl.wire.messages import COMPRESSOR_NOOP, COMPRESSOR_SNAPPY, COMPRESSOR_ZLIB, COMPRESSOR_ZSTD

# The names that `hello` negotiates with, in mongod's default order.
COMPRESSOR_NAMES: Final = ("snappy", "zstd", "zlib")

_NAMES_BY_ID: Final[dict[int, str]] = {
    COMPRESSOR_NOOP: "noop",
    COMPRESSOR_SNAPPY: "snappy",
    COMPRESSOR_ZLIB: "zlib",
    COMPRESSOR_ZSTD: "zstd",
}

# What is decompressed: other than bytes where it is too long to be copied.
Data: TypeAlias = bytes | memoryview
# Of this size in bytes are the parts of what is decompressed in parts, and those that zlib is given.
PART_BYTES: Final = 256 * 1024
_INPUT_BYTES: Final = 64 * 1024

# A snappy element of three bytes copies at most 64, so honest data never grows more than 22 times.
_SNAPPY_MAX_RATIO: Final = 22


@functools.cache
def _load(package: str) -> ModuleType | None:
    """The optional package, imported on first use; None when it is not installed or does not load."""
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def _required(compressor: int, package: str) -> ModuleType:
    module = _load(package)
    if module is None:
        raise ProtocolError(f"OP_COMPRESSED: compressor {compressor_name(compressor)} is not available here")
    return module


def is_available(name: str) -> bool:
    """Whether messages can be compressed with `name` ("zlib", "snappy", "zstd"); imports its package."""
    if name == "zlib":
        return True
    if name == "snappy":
        return _load("snappy") is not None
    return name == "zstd" and _load("zstandard") is not None


def negotiate_compression(offered: Sequence[str], enabled: Sequence[str] = COMPRESSOR_NAMES) -> list[str]:
    """The `compression` list of the `hello` reply: the compressors in `offered`, in its order, that are installed and
    enabled.

    offered: the request's `compression` list; unknown names and repetitions are ignored, as in mongod.
    """
    chosen: list[str] = []
    for name in offered:
        if name in enabled and name not in chosen and is_available(name):
            chosen.append(name)
    return chosen


def compressor_name(compressor: int) -> str:
    """`zlib` for 2; `unknown compressor 9` for an id that the protocol does not know."""
    return _NAMES_BY_ID.get(compressor, f"unknown compressor {compressor}")


def compress(compressor: int, data: bytes) -> bytes:
    """`data` compressed. ProtocolError when the compressor is unknown or not installed."""
    if compressor == COMPRESSOR_ZLIB:
        return zlib.compress(data)
    if compressor == COMPRESSOR_SNAPPY:
        snappy = _required(compressor, "snappy")
        packed: bytes = snappy.compress(data)
        return packed
    if compressor == COMPRESSOR_ZSTD:
        zstandard = _required(compressor, "zstandard")
        compressed: bytes = zstandard.ZstdCompressor().compress(data)
        return compressed
    if compressor == COMPRESSOR_NOOP:
        return data
    raise ProtocolError(f"OP_COMPRESSED: {compressor_name(compressor)}")


def decompress(compressor: int, data: bytes, size: int) -> bytes:
    """`data` decompressed to exactly `size` bytes, which the caller has checked against the message limit.

    ProtocolError when the data is damaged, gives fewer or more bytes, has bytes after it, or when the compressor is
    unknown or not installed.
    """
    if compressor == COMPRESSOR_ZLIB:
        result = _inflate(data, size)
    elif compressor == COMPRESSOR_SNAPPY:
        result = _unsnap(_required(compressor, "snappy"), data, size)
    elif compressor == COMPRESSOR_ZSTD:
        result = _unzstd(_required(compressor, "zstandard"), data, size)
    elif compressor == COMPRESSOR_NOOP:
        result = data
    else:
        raise ProtocolError(f"OP_COMPRESSED: {compressor_name(compressor)}")
    if len(result) != size:
        raise _size_mismatch(compressor, size)
    return result


def decompress_in_parts(compressor: int, data: Data, size: int) -> list[bytes | memoryview]:
    """`decompress`, in parts, whose data need not be contiguous and is never copied while other threads must wait: the
    libraries let them run."""
    if compressor == COMPRESSOR_ZLIB:
        return _inflate_in_parts(data, size)
    if compressor == COMPRESSOR_SNAPPY:
        return [memoryview(_unsnap_in_place(data, size))]
    if compressor == COMPRESSOR_ZSTD:
        return [_unzstd(_required(compressor, "zstandard"), data, size)]
    return [decompress(compressor, bytes(data), size)]


def _size_mismatch(compressor: int, size: int) -> ProtocolError:
    return ProtocolError(
        f"OP_COMPRESSED: {compressor_name(compressor)} data does not decompress to the uncompressedSize {size}"
    )


def _damaged(compressor: int, error: Exception) -> ProtocolError:
    return ProtocolError(f"OP_COMPRESSED: damaged {compressor_name(compressor)} data: {error}")


def _inflate(data: bytes, size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than expected: then either zlib reaches the end of the stream, or the data is longer than
        # declared.
        result = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise _damaged(COMPRESSOR_ZLIB, error) from None
    if not stream.eof or stream.unused_data:
        raise _size_mismatch(COMPRESSOR_ZLIB, size)
    return result


def _inflate_in_parts(data: Data, size: int) -> list[bytes | memoryview]:
    """`_inflate` in parts of PART_BYTES at most: those of a whole are joined by zlib, which takes as long again."""
    stream = zlib.decompressobj()
    parts: list[bytes | memoryview] = []
    left = size + 1
    try:
        for at in range(0, len(data), _INPUT_BYTES):
            input = bytes(data[at : at + _INPUT_BYTES])
            while input and left and not stream.eof:
                part = stream.decompress(input, min(left, PART_BYTES))
                input = stream.unconsumed_tail
                left -= len(part)
                parts.append(part)
            if input or stream.unused_data or not left:
                raise _size_mismatch(COMPRESSOR_ZLIB, size)
    except zlib.error as error:
        raise _damaged(COMPRESSOR_ZLIB, error) from None
    if not stream.eof or left != 1:
        raise _size_mismatch(COMPRESSOR_ZLIB, size)
    return parts


def _unsnap_in_place(data: Data, size: int) -> Any:
    """`_unsnap` without its last copy, which python-snappy makes, if that is built on cramjam as it is since 0.7."""
    snappy = _required(COMPRESSOR_SNAPPY, "snappy")
    cramjam = _load("cramjam")
    if cramjam is None:
        return _unsnap(snappy, bytes(data), size)
    _check_snappy_size(data, size)
    try:
        result = cramjam.snappy.decompress_raw(data)
    except cramjam.DecompressionError as error:
        raise _damaged(COMPRESSOR_SNAPPY, error) from None
    return result


def _check_snappy_size(data: Data, size: int) -> None:
    # Snappy data begins with its own size (a varint), and the library reserves that much: check it first.
    if _snappy_size(bytes(data[:5])) != size or size > _SNAPPY_MAX_RATIO * len(data):
        raise _size_mismatch(COMPRESSOR_SNAPPY, size)


def _unsnap(snappy: ModuleType, data: bytes, size: int) -> bytes:
    _check_snappy_size(data, size)
    try:
        result: bytes = snappy.uncompress(data)
    except Exception as error:  # the package's UncompressError, or that of whatever it is built on
        raise _damaged(COMPRESSOR_SNAPPY, error) from None
    return result


def _snappy_size(data: bytes) -> int:
    """The size that snappy data declares, or -1 when it has no whole varint of at most five bytes."""
    size = 0
    shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    return -1


def _unzstd(zstandard: ModuleType, data: Data, size: int) -> bytes:
    try:
        # The library allocates the size that the frame declares, so check it first; -1: the frame does not declare one.
        declared: int = zstandard.frame_content_size(data)
        if declared not in (-1, size):
            raise _size_mismatch(COMPRESSOR_ZSTD, size)
        result: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged(COMPRESSOR_ZSTD, error) from None
    return result
