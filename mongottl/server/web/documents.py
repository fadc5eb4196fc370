"""The documents view of the page: which collections there are, and the documents of one, page by page.

    GET  /collections   {collections: [{database, collection, type}], complete}
    POST /documents     {database, collection, filter, page}  →  {documents: [{text, sizeBytes, shortened, dueMs}],
                        next, ordered}

Everything is read by the commands that drivers send, as the client that has logged in. So rights, views, collations,
the dialect's refusals and request units are those of every client, and what a command refuses is answered with its
text. Nothing is kept between two requests: no cursor stays open.

A page begins after an `_id` in the order of `_id`, so documents that are written, deleted or expire meanwhile do not
shift it:

    {after: 7}     {_id: {$gt: 7}}, then what other types that come after numbers have   (a comparison of a query
                                                                                         selects one type only)

What has no index on `_id` (views, time series, the oplog) is read in its own order, and pages begin after a number of
documents; so they do within documents whose `_id` is not unique, or too long to be asked for again.
"""

import base64
import json
from math import isnan
from typing import Final, NamedTuple

import trio

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.document.build import encode, encode_fields
from mongottl.document.compare import bracket_of, bracket_of_type
from mongottl.document.keystring import HIGHEST_KEY, bracket_range, encode_raw
from mongottl.document.types import (
    ARRAY,
    BSON_TYPES,
    DOCUMENT,
    MAX_KEY,
    MIN_KEY,
    MISSING,
    NULL,
    REGEX,
    UNDEFINED,
    Decimal128,
    Int64,
    Value,
    type_code_of,
    type_name,
)
from mongottl.document.validate import validate_document
from mongottl.document.walk import ElementCursor, fields_by_name, find_field, find_field_at, get_value, read_embedded
from mongottl.dump.extended_json import CONVERSION_ERRORS, document_of, no_constant, real_number, whole_number
from mongottl.errors import ErrorCode
from mongottl.exec.plan.express import partition_key
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import MS_PER_S
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.exec.write.schedule import document_due_s
from mongottl.server.shell import Shell
from mongottl.server.web.command import run_command
from mongottl.server.web.extended_json import shown
from mongottl.server.web.http import Request, Response, text
from mongottl.storage.stores import KeyRange, Record
from mongottl.ttl.policy import NEVER_AT_S, NO_TTL

PAGE_DOCUMENTS: Final = 20
# Characters of one document, and of all of a page together, that are shown; the last one may exceed it.
DOCUMENT_CHARACTERS: Final = 16 * 1024
PAGE_CHARACTERS: Final = 128 * 1024
# Time limit of what reads a page.
MAX_TIME_MS: Final = 5000
MAX_LISTED: Final = 2000
# An `_id` that takes more bytes is not part of the text that names the next page, which has to fit into a request.
_MAX_ID_BYTES: Final = 4096
_MAX_SKIP: Final = 2**53
# Operators that run scripts, which a page that only shows documents does not do.
_SCRIPTS: Final = ("$where", "$function", "$accumulator")
# Types of which an `_id` has one value, and those that no `_id` has.
_SINGLE: Final = (MIN_KEY, UNDEFINED, NULL, REGEX, ARRAY, MAX_KEY)
_FILTERS: Final = json.JSONDecoder(
    object_pairs_hook=document_of, parse_float=real_number, parse_int=whole_number, parse_constant=no_constant
)


