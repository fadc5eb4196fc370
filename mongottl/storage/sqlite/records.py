"""Record stores in SQLite: one table of rows (rid, doc, ts, ttl, sum) with two partial indexes for expiry.

The record id is SQLite's rowid, so a scan by id reads the table itself, and every index entry ends with the id. Both
indexes are small (a few bytes for each record that has that kind of expiry). Every query that is to use one of them
names it, because SQLite's planner has no statistics here.

The sum is a checksum of the rest (`storage.checksums`): NULL in rows of folders that are older, and in memory; else a
tail or a number. A scan reads the documents and tails of many rows as one value (`_JoinedQueries`) and checks each
reading. For SQLite to hand over one value is half of what it is to hand over each row, so that a scan that checks takes
less than one row by row without. Rows without a tail, of older folders or with long documents, are read one by one.

What is read row by row is checked when it is read from the disk. SQLite does not show whether a
page was in its cache: a store that was read to its end is taken to be in memory, in SQLite's cache or the
system's (`StoreCounters.checked_through`). A reading that checks costs 1.25 times one that does not (measured with
google-crc32c); of a store that fits in memory, one reading in about 64 checks.

What a scan has read is kept in memory (`record_cache`) while there is room, and checked before. Scans and look-ups
by record id take it from there, and look-ups by a key if all records of the store are kept. In memory, and for logs,
nothing is kept.
"""

from typing import Any, Final

from mongottl.storage.checksums import (
    MOST_JOINED_BYTES,
    checked_record,
    checked_records,
    records_of,
    stored_sum,
    summed_rows,
    summed_updates,
    undamaged_records,
)
from mongottl.storage.errors import DamagedRecord
from mongottl.storage.sqlite.connection import LogRow, SqliteConnection, StoreCounters, rows_per_part, unpacked_counters
from mongottl.storage.sqlite.record_cache import RecordCache
from mongottl.storage.stores import MAX_RECORD_ID, NO_BYTE_LIMIT, DueEntry, ExpiryIndex, NewRecord, Record, RecordStore

# Parameters of the statement that looks up many ids at once. Below _FEW, single look-ups are faster.
LOOKUP_WIDTH: Final = 64
FEW: Final = 3
# A prepared statement keeps a copy of what was bound last, and statements are kept for each store. From this length on
# that is too much.
_LONG_BYTES: Final = 64 * 1024
# Bytes that are read joined at once, about: they stay in the processor's caches until they are cut into records. And
# rows, which takes a fraction of a millisecond; of fewer, to read each takes less.
_JOINED_BYTES: Final = 128 * 1024
_MOST_JOINED: Final = 512
_LEAST_JOINED: Final = 16
# The least number of records that are read between two ids, since there may be fewer rows than ids.
_LEAST_BETWEEN: Final = 32
# Number of scans that read row by row after rows could not be read joined.
_JOINS_LEFT_OUT: Final = 32
LOOKUP_VALUES: Final = "(VALUES " + ",".join(["(?)"] * LOOKUP_WIDTH) + ")"


def padded(values: list[object]) -> tuple[object, ...]:
    """At most LOOKUP_WIDTH values, filled up with NULL, which equals no value, to the number of parameters."""
    return (*values, *([None] * (LOOKUP_WIDTH - len(values))))


# What ends the definition of a table of records since format 2.
SUM_COLUMN: Final = ", sum INTEGER)"


def create_record_table(connection: SqliteConnection, store_id: int, is_log: bool) -> None:
    """The table of a record store; with a column for counters in that of a log."""
    table = f"r{store_id}"
    # Before the document, so that they can be read without following the pages of a long one.
    counters = "counters BLOB, " if is_log else ""
    connection.change_schema(
        f"CREATE TABLE {table} "
        f"(rid INTEGER PRIMARY KEY, {counters}doc BLOB NOT NULL, ts INTEGER NOT NULL, ttl INTEGER NOT NULL"
        f"{SUM_COLUMN}"
    )
    connection.change_schema(f"CREATE INDEX {table}_default ON {table} (ts) WHERE ttl = 0")
    connection.change_schema(f"CREATE INDEX {table}_own ON {table} (ts + ttl) WHERE ttl > 0")


