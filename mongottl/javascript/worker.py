"""The program of a script process. It imports nothing of mongottl, and is started by path (`processes`).

Arguments: the folder of the package quickjs, and the path of `environment.js`.

Requests on standard input and replies on standard output are a byte for the kind, four for the length of the rest
(little-endian), and the rest:

    N  a new context, without what earlier scripts have left. Rest: memory limit in bytes, CPU limit of each call in
       seconds, as decimal numbers with a space between. Reply: D
    C  calls `invoke` of environment.js with the rest. Reply: D and what it returns, or X and the message of an
       exception that scripts cannot catch (time limit, memory) or that is too deep (stack)
"""

import os
import resource
import sys

# A lower priority than the server's, whose other clients a script must not hold up.
_NICENESS = 5


def main() -> None:
    sys.path.append(sys.argv[1])
    import quickjs

    with open(sys.argv[2], encoding="utf-8") as file:
        environment = file.read()
    os.nice(_NICENESS)
    # Scripts have no way to files and sockets. If one finds a hole in the engine, it can still open none.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    requests = sys.stdin.buffer
    replies = sys.stdout.buffer
    invoke = None
    while len(header := requests.read(5)) == 5:
        body = requests.read(int.from_bytes(header[1:], "little")).decode("ascii")
        kind = b"D"
        answer = ""
        try:
            if header[:1] == b"N":
                memory, seconds = body.split()
                invoke = None  # frees the previous context first
                context = quickjs.Context()
                context.set_memory_limit(int(memory))
                context.set_time_limit(float(seconds))
                invoke = context.eval(environment)
            else:
                answer = invoke(body)  # type: ignore[misc]
                if not isinstance(answer, str):
                    raise ValueError("out of memory")
        except Exception as error:
            kind = b"X"
            answer = str(error).partition("\n")[0] or type(error).__name__
        encoded = answer.encode("utf-8")
        replies.write(kind + len(encoded).to_bytes(4, "little") + encoded)
        replies.flush()


if __name__ == "__main__":
    main()
