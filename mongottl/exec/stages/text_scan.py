"""The stage of a `$text` search: TEXT_MATCH over the postings of its terms.

    TEXT_MATCH ─ FETCH ─ OR ─ IXSCAN, IXSCAN, …      without `textScore`: the records of one term after the other
    TEXT_MATCH ─ TEXT_OR ─ IXSCAN, IXSCAN, …         with `textScore`: all postings first, then the records

These are the stages that explain shows; here they are one. With scores, the postings are read in bounded batches and
their scores added up by record; the records are read when they are returned. The scores are kept as a sort keeps its
entries: beyond its memory limit they go to temporary files, or the query fails (292) where it must not use the disk.
"""

import struct
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index_kinds.text import SCORE_BYTES
from mongottl.catalog.key_ranges import keys_with_prefix
from mongottl.document.annotated import annotated
from mongottl.document.freeing import freed_in_slices, put_aside
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.liveness import unexpired
from mongottl.exec.stages.record_ids import RecordIdSet
from mongottl.exec.stages.stage import (
    BATCH,
    BATCH_BYTES,
    PlanNode,
    PlanStage,
    StageCounters,
    check_index,
    next_batch_size,
)
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.query.fulltext.search import TextSearch
from mongottl.query.match import MatchExpression
from mongottl.query.metadata import TEXT_SCORE
from mongottl.query.sorter import Sorter
from mongottl.query.spill import SpillSpace
from mongottl.storage.stores import Record

# Postings that one call reads while it only adds up scores.
POSTINGS: Final = 4 * BATCH
# Records whose scores are summed before they are handed to the sorter, in one go.
SCORES_AT_ONCE: Final = 4096
# Approximate memory of one.
_SCORE_BYTES: Final = 120


