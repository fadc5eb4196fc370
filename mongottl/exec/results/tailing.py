"""Tailable cursors: scans of a capped collection that go on where they were when more documents have come.

    find {tailable}                 …documents…   nothing more for now: the cursor stays open
    getMore                         what has come since, or an empty page
    getMore, if also {awaitData}    waits for something to come, for `maxTimeMS` or a second

An insert wakes those that wait for its collection; nobody polls. Source: MongoDB's "Tailable Cursors" page.
"""

from typing import Final

from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.signal import Signal
from mongottl.exec.operation.steps import Steps, Wait
from mongottl.exec.results.cursors import ClientCursor, Page

# How long an awaitData cursor waits if its getMore does not say.
DEFAULT_AWAIT_S: Final = 1.0


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
