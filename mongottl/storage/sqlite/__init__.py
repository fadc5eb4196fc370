"""The default engine: SQLite from the standard library, in memory or in a data directory.

    engine      the engine itself: idents, catalog entries, durability, background work; registered as "sqlite"
    records     record stores: one table each, with two partial indexes for expiry
    sorted_data sorted data: one WITHOUT ROWID table each
    connection  the one connection, the transaction of the unit of work, counters, and the translation of SQLite's
                errors
    directory   the data directory: its owner, its lock, its format
    copying     copying the database while others write to it
    stored_log  commits in the log that SQLite passes over
    stored_state  the data of a stopped server, opened for reading alone

No other package imports sqlite3.
"""

from mongottl.storage.sqlite.engine import open_sqlite as open_sqlite
