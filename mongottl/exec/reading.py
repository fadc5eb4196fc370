"""Sources of pages for cursors: records of a plan, and the results of a pipeline."""

from mongottl.catalog.collection import Collection
from mongottl.document.annotated import metadata_of
from mongottl.document.build import EMPTY_DOCUMENT, encode_fields
from mongottl.document.nesting import MAX_RESULT_LEVELS, too_deep
from mongottl.document.types import Int64, Value
from mongottl.document.walk import fields, is_deeper
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.cursors import DEFAULT_FIRST_BATCH, ClientCursor, Page, PageSource
from mongottl.exec.stages import PlanStage
from mongottl.query.match import MatchDetails, MatchExpression
from mongottl.query.metadata import INDEX_KEY
from mongottl.query.pipeline import DocumentSource
from mongottl.query.projection import Projection
from mongottl.storage.interface import Record
from mongottl.ttl.policy import NEVER_AT_S, NO_TTL, expires_at_s, is_expired


class RecordPages(PageSource):
    """Documents of a plan's records, projected when they are handed out.

    Records wait unprojected between two pages, so that one that expires meanwhile is left out.
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
        self._waiting: list[Record] = []
        self._position = 0

    def fill(self, op: OperationContext, page: Page) -> bool:
        if self._position >= len(self._waiting):
            batch = self._stage.next_batch(op)
            if batch is None:
                return False
            self._waiting = batch
            self._position = 0
            return self._hand_out(op, page, False)
        return self._hand_out(op, page, True)

    def _hand_out(self, op: OperationContext, page: Page, waited: bool) -> bool:
        default_ttl_s = NO_TTL if self._collection is None or not waited else self._collection.default_ttl_s
        records = self._waiting
        place = self._position
        while place < len(records) and self._left != 0:
            if page.is_full():
                break
            record = records[place]
            if default_ttl_s == NO_TTL or not is_expired(record[2], record[3], default_ttl_s, op.now_s):
                if not page.add(self.shown(record)):
                    break
                self._left -= 1
            place += 1
        self._position = place
        return self._left != 0

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


class Pull:
    """Who pulls documents through a pipeline right now, and how many are still needed.

    op: the command; a later getMore is another one, with another time. wanted: documents that the page still lacks
    where the stages hand documents on one by one, else 0 for any number. page: what is being filled where they do.
    full: set if the next document would not fit. multiplying: some stage makes several documents of one.
    """

    def __init__(self, op: OperationContext, streaming: bool, multiplying: bool) -> None:
        self.op = op
        self.wanted = 0
        self.page = Page(0)
        self.full = False
        self.streaming = streaming
        self.multiplying = multiplying


class PipelinePages(PageSource):
    """The results of a pipeline."""

    def __init__(self, source: DocumentSource, pull: Pull) -> None:
        self._source = source
        self._pull = pull
        self._waiting: list[bytes] = []
        self._position = 0

    def fill(self, op: OperationContext, page: Page) -> bool:
        if self._position >= len(self._waiting):
            self._pull.op = op
            if self._pull.streaming:
                self._pull.wanted = page.missing()
                self._pull.page = page
                self._pull.full = False
            batch = self._source.next_batch()
            if batch is None:
                return False
            self._waiting = batch
            self._position = 0
            if self._pull.full:
                page.close()
        while self._position < len(self._waiting):
            document = self._waiting[self._position]
            if is_deeper(document, 0, MAX_RESULT_LEVELS):
                raise too_deep()
            if not page.add(document):
                return True
            self._position += 1
        return True

    def close(self) -> None:
        self._source.close()


class PlanDocuments(DocumentSource):
    """The documents of a plan's records, as the first stage of a pipeline.

    Records wait here rather than documents further on, so that one that expires before it is pulled is left out.
    rationed: no more is handed out than the page lacks; else all that there is, for a stage that collects it.
    """

    def __init__(self, stage: PlanStage, collection: Collection | None, pull: Pull, rationed: bool) -> None:
        self._stage = stage
        self._collection = collection
        self._pull = pull
        self._rationed = rationed and pull.streaming
        self._waiting: list[Record] = []
        self._position = 0
        self._first_expiry_s: int = NEVER_AT_S

    def next_batch(self) -> list[bytes] | None:
        if self._position >= len(self._waiting):
            batch = self._stage.next_batch(self._pull.op)
            if batch is None:
                return None
            self._waiting = batch
            self._position = 0
        default_ttl_s = NO_TTL if self._collection is None else self._collection.default_ttl_s
        records = self._ration(default_ttl_s != NO_TTL)
        if default_ttl_s == NO_TTL:
            return [record[1] for record in records]
        now_s = self._pull.op.now_s
        documents: list[bytes] = []
        for _, document, ts_s, ttl_s in records:
            due_s = expires_at_s(ts_s, ttl_s, default_ttl_s)
            if now_s < due_s:
                documents.append(document)
                self._first_expiry_s = min(self._first_expiry_s, due_s)
        return documents

    def _ration(self, mortal: bool) -> list[Record]:
        """The next of those that wait. mortal: they may expire, and then what waits further on cannot be helped."""
        waiting = self._waiting
        start = self._position
        end = len(waiting)
        pull = self._pull
        if self._rationed:
            if pull.wanted:
                end = min(end, start + pull.wanted)
            if mortal:
                most = min(end, start + 1) if pull.multiplying else end
                end = pull.page.fitting(waiting, start, most)
                pull.full = end == start < most
        self._position = end
        return waiting[start:end] if end - start < len(waiting) else waiting

    def close(self) -> None:
        self._stage.close()

    def is_outdated(self) -> bool:
        return self._pull.op.now_s >= self._first_expiry_s


def first_reply(
    op: OperationContext, cursor: ClientCursor, batch_size: int, keep: bool = True
) -> Steps[dict[str, Value]]:
    """Fills a cursor's first batch and keeps the cursor open if there may be more.

    batch_size: -1 for mongod's 101 documents; 0 opens the cursor without reading. keep: False for `singleBatch`.
    """
    page: list[bytes] = []
    if batch_size != 0:
        try:
            page = yield from cursor.next_page(op, DEFAULT_FIRST_BATCH if batch_size < 0 else batch_size)
        except BaseException:
            cursor.close()
            raise
    op.service.metrics.documents["returned"] += len(page)
    if cursor.exhausted or not keep:
        cursor.close()
        cursor_id = 0
    else:
        cursor.time_left_s = op.time_left_s()
        cursor_id = op.service.cursors.register(cursor)
    return {"cursor": {"firstBatch": page, "id": Int64(cursor_id), "ns": cursor.namespace}}
