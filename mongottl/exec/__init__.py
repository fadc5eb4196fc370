"""Carrying out queries and writes: from a parsed request to batches of records, and back into storage.

    context    ServiceContext (what a server has) and OperationContext (what one command has)
    planner    from a filter and a sort to a plan
    stages     the plan's stages; each pulls batches of records
    explain    a plan in mongod's words
    writes     inserts, updates, deletes and index builds, each in its unit of work
    expiry     arming the timing wheel, finding and purging what is due
    cursors    what is left of a result for getMore
    sessions   logical sessions and retryable writes

Work that may take long is written as a generator of steps: after each `yield` the server may let other clients run, so
no unit of work is ever open across one.
"""
