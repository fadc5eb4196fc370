"""How a stage changes the fields of documents, which decides whether later filters can be moved before it.

{$unset: "a.b"}                  changes a.b; other paths are unchanged
{$project: {a: 1, b: "$c"}}      keeps only _id and a; b has the value of c
{$group: {_id: "$a", …}}         keeps nothing; _id compares equal to a
"""

from typing import Final

from mongottl.document.freeing import set_for
from mongottl.document.interrupt import give_way


class Effect:
    """How a stage changes the fields of documents.

    paths: those that change, or, if `exclusive`, those that are kept while all others change or are removed.

    renames: path after the stage to the path before it with the same value; "" for the whole document.
    comparisons_only: renamed values only compare equal: null for missing, 1 for 1.0.
    """

    def __init__(
        self,
        paths: list[str],
        renames: dict[str, str] | None = None,
        exclusive: bool = False,
        comparisons_only: bool = False,
    ) -> None:
        self.paths: Final = paths
        self.renames: Final[dict[str, str]] = {} if renames is None else renames
        self.exclusive: Final = exclusive
        self.comparisons_only: Final = comparisons_only
        self._known: Final[set[str]] = set_for(len(paths))
        # The prefixes of the paths that change, and their root fields.
        self._prefixes: Final[set[str]] = set_for(len(paths))
        self._roots: Final[set[str]] = set_for(len(paths))
        for path in paths:
            give_way()
            self._known.add(path)
            if not exclusive:
                self._prefixes.update(leading_paths(path)[:-1])
                self._roots.add(root_of(path))

    def origin(self, path: str) -> str | None:
        """The path before the stage that has the same values for a filter as `path` after it; None if there is none.

        A number in a path may be an array index. A change within an array may move its elements, so such a path is
        only followed if its root field is unchanged.
        """
        leading = leading_paths(path)
        if self.renames:
            for new in leading:
                old = self.renames.get(new)
                if old is not None:
                    if path == new:
                        return old or None
                    return old + path[len(new) :] if old else path[len(new) + 1 :]
        numbered = has_number(path)
        if self.exclusive:
            for kept in leading:
                if kept in self._known and not (numbered and "." in kept):
                    return path
            return None
        if path in self._prefixes or (numbered and root_of(path) in self._roots):
            return None
        for changed in leading:
            if changed in self._known:
                return None
        return path


KEEPS_ALL: Final = Effect([])


def leading_paths(path: str) -> list[str]:
    """The prefixes of a path, itself included: a, a.b, a.b.c."""
    found: list[str] = []
    end = path.find(".")
    while end >= 0:
        found.append(path[:end])
        end = path.find(".", end + 1)
    found.append(path)
    return found


def root_of(path: str) -> str:
    return path.partition(".")[0]


def has_number(path: str) -> bool:
    return any(part.isdigit() for part in path.split("."))
