"""Sources from which cursors fill their pages: records of a plan, and results of a pipeline."""

from typing import Final

from librt.strings import BytesWriter

from mongottl.catalog.collection import Collection
from mongottl.document.annotated import STORED_AS, annotated, metadata_of
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.nesting import MAX_RESULT_LEVELS, too_deep
from mongottl.document.types import Int64, Value
from mongottl.document.walk import fields, is_deeper
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.cursor_memory import make_room
from mongottl.exec.results.cursors import DEFAULT_FIRST_BATCH, ClientCursor, Page, PageSource, Tail
from mongottl.exec.stages.liveness import ReadMark, living_ids
from mongottl.exec.stages.stage import BATCH, PlanStage
from mongottl.query.match import MatchDetails, MatchExpression
from mongottl.query.metadata import INDEX_KEY
from mongottl.query.pipeline import DocumentSource
from mongottl.query.projection import Projection
from mongottl.query.sorter import FileRun, entries_of, write_entry
from mongottl.query.spill import SpillSpace
from mongottl.storage.stores import Record
from mongottl.ttl.policy import NEVER_AT_S, NO_TTL, expires_at_s
from mongottl.versions import REPLY_FIELD

# Maximum bytes of read-ahead records that a cursor buffers if its plan can read them again.
KEPT_BYTES: Final = 1 << 20
# Of the documents that an idle cursor has read ahead: bytes that stay in memory, and of a part that is moved at once.
STAYING_BYTES: Final = 128 << 10
MOVED_BYTES: Final = 256 << 10


class MovedRecords:
    """Records that wait for the next page of an idle cursor, in a temporary file: a stack of parts.

    Those in memory come before those in the file, so parts are moved from their end, and are read from the last one on.
    """

    def __init__(self, space: SpillSpace) -> None:
        self._file = space.create()
        self._parts: list[FileRun] = []

    def move_last(self, records: list[Record]) -> bool:
        """Moves a part from the end of these records to the file; False if too few are left to move."""
        size = bytes_of(records)
        if size <= STAYING_BYTES:
            return False
        start = len(records)
        part_bytes = 0
        while start > 0 and part_bytes < MOVED_BYTES and size > STAYING_BYTES:
            start -= 1
            part_bytes += len(records[start][1])
            size -= len(records[start][1])
        writer = BytesWriter()
        for record_id, document, ts_s, ttl_s in records[start:]:
            write_entry(writer, (b"", 0, document, record_id, ts_s, ttl_s))
        del records[start:]
        data = writer.getvalue()
        offset = self._file.append(data)
        self._parts.append(FileRun(self._file, offset, offset + len(data)))
        return True

    def is_empty(self) -> bool:
        return not self._parts

    def take(self) -> list[Record]:
        """The part that was moved last."""
        records: list[Record] = []
        for entry in entries_of(self._parts.pop()):
            _, _, document, record_id, ts_s, ttl_s = entry
            records.append((record_id, document, ts_s, ttl_s))
        return records

    def close(self) -> None:
        self._file.close()


def bytes_of(records: list[Record]) -> int:
    return sum([len(record[1]) for record in records])


def _put_back(op: OperationContext, stage: PlanStage, records: list[Record]) -> bool:
    """Puts records that `stage` has just returned back to it, if they are larger than KEPT_BYTES; whether it did. Not
    where others may have run since: the stage finds its place again by records that may be gone."""
    if op.was_left:
        return False
    size = 0
    for record in records:
        size += len(record[1])
        if size > KEPT_BYTES:
            return stage.put_back(op, records)
    return False


