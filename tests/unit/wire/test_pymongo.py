"""PyMongo as an independent witness: it encodes, we read; we encode, it reads."""

import struct
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson.codec_options import DEFAULT_CODEC_OPTIONS
from pymongo import message as pymongo_message
from pymongo.compression_support import SnappyContext, ZlibContext, ZstdContext

from mongottl.wire.compression import is_available
from mongottl.wire.encode import encode_reply, encode_request
from mongottl.wire.messages import EXHAUST_ALLOWED, MORE_TO_COME, NOT_COMPRESSED, OpMsg

Receive = Callable[[bytes], OpMsg]


def pymongo_op_msg(flags: int, command: dict[str, Any], ctx: Any = None) -> tuple[int, bytes]:
    made = pymongo_message._op_msg(flags, command, "db", None, DEFAULT_CODEC_OPTIONS, ctx)
    return made[0], made[1]


@pytest.mark.parametrize("flags", [0, MORE_TO_COME, EXHAUST_ALLOWED])
def test_pymongo_command_is_decoded(receive: Receive, flags: int) -> None:
    request_id, data = pymongo_op_msg(flags, {"find": "c", "filter": {"a": 1}})
    message = receive(data)
    assert (message.request_id, message.response_to, message.flags) == (request_id, 0, flags)
    assert bson.decode(message.body) == {"find": "c", "filter": {"a": 1}, "$db": "db"}
    assert message.sequences == []
    assert encode_request(request_id, message.body, flags=flags) == data


def test_pymongo_insert_is_decoded(receive: Receive) -> None:
    documents = [{"_id": n, "text": "ä" * n} for n in range(5)]
    request_id, data = pymongo_op_msg(0, {"insert": "c", "ordered": True, "documents": documents})
    message = receive(data)
    assert bson.decode(message.body) == {"insert": "c", "ordered": True, "$db": "db"}
    [(identifier, raw)] = message.sequences
    assert identifier == "documents"
    assert [bson.decode(one) for one in raw] == documents
    assert encode_request(request_id, message.body, message.sequences) == data


@pytest.mark.parametrize(
    ("context", "name"), [(ZlibContext(-1), "zlib"), (SnappyContext(), "snappy"), (ZstdContext(), "zstd")]
)
def test_pymongo_compressed_insert_is_decoded(receive: Receive, context: Any, name: str) -> None:
    if not is_available(name):
        pytest.skip(f"the package for {name} is not installed")
    try:
        context.compress(b"")
    except ImportError as error:
        pytest.skip(f"PyMongo's own package for {name} is not installed: {error}")
    documents = [{"_id": n, "text": "x" * 100} for n in range(20)]
    request_id, data = pymongo_op_msg(0, {"insert": "c", "documents": documents}, context)
    message = receive(data)
    assert (message.request_id, message.compressor) == (request_id, context.compressor_id)
    assert bson.decode(message.body) == {"insert": "c", "$db": "db"}
    assert [bson.decode(one) for one in message.sequences[0][1]] == documents


@pytest.mark.parametrize("flags", [0, MORE_TO_COME])
def test_pymongo_reads_our_reply(flags: int) -> None:
    body = bson.encode({"ok": 1.0, "cursor": {"id": 0, "ns": "db.c", "firstBatch": [{"a": 1}]}})
    data = encode_reply(12, 34, body, flags, NOT_COMPRESSED)
    length, request_id, response_to, opcode = struct.unpack_from("<iiii", data)
    assert (length, request_id, response_to, opcode) == (len(data), 12, 34, 2013)
    reply = pymongo_message._OpMsg.unpack(data[16:])
    assert reply.flags == flags
    assert reply.unpack_response() == [bson.decode(body)]
