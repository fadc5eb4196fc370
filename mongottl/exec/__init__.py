"""Carrying out queries and writes: from a parsed request to batches of records, and back into storage.

    running    how operations run, wait and are left, and what others see of them
    state      the state of a server, each part by itself
    sessions   what a client has between two commands: sessions, transactions, snapshots, cursors
    service    the state that all operations share; how units of work are committed
    unit       units of work
    operation  the context of one operation; transactions' units, `$currentOp`, saved states
    stages     the stages of plans, each of which pulls batches of records
    plan       from a filter and a sort to a plan; each kind of index has a module in plan/index_access
    write      inserts, updates and deletes, index builds, copies, expiry
    results    from a plan to replies and pipelines: batches, cursors, counts, pipelines, views, explain

A package imports those above it in this list. The stages also import the modules of `plan` about index bounds and
predicates, which use no other module of it. Work that may take long is cut into steps. Between two of them, at each
`give_way` and `wait` of an operation, the server may run other clients' operations, so no unit of work is open there
(`running.stack`).
"""
