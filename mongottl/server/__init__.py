"""The trio shell: sockets, tasks and signals around the synchronous core.

server      one server: its listener, its tasks, how it starts and stops
connection  one connection: bytes in, replies out; shell: what it needs of its server
dispatch    from a message to a command and to its reply; errors become replies here and nowhere else
reaper      deletes expired documents when the timing wheel says so
log         lines on standard error
"""
