"""Change streams: events made of the entries of the oplog, through the stages that follow, to a cursor that waits.

    oplog ──► ChangeStream.next_events ──► $match, $project, … ──► StreamPages ──► the cursor's pages

A stream remembers the number of the entry that it reads next, and the operation in it. It ends with an `invalidate`
event when what it watches is gone. Source: MongoDB's "Change Events".
"""

from functools import partial
from typing import Final

from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.types import Timestamp
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.aggregation import OperationRun, check_stage_allowed
from mongottl.exec.results.change_event import EntryEvents, is_watched
from mongottl.exec.results.cursors import ClientCursor, Page, PageSource, Tail
from mongottl.exec.results.reading import Pull
from mongottl.exec.results.resume_token import ResumePoint, high_water_mark, parse_token, token_document, token_of
from mongottl.exec.results.split_event import split_event, token_in
from mongottl.oplog.entry import OplogEntry
from mongottl.oplog.log import Oplog, history_lost
from mongottl.query.pipeline.change_stream import SPLIT_LARGE_EVENT, ChangeStreamSpec, check_following
from mongottl.query.pipeline.source import DocumentSource
from mongottl.query.pipeline.stage import StageSpec, open_pipeline

# Events that one step makes.
_EVENTS_AT_ONCE: Final = 256


