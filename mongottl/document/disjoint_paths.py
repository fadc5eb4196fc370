"""Sets of paths of which none may be another one or lie within it."""


class _Node:
    """What is known below one path. whole: the path itself if it is in the set, else empty."""

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.whole: str = ""
        self.first: str = ""  # some path of the set that leads through here or ends here


class DisjointPaths:
    """Dotted paths, each apart from the others. Adding one takes as many steps as it has components."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, path: str) -> str:
        """Adds a path. Empty if it is apart from those known, else one of them that is the same, above or below it."""
        node = self._root
        for part in path.split("."):
            if node.whole:
                return node.whole
            below = node.below.get(part)
            if below is None:
                below = _Node()
                below.first = path
                node.below[part] = below
            node = below
        if node.first != path or node.whole or node.below:
            return node.first
        node.whole = path
        return ""
