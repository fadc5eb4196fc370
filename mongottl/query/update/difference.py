"""What an update has changed, as the `updateDescription` of a change event tells it.

With the paths that the modifiers name, a changed value is told at its path, whole; without (updates by a pipeline),
documents are compared down to the values that differ, and arrays element by element.

Source: MongoDB's "update" event of change streams.
"""

from typing import NamedTuple

from mongottl.document.build import encode, encode_fields
from mongottl.document.types import ARRAY, DOCUMENT, Value, integer
from mongottl.document.walk import ElementCursor

# Type code and bytes of a value.
_Raw = tuple[int, bytes]


class Difference(NamedTuple):
    """updated: paths with their new values. removed: paths. truncated: paths of arrays with their new lengths.

    disambiguated: paths with components that look like array indexes, with their components as strings and numbers.
    """

    updated: list[tuple[str, Value]]
    removed: list[Value]
    truncated: list[Value]
    disambiguated: list[tuple[str, Value]]

    def describe(self, expanded: bool) -> bytes:
        """The `updateDescription`. expanded: with `disambiguatedPaths`, as `showExpandedEvents` asks for."""
        described: list[tuple[str, Value]] = [
            ("updatedFields", encode_fields(self.updated)),
            ("removedFields", self.removed),
            ("truncatedArrays", self.truncated),
        ]
        if expanded:
            described.append(("disambiguatedPaths", encode_fields(self.disambiguated)))
        return encode_fields(described)


def difference(before: bytes, after: bytes, touched: tuple[str, ...] | None) -> Difference:
    """The difference of a document before and after an update. touched: the paths that its modifiers name, or None."""
    found = Difference([], [], [], [])
    targets = None if touched is None else [path.split(".") for path in touched]
    _compare_documents(before, after, [], targets, found)
    return found


def _elements(document: bytes) -> dict[str, _Raw]:
    found: dict[str, _Raw] = {}
    cursor = ElementCursor(document, 0)
    while cursor.next():
        name = cursor.name()
        raw = cursor.raw_element()
        found[name] = (int(cursor.type_code), raw[len(name.encode("utf-8")) + 2 :])
    return found


def _below(targets: list[list[str]] | None, name: str) -> list[list[str]] | None:
    """The rests of the paths that go through a field; a positional component stands for any."""
    if targets is None:
        return None
    return [path[1:] for path in targets if path and (path[0] == name or path[0].startswith("$"))]


def _compare_documents(
    before: bytes, after: bytes, path: list[Value], targets: list[list[str]] | None, found: Difference
) -> None:
    old = _elements(before)
    new = _elements(after)
    for name in old:
        if name not in new:
            _note(found, [*path, name], None)
    for name, value in new.items():
        known = old.get(name)
        if known is None:
            _note(found, [*path, name], value)
        elif known != value:
            _compare_values(known, value, [*path, name], _below(targets, name), found)


def _compare_values(
    old: _Raw, new: _Raw, path: list[Value], targets: list[list[str]] | None, found: Difference
) -> None:
    whole = targets is not None and any(not rest for rest in targets)
    if old[0] == new[0] == DOCUMENT and not whole:
        _compare_documents(old[1], new[1], path, targets, found)
    elif old[0] == new[0] == ARRAY:
        _compare_arrays(old[1], new[1], path, targets, whole, found)
    else:
        _note(found, path, new)


def _compare_arrays(
    before: bytes, after: bytes, path: list[Value], targets: list[list[str]] | None, whole: bool, found: Difference
) -> None:
    old = list(_elements(before).values())
    new = list(_elements(after).values())
    shared = min(len(old), len(new))
    if whole and (len(new) < len(old) or old[:shared] != new[:shared]):
        _note(found, path, (ARRAY, after))
        return
    for i in range(shared):
        if old[i] != new[i]:
            _compare_values(old[i], new[i], [*path, i], _below(targets, str(i)), found)
    for i in range(shared, len(new)):
        _note(found, [*path, i], new[i])
    if len(new) < len(old):
        found.truncated.append(encode({"field": _dotted(path), "newSize": integer(len(new))}))
        _disambiguate(found, path)


def _note(found: Difference, path: list[Value], value: _Raw | None) -> None:
    if value is None:
        found.removed.append(_dotted(path))
    else:
        raw = b"%c\0" % value[0] + value[1]
        cursor = ElementCursor((len(raw) + 5).to_bytes(4, "little") + raw + b"\0", 0)
        cursor.next()
        found.updated.append((_dotted(path), cursor.decoded()))
    _disambiguate(found, path)


def _dotted(path: list[Value]) -> str:
    return ".".join([str(part) for part in path])


def _disambiguate(found: Difference, path: list[Value]) -> None:
    """Notes a path that could be misread: a field whose name is a number, or has a dot."""
    for position, part in enumerate(path):
        if isinstance(part, str) and ("." in part or (part.isdigit() and (position > 0 or len(path) == 1))):
            parts: list[Value] = [part if isinstance(part, str) else integer(int(str(part))) for part in path]
            found.disambiguated.append((_dotted(path), parts))
            return