class _ExpiryQueries:
    """The statements of one expiry index.

    due, due_checked: records without and with their checksums; parameters (last second, limit).
    count: of the records up to a second; parameter (last second).
    seconds: distinct seconds, by jumping from one to the next; parameters (second before them, limit).

    The others read or count entries after one of them:
    entries_in_second, entries_later: parameters as below, and a limit.
    entry_in_second, count_in_second: of those of the same second; parameters (second, id), and for the first an offset.
    entry_later, count_later: of those of later seconds; parameters (second, last second), and an offset.
    """

    def __init__(self, table: str, index: str, value: str, condition: str, columns: str, checked: str) -> None:
        """columns, checked: those of a record, without and with its checksum."""
        indexed = f"{table} INDEXED BY {table}_{index}"
        first = f"FROM {indexed} WHERE {condition} AND {value} <= ?"
        self.due = f"SELECT {columns} {first} ORDER BY {value}, rid LIMIT ?"
        self.due_checked = f"SELECT {checked} {first} ORDER BY {value}, rid LIMIT ?"
        self.count = f"SELECT count(*) {first}"
        least = f"SELECT min({value}) FROM {indexed} WHERE {condition} AND {value} >"
        self.seconds = (
            f"WITH RECURSIVE seconds(s) AS ({least} ? UNION ALL SELECT ({least} seconds.s) FROM seconds "
            f"WHERE seconds.s IS NOT NULL) SELECT s FROM seconds WHERE s IS NOT NULL LIMIT ?"
        )
        in_second = f"FROM {indexed} WHERE {condition} AND {value} = ? AND rid > ?"
        later = f"FROM {indexed} WHERE {condition} AND {value} > ? AND {value} <= ?"
        self.entries_in_second = f"SELECT {value}, rid {in_second} ORDER BY rid LIMIT ?"
        self.entries_later = f"SELECT {value}, rid {later} ORDER BY {value}, rid LIMIT ?"
        self.entry_in_second = f"SELECT {value}, rid {in_second} ORDER BY rid LIMIT 1 OFFSET ?"
        self.count_in_second = f"SELECT count(*) {in_second}"
        self.entry_later = f"SELECT {value}, rid {later} ORDER BY {value}, rid LIMIT 1 OFFSET ?"
        self.count_later = f"SELECT count(*) {later}"


class _JoinedQueries:
    """Reads consecutive rows as one value, their documents and tails (`storage.checksums`), with their number.

    Tails say what the columns rid, ts and ttl say, which are not read, so that damage in these is found by other reads.

    forward, backward: parameters (id, limit); the rows after or before an id. between: parameters (id, id); the rows
    between two ids, ascending. SQLite needs less for it, as it neither counts rows nor runs an inner query.
    """

    def __init__(self, table: str, value: str) -> None:
        rows = f"SELECT {value} AS joined FROM {table} WHERE rid"
        joined = "SELECT CAST(group_concat(joined, '') AS BLOB), count(*)"
        self.forward = f"{joined} FROM ({rows} > ? ORDER BY rid LIMIT ?)"
        self.backward = f"{joined} FROM ({rows} < ? ORDER BY rid DESC LIMIT ?)"
        self.between = (
            f"SELECT CAST(group_concat({value}, '') AS BLOB), count(*) FROM {table} WHERE rid > ? AND rid < ?"
        )