class RefusedError(Exception):
    """A request that is answered with this status and text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Place(NamedTuple):
    """Where a page begins: `skip` documents after this `_id`. MISSING: from the first document on."""

    after: Value = MISSING
    skip: int = 0


class _Asked(NamedTuple):
    """What a request asks for. filter: raw."""

    database: str
    collection: str
    filter: bytes
    place: Place


class Documents:
    """Answers the requests of the documents view of one server."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def collections(self, request: Request, client: ClientInfo) -> Response:
        """The collections on which the client may do something, by name. complete: whether these are all."""
        try:
            return _as_json(await self._listed(client))
        except RefusedError as refused:
            return text(refused.status, refused.message)

    async def documents(self, request: Request, client: ClientInfo) -> Response:
        """One page of documents. next: names the page after it, null for the last one. ordered: whether pages are
        those of the order of `_id`. dueMs: when a document expires, null for never."""
        try:
            asked = _parse(request.body)
            return _as_json(await self._page(client, asked))
        except RefusedError as refused:
            return text(refused.status, refused.message)

    async def _listed(self, client: ClientInfo) -> dict[str, object]:
        reply = await self._run(client, "admin", {"listDatabases": 1, "nameOnly": True})
        described = get_value(reply, "databases")
        assert isinstance(described, list)
        found: list[dict[str, object]] = []
        for database in described:
            name = get_value(database, "name")
            assert isinstance(name, str)
            command: dict[str, Value] = {"listCollections": 1, "nameOnly": True, "authorizedCollections": True}
            left = MAX_LISTED - len(found)
            listed = await self._read(client, name, "$cmd.listCollections", command | {"cursor": {"batchSize": left}})
            for entry in listed.documents:
                collection = {"collection": get_value(entry, "name"), "type": get_value(entry, "type")}
                found.append({"database": name, **collection})
            if listed.has_more or (len(found) >= MAX_LISTED and name != get_value(described[-1], "name")):
                return {"collections": found, "complete": False}
        return {"collections": found, "complete": True}

    async def _page(self, client: ClientInfo, asked: _Asked) -> dict[str, object]:
        clock = self._shell.clock
        reading = _Reading(self, client, asked, clock.monotonic_s() + MAX_TIME_MS / MS_PER_S)
        batch = await reading.batch()
        # Looked up after the documents were read: what others have changed or dropped meanwhile counts.
        shown_documents: list[dict[str, object]] = []
        size = 0
        for document in batch.documents[:PAGE_DOCUMENTS]:
            if size >= PAGE_CHARACTERS:
                break
            written, shortened = shown(document, DOCUMENT_CHARACTERS)
            size += len(written)
            shown_documents.append(
                {
                    "text": written,
                    "sizeBytes": len(document),
                    "shortened": shortened,
                    "dueMs": self._due_ms(asked, document),
                }
            )
            await trio.lowlevel.checkpoint()  # one document is written without letting others run
        count = len(shown_documents)
        following = (
            reading.following(batch.documents[:count]) if batch.has_more or count < len(batch.documents) else None
        )
        return {
            "documents": shown_documents,
            "next": None if following is None else _name(following),
            "ordered": reading.is_ordered,
        }

    def _due_ms(self, asked: _Asked, document: bytes) -> int | None:
        """When a document expires, by the rules of its collection at present; None if it never does."""
        service = self._shell.service
        collection = self.stored_collection(asked)
        if collection is None:
            return None
        record = None if collection.default_ttl_s == NO_TTL else self._record(collection, document)
        due_s = document_due_s(service, collection, document, record)
        return None if due_s == NEVER_AT_S else due_s * MS_PER_S

    def stored_collection(self, asked: _Asked) -> Collection | None:
        """The collection that was read; None for views, and for what the server shows as a collection."""
        return self._shell.service.catalog.stored_collection(asked.database, asked.collection)

    def _record(self, collection: Collection, document: bytes) -> Record | None:
        """The record that has this document's `_id`; None if there is none any more."""
        unit = RecoveryUnit(self._shell.service)
        index = collection.id_index
        key = id_key(collection, document)
        if index is None:
            index = collection.partition_index
            key = partition_key(collection, document)
        return None if index is None or key is None else unit.index(index).fetch_exact(unit.records(collection), key)

    def first_behind(self, collection: Collection, index: CollectionIndex, type_code: int) -> bytes | None:
        """The first document, by `_id`, whose `_id` is of a type that comes after this one; None if there is none."""
        unit = RecoveryUnit(self._shell.service)
        low = bracket_range(bracket_of_type(type_code))[1]
        rows, _ = unit.index(index).scan_fetch(unit.records(collection), KeyRange(low, HIGHEST_KEY), None, 1)
        return rows[0][2] if rows else None

    async def read(self, client: ClientInfo, asked: _Asked, command: dict[str, Value], end_s: float) -> "_Batch":
        """The documents that a `find` returns in its first batch. end_s: monotonic time by which it has to end."""
        left_ms = max(1, int((end_s - self._shell.clock.monotonic_s()) * MS_PER_S))
        whole: dict[str, Value] = {"find": asked.collection, **command, "maxTimeMS": left_ms}
        return await self._read(client, asked.database, asked.collection, whole)

    async def _read(self, client: ClientInfo, database: str, collection: str, command: dict[str, Value]) -> "_Batch":
        """The first batch of a command that returns a cursor, which is closed."""
        reply = await self._run(client, database, command)
        _, cursor = find_field(reply, b"cursor")
        cursor_id = get_value(read_embedded(reply, cursor), "id")
        elements = ElementCursor(reply, find_field_at(reply, cursor, b"firstBatch")[1])
        documents: list[bytes] = []
        while elements.next():
            documents.append(read_embedded(reply, elements.value))
        if cursor_id != 0:
            # Documents that are too large for one reply.
            await self._run(client, database, {"killCursors": collection, "cursors": [cursor_id]})
        return _Batch(documents, cursor_id != 0)

    async def _run(self, client: ClientInfo, database: str, command: dict[str, Value]) -> bytes:
        """The reply of a command that has succeeded. RefusedError, with the command's text, for another one."""
        try:
            body = encode({**command, "$db": database})
        except CONVERSION_ERRORS as error:
            raise RefusedError(400, str(error)) from None
        reply = await run_command(self._shell, client, body)
        if get_value(reply, "ok") == 1.0:
            return reply
        status = 403 if get_value(reply, "code") == ErrorCode.Unauthorized else 400
        raise RefusedError(status, str(get_value(reply, "errmsg")))