class RecordPages(PageSource):
    """Documents of a plan's records, projected when they are returned.

    It buffers no more than KEPT_BYTES of records that were read ahead, or one batch if the plan cannot read them again.
    Buffered records are not projected yet, so that those that have expired by then are left out (`liveness`).
    limit: maximum documents, 0 for all. match: the filter, for projections with the positional `$`.
    return_key: whether to return index keys instead of documents. record_ids: whether to add `$recordId`.
    """

    def __init__(
        self,
        stage: PlanStage,
        collection: Collection | None,
        projection: Projection | None,
        match: MatchExpression,
        limit: int = 0,
        return_key: bool = False,
        record_ids: bool = False,
    ) -> None:
        self._stage = stage
        self._reads_now = stage.gives_current_records()
        self._collection = collection
        self._projection = projection
        self._match = match
        # Of the collection's indexes when the plan was last checked against them.
        self._generation = -1 if collection is None else collection.generation
        self._left = limit if limit > 0 else -1
        self._return_key = return_key
        self._record_ids = record_ids
        # Records that did not fit into the previous page, from the position on; `_mark`: when they were read.
        self._waiting: list[Record] = []
        self._position = 0
        self._mark: ReadMark | None = None
        # Those after them that were moved to a file.
        self._moved: MovedRecords | None = None

    def fill(self, op: OperationContext, page: Page) -> bool:
        collection = self._collection
        if collection is not None and collection.generation != self._generation:
            self._stage.check_indexes()
            self._generation = collection.generation
        if self._moved is not None and not self._waiting:
            self._waiting = self._moved.take()
            self._position = 0
            if self._moved.is_empty():
                self._moved.close()
                self._moved = None
        if self._waiting:
            self._add_waiting(op, page)
            return self._left != 0
        # Before the batch is read: others may write while it is tested and projected.
        mark = None
        if self._collection is not None:
            mark = ReadMark(self._collection, op, self._reads_now)
        batch = self._stage.next_batch(op)
        if batch is None:
            return False
        given = self._add_to_page(page, batch)
        if given < len(batch) and self._left != 0 and not _put_back(op, self._stage, batch[given:]):
            self._waiting = batch[given:]
            self._position = 0
            self._mark = mark
        return self._left != 0

    def _add_waiting(self, op: OperationContext, page: Page) -> None:
        """Adds buffered records that are not expired to the page; checks no more of them than the page needs."""
        waiting = self._waiting
        start = self._position
        end = len(waiting)
        if page.wanted:
            end = min(end, start + page.missing())
        records = waiting[start:end]
        if self._mark is not None:
            records = self._mark.unexpired(op, records)
        given = self._add_to_page(page, records)
        if given < len(records):
            self._waiting = records[given:] + waiting[end:]
            self._position = 0
        elif end < len(waiting):
            self._position = end
        else:
            self._waiting = []
            self._position = 0
            if self._moved is None:
                self._mark = None

    def _add_to_page(self, page: Page, records: list[Record]) -> int:
        """Adds documents until the page is full or the limit is reached; how many records were added."""
        count = 0
        while count < len(records) and self._left != 0 and not page.is_full():
            if not page.add(self.result_document(records[count])):
                break
            self._left -= 1
            count += 1
        return count

    def held_bytes(self) -> int:
        return bytes_of(self._waiting) + self._stage.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        if self._position:
            del self._waiting[: self._position]
            self._position = 0
        if bytes_of(self._waiting) <= STAYING_BYTES:
            return self._stage.spill(space)
        if self._moved is None:
            self._moved = MovedRecords(space)
        return self._moved.move_last(self._waiting)

    def close(self) -> None:
        if self._moved is not None:
            self._moved.close()
        self._stage.close()

    def result_document(self, record: Record) -> bytes:
        """The document as it is returned to the client: projected, or the index key for `returnKey`."""
        if self._return_key:
            key = metadata_of(record[1]).get(INDEX_KEY)
            document = key if isinstance(key, bytes) else EMPTY_DOCUMENT
        else:
            document = self.project(record[1])
        if self._record_ids:
            document = encode_fields([*fields(document), ("$recordId", Int64(record[0]))])
        return document

    def project(self, document: bytes) -> bytes:
        projection = self._projection
        if projection is None:
            return document
        details: MatchDetails | None = None
        if projection.needs_positional:
            details = MatchDetails()
            self._match.matches_positional(document, details)
        result = projection.apply(document, details)
        if is_deeper(result, 0, MAX_RESULT_LEVELS):
            raise too_deep()
        return result


