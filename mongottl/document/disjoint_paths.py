"""Sets of dotted paths without conflicts: no path equals another one or is a prefix of it."""


class _Node:
    """A node of the tree of path components. path: the path that ends here if it is in the set, else empty."""

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.path: str = ""
        self.example: str = ""  # the first path of the set that passes through or ends at this node


class DisjointPaths:
    """A set of dotted paths without conflicts. Adding a path takes as many steps as it has components."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, path: str) -> str:
        """Adds a path. Returns "" if there is no conflict, else a path of the set that equals it, is its prefix or vice
        versa."""
        node = self._root
        for part in path.split("."):
            if node.path:
                return node.path
            child = node.children.get(part)
            if child is None:
                child = _Node()
                child.example = path
                node.children[part] = child
            node = child
        if node.example != path or node.path or node.children:
            return node.example
        node.path = path
        return ""