class SqliteRecordStore(RecordStore):
    def __init__(self, connection: SqliteConnection, ident: str, counters: StoreCounters) -> None:
        self.ident = ident
        self.counters = counters
        self._connection = connection
        if connection.persistent:
            counters.cache = RecordCache(connection.cache_budget)
        # Built once: Python's statement cache finds a statement by its text, and the same object hashes only once.
        table = f"r{counters.store_id}"
        self.table = table
        columns = "rid, doc, ts, ttl"
        # Whether rows are written and read with checksums.
        self.has_sums = has_sums = connection.persistent
        self.on_pages = connection.persistent
        written = columns + ", sum" * has_sums
        marks = "?, ?, ?, ?" + ", ?" * has_sums
        self._insert = f"INSERT INTO {table} ({written}) VALUES ({marks})"
        # For long documents: executed again without any, it stores nothing, and the statement forgets the document.
        values = f"SELECT * FROM (VALUES ({marks})) WHERE column1 IS NOT NULL"
        self._insert_long = f"INSERT INTO {table} ({written}) {values}"
        self._append = f"INSERT INTO {table} ({written.removeprefix('rid, ')}) VALUES ({marks.removeprefix('?, ')})"
        # Parameters of an update: the new record without its id, its checksum, then the one that must still be stored.
        update = f"UPDATE {table} SET doc = ?, ts = ?, ttl = ?{', sum = ?' * has_sums} WHERE rid = ?"
        self._update = f"{update} AND doc = ? AND ts = ? AND ttl = ?"
        self._delete = f"DELETE FROM {table} WHERE rid = ? AND doc = ? AND ts = ? AND ttl = ?"
        # For records that are known to be stored as they were read.
        self._update_known = update
        self._delete_one_known = f"DELETE FROM {table} WHERE rid = ?"
        self._delete_known = f"DELETE FROM {table} WHERE rid IN {LOOKUP_VALUES}"
        # A single record is always checked.
        self._find = f"SELECT {written} FROM {table} WHERE rid = ?"
        self._find_many = f"SELECT {columns} FROM {LOOKUP_VALUES} v CROSS JOIN {table} ON rid = v.column1"
        self._find_many_checked = f"SELECT {written} FROM {LOOKUP_VALUES} v CROSS JOIN {table} ON rid = v.column1"
        self._forward_checked = f"SELECT {written} FROM {table} WHERE rid > ? ORDER BY rid LIMIT ?"
        self._backward_checked = f"SELECT {written} FROM {table} WHERE rid < ? ORDER BY rid DESC LIMIT ?"
        whole = "doc || sum"
        short = f"CASE WHEN length(doc) <= {MOST_JOINED_BYTES} THEN doc || sum END"
        self._joined_whole = _JoinedQueries(table, whole)
        # For stores that may have long documents: in the place of these, NULL.
        self._joined_short = _JoinedQueries(table, short)
        self._forward = f"SELECT {columns} FROM {table} WHERE rid > ? ORDER BY rid LIMIT ?"
        self._backward = f"SELECT {columns} FROM {table} WHERE rid < ? ORDER BY rid DESC LIMIT ?"
        self._by_default = _ExpiryQueries(table, "default", "ts", "ttl = 0", columns, written)
        self._by_own = _ExpiryQueries(table, "own", "ts + ttl", "ttl > 0", columns, written)

    def insert_records(self, records: list[NewRecord]) -> list[int]:
        if not records:
            return []
        counters = self.counters
        connection = self._connection
        connection.touch(counters)
        first = counters.next_record_id
        # SQLite gives the following rows the following ids, which spares binding them.
        count = len(records)
        lengths = [len(record[0]) for record in records]
        per_part = rows_per_part(count, sum(lengths))
        rows: list[Any] = summed_rows(first, records) if self.has_sums else records
        if lengths[0] >= _LONG_BYTES:
            connection.write_long(self._insert, (first, *rows[0]))
        else:
            connection.write(self._insert, (first, *rows[0]))
        if count > 1:
            connection.write_many(self._append, rows[1:], per_part)
        counters.longest = max(counters.longest, *lengths)
        counters.next_record_id = first + count
        counters.record_count += count
        counters.size_bytes += sum(lengths)
        if counters.cache is not None:
            counters.cache.append(first, records)
        return list(range(first, first + count))

    def insert_record(self, document: bytes, ts: int, ttl: int) -> int:
        counters = self.counters
        self._connection.touch(counters)
        record_id = counters.next_record_id
        length = len(document)
        values: tuple[object, ...] = (record_id, document, ts, ttl)
        if self.has_sums:
            values = (record_id, document, ts, ttl, stored_sum(record_id, document, ts, ttl))
        self._add_row(values, length >= _LONG_BYTES)
        counters.next_record_id = record_id + 1
        counters.record_count += 1
        counters.size_bytes += length
        if length > counters.longest:
            counters.longest = length
        if counters.cache is not None:
            counters.cache.append(record_id, [(document, ts, ttl)])
        return record_id

    def _add_row(self, values: tuple[object, ...], is_long: bool) -> None:
        if is_long:
            self._connection.write_long(self._insert_long, values)
            self._connection.write(self._insert_long, (None,) * len(values))
        else:
            self._connection.write(self._insert, values)

    def update_records(self, old: list[Record], new: list[Record]) -> None:
        if not new:
            return
        counters = self.counters
        connection = self._connection
        known = self._are_known(old)
        connection.touch(counters)
        lengths = [len(record[1]) for record in new]
        growth = size_bytes = sum(lengths)
        for record in old:
            growth -= len(record[1])
        per_part = rows_per_part(len(new), max(size_bytes, size_bytes - growth))
        if self.has_sums:
            summed = summed_updates(new)
            if known:
                updated = connection.write_many(self._update_known, summed, per_part)
            else:
                rows = [row + stored[1:] for row, stored in zip(summed, old, strict=True)]
                updated = connection.write_many(self._update, rows, per_part)
        elif known:
            plain_known = [record[1:] + record[:1] for record in new]
            updated = connection.write_many(self._update_known, plain_known, per_part)
        else:
            plain = [record[1:] + stored for record, stored in zip(new, old, strict=True)]
            updated = connection.write_many(self._update, plain, per_part)
        if updated != len(new):
            raise self._refusal(old, f"a record to update in {self.ident} was changed or deleted")
        counters.longest = max(counters.longest, *lengths)
        counters.size_bytes += growth
        if counters.cache is not None:
            counters.cache.update(new)

    def update_record(self, old: Record, new: Record) -> None:
        counters = self.counters
        self._connection.touch(counters)
        cache = counters.cache
        known = cache is not None and cache.has([old])
        stored: tuple[object, ...] = old[:1] if known else old
        values: tuple[object, ...] = new[1:] + stored
        if self.has_sums:
            values = (*new[1:], stored_sum(*new), *stored)
        length = len(new[1])
        sql = self._update_known if known else self._update
        if max(length, len(old[1])) >= _LONG_BYTES:
            changed = self._connection.write_long(sql, values)
        else:
            changed = self._connection.write(sql, values)
        if changed != 1:
            raise self._refusal([old], f"record {new[0]} of {self.ident} was changed or deleted")
        counters.size_bytes += length - len(old[1])
        if length > counters.longest:
            counters.longest = length
        if cache is not None:
            cache.update([new])

    def delete_records(self, records: list[Record]) -> None:
        if not records:
            return
        counters = self.counters
        connection = self._connection
        known = len(records) > FEW and self._are_known(records)
        connection.touch(counters)
        size = 0
        for record in records:
            size += len(record[1])
        per_part = rows_per_part(len(records), size)
        deleted = 0
        if known:
            ids: list[object] = [record[0] for record in records]
            width = min(per_part, LOOKUP_WIDTH)
            for start in range(0, len(ids), width):
                deleted += connection.write(self._delete_known, padded(ids[start : start + width]))
                if width < LOOKUP_WIDTH:
                    connection.pause()
        else:
            deleted = connection.write_many(self._delete, records, per_part)
        if deleted != len(records):
            raise self._refusal(records, f"a record to delete in {self.ident} was changed or deleted")
        counters.record_count -= len(records)
        counters.size_bytes -= size
        if counters.cache is not None:
            counters.cache.remove(records)

    def delete_record(self, record: Record) -> None:
        counters = self.counters
        self._connection.touch(counters)
        cache = counters.cache
        known = cache is not None and cache.has([record])
        sql = self._delete_one_known if known else self._delete
        values: tuple[object, ...] = record[:1] if known else record
        if len(record[1]) >= _LONG_BYTES:
            deleted = self._connection.write_long(sql, values)
        else:
            deleted = self._connection.write(sql, values)
        if deleted != 1:
            raise self._refusal([record], f"record {record[0]} of {self.ident} was changed or deleted")
        counters.record_count -= 1
        counters.size_bytes -= len(record[1])
        if cache is not None:
            cache.remove([record])

    def _are_known(self, records: list[Record]) -> bool:
        """Whether records that were read before are surely still stored like this. To be called before `touch`."""
        cache = self.counters.cache
        if cache is not None and cache.has(records):
            return True
        return self._connection.equals_last_read(self.counters, records)

    def _refusal(self, records: list[Record], message: str) -> Exception:
        """The WriteConflict to raise for records that are not stored as given; raises DamagedRecord for one whose
        columns are not as it was written. A record that was read joined does not show that (`_JoinedQueries`), and
        would not equal its row however often it is read again."""
        conflict = self._connection.conflict(message)
        for record in records:
            if self._find_stored(record[0]) is None and self.has_sums:
                # If it is the id that is damaged, the row stands where it was, next to where the id should be.
                for forward in (True, False):
                    self._scan_rows(record[0], 1, forward, NO_BYTE_LIMIT, True)
        return conflict

    @property
    def full_cache(self) -> RecordCache | None:
        """The cache if it has all records of the store, which are not none; else None."""
        cache = self.counters.cache
        return cache if cache is not None and cache.count == self.counters.record_count > 0 else None

    def find_record(self, record_id: int) -> Record | None:
        cache = self.counters.cache
        if cache is not None:
            record = cache.find(record_id)
            if record is not None:
                return record
        return self._find_stored(record_id)

    def _find_stored(self, record_id: int) -> Record | None:
        row = self._connection.read_row(self._find, (record_id,))
        if row is None:
            return None
        return self.checked(row)

    def checked(self, row: Any) -> Record:
        """The record of a row that was read with its checksum, if there are any. DamagedRecord."""
        if self.has_sums:
            return checked_record(self.ident, row)
        record: Record = row
        return record

    def all_checked(self, rows: list[Any], with_sums: bool) -> list[Record]:
        """The records of rows. with_sums: whether they were read with their checksums. DamagedRecord."""
        if with_sums:
            return checked_records(self.ident, rows)
        if self.has_sums:
            self.counters.note_unchecked(len(rows))
        return rows

    @property
    def must_check(self) -> bool:
        """Whether records have to be read with their checksums."""
        return self.has_sums and self.counters.checked_through < MAX_RECORD_ID

    def find_records(self, record_ids: list[int], max_bytes: int = NO_BYTE_LIMIT) -> tuple[list[Record], int]:
        cache = self.counters.cache
        if cache is not None:
            kept = cache.find_all(record_ids, max_bytes)
            if kept is not None:
                return kept
        found: list[Record] = []
        count = len(record_ids)
        left = max_bytes
        if count <= FEW:
            for taken, record_id in enumerate(record_ids, 1):
                row = self._connection.read_row(self._find, (record_id,))
                if row is not None:
                    found.append(self.checked(row))
                    left -= len(row[1])
                    if left <= 0:
                        return found, taken
            return found, count
        fits = self.counters.fits_repeated(count, max_bytes)
        with_sums = self.must_check
        sql = self._find_many_checked if with_sums else self._find_many
        for start in range(0, count, LOOKUP_WIDTH):
            part: list[object] = list(record_ids[start : start + LOOKUP_WIDTH])
            if fits:
                found.extend(self.all_checked(self._connection.read(sql, padded(part)), with_sums))
                continue
            rows, left = self._connection.read_within(sql, padded(part), 1, left)
            found.extend(self.all_checked(rows, with_sums))
            if left <= 0:
                taken = 0
                for row in rows:
                    taken = part.index(row[0], taken) + 1
                return found, start + taken
        self._connection.remember_read(
            self.counters, found, self.counters.most_bytes(count) if fits else max_bytes - left
        )
        return found, count

    def scan(
        self, after: int, limit: int, forward: bool = True, max_bytes: int = NO_BYTE_LIMIT
    ) -> tuple[list[Record], bool]:
        cache = self.counters.cache
        if cache is None:
            return self._scan_stored(after, limit, forward, max_bytes, self.must_check)
        found: list[Record] = []
        last_id = self.counters.next_record_id - 1
        if last_id == 0:
            return found, False
        position = after
        if not forward and after > last_id and cache.covers(last_id):
            position = last_id + 1
        left = max_bytes
        while True:
            kept, position, reached = cache.scan(position, limit - len(found), forward, left)
            found = found + kept if found else kept
            if reached:
                return found, True
            if position >= last_id if forward else position <= 1:
                return found, False
            for record in kept:
                left -= len(record[1])
            read, position, length = self._scan_gap(cache, position, limit - len(found), forward, left)
            found = found + read if found else read
            left -= length
            if len(found) >= limit or left <= 0:
                return found, True

    def _scan_gap(
        self, cache: RecordCache, position: int, limit: int, forward: bool, max_bytes: int
    ) -> tuple[list[Record], int, int]:
        """The first records after or before an id, which are not in the cache, and adds them to it: up to those that
        are. Up to, or from, which id on all are among them, and the length of their documents."""
        counters = self.counters
        end = cache.end_of_gap(position, forward)
        wanted = min(limit, end - position if forward else position - end)
        rows, more = self._scan_stored(position, wanted, forward, max_bytes, True)
        if rows and (rows[-1][0] > end if forward else rows[-1][0] < end):
            rows = [row for row in rows if (row[0] <= end if forward else row[0] >= end)]
            through = end
        elif more:
            through = rows[-1][0]
        else:
            through = end
        last_id = counters.next_record_id - 1
        if rows:
            last_id = max(last_id, rows[0][0], rows[-1][0])  # an id that is too large is one that was damaged
        if forward:
            through = min(through, last_id)
            low, high = position, through
        else:
            low, high = through - 1, min(position - 1, last_id)
        if counters.touched:
            return rows, through, sum([len(row[1]) for row in rows])
        return rows, through, cache.add(low, high, rows)

    def _scan_stored(
        self, after: int, limit: int, forward: bool, max_bytes: int, with_sums: bool
    ) -> tuple[list[Record], bool]:
        """`scan` of the database. with_sums: whether checksums are looked at in any case."""
        if self.has_sums and limit >= _LEAST_JOINED:
            counters = self.counters
            if counters.joins_left_out == 0:
                average = counters.size_bytes // max(counters.record_count, 1)
                at_once = min(limit, _MOST_JOINED, _JOINED_BYTES // max(average, 1))
                if at_once >= _LEAST_JOINED:
                    return self._scan_joined(after, limit, forward, max_bytes, at_once)
            else:
                counters.joins_left_out -= 1
        return self._scan_rows(after, limit, forward, max_bytes, with_sums)

    def _scan_joined(
        self, after: int, limit: int, forward: bool, max_bytes: int, at_once: int
    ) -> tuple[list[Record], bool]:
        """A scan that reads up to `at_once` rows as one value, and goes on row by row where they are no such ones."""
        counters = self.counters
        found: list[Record] = []
        position = after
        longest = 0
        left = max_bytes
        more = True
        failed = False
        while more and left > 0 and len(found) < limit:
            wanted = min(at_once, limit - len(found))
            part = self._read_joined(position, wanted, forward)
            if part is None:
                counters.joins_left_out = _JOINS_LEFT_OUT
                failed = True
                break
            records, more, longest_here, size = part
            if size >= left:
                records, left = _up_to(records, left)
                more = True
            else:
                left -= size
            if records:
                position = records[-1][0]
            longest = max(longest, longest_here)
            found = found + records if found else records
        if forward:
            through = counters.read_through(position, more)
            counters.note_checked(after, through)
            if after <= counters.measured_through < MAX_RECORD_ID:
                counters.longest = max(counters.longest, longest)
                counters.measured_through = max(through, counters.measured_through)
        if failed:
            rest, more = self._scan_rows(position, limit - len(found), forward, left, True)
            return found + rest, more
        self._connection.remember_read(counters, found, max_bytes - left)
        return found, more

    def _read_joined(self, position: int, wanted: int, forward: bool) -> tuple[list[Record], bool, int, int] | None:
        """Up to `wanted` records after or before an id; whether there may be more; the length of the longest document,
        and of all. None if they have to be read row by row: they are damaged, have other sums, or are long."""
        counters = self.counters
        is_short = counters.measured_through == MAX_RECORD_ID and wanted * counters.longest <= 4 * _JOINED_BYTES
        queries = self._joined_whole if is_short else self._joined_short
        if counters.is_dense and wanted >= _LEAST_BETWEEN:
            # Bounds after which there may be more rows.
            low, high = (position, position + wanted + 1) if forward else (position - wanted - 1, position)
            if low >= 0 and high < counters.next_record_id:
                part = self._joined(queries.between, low, high, True)
                if part is None:
                    return None
                records, longest, size = part
                if records:
                    if records[0][0] <= low or records[-1][0] >= high:
                        return None
                    self._note_density(records)
                    if not forward:
                        records.reverse()
                    return records, True, longest, size
        part = self._joined(queries.forward if forward else queries.backward, position, wanted, forward)
        if part is None:
            return None
        records, longest, size = part
        if records:
            if records[0][0] <= position if forward else records[0][0] >= position:
                return None
            self._note_density(records)
        return records, len(records) >= wanted, longest, size

    def _note_density(self, records: list[Record]) -> None:
        self.counters.is_dense = abs(records[-1][0] - records[0][0]) < 2 * len(records)

    def _joined(self, sql: str, first: int, second: int, ascends: bool) -> tuple[list[Record], int, int] | None:
        """The records of a query of `_JoinedQueries`, the length of the longest document, and of all; None if it does
        not give them."""
        joined, count = self._connection.read_row(sql, (first, second))
        if joined is None:
            return None if count else ([], 0, 0)
        return records_of(joined, count, ascends)

    def _scan_rows(
        self, after: int, limit: int, forward: bool, max_bytes: int, with_sums: bool
    ) -> tuple[list[Record], bool]:
        if with_sums:
            sql = self._forward_checked if forward else self._backward_checked
        else:
            sql = self._forward if forward else self._backward
        counters = self.counters
        if counters.fits(limit, max_bytes):
            rows = self.all_checked(self._connection.read(sql, (after, limit)), with_sums)
            self._connection.remember_read(counters, rows, counters.most_bytes(len(rows)))
            more = len(rows) >= limit
            if with_sums and forward:
                counters.note_checked(after, counters.read_through(rows[-1][0] if rows else after, more))
            return rows, more
        read, left = self._connection.read_within(sql, (after, limit), 1, max_bytes)
        rows = self.all_checked(read, with_sums)
        self._connection.remember_read(counters, rows, max_bytes - left)
        more = len(rows) >= limit or left <= 0
        through = counters.read_through(rows[-1][0] if rows else after, more)
        if with_sums and forward:
            counters.note_checked(after, through)
        if forward and after <= counters.measured_through < MAX_RECORD_ID:
            if rows:
                counters.longest = max(counters.longest, *[len(row[1]) for row in rows])
            counters.measured_through = max(through, counters.measured_through)
        return rows, more

    def count(self) -> int:
        return self.counters.record_count

    def size_bytes(self) -> int:
        return self.counters.size_bytes

    def _expiry_queries(self, index: ExpiryIndex) -> _ExpiryQueries:
        return self._by_own if index is ExpiryIndex.BY_OWN else self._by_default

    def due(self, index: ExpiryIndex, until_s: int, limit: int, max_bytes: int = NO_BYTE_LIMIT) -> list[Record]:
        queries = self._expiry_queries(index)
        with_sums = self.must_check
        sql = queries.due_checked if with_sums else queries.due
        counters = self.counters
        if counters.fits(limit, max_bytes):
            read = self._connection.read(sql, (until_s, limit))
            most_bytes = counters.most_bytes(len(read))
        else:
            read, left = self._connection.read_within(sql, (until_s, limit), 1, max_bytes)
            most_bytes = max_bytes - left
        try:
            rows = self.all_checked(read, with_sums)
        except DamagedRecord:
            rows = undamaged_records(self.ident, read)
        self._connection.remember_read(counters, rows, most_bytes)
        return rows

    def count_due(self, index: ExpiryIndex, until_s: int) -> int:
        return int(self._connection.read_row(self._expiry_queries(index).count, (until_s,))[0])

    def due_seconds(self, index: ExpiryIndex, after_s: int, limit: int) -> list[int]:
        rows = self._connection.read(self._expiry_queries(index).seconds, (after_s, limit))
        seconds: list[int] = [row[0] for row in rows]
        return seconds

    def due_entries(self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int) -> list[DueEntry]:
        second, record_id = after
        if second > until_s:
            return []
        queries = self._expiry_queries(index)
        found: list[DueEntry] = self._connection.read(queries.entries_in_second, (second, record_id, limit))
        if len(found) < limit:
            found.extend(self._connection.read(queries.entries_later, (second, until_s, limit - len(found))))
        return found

    def count_due_after(
        self, index: ExpiryIndex, after: DueEntry, until_s: int, limit: int
    ) -> tuple[int, DueEntry | None]:
        second, record_id = after
        if second > until_s:
            return 0, None
        queries = self._expiry_queries(index)
        read = self._connection.read
        found = read(queries.entry_in_second, (second, record_id, limit - 1))
        if found:
            return limit, (found[0][0], found[0][1])
        count = int(self._connection.read_row(queries.count_in_second, (second, record_id))[0])
        found = read(queries.entry_later, (second, until_s, limit - 1 - count))
        if found:
            return limit, (found[0][0], found[0][1])
        return count + int(self._connection.read_row(queries.count_later, (second, until_s))[0]), None


def _up_to(records: list[Record], max_bytes: int) -> tuple[list[Record], int]:
    """The first records up to the one whose document reaches `max_bytes`, and the bytes that are left, as
    `rows_within`."""
    left = max_bytes
    for i, record in enumerate(records):
        left -= len(record[1])
        if left <= 0:
            return records[: i + 1], left
    return records, left


class SqliteLog(SqliteRecordStore):
    """A record store whose rows can hold counters of all stores (`connection`)."""

    def __init__(self, connection: SqliteConnection, ident: str, counters: StoreCounters) -> None:
        super().__init__(connection, ident, counters)
        counters.cache = None
        self.is_log = True
        columns = f"rid, doc, ts, ttl, {'sum, ' * self.has_sums}counters"
        marks = "?, ?, ?, ?, ?" + ", ?" * self.has_sums
        self._add = f"INSERT INTO {self.table} ({columns}) VALUES ({marks})"
        values = f"SELECT * FROM (VALUES ({marks})) WHERE column1 IS NOT NULL"
        self._add_long = f"INSERT INTO {self.table} ({columns}) {values}"

    def _add_row(self, values: tuple[object, ...], is_long: bool) -> None:
        sql = self._add_long if is_long else self._add
        place = (self.counters.store_id, self.counters.next_record_id)
        self._connection.add_log_row(LogRow(sql, self._add_long * is_long, place, values))

    def last_record_id(self) -> int:
        """The largest record id; 0 if there are no records."""
        return int(self._connection.read_row(f"SELECT coalesce(max(rid), 0) FROM {self.table}", ())[0])

    def counters_from(self, record_id: int) -> dict[int, tuple[int, int, int]]:
        """Records, bytes and next record id of stores, by their ids, as the rows from this id on have them last.
        ValueError if some are damaged."""
        found: dict[int, tuple[int, int, int]] = {}
        sql = f"SELECT counters FROM {self.table} WHERE rid >= ? AND counters IS NOT NULL ORDER BY rid"
        for row in self._connection.read(sql, (record_id,)):
            for store_id, count, size, next_id in unpacked_counters(row[0]):
                found[store_id] = (count, size, next_id)
        return found
