"""A long message, decoded in steps from parts of any size, against `decode_op_msg`, which has it in one piece."""

import random
import struct

import bson
import pytest

from mongottl.errors import ProtocolError
from mongottl.wire.decode import decode_op_msg
from mongottl.wire.encode import encode_request
from mongottl.wire.long_message import LongMessage, Part
from mongottl.wire.messages import CHECKSUM_PRESENT, MAX_NAME_BYTES, MAX_SEQUENCES, NOT_COMPRESSED, OpMsg


def contents(message: OpMsg) -> tuple[object, ...]:
    return (message.request_id, message.response_to, message.flags, message.body, message.sequences, message.size_bytes)


def at_once(data: bytes) -> tuple[object, ...] | str:
    try:
        return contents(decode_op_msg(data, 0, len(data)))
    except ProtocolError as error:
        return str(error)


def in_steps(parts: list[Part], rest: bytes) -> tuple[object, ...] | str:
    message = LongMessage(parts, NOT_COMPRESSED)
    while not message.advance():
        pass
    assert message.rest() == rest
    try:
        return contents(message.result())
    except ProtocolError as error:
        return str(error)


def message(rng: random.Random) -> bytearray:
    def documents() -> list[bytes]:
        return [bson.encode({"a": "x" * rng.choice([0, 1, 30, 200])}) for _ in range(rng.randrange(6))]

    sequences = [(rng.choice(["a", "bb", "ccc" * 40, "d"]), documents()) for _ in range(rng.randrange(4))]
    body = bson.encode({"q": "y" * rng.choice([0, 9, 400])})
    return bytearray(encode_request(5, body, sequences, flags=rng.choice([0, 0, CHECKSUM_PRESENT])))


def damage(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 3)):
        data[rng.randrange(16, len(data))] = rng.choice([0, 1, 2, 255, rng.randrange(256)])
    if rng.random() < 0.3:
        del data[rng.randrange(20, len(data) + 1) :]
    struct.pack_into("<i", data, 0, len(data))


def split(data: bytes, rng: random.Random) -> list[Part]:
    parts: list[Part] = []
    while data:
        size = rng.choice([1, 2, 3, 7, 50, 300])
        parts.append(data[:size] if rng.random() < 0.5 else memoryview(data[:size]))
        data = data[size:]
    return parts


@pytest.mark.parametrize("damaged", [False, True])
def test_any_parts_give_the_same_message_or_error(damaged: bool) -> None:
    outcomes = set()
    for seed in range(1_000):
        rng = random.Random(seed)
        data = message(rng)
        if damaged:
            damage(data, rng)
        rest = bytes(rng.randrange(20))
        expected = at_once(bytes(data))
        assert in_steps(split(bytes(data) + rest, rng), rest) == expected, seed
        outcomes.add(expected if isinstance(expected, str) else "a message")
    assert len(outcomes) > 50 if damaged else "a message" in outcomes


def with_sequences(names: list[str]) -> bytes:
    return encode_request(1, bson.encode({}), [(name, []) for name in names])


def test_more_sequences_than_a_command_may_take_are_refused() -> None:
    names = [f"n{number}" for number in range(MAX_SEQUENCES)]
    data = with_sequences(names)
    assert [name for name, _ in decode_op_msg(data, 0, len(data)).sequences] == names
    assert in_steps([data], b"") == at_once(data)
    names[-1] = "n7"
    assert at_once(with_sequences(names)) == "OP_MSG: two document sequences are named 'n7'"
    data = with_sequences([f"n{number}" for number in range(300_000)])
    assert at_once(data) == in_steps([data], b"") == f"OP_MSG: there are more than {MAX_SEQUENCES} document sequences"


def test_a_longer_identifier_than_any_field_has_is_refused() -> None:
    data = with_sequences(["\1" * MAX_NAME_BYTES])
    assert in_steps([data], b"") == at_once(data) == contents(decode_op_msg(data, 0, len(data)))
    # Not with the identifier in the text, which is logged: that would take seconds.
    for length in (MAX_NAME_BYTES + 1, 3_000_000):
        data = with_sequences(["\1" * length] * 2)
        parts: list[Part] = [data[start : start + 60_000] for start in range(0, len(data), 60_000)]
        expected = f"OP_MSG: a document sequence's identifier has more than {MAX_NAME_BYTES} bytes"
        assert at_once(data) == in_steps(parts, b"") == expected
