"""Parsed projections: a fast form for lists of root fields, and the general form."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.long_lists import set_of
from mongottl.document.splice import finish_document, start_document
from mongottl.document.types import Value
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.document.walk import ElementCursor, skip_value
from mongottl.query.expr.base import EvaluationContext
from mongottl.query.match.tree import MatchDetails
from mongottl.query.projection.arrays import Positional, SliceNode
from mongottl.query.projection.nodes import ProjectionNode

# Up to this many names are compared one by one with a document's field; more are looked up.
MANY_NAMES: Final = 30


class Projection:
    """A projection. With an empty specification documents are unchanged.

    kind: "inclusion" or "exclusion". needs_positional: uses `path.$`, so match with MatchDetails.
    is_simple: only includes or excludes fields, also dotted ones.
    """

    def __init__(self, spec: bytes, kind: str) -> None:
        self.spec = spec
        self.kind = kind
        self.needs_positional: bool = False
        self.is_simple: bool = True

    def apply(self, doc: bytes, details: MatchDetails | None = None) -> bytes:
        """The projected document. details: of the match, if `needs_positional`."""
        return doc

    def describe(self) -> Value:
        """explain's `transformBy`."""
        return self.spec

    def depends_on(self) -> list[str] | None:
        """Names of the root fields that it reads, or None if it needs the whole document."""
        return None

    def collect_paths(self, included: list[str], read: set[str]) -> bool:
        """Adds the dotted paths that it copies to `included`, and those that its expressions read to `read`.

        False if more of the document decides the result: exclusions, array operators, `$$ROOT`.
        """
        return False


class RootProjection(Projection):
    """Inclusion or exclusion of root fields only: copies runs of elements.

    names: the fields with an entry, `_id` among them if it is kept by an inclusion or dropped by an exclusion.
    """

    def __init__(self, spec: bytes, names: list[str], inclusive: bool) -> None:
        super().__init__(spec, "inclusion" if inclusive else "exclusion")
        self.names: list[bytes] = list_for(len(names))
        for name in names:
            give_way()
            self.names.append(encode_text(name))
        self.inclusive: bool = inclusive
        # One bit for each name; with more names than bits, the scan of a document never ends early.
        self.all_seen: i64 = (i64(1) << len(names)) - 1 if len(names) < 31 else -1
        self._many: set[bytes] | None = set_of(self.names) if len(names) > MANY_NAMES else None

    def apply(self, doc: bytes, details: MatchDetails | None = None) -> bytes:
        many = self._many
        if many is not None:
            return self._apply_many(doc, many)
        names = self.names
        inclusive: bool = self.inclusive
        wanted: i64 = self.all_seen
        seen: i64 = 0
        writer = start_document()
        start: i64 = -1  # of the current run of kept elements
        pos: i64 = 4
        type_code: i64 = doc[pos]
        while type_code != 0:
            element: i64 = pos
            pos += 1
            name_start: i64 = pos
            while doc[pos] != 0:
                pos += 1
            listed = False
            bit: i64 = 1
            for name in names:
                if i64(len(name)) == pos - name_start:
                    i: i64 = name_start
                    j: i64 = 0
                    while i < pos and doc[i] == name[j]:
                        i += 1
                        j += 1
                    if i == pos:
                        listed = True
                        seen |= bit
                        break
                bit <<= 1
            if listed == inclusive:
                if start < 0:
                    start = element
            elif start >= 0:
                writer.write(doc[start:element])
                start = -1
            pos = skip_value(doc, type_code, pos + 1)
            type_code = doc[pos]
            if inclusive and seen == wanted:
                break
        if start >= 0:
            writer.write(doc[start:pos])
        return finish_document(writer)

    def _apply_many(self, doc: bytes, names: set[bytes]) -> bytes:
        """The projected document, if there are too many names to compare them one by one."""
        inclusive: bool = self.inclusive
        writer = start_document()
        start: i64 = -1  # of the current run of kept elements
        cursor = ElementCursor(doc, 0)
        while cursor.next():
            if (cursor.name_bytes() in names) == inclusive:
                if start < 0:
                    start = cursor.element
            elif start >= 0:
                writer.write(doc[start : cursor.element])
                start = -1
        if start >= 0:
            writer.write(doc[start : cursor.element])
        return finish_document(writer)

    def depends_on(self) -> list[str] | None:
        return [decode_text(name) for name in self.names] if self.inclusive else None

    def collect_paths(self, included: list[str], read: set[str]) -> bool:
        included.extend(decode_text(name) for name in self.names)
        return self.inclusive


class TreeProjection(Projection):
    """Any projection: fields included, excluded and computed by a tree.

    The positional operator is applied first, since an inclusion may drop elements and so shift the index that the
    filter matched; `$slice` is applied last. Expressions read the original document.
    """

    def __init__(
        self, spec: bytes, kind: str, root: ProjectionNode, positional: Positional | None, slices: SliceNode | None
    ) -> None:
        super().__init__(spec, kind)
        self.root = root
        self._positional = positional
        self._slices = slices
        self.context = EvaluationContext()

    def apply(self, doc: bytes, details: MatchDetails | None = None) -> bytes:
        ev = self.context
        ev.root = doc
        source = doc if self._positional is None else self._positional.in_document(doc, 0, 0, details)
        result = self.root.project(source, 0, ev)
        return result if self._slices is None else self._slices.in_document(result, 0)

    def depends_on(self) -> list[str] | None:
        if self.kind == "exclusion":
            return None
        fields: set[str] = set()
        for entry in self.root.entries:
            if entry.expression is None:
                fields.add(entry.name)
        return sorted(fields) if self.root.collect_fields(fields) else None

    def collect_paths(self, included: list[str], read: set[str]) -> bool:
        if self.kind != "inclusion" or self._positional is not None or self._slices is not None:
            return False
        return self.root.collect_paths("", included, read)
