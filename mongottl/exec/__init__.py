"""Carrying out queries and writes: from a parsed request to batches of records, and back into storage.

What everything here is handed:
    service     ServiceContext: what a server has; operation: OperationContext, what one command has
    steps       how long operations let others run, and wait
    client, sessions, operations, operation_state, cursor_registry, signal, metrics, usage, failpoints: parts of these
    current_op  operations under way, as `$currentOp` shows them
    sizes       how large collections and indexes are

From a query to a plan:
    planner     from a filter and a sort to a plan; choice: of the ways that indexes offer
    predicates  what a filter says about single paths; expr_bounds: the same of `$expr`
    bounds      ranges of index keys from these, and whether an index gives a sort's order; bounds_text: in words
    key_skipper leaps within a range over keys that trailing components exclude
    min_max     the part of an index that find's `min` and `max` name
    geo_near_path the path that a `$geoNear` is about
    implication whether a filter implies that of a partial index
    index_access how each kind of index serves queries
    access      ways into a collection, as the planner weighs them
    shape, plan_cache, query_settings: what is remembered and laid down of a query without its values
    explain     a plan in mongod's words; measured: a pipeline that is run for it

The stages of plans, each of which pulls batches of records:
    stages      those that read no index; index_scan, covered, distinct_scan, merging, near_scan, text_scan: that do
    liveness    whether a record that has waited since it was read still lives
    record_ids  sets of record ids in little memory
    annotate    what `{$meta: …}` reads of a record
    counting    counts, without reading documents where that is exact

Results:
    reading     pages of records or of a pipeline's documents; cursors: what is left of a result for getMore
    distinct_values what `distinct` gathers
    tailing     cursors that wait for more; tailable_scan: what they read
    aggregation pipelines: which stages the planner answers; output: what `$out` and `$merge` write
    views       what a view comes down to
    temporary_files: where what does not fit into memory goes

Writes:
    write_unit  where a unit of work begins, what it is dated by, what follows its commit
    recovery_unit the one way of operations to records and index entries; write_unit: a unit of work on a collection
    express     one record by its `_id`, without a plan
    writes      inserts, updates and deletes of records, each in its unit of work; modifying: which records these are
    validation, object_ids, capped, clustered: what they mind
    index_build indexes over collections in use; copying: copies of collections
    arming      when a record that was written falls due, for the timing wheel
    expiry      finding and purging what is due, filling the wheel anew

Work that may take long is written as a generator of steps: after each `yield` the server may let other clients run, so
no unit of work is ever open across one.
"""
