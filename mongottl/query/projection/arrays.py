"""Array operators of `find` projections: `$slice` and the positional `path.$`."""

from mypy_extensions import i64

from mongottl.document.build import index_name
from mongottl.document.splice import element, finish_document, start_document
from mongottl.document.types import ARRAY, DOCUMENT
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, count_fields
from mongottl.errors import CommandError
from mongottl.query.match.tree import MatchDetails


class ArrayStep:
    """Rewrites the arrays at a path of a document.

    parts: the components of the path.
    """

    def __init__(self, parts: list[str]) -> None:
        self.parts = parts
        self.part_bytes: list[bytes] = [encode_text(part) for part in parts]

    def apply(self, doc: bytes, details: MatchDetails | None) -> bytes:
        """The document with the arrays rewritten."""
        return self._in_document(doc, 0, 0, details)

    def _in_document(self, buf: bytes, pos: i64, depth: i64, details: MatchDetails | None) -> bytes:
        writer = start_document()
        name = self.part_bytes[depth]
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            if not cursor.name_is(name):
                writer.write(cursor.raw_element())
            elif cursor.type_code == ARRAY:
                writer.write(element(ARRAY, name, self.rewrite(buf, cursor.value, depth + 1, details)))
            elif cursor.type_code == DOCUMENT and depth + 1 < len(self.parts):
                writer.write(element(DOCUMENT, name, self._in_document(buf, cursor.value, depth + 1, details)))
            else:
                writer.write(cursor.raw_element())
        return finish_document(writer)

    def rewrite(self, buf: bytes, pos: i64, depth: i64, details: MatchDetails | None) -> bytes:
        """The rewritten array at `pos`, which is the value at the first `depth` components."""
        raise NotImplementedError


class SliceStep(ArrayStep):
    """`$slice`: `limit` elements from `skip` on; a negative skip counts from the end."""

    def __init__(self, parts: list[str], skip: int, limit: int) -> None:
        super().__init__(parts)
        self.skip = skip
        self.limit = limit

    def rewrite(self, buf: bytes, pos: i64, depth: i64, details: MatchDetails | None) -> bytes:
        if depth < len(self.parts):
            return self._each(buf, pos, depth, details)
        size = int(count_fields(buf, pos))
        start = min(self.skip, size) if self.skip >= 0 else max(size + self.skip, 0)
        return cut_array(buf, pos, start, min(start + self.limit, size))

    def _each(self, buf: bytes, pos: i64, depth: i64, details: MatchDetails | None) -> bytes:
        writer = start_document()
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            if cursor.type_code == DOCUMENT:
                inner = self._in_document(buf, cursor.value, depth, details)
                writer.write(element(DOCUMENT, cursor.name_bytes(), inner))
            elif cursor.type_code == ARRAY:
                inner = self._each(buf, cursor.value, depth, details)
                writer.write(element(ARRAY, cursor.name_bytes(), inner))
            else:
                writer.write(cursor.raw_element())
        return finish_document(writer)


class PositionalStep(ArrayStep):
    """`path.$`: of the first array on the path, only the element that the filter matched.

    Location51246 if the filter matched no element, Location51247 if the array is shorter than that.

    returns_none: whether the array is always empty, a defect of some accounts of Cosmos DB (`cosmos_choices.VARIANTS`).
    """

    def __init__(self, parts: list[str], returns_none: bool = False) -> None:
        super().__init__(parts)
        self.returns_none = returns_none

    def rewrite(self, buf: bytes, pos: i64, depth: i64, details: MatchDetails | None) -> bytes:
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