class Origin:
    """A collection from which documents of a pipeline were read, and its state when the first of them were read.

    first_expiry_s: the earliest second at which one of the documents expires.
    """

    def __init__(self, mark: ReadMark) -> None:
        self.mark = mark
        self.first_expiry_s: int = NEVER_AT_S

    def add_expiry(self, due_s: int) -> None:
        """Takes the expiry time of one of the documents into account."""
        if due_s < self.first_expiry_s:
            self.first_expiry_s = due_s

    def is_outdated(self, op: OperationContext) -> bool:
        """Whether one of the documents may have expired since it was read."""
        mark = self.mark
        return not mark.is_current(op) and (op.now_s >= self.first_expiry_s or not mark.is_unchanged())


_NO_PAGE: Final = Page(0)


class Pull:
    """The command that pulls documents through a pipeline now, and how many it needs.

    op: the command's context; each getMore has another one. streaming: whether all stages process documents one by one;
    then `wanted` is how many documents the page needs (0: any number) and `page` is the page, else 0 and none.
    full: set if the next document does not fit into the page.
    tracks_records: whether stages may buffer documents for a later page. Then each document has the id of its record as
    metadata (STORED_AS), and `origins` has the records' collections by collection number.
    """

    def __init__(self, op: OperationContext, streaming: bool, tracks_records: bool) -> None:
        self.op = op
        self.wanted = 0
        self.page = _NO_PAGE
        self.full = False
        self.streaming = streaming
        self.tracks_records = tracks_records
        self.origins: dict[int, Origin] = {}

    def origin(self, mark: ReadMark) -> Origin:
        """The origin of documents that are read from the mark's collection now; created if there is none."""
        number = mark.collection.number
        known = self.origins.get(number)
        if known is None:
            known = Origin(mark)
            self.origins[number] = known
        return known

    def unexpired(self, documents: list[bytes]) -> list[bytes]:
        """The documents without those whose records are expired. Documents not made from one record are kept."""
        op = self.op
        outdated = [number for number, origin in self.origins.items() if origin.is_outdated(op)]
        for number in outdated:
            record_ids = [record_id for record_id in (_record_id(doc, number) for doc in documents) if record_id]
            if record_ids:
                alive = living_ids(op, self.origins[number].mark.collection, record_ids)
                alive.add(0)
                documents = [doc for doc in documents if _record_id(doc, number) in alive]
        return documents


def _record_id(document: bytes, number: int) -> int:
    """The id of the record of this collection from which a document was made; 0 for none."""
    stored_as = metadata_of(document).get(STORED_AS)
    if isinstance(stored_as, list) and stored_as[0] == number and isinstance(record_id := stored_as[1], int):
        return record_id
    return 0


