"""The default engine: SQLite from the standard library, in memory or in a data directory.

    engine      the engine itself: idents, catalog entries, durability, background work; registered as "sqlite"
    records     record stores: one table each, with two partial indexes for expiry
    sorted_data sorted data: one WITHOUT ROWID table each
    connection  the one connection, the unit of work, counters, and SQLite's errors in the engine's words
    directory   the data directory: whose it is, its lock, its format

No other package imports sqlite3.
"""

from mongottl.storage.sqlite.engine import open_sqlite as open_sqlite
