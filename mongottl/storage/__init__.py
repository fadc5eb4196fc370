"""Storage engines, and the contract between them and the rest of the server.

    interface      the contract: record stores, sorted data, units of work, catalog entries
    unit_of_work   the state of a unit of work, which both engines share
    memory         the engine without a data directory
    sqlite         the engine with a data directory
    snapshot       views of one point in time over an engine, for snapshot reads and transactions
    contract       a wrapper around an engine that asserts the contract at each call, for tests
    forwarding     base classes of what wraps an engine or a store
    opening        opening engines, and the data of stopped servers, by URI
    stored_data    what can be asked of the data of a stopped server
    postgresql     the client of an engine whose data is in a PostgreSQL server
    waiting        how an engine over a network waits
    data_folder    the names and modes of files in a folder with data

An engine is imported when a URI of its is first opened (`opening.open_engine`).
"""
