"""Wildcard indexes: {"$**": 1}, {"a.$**": 1}, or compound, {b: 1, "a.$**": 1}. They index every path below their own.

The wildcard component becomes two components of a key: the path, as a string, and the value at that path. A document
has a key for each of its values; documents and arrays have keys for the values in them:

    {"$**": 1}      {a: {b: 1, c: [2, 3]}, d: {}}   ->   ("a.b", 1), ("a.c", 2), ("a.c", 3), ("d", {})
                    {a: [{b: 1}, [4]], d: []}       ->   ("a.b", 1), ("a", [4]), ("d", undefined)

A document that has none of the paths is left out; in a compound index it has a key with MinKey for path and value, so
that the index serves filters on the regular components alone. Source: MongoDB's pages on wildcard indexes.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.catalog.index_kinds.kind import WILDCARD_PATH, IndexKind, IndexPattern, Pattern, is_wildcard
from mongottl.catalog.index_kinds.wildcard_paths import (
    ALL,
    NOTHING,
    PathNode,
    below,
    everything,
    parse_wildcard_projection,
    signature,
)
from mongottl.catalog.keys import BtreeKeyGenerator, KeyGenerator, check_count
from mongottl.document.collation import Collation
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.keystring import KeyStringBuilder, encode_key, encode_raw
from mongottl.document.numbers import is_true
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DOCUMENT, MISSING, MinKey, Undefined, Value, type_code_of, type_name
from mongottl.document.utf8 import decode_text
from mongottl.document.walk import ElementCursor, fields, get_value
from mongottl.errors import CommandError, ErrorCode

PROJECTION: Final = "wildcardProjection"
_DOT: Final = ord(".")
SEVERAL_WILDCARDS: Final = 7246201
_NOT_EXCLUDED: Final = 7246209
MULTIKEY_REGULAR_FIELD: Final = 7246301


class WildcardKind(IndexKind):
    """The kind of wildcard indexes.

    7246201 for several wildcards; 7246209 for an exclusion that does not exclude the other components;
    CannotCreateIndex (67) for other conflicts with these, `unique`, `sparse` and TTL; FailedToParse (9) for a
    projection where the path is not "$**"; BadValue (2) for a projection in an index of another kind."""

    def __init__(self) -> None:
        super().__init__("wildcard", "", {PROJECTION: ""}, min_version=2)

    def takes_everything(self, path: str) -> bool:
        return True

    def check_pattern(self, pattern: Pattern) -> None:
        if sum(1 for path, _ in pattern if is_wildcard(path)) > 1:
            raise CommandError(SEVERAL_WILDCARDS, "wildcard indexes do not allow more than one wildcard field")

    def check_misplaced(self, option: str) -> None:
        raise CommandError(ErrorCode.BadValue, f"The field '{option}' is only allowed in an 'wildcard' index")

    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        for option in ("sparse", "unique", "prepareUnique"):
            if options.get(option):
                raise _cannot_create(f"Index type 'wildcard' does not support the '{option}' option")
        if "expireAfterSeconds" in options:
            raise _cannot_create("Index type 'wildcard' cannot be a TTL index")
        projection = options.get(PROJECTION, MISSING)
        pattern = fields(key)
        if projection is not MISSING:
            if not isinstance(projection, bytes):
                raise CommandError(
                    ErrorCode.TypeMismatch,
                    f"The field '{PROJECTION}' must be of type object, but got {type_name(type_code_of(projection))}",
                )
            if not any(path == WILDCARD_PATH for path, _ in pattern):
                raise CommandError(
                    ErrorCode.FailedToParse, f"The field '{PROJECTION}' is only allowed when the wildcard is '$**'"
                )
        held = _held(pattern, projection)
        for path, _ in pattern:
            if not is_wildcard(path) and held.holds_any(path):
                message = f"The wildcard holds the field '{path}' as well; exclude it by {PROJECTION}"
                raise CommandError(_NOT_EXCLUDED, message) if _excludes(projection) else _cannot_create(message)
        return key, options

    def distinguishing(self, pattern: IndexPattern) -> Value:
        projection = get_value(pattern.spec, PROJECTION)
        return signature(projection) if isinstance(projection, bytes) else None

    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        return WildcardKeyGenerator(pattern)


def _cannot_create(message: str) -> CommandError:
    return CommandError(ErrorCode.CannotCreateIndex, message)


def _excludes(projection: Value) -> bool:
    """Whether a projection excludes fields other than `_id`."""
    return isinstance(projection, bytes) and not any(
        is_true(value) for path, value in fields(projection) if path != "_id"
    )


def _held(pattern: Pattern, projection: Value) -> PathNode:
    if isinstance(projection, bytes):
        return parse_wildcard_projection(projection)
    for path, _ in pattern:
        if is_wildcard(path) and path != WILDCARD_PATH:
            return below(path[: -len(WILDCARD_PATH) - 1])
    return everything()


class WildcardKeyGenerator(KeyGenerator):
    """Makes a key for each value of a document.

    held: the paths that are indexed. place: the position of the wildcard among the components.

    7246301 where a document has an array on a regular component.
    """

    def __init__(self, pattern: IndexPattern) -> None:
        super().__init__()
        paths = pattern.paths
        self.wildcard_position = 0
        for i in range(len(paths)):
            if is_wildcard(paths[i].dotted):
                self.wildcard_position = i
        self.held: PathNode = _held(fields(pattern.key), get_value(pattern.spec, PROJECTION))
        self._descending = pattern.descending[self.wildcard_position]
        collation = pattern.collation
        self._collation = collation  # of the values; paths are compared without one
        self._before = _regular(
            paths[: self.wildcard_position], pattern.descending[: self.wildcard_position], collation
        )
        self._after = _regular(
            paths[self.wildcard_position + 1 :], pattern.descending[self.wildcard_position + 1 :], collation
        )
        self._compound = len(paths) > 1
        self._keys: dict[bytes, bool] = {}
        self._bytes: i64 = 0  # of these
        self._before_key = b""
        self._after_key = b""

    def keys_of(self, document: bytes) -> list[bytes]:
        self.begin()
        if self._compound:
            self._before_key = _regular_key(self._before, document)
            self._after_key = _regular_key(self._after, document)
        found: dict[bytes, bool] = {}
        self._keys = found
        self._bytes = 0
        self._walk(document, 0, "", self.held)
        if not found and self._compound:
            nothing = encode_key([MinKey(), MinKey()], [False, self._descending])
            found[self._before_key + nothing + self._after_key] = True
        return list(found)

    def values_of_key(self, document: bytes, key: bytes) -> list[Value]:
        return []  # these indexes are never unique

    def _walk(self, buf: bytes, start: i64, prefix: str, node: PathNode | None) -> None:
        """Adds the keys of a document's fields. prefix: of their paths. node: which of them are indexed, None for
        all."""
        cursor = ElementCursor(buf, start)
        while cursor.next():
            name = cursor.name_bytes()
            if _DOT in name:
                continue  # such a field has no path
            child: PathNode | None = None
            if node is not None:
                fate = node.inclusion(name)
                if fate == NOTHING:
                    continue
                if fate != ALL:
                    child = node.nodes[name]
            path = prefix + decode_text(name)
            type_code = cursor.type_code
            if type_code == ARRAY:
                self._walk_array(buf, cursor.value, path, child)
            else:
                self._add(buf, type_code, cursor.value, path, child)

    def _walk_array(self, buf: bytes, start: i64, path: str, node: PathNode | None) -> None:
        self.note_array(path)
        cursor = ElementCursor(buf, start)
        empty = True
        while cursor.next():
            empty = False
            self._add(buf, cursor.type_code, cursor.value, path, node)
        if empty and (node is None or node.rest == ALL):
            builder = self._builder(path)
            builder.append(Undefined(), self._descending)
            self._finish(builder)

    def _add(self, buf: bytes, type_code: i64, pos: i64, path: str, node: PathNode | None) -> None:
        """Adds the keys of a value, or of an array's element; an array within an array is keyed as a whole."""
        if type_code == DOCUMENT and buf[pos + 4] != 0:
            self._walk(buf, pos, path + ".", node)
        elif node is None or node.rest == ALL:
            builder = self._builder(path)
            builder.append_component(encode_raw(buf, type_code, pos, self._descending, self._collation))
            self._finish(builder)

    def _builder(self, path: str) -> KeyStringBuilder:
        builder = KeyStringBuilder()
        builder.append_component(self._before_key)
        builder.append(path)
        return builder

    def _finish(self, builder: KeyStringBuilder) -> None:
        builder.append_component(self._after_key)
        key = builder.finish()
        give_way()
        give_way_after(len(key))
        if key not in self._keys:
            self._keys[key] = True
            self._bytes += len(key)
            check_count(len(self._keys), self._bytes)


def _regular(paths: list[FieldPath], descending: list[bool], collation: Collation | None) -> KeyGenerator | None:
    return BtreeKeyGenerator(paths, descending, False, collation) if paths else None


def _regular_key(generator: KeyGenerator | None, document: bytes) -> bytes:
    """The regular components of the document's keys."""
    if generator is None:
        return b""
    keys = generator.keys_of(document)
    if generator.saw_array:
        raise CommandError(
            MULTIKEY_REGULAR_FIELD, "A regular field of a compound wildcard index cannot have an array on its path"
        )
    return keys[0]
