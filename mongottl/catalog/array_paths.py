"""The multikey paths of an index: the paths at which documents have or had arrays.

An index with such a path is multikey: a document may have several keys in it. Because the paths are known, the bounds
of the other paths need not be widened.

    index {"a.b": 1, c: 1}     {a: [{b: 1}], c: 2}      ->   "a"
                               {a: {b: [1]}, c: 2}      ->   "a.b"
"""

from typing import Final

# Used instead of a path when there was an array, but its path is not known.
SOMEWHERE: Final = ""
# The largest number of multikey paths that are recorded for an index; beyond it, all paths count as multikey. A
# wildcard index may have as many as its documents have paths.
MAX_PATHS: Final = 512


class ArrayPaths:
    """The dotted paths at which there was an array. Immutable: paths were added if it `is` another object."""

    def __init__(self, paths: frozenset[str]) -> None:
        self.paths = frozenset([SOMEWHERE]) if SOMEWHERE in paths or len(paths) > MAX_PATHS else paths
        self.found = bool(paths)
        self._somewhere = SOMEWHERE in self.paths

    def holds(self, paths: set[str]) -> bool:
        """Whether all of these paths are recorded."""
        return self._somewhere or self.paths >= paths

    def deepest(self, path: str) -> str:
        """The longest prefix of `path`, including `path` itself, at which there may be an array; "" for none."""
        if not self.found:
            return ""
        if self._somewhere:
            return path
        while path and path not in self.paths:
            path = path.rpartition(".")[0]
        return path

    def along(self, path: str) -> bool:
        """Whether there may be an array at `path` or at a prefix of it."""
        return self.deepest(path) != ""

    def on(self, path: str) -> list[str]:
        """The prefixes of `path`, including `path` itself, at which there was an array, the shortest first; for
        explain."""
        parts = path.split(".")
        prefixes = [".".join(parts[: depth + 1]) for depth in range(len(parts))]
        return [prefix for prefix in prefixes if self._somewhere or prefix in self.paths]


NO_ARRAYS: Final = ArrayPaths(frozenset())
ARRAYS_SOMEWHERE: Final = ArrayPaths(frozenset([SOMEWHERE]))
