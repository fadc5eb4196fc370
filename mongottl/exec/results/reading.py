"""Sources of pages for cursors: records of a plan, and the results of a pipeline."""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.document.annotated import STORED_AS, annotated, metadata_of
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.nesting import MAX_RESULT_LEVELS, too_deep
from mongottl.document.types import Int64, Value
from mongottl.document.walk import fields, is_deeper
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.steps import Steps
from mongottl.exec.results.cursors import DEFAULT_FIRST_BATCH, ClientCursor, Page, PageSource
from mongottl.exec.stages.liveness import ReadMark, living_ids
from mongottl.exec.stages.stage import BATCH, PlanStage
from mongottl.query.match import MatchDetails, MatchExpression
from mongottl.query.metadata import INDEX_KEY
from mongottl.query.pipeline import DocumentSource
from mongottl.query.projection import Projection
from mongottl.storage.interface import Record
from mongottl.ttl.policy import NEVER_AT_S, NO_TTL, expires_at_s

# What a cursor keeps at most of a batch that a page had no more room for, where its plan can read it again.
KEPT_BYTES: Final = 1 << 20


def _put_back(op: OperationContext, stage: PlanStage, records: list[Record]) -> bool:
    """Has a plan read these records again, which it has just given, if they would take much to keep."""
    size = 0
    for record in records:
        size += len(record[1])
        if size > KEPT_BYTES:
            return stage.put_back(op, records)
    return False


class RecordPages(PageSource):
    """Documents of a plan's records, projected when they are handed out.

    A cursor keeps no more than KEPT_BYTES of what it has read ahead, but for what a plan cannot read again, which is a
    batch at most. Records wait unprojected, so that one that is dead by then is left out (`liveness`).
    limit: how many documents at most, 0 for all. match: needed where the projection uses the positional `$`.
    keys_alone: whether the keys by which an index found the documents are given in their place. record_ids: whether
    each has its record's id in it, as `$recordId`.
    """

    def __init__(
        self,
        stage: PlanStage,
        collection: Collection | None,
        projection: Projection | None,
        match: MatchExpression,
        limit: int = 0,
        keys_alone: bool = False,
        record_ids: bool = False,
    ) -> None:
        self._stage = stage
        self._collection = collection
        self._projection = projection
        self._match = match
        self._left = limit if limit > 0 else -1
        self._keys_alone = keys_alone
        self._record_ids = record_ids
        # Records that did not fit the page before, from the position on, and when they were read.
        self._waiting: list[Record] = []
        self._position = 0
        self._mark: ReadMark | None = None

    def fill(self, op: OperationContext, page: Page) -> bool:
        if self._waiting:
            self._hand_out_waiting(op, page)
            return self._left != 0
        batch = self._stage.next_batch(op)
        if batch is None:
            return False
        given = self._hand_out(page, batch)
        if given < len(batch) and self._left != 0 and not _put_back(op, self._stage, batch[given:]):
            self._waiting = batch[given:]
            self._position = 0
            if self._collection is not None:
                self._mark = ReadMark(self._collection, op)
        return self._left != 0

    def _hand_out_waiting(self, op: OperationContext, page: Page) -> None:
        """Hands out those of the waiting records that live; no more of them are judged than the page has room for."""
        waiting = self._waiting
        start = self._position
        end = len(waiting)
        if page.wanted:
            end = min(end, start + page.missing())
        records = waiting[start:end]
        if self._mark is not None:
            records = self._mark.living(op, records)
        given = self._hand_out(page, records)
        if given < len(records):
            self._waiting = records[given:] + waiting[end:]
            self._position = 0
        elif end < len(waiting):
            self._position = end
        else:
            self._waiting = []
            self._mark = None

    def _hand_out(self, page: Page, records: list[Record]) -> int:
        """Adds documents until the page or the limit is reached; how many records that took."""
        place = 0
        while place < len(records) and self._left != 0 and not page.is_full():
            if not page.add(self.shown(records[place])):
                break
            self._left -= 1
            place += 1
        return place

    def close(self) -> None:
        self._stage.close()

    def shown(self, record: Record) -> bytes:
        """The document as the client gets it."""
        if self._keys_alone:
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
    """A collection that documents of a pipeline were read from, and when the first of them were."""

    def __init__(self, mark: ReadMark) -> None:
        self.mark = mark
        self.first_expiry_s: int = NEVER_AT_S

    def note_expiry(self, due_s: int) -> None:
        """One of the documents dies then, as far as is known."""
        if due_s < self.first_expiry_s:
            self.first_expiry_s = due_s

    def is_outdated(self, op: OperationContext) -> bool:
        """Whether one of the documents may have died since it was read."""
        mark = self.mark
        return not mark.is_current(op) and (op.now_s >= self.first_expiry_s or not mark.is_unchanged())


