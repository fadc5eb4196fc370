"""The state that all operations of a server share.

service         ServiceContext: the engine, the catalog, and all parts of `exec.state` and `exec.sessions`
hooks           what the core asks of the shell; bounds: the limits of the dialect
expiry          how far the deletion of expired documents has come
due_dates       when a document expires by a date-field TTL index
scripts         the processes that run JavaScript
commit_log      how units of work are committed, with their entries of the oplog
stored_clock    a clock that tests have moved
"""
