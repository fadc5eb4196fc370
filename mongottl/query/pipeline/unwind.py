"""`$unwind`: one document per element of an array, built from the raw bytes."""

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

from mongottl.document.annotated import copy_metadata
from mongottl.document.build import encode, encode_value
from mongottl.document.path import FieldPath, check_field_path
from mongottl.document.render import render_value
from mongottl.document.set_path import set_path
from mongottl.document.types import (
    ARRAY,
    DOCUMENT,
    MISSING,
    NULL,
    UNDEFINED,
    Int64,
    Missing,
    Value,
)
from mongottl.document.walk import ElementCursor, fields, find_field_at
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import BATCH_BYTES, DocumentSource, TransformSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import OLDEST

MAX_OUTPUT: Final = 1024  # documents per call; at most twice as many are output


class UnwindSpec(StageSpec):
    """`$unwind`.

    path: of the array. preserve: keep documents without elements. index_path: path for the element's index.
    """

    def __init__(self, path: FieldPath, preserve: bool, index_path: FieldPath | None) -> None:
        self.name = "$unwind"
        self.path: Final = path
        self.preserve: Final = preserve
        self.index_path: Final = index_path

    def effect(self) -> Effect | None:
        changed = [self.path.dotted]
        if self.index_path is not None:
            changed.append(self.index_path.parts[0])
        return Effect(changed)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return UnwindSource(source, self, run)

    def describe(self) -> Value:
        described: dict[str, Value] = {"path": "$" + self.path.dotted}
        if self.preserve:
            described["preserveNullAndEmptyArrays"] = True
        if self.index_path is not None:
            described["includeArrayIndex"] = self.index_path.dotted
        return encode({"$unwind": described})


class UnwindSource(TransformSource):
    """Outputs the documents of a long array over several calls, since each contains a copy of the whole document."""

    def __init__(self, source: DocumentSource, spec: UnwindSpec, run: RunContext) -> None:
        super().__init__(source)
        self._path: Final = spec.path
        self._preserve: Final = spec.preserve
        self._index_path: Final = spec.index_path
        self._keeps_metadata: Final = bool(run.metadata)
        self._batch: list[bytes] = []
        self._position: i64 = 0
        # The array that is being unwound, with the cursor on the next element; for a root field also the bytes before
        # and after its value.
        self._cursor: ElementCursor | None = None
        self._index = 0
        self._before = b""
        self._suffix = b""

    def next_batch(self) -> list[bytes] | None:
        if self._position >= len(self._batch):
            batch = self.source.next_batch()
            if batch is None:
                return None
            self._batch = batch
            self._position = 0
        found: list[bytes] = []
        batch = self._batch
        position = self._position
        room: i64 = BATCH_BYTES
        while position < len(batch) and len(found) < MAX_OUTPUT and room > 0:
            first = len(found)
            doc = batch[position]
            if self._cursor is None:
                self._begin(doc, found)
            if self._cursor is not None:
                room = self._continue(doc, self._cursor, found, room)
            if self._keeps_metadata:
                for i in range(first, len(found)):
                    found[i] = copy_metadata(doc, found[i])
            if self._cursor is None:
                position += 1
        self._position = position
        return found

    def _begin(self, doc: bytes, into: list[bytes]) -> None:
        """Outputs a document without elements, or moves the cursor to the first element."""
        path = self._path
        type_code: i64 = DOCUMENT
        pos: i64 = 0
        for part in path.part_bytes:
            if type_code != DOCUMENT:
                type_code = 0
                break
            type_code, pos = find_field_at(doc, pos, part)
        if type_code == ARRAY:
            cursor = ElementCursor(doc, pos)
            if cursor.next():
                self._cursor = cursor
                self._index = 0
                if path.depth == 1:
                    name = path.part_bytes[0]
                    self._before = doc[4 : pos - len(name) - 2]
                    self._suffix = doc[pos + i64(read_i32_le(doc, pos)) :]
            elif self._preserve:
                into.append(with_index(set_path(doc, 0, path.part_bytes, 0, 0, b""), self._index_path, None))
        elif type_code == 0 or type_code == NULL or type_code == UNDEFINED:
            if self._preserve:
                into.append(with_index(doc, self._index_path, None))
        else:
            into.append(with_index(doc, self._index_path, None))

    def _continue(self, doc: bytes, cursor: ElementCursor, into: list[bytes], room: i64) -> i64:
        """Unwinds elements until there are enough documents; returns the remaining room in bytes."""
        parts = self._path.part_bytes
        by_root = self._path.depth == 1
        named = parts[0] + b"\0"
        before = self._before
        suffix = self._suffix
        index_path = self._index_path
        left: i64 = MAX_OUTPUT
        more = True
        while more and left > 0 and room > 0:
            value = doc[cursor.value : cursor.end]
            if by_root:
                size = 4 + len(before) + 1 + len(named) + len(value) + len(suffix)
                changed = b"".join(
                    [size.to_bytes(4, "little"), before, _TYPE_BYTES[cursor.type_code], named, value, suffix]
                )
            else:
                changed = set_path(doc, 0, parts, 0, cursor.type_code, value)
            if index_path is not None:
                changed = with_index(changed, index_path, self._index)
                self._index += 1
            into.append(changed)
            room -= i64(len(changed))
            left -= 1
            more = cursor.next()
        if not more:
            self._cursor = None
            self._before = self._suffix = b""
        return room


