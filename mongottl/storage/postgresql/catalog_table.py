"""The table of catalog entries, which is in memory as well."""

from functools import partial
from typing import Final

from mongottl.document.utf8 import decode_text, encode_text
from mongottl.storage.postgresql.statements import BYTEA, INT8, Call, Statement, int8
from mongottl.storage.postgresql.units import ROWS_AT_ONCE, UNKNOWN_EPOCH, PostgresUnit, PostgresUnits, Row

# What has changed since a version of the catalog; of transactions always (`UNKNOWN_EPOCH`).
_CATALOG: Final = Statement(
    "catalog",
    f"SELECT key, value, state <> 'gone', epoch < {UNKNOWN_EPOCH} FROM catalog WHERE epoch > $1",
    (INT8,),
)
_PUT: Final = Statement(
    "put_catalog",
    "INSERT INTO catalog (key, state, value, epoch) VALUES ($1, 'ready', $2, $3)"
    " ON CONFLICT (key) DO UPDATE SET state = excluded.state, value = excluded.value, epoch = excluded.epoch",
    (BYTEA, BYTEA, INT8),
)
# The same where others may have changed the entry meanwhile: it is a division by zero unless it is still as it was.
_PUT_OVER: Final = Statement(
    "put_over_catalog",
    "WITH done AS (INSERT INTO catalog (key, state, value, epoch) VALUES ($1, 'ready', $2, $3)"
    " ON CONFLICT (key) DO UPDATE SET state = excluded.state, value = excluded.value, epoch = excluded.epoch"
    " WHERE CASE WHEN catalog.state = 'gone' THEN $4 IS NULL ELSE catalog.value = $4 END RETURNING 1)"
    " SELECT 1 / count(*) FROM done",
    (BYTEA, BYTEA, INT8, BYTEA),
)
_NAME: Final = Statement("name_catalog", "UPDATE catalog SET ns = $2 WHERE key = $1", (BYTEA, BYTEA))
_DELETE: Final = Statement("delete_catalog", "DELETE FROM catalog WHERE key = $1", (BYTEA,))
# Where others have to hear of it.
_BURY: Final = Statement(
    "bury_catalog",
    "WITH done AS (UPDATE catalog SET state = 'gone', ns = NULL, value = '', epoch = $2"
    " WHERE key = $1 AND state <> 'gone' AND value = $3 RETURNING 1) SELECT 1 / count(*) FROM done",
    (BYTEA, INT8, BYTEA),
)


class CatalogTable:
    """is_shared: whether other servers change it, too."""

    def __init__(self, units: PostgresUnits, is_shared: bool) -> None:
        self._units: Final = units
        self._is_shared: Final = is_shared
        self._entries: dict[str, bytes] = {}

    def changed_since(self, epoch: int) -> Call:
        """What reads the rows for `take`."""
        return _CATALOG, (int8(epoch),)

    def take(self, rows: list[Row]) -> dict[str, bytes | None]:
        """Takes over rows, all or those that have changed: what the entries were that they have changed."""
        before: dict[str, bytes | None] = {}
        for place, (name, value, is_there, is_new) in enumerate(rows, 1):
            if not place % ROWS_AT_ONCE:
                self._units.pause()
            key = decode_text(name)
            old = self._entries.get(key)
            if is_there and (is_new or value != old):
                before[key] = old
                self._entries[key] = value
            elif not is_there and old is not None:
                before[key] = old
                del self._entries[key]
        return before

    def gone_from(self, rows: list[Row]) -> list[Row]:
        """Rows of deleted entries: of those that are not among these rows, which are all."""
        there = {row[0] for row in rows}
        return [(name, b"", False, True) for name in map(encode_text, self._entries) if name not in there]

    def all(self) -> list[tuple[str, bytes]]:
        return sorted(self._entries.items(), key=lambda entry: encode_text(entry[0]))

    def get(self, key: str) -> bytes | None:
        return self._entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        unit = self._units.require()
        unit.change_catalog()
        before = self._entries.get(key)
        self._undo(unit, key)
        self._entries[key] = value
        if self._is_shared:
            unit.write(_PUT_OVER, encode_text(key), value, int8(unit.catalog_epoch), before)
        else:
            unit.write(_PUT, encode_text(key), value, int8(unit.catalog_epoch))

    def name(self, key: str, name: str) -> None:
        unit = self._units.require()
        unit.closes = True
        unit.write(_NAME, encode_text(key), encode_text(name))

    def delete(self, key: str) -> None:
        unit = self._units.require()
        before = self._entries.get(key)
        if before is not None:
            unit.change_catalog()
            unit.closes = True
            self._undo(unit, key)
            del self._entries[key]
            if self._is_shared:
                unit.write(_BURY, encode_text(key), int8(unit.catalog_epoch), before)
            else:
                unit.write(_DELETE, encode_text(key))

    def _undo(self, unit: PostgresUnit, key: str) -> None:
        before = self._entries.get(key)
        if before is None:
            unit.undo.append(partial(self._forget, key))
        else:
            unit.undo.append(partial(self._entries.__setitem__, key, before))

    def _forget(self, key: str) -> None:
        self._entries.pop(key, None)
