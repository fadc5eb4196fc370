"""The program of the process that starts the processes of one `pool`, which starts it by its path.

It imports what they need once, and forks one for each request in a few milliseconds. The server does not do that
itself: it would wait for each new process, and has threads.

Arguments: the module with the program of the processes, the number of the folders where it and what it imports are,
these folders, and arguments for the program. The module has a function `prepare`, which is called with these before any
process is forked, and returns a function that each process calls. This answers requests on standard input, by replies
on standard output, until there are no more. Both are a byte for the kind, four for the length of the rest
(little-endian), and the rest.

Standard input is a socket; each byte that comes requests a process. With it come two files: the socket by which the
process gets its requests and sends its replies, and a pipe to which the server writes K when the process is to end, and
which ends when the server does, even if it was killed. Then the process is killed, whatever it does. After an N it gets
a lower priority.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable

# How often is looked whether processes that were killed have ended.
_REAP_EVERY_MS = 100
# A lower priority than the server's, whose other clients a process must not hold up.
_NICENESS = 10


def main() -> None:
    module, folders = sys.argv[1], int(sys.argv[2])
    sys.path.extend(sys.argv[3 : 3 + folders])
    prepare: Callable[[list[str]], Callable[[], None]] = importlib.import_module(module).prepare
    run = prepare(sys.argv[3 + folders :])
    control = socket.socket(fileno=0)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    processes: dict[int, int] = {}  # by its pipe
    killed: list[int] = []
    gc.freeze()  # so that less memory of the processes becomes their own
    while True:
        for file, _ in poll.poll(_REAP_EVERY_MS if killed else None):
            if file:
                if os.read(file, 1) == b"N":
                    with contextlib.suppress(OSError):
                        os.setpriority(os.PRIO_PROCESS, processes[file], _NICENESS)
                    continue
                poll.unregister(file)
                os.close(file)
                process = processes.pop(file)
                os.kill(process, signal.SIGKILL)
                killed.append(process)
                continue
            request, files, _, _ = socket.recv_fds(control, 1, 2)
            if not request:
                for process in processes.values():
                    os.kill(process, signal.SIGKILL)
                return
            requests, pipe = files
            try:
                process = os.fork()
            except OSError:  # the server finds its socket closed
                os.close(requests)
                os.close(pipe)
                continue
            if process == 0:
                try:
                    os.dup2(requests, 0)
                    os.dup2(requests, 1)
                    os.closerange(3, max(requests, pipe, *processes, 3) + 1)
                    run()
                finally:
                    os._exit(0)
            os.close(requests)
            processes[pipe] = process
            poll.register(pipe, select.POLLIN)
        # A process is looked for until it has ended, so no other one can have its number meanwhile.
        killed = [process for process in killed if os.waitpid(process, os.WNOHANG)[0] == 0]


if __name__ == "__main__":
    main()