class ChangeStream:
    """The position of one stream in the oplog.

    watched: what it watches, as in `OplogEntry.watched_as`. resume_data: the `_data` of the token with which to go on
    after all that was read. ended: whether the stream has given its `invalidate` event.
    """

    def __init__(self, op: OperationContext, spec: ChangeStreamSpec, splits: bool) -> None:
        self._spec = spec
        self.watched = f"{spec.database}.{spec.collection}" if spec.collection else spec.database
        self._splits = splits
        self.ended = False
        # Entries before this cluster time are passed over, where a stream begins in the future.
        self._from: tuple[int, int] = (0, 0)
        # The position: an operation of an entry, and whether it is that operation's invalidation.
        self._number: int = 0
        self._index: int = 0
        self._at_invalidation = False
        # The events of the entry at the position, once one of them was looked at.
        self._events: EntryEvents | None = None
        # Identifies the event after which a resumed stream begins; empty once it is found.
        self._sought = b""
        # The fragment of that event after which the stream begins, and how many fragments are therefore left out.
        self._sought_fragment: int | None = None
        self._left_out: int = 0
        self.resume_data = ""
        # Of the token, which may be long: others may run before the oplog is looked at.
        point = None if spec.resume is None else op.compute(partial(parse_token, spec.resume))
        self._start(op.service.oplog, op.service.cluster_clock.operation_time, point)

    def _start(self, oplog: Oplog, written: Timestamp, point: ResumePoint | None) -> None:
        """Finds the first position. written: the time of the latest write of this server. point: of the token with
        which it resumes, if there is one."""
        oplog.refresh()
        spec = self._spec
        if spec.resume is not None and point is not None:
            self._resume(oplog, point)
            self.resume_data = str(get_value(spec.resume, "_data"))
        elif spec.start_at is not None:
            at = (spec.start_at.time, spec.start_at.inc)
            _check_history(oplog, at)
            self._number = oplog.number_at(at)
            self._from = at
            self.resume_data = high_water_mark(*at)
        else:
            self._number = oplog.following
            at_s, at_i = oplog.latest_write(written)
            self.resume_data = high_water_mark(at_s, at_i + 1)

    def _resume(self, oplog: Oplog, point: ResumePoint) -> None:
        """Finds the operation of a token. What is there is compared with the token when it is read."""
        if point.invalidates and not self._spec.starts_after:
            raise CommandError(
                ErrorCode.InvalidResumeToken,
                "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate"
                " notification.",
            )
        if point.fragment is not None and not self._splits:
            raise CommandError(
                ErrorCode.ChangeStreamFatalError,
                f"To resume from a split event, the resume pipeline must include a {SPLIT_LARGE_EVENT} stage.",
            )
        at = (point.at.time, point.at.inc)
        _check_history(oplog, at)
        self._number = oplog.number_at(at)
        self._from = at
        if not point.is_event:
            return
        self._sought = point.identity
        self._sought_fragment = point.fragment
        while self._seek_entry(oplog):
            entry = oplog.entry(self._number)
            if (entry.at_s, entry.at_i) != at or point.operation < entry.first_index:
                return
            if point.operation < entry.first_index + entry.change.count:
                self._index = point.operation - entry.first_index
                return
            self._skip_entry()

    def next_events(self, op: OperationContext, most: int) -> list[bytes]:
        """The next events, no more than `most`; empty if there are none yet.

        ChangeStreamHistoryLost (286) if they are gone, ChangeStreamFatalError (280) if the event with which to resume
        is not one of this stream.
        """
        oplog = op.service.oplog
        if self._number >= oplog.end:
            oplog.refresh()
        if self._number < oplog.first:
            raise history_lost()
        made: list[bytes] = []
        examined = 0
        size = 0
        while (
            self._seek_entry(oplog)
            and not self.ended
            and examined < _EVENTS_AT_ONCE
            and size < op.service.bounds.max_page_bytes
        ):
            if len(made) >= most:
                break
            if self._number < oplog.first:  # others may have written while an event was made
                raise history_lost()
            examined += 1
            events = self._events
            if events is None:
                entry = oplog.entry(self._number)
                if (entry.at_s, entry.at_i) < self._from or not self._watches(entry):
                    self._skip_entry()
                    self._pass(entry)
                    continue
                events = EntryEvents(self._spec, oplog.described(self._number))
                self._events = events
            if not self._sought or self._seek(events):
                if self._at_invalidation:
                    event = events.invalidate(self._index)
                    self.ended = True
                else:
                    event = events.event(op, self._index)
                made.append(event)
                size += len(event)
            if not self._sought:
                self.resume_data = events.data
            self._step(events)
        return made

    def _watches(self, entry: OplogEntry) -> bool:
        """Whether the stream has an event for an entry."""
        return is_watched(self._spec, entry.change)

    def _seek(self, events: EntryEvents) -> bool:
        """Whether the event at the position is the resume point and has fragments left to return."""
        identity = events.identity(self._index, self._at_invalidation)
        if identity > self._sought:
            raise CommandError(
                ErrorCode.ChangeStreamFatalError,
                f'cannot resume stream; the resume token was not found. {{_data: "{token_of(self._sought)}"}}',
            )
        if identity != self._sought:
            return False
        self._sought = b""
        if self._sought_fragment is None:
            return False
        self._left_out = self._sought_fragment + 1
        return True

    def split(self, event: bytes) -> list[bytes]:
        """The fragments of an event that are left to return. BSONObjectTooLarge (10334)."""
        fragments = split_event(event)
        if self._left_out:
            fragments = fragments[self._left_out :]
            self._left_out = 0
        return fragments

    def _step(self, events: EntryEvents) -> None:
        """Moves past the event at the position."""
        if events.invalidates and not self._at_invalidation:
            self._at_invalidation = True
            return
        self._at_invalidation = False
        self._index += 1
        if self._index >= events.count:
            self._skip_entry()

    def _seek_entry(self, oplog: Oplog) -> bool:
        """Moves to the next entry, if the position is at none; whether there is one."""
        if self._number >= oplog.end:
            return False
        self._number = oplog.seek(self._number)
        return self._number < oplog.end

    def _skip_entry(self) -> None:
        self._number += 1
        self._index = 0
        self._events = None

    def skip_all(self, oplog: Oplog) -> None:
        """Moves past all entries, none of which produces an event of the stream."""
        if self._number >= oplog.end:
            return
        self._number = oplog.end
        self._pass_time(*oplog.latest)

    def _pass(self, entry: OplogEntry) -> None:
        """Moves the resume token past an entry that produces no event."""
        self._pass_time(entry.at_s, entry.at_i)

    def _pass_time(self, at_s: int, at_i: int) -> None:
        if not self._sought and (at_s, at_i) >= self._from:
            self.resume_data = high_water_mark(at_s, at_i + 1)

    def token(self, gave_all: bool, last_given: bytes) -> bytes:
        """The resume token of a page. gave_all: whether all events that were read are given. last_given: the token of
        the last one that is, empty if there is none."""
        if gave_all:
            return token_document(self.resume_data)
        return last_given or token_document("")

    def has_more(self, op: OperationContext) -> bool:
        return self._number < op.service.oplog.end and not self.ended


