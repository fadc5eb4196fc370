"""What everything in `exec` is handed.

service        ServiceContext: what a server has
context        OperationContext: what one operation has; state: the part of it that others may see
steps          how long operations let others run, and wait
recovery_unit  the one way of operations to records and index entries; write_unit: one unit of work on a collection
arming         what a write tells the timing wheel
registry       operations under way; current_op: how `$currentOp` shows them
cursor_registry  open cursors
client, sessions, signal, metrics, usage, failpoints, object_ids, query_settings, temporary_files: parts of these
"""
