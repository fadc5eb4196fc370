"""Single requests of many bytes, or of much work for one document, with pings on another connection: none may block the
event loop."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bson import encode

from bench.load import Connection, Document, Pinger, ReplyError, op_msg
from bench.measure import Result
from bench.targets import DATABASE
from bench.workloads.bulk import load_million
from bench.workloads.registry import Context, Goal, workload

PING_GOALS = (Goal("ping_p99_ms", 20), Goal("ping_max_ms", 100))
_OP_COMPRESSED = 2012
_OP_MSG = 2013
_ZLIB = 2
_COMPRESSED_HEAD = struct.Struct("<iiiiiiB")
_TARGET = "long_messages"
_MESSAGE_BYTES = 47_000_000


def load_long(ctx: Context) -> None:
    """A fixture of its own: 1,000,000 documents (scaled)."""
    load_million(ctx)


def compressed(message: bytes | bytearray) -> bytes:
    """An OP_MSG inside an OP_COMPRESSED, by zlib."""
    packed = zlib.compress(bytes(message[16:]), 1)
    size = _COMPRESSED_HEAD.size + len(packed)
    return _COMPRESSED_HEAD.pack(size, 1, 0, _OP_COMPRESSED, _OP_MSG, len(message) - 16, _ZLIB) + packed


def pinged(ctx: Context, name: str, call: Callable[[], int], unit: str) -> Result:
    with Pinger(ctx.target.address()) as pinger:
        result = ctx.run_calls(name, call, unit)
    return replace(result, extra=pinger.figures())


@workload(
    "compressed-reply-pinged",
    "replies of up to 16 MB, compressed by zlib",
    fixture=load_long,
    needs_socket=True,
    goals=PING_GOALS,
)
def compressed_reply_pinged(ctx: Context) -> Result:
    body: dict[str, Any] = {"find": "million", "batchSize": 1_000_000, "singleBatch": True, "$db": DATABASE}
    request = compressed(op_msg(body))

    with Connection(ctx.target.address()) as connection:

        def call() -> int:
            connection.send(request)
            reply = connection.receive()
            if struct.unpack_from("<i", reply, 12)[0] != _OP_COMPRESSED or len(reply) < 10_000:
                raise ReplyError("the reply is not compressed, or tells an error")
            return 1

        return pinged(ctx, "compressed-reply-pinged", call, "op")


def _repeated(ctx: Context, name: str, command: Document, documents: list[bytes]) -> Result:
    """The same command again and again, on a collection with these documents."""
    request = op_msg({**command, "$db": DATABASE})
    with Connection(ctx.target.address()) as connection:
        connection.insert(DATABASE, _TARGET, [documents])

        def call() -> int:
            connection.send(request)
            connection.receive()
            return 1

        result = pinged(ctx, name, call, "op")
        connection.command({"drop": _TARGET, "$db": DATABASE})
        return result


def _inserted(ctx: Context, name: str, wrap: Callable[[bytearray], bytes | bytearray]) -> Result:
    """Messages of 47 MB, full of documents without `_id`; the collection is dropped behind each."""
    document = encode({"name": "x" * 400, "values": list(range(8))})
    count = ctx.scaled(min(_MESSAGE_BYTES // len(document), 99_000))
    request = wrap(op_msg({"insert": _TARGET, "$db": DATABASE}, "documents", [document] * count))

    with Connection(ctx.target.address()) as connection:

        def call() -> int:
            connection.send(request)
            connection.receive()
            connection.command({"drop": _TARGET, "$db": DATABASE})
            return count

        return pinged(ctx, name, call, "doc")


@workload(
    "long-message-pinged",
    "inserts of 99,000 documents in a message of about 47 MB; per document",
    fixture=load_long,
    needs_socket=True,
    goals=PING_GOALS,
)
def long_message_pinged(ctx: Context) -> Result:
    return _inserted(ctx, "long-message-pinged", lambda message: message)


@workload(
    "compressed-message-pinged",
    "inserts of 99,000 documents in a message of about 47 MB, compressed by zlib; per document",
    fixture=load_long,
    needs_socket=True,
    goals=PING_GOALS,
)
def compressed_message_pinged(ctx: Context) -> Result:
    return _inserted(ctx, "compressed-message-pinged", compressed)


@workload(
    "empty-documents-pinged",
    "inserts of 9 million empty documents in a message, which are too many",
    fixture=load_long,
    needs_socket=True,
    goals=PING_GOALS,
)
def empty_documents_pinged(ctx: Context) -> Result:
    request = op_msg({"insert": _TARGET, "$db": DATABASE}, "documents", [encode({})] * ctx.scaled(9_000_000))

    with Connection(ctx.target.address()) as connection:

        def call() -> int:
            connection.send(request)
            connection.receive()
            return 1

        return pinged(ctx, "empty-documents-pinged", call, "op")


def _long_requests(count: int) -> dict[str, Document]:
    """Requests that take long to parse and to plan, by workload name; each has `count` predicates, values or fields."""
    fields = [f"field{number}" for number in range(count)]
    equalities = [{"absent": number} for number in range(count)]
    ranges = [{"absent": {"$gt": 3 * number, "$lt": 3 * number + 2}} for number in range(count)]
    inequalities = [{"absent": {"$ne": number}} for number in range(count)]
    specs = [{"key": {field: 1}, "name": field} for field in fields]
    computed = {field: {"$add": ["$rank", 1]} for field in fields}
    return {
        "or-equalities-pinged": {"find": _TARGET, "filter": {"$or": equalities}},
        "or-ranges-pinged": {"find": _TARGET, "filter": {"$or": ranges}},
        "and-inequalities-pinged": {"find": _TARGET, "filter": {"$and": inequalities}},
        "in-list-pinged": {"find": _TARGET, "filter": {"absent": {"$in": list(range(10 * count))}}},
        "in-list-indexed-pinged": {"find": _TARGET, "filter": {"_id": {"$in": list(range(10 * count))}}},
        "project-fields-pinged": {"aggregate": _TARGET, "pipeline": [{"$project": computed}], "cursor": {}},
        "create-indexes-pinged": {"createIndexes": _TARGET, "indexes": specs},
    }


def _register_long_requests() -> None:
    for name, count, what in (
        ("or-equalities-pinged", 100_000, "find by $or of 100,000 equalities"),
        ("or-ranges-pinged", 100_000, "find by $or of 100,000 ranges"),
        ("and-inequalities-pinged", 100_000, "find by $and of 100,000 inequalities"),
        ("in-list-pinged", 100_000, "find by $in of a million values"),
        ("in-list-indexed-pinged", 100_000, "find by $in of a million values, of an indexed field"),
        ("project-fields-pinged", 20_000, "$project of 20,000 computed fields"),
        (
            "create-indexes-pinged",
            20_000,
            "createIndexes with 20,000 specifications, which are too many",
        ),
    ):

        def run(ctx: Context, name: str = name, count: int = count) -> Result:
            documents = [encode({"rank": number}) for number in range(100)]
            return _repeated(ctx, name, _long_requests(ctx.scaled(count))[name], documents)

        workload(name, what, fixture=load_long, needs_socket=True, goals=PING_GOALS)(run)


_register_long_requests()


def _evaluated(count: int) -> dict[str, Document]:
    """Expressions over arrays of `count` elements, or texts of so many bytes, by workload name. `$n` is the count."""
    numbers: Document = {"$range": [0, "$n"]}
    mixed = {"$map": {"input": numbers, "in": {"$mod": [{"$multiply": ["$$this", 7919]}, 1_000_003]}}}
    appended = {"$concatArrays": ["$$value", ["$$this"]]}
    joined = {"$concat": ["$$value", {"$toString": "$$this"}]}
    united = {"$setUnion": ["$$value", ["$$this"]]}
    date = {"$dateToString": {"date": {"$toDate": {"$toLong": "$$this"}}, "timezone": "Europe/Paris"}}
    return {
        "reduce-append-pinged": {"$size": {"$reduce": {"input": numbers, "initialValue": [], "in": appended}}},
        "reduce-concat-pinged": {"$strLenCP": {"$reduce": {"input": numbers, "initialValue": "", "in": joined}}},
        "reduce-union-pinged": {"$size": {"$reduce": {"input": numbers, "initialValue": [], "in": united}}},
        "reduce-add-pinged": {"$reduce": {"input": numbers, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}},
        "map-dates-pinged": {"$size": {"$map": {"input": numbers, "in": date}}},
        "map-documents-pinged": {"$size": {"$map": {"input": numbers, "in": {"n": "$$this", "m": ["$$this"]}}}},
        "map-arrays-pinged": {"$size": {"$map": {"input": numbers, "in": [["$$this"], ["$$this"]]}}},
        "filter-pinged": {"$size": {"$filter": {"input": numbers, "cond": {"$gt": ["$$this", 5]}}}},
        "set-union-pinged": {"$size": {"$setUnion": [numbers, numbers]}},
        "set-equals-pinged": {"$setEquals": [numbers, mixed]},
        "sort-array-pinged": {"$size": {"$sortArray": {"input": mixed, "sortBy": 1}}},
        "max-n-pinged": {"$size": {"$maxN": {"input": mixed, "n": 1000}}},
        "zip-pinged": {"$size": {"$zip": {"inputs": [numbers, numbers]}}},
        "percentile-pinged": {"$median": {"input": mixed, "method": "approximate"}},
        "split-pinged": {"$size": {"$split": ["$text", "b"]}},
        # The search goes through the rest of the text at each second place: for a second or two.
        "regex-match-pinged": {"$regexMatch": {"input": {"$substrBytes": ["$text", 0, 40_000]}, "regex": "(?=.*c)a"}},
        "regex-find-all-pinged": {"$size": {"$regexFindAll": {"input": "$text", "regex": "b"}}},
    }


def _register_evaluated() -> None:
    for name in _evaluated(0):

        def run(ctx: Context, name: str = name) -> Result:
            count = ctx.scaled(1_000_000)
            pipeline = [{"$project": {"result": _evaluated(count)[name]}}]
            document = encode({"n": count, "text": "ab" * (count // 2)})
            return _repeated(ctx, name, {"aggregate": _TARGET, "pipeline": pipeline, "cursor": {}}, [document])

        what = "one expression over a million elements"
        workload(name, what, fixture=load_long, needs_socket=True, goals=PING_GOALS)(run)


_register_evaluated()
