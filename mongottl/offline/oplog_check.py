"""Checks the stored oplog: its segments (`oplog.rows`) follow each other, and so do the entries in them."""

from collections.abc import Iterator
from typing import Final

from mongottl.catalog.entries import OPLOG_IDENT
from mongottl.document.types import Timestamp
from mongottl.document.validate import validate_document
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.oplog.entry import loaded_form
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.interface import StorageEngine
from mongottl.storage.stores import RecordStore

_ROWS: Final = 1000
_BYTES: Final = 4 << 20
# What reading an entry of valid BSON raises that is none of the oplog.
FORM_ERRORS: Final = (AssertionError, CommandError, IndexError, KeyError, TypeError, ValueError)


class OplogCheck:
    """The check of the oplog. state: its entry in the catalog, or None. unreadable: idents of segments to leave out.
    entries: how many were read.

    `faults` gives a line for each fault.
    """

    def __init__(self, engine: StorageEngine, state: bytes | None, unreadable: set[str]) -> None:
        self._engine = engine
        self._unreadable = unreadable
        self._state = state
        self._last = (0, 0)
        self.entries = 0

    def faults(self) -> Iterator[str]:
        segments: list[tuple[int, RecordStore]] = []
        for ident in self._engine.idents():
            if ident.startswith(OPLOG_IDENT):
                number = ident[len(OPLOG_IDENT) :]
                if number.isdigit():
                    segments.append((int(number), self._engine.record_store(ident)))
                else:
                    yield f"oplog: {ident} is no name of a segment"
        segments.sort(key=_base_of)
        if self._state is None:
            if segments:
                yield "oplog: there are segments, but the catalog does not know the oplog"
            return
        floor = get_value(self._state, "floor")
        if isinstance(floor, Timestamp):
            self._last = (floor.time, floor.inc)
        else:
            yield "oplog: its entry in the catalog does not say where it begins"
        end = segments[0][0] if segments else 0
        for base, store in segments:
            if base != end:
                yield f"oplog: entries {end} to {base - 1} are missing"
            end = base + store.count()
            if store.ident not in self._unreadable:
                yield from self._segment_faults(base, store)

    def _segment_faults(self, base: int, store: RecordStore) -> Iterator[str]:
        after = 0
        more = True
        while more:
            try:
                rows, more = store.scan(after, _ROWS, True, _BYTES)
            except EngineUnavailable as error:
                yield f"oplog, from entry {base + after} on: the segment {store.ident} cannot be read: {error}"
                return
            for rid, form, _, _ in rows:
                if rid != after + 1:
                    yield f"oplog: entries {base + after} to {base + rid - 2} are missing in {store.ident}"
                after = rid
                self.entries += 1
                fault = self._fault_of(form)
                if fault:
                    yield f"oplog, entry {base + rid - 1}: {fault}"

    def _fault_of(self, form: bytes) -> str:
        """What is wrong with an entry, or nothing."""
        try:
            validate_document(form)
            entry = loaded_form(form)
        except FORM_ERRORS as error:
            return f"it cannot be read: {error}"
        at = (entry.at_s, entry.at_i)
        before, self._last = self._last, at
        # The entries of a transaction have the same time.
        return f"its time {at} is before that of the entry before it, {before}" if at < before else ""


def _base_of(segment: tuple[int, RecordStore]) -> int:
    return segment[0]
