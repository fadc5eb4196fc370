"""Paths of updates."""

from mongottl.document.path import check_path_depth
from mongottl.errors import CommandError, ErrorCode


def is_filter_part(part: str) -> bool:
    """Whether a component is `$[]` or `$[identifier]`."""
    return len(part) >= 3 and part.startswith("$[") and part.endswith("]")


def split_update_path(path: str) -> list[str]:
    """The components of a path of an update.

    EmptyFieldName (56) for empty components; BadValue (2) for a second `$`, or a positional first component; Overflow
    (15) for more components than a document has levels.
    """
    check_path_depth(path)
    if path == "":
        raise CommandError(ErrorCode.EmptyFieldName, "An empty update path is not valid.")
    parts = path.split(".")
    if "" in parts:
        raise CommandError(
            ErrorCode.EmptyFieldName,
            f"The update path '{path}' contains an empty field name, which is not allowed.",
        )
    positional = 0
    for part in parts:
        if part == "$":
            positional += 1
    if positional > 1:
        raise CommandError(ErrorCode.BadValue, f"Too many positional (i.e. '$') elements found in path '{path}'")
    if parts[0] == "$":
        raise CommandError(
            ErrorCode.BadValue,
            f"Cannot have positional (i.e. '$') element in the first position in path '{path}'",
        )
    if is_filter_part(parts[0]):
        raise CommandError(
            ErrorCode.BadValue,
            f"Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{path}'",
        )
    return parts
