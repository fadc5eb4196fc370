"""Statements that are prepared by name, their parameters and rows in PostgreSQL's binary format.

    FETCH = Statement("fetch", "SELECT doc, ts, ttl FROM records WHERE store = $1 AND rid = $2", (INT8, INT8))
    connection.run([FETCH.with_(int8(7), int8(rid))])[0].rows()  →  [(b"…", 1700000000, 0)]

A connection prepares a statement when it is first used there. Names are unique: two statements of one name would be
taken for each other. Tables are named without their schema, which is the connection's `search_path`.
"""

import re
import struct
from typing import Any, Final

from mongottl.document.utf8 import encode_text
from mongottl.storage.waiting import Waiter

# Types of PostgreSQL by their object ids, which are fixed (pg_type.dat).
BOOL: Final = 16
BYTEA: Final = 17
INT8: Final = 20
INT2: Final = 21
INT4: Final = 23
TEXT: Final = 25
XID8: Final = 5069
BYTEA_ARRAY: Final = 1001
INT2_ARRAY: Final = 1005
INT4_ARRAY: Final = 1007
INT8_ARRAY: Final = 1016

# A parameter in binary; None is NULL.
Parameter = bytes | None

_INT2: Final = struct.Struct("!h").pack
_INT4: Final = struct.Struct("!i").pack
int8: Final = struct.Struct("!q").pack
int4: Final = _INT4
int2: Final = _INT2
# Of an array: number of dimensions, whether there are NULLs, type of the elements, their number, number of the first.
_ARRAY_HEAD: Final = struct.Struct("!iiIii").pack
_EMPTY_HEAD: Final = struct.Struct("!iiI").pack
_NULL: Final = b"\xff\xff\xff\xff"


class Statement:
    """name: what it is prepared as. sql: with $1, $2 … types: of these parameters."""

    def __init__(self, name: str, sql: str, types: tuple[int, ...] = ()) -> None:
        self.name = name
        self.encoded_name = encode_text(name)
        self.sql = sql
        self.encoded_sql = encode_text(sql)
        self.types = types
        self.formats = [1] * len(types)
        # The same statement where tables are distributed; None for one on tables that never are.
        self.placed: Statement | None = None

    def with_(self, *parameters: Parameter) -> "Call":
        """The statement with its parameters."""
        return (self, parameters)

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"


# What says of which store rows are that are read, and what begins those that are written.
_OF_STORE: Final = re.compile(r"\b(\w+\.)?store = (\$\d+)")
_BY_LOCATION: Final = re.compile(r"\bWHERE ctid\b")
_NEW_ROW: Final = "VALUES (0, $1"
_NEW_ROWS: Final = "SELECT 0, $1"


def placed(name: str, sql: str, types: tuple[int, ...], distributed: str = "") -> Statement:
    """A statement on rows of one store, whose number is the first parameter.

    Where tables are distributed, it has the place of the store as one more parameter, the last one, so that Citus sends
    it to the one machine that has these rows. distributed: what it is there, if more is different.
    """
    statement = Statement(name, sql, types)
    place = f"${len(types) + 1}"
    found = _OF_STORE.sub(rf"\1place = {place} AND \1store = \2", distributed or sql)
    found = _BY_LOCATION.sub(f"WHERE place = {place} AND ctid", found)
    found = found.replace(_NEW_ROW, f"VALUES ({place}, $1")
    if _NEW_ROWS in found:
        found = _from_place(found.replace(_NEW_ROWS, "SELECT p.place, $1"), place)
    if place not in found:
        raise ValueError(f"{name} does not say of which place its rows are")
    statement.placed = Statement(f"placed_{name}", found, (*types, INT4))
    return statement


def scattered(statement: Statement) -> Statement:
    """A query of rows of one store at several places: these are one more parameter, the last one."""
    places = f"ANY (${len(statement.types) + 1})"
    sql = _OF_STORE.sub(rf"\1place = {places} AND \1store = \2", statement.sql)
    return Statement(f"scattered_{statement.name}", sql, (*statement.types, INT4_ARRAY))


def _from_place(sql: str, place: str) -> str:
    """An INSERT of several rows that Citus can send to one machine, since it selects from a table with their place."""
    head, conflict, tail = sql.partition(" ON CONFLICT")
    selected, where, condition = head.partition(" WHERE ")
    columns, rows_from, rows = selected.partition(" FROM ")
    rows = f" FROM places p CROSS JOIN {rows}" if rows_from else " FROM places p"
    condition = f" WHERE p.place = {place}{f' AND {condition}' if where else ''}"
    return f"{columns}{rows}{condition}{conflict}{tail}"


