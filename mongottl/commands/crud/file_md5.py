"""filemd5: the digest of a file that drivers have stored by GridFS.

Source: MongoDB's command reference, and the driver specifications' "GridFS" for the chunks. MongoDB has deprecated the
command; Cosmos DB lists it.
"""

import hashlib
from typing import Annotated, Final, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.commands.access import collection_needs, needing
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, TEXT, Field
from mongottl.document.build import encode
from mongottl.document.types import MISSING, BinData, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.modifying import Selection
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.security.privileges import Need

_OUT_OF_ORDER: Final = 10040


class FileMd5Request(NamedTuple):
    file: Annotated[Value, Field("filemd5", ANY)]
    root: Annotated[str, Field("root", TEXT)] = "fs"


def _needs(op: OperationContext, request: FileMd5Request) -> list[Need]:
    return collection_needs(op.database, f"{request.root}.chunks", "find")


@command(
    "filemd5",
    FileMd5Request,
    access=needing(_needs),
    help="Returns the MD5 digest of a file that is stored by GridFS.",
    latency="reads",
)
def file_md5(op: OperationContext, request: FileMd5Request) -> Reply:
    """`{numChunks, md5}`, of the chunks of `<root>.chunks` whose `files_id` is the file's `_id`.

    10040 if a chunk is missing before others, BadValue (2) for one without binary `data`. A file without chunks has the
    digest of nothing.
    """
    op.check_database()
    digest = hashlib.md5(usedforsecurity=False)
    count = 0
    collection = op.catalog.lookup(op.database, f"{request.root}.chunks")
    if collection is not None:
        while True:
            chunk = _chunk(op, collection, request.file, count)
            if chunk is None:
                break
            data = get_value(chunk, "data")
            if not isinstance(data, BinData):
                raise CommandError(ErrorCode.BadValue, f"chunk {count} of the file has no binary data")
            digest.update(data.data)
            count += 1
        further = _chunk(op, collection, request.file, encode({"$gt": count}))
        if further is not None:
            raise CommandError(_OUT_OF_ORDER, "chunks out of order")
    return {"numChunks": count, "md5": digest.hexdigest()}


def _chunk(op: OperationContext, collection: Collection, file: Value, number: Value) -> bytes | None:
    """A chunk of a file by its number, or by a condition on it; None if there is none."""
    match = parse_match(encode({"files_id": encode({"$eq": file}), "n": number}), ParseContext(op.now_ms))
    selection = Selection(collection, match, None, MISSING)
    stage = selection.open(op, wanted=1)
    while (batch := stage.next_batch(op)) is not None:
        records = selection.current(op, stage, batch)
        if records:
            return records[0][1]
        op.give_way()
        op.check_interrupt()
    op.give_way()
    op.check_interrupt()
    return None
