"""Sources of pages for cursors: records of a plan, and the results of a pipeline."""

from mongottl.catalog.collection import Collection
from mongottl.document.types import Int64, Value
from mongottl.exec.context import OperationContext, Steps
from mongottl.exec.cursors import DEFAULT_FIRST_BATCH, ClientCursor, Page, PageSource
from mongottl.exec.stages import PlanStage
from mongottl.query.match import MatchDetails, MatchExpression
from mongottl.query.pipeline import DocumentSource
from mongottl.query.projection import Projection
from mongottl.storage.interface import Record
from mongottl.ttl.policy import NO_TTL, is_expired


class RecordPages(PageSource):
    """Documents of a plan's records, projected when they are handed out.

    Records wait unprojected between two pages, so that one that expires meanwhile is left out.
    limit: how many documents at most, 0 for all. match: needed where the projection uses the positional `$`.
    """

    def __init__(
        self,
        stage: PlanStage,
        collection: Collection | None,
        projection: Projection | None,
        match: MatchExpression,
        limit: int = 0,
    ) -> None:
        self._stage = stage
        self._collection = collection
        self._projection = projection
        self._match = match
        self._left = limit if limit > 0 else -1
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
                if not page.add(self.project(record[1])):
                    break
                self._left -= 1
            place += 1
        self._position = place
        return self._left != 0

    def project(self, document: bytes) -> bytes:
        projection = self._projection
        if projection is None:
            return document
        if not projection.needs_positional:
            return projection.apply(document, None)
        details = MatchDetails()
        self._match.matches_positional(document, details)
        return projection.apply(document, details)


class Pull:
    """Who pulls documents through a pipeline right now, and how many are still needed.

    op: the command; a later getMore is another one, with another time. wanted: documents that the page still lacks
    where the stages hand documents on one by one, else 0 for any number.
    """

    def __init__(self, op: OperationContext, streaming: bool) -> None:
        self.op = op
        self.wanted = 0
        self.streaming = streaming


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
            batch = self._source.next_batch()
            if batch is None:
                return False
            self._waiting = batch
            self._position = 0
        while self._position < len(self._waiting):
            if not page.add(self._waiting[self._position]):
                return True
            self._position += 1
        return True

    def close(self) -> None:
        self._source.close()


class PlanDocuments(DocumentSource):
    """The documents of a plan's records, as the first stage of a pipeline.

    Records wait here rather than documents further on, so that one that expires before it is pulled is left out.
    """

    def __init__(self, stage: PlanStage, collection: Collection | None, pull: Pull) -> None:
        self._stage = stage
        self._collection = collection
        self._pull = pull
        self._waiting: list[Record] = []
        self._position = 0

    def next_batch(self) -> list[bytes] | None:
        op = self._pull.op
        wanted = self._pull.wanted
        if self._position < len(self._waiting):
            return self._from_waiting(op, wanted)
        batch = self._stage.next_batch(op)
        if batch is None:
            return None
        if wanted == 0 or len(batch) <= wanted:
            return [record[1] for record in batch]
        self._waiting = batch
        self._position = wanted
        return [record[1] for record in batch[:wanted]]

    def _from_waiting(self, op: OperationContext, wanted: int) -> list[bytes]:
        end = self._position + wanted if wanted else len(self._waiting)
        records = self._waiting[self._position : end]
        self._position = end
        default_ttl_s = NO_TTL if self._collection is None else self._collection.default_ttl_s
        return [
            record[1]
            for record in records
            if default_ttl_s == NO_TTL or not is_expired(record[2], record[3], default_ttl_s, op.now_s)
        ]


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
        cursor_id = op.service.cursors.register(cursor)
    return {"cursor": {"firstBatch": page, "id": Int64(cursor_id), "ns": cursor.namespace}}
