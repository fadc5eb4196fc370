"""Carrying out queries and writes: from a parsed request to batches of records, and back into storage.

    context    ServiceContext (what a server has) and OperationContext (what one command has)
    planner    from a filter and a sort to a plan
    bounds     ranges of index keys from filters, and whether an index gives a sort's order
    implication whether a filter implies that of a partial index
    index_access how each kind of index serves queries
    access     ways into a collection, as the planner weighs them
    stages     the plan's stages; each pulls batches of records
    index_scan the stages that read indexes
    near_scan  the stage that gives documents by their distance
    counting   counts, without reading documents where that is exact
    explain    a plan in mongod's words
    writes     inserts, updates, deletes and index builds, each in its unit of work
    expiry     arming the timing wheel, finding and purging what is due
    cursors    what is left of a result for getMore
    sessions   logical sessions and retryable writes

Work that may take long is written as a generator of steps: after each `yield` the server may let other clients run, so
no unit of work is ever open across one.
"""