class _Batch(NamedTuple):
    """Raw documents, and whether there may be more after them."""

    documents: list[bytes]
    has_more: bool


class _Reading:
    """Reads one page. is_ordered: in the order of `_id`."""

    def __init__(self, source: Documents, client: ClientInfo, asked: _Asked, end_s: float) -> None:
        self._source = source
        self._client = client
        self._asked = asked
        self._end_s = end_s
        collection = source.stored_collection(asked)
        self._collection = collection if collection is not None and collection.time_series is None else None
        self.is_ordered = self._collection is not None

    async def batch(self) -> _Batch:
        """The documents of the page, and one after it if it is there."""
        place = self._asked.place
        if self._collection is None:
            return await self._find({}, place.skip, PAGE_DOCUMENTS + 1)
        if place.after is MISSING:
            return await self._find({}, place.skip, PAGE_DOCUMENTS + 1)
        if place.skip > 0:
            return await self._find(_all_behind(place.after), place.skip, PAGE_DOCUMENTS + 1)
        return await self._by_type(place.after)

    async def _by_type(self, after: Value) -> _Batch:
        """What comes after an `_id`: first of its own type, then of those after it, each by a query of its own that
        uses the bounds of the index."""
        found: list[bytes] = []
        condition = _same_type_behind(after)
        type_code = type_code_of(after)
        while True:
            if condition is not None:
                batch = await self._find(condition, 0, PAGE_DOCUMENTS + 1 - len(found))
                found += batch.documents
                if batch.has_more or len(found) > PAGE_DOCUMENTS:
                    return _Batch(found, batch.has_more)
            collection = self._source.stored_collection(self._asked)
            index = None if collection is None else _id_index(collection)
            if collection is None or index is None:
                return _Batch(found, False)
            first = self._source.first_behind(collection, index, type_code)
            if first is None:
                return _Batch(found, False)
            value = get_value(first, "_id")
            condition = _same_type_from(value)
            type_code = type_code_of(value)

    async def _find(self, condition: dict[str, Value], skip: int, limit: int) -> _Batch:
        asked = self._asked
        selected: Value = {"$and": [asked.filter, condition]} if condition else asked.filter
        command: dict[str, Value] = {"filter": selected}
        if self.is_ordered:
            command["sort"] = {"_id": 1}
        command |= {"skip": Int64(skip), "limit": limit, "batchSize": limit}
        return await self._source.read(self._client, asked, command, self._end_s)

    def following(self, documents: list[bytes]) -> Place:
        """Where the page after these documents begins; there is at least one."""
        place = self._asked.place
        collection = self._collection
        if collection is None:
            return Place(MISSING, place.skip + len(documents))
        # Documents at the end that cannot be named by their `_id`: it is too long, or the one after it may be equal.
        unnamed = 0 if collection.has_unique_ids else _run_length(collection, documents)
        while unnamed < len(documents):
            named = documents[len(documents) - 1 - unnamed]
            value = get_value(named, "_id")
            if value is not MISSING and len(encode({"": value})) <= _MAX_ID_BYTES:
                return Place(value, unnamed)
            unnamed += 1
        return Place(place.after, place.skip + unnamed)


def _id_index(collection: Collection) -> CollectionIndex | None:
    return next((index for index in collection.indexes if index.descriptor.is_id and index.has_keys), None)


def id_key(collection: Collection, document: bytes) -> bytes | None:
    """The key of a document's `_id`; None if it has none."""
    type_code, pos = find_field(document, b"_id")
    return None if type_code == 0 else encode_raw(document, type_code, pos, False, collection.collation)


def _run_length(collection: Collection, documents: list[bytes]) -> int:
    """How many documents at the end have the same `_id`."""
    keys = [id_key(collection, document) for document in documents]
    return next((count for count, key in enumerate(reversed(keys)) if key != keys[-1]), len(keys))


