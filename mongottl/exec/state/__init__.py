"""The state of a server, each part by itself. `service.ServiceContext` has them all.

cluster_clock   `$clusterTime` and the times of the oplog's entries; object_ids: generated ObjectIds
metrics         the counters of serverStatus; usage: of `$collStats` and `top`; observation: what the page shows
profiler        the settings of profiling; query_stats: what `$queryStats` returns
failpoints      errors on purpose; fail_mode, dialect_fail_point: parts of them
cluster_parameters, query_settings, write_block: what commands have set for all operations; shared_settings: for all
                servers of a store, too
index_builds    progress of index builds
provisioned     databases that exist without collections
meter, request_units: what operations cost, in dialects that charge them
temporary_files where sorts and cursors spill; open_files: their descriptors; memory_size: of the machine
compaction      gives free pages of the data folder back
connection_rate how many connections there were lately
saved_states    states that a client has saved, by name
"""
