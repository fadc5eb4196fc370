"""What a collection may contain, derived from requests and replies alone by slow and simple code.

A document has versions. Each may have been the stored one from the turn in which its write was sent until the turn in
which the next one's was answered; a write whose answer never came leaves both open. A reader, whose command takes some
turns as well, must see what was there all the time, and may see what was there at any time.

    turn      10          14                20            23
    version A ════════════════════════════════════════════╗ may hold until 23
    version B                               ╔═════════════════════════► may hold from 20: sent at 20, answered at 23
    reader 1        └12─16┘  must see A     ╎
    reader 2                           └18──┴──22┘  may see A, B or (if it moved in an index) neither

After a power cut, a version that was replaced since the last commit that certainly survived may be the stored one
again, unless the write that replaced it was acknowledged with `j: true`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from tests.ttl_model import OFF, lives_s

Document = dict[str, Any]
OPEN = 1 << 62


class Version:
    """One state of a document. content: None where it is not there.

    written_s: the seconds in which it may have been written. A command dates each unit of work by the clock, which may
    be moved while it is under way.
    mortal: it was expired at some instant, so it may be purged.
    replaced_durably: not even a power cut can bring it back.
    """

    def __init__(self, content: Document | None, written_s: int, since: int) -> None:
        self.content = content
        self.written_s = {written_s}
        self.since = since
        self.until = OPEN
        self.mortal = False
        self.replaced_durably = False

    def alive(self, now_s: int, default: int) -> bool:
        """Whether it is certainly alive."""
        return self._lives(now_s, default, min(self.written_s))

    def may_be_alive(self, now_s: int, default: int) -> bool:
        return self._lives(now_s, default, max(self.written_s))

    def _lives(self, now_s: int, default: int, written_s: int) -> bool:
        if self.content is None:
            return False
        lives = lives_s(self.content.get("ttl"), default)
        return lives is None or now_s < written_s + lives


class Model:
    """The documents of one collection by `_id`, and the values its default TTL may have or have had."""

    def __init__(self) -> None:
        self.versions: dict[str, list[Version]] = {}
        # (value, first turn, last turn) of each default.
        self.defaults: list[list[int]] = [[OFF, 0, OPEN]]
        # Every instant that some command under way, or the clock, goes by.
        self.instants: set[int] = set()

    def defaults_between(self, start: int, end: int) -> list[int]:
        return [value for value, since, until in self.defaults if since <= end and until >= start]

    def of(self, key: str) -> list[Version]:
        return self.versions.setdefault(key, [Version(None, 0, 0)])

    def open_versions(self, key: str) -> list[Version]:
        return [version for version in self.of(key) if version.until == OPEN]

    def add(self, key: str, version: Version) -> None:
        self.of(key).append(version)
        self._age(version)

    def remove(self, key: str, version: Version) -> None:
        """The write was refused: nothing of it has ever been there."""
        self.versions[key].remove(version)

    def settle(self, key: str, version: Version, turn: int, durable: bool = False) -> None:
        """The write was acknowledged: what was there before it is so no longer.

        durable: and will not be after a power cut either.
        """
        older = self.of(key)
        for other in older[: older.index(version)]:
            if other.until == OPEN:
                other.until = turn
            if durable:
                other.replaced_durably = True

    def reopen(self, turn: int) -> None:
        """A power cut: what is stored now is what was stored at some turn from this one on."""
        for versions in self.versions.values():
            for version in versions:
                if version.until >= turn and not version.replaced_durably:
                    version.until = OPEN
        for entry in self.defaults:
            if entry[2] >= turn:
                entry[2] = OPEN

    def age(self, instants: set[int]) -> None:
        """Notes which documents are expired at an instant that now counts: they may be purged from now on."""
        self.instants = instants
        for versions in self.versions.values():
            for version in versions:
                if version.until == OPEN:
                    self._age(version)

    def _age(self, version: Version) -> None:
        if not version.mortal and version.content is not None:
            defaults = [value for value, _, until in self.defaults if until == OPEN]
            version.mortal = any(not version.alive(now, default) for now in self.instants for default in defaults)

    def overlapping(self, key: str, start: int, end: int) -> list[Version]:
        return [version for version in self.of(key) if version.since <= end and version.until >= start]

    def certain(
        self, key: str, start: int, end: int, instants: Iterable[int], but: Version | None = None
    ) -> Version | None:
        """The document's one version of this time, if it was certainly visible throughout. but: one that counts not."""
        found = [version for version in self.overlapping(key, start, end) if version is not but]
        if len(found) != 1 or found[0].mortal:
            return None
        for now in instants:
            for default in self.defaults_between(start, end):
                if not found[0].alive(now, default):
                    return None
        return found[0]

    def possible(self, key: str, start: int, end: int, instants: Iterable[int]) -> Iterator[Version]:
        """The versions that may have been visible at some time between."""
        defaults = self.defaults_between(start, end)
        nows = list(instants)
        for version in self.overlapping(key, start, end):
            if any(version.may_be_alive(now, default) for now in nows for default in defaults):
                yield version
