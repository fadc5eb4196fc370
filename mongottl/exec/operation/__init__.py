"""The contexts of the server and of an operation, and their parts. All other packages of `exec` use them.

service        ServiceContext: state shared by all operations of a server
context        OperationContext: state of one operation; state: the part of it that other operations read
stack          what operations run on, so that they can be left anywhere; steps: what they wait for then
recovery_unit  an operation's access to records and index entries; write_unit: one unit of work on a collection
commit_log     how units of work are committed, with their entries of the oplog
snapshot_reads, snapshots, snapshot_catalog: reads of one point in time
transactions, transaction_unit: multi-document transactions; retryable_writes, stored_sessions: writes sent again
arming         arming the timing wheel after writes
restoring      saving the state of a server and restoring it; saved_states: those that are kept
registry       running operations; current_op: their description for `$currentOp`
cursor_registry  open cursors
failpoints, fail_mode, dialect_fail_point: errors on purpose
meter, request_units: what operations cost, in dialects that charge them; gate: what batches ask before a statement
provisioned    databases that exist without collections; index_builds: progress of index builds
cluster_clock  `$clusterTime`; stored_clock: a clock that tests have moved
observation    what is recorded of each command while the server's page is served
client, sessions, session_ids, signal, metrics, usage, profiler, object_ids, query_settings, cluster_parameters,
connection_rate, operation_scripts, loading_unit, temporary_files: parts of these
"""
