"""What exists: databases, collections and indexes, and how index keys are made from documents.

    namespace   names and their rules
    keys        a document's keys in one index
    index_kinds what kinds of index there are: options, checks, keys
    index       index specifications: parsing, checking, describing
    collection  one collection: its records, its indexes, its TTL default
    catalog     all of them, loaded from and written to the storage engine

Nothing here runs a query, reads time or knows a connection.
"""