_NO_PAGE: Final = Page(0)


class Pull:
    """Who pulls documents through a pipeline right now, and how many are still needed.

    op: the command; a later getMore is another one, with another time. wanted: documents that the page still lacks
    where the stages hand documents on one by one, else 0 for any number. page: what is being filled where they do.
    full: set if the next document would not fit.
    keeping_track: whether documents may wait in the pipeline for a later page. Then each carries which record it stems
    from (STORED_AS), and origins has the collections of these records by their numbers.
    """

    def __init__(self, op: OperationContext, streaming: bool, keeping_track: bool) -> None:
        self.op = op
        self.wanted = 0
        self.page = _NO_PAGE
        self.full = False
        self.streaming = streaming
        self.keeping_track = keeping_track
        self.origins: dict[int, Origin] = {}

    def origin(self, mark: ReadMark) -> Origin:
        """The origin of documents that are read from a collection now."""
        number = mark.collection.number
        known = self.origins.get(number)
        if known is None:
            known = Origin(mark)
            self.origins[number] = known
        return known

    def living(self, documents: list[bytes]) -> list[bytes]:
        """The documents without those whose records are dead. What stems from no single record lives."""
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
    """The record of this collection that a document stems from; 0 for none."""
    stored_as = metadata_of(document).get(STORED_AS)
    if isinstance(stored_as, list) and stored_as[0] == number and isinstance(record_id := stored_as[1], int):
        return record_id
    return 0


class PipelinePages(PageSource):
    """The results of a pipeline. Those of records that are dead when they are handed out are left out."""

    def __init__(self, source: DocumentSource, pull: Pull) -> None:
        self._source = source
        self._pull = pull
        self._waiting: list[bytes] = []
        self._position = 0

    def fill(self, op: OperationContext, page: Page) -> bool:
        pull = self._pull
        pull.op = op
        if self._position >= len(self._waiting):
            if pull.streaming:
                pull.wanted = page.missing()
                pull.page = page
                pull.full = False
            batch = self._source.next_batch()
            pull.page = _NO_PAGE  # between two commands nothing is to hold the documents that were sent
            if batch is None:
                return False
            self._waiting = batch
            self._position = 0
            if pull.full:
                page.close()
        end = self._judge(page) if pull.origins else len(self._waiting)
        while self._position < end:
            document = self._waiting[self._position]
            if is_deeper(document, 0, MAX_RESULT_LEVELS):
                raise too_deep()
            if not page.add(document):
                return True
            self._position += 1
        if end == len(self._waiting):
            self._waiting = []
            self._position = 0
        return True

    def _judge(self, page: Page) -> int:
        """Leaves dead ones out of those that wait, as far as the page has room; where those end that are judged."""
        waiting = self._waiting
        start = self._position
        end = len(waiting)
        if page.wanted:
            end = min(end, start + page.missing())
        next_ones = waiting[start:end]
        alive = self._pull.living(next_ones)
        if len(alive) == len(next_ones):
            return end
        self._waiting = alive + waiting[end:]
        self._position = 0
        return len(alive)

    def close(self) -> None:
        self._source.close()


