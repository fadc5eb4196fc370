"""What an update has changed, in the form of a change event's `updateDescription`.

With the paths that the modifiers name, a changed value is described at its path, whole; without (updates by a
pipeline), documents are compared down to the values that differ, and arrays element by element.

Source: MongoDB's "update" event of change streams.
"""

import struct
from typing import Final

from mypy_extensions import i64

from mongottl.document.build import encode, encode_fields
from mongottl.document.freeing import LongList, list_for, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.long_lists import set_of
from mongottl.document.splice import element, finish_document, frame, start_document
from mongottl.document.types import ARRAY, DOCUMENT, Value, integer
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, find_field, skip_value

# Type code and bytes of a value.
_Raw = tuple[int, bytes]

_pack_length: Final = struct.Struct("<i").pack
_EMPTY: Final = _pack_length(5) + b"\0"
_UPDATED: Final = b"\x03updatedFields\0"
# Bytes of an array's element without a value.
_SHORTEST_ITEM: Final = 3
# Up to this number of fields each is searched for.
_FEW_FIELDS: Final = 16
_NOTHING_ELSE: Final = b"\x04removedFields\0" + _EMPTY + b"\x04truncatedArrays\0" + _EMPTY
# The last field of an expanded description without such paths.
NOT_AMBIGUOUS: Final = b"\x03disambiguatedPaths\0" + _EMPTY


class Difference:
    """updated: a document with paths as names and the new values, as it is written. removed: paths. truncated: paths of
    arrays with their new lengths.

    disambiguated: paths with components that look like array indexes, with their components as strings and numbers.
    """

    def __init__(self) -> None:
        self.updated = start_document()
        self.removed: list[Value] = LongList()
        self.truncated: list[Value] = []
        self.disambiguated: list[tuple[str, Value]] = LongList()

    def describe(self, expanded: bool) -> bytes:
        """The `updateDescription`. expanded: with `disambiguatedPaths`, as `showExpandedEvents` asks for."""
        rest = _NOTHING_ELSE
        if self.removed or self.truncated:
            rest = encode_fields([("removedFields", self.removed), ("truncatedArrays", self.truncated)])[4:-1]
        if expanded:
            rest += (
                encode({"disambiguatedPaths": encode_fields(self.disambiguated)})[4:-1]
                if self.disambiguated
                else NOT_AMBIGUOUS
            )
        return frame(_UPDATED + finish_document(self.updated) + rest)


def difference(before: bytes, after: bytes, touched: tuple[str, ...] | None) -> Difference:
    """The difference of a document before and after an update. touched: the paths that its modifiers name, or None."""
    found = Difference()
    if touched is None:
        _compare_documents(before, after, [], None, found)
    elif not any("." in path for path in touched):
        _compare_fields(before, after, touched, found)
    else:
        paths = _Paths()
        paths.add_all(touched)
        _compare_documents(before, after, [], [paths], found)
    return found


class _Paths:
    """Paths that modifiers name, as a tree: the rest of each after the component that leads here.

    ends: whether one of them ends here. below: by their next component. at_any: after a positional one, which stands
    for any component.
    """

    def __init__(self) -> None:
        self.ends = False
        self.below: dict[str, _Paths] = {}
        self.at_any: _Paths | None = None
        # All that are below the root: what is in no other list than this one is freed in slices.
        self._nodes: list[_Paths] | None = None

    def add_all(self, paths: tuple[str, ...]) -> None:
        """Adds dotted paths; called once, of the root."""
        nodes: list[_Paths] = LongList()
        self._nodes = nodes
        for path in paths:
            at = self
            for part in path.split("."):
                give_way()
                next_at = at.at_any if part.startswith("$") else at.below.get(part)
                if next_at is None:
                    next_at = _Paths()
                    nodes.append(next_at)
                    if part.startswith("$"):
                        at.at_any = next_at
                    else:
                        at.below[part] = next_at
                at = next_at
            at.ends = True


_WHOLE: Final = _Paths()
_WHOLE.ends = True


def _compare_fields(before: bytes, after: bytes, touched: tuple[str, ...], found: Difference) -> None:
    """The difference in the fields of the root that an update names: the only ones that can have changed."""
    if len(touched) > _FEW_FIELDS:
        _compare_many_fields(before, after, touched, found)
        return
    removed: list[tuple[int, str]] = []
    changed: list[tuple[int, str, _Raw | None, _Raw]] = []
    for name in dict.fromkeys(touched):
        field = encode_text(name)
        old_at, old = _value(before, field)
        new_at, new = _value(after, field)
        if new is None:
            if old is not None:
                removed.append((old_at, name))
        elif old != new:
            changed.append((new_at, name, old, new))
    if len(removed) > 1:
        removed.sort()
    if len(changed) > 1:
        changed.sort(key=_place)
    for _, name in removed:
        _note(found, [name], None)
    for _, name, old, new in changed:
        if old is None:
            _note(found, [name], new)
        else:
            _compare_values(old, new, [name], [_WHOLE], found)


