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

    def origin(self, path: str) -> str | None:
        """The path before the stage at which a filter finds what it finds at `path` behind it; None if there is none.

        A number in a path may be the place of an array element. What changes fields within an array may move its
        elements, so such a path is only followed where its root field is left alone as a whole.
        """
        for new, old in self.renames.items():
            if path == new:
                return old or None
            if path.startswith(new + "."):
                return old + path[len(new) :] if old else path[len(new) + 1 :]
        numbered = has_number(path)
        if self.exclusive:
            for kept in self.paths:
                if (path == kept or path.startswith(kept + ".")) and not (numbered and "." in kept):
                    return path
            return None
        for changed in self.paths:
            if is_related(path, changed) or (numbered and root_of(path) == root_of(changed)):
                return None
        return path


KEEPS_ALL: Final = Effect([])


def is_related(a: str, b: str) -> bool:
    """Whether one path is the other or leads to it."""
    return a == b or a.startswith(b + ".") or b.startswith(a + ".")


def root_of(path: str) -> str:
    return path.partition(".")[0]


def has_number(path: str) -> bool:
    return any(part.isdigit() for part in path.split("."))
