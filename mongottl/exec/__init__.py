"""Carrying out queries and writes: from a parsed request to batches of records, and back into storage.

    operation  what everything here is handed: the server's and one operation's context, steps, the recovery unit
    stages     the stages of plans, each of which pulls batches of records
    plan       from a filter and a sort to a plan; each kind of index has a module in plan/index_access
    write      inserts, updates and deletes, index builds, copies, expiry
    results    what clients and pipelines get of a plan: pages, cursors, counts, pipelines, views, explain

A package imports those above it in this list; plans and their stages know each other. Work that may take long is
written as a generator of steps: after each `yield` the server may let other clients run, so no unit of work is ever
open across one.
"""
