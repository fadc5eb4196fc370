"""Where documents have had arrays on the paths of an index: what MongoDB calls its multikey paths.

An index is multikey if there is such a path; a document may then have several keys in it. Knowing the paths keeps the
bounds of the others tight.

    index {"a.b": 1, c: 1}     {a: [{b: 1}], c: 2}      ->   "a"
                               {a: {b: [1]}, c: 2}      ->   "a.b"
"""

from typing import Final

# In place of a path: an array somewhere, it is not known where.
SOMEWHERE: Final = ""
# Paths kept of one index. A wildcard index has as many as its documents; beyond this all are taken for arrays.
MAX_PATHS: Final = 512


class ArrayPaths:
    """The paths, dotted, at which there was an array. It does not change, so `is` tells whether anything was added."""

    def __init__(self, paths: frozenset[str]) -> None:
        self.paths = frozenset([SOMEWHERE]) if SOMEWHERE in paths or len(paths) > MAX_PATHS else paths
        self.found = bool(paths)
        self._somewhere = SOMEWHERE in self.paths

    def holds(self, paths: set[str]) -> bool:
        """Whether all of these are known already."""
        return self._somewhere or self.paths >= paths

    def deepest(self, path: str) -> str:
        """The longest beginning of `path`, itself included, at which there may be an array; "" for none."""
        if not self.found:
            return ""
        if self._somewhere:
            return path
        while path and path not in self.paths:
            path = path.rpartition(".")[0]
        return path

    def along(self, path: str) -> bool:
        """Whether there may be an array on the way to the value at `path`, or as the value."""
        return self.deepest(path) != ""

    def on(self, path: str) -> list[str]:
        """The beginnings of `path`, itself included, at which there was an array, the shortest first; for explain."""
        parts = path.split(".")
        prefixes = [".".join(parts[: depth + 1]) for depth in range(len(parts))]
        return [prefix for prefix in prefixes if self._somewhere or prefix in self.paths]


NO_ARRAYS: Final = ArrayPaths(frozenset())
ARRAYS_SOMEWHERE: Final = ArrayPaths(frozenset([SOMEWHERE]))