class PipelinePages(PageSource):
    """The results of a pipeline, without those whose records are expired when they are returned."""

    def __init__(self, source: DocumentSource, pull: Pull) -> None:
        self._source = source
        self._pull = pull
        self._waiting: list[bytes] = []
        self._position = 0
        # Those after them that were moved to a file.
        self._moved: MovedRecords | None = None

    def fill(self, op: OperationContext, page: Page) -> bool:
        pull = self._pull
        pull.op = op
        if self._moved is not None and self._position >= len(self._waiting):
            self._waiting = [record[1] for record in self._moved.take()]
            self._position = 0
            if self._moved.is_empty():
                self._moved.close()
                self._moved = None
        if self._position >= len(self._waiting):
            if pull.streaming:
                pull.wanted = page.missing()
                pull.page = page
                pull.full = False
            batch = self._source.next_batch()
            pull.page = _NO_PAGE  # releases the documents that are sent now
            if batch is None:
                return False
            self._waiting = batch
            self._position = 0
            if pull.full:
                page.close()
        end = self._drop_expired(page) if pull.origins else len(self._waiting)
        while self._position < end:
            document = self._waiting[self._position]
            if is_deeper(document, 0, MAX_RESULT_LEVELS):
                raise too_deep()
            if not page.add(document):
                self._let_go_sent()
                return True
            self._position += 1
        if end == len(self._waiting):
            self._waiting = []
            self._position = 0
        return True

    def _let_go_sent(self) -> None:
        """Lets the documents go that were sent, once they are more than the others: a long list is not copied often."""
        if self._position > len(self._waiting) // 2:
            self._waiting = self._waiting[self._position :]
            self._position = 0

    def _drop_expired(self, page: Page) -> int:
        """Removes expired ones from the buffered documents that the page needs next; the end of those checked."""
        waiting = self._waiting
        start = self._position
        end = len(waiting)
        if page.wanted:
            end = min(end, start + page.missing())
        next_ones = waiting[start:end]
        alive = self._pull.unexpired(next_ones)
        if len(alive) == len(next_ones):
            return end
        self._waiting = alive + waiting[end:]
        self._position = 0
        return len(alive)

    def held_bytes(self) -> int:
        return sum(map(len, self._waiting)) + self._source.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        waiting: list[Record] = [(0, document, 0, 0) for document in self._waiting[self._position :]]
        if bytes_of(waiting) <= STAYING_BYTES:
            return self._source.spill(space)
        if self._moved is None:
            self._moved = MovedRecords(space)
        moved = self._moved.move_last(waiting)
        self._waiting = [record[1] for record in waiting]
        self._position = 0
        return moved

    def close(self) -> None:
        if self._moved is not None:
            self._moved.close()
        self._source.close()