class PlanDocuments(DocumentSource):
    """The documents of a plan's records, as the first stage of a pipeline.

    Records wait here rather than documents further on, where that will do, so that one that is dead when it is pulled
    is left out. rationed: no more is handed out than the page lacks; else all that there is, for a stage that collects
    it. tracked: its documents are those that the client gets, or what is made of each of them, so that they carry which
    record that is where they may wait in the pipeline.
    """

    def __init__(
        self, stage: PlanStage, collection: Collection | None, pull: Pull, rationed: bool, tracked: bool = False
    ) -> None:
        self._stage = stage
        self._collection = collection
        self._pull = pull
        self._rationed = rationed and pull.streaming
        self._tracked = tracked and pull.keeping_track
        self._waiting: list[Record] = []
        self._position = 0
        # Of the records that wait, and of all that were handed out while the collection had a TTL.
        self._mark: ReadMark | None = None
        self._origin: Origin | None = None

    def next_batch(self) -> list[bytes] | None:
        collection = self._collection
        op = self._pull.op
        waited = self._position < len(self._waiting)
        if not waited:
            batch = self._stage.next_batch(op)
            if batch is None:
                return None
            self._waiting = batch
            self._position = 0
            self._mark = None if collection is None else ReadMark(collection, op)
        mortal = collection is not None and collection.default_ttl_s != NO_TTL
        records = self._ration(mortal)
        rest = self._waiting[self._position :]
        if not rest or (not waited and _put_back(op, self._stage, rest)):
            self._waiting = []
            self._position = 0
        mark = self._mark
        if not mortal or mark is None:
            return [record[1] for record in records]
        return self._noted(mark, mark.living(op, records) if waited else records)

    def _noted(self, mark: ReadMark, records: list[Record]) -> list[bytes]:
        """The documents of records that are handed out and may expire later."""
        if not records:
            return []
        origin = self._origin
        if origin is None:
            origin = self._pull.origin(mark) if self._tracked else Origin(mark)
            self._origin = origin
        default_ttl_s = mark.collection.default_ttl_s
        for _, _, ts_s, ttl_s in records:
            origin.note_expiry(expires_at_s(ts_s, ttl_s, default_ttl_s))
        if not self._tracked:
            return [record[1] for record in records]
        number = mark.collection.number
        documents: list[bytes] = []
        for record_id, document, _, _ in records:
            stored_as: list[Value] = [number, record_id]
            documents.append(annotated(document, STORED_AS, stored_as))
        return documents

    def _ration(self, mortal: bool) -> list[Record]:
        """The next of those that wait. mortal: they may expire, and then as few as possible are to wait further on.

        Nor are large ones, which a plan can read again, but no other stage.
        """
        waiting = self._waiting
        start = self._position
        end = len(waiting)
        pull = self._pull
        if self._rationed:
            if pull.wanted:
                end = min(end, start + pull.wanted)
            if mortal or (start < end and len(waiting[start][1]) > KEPT_BYTES // BATCH):
                most = end
                end = pull.page.fitting(waiting, start, most)
                pull.full = end == start < most
        self._position = end
        return waiting[start:end] if end - start < len(waiting) else waiting

    def close(self) -> None:
        self._stage.close()

    def is_outdated(self) -> bool:
        return self._origin is not None and self._origin.is_outdated(self._pull.op)


def first_reply(
    op: OperationContext, cursor: ClientCursor, batch_size: int, keep: bool = True
) -> Steps[dict[str, Value]]:
    """Fills a cursor's first batch and keeps the cursor open if there may be more.

    batch_size: -1 for mongod's 101 documents; 0 opens the cursor without reading. keep: False for `singleBatch`.
    """
    page = Page(0)
    if batch_size != 0:
        try:
            page = yield from cursor.next_page(op, DEFAULT_FIRST_BATCH if batch_size < 0 else batch_size)
        except BaseException:
            cursor.close()
            raise
    op.service.metrics.documents["returned"] += page.count
    if cursor.exhausted or not keep:
        cursor.close()
        cursor_id = 0
    else:
        cursor.time_left_s = op.time_left_s()
        cursor_id = op.service.cursors.register(cursor)
    return {"cursor": {"firstBatch": page.documents(), "id": Int64(cursor_id), "ns": cursor.namespace}}
