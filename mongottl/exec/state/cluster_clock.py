"""The cluster clock: the logical time of writes, `$clusterTime` and `operationTime` of replies.

A cluster time is a Timestamp: seconds and an increment within the second. It is a hybrid of wall time and a counter:

    wall    100   100   101   |set back| 40    41    41
    tick  100.1 100.2 101.1              101.2 101.3 101.4

So it never goes back and no two writes have the same time, whatever the wall clock does. Its seconds end in the year
2106; then only increments are left. Clients send the highest time that they have seen (`$clusterTime`), and the clock
advances to it (`receive`), but not further than `max_drift_s` ahead of the wall clock.

With a data directory, times are reserved ahead: the catalog entry `clusterTime` has a limit that all given times are
below, and the next run of the server begins there. It is stored RESERVED_S ahead, so one write in RESERVED_S seconds
stores it, in its own unit of work. No reply has a time beyond the stored limit.

Source: MongoDB's documentation of `$clusterTime` and causal consistency; "Logical Physical Clocks" (Kulkarni et al.).
"""

import struct
from typing import Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from mongottl.catalog.catalog import Catalog
from mongottl.document.build import encode
from mongottl.document.interrupt import Undivided, in_undivided
from mongottl.document.types import DOCUMENT, TIMESTAMP, Int64, Timestamp
from mongottl.document.walk import find_field_at, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.timestamps import MAX_SECONDS, ClusterTime
from mongottl.storage.errors import EngineUnavailable, WriteConflict
from mongottl.storage.interface import WriteUnitOfWork

# How far ahead of the wall clock a client may set the cluster clock: mongod's maxAcceptableLogicalClockDriftSecs.
MAX_DRIFT_S: Final = 31_536_000
# An idle server's time advances this often, as by mongod's no-ops in the oplog (periodicNoopIntervalSecs).
IDLE_TICK_S: Final = 10
RESERVED_S: Final = 4
# Reserved instead where seconds have ended.
_RESERVED_INCREMENTS: Final = 1 << 20
_MAX_INCREMENT: Final = 2**32 - 1
_ENTRY: Final = "clusterTime"

_pack_length: Final = struct.Struct("<i").pack
_unpack_timestamp: Final = struct.Struct("<II").unpack_from
# `{hash: <20 bytes of zero>, keyId: 0}`: what mongod sends to clients that are not authenticated.
_SIGNATURE: Final = (
    b"\x03signature\0" + _pack_length(51) + b"\x05hash\0" + _pack_length(20) + bytes(21) + b"\x12keyId\0" + bytes(9)
)
_TIME_HEAD: Final = b"\x11clusterTime\0"
_VALUE_BYTES: Final = 4 + len(_TIME_HEAD) + 8 + len(_SIGNATURE) + 1
# What other servers have sent may have other fields.
_MAX_VALUE_BYTES: Final = 16 * 1024
_VALUE_TAIL: Final = _SIGNATURE + b"\0"
_VALUE_HEAD: Final = _pack_length(_VALUE_BYTES) + _TIME_HEAD
_REPLY_HEAD: Final = b"\x03$clusterTime\0"
_REPLY_AND_VALUE_HEAD: Final = _REPLY_HEAD + _VALUE_HEAD
_VALUE_TAIL_AND_OPERATION_HEAD: Final = _VALUE_TAIL + b"\x11operationTime\0"
# Where the value of `$clusterTime` is in the end of a reply.
_VALUE_AT: Final = len(_REPLY_HEAD)
_VALUE_END: Final = _VALUE_AT + _VALUE_BYTES
# The first number that an int32 does not hold.
_SIGN: Final[i64] = 2**31
# From this length on a document is copied once instead of twice.
_LONG_BYTES: Final = 64 * 1024


