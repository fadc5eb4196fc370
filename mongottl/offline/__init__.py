"""What is done with the data directory of a server that does not run.

check         whether everything in it is as it should be, without writing
collections   its part for the records and the indexes of one collection
oplog_check   its part for the stored oplog
backup        copying it; the folder of a backup while it is written
"""