def _check_history(oplog: Oplog, at: tuple[int, int]) -> None:
    """ChangeStreamHistoryLost (286) if entries from a starting point on are gone, as the event of a token. Nothing is,
    before the first entry was dropped."""
    if oplog.floor != (0, 0) and at <= oplog.floor:
        raise history_lost()


class _Head(DocumentSource):
    """The events that the next stages take now."""

    def __init__(self) -> None:
        self.events: list[bytes] = []

    def next_batch(self) -> list[bytes] | None:
        if not self.events:
            return None
        events = self.events
        self.events = []
        return events


class StreamPages(PageSource):
    """Pages of a change stream. waiting: events that did not fit into the last page."""

    def __init__(self, op: OperationContext, stream: ChangeStream, rest: list[StageSpec], splits: bool) -> None:
        self._splits = splits
        self.stream = stream
        self._pull = Pull(op, True, False)
        self._head = _Head()
        run = OperationRun(self._pull, None, rest, set(), None)
        self._documents = open_pipeline(rest, self._head, run)
        self._changes_events = bool(rest)
        self._waiting: list[bytes] = []
        self._position = 0
        # The last event that a page has.
        self._last_given = EMPTY_DOCUMENT

    def fill(self, op: OperationContext, page: Page) -> bool:
        self._pull.op = op
        if self._position >= len(self._waiting):
            # No more than the page takes: their documents are looked up now, and an error is that of this page.
            self._head.events = self.stream.next_events(op, page.missing() or _EVENTS_AT_ONCE)
            tokens = {token_in(event) for event in self._head.events} if self._changes_events else set()
            self._waiting = []
            self._position = 0
            while (batch := self._documents.next_batch()) is not None:
                self._waiting += batch
            if self._changes_events and any(token_in(event) not in tokens for event in self._waiting):
                raise CommandError(
                    ErrorCode.ChangeStreamFatalError,
                    "Encountered an event whose _id field, which contains the resume token, was modified by the"
                    " pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that"
                    " point. Only transformations that retain the unmodified _id field are allowed.",
                )
            if self._splits:
                self._waiting = [part for event in self._waiting for part in self.stream.split(event)]
        while self._position < len(self._waiting):
            event = self._waiting[self._position]
            if not page.add(event):
                return True
            self._position += 1
            self._last_given = event
        return self.stream.has_more(op)

    def resume_token(self) -> bytes:
        """The token after all that the pages so far have given or left out."""
        return self.stream.token(self._position >= len(self._waiting), token_in(self._last_given))


class StreamTail(Tail):
    """The state of a change stream's cursor: it waits for the oplog, and is closed after an `invalidate`."""

    def __init__(self, pages: StreamPages) -> None:
        super().__init__(pages.stream.watched, True, True)
        self._pages = pages

    @property
    def is_dead(self) -> bool:
        return self._pages.stream.ended

    def must_look(self, op: OperationContext) -> bool:
        return op.service.oplog.must_look

    def waited(self, op: OperationContext) -> None:
        self._pages.stream.skip_all(op.service.oplog)

    def resume_token(self) -> bytes:
        return self._pages.resume_token()


def open_change_stream(op: OperationContext, namespace: str, specs: list[StageSpec]) -> ClientCursor:
    """A cursor of a pipeline that begins with `$changeStream`. IllegalOperation (20) for stages that may not follow."""
    spec = checked_spec(op, specs)
    splits = specs[-1].name == SPLIT_LARGE_EVENT
    return stream_cursor(op, namespace, ChangeStream(op, spec, splits), specs[1:], splits)


def checked_spec(op: OperationContext, specs: list[StageSpec]) -> ChangeStreamSpec:
    """The `$changeStream` that a pipeline begins with. IllegalOperation (20) for stages that may not follow."""
    spec = specs[0]
    assert isinstance(spec, ChangeStreamSpec)
    for each in specs:
        check_stage_allowed(op, each)
    check_following(specs[1:])
    return spec


def stream_cursor(
    op: OperationContext, namespace: str, stream: ChangeStream, rest: list[StageSpec], splits: bool = False
) -> ClientCursor:
    """A cursor of a stream, with the stages after `$changeStream`."""
    pages = StreamPages(op, stream, rest, splits)
    cursor = ClientCursor(namespace, pages, op.session_key, op.service.monotonic_s())
    cursor.tail = StreamTail(pages)
    cursor.outlives_collection = True
    return cursor
