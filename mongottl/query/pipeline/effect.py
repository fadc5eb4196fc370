"""What a stage does to the fields of the documents that pass it: so that filters behind it can be put before it.

{$unset: "a.b"}                  changes a.b; all else stays
{$project: {a: 1, b: "$c"}}      keeps _id and a alone; b is what c was
{$group: {_id: "$a", …}}         keeps nothing; _id is what a was, as far as comparisons can tell
"""

from typing import Final


class Effect:
    """paths: those that change, or, where `exclusive`, those that stay while all others change or go.

    renames: a path behind the stage, and that before it which has the same value; empty for the whole document.
    comparisons_only: values are only alike by comparison: null for missing, 1 for 1.0.
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
        self._known: Final = set(paths)
        # Paths that lead to one that changes, and the root fields in which anything does.
        self._above: Final[set[str]] = set()
        self._roots: Final[set[str]] = set()
        if not exclusive:
            for changed in paths:
                self._above.update(leading_paths(changed)[:-1])
                self._roots.add(root_of(changed))

    def origin(self, path: str) -> str | None:
        """The path before the stage at which a filter finds what it finds at `path` behind it; None if there is none.

        A number in a path may be the place of an array element. What changes fields within an array may move its
        elements, so such a path is only followed where its root field is left alone as a whole.
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
        if path in self._above or (numbered and root_of(path) in self._roots):
            return None
        for changed in leading:
            if changed in self._known:
                return None
        return path


KEEPS_ALL: Final = Effect([])


def leading_paths(path: str) -> list[str]:
    """The paths that lead to one, itself the last: a, a.b, a.b.c."""
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
