"""What the profiler stores of operations in `system.profile`, and the log lines of slow ones.

operations   of one command, with those of the statements of an update or delete
bulk_writes  of the operations of a bulkWrite
entries      what their documents have in common, and storing them
"""
