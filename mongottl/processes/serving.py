"""What each process of a pool does: answers requests, until there are no more."""

import resource
from collections.abc import Callable


def serve(answer: Callable[[bytes, bytes], tuple[bytes, list[bytes]]]) -> None:
    """Answers the requests on standard input, by replies on standard output: their form is in `spawner`.

    answer: the kind of a reply, and the parts of its rest, by the kind of a request and its rest.
    """
    # A process needs no files and sockets. If what it runs has a hole, it can still open none.
    with open(0, "rb", closefd=False) as requests, open(1, "wb", closefd=False) as replies:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        while len(header := requests.read(5)) == 5:
            kind, parts = answer(header[:1], requests.read(int.from_bytes(header[1:], "little")))
            replies.write(kind + sum(map(len, parts)).to_bytes(4, "little"))
            for part in parts:
                replies.write(part)
            replies.flush()
