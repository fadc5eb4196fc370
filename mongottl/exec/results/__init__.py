"""From plans to replies and pipelines.

cursors      open cursors and the batches of their replies; tailing: tailable cursors
reading      sources of batches: records of a plan, documents of a pipeline
counting     counts, without reading documents where that is exact
distinct_values  the values of `distinct`
aggregation  pipelines, and which of their stages the planner executes; output: `$out`; merging: `$merge`
change_stream, change_event, resume_token, split_event: change streams
database_copy  a copy of the stored database, read piece by piece
views        resolving, checking and defining views
explain      the replies of `explain`; measured: pipelines that are executed for it
plan_summary what the profiler and the log say about plans; statement_runs: about the statements of a batch
sizes        sizes of collections and indexes
"""
