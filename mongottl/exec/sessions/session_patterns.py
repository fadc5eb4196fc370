"""Which sessions a command names: by their keys, by the UUIDs that clients have chosen, or by the digests of users."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from mongottl.document.freeing import LongSet
from mongottl.document.interrupt import give_way
from mongottl.exec.sessions.session_ids import DIGEST_BYTES, digest_of

_UUID_BYTES: Final = 16


class SessionPatterns:
    """Sessions that match at least one of several patterns. everything: whether all do."""

    def __init__(self, everything: bool = False) -> None:
        self.everything = everything
        self._prefixes: set[bytes] = LongSet()
        self._digests: set[bytes] = LongSet()

    def add_keys(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            give_way()
            self._prefixes.add(key)

    def add_digests(self, digests: Iterable[bytes]) -> None:
        """Adds the sessions of users."""
        for digest in digests:
            give_way()
            self._digests.add(digest)

    def add_identifier(self, identifier: bytes) -> None:
        """Adds the sessions of this UUID, of all users."""
        self._prefixes.add(identifier)

    def matches(self, key: bytes) -> bool:
        """Whether the session of a key is among them."""
        return (
            self.everything
            or key in self._prefixes
            or digest_of(key) in self._digests
            or key[:_UUID_BYTES] in self._prefixes
        )

    def in_parts(self, most_bytes: int) -> Iterator[bytes]:
        """The patterns one after the other, in parts of at most `most_bytes` (`from_part`)."""
        if self.everything:
            yield b""
            return
        yield from parts_of(chain(self._prefixes, self._digests), most_bytes)


def parts_of(patterns: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Keys, UUIDs or digests in parts of at most `most_bytes` (`from_part`)."""
    part: list[bytes] = []
    held = 0
    for pattern in patterns:
        if held + len(pattern) + 1 > most_bytes:
            yield b"".join(part)
            part = []
            held = 0
        part.append(bytes([len(pattern)]) + pattern)
        held += len(pattern) + 1
    if part:
        yield b"".join(part)


def from_part(part: bytes) -> SessionPatterns:
    """The patterns of a part: each a byte with its length, and a key, a UUID or a digest, which differ in that; nothing
    for all sessions."""
    patterns = SessionPatterns(everything=not part)
    place = 0
    while place < len(part):
        end = place + 1 + part[place]
        pattern = part[place + 1 : end]
        if len(pattern) == DIGEST_BYTES:
            patterns.add_digests([pattern])
        else:
            patterns.add_keys([pattern])
        place = end
    return patterns
