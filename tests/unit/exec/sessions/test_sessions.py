"""What sessions remember of retryable writes, and its limit."""

import random
import shutil
import time
from pathlib import Path

import pytest

from mongottl.catalog.catalog import Catalog
from mongottl.clock import SystemClock
from mongottl.document.build import encode
from mongottl.document.types import BinData, Timestamp
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.sessions.retryable_writes import RetryableWrite
from mongottl.exec.sessions.session_ids import session_key, shown_id
from mongottl.exec.sessions.sessions import MAX_HISTORY_BYTES, MAX_SESSIONS, Session, SessionRegistry
from mongottl.exec.sessions.stored_sessions import StoredSessions
from mongottl.oplog.change import no_operation
from mongottl.oplog.entry import OplogEntry
from mongottl.oplog.rows import OplogRows
from mongottl.oplog.statements import AFTER, BEFORE, NO_IMAGE, Executed
from mongottl.query.timestamps import ClusterTime
from mongottl.storage.contract import ContractEngine
from mongottl.storage.interface import StorageEngine
from mongottl.storage.opening import open_engine
from tests.changes import deleted, inserted, updated

LARGE = bytes(16 * 1024 * 1024)
AT = ClusterTime(100, 1)


def written(registry: SessionRegistry, key: bytes, image: bytes, txn_number: int = 1) -> Session:
    """A session that has executed a findAndModify."""
    session = registry.touch(key, 0, 0.0)
    write = registry.begin_write(session, txn_number)
    assert not write.is_retry
    assert write.begin(0, BEFORE) is None
    write.begin_unit()
    write.note(deleted(image))
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


def test_no_session_takes_longer_because_others_were_dropped_before() -> None:
    """To find the oldest took as many steps as had been dropped since the table was made anew: 0.1 ms."""
    registry = SessionRegistry()
    keys = iter(b"%d" % number for number in range(MAX_SESSIONS + 60_000))
    taken_s: list[float] = []
    for count in (MAX_SESSIONS - 20_000, 20_000, 20_000, 20_000, 20_000):
        began_s = time.thread_time()
        for _ in range(count):
            registry.touch(next(keys), 0, 0.0)
        taken_s.append(time.thread_time() - began_s)
    assert len(registry) == MAX_SESSIONS
    assert taken_s[-1] < 2 * taken_s[1]


def test_a_batch_of_different_statements_counts_too() -> None:
    registry = SessionRegistry()
    registry.max_history_bytes = 100_000
    session = registry.touch(b"a", 0, 0.0)
    write = registry.begin_write(session, 1)
    for index in range(0, 1000, 2):
        write.begin(index)
        write.begin_unit()
        write.note(updated(b"a", b"b"))
        registry.committed(write, 0, AT)
        assert registry.history_bytes <= 100_000
    assert refusal(registry, session) == 217


def test_ended_sessions_release_their_history_bytes() -> None:
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


class Server:
    """Sessions over an engine, as a server has them: what a unit of work executes goes into the oplog's row."""

    def __init__(self, engine: StorageEngine) -> None:
        self.engine = engine
        catalog = Catalog(engine, SystemClock())
        # Segments of 1,000 bytes.
        self.rows = OplogRows(catalog, Timestamp(1, 1), 8000, 0)
        self.registry = SessionRegistry()
        self.registry.store_in(StoredSessions(catalog, self.rows), 0.0)
        self.rows.on_segment = self.registry.save
        self.catalog = catalog
        self.number = 0

    def carry_out(self, write: RetryableWrite, commit: bool) -> None:
        """A unit of work that executes what `write` has noted."""
        self.number += 1
        at = ClusterTime(100, self.number)
        entry = OplogEntry(no_operation(encode({"padding": "x" * 100})), at.time, at.inc, self.number)
        with self.engine.unit_of_work() as unit:
            self.rows.put(entry, unit, write.statements)
            if commit:
                unit.commit()
                self.registry.committed(write, self.number, at)

    def known(self) -> dict[bytes, object]:
        return {
            session.key: (history.txn_number, history.dropped, [described(one) for one in history.executed])
            for session in self.registry.known()
            for history in [session.history]
            if history.executed or history.dropped
        }


def described(executed: Executed) -> object:
    return (
        executed.first,
        executed.last,
        executed.kind,
        executed.upserted,
        executed.image,
        executed.image_kind,
    )


