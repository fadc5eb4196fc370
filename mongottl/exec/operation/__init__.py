"""The context of an operation, and what belongs to one.

context            OperationContext: state of one operation. Its parts, by who or what they are about:
sent_command       the client: its command as it was sent; session_statement: retryable write or transaction
reading            what is read: read concern, snapshot, change stream; write_options: how documents are written
time_limits        until when it runs; pace: records of one step; resources: memory, files, scripts; cost: request units
statement_errors   the failed statements of a batch
profile            what the profiler, the log and `top` read at its end
transaction_unit   units of work in a transaction
snapshot_reads     reads of one point in time
current_op         operations as `$currentOp` describes them
node_messages      what the servers of a store ask each other to do
restoring          saving the state of a server and restoring it
"""
