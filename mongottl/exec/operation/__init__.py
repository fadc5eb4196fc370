"""The contexts of the server and of an operation, and their parts. All other packages of `exec` use them.

service        ServiceContext: state shared by all operations of a server
context        OperationContext: state of one operation; state: the part of it that other operations read
steps          how long operations yield to others, and wait
turns          long computations in steps: parsing and planning of long requests
recovery_unit  an operation's access to records and index entries; write_unit: one unit of work on a collection
arming         arming the timing wheel after writes
registry       running operations; current_op: their description for `$currentOp`
cursor_registry  open cursors
failpoints, fail_mode, cosmos_fail_points: errors on purpose
request_meter, metering, request_units: what operations cost in the dialect `cosmos`; gate, statement_gate: throttling
client, sessions, signal, metrics, usage, object_ids, query_settings, temporary_files: parts of these
"""
