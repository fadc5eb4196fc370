"""Expiry: whether a document has expired (`policy`, pure functions), and when documents will (`wheel`, due seconds).

Neither reads a clock, stores anything or depends on commands: the caller passes the time. Every read and write asks
`policy`, which decides alone; the wheel only gives the reaper the times at which documents may have expired.
"""
