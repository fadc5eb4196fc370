"""The engine without a data directory: everything in Python's own data structures, compiled, nothing durable.

    engine        the engine itself: idents, catalog entries, dropping; registered as "memory"
    records       record stores: blocks of records addressed by record id, and two expiry indexes
    record_block  one such block
    due           the expiry entries of a batch of records
    sorted_data   sorted data, unique ones with a hash map beside the order
    blocks        the ordered entries under all of these
    units         the unit of work: a log of what would undo it

It is for test and development servers, and several times faster than a database in memory, because a scan hands out
slices of lists that exist already and nothing is encoded or copied.
"""

from mongottl.storage.memory.engine import open_memory as open_memory
