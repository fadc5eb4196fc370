"""dbHash: MD5 digests of a database's collections, for comparing two copies of it.

Source: MongoDB's "dbHash" reference.
"""

import hashlib
from functools import partial
from typing import Annotated, NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.commands.access import on_database
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, ONE, Field
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.freeing import LongDict, LongList, LongSet
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import MISSING, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.planner import plan_query
from mongottl.exec.results.sizes import measured
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match


class DbHashRequest(NamedTuple):
    command: Annotated[Value, Field("dbHash", ONE)]
    collections: Annotated[Value, Field("collections", ANY)] = None


@command(
    "dbHash",
    DbHashRequest,
    access=on_database("dbHash"),
    help="Returns hashes of the documents of each collection.",
    aliases=("dbhash",),
    strict=False,
)
def db_hash(op: OperationContext, request: DbHashRequest) -> Reply:
    """`{host, collections: {name: MD5}, capped: [name], uuids: {name: UUID}, md5, timeMillis}`.

    Each digest covers the documents that are not expired, by `_id`, or in natural order in a capped collection; `md5`
    covers the digests in the order of the collections' names. collections: the names to include; a value that is no
    array means all. BadValue (2) for an element that is no string.
    """
    op.check_database()
    collections = request.collections
    if isinstance(collections, list):
        op.compute(partial(_check_names, collections))
    started_s = op.service.clock.monotonic_s()
    digests: dict[str, Value] = {}
    uuids: dict[str, Value] = {}
    capped: list[Value] = []
    total = hashlib.md5(usedforsecurity=False)
    named: dict[str, Collection] = LongDict({})
    for collection in op.collections(op.database):
        op.give_way()
        named[_shown_name(collection)] = collection
    included: list[Collection] = LongList()
    for name in op.compute(partial(_known, collections if isinstance(collections, list) else [], named)):
        op.give_way()
        included.append(named[name])
    for collection, digest in measured(op, included, partial(_digest, op)):
        name = _shown_name(collection)
        digests[name] = digest
        uuids[name] = collection.uuid
        if collection.options.capped:
            capped.append(name)
        total.update(digest.encode("ascii"))
    return {
        "host": op.client.local,
        "collections": digests,
        "capped": capped,
        "uuids": uuids,
        "md5": total.hexdigest(),
        "timeMillis": int((op.service.clock.monotonic_s() - started_s) * 1000),
    }


def _check_names(names: list[Value]) -> None:
    for name in names:
        give_way()
        if not isinstance(name, str):
            raise CommandError(ErrorCode.BadValue, "collections entries have to be strings")


def _known(names: list[Value], named: dict[str, Collection]) -> list[str]:
    """The names of collections among these, sorted, each once. named: the collections; all of them if there are no
    names."""
    found: set[str] = LongSet()
    for name in names:
        give_way()
        if isinstance(name, str) and name in named:
            found.add(name)
    return sort_in_parts(list(found if names else named))


def _shown_name(collection: Collection) -> str:
    """A collection's name; for a time series collection that of its buckets, which MongoDB stores in its place."""
    return collection.name if collection.time_series is None else f"system.buckets.{collection.name}"


def _digest(op: OperationContext, collection: Collection) -> tuple[Collection, str]:
    digest = hashlib.md5(usedforsecurity=False)
    everything = parse_match(EMPTY_DOCUMENT, ParseContext())
    in_place = collection.options.capped or collection.id_index is None
    stage = plan_query(op, collection, everything, hint=MISSING if in_place else "_id_").open()
    while (batch := stage.next_batch(op)) is not None:
        for record in batch:
            digest.update(record[1])
        op.check_interrupt()
        op.give_way()
    return collection, digest.hexdigest()
