"""The trio shell: sockets, tasks and signals around the synchronous core.

server      one server: its listener, its tasks, how it starts and stops
thread      a server in a thread of its own, for programs that do not use trio
connection  one connection: reads requests, sends replies
transport   the bytes of a connection, plain or by TLS; the server's certificate
poller      waits for the sockets of all idle connections, and has readable ones answered
shell       the parts of a server that a connection uses
listeners   sockets that listen
driving     does what steps wait for, and drives those of no client
dispatch    from a message to a command and to its reply; only here errors become replies
waits       what commands wait for before they begin; error_replies: the replies of errors
transactions  which commands belong to transactions, and how their statements begin and end
profiling   `system.profile`, and the log lines of slow operations
reaper      deletes expired documents when the timing wheel says that some are due
janitor     closes idle cursors, forgets idle sessions
durability  flushes commits to disk, and maintains the engine's log
limits      the operating system's limit of open files
log         log lines on standard error
loading     the folder of `--load`
first_user  the user that `--user` names
units_table what requests have cost, as a table of text
web         the page, and the figures for Prometheus
"""
