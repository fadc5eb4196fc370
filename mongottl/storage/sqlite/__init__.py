"""The default engine: SQLite from the standard library, in memory or in a data directory.

    engine        the interface of the engine, registered as "sqlite"
    idents        record stores and sorted data by name, and the space of dropped ones
    records       record stores: one table each, with two partial indexes for expiry
    record_cache  records that are kept in memory; bounded_rows: rows up to a number of bytes
    sorted_data   sorted data: one WITHOUT ROWID table each
    connection    the one connection, the transaction of the unit of work, counters, and the translation of SQLite's
                  errors

    directory     the data directory: its owner, its lock, its format
    folder        the database in it while it is open: opening, durability, closing
    database      the database file: how it is made, opened, and brought to the present format
    database_files  the lengths of the database and its log
    durable_log   what of the log is known to be on disk; stored_log: commits in it that SQLite passes over
    maintenance   checkpoints of the log; disk_room: what it may take of the disk, and the reserve
    space         unused pages, which are given back; rewriting: of a database that cannot give them back
    copying       copying the database while others write to it
    stored_state  the data of a stopped server, opened for reading alone

No other package imports sqlite3.
"""

from mongottl.storage.sqlite.engine import open_sqlite as open_sqlite
