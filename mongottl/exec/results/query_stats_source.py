"""The documents of `$queryStats`, described in batches: there may be many thousands of entries."""

from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.walk import fields
from mongottl.exec.plan.described_shape import Shaper
from mongottl.exec.state.query_stats import QueryStatsEntry
from mongottl.query.pipeline.source import DocumentSource

_BATCH_ENTRIES: Final = 64


class QueryStatsSource(DocumentSource):
    """Entries as they are when they are read. hmac_key: replaces the names in their shapes, if not None."""

    def __init__(self, entries: list[QueryStatsEntry], now_ms: int, hmac_key: bytes | None) -> None:
        self._entries: Final = entries
        self._now_ms: Final = now_ms
        self._shaper: Final = None if hmac_key is None else Shaper(hmac_key, of_shapes=True)
        self._position = 0

    def next_batch(self) -> list[bytes] | None:
        entries = self._entries[self._position : self._position + _BATCH_ENTRIES]
        self._position += _BATCH_ENTRIES
        return [entry.describe(self._shown(entry.key), self._now_ms) for entry in entries] if entries else None

    def _shown(self, key: bytes) -> bytes:
        shaper = self._shaper
        if shaper is None:
            return key
        shown = fields(key)
        for i in range(len(shown)):
            name, value = shown[i]
            if name == "queryShape" and isinstance(value, bytes):
                shown[i] = (name, shaper.command(value))
        return encode_fields(shown)
