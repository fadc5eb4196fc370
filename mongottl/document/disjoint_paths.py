"""Sets of dotted paths without conflicts: no path equals another one or is a prefix of it."""

from typing import Final

from mongottl.document.freeing import LONG, LongDict, LongList
from mongottl.document.interrupt import give_way

_ROOT: Final = 0


class DisjointPaths:
    """A set of dotted paths without conflicts. Adding a path takes as many steps as it has components.

    The tree of components is flat, so that any number of paths is freed in slices. Its nodes are numbered.
    """

    def __init__(self) -> None:
        # The child of a node, by the node's number and the component.
        self._children: dict[str, int] = {}
        # Of each node: the path of the set that ends there, if any; the first one that passes through it or ends there.
        self._paths: list[str] = [""]
        self._examples: list[str] = [""]

    def add(self, path: str) -> str:
        """Adds a path. Returns "" if there is no conflict, else a path of the set that equals it, is its prefix or vice
        versa."""
        node = _ROOT
        for part in path.split("."):
            give_way()
            if self._paths[node]:
                return self._paths[node]
            step = f"{node}.{part}"
            child = self._children.get(step, _ROOT)
            if child == _ROOT:
                child = self._add_node(path)
                self._children[step] = child
            node = child
        if self._examples[node] != path or self._paths[node]:
            return self._examples[node]
        self._paths[node] = path
        return ""

    def _add_node(self, example: str) -> int:
        number = len(self._paths)
        if number == LONG:
            self._children = LongDict(self._children)
            self._paths = LongList(self._paths)
            self._examples = LongList(self._examples)
        self._paths.append("")
        self._examples.append(example)
        return number
