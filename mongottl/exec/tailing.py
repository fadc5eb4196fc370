"""Tailable cursors: scans of a capped collection that go on where they were when more documents have come.

    find {tailable}                 …documents…   nothing more for now: the cursor stays open
    getMore                         what has come since, or an empty page
    getMore, if also {awaitData}    waits for something to come, for `maxTimeMS` or a second

An insert wakes those that wait for its collection; nobody polls. Source: MongoDB's "Tailable Cursors" page.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.exec.context import OperationContext, Steps, Wait
from mongottl.exec.cursors import ClientCursor, Page
from mongottl.exec.liveness import living
from mongottl.exec.signal import Signal
from mongottl.exec.stages import (
    BATCH_BYTES,
    PlanNode,
    PlanStage,
    check_alive,
    check_position,
    collection_scan_node,
    first_batch_size,
    next_batch_size,
)
from mongottl.query.match import MatchExpression
from mongottl.storage.interface import MAX_RECORD_ID, Record

# How long an awaitData cursor waits if its getMore does not say.
DEFAULT_AWAIT_S: Final = 1.0


class TailableScan(PlanStage):
    """The records of a capped collection in their order. None means: nothing more for now.

    started: whether it has come upon a living record, so that there is a position to go on from.

    A backward one, which a hint can ask for, has come to its end for good when it has given the oldest record.
    """

    def __init__(self, collection: Collection, match: MatchExpression | None, forward: bool, wanted: int) -> None:
        super().__init__()
        self._collection = collection
        self._match = match
        self._forward = forward
        self._position: int = 0 if forward else MAX_RECORD_ID
        self._size = first_batch_size(wanted, match is not None)
        self._begun = False
        self.started = False

    def pull(self, op: OperationContext) -> list[Record] | None:
        collection = self._collection
        check_alive(collection)
        if self.started:
            check_position(op, collection, self._position)
        size = self._size
        started_s = op.service.clock.monotonic_s()
        records, _ = op.recovery_unit.records(collection).scan(self._position, size, self._forward, BATCH_BYTES)
        if not records:
            return None
        if not self._begun:
            self._begun = True
            collection.scans += 1
            collection.tailable_scans += 1
        self.examined += len(records)
        self._position = records[-1][0]
        records = living(collection, records, op.now_s)
        if records:
            self.started = True
        match = self._match
        if match is not None:
            records = [record for record in records if match.matches(record[1])]
        self._size = next_batch_size(op, size, started_s)
        return records

    def node(self) -> PlanNode:
        return collection_scan_node(self._match, self._forward, self.examined, self.counters(self.examined))


class Tail:
    """What a tailable cursor knows besides its documents. await_data: whether its getMore waits for some."""

    def __init__(self, collection: Collection, scan: TailableScan, await_data: bool) -> None:
        self.collection = collection
        self.scan = scan
        self.await_data = await_data

    @property
    def is_dead(self) -> bool:
        """Whether nothing that lives was there when it looked: such a cursor has no position to go on from."""
        return not self.scan.started


def await_page(op: OperationContext, cursor: ClientCursor, number: int, wanted: int, seconds: float) -> Steps[Page]:
    """The next page of a tailable cursor that has nothing now; empty if nothing comes in time.

    number: of the collection whose inserts end the waiting. Dropping it or closing the cursor ends it as well, and the
    errors are those of `ClientCursor.check_alive`.
    """
    clock = op.service.clock
    registry = op.service.cursors
    until_s = clock.monotonic_s() + seconds
    signal = Signal()
    cursor.signal = signal
    op.waits_for = signal
    registry.add_waiting(number, signal)
    try:
        while (left_s := until_s - clock.monotonic_s()) > 0:
            yield Wait(left_s, signal)
            cursor.check_alive()
            op.check_interrupt()
            if not signal.notified:
                break  # time is up, the client has something else to say, or the server stops
            signal.clear()
            op.refresh_now()
            page = yield from cursor.next_page(op, wanted)
            if page.count:
                return page
    finally:
        cursor.signal = None
        op.waits_for = None
        registry.remove_waiting(number, signal)
    return Page(wanted)
