"""The trio shell: sockets, tasks and signals around the synchronous core.

server      one server: its listener, its tasks, how it starts and stops
thread      a server in a thread of its own, for programs that do not use trio
connection  one connection: reads requests, sends replies
transport   the bytes of a connection, plain or by TLS; the server's certificate
poller      waits for the sockets of all idle connections, and has readable ones answered
shell       the parts of a server that a connection uses
dispatch    from a message to a command and to its reply; only here errors become replies
reaper      deletes expired documents when the timing wheel says that some are due
janitor     closes idle cursors, forgets idle sessions
durability  flushes commits to disk, and maintains the engine's log
limits      the operating system's limit of open files
log         log lines on standard error
"""
