"""Dotted field paths, cut into their components once.

Traversal differs by what is being done (matching fans out over arrays, updates create what is missing, projections keep
shapes), so it lives with each of those; this module only knows what a path is.
"""

from mypy_extensions import i64

from mongottl.errors import CommandError, ErrorCode

MAX_DEPTH = 200


class FieldPath:
    """A path such as `a.0.b`.

    parts: the components; part_bytes: the same as UTF-8, as `walk.find_field_at` takes them.
    indexes: for each component the array index that it may mean, or -1: "0" and "12" do, "01" and "-1" do not.
    """

    def __init__(self, dotted: str) -> None:
        self.dotted = dotted
        self.parts: list[str] = dotted.split(".")
        self.part_bytes: list[bytes] = [part.encode("utf-8") for part in self.parts]
        self.indexes: list[int] = [array_index(part) for part in self.parts]
        self.depth: i64 = len(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldPath) and self.dotted == other.dotted

    def __hash__(self) -> int:
        return hash(self.dotted)

    def __repr__(self) -> str:
        return f"FieldPath({self.dotted!r})"


def array_index(part: str) -> int:
    """The array index that a path component means, or -1. Leading zeros and signs make it a mere name."""
    if not part.isascii() or not part.isdigit():
        return -1
    if len(part) > 1 and part[0] == "0":
        return -1
    if len(part) > 10:
        return -1
    return int(part)


def check_field_path(dotted: str) -> None:
    """Raises for a path that an expression or projection may not use: empty components (15998), `$` (16410), NUL."""
    if dotted == "":
        raise CommandError(40352, "FieldPath cannot be constructed with empty string")
    if dotted.endswith("."):
        raise CommandError(40353, "FieldPath must not end with a '.'.")
    for part in dotted.split("."):
        if part == "":
            raise CommandError(15998, "FieldPath field names may not be empty strings.")
        if part.startswith("$"):
            raise CommandError(
                16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField."
            )
        if "\0" in part:
            raise CommandError(16411, "FieldPath field names may not contain '\\0'.")
    if dotted.count(".") >= MAX_DEPTH:
        raise CommandError(ErrorCode.Overflow, f"FieldPath is too long: more than {MAX_DEPTH} components")
