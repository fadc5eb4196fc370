"""The engine without a data directory: Python's own data structures, in compiled modules; nothing is durable.

    engine        the engine itself: idents, catalog entries, dropping; registered as "memory"
    records       record stores: blocks of records addressed by record id, and two expiry indexes
    record_block  one block of records
    due           the entries of a batch of records in the expiry indexes
    sorted_data   sorted data; unique ones also have a hash map
    blocks        ordered entries in blocks, used by sorted data and expiry indexes
    contents      what a store or sorted data shares with saved states
    units         the unit of work: a log of inverse operations

It is for test and development servers, and several times faster than SQLite in memory, because a scan returns slices of
existing lists, and nothing is encoded or copied.
"""

from mongottl.storage.memory.engine import open_memory as open_memory
