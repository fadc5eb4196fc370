"""The trio shell: sockets, tasks and signals around the synchronous core.

server      one server: its listener, its tasks, how it starts and stops
thread      a server in a thread of its own, for programs that do not use trio
connection  one connection: reads requests, sends replies
transport   the bytes of a connection, plain or by TLS; the server's certificate
poller      waits for the sockets of all idle connections, and has readable ones answered
store_waits how operations wait for a store over a network
shell       the parts of a server that a connection uses
listeners   sockets that listen
driving     does what steps wait for, and drives those of no client
dispatch    the life of a request, from its message to its reply
message_body    the document of a message, and the command in it; message_traits: what connections ask about a message
command_lookup  which command a message names
admission   what a command has to pass before it begins; waits: what it waits for
session_use how a command uses its session; transactions: how statements of transactions begin and end
fail_command    what a fail point does to a command
replies     replies of success and failure; only here errors become replies. error_replies: their documents
command_log what the log says of commands
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
