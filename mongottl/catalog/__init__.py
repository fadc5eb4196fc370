"""What exists: databases, collections and indexes, and how index keys are made from documents.

    namespace   names and their rules
    keys        a document's keys in one index
    index_kinds what kinds of index there are: options, checks, keys
    array_paths where documents have arrays on the paths of an index
    index       index descriptors, and how two of them compare
    index_spec  what createIndexes accepts (partial_filter, engine_options: two of its options)
    collection  one collection: its records, its indexes, its TTL default
    catalog     all of them, loaded from and written to the storage engine
    describe    collections and views as listCollections shows them
    rekeying    keys of collated indexes made anew where ICU is another

Nothing here runs a query or knows a connection; of time it only notes when an index was made.
"""