class ClusterClock:
    """The cluster clock of one server.

    seconds, increment: the highest cluster time that this server knows. written_ms: wall time of its latest write.
    idle_due_s: wall time in seconds at which an idle server ticks.
    max_drift_s: how far a client may advance it ahead of the wall clock.
    limit_due: whether the time has reached the stored limit, so that a new one must be stored with the next commit.
    """

    def __init__(self, catalog: Catalog, now_ms: int, persistent: bool = False) -> None:
        self._catalog = catalog
        self._persistent = persistent
        self.seconds: int = 0
        self.increment: int = 0
        self._limit_seconds: int = 0
        self._limit_increment: int = 0
        self.limit_due = persistent
        self.max_drift_s = MAX_DRIFT_S
        self._last: ClusterTime | None = None
        self._written = ClusterTime(0, 0)
        self.written_ms = now_ms
        self.idle_due_s: int = 0
        # The `$clusterTime` of the latest reply, the end of the next reply if it is made, and that of the latest reply.
        self._value = b""
        self._tail: bytes | None = None
        # Before the first one could be made, the end of a reply without times.
        self._latest_tail = b"\0"
        if persistent:
            self._load()
        self.tick(now_ms)
        self._make_tail()

    @property
    def last(self) -> ClusterTime:
        """The highest cluster time that this server knows."""
        last = self._last
        if last is None:
            last = ClusterTime(self.seconds, self.increment)
            self._last = last
        return last

    @property
    def operation_time(self) -> Timestamp:
        """The time of the latest write."""
        return self._written.timestamp

    def tick(self, now_ms: int) -> ClusterTime:
        """The time of a new write, after every earlier one. now_ms: wall time.

        Where `limit_due` is true afterwards, a unit of work that is open stores the limit (`put_limit`).
        """
        seconds = now_ms // 1000
        self.written_ms = now_ms
        if seconds > self.seconds and self.seconds < MAX_SECONDS:
            self.seconds = seconds if seconds < MAX_SECONDS else MAX_SECONDS
            self.increment = 1
        elif self.increment < _MAX_INCREMENT:
            self.increment += 1
        elif self.seconds < MAX_SECONDS:
            self.seconds += 1
            self.increment = 1
        self._changed()
        at = ClusterTime(self.seconds, self.increment)
        self._last = at
        self._written = at
        self.idle_due_s = self.seconds + IDLE_TICK_S
        return at

    def note_write(self, at: ClusterTime, now_ms: int) -> None:
        """Passes the time that a store has given a write, which another one may have passed meanwhile. now_ms: wall
        time."""
        self.written_ms = now_ms
        self.note_time(at)
        if _is_later(at, self._written.time, self._written.inc):
            self._written = at
        self._tail = None
        self.idle_due_s = self.seconds + IDLE_TICK_S

    def note_time(self, at: ClusterTime) -> None:
        """Passes a time that a store has given."""
        if _is_later(at, self.seconds, self.increment):
            self.seconds = at.time
            self.increment = at.inc
            self._last = at
            self._tail = None

    def receive(self, body: bytes, pos: int, now_ms: int) -> None:
        """Advances to the time that a client has sent in `$clusterTime`, whose value is at `pos` of `body`.

        IDLFailedToParse (40414) or TypeMismatch (14) for another form than `{clusterTime: <timestamp>, …}`,
        InvalidLength (16) for one that is longer than any server's,
        ClusterTimeFailsRateLimiter (205) for a time more than `max_drift_s` ahead of the wall clock.
        """
        if body[pos : pos + _VALUE_BYTES] == self._value:
            return  # the time of this server's latest reply
        if read_i32_le(body, pos) > _MAX_VALUE_BYTES:
            raise CommandError(
                ErrorCode.InvalidLength, f"BSON field '$clusterTime' has more than {_MAX_VALUE_BYTES} bytes"
            )
        type_code, at = find_field_at(body, pos, b"clusterTime")
        if type_code != TIMESTAMP:
            raise _wrong_form(int(type_code))
        signature_type, _ = find_field_at(body, pos, b"signature")
        if signature_type != 0 and signature_type != DOCUMENT:
            raise CommandError(
                ErrorCode.TypeMismatch, "BSON field '$clusterTime.signature' is the wrong type, expected type 'object'"
            )
        increment, seconds = _unpack_timestamp(body, at)
        self.advance(Timestamp(seconds, increment), now_ms)

    def advance(self, to: Timestamp, now_ms: int) -> None:
        """Advances to a time that a client has seen; a time that has passed is ignored."""
        if to.time < self.seconds or (to.time == self.seconds and to.inc <= self.increment):
            return
        if to.time > now_ms // 1000 + self.max_drift_s:
            raise CommandError(
                ErrorCode.ClusterTimeFailsRateLimiter,
                f"New cluster time, {to.time}, is too far from this node's wall clock time, {now_ms // 1000}.",
            )
        self.seconds = to.time
        self.increment = to.inc
        self._changed()

    def has_reached(self, at: Timestamp) -> bool:
        """Whether the cluster time is `at` or later."""
        return at.time < self.seconds or (at.time == self.seconds and at.inc <= self.increment)

    def with_times(self, reply: bytes) -> bytes:
        """A reply with `$clusterTime` and `operationTime` appended, as every reply of a replica set member has them."""
        tail = self._tail
        if tail is None:
            tail = self._make_tail()
        size = len(reply) - 1 + len(tail)
        if len(reply) < _LONG_BYTES:
            return _pack_length(size) + reply[4:-1] + tail
        return b"".join((_pack_length(size), memoryview(reply)[4:-1], tail))

    def put_limit(self, work: WriteUnitOfWork) -> None:
        """Stores a new limit in a unit of work that is open."""
        limit = self._next_limit()
        self._catalog.put_server_entry(_ENTRY, _entry_of(limit))
        self._take_limit(limit)
        work.on_rollback(self._require_limit)

    def _load(self) -> None:
        """Begins at the limit that the last run has stored: above all times that it has given."""
        entry = self._catalog.server_entry(_ENTRY)
        if entry is not None:
            seconds = get_value(entry, "seconds")
            increment = get_value(entry, "increment")
            assert isinstance(seconds, int) and isinstance(increment, int)
            self.seconds = int(seconds)
            self.increment = int(increment)

    def _next_limit(self) -> tuple[int, int]:
        if self.seconds + RESERVED_S <= MAX_SECONDS:
            return self.seconds + RESERVED_S, 0
        return MAX_SECONDS, min(self.increment + _RESERVED_INCREMENTS, _MAX_INCREMENT)

    def _take_limit(self, limit: tuple[int, int]) -> None:
        self._limit_seconds, self._limit_increment = limit
        self.limit_due = False

    def _require_limit(self) -> None:
        """Requires a limit to be stored again, after the unit that stored it was rolled back."""
        self.limit_due = True

    def _changed(self) -> None:
        self._last = None
        self._tail = None
        if self._persistent and (
            self.seconds > self._limit_seconds
            or (self.seconds == self._limit_seconds and self.increment >= self._limit_increment)
        ):
            self.limit_due = True

    def _make_tail(self) -> bytes:
        """The end of a reply: `$clusterTime`, `operationTime` and the final NUL; stores the limit first if it is due.

        If the engine cannot store the limit, or a unit of work is open: the end of the latest reply again.
        """
        if self.limit_due and (in_undivided() or not self._store_limit()):
            return self._latest_tail
        writer = BytesWriter()
        writer.write(_REPLY_AND_VALUE_HEAD)
        _write_unsigned(writer, self.increment)
        _write_unsigned(writer, self.seconds)
        writer.write(_VALUE_TAIL_AND_OPERATION_HEAD)
        _write_unsigned(writer, self._written.inc)
        _write_unsigned(writer, self._written.time)
        writer.append(0)
        tail = writer.getvalue()
        self._value = tail[_VALUE_AT:_VALUE_END]
        self._tail = tail
        self._latest_tail = tail
        return tail

    def _store_limit(self) -> bool:
        """Stores a new limit in a unit of work of its own; False if the engine cannot."""
        with Undivided():
            limit = self._next_limit()
            try:
                self._catalog.save_server_entry(_ENTRY, _entry_of(limit))
            except (EngineUnavailable, WriteConflict):
                return False
            self._take_limit(limit)
            return True


def _is_later(at: ClusterTime, seconds: int, increment: int) -> bool:
    return at.time > seconds or (at.time == seconds and at.inc > increment)


def _write_unsigned(writer: BytesWriter, number: i64) -> None:
    """Four bytes of a number below 2^32."""
    write_i32_le(writer, i32(number if number < _SIGN else number - 2 * _SIGN))


def _entry_of(limit: tuple[int, int]) -> bytes:
    return encode({"seconds": Int64(limit[0]), "increment": Int64(limit[1])})


def _wrong_form(type_code: int) -> CommandError:
    if type_code == 0:
        return CommandError(40414, "BSON field '$clusterTime.clusterTime' is missing but a required field")
    return CommandError(
        ErrorCode.TypeMismatch, "BSON field '$clusterTime.clusterTime' is the wrong type, expected type 'timestamp'"
    )
