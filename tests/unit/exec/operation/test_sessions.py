"""What sessions remember of retryable writes, and its limit."""

import pytest

from mongottl.document.build import encode
from mongottl.document.types import Timestamp
from mongottl.errors import CommandError
from mongottl.exec.operation.retryable_writes import BEFORE, StatementRows
from mongottl.exec.operation.sessions import MAX_HISTORY_BYTES, Session, SessionRegistry
from mongottl.storage.contract import ContractEngine
from mongottl.storage.interface import open_storage_engine

LARGE = bytes(16 * 1024 * 1024)
AT = Timestamp(100, 1)


def written(registry: SessionRegistry, key: bytes, image: bytes, txn_number: int = 1) -> Session:
    """A session that has executed a findAndModify."""
    session = registry.touch(key, 0, 0.0)
    write = registry.begin_write(session, txn_number)
    assert not write.is_retry
    assert write.begin(0, BEFORE) is None
    write.begin_unit()
    write.note_delete(image, 0, AT)
    registry.committed(write, 0, AT)
    return session


def refusal(registry: SessionRegistry, session: Session, txn_number: int = 1) -> int:
    with pytest.raises(CommandError) as caught:
        registry.begin_write(session, txn_number)
    return caught.value.code


def test_a_write_that_was_executed_is_remembered() -> None:
    registry = SessionRegistry()
    session = written(registry, b"a", b"image")
    executed = registry.begin_write(session, 1).begin(0)
    assert executed is not None
    assert executed.image == b"image"
    assert registry.begin_write(session, 1).begin(1) is None
    assert not registry.begin_write(session, 2).is_retry
    assert refusal(registry, session) == 225


def test_images_of_all_sessions_are_bounded() -> None:
    registry = SessionRegistry()
    sessions = [written(registry, b"%d" % n, LARGE) for n in range(10)]
    assert registry.history_bytes <= MAX_HISTORY_BYTES
    assert sum(len(session.history.executed) for session in sessions) == 3
    assert registry.begin_write(sessions[-1], 1).is_retry
    assert refusal(registry, sessions[0]) == 217
    # The next write of that session is a new one.
    assert not registry.begin_write(sessions[0], 2).is_retry


def test_a_batch_of_different_statements_counts_too() -> None:
    registry = SessionRegistry()
    registry.max_history_bytes = 100_000
    session = registry.touch(b"a", 0, 0.0)
    write = registry.begin_write(session, 1)
    for index in range(0, 1000, 2):
        write.begin(index)
        write.begin_unit()
        write.note_update(b"a", b"b", 0, AT)
        registry.committed(write, 0, AT)
        assert registry.history_bytes <= 100_000
    assert refusal(registry, session) == 217


def test_what_ends_gives_back_what_it_took() -> None:
    registry = SessionRegistry()
    registry.max_sessions = 3
    for n in range(5):
        written(registry, b"%d" % n, bytes(100))
    assert registry.history_bytes == 3 * 500
    session = registry.find(b"4")
    assert session is not None
    assert not registry.begin_write(session, 2).is_retry
    assert registry.history_bytes == 2 * 500
    registry.end(b"never")
    registry.touch(b"unwritten", 0, 0.0)
    assert registry.history_bytes == 500  # the least recently used session made room
    registry.end(b"unwritten")
    assert registry.find(b"unwritten") is None
    registry.expire(1.0)
    assert (len(registry), registry.history_bytes) == (0, 0)


def test_an_ended_session_keeps_its_write_until_it_expires() -> None:
    registry = SessionRegistry()
    written(registry, b"a", bytes(100))
    registry.end(b"a")
    assert (registry.all(), registry.is_active(b"a"), registry.history_bytes) == ([], False, 500)
    assert registry.begin_write(registry.touch(b"a", 0, 0.0), 1).is_retry
    assert registry.is_active(b"a")
    registry.end(b"a")
    registry.expire(1.0)
    assert (len(registry), registry.history_bytes) == (0, 0)


def test_rows_are_used_again_and_deleted_with_their_session() -> None:
    engine = ContractEngine(open_storage_engine("sqlite", None))
    with engine.unit_of_work() as unit:
        records = engine.create_record_store("retryableWrites")
        unit.commit()
    registry = SessionRegistry()
    registry.store_in(StatementRows(records), 0.0)
    key = bytes(48)
    session = registry.touch(key, 0, 0.0)

    def execute(number: int, statements: list[int], commit: bool = True, image: int = 0) -> None:
        write = registry.begin_write(session, number)
        for index in statements:
            write.begin(index, image)
            with engine.unit_of_work() as unit:
                write.begin_unit()
                write.note_update(encode({"n": 1}), encode({"n": 2}), 5000, AT)
                if commit:
                    unit.commit()
                    registry.committed(write, 5000, AT)

    execute(1, [0])
    execute(2, [0])
    assert records.count() == 1
    execute(3, [0, 1, 2])  # consecutive statements of one kind share a row
    assert records.count() == 1
    execute(4, [0, 2, 4])
    assert records.count() == 3
    execute(5, [0], commit=False)
    assert records.count() == 3
    execute(6, [0], image=BEFORE)
    assert records.count() == 1
    execute(7, [0, 2], image=BEFORE)
    execute(8, [0, 2])
    assert records.count() == 2
    assert [stored.txn_number for stored in StatementRows(records).load()] == [8, 8]
    registry.expire(1.0)
    assert registry.has_abandoned_rows
    with engine.unit_of_work() as unit:
        assert not registry.delete_rows(10)
        unit.commit()
    assert records.count() == 0