# A statement with its parameters.
Call = tuple[Statement, tuple[Parameter, ...]]

_SYNC_STATEMENT: Final = Statement("sync", "")
# Between the calls of two transactions that are sent at once: the first one is committed here.
SYNC: Final[Call] = (_SYNC_STATEMENT, ())


# A value that is long takes a millisecond or more to be copied or hashed.
LONG_BYTES: Final = 1 << 20
# More rows than these are converted several at once: an answer has 16 MB, and its last row may have as much again.
_MOST_LONG_ROWS: Final = 32
_ROWS_AT_ONCE: Final = 8


class Answer:
    """What the server answers to one call. waiter: of the connection."""

    def __init__(self, result: Any, transformer: Any, waiter: Waiter) -> None:
        self._result = result
        self._transformer = transformer
        self._waiter = waiter

    @property
    def changed(self) -> int:
        """The number of rows that were inserted, changed, deleted or returned."""
        number: int | None = self._result.command_tuples
        return number or 0

    @property
    def tag(self) -> bytes:
        """What the server says that it has done, such as b"COMMIT"; empty for nothing."""
        tag: bytes | None = self._result.command_status
        return tag or b""

    def rows(self) -> list[tuple[Any, ...]]:
        """The returned rows: int8 as int, bytea as bytes, text as str, NULL as None. Others may run after each long
        one, or as much."""
        result = self._result
        count: int = result.ntuples
        if count == 0:
            return []
        transformer = self._transformer
        lengthy = [column for column in range(result.nfields) if result.ftype(column) == BYTEA]
        at_once = 1 if count <= _MOST_LONG_ROWS else _ROWS_AT_ONCE
        rows: list[tuple[Any, ...]] = []
        size = 0
        for first in range(0, count, at_once):
            if transformer.pgresult is not result:  # at first, and when others have read one meanwhile
                transformer.set_pgresult(result)
            part = transformer.load_rows(first, min(first + at_once, count), tuple)
            rows += part
            for column in lengthy:
                size += sum([len(row[column] or b"") for row in part])
            if size >= LONG_BYTES:
                size = 0
                self._waiter.let_others_run()
        return rows

    def row(self) -> tuple[Any, ...] | None:
        """The only row, None if there is none."""
        rows = self.rows()
        return rows[0] if rows else None

    def value(self) -> Any:
        """The only value of the only row."""
        [(value,)] = self.rows()
        return value


# Of `pg_stat_activity`, and of the function that it is made of: the sessions of this database. Those of servers that
# keep their data in another one have the same names.
OF_DATABASE: Final = "datname = current_database()"
OF_DATABASE_ID: Final = "datid = (SELECT oid FROM pg_database WHERE datname = current_database())"
# Waits longer for locks than sessions of servers that share a database do by themselves, until the end of a unit.
PATIENT: Final[Call] = (Statement("patient", "SELECT set_config('lock_timeout', '1000', true)"), ())


def boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def text(value: str) -> bytes:
    return encode_text(value)


def int8_array(values: list[int]) -> bytes:
    """A parameter of type INT8_ARRAY."""
    count = len(values)
    if not count:
        return _EMPTY_HEAD(0, 0, INT8)
    fields: list[int] = [8] * (2 * count)
    fields[1::2] = values
    return _ARRAY_HEAD(1, 0, INT8, count, 1) + struct.pack("!" + "iq" * count, *fields)


def int4_array(values: list[int]) -> bytes:
    """A parameter of type INT4_ARRAY."""
    count = len(values)
    if not count:
        return _EMPTY_HEAD(0, 0, INT4)
    fields: list[int] = [4] * (2 * count)
    fields[1::2] = values
    return _ARRAY_HEAD(1, 0, INT4, count, 1) + struct.pack(f"!{2 * count}i", *fields)


def bytea_array(values: list[bytes] | list[Parameter]) -> bytes:
    """A parameter of type BYTEA_ARRAY; None is NULL."""
    return _bytes_array(values, BYTEA)


def _bytes_array(values: list[bytes] | list[Parameter], element: int) -> bytes:
    if not values:
        return _EMPTY_HEAD(0, 0, element)
    parts: list[bytes] = [_ARRAY_HEAD(1, 1, element, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(_INT4(len(value)))
            parts.append(value)
    return b"".join(parts)