def _same_type_behind(after: Value) -> dict[str, Value] | None:
    """The condition for an `_id` after this one that a query can compare with it; None if there is none."""
    if type_code_of(after) in _SINGLE:
        return None
    if _is_nan(after):  # the first of the numbers, than which a query finds none greater
        return {"_id": {"$gte": float("-inf")}}
    return {"_id": {"$gt": after}}


def _same_type_from(first: Value) -> dict[str, Value]:
    """The condition for an `_id` from this one on that a query can compare with it."""
    if first is MISSING:
        return {"_id": {"$exists": False}}
    if type_code_of(first) in _SINGLE:
        return {"_id": {"$type": type_name(type_code_of(first))}}
    if _is_nan(first):
        return {"$or": [{"_id": {"$eq": first}}, {"_id": {"$gte": float("-inf")}}]}
    return {"_id": {"$gte": first}}


def _is_nan(value: Value) -> bool:
    if isinstance(value, Decimal128):
        return bool(value.to_decimal().is_nan())
    return isinstance(value, float) and isnan(value)


def _all_behind(after: Value) -> dict[str, Value]:
    """The condition for any `_id` after this one."""
    bracket = bracket_of(after)
    later_types = [type_name(code) for code in BSON_TYPES if bracket_of_type(code) > bracket]
    conditions = [condition for condition in (_same_type_behind(after),) if condition is not None]
    if later_types:
        conditions.append({"_id": {"$type": later_types}})
    return {"$or": conditions} if conditions else {"_id": {"$in": []}}


def _parse(body: bytes) -> _Asked:
    """A request. RefusedError for what is none."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or asked.keys() - {"database", "collection", "filter", "page"}:
        raise RefusedError(400, "an object with database, collection, filter and page is needed")
    database, collection = asked.get("database"), asked.get("collection")
    given, page = asked.get("filter", ""), asked.get("page")
    if not isinstance(database, str) or not isinstance(collection, str) or not isinstance(given, str):
        raise RefusedError(400, "database, collection and filter have to be text")
    return _Asked(database, collection, _parse_filter(given), _parse_place(page))


def _parse_filter(given: str) -> bytes:
    """A filter of a query, from Extended JSON; "" selects everything. RefusedError for what is none."""
    try:
        parsed = _FILTERS.decode(given) if given.strip() else encode_fields([])
    except json.JSONDecodeError as error:
        raise RefusedError(400, f"the filter is no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise RefusedError(400, "the filter has too many levels") from None
    except CONVERSION_ERRORS as error:
        raise RefusedError(400, f"the filter is no Extended JSON: {error}") from None
    if not isinstance(parsed, bytes):
        raise RefusedError(400, "the filter has to be an object")
    try:
        validate_document(parsed)
    except CONVERSION_ERRORS as error:
        raise RefusedError(400, f"the filter is refused: {error}") from None
    script = _script_in(parsed, 0)
    if script is not None:
        raise RefusedError(400, f"{script} runs a script, which this page does not")
    return parsed


def _script_in(buf: bytes, start: int) -> str | None:
    """The name of the first field, at any depth, that runs a script."""
    cursor = ElementCursor(buf, start)
    while cursor.next():
        name = cursor.name()
        if name in _SCRIPTS:
            return name
        if cursor.type_code in (DOCUMENT, ARRAY):
            found = _script_in(buf, int(cursor.value))
            if found is not None:
                return found
    return None


def _name(place: Place) -> str:
    """The text by which the browser asks for a page."""
    named: list[tuple[str, Value]] = [("skip", Int64(place.skip))]
    if place.after is not MISSING:
        named.append(("after", place.after))
    return base64.b64encode(encode_fields(named)).decode()


def _parse_place(page: object) -> Place:
    """What `_name` has written; None is the first page. RefusedError for anything else."""
    if page is None:
        return Place()
    try:
        named = base64.b64decode(page, validate=True) if isinstance(page, str) else b""
        validate_document(named)
        members = fields_by_name(named)
        skip = members.pop("skip")
        after = members.pop("after", MISSING)
        if isinstance(skip, Int64) and 0 <= skip <= _MAX_SKIP and not members:
            return Place(after, int(skip))
    except CONVERSION_ERRORS:
        pass
    raise RefusedError(400, "there is no such page")


def _as_json(values: dict[str, object]) -> Response:
    return Response(200, "application/json", json.dumps(values, separators=(",", ":")).encode())