def with_index(doc: bytes, path: FieldPath | None, index: int | None) -> bytes:
    """The document with the index of its element at a path, if there is a path; null for no index."""
    if path is None:
        return doc
    value: Value = None if index is None else Int64(index)
    type_code, raw = encode_value(value)
    return copy_metadata(doc, set_path(doc, 0, path.part_bytes, 0, type_code, raw))


_TYPE_BYTES: Final[list[bytes]] = [bytes([code]) for code in range(256)]


@stage("$unwind", StageTraits(streaming=True, multiplies=True), since=OLDEST)
def parse_unwind(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`"$path"` or `{path, preserveNullAndEmptyArrays, includeArrayIndex}`. Codes 15981 and 28808 to 28822."""
    path: Value = MISSING
    preserve = False
    index: str | None = None
    if isinstance(argument, bytes):
        for name, value in fields(argument):
            if name == "path":
                if not isinstance(value, str):
                    raise CommandError(28808, f"expected a string as the path for $unwind stage, got {type_of(value)}")
                path = value
            elif name == "preserveNullAndEmptyArrays":
                if not isinstance(value, bool):
                    raise CommandError(
                        28809,
                        "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got "
                        f"{type_of(value)}",
                    )
                preserve = value
            elif name == "includeArrayIndex":
                if not isinstance(value, str) or value == "":
                    raise CommandError(
                        28810,
                        "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got "
                        f"{type_of(value)}",
                    )
                if value.startswith("$"):
                    raise CommandError(
                        28822, f"includeArrayIndex option to $unwind stage should not be prefixed with a '$': {value}"
                    )
                index = value
            else:
                raise CommandError(28811, f"unrecognized option to $unwind stage: {name}")
        if isinstance(path, Missing):
            raise CommandError(28812, "no path specified to $unwind stage")
    elif isinstance(argument, str):
        path = argument
    else:
        raise CommandError(
            15981, f"expected either a string or an object as specification for $unwind stage, got {type_of(argument)}"
        )
    if path == "":
        raise CommandError(28812, "no path specified to $unwind stage")
    if not isinstance(path, str) or not path.startswith("$"):
        raise CommandError(28818, f"path option to $unwind stage should be prefixed with a '$': {render_value(path)}")
    if "\0" in path:
        raise CommandError(16419, "field path must not contain embedded null characters")
    check_field_path(path[1:])
    if index is not None:
        check_field_path(index)
    return [UnwindSpec(FieldPath(path[1:]), preserve, None if index is None else FieldPath(index))]
