"""The memory of idle cursors: one budget for all of them.

Sorts, groups and pages that were read ahead wait in memory for the next `getMore`. Where all cursors together hold more
than their budget (`--cursor-memory-mb`), the command that opened or used the last one makes room before it answers:

    1. what the cursors that were used longest ago hold is moved to temporary files, of the user first whose cursors
       hold most;
    2. if that does not suffice, or the files have become too large, the cursors that were used longest ago are closed,
       also those with noCursorTimeout. Their next `getMore` gets CursorNotFound (43), as after their timeout.
"""

from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.sessions.cursor_registry import OpenCursor
from mongottl.exec.state.temporary_files import CursorSpace


def make_room(op: OperationContext) -> None:
    """Moves data of idle cursors to files, or closes them, until all hold no more than their budget."""
    registry = op.service.cursors
    while registry.exceeds_memory:
        cursor = registry.next_to_spill()
        if cursor is None:
            break
        _spill(op, cursor)
    while registry.exceeds_memory or registry.exceeds_files:
        cursor = registry.next_to_end()
        if cursor is None:
            break
        registry.close(cursor)
        registry.ended_total += 1
        op.service.hooks.log_ended_cursor(cursor)
        op.give_way()


def _spill(op: OperationContext, cursor: OpenCursor) -> None:
    """Moves what an idle cursor holds to a file; closes the cursor if it cannot be written."""
    registry = op.service.cursors
    space = cursor.space
    if space is None:
        space = CursorSpace(op.service.spill_space)
        cursor.space = space
    while not cursor.killed and not cursor.in_use:
        failed = False
        moved = False
        cursor.in_use = True  # so that it is not closed for the file that it needs
        try:
            moved = cursor.spill(space)
        except CommandError:
            failed = True
        finally:
            cursor.in_use = False
        if failed:  # the disk is full, or too many files are open
            registry.close(cursor)
            registry.ended_total += 1
            op.service.hooks.log_ended_cursor(cursor)
            return
        registry.recount(cursor)
        if not moved:
            return
        op.give_way()
