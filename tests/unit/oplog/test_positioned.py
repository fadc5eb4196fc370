"""The oplog of an engine that keeps it itself, while others write and read it at the same time."""

import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.oplog.change import no_operation
from mongottl.oplog.entry import OplogEntry, stored_form
from mongottl.oplog.positioned import PositionedOplog
from mongottl.storage.log import StoreLog

FORM = stored_form(OplogEntry(no_operation(), 0, 0, 0))


class GrowingLog(StoreLog):
    """A log that another operation finds to be longer while it is read. positions: of its forms. later: the horizon
    after the next read."""

    def __init__(self, positions: list[int], horizon: int, later: int) -> None:
        self.floor = self.first_position = self.count = self.size_bytes = 0
        self.horizon = horizon
        self.position = later
        self.later = later
        self.positions = positions

    def refresh(self) -> None:
        self.horizon = self.later

    def measure(self) -> None:
        pass

    def reach_present(self) -> None:
        self.refresh()

    def take_position(self, not_before: int = 0) -> int:
        self.position += 1
        return self.position

    def read(self, begin: int, end: int, limit: int, max_bytes: int, forward: bool = True) -> list[tuple[int, bytes]]:
        self.refresh()
        return [(position, FORM) for position in self.positions if begin <= position <= end]

    def read_statements(self, begin: int, limit: int) -> list[tuple[int, bytes]]:
        return []

    def find_statements(self, lsid: bytes, txn_number: int) -> list[tuple[int, bytes]]:
        return []

    def await_durability(self) -> None:
        pass

    def count_up(self) -> None:
        pass

    def trim(self, through: int, limit: int) -> int:
        return 0


def test_seek_finds_an_entry_or_the_end_when_the_end_moves_on_meanwhile() -> None:
    oplog = PositionedOplog(GrowingLog([10, 15], horizon=12, later=20), 1 << 20, 0)
    assert oplog.seek(11) == 15  # not 13, which was the end, and is none any more
    assert oplog.entry(15).change.detail == no_operation().detail
    oplog = PositionedOplog(GrowingLog([10], horizon=12, later=20), 1 << 20, 0)
    assert oplog.seek(11) == oplog.end == 21


def test_an_entry_that_others_drop_after_it_was_sought_is_lost() -> None:
    log = GrowingLog([10, 15], horizon=20, later=20)
    oplog = PositionedOplog(log, 1 << 20, 0)
    log.positions = [15]
    with pytest.raises(CommandError) as refused:
        oplog.entry(10)
    assert refused.value.code == ErrorCode.ChangeStreamHistoryLost
    assert oplog.entry(15).change.detail == no_operation().detail
