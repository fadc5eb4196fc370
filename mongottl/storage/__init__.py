"""Storage engines, and the contract between them and the rest of the server.

    interface      the contract: record stores, sorted data, units of work, catalog entries
    unit_of_work   the state of a unit of work, which both engines share
    memory         the engine without a data directory
    sqlite         the engine with a data directory
    contract       a wrapper around an engine that asserts the contract at each call, for tests

Importing this package registers the engines.
"""

from mongottl.storage import memory as memory
from mongottl.storage import sqlite as sqlite
