"""Units of work: how an operation reads and writes records.

recovery_unit   an operation's access to records and index entries
written         how many documents they have written, for the profiler
write_unit      one unit of work on a collection; loading_unit: one that loads the folder of `--load`
"""
