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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mongottl.javascript.answers import answer
from mongottl.processes.serving import serve

# A lower priority than the server's, whose other clients a script must not hold up.
_NICENESS: Final = 10


def prepare(arguments: list[str]) -> Callable[[], None]:
    """What `processes.spawner` calls in each process. arguments: the path of `environment.js`."""
    # The extension of the package quickjs, which itself imports much of the standard library besides.
    import _quickjs

    return Runner(_quickjs, Path(arguments[0]).read_text(encoding="utf-8")).run


class Runner:
    """Runs scripts. engine: QuickJS. environment: the text of `environment.js`."""

    def __init__(self, engine: Any, environment: str) -> None:
        self._engine: Final = engine
        self._environment: Final = environment
        self._invoke: Callable[[str], object] | None = None

    def run(self) -> None:
        """Answers requests until there are no more."""
        os.nice(_NICENESS)
        serve(self._answered)

    def _answered(self, kind: bytes, body: bytes) -> tuple[bytes, list[bytes]]:
        try:
            if kind == b"N":
                memory, seconds = body.split()
                self._invoke = None  # frees the previous context first
                context = self._engine.Context()
                context.set_memory_limit(int(memory))
                context.set_time_limit(float(seconds))
                self._invoke = context.eval(self._environment)
                return b"D", []
            assert self._invoke is not None
            return b"D", answer(self._invoke, body)
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            return b"X", [reason.encode("utf-8", "replace")]
