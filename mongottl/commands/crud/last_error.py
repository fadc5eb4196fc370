"""getLastError: what became of the request before it on the same connection.

Old clients send it after writes that have no reply. Source: MongoDB's "getLastError", which 5.1 has removed; it is in
Microsoft's articles on the features of all versions of Cosmos DB.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import USERS
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, IGNORED, Field
from mongottl.document.types import MISSING, Value
from mongottl.exec.operation.context import OperationContext
from mongottl.versions import unknown_command

LAST_ERROR: Final = "getLastError"


class GetLastErrorRequest(NamedTuple):
    command: Annotated[Value, Field(LAST_ERROR, ANY)]
    # A write concern, which Cosmos DB ignores; here the writes of a connection are done before its next request.
    w: Annotated[Value, Field("w", IGNORED)] = None
    j: Annotated[Value, Field("j", IGNORED)] = None
    fsync: Annotated[Value, Field("fsync", IGNORED)] = None
    wtimeout: Annotated[Value, Field("wtimeout", IGNORED)] = None
    optime: Annotated[Value, Field("wOpTime", IGNORED)] = None
    election: Annotated[Value, Field("wElectionId", IGNORED)] = None


@command(
    LAST_ERROR,
    GetLastErrorRequest,
    access=USERS,
    help="Returns what became of the last request of this connection: before 5.1, and in the dialect cosmos.",
    aliases=("getlasterror",),
)
def get_last_error(op: OperationContext, request: GetLastErrorRequest) -> Reply:
    """`{connectionId, updatedExisting, upserted, n, err, code, codeName}`.

    n: how many documents the request has updated, upserted or removed. updatedExisting: only after updates; upserted:
    the `_id`, only after upserts. err: null if it has not failed; code and codeName only if it has. CommandNotFound
    (59) in announced versions of MongoDB without it.
    """
    if not op.service.dialect.has_last_errors:
        raise unknown_command(LAST_ERROR)
    last = op.client.last_error
    reply: dict[str, Value] = {"connectionId": op.client.connection_id}
    if last.updated_existing is not None:
        reply["updatedExisting"] = last.updated_existing
    if last.upserted is not MISSING:
        reply["upserted"] = last.upserted
    reply["n"] = last.documents
    reply["err"] = last.error
    if last.code:
        reply["code"] = last.code
        reply["codeName"] = op.service.dialect.code_name(last.code)
    return reply