def _compare_many_fields(before: bytes, after: bytes, touched: tuple[str, ...], found: Difference) -> None:
    """`_compare_fields` by one walk through each of the documents, whose fields are not searched for each name."""
    names = set_of(touched)
    old = _elements(before, names)
    new = _elements(after, names)
    for name in old:
        if name not in new:
            _note(found, [name], None)
    for name, value in new.items():
        give_way()
        known = old.get(name)
        if known is None:
            _note(found, [name], value)
        elif known != value:
            _compare_values(known, value, [name], [_WHOLE], found)
    put_aside(old)
    put_aside(new)


def _place(change: tuple[int, str, _Raw | None, _Raw]) -> int:
    return change[0]


def _value(document: bytes, field: bytes) -> tuple[int, _Raw | None]:
    """Where the value of a field is in the document, and the value; None if there is none."""
    type_code, at = find_field(document, field)
    if type_code == 0:
        return -1, None
    end: i64 = skip_value(document, type_code, at)
    return int(at), (int(type_code), document[at:end])


def _elements(document: bytes, names: set[str] | None = None) -> dict[str, _Raw]:
    """The fields of a document, or those of these names; of fields of one name the last, or with names the first."""
    found: dict[str, _Raw] = {}
    cursor = ElementCursor(document, 0)
    while cursor.next():
        give_way()
        name = cursor.name()
        if names is not None and (name not in names or name in found):
            continue
        raw = cursor.raw_element()
        found[name] = (int(cursor.type_code), raw[len(encode_text(name)) + 2 :])
    return found


def _items(array: bytes) -> list[_Raw]:
    found: list[_Raw] = list_for(len(array) // _SHORTEST_ITEM)
    cursor = ElementCursor(array, 0)
    while cursor.next():
        give_way()
        found.append((int(cursor.type_code), array[cursor.value : cursor.end]))
    return found


def _below(targets: list[_Paths] | None, name: str) -> list[_Paths] | None:
    """The rests of the paths that go through a field; a positional component stands for any."""
    if targets is None:
        return None
    rests: list[_Paths] = []
    for paths in targets:
        named = paths.below.get(name)
        if named is not None:
            rests.append(named)
        if paths.at_any is not None:
            rests.append(paths.at_any)
    return rests


def _compare_documents(
    before: bytes, after: bytes, path: list[Value], targets: list[_Paths] | None, found: Difference
) -> None:
    old = _elements(before)
    new = _elements(after)
    for name in old:
        give_way()
        if name not in new:
            _note(found, [*path, name], None)
    for name, value in new.items():
        give_way()
        known = old.get(name)
        if known is None:
            _note(found, [*path, name], value)
        elif known != value:
            _compare_values(known, value, [*path, name], _below(targets, name), found)
    put_aside(old)
    put_aside(new)


def _compare_values(old: _Raw, new: _Raw, path: list[Value], targets: list[_Paths] | None, found: Difference) -> None:
    whole = targets is not None and any(rest.ends for rest in targets)
    if old[0] == new[0] == DOCUMENT and not whole:
        _compare_documents(old[1], new[1], path, targets, found)
    elif old[0] == new[0] == ARRAY:
        _compare_arrays(old[1], new[1], path, targets, whole, found)
    else:
        _note(found, path, new)


def _compare_arrays(
    before: bytes, after: bytes, path: list[Value], targets: list[_Paths] | None, whole: bool, found: Difference
) -> None:
    old = _items(before)
    new = _items(after)
    shared = min(len(old), len(new))
    if whole and (len(new) < len(old) or not _are_equal(old, new, shared)):
        _note(found, path, (ARRAY, after))
        return
    for i in range(shared):
        give_way()
        if old[i] != new[i]:
            _compare_values(old[i], new[i], [*path, i], _below(targets, str(i)), found)
    for i in range(shared, len(new)):
        _note(found, [*path, i], new[i])
    if len(new) < len(old):
        found.truncated.append(encode({"field": _dotted(path), "newSize": integer(len(new))}))
        _disambiguate(found, path)


def _are_equal(old: list[_Raw], new: list[_Raw], count: int) -> bool:
    """Whether the first elements of two arrays are equal."""
    for i in range(count):
        give_way()
        if old[i] != new[i]:
            return False
    return True


def _note(found: Difference, path: list[Value], value: _Raw | None) -> None:
    give_way()
    name = _dotted(path)
    if value is None:
        found.removed.append(name)
    else:
        found.updated.write(element(value[0], encode_text(name), value[1]))
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