class TextStage(PlanStage):
    """The documents that match a `$text` search.

    prefixes: the key prefix of each term. rest: the other conditions of the filter, or None. scored: whether to attach
    `textScore` to documents. prefix: the equalities on the paths before the text, for explain's `indexPrefix`.
    """

    def __init__(
        self,
        collection: Collection,
        index: CollectionIndex,
        search: TextSearch,
        prefixes: list[bytes],
        rest: MatchExpression | None,
        scored: bool,
        prefix: dict[str, Value],
    ) -> None:
        super().__init__()
        self._collection = collection
        self._index = index
        self._search = search
        self._prefixes = prefixes
        self._rest = rest
        self._scored = scored
        self._prefix = prefix
        self._generation = collection.generation
        self._used = False
        self._term = 0
        self._after: tuple[bytes, int] | None = None
        self._size = BATCH
        self._keys_of_term: list[int] = [0] * len(prefixes)
        self._seen = RecordIdSet()
        # The scores of the latest postings by record id; those before them are in the sorter, several to a record.
        self._scores: dict[int, float] = {}
        self._sorter: Sorter | None = None
        self._space: SpillSpace | None = None
        self._collected = False
        # Records whose scores are complete and that are not fetched yet; and the record whose score may go on.
        self._ranked: list[tuple[int, float]] = []
        self._last: tuple[int, float] | None = None
        self._fetched = 0
        self._matched = 0

    def set_spill_space(self, space: SpillSpace | None) -> None:
        """Where scores go that do not fit into memory; None if the disk must not be used."""
        self._space = space

    def check_indexes(self) -> None:
        check_index(self._collection, self._index)

    def pull(self, op: OperationContext) -> list[Record] | None:
        collection = self._collection
        if collection.generation != self._generation or collection.dropped:
            check_index(collection, self._index)
            self._generation = collection.generation
        if not self._used:
            self._used = True
            self._index.accesses += 1
        started_s = op.service.monotonic_s()
        if self._scored:
            if not self._collected:
                self._collect(op)
                if op.was_left:
                    check_index(collection, self._index)
                return []
            sorter = self._sorter
            if sorter is not None and sorter.pending:
                sorter.work()
                return []
            records = self._next_scored(op.recovery_unit)
        else:
            records = self._next_found(op.recovery_unit)
        if op.was_left:
            check_index(collection, self._index)
        if records is None:
            return None
        records = self._passing(records)
        self._size = next_batch_size(op, self._size, started_s)
        return unexpired(collection, records, op.now_s)

    def _next_found(self, unit: RecoveryUnit) -> list[Record] | None:
        """The records of the next postings, each record once."""
        if self._term >= len(self._prefixes):
            return None
        key_range = keys_with_prefix(self._prefixes[self._term])
        rows, more = unit.index(self._index).scan_fetch(
            unit.records(self._collection), key_range, self._after, self._size, BATCH_BYTES
        )
        self._advance(len(rows), more, None if not rows else (rows[-1][0], rows[-1][1]))
        records: list[Record] = []
        for row in rows:
            if self._seen.add(row[1]):
                records.append(row[1:])
        return records

    def _collect(self, op: OperationContext) -> None:
        """Adds up the scores of the next postings. QueryExceededMemoryLimitNoDiskUseAllowed (292) for too many."""
        sorter = self._sorter
        if sorter is None:
            sorter = Sorter(0, op.service.limits.sort_bytes, self._space, op.resources.memory)
            self._sorter = sorter
        if sorter.pending:
            sorter.work()
            return
        scores = self._scores
        if self._term >= len(self._prefixes) or len(scores) >= SCORES_AT_ONCE:
            self._hand_over(sorter)
            if self._term >= len(self._prefixes) and not scores and not sorter.pending:
                sorter.finish()
                self._collected = True
            return
        prefix = self._prefixes[self._term]
        at = len(prefix)
        key_range = keys_with_prefix(prefix)
        data = op.recovery_unit.index(self._index)
        rows, more = data.scan(key_range, self._after, POSTINGS, BATCH_BYTES)
        self._advance(len(rows), more, None if not rows else rows[-1])
        for key, record_id in rows:
            score = float(struct.unpack(">d", key[at : at + SCORE_BYTES])[0])
            scores[record_id] = scores.get(record_id, 0.0) + score

    def _hand_over(self, sorter: Sorter) -> None:
        """Moves the scores to the sorter, by record id."""
        for record_id, score in self._scores.items():
            sorter.add(record_id.to_bytes(8, "big"), struct.pack(">d", score), record_id)
        put_aside(self._scores)
        self._scores = {}
        sorter.check()

    def _advance(self, count: int, more: bool, last: tuple[bytes, int] | None) -> None:
        """Counts the postings that were read and moves the position after them."""
        self.examined += count
        self._keys_of_term[self._term] += count
        self._after = last
        if not more:
            self._term += 1
            self._after = None

    def _next_scored(self, unit: RecoveryUnit) -> list[Record] | None:
        if not self._ranked and not self._rank():
            return None
        part = self._ranked[: self._size]
        records, taken = unit.records(self._collection).find_records([rid for rid, _ in part], BATCH_BYTES)
        del self._ranked[:taken]
        scores = dict(part)
        return [
            (record_id, annotated(document, TEXT_SCORE, scores[record_id]), ts_s, ttl_s)
            for record_id, document, ts_s, ttl_s in records
        ]

    def _rank(self) -> bool:
        """Takes the next records with their whole scores from the sorter; False if there are no more."""
        sorter = self._sorter
        assert sorter is not None
        ranked = self._ranked
        last = self._last
        while not ranked:
            entries = sorter.take(BATCH)
            for _, _, packed, record_id, _, _ in entries:
                score = float(struct.unpack(">d", packed)[0])
                if last is not None and last[0] == record_id:
                    last = (record_id, last[1] + score)
                else:
                    if last is not None:
                        ranked.append(last)
                    last = (record_id, score)
            if not entries:
                if last is not None:
                    ranked.append(last)
                last = None
                break
        self._last = last
        return bool(ranked)

    def _passing(self, records: list[Record]) -> list[Record]:
        self._fetched += len(records)
        search = self._search
        if not search.is_decided_by_terms:
            records = [record for record in records if search.matches(record[1])]
        self._matched += len(records)
        rest = self._rest
        return records if rest is None else [record for record in records if rest.matches(record[1])]

    def gives_current_records(self) -> bool:
        # With scores, the postings were read in earlier calls.
        return not self._scored

    def held_bytes(self) -> int:
        held = self._seen.held_bytes() + _SCORE_BYTES * (len(self._scores) + len(self._ranked))
        return held if self._sorter is None else held + self._sorter.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self._sorter is not None and self._sorter.spill(space)

    def close(self) -> None:
        put_aside(self._scores)
        self._scores = {}
        self._ranked = []
        self._seen = RecordIdSet()
        if self._sorter is not None:
            self._sorter.close()

    def node(self) -> PlanNode:
        scans = freed_in_slices([self._scan_node(i) for i in range(len(self._prefixes))])
        inner = self.counters(self.examined)
        inner.returned = self._fetched
        if self._scored:
            inner.extra = {"docsExamined": self._fetched}
            found = PlanNode("TEXT_OR", {}, scans, inner)
        else:
            inner.extra = {"docsExamined": self._fetched, "alreadyHasObj": 0}
            below = scans
            if len(scans) != 1:
                union = self.counters(self.examined)
                union.returned = self._fetched
                union.extra = {"dupsTested": self.examined, "dupsDropped": self.examined - self._fetched}
                below = [PlanNode("OR", {}, scans, union)]
            found = PlanNode("FETCH", {}, below, inner)
        matched = self.counters(self._fetched)
        matched.returned = self._matched
        matched.extra = {"docsRejected": self._fetched - self._matched}
        details: dict[str, Value] = {
            "indexPrefix": self._prefix,
            "indexName": self._index.name,
            "parsedTextQuery": self._search.describe(),
            "textIndexVersion": self._index.descriptor.option("textIndexVersion"),
        }
        node = PlanNode("TEXT_MATCH", details, [found], matched)
        if self._rest is None:
            return node
        rest = self.counters(self._matched)
        rest.extra = {"docsExamined": self._matched, "alreadyHasObj": self._matched}
        return PlanNode("FETCH", {}, [node], rest, self._rest)

    def _scan_node(self, term: int) -> PlanNode:
        index = self._index
        descriptor = index.descriptor
        keys = self._keys_of_term[term]
        counters = StageCounters()
        counters.examined = keys
        counters.returned = keys
        counters.exhausted = self._term > term
        counters.extra = {"keysExamined": keys, "seeks": int(self._used), "dupsTested": 0, "dupsDropped": 0}
        bounds: dict[str, Value] = {}
        details: dict[str, Value] = {
            "keyPattern": descriptor.key,
            "indexName": index.name,
            "isMultiKey": index.multikey,
            "isUnique": descriptor.unique,
            "isSparse": descriptor.sparse,
            "isPartial": descriptor.partial_filter is not None,
            "indexVersion": 2,
            "direction": "backward",
            "indexBounds": bounds,
        }
        return PlanNode("IXSCAN", details, [], counters)
