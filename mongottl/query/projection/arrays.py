"""Array operators of `find` projections: `$slice` and the positional `path.$`."""

from mypy_extensions import i64

from mongottl.document.build import index_name
from mongottl.document.splice import element, finish_document, start_document
from mongottl.document.types import ARRAY, DOCUMENT
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, count_fields
from mongottl.errors import CommandError
from mongottl.query.match.tree import MatchDetails


class SliceNode:
    """The values at one path that a projection slices, or has others in it that it does.

    skip, limit: of the `$slice` there, if there is one; a negative skip counts from the end. parts: by name, those in
    it, also in all elements of an array. As there are no others on the path of a `$slice`, a node has one or the other.
    """

    def __init__(self) -> None:
        self.is_sliced = False
        self.skip = 0
        self.limit = 0
        self.parts: dict[bytes, SliceNode] = {}

    def add(self, path: str, skip: int, limit: int) -> None:
        """Adds a `$slice`: `limit` elements from `skip` on."""
        node = self
        for part in path.split("."):
            name = encode_text(part)
            following = node.parts.get(name)
            if following is None:
                following = node.parts[name] = SliceNode()
            node = following
        node.is_sliced = True
        node.skip = skip
        node.limit = limit

    def in_document(self, buf: bytes, pos: i64) -> bytes:
        """The document at `pos` with its arrays sliced."""
        writer = start_document()
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            name = cursor.name_bytes()
            node = self.parts.get(name)
            if node is None:
                writer.write(cursor.raw_element())
            elif cursor.type_code == ARRAY:
                writer.write(element(ARRAY, name, node.in_array(buf, cursor.value)))
            elif cursor.type_code == DOCUMENT and node.parts:
                writer.write(element(DOCUMENT, name, node.in_document(buf, cursor.value)))
            else:
                writer.write(cursor.raw_element())
        return finish_document(writer)

    def in_array(self, buf: bytes, pos: i64) -> bytes:
        if self.is_sliced:
            size = int(count_fields(buf, pos))
            start = min(self.skip, size) if self.skip >= 0 else max(size + self.skip, 0)
            return cut_array(buf, pos, start, min(start + self.limit, size))
        writer = start_document()
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            if cursor.type_code == DOCUMENT:
                writer.write(element(DOCUMENT, cursor.name_bytes(), self.in_document(buf, cursor.value)))
            elif cursor.type_code == ARRAY:
                writer.write(element(ARRAY, cursor.name_bytes(), self.in_array(buf, cursor.value)))
            else:
                writer.write(cursor.raw_element())
        return finish_document(writer)


class Positional:
    """`path.$`: of the first array on the path, only the element that the filter matched.

    Location51246 if the filter matched no element, Location51247 if the array is shorter than that.

    returns_none: whether the array is always empty, a defect of some accounts of Cosmos DB (`cosmos_choices.VARIANTS`).
    """

    def __init__(self, path: str, returns_none: bool = False) -> None:
        self._parts: list[bytes] = [encode_text(part) for part in path.split(".")]
        self.returns_none = returns_none

    def in_document(self, buf: bytes, pos: i64, depth: i64, details: MatchDetails | None) -> bytes:
        """The document at `pos`, which is the value at the first `depth` components, with the array cut."""
        writer = start_document()
        name = self._parts[depth]
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            if not cursor.name_is(name):
                writer.write(cursor.raw_element())
            elif cursor.type_code == ARRAY:
                writer.write(element(ARRAY, name, self._cut(buf, cursor.value, details)))
            elif cursor.type_code == DOCUMENT and depth + 1 < len(self._parts):
                writer.write(element(DOCUMENT, name, self.in_document(buf, cursor.value, depth + 1, details)))
            else:
                writer.write(cursor.raw_element())
        return finish_document(writer)

    def _cut(self, buf: bytes, pos: i64, details: MatchDetails | None) -> bytes:
        if self.returns_none:
            return cut_array(buf, pos, 0, 0)
        if details is None or details.array_index < 0:
            raise CommandError(
                51246,
                "Executor error during find command :: caused by :: positional operator '.$' couldn't find a matching "
                "element in the array",
            )
        index: i64 = details.array_index
        if index >= count_fields(buf, pos):
            raise CommandError(
                51247,
                "Executor error during find command :: caused by :: positional operator '.$' element mismatch",
            )
        return cut_array(buf, pos, int(index), int(index) + 1)


def cut_array(buf: bytes, pos: i64, start: int, stop: int) -> bytes:
    """The array of the elements start … stop - 1 of the array at `pos`."""
    writer = start_document()
    at = 0
    index: i64 = 0
    cursor = ElementCursor(buf, pos)
    while at < stop and cursor.next():
        if at >= start:
            writer.write(element(cursor.type_code, index_name(index), buf[cursor.value : cursor.end]))
            index += 1
        at += 1
    return finish_document(writer)
