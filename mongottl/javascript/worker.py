"""What a script process does: `processes.spawner` runs it in each process that it forks.

Requests on standard input and replies on standard output are a byte for the kind, four for the length of the rest
(little-endian), and the rest:

    N  a new context, without what earlier scripts have left. Rest: memory limit in bytes, CPU limit of each call in
       seconds, as decimal numbers with a space between. Reply: D, without a rest
    C  calls `invoke` of environment.js with the rest, a list as in `messages`. Reply: D and what it returns, a list of
       the lines that were printed, and the value, or the message, the stack and the code of an error; or X and the
       message of an exception that scripts cannot catch (time limit, memory) or that is too deep (stack)

All conversions between BSON and JSON are done here, where they cost the server's thread nothing.
"""

import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from mongottl.javascript.answers import answer

# A lower priority than the server's, whose other clients a script must not hold up.
_NICENESS: Final = 10


def prepare(arguments: list[str]) -> Callable[[], None]:
    """What `processes.spawner` calls in each process. arguments: the path of `environment.js`."""
    # The extension of the package quickjs, which itself imports much of the standard library besides.
    import _quickjs

    return partial(run, _quickjs, Path(arguments[0]).read_text(encoding="utf-8"))


def run(engine: Any, environment: str) -> None:
    """Answers requests until there are no more. engine: QuickJS. environment: the text of `environment.js`."""
    os.nice(_NICENESS)
    # Scripts have no way to files and sockets. If one finds a hole in the engine, it can still open none.
    with open(0, "rb", closefd=False) as requests, open(1, "wb", closefd=False) as replies:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        invoke: Callable[[str], object] | None = None
        while len(header := requests.read(5)) == 5:
            body = requests.read(int.from_bytes(header[1:], "little"))
            kind = b"D"
            parts: list[bytes] = []
            try:
                if header[:1] == b"N":
                    memory, seconds = body.split()
                    invoke = None  # frees the previous context first
                    context = engine.Context()
                    context.set_memory_limit(int(memory))
                    context.set_time_limit(float(seconds))
                    invoke = context.eval(environment)
                else:
                    assert invoke is not None
                    parts = answer(invoke, body)
            except Exception as error:
                kind = b"X"
                reason = str(error).partition("\n")[0] or type(error).__name__
                parts = [reason.encode("utf-8", "replace")]
            replies.write(kind + sum(map(len, parts)).to_bytes(4, "little"))
            for part in parts:
                replies.write(part)
            replies.flush()