def key_of(number: int) -> bytes:
    lsid = encode({"id": BinData(bytes([number]) * 16, 4), "uid": BinData(bytes(32), 0)})
    return session_key(lsid, None)


@pytest.mark.parametrize("seed", range(20))
def test_retryable_writes_survive_every_kind_of_restart(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    path = tmp_path / "0"
    server = Server(ContractEngine(open_engine(f"sqlite:{path}")))
    numbers = dict.fromkeys(range(6), 0)
    for end in range(5):
        for _ in range(generator.randrange(1, 40)):
            number = generator.randrange(6)
            session = server.registry.touch(key_of(number), 0, float(server.number))
            if generator.random() < 0.6:
                numbers[number] += 1
            try:
                write = server.registry.begin_write(session, numbers[number])
            except CommandError:
                numbers[number] += 1
                continue
            index = generator.randrange(50)
            if write.begin(index, generator.choice((NO_IMAGE, NO_IMAGE, BEFORE, AFTER))) is not None:
                continue
            write.begin_unit()
            document = encode({"_id": index, "n": generator.randrange(3)})
            step = generator.randrange(5)
            if step == 0:
                write.note(deleted(document))
            elif step == 1:
                write.note(inserted(document))  # an upsert
            elif step == 2:
                write.note_commit()
            elif step == 3:
                write.begin_inserts(index)
                write.note(inserted(document, document, document))
            else:
                write.note(updated(document, encode({"_id": index, "n": 1})))
            server.carry_out(write, generator.random() < 0.9)
            if generator.random() < 0.05:
                server.registry.expire(server.number - 10.0)
        known = server.known()
        following = tmp_path / str(end + 1)
        crashes = generator.random() < 0.5
        if not crashes:
            server.catalog.in_unit(server.registry.save)
            server.engine.close()
        shutil.copytree(path, following)
        if crashes:
            server.engine.close()
        path = following
        again = Server(ContractEngine(open_engine(f"sqlite:{path}")))
        again.number = server.number
        server = again
        found = server.known()
        # What had expired may be known again: it was not forgotten on disk.
        assert {key: found[key] for key in known} == known
        assert server.rows.end < server.rows.first + 100
    server.engine.close()


def test_records_of_sessions_that_are_gone_are_deleted(tmp_path: Path) -> None:
    server = Server(open_engine("memory:"))
    for number in range(10):
        write = server.registry.begin_write(server.registry.touch(key_of(number), 0, 0.0), 1)
        write.begin_unit()
        write.note_commit()
        server.carry_out(write, True)
    server.catalog.in_unit(server.registry.save)
    records = server.catalog.session_records()
    assert records.count() == 10
    server.registry.touch(key_of(3), 0, 5.0)
    server.registry.expire(1.0)
    server.catalog.in_unit(server.registry.save)
    assert [get_value(record[1], "lsid") for record in records.scan(0, 10)[0]] == [shown_id(key_of(3))]


def test_a_save_that_is_rolled_back_is_made_up_for(tmp_path: Path) -> None:
    server = Server(open_engine("memory:"))
    write = server.registry.begin_write(server.registry.touch(key_of(1), 0, 0.0), 1)
    write.begin_unit()
    write.note_commit()
    server.carry_out(write, True)
    with server.engine.unit_of_work() as unit:
        server.registry.save(unit)
    assert server.catalog.session_records().count() == 0
    server.catalog.in_unit(server.registry.save)
    assert server.catalog.session_records().count() == 1


def test_sessions_unchanged_since_they_were_loaded_are_not_saved_again(tmp_path: Path) -> None:
    server = Server(open_engine(f"sqlite:{tmp_path}"))
    for number in range(2):
        write = server.registry.begin_write(server.registry.touch(key_of(number), 0, 0.0), 1)
        write.begin_unit()
        write.note_commit()
        server.carry_out(write, True)
    server.catalog.in_unit(server.registry.save)
    server.engine.close()
    server = Server(open_engine(f"sqlite:{tmp_path}"))
    write = server.registry.begin_write(server.registry.touch(key_of(1), 0, 0.0), 2)
    write.begin_unit()
    write.note_commit()
    server.carry_out(write, True)
    server.catalog.in_unit(server.registry.save)
    assert [record[0] for record in server.catalog.session_records().scan(0, 10)[0]] == [1, 3]
    server.engine.close()
