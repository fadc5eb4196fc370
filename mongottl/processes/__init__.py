"""Processes that work for the server: what can take long whatever is done, and can be ended only by killing it.

    spawner      the program of the process that starts them, and kills them
    serving      what each of them does: answers requests
    pool         the processes, and the pool of them that a server has for each program
    conversation what asks one of them something, for one operation, while others run

A process has no files, sockets or environment of the server, its memory is its own, and a crash is an error of one
operation. The server's thread sends and receives bytes, and never waits for a process that does not read or write them.
"""
