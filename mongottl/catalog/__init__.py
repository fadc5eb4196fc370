"""The catalog: databases, collections, views and indexes, and how index keys are made from documents.

    namespace       the rules for names of databases and collections
    catalog         all databases and collections, loaded from and written to the storage engine
    entries         the catalog as the engine stores it; change_kinds: the kinds of changes that its listener gets
    collection      one collection: its records, its indexes, its TTL default
    options         the options of a collection; validator, time_series, engine_options: some of them
    view            views
    describe        collections and views as listCollections shows them
    index           index descriptors, and how two of them are compared
    index_spec      what createIndexes accepts; partial_filter: one of its options
    index_kinds     the kinds of index: their options, checks and keys
    keys            a document's keys in one index
    array_paths     the multikey paths of an index
    entry_sums      comparing the entries of an index with its records
    rekeying        rebuilds the keys of collated indexes when the version of ICU has changed
    plan_memory     the cached plans and index filters of a collection
    shard_key, throughput: what collections of Cosmos DB have besides

Nothing here runs a query or depends on connections. The clock is read only to date the creation of an index.
"""
