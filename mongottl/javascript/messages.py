"""Values in the messages between the server and a script process.

A value is the code of its BSON type (one byte), the size of its bytes (four, little-endian), and its bytes as in BSON.
A long list may be longer than BSON allows, and takes long to encode and to decode, so both can be done in parts,
between which the server lets other operations run:

    long list  LIST, any number of long lists, values and runs, and END
    run        RUN, the size of an array in BSON (four bytes), and the array: its elements are elements of the list
"""

from collections.abc import Callable, Iterator
from typing import Final

from mongottl.document.build import encode_array, encode_value
from mongottl.document.types import DOCUMENT, Missing, Undefined, Value
from mongottl.document.walk import decode_array, decode_value

# No types of BSON.
LIST: Final = 0xE0
RUN: Final = 0xE1
END: Final = 0xE2
_LIST: Final = bytes((LIST,))
_END: Final = bytes((END,))

# Elements of a run, and about how many bytes of them: what is encoded or decoded at once, in less than a millisecond.
_RUN_VALUES: Final = 512
_RUN_BYTES: Final = 64 << 10
# Values of which the size counts. Others are counted as this number of bytes.
_SIZED: Final = (bytes, str)
_OTHER_BYTES: Final = 16
# Elements of a list that is not long, those of lists in it included.
_SHORT_VALUES: Final = 64
# Shorter documents and texts can be in it.
_SHORT_BYTES: Final = 1 << 10


def encode_parts(value: Value) -> Iterator[bytes]:
    """The encoded value, in parts. ValueError for text that UTF-8 cannot express."""
    if isinstance(value, bytes):
        yield _header(DOCUMENT, len(value))
        yield value
    elif isinstance(value, list) and _short_room(value, _SHORT_VALUES) < 0:
        yield _LIST
        yield from _elements(value)
        yield _END
    else:
        type_code, data = encode_value(Undefined() if isinstance(value, Missing) else value)
        yield _header(type_code, len(data)) + data


def _short_room(values: list[Value], room: int) -> int:
    """How many more elements a list may have, besides these, that is not long; negative if it is long because of them.

    room: how many elements it may have.
    """
    room -= len(values)
    if room < 0:
        return room
    for value in values:
        if isinstance(value, _SIZED):
            if len(value) >= _SHORT_BYTES:
                return -1
        elif isinstance(value, list):
            room = _short_room(value, room)
            if room < 0:
                return room
        elif isinstance(value, Missing):  # an array in BSON would leave it out
            return -1
    return room


def _elements(values: list[Value]) -> Iterator[bytes]:
    run: list[Value] = []
    run_bytes = 0
    for value in values:
        size = len(value) if isinstance(value, _SIZED) else _OTHER_BYTES
        if size >= _RUN_BYTES or isinstance(value, (list, Missing)):
            if run:
                yield _encoded_run(run)
                run = []
                run_bytes = 0
            yield from encode_parts(value)
            continue
        run.append(value)
        run_bytes += size
        if run_bytes >= _RUN_BYTES or len(run) >= _RUN_VALUES:
            yield _encoded_run(run)
            run = []
            run_bytes = 0
    if run:
        yield _encoded_run(run)


def _encoded_run(values: list[Value]) -> bytes:
    array = encode_array(values)
    return _header(RUN, len(array)) + array


def _header(kind: int, size: int) -> bytes:
    return bytes((kind,)) + size.to_bytes(4, "little")


def decode(message: bytes, start: int, decoded: Callable[[int], None]) -> Value:
    """The value at `start` of a message. ValueError or IndexError for one that is malformed.

    decoded: called after each part, with its size in bytes.
    """
    return _Decoder(message, start, decoded).value()


class _Decoder:
    def __init__(self, message: bytes, position: int, decoded: Callable[[int], None]) -> None:
        self._message: Final = message
        self._position = position
        self._decoded: Final = decoded

    def value(self) -> Value:
        message = self._message
        position = self._position
        kind = message[position]
        if kind == LIST:
            return self._list()
        end = self._end_of_part(position)
        value = decode_value(message, kind, position + 5)
        self._position = end
        self._decoded(end - position)
        return value

    def _list(self) -> list[Value]:
        message = self._message
        values: list[Value] = []
        self._position += 1
        while (kind := message[self._position]) != END:
            if kind == RUN:
                position = self._position
                self._position = self._end_of_part(position)
                values += decode_array(message, position + 5)
                self._decoded(self._position - position)
            else:
                values.append(self.value())
        self._position += 1
        return values

    def _end_of_part(self, position: int) -> int:
        """Where a value or a run ends that begins at `position`."""
        end = position + 5 + int.from_bytes(self._message[position + 1 : position + 5], "little")
        if end > len(self._message):
            raise ValueError("a part that is longer than the message")
        return end
