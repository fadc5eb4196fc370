"""What clients and pipelines get of a plan.

cursors      what is left of a result for getMore; tailing: cursors that wait for more
reading      pages of records or of a pipeline's documents
counting     counts, without reading documents where that is exact
distinct_values  what `distinct` gathers
aggregation  pipelines: which stages the planner answers; output: what `$out` and `$merge` write
views        what a view comes down to
explain      a plan in mongod's words; measured: a pipeline that is run for it
sizes        how large collections and indexes are
"""
