"""The context of an operation, and what belongs to one.

context           OperationContext: state of one operation
transaction_unit  units of work in a transaction
snapshot_reads    reads of one point in time
current_op        operations as `$currentOp` describes them
restoring         saving the state of a server and restoring it
"""
