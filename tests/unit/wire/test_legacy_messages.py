"""OP_GET_MORE and OP_KILL_CURSORS, which drivers of before 2018 send."""

import struct
from collections.abc import Callable

import pytest

from mongottl.wire.encode import encode_reply_to
from mongottl.wire.messages import OpGetMore, OpKillCursors, OpQuery

EMPTY = bytes.fromhex("0500000000")


def legacy(opcode: int, contents: bytes) -> bytes:
    return struct.pack("<iiii", 16 + len(contents), 3, 0, opcode) + contents


def kill(*cursor_ids: int) -> bytes:
    return legacy(2007, struct.pack("<ii", 0, len(cursor_ids)) + struct.pack(f"<{len(cursor_ids)}q", *cursor_ids))


@pytest.mark.parametrize("cursor_ids", [[5], [1, -(2**63), 2**63 - 1], list(range(400))])
def test_kill_cursors(receive: Callable[[bytes], OpKillCursors], cursor_ids: list[int]) -> None:
    message = receive(kill(*cursor_ids))
    assert isinstance(message, OpKillCursors)
    assert (message.request_id, message.response_to, message.cursor_ids) == (3, 0, cursor_ids)
    assert repr(message) == f"OpKillCursors(request_id=3, {len(cursor_ids)} cursors)"
    assert not message.expects_reply


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (bytes(7), "OP_KILL_CURSORS: the message ends before its cursor ids"),
        (struct.pack("<ii", 0, 0), "OP_KILL_CURSORS: numberOfCursorIDs 0 is not between 1 and 29999"),
        (struct.pack("<ii", 0, -1), "OP_KILL_CURSORS: numberOfCursorIDs -1 is not between 1 and 29999"),
        (struct.pack("<ii", 0, 30_000), "OP_KILL_CURSORS: numberOfCursorIDs 30000 is not between 1 and 29999"),
        (
            struct.pack("<iiq", 0, 2, 5),
            "OP_KILL_CURSORS: numberOfCursorIDs is 2, but there are 8 bytes of ids",
        ),
        (
            struct.pack("<iiqq", 0, 1, 5, 6),
            "OP_KILL_CURSORS: numberOfCursorIDs is 1, but there are 16 bytes of ids",
        ),
    ],
)
def test_malformed_kill_cursors(refusal: Callable[[bytes], str], contents: bytes, text: str) -> None:
    assert refusal(legacy(2007, contents)) == text


def test_get_more_and_its_reply(receive: Callable[[bytes], OpGetMore | OpQuery]) -> None:
    message = receive(legacy(2005, struct.pack("<i", 0) + b"test.c\0" + struct.pack("<iq", 2, 5)))
    assert isinstance(message, OpGetMore)
    assert (message.request_id, message.expects_reply, repr(message)) == (3, True, "OpGetMore(request_id=3)")
    # The reply has AwaitCapable and QueryFailure.
    assert struct.unpack_from("<iiiiIqii", encode_reply_to(message, 9, EMPTY)) == (41, 9, 3, 1, 10, 0, 0, 1)


def test_only_a_query_of_a_collection_has_a_reply_that_failed() -> None:
    for namespace, flags in (("a.$cmd", 8), ("a.b", 10), ("a.$cmd.sys.inprog", 10), ("a", 10), ("", 10)):
        query = OpQuery(3, 0, 0, namespace, 0, -1, EMPTY, None)
        assert struct.unpack_from("<I", encode_reply_to(query, 9, EMPTY), 16)[0] == flags