class PlanDocuments(DocumentSource):
    """The documents of a plan's records, as the first stage of a pipeline.

    Records are buffered here rather than in later stages if possible, so that those that expire meanwhile are left out.
    limit_to_page: stop after filling the current batch; if False, return all, for a stage that collects its input.
    tracked: whether each result is made from one of these documents; they then have their record ids as metadata if
    stages may buffer them.
    """

    def __init__(
        self, stage: PlanStage, collection: Collection | None, pull: Pull, limit_to_page: bool, tracked: bool = False
    ) -> None:
        self._stage = stage
        self._reads_now = stage.gives_current_records()
        self._collection = collection
        # Of the collection's indexes when the plan was last checked against them.
        self._generation = -1 if collection is None else collection.generation
        self._pull = pull
        self._limit_to_page = limit_to_page and pull.streaming
        self._tracked = tracked and pull.tracks_records
        self._waiting: list[Record] = []
        self._position = 0
        # `_mark`: when the buffered records were read; `_origin`: of all returned while the collection had a TTL.
        self._mark: ReadMark | None = None
        self._origin: Origin | None = None
        self._moved: MovedRecords | None = None

    def held_bytes(self) -> int:
        return bytes_of(self._waiting) + self._stage.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        waiting = self._waiting[self._position :]
        if bytes_of(waiting) <= STAYING_BYTES:
            return self._stage.spill(space)
        if self._moved is None:
            self._moved = MovedRecords(space)
        moved = self._moved.move_last(waiting)
        self._waiting = waiting
        self._position = 0
        return moved

    def next_batch(self) -> list[bytes] | None:
        collection = self._collection
        if collection is not None and collection.generation != self._generation:
            self._stage.check_indexes()
            self._generation = collection.generation
        if self._moved is not None and self._position >= len(self._waiting):
            self._waiting = self._moved.take()
            self._position = 0
            if self._moved.is_empty():
                self._moved.close()
                self._moved = None
        op = self._pull.op
        waited = self._position < len(self._waiting)
        if not waited:
            self._mark = None if collection is None else ReadMark(collection, op, self._reads_now)
            batch = self._stage.next_batch(op)
            if batch is None:
                return None
            self._waiting = batch
            self._position = 0
        has_ttl = collection is not None and collection.default_ttl_s != NO_TTL
        records = self._take_records(has_ttl)
        rest = self._waiting[self._position :]
        # Those that were taken are let go: an idle cursor keeps the others alone.
        self._waiting = [] if not waited and _put_back(op, self._stage, rest) else rest
        self._position = 0
        mark = self._mark
        if not has_ttl or mark is None:
            return [record[1] for record in records]
        return self._tracked_documents(mark, mark.unexpired(op, records) if waited else records)

    def _tracked_documents(self, mark: ReadMark, records: list[Record]) -> list[bytes]:
        """The documents of records that may expire later, with their record ids as metadata if tracked."""
        if not records:
            return []
        origin = self._origin
        if origin is None:
            origin = self._pull.origin(mark) if self._tracked else Origin(mark)
            self._origin = origin
        default_ttl_s = mark.collection.default_ttl_s
        for _, _, ts_s, ttl_s in records:
            origin.add_expiry(expires_at_s(ts_s, ttl_s, default_ttl_s))
        if not self._tracked:
            return [record[1] for record in records]
        number = mark.collection.number
        documents: list[bytes] = []
        for record_id, document, _, _ in records:
            stored_as: list[Value] = [number, record_id]
            documents.append(annotated(document, STORED_AS, stored_as))
        return documents

    def _take_records(self, has_ttl: bool) -> list[Record]:
        """The next of the buffered records. If they may expire (`has_ttl`) or are large: only what fits into the page.

        So later stages buffer as little as possible: only the plan can check for expiry by record, and read again.
        """
        waiting = self._waiting
        start = self._position
        end = len(waiting)
        pull = self._pull
        if self._limit_to_page:
            if pull.wanted:
                end = min(end, start + pull.wanted)
            if has_ttl or (start < end and len(waiting[start][1]) > KEPT_BYTES // BATCH):
                last = end
                end = pull.page.fitting(waiting, start, last)
                pull.full = end == start < last
        self._position = end
        return waiting[start:end] if end - start < len(waiting) else waiting

    def close(self) -> None:
        if self._moved is not None:
            self._moved.close()
        self._stage.close()

    def is_outdated(self) -> bool:
        return self._origin is not None and self._origin.is_outdated(self._pull.op)


def first_reply(op: OperationContext, cursor: ClientCursor, batch_size: int, keep: bool = True) -> dict[str, Value]:
    """Fills a cursor's first batch and keeps the cursor open if there may be more.

    batch_size: -1 for the default of 101 documents; 0 opens the cursor without reading. keep: False for `singleBatch`.
    """
    page = Page(0)
    cursor.scripts = op.scripts
    if batch_size != 0:
        try:
            page = cursor.next_page(op, DEFAULT_FIRST_BATCH if batch_size < 0 else batch_size)
        except BaseException:
            cursor.close()
            raise
    op.service.metrics.documents["returned"] += page.count
    if cursor.exhausted or not keep:
        cursor.close()
        cursor_id = 0
    else:
        cursor.time_left_s = op.time_left_s()
        cursor.owner = op.user()
        cursor.comment = op.command.comment
        cursor.needs = op.needs
        cursor.transaction = op.session.transaction
        cursor.kept_snapshot = op.reading.snapshot
        cursor.plans = op.profile.plans
        cursor.memory = op.resources.memory
        cursor.files = op.resources.files_used
        cursor.request_bytes = op.request_bytes
        cursor_id = op.service.cursors.register(cursor)
    if cursor_id:
        make_room(op)
    reply: dict[str, Value] = {"firstBatch": page.documents()}
    if cursor.tail is not None:
        add_resume_token(op, reply, cursor.tail)
    return {"cursor": {**reply, "id": Int64(cursor_id), "ns": cursor.namespace}}


def add_resume_token(op: OperationContext, reply: dict[str, Value], tail: Tail) -> None:
    """Adds a change stream's `postBatchResumeToken`, if the announced version has it."""
    token = tail.resume_token()
    features = op.service.features
    if token and not (features is not None and features.lacks(REPLY_FIELD, "cursor.postBatchResumeToken")):
        reply["postBatchResumeToken"] = token
