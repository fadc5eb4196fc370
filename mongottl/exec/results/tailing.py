"""Tailable cursors: scans of a capped collection that continue when documents are inserted.

    find {tailable}                 …documents…   at the end of the data the cursor stays open
    getMore                         documents inserted since then, or an empty batch
    getMore, if also {awaitData}    waits for an insert, up to `maxTimeMS` or one second

An insert wakes the getMores that wait for its collection; there is no polling. Source: MongoDB's "Tailable Cursors"
page.
"""

from typing import Final

from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.cursors import ClientCursor, Page, Tail
from mongottl.exec.running.signal import Signal

# How long the getMore of an awaitData cursor waits without `maxTimeMS`.
DEFAULT_AWAIT_S: Final = 1.0


def await_page(op: OperationContext, cursor: ClientCursor, tail: Tail, wanted: int, seconds: float) -> Page:
    """Waits for the next page of a tailable cursor at the end of its data; empty if there is no new data in time.

    Dropping its collection or closing the cursor ends the wait too, with the errors of `ClientCursor.check_alive`.
    """
    clock = op.service.clock
    registry = op.service.cursors
    until_s = clock.monotonic_s() + seconds
    op.lift_time_bound()  # a stream waits on while tests move the clock
    signal = Signal()
    cursor.signal = signal
    op.waits_for = signal
    registry.add_waiting(tail.source, signal)
    try:
        # A kill may have come while the first page was read, when there was no signal.
        cursor.check_alive()
        op.check_interrupt()
        while (left_s := until_s - clock.monotonic_s()) > 0:
            op.wait(left_s, signal)
            cursor.check_alive()
            op.check_interrupt()
            is_over = not signal.notified  # time is up, the client has sent another message, or the server stops
            if is_over and not tail.must_look(op):
                tail.waited(op)
                break
            signal.clear()
            op.refresh_now()
            page = cursor.next_page(op, wanted)
            if page.count:
                return page
            if is_over:
                break
    finally:
        cursor.signal = None
        op.waits_for = None
        registry.remove_waiting(tail.source, signal)
    return Page(wanted)
