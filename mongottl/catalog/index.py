"""Index descriptors: what an index is, as `listIndexes` shows it, and how two of them compare.

`index_spec` checks what `createIndexes` accepts; the specifications here have been checked.
"""

from typing import TYPE_CHECKING, Final

from mongottl.catalog.index_kinds import BTREE, IndexKind, IndexPattern, kind_of
from mongottl.catalog.keys import KeyGenerator
from mongottl.catalog.options import CollectionOptions
from mongottl.document.build import encode, encode_fields, value_size
from mongottl.document.collation import Collation, same_collation
from mongottl.document.compare import compare_values
from mongottl.document.freeing import list_for
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import MISSING, Int64, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, fields, get_value
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.ttl.policy import NO_TTL

if TYPE_CHECKING:
    from mongottl.query.match import MatchExpression

ID_INDEX_NAME: Final = "_id_"
TS_FIELD: Final = "_ts"
MAX_INDEXES: Final = 64
# From this length on the filter of a partial index counts for what making the keys of a document takes.
_PARTIAL_BYTES: Final = 512

# Directions of more bytes, which old versions of indexes may have, are equal only if they have as many.
_LONG_DIRECTION: Final = 64

# How an index compares with another, by MongoDB's rule: indexes are distinguished by the key pattern, `unique`,
# `sparse`, `partialFilterExpression` and `collation`. Two that agree in these are equivalent, and identical if the
# other options agree too.
DIFFERENT: Final = 0
EQUIVALENT: Final = 1
IDENTICAL: Final = 2
# Options that `_other_options` leaves out: they are compared separately, or not at all.
_NOT_OTHER: Final = frozenset(
    """v key name ns unique sparse partialFilterExpression wildcardProjection collation hidden background
    textIndexVersion 2dsphereIndexVersion""".split()
)


class IndexDescriptor:
    """One index of a collection, as specified.

    prepare_unique: duplicates may exist, but no write may add one. internal: clients do not see the index.
    key: the pattern as raw BSON. paths, directions, descending: its components. kind: what the pattern asks for.
    collation: of the strings in its keys and of its partial filter; None for the simple collation.
    expire_after_s: `expireAfterSeconds` of an index on a date field, or None; on `_ts` it is the collection's default
    TTL instead (`default_ttl_s`, NO_TTL elsewhere), and the index holds no keys, because `_ts` is not a field of the
    documents.
    key_weight: what it takes to make a document's keys, as a multiple of what other indexes take. ahead_bytes: keys of
    documents of fewer bytes are made within the unit of work that writes them, in a few milliseconds.
    """

    def __init__(self, spec: bytes, partial_match: "MatchExpression | None" = None) -> None:
        """partial_match: what the partial filter means, if it is known."""
        self.spec = spec
        self.name = ""
        self.key: bytes = b""
        self.unique = False
        self.prepare_unique = False
        self.internal = False
        self.sparse = False
        self.hidden = False
        self.clustered = False
        self.expire_after_s: int | None = None
        self.default_ttl_s: int = NO_TTL
        self.partial_filter: bytes | None = None
        self.partial_match: MatchExpression | None = None
        self._spare_match: MatchExpression | None = None
        self.collation: Collation | None = None
        for field, value in fields(spec):
            if field == "name" and isinstance(value, str):
                self.name = value
            elif field == "key" and isinstance(value, bytes):
                self.key = value
            elif field == "unique":
                self.unique = bool(value)
            elif field == "internal":
                self.internal = bool(value)
            elif field == "prepareUnique":
                self.prepare_unique = bool(value)
            elif field == "sparse":
                self.sparse = bool(value)
            elif field == "hidden":
                self.hidden = bool(value)
            elif field == "clustered":
                self.clustered = bool(value)
            elif field == "partialFilterExpression" and isinstance(value, bytes):
                self.partial_filter = value
            elif field == "collation" and isinstance(value, bytes):
                self.collation = parse_collation(value)
            elif field == "expireAfterSeconds" and isinstance(value, (int, float)):
                self.expire_after_s = int(value)
        if self.partial_filter is not None:
            known = partial_match is not None
            self.partial_match = partial_match if known else self._parsed_match(self.partial_filter)
        self.is_id = self.clustered or self.name == ID_INDEX_NAME
        self.kind: IndexKind = BTREE if self.is_id else kind_of(fields(self.key))
        # Made by `prepare`.
        self._generator: KeyGenerator | None = None
        self._is_distinguished = False
        self._distinguishing: Value = None
        self._others: dict[str, bytes] | None = None
        self._conditions: list[bytes] | None = None
        self.pattern = IndexPattern(spec, self.key, self.sparse, self.collation)
        self.paths: list[FieldPath] = self.pattern.paths
        self.directions: list[Value] = self.pattern.directions
        self.descending: list[bool] = self.pattern.descending
        self.is_ttl_setting = self.expire_after_s is not None and self.paths[0].dotted == TS_FIELD
        if self.is_ttl_setting:
            self.default_ttl_s = self.expire_after_s if self.expire_after_s is not None else NO_TTL
            self.expire_after_s = None

        # Each element of an array may be compared with each part of the filter.
        self.key_weight: int = 1 if self.partial_filter is None else 1 + len(self.partial_filter) // _PARTIAL_BYTES
        self.ahead_bytes: int = self.kind.ahead_bytes // self.key_weight

    def _parsed_match(self, filter: bytes) -> "MatchExpression":
        from mongottl.query.match import parse_match  # kept out of the start of the server

        return parse_match(filter, ParseContext(collation=self.collation))

    def lend_partial_match(self) -> "MatchExpression | None":
        """An equal `partial_match` for one operation, during whose evaluation others may use this one."""
        if self.partial_filter is None:
            return None
        spare = self._spare_match
        self._spare_match = None
        return self._parsed_match(self.partial_filter) if spare is None else spare

    def take_back_partial_match(self, lent: "MatchExpression | None") -> None:
        """Called when the operation does not use it any more."""
        self._spare_match = lent

    def prepare(self) -> None:
        """Makes the next `key_generator`, and what `compared_with` compares: an option may have very many paths, so
        that this takes long, and others run meanwhile where it is called."""
        self._generator = self.kind.key_generator(self.pattern)
        self.prepare_comparison()

    def prepare_comparison(self) -> None:
        """Makes what `compared_with` compares."""
        self.distinguishing()
        self._other_options()
        self._conjuncts()

    def key_generator(self) -> KeyGenerator:
        generator = self._generator
        if generator is None:
            return self.kind.key_generator(self.pattern)
        self._generator = None
        return generator

    def distinguishing(self) -> Value:
        """What distinguishes the index from others of its kind with the same key pattern."""
        if not self._is_distinguished:
            self._distinguishing = self.kind.distinguishing(self.pattern)
            self._is_distinguished = True
        return self._distinguishing

    def with_option(self, option: str, value: Value) -> "IndexDescriptor":
        """The descriptor of this index with one option changed, or removed (MISSING), for `collMod`: none of which
        its partial filter depends on."""
        pairs = [(name, old) for name, old in fields(self.spec) if name != option]
        if value is not MISSING:
            pairs.append((option, value))
        return IndexDescriptor(encode_fields(pairs), self.partial_match)

    def has_key(self, key: bytes) -> bool:
        """Whether `key` is this index's pattern: fields, order and directions, whatever the number types."""
        cursor = ElementCursor(key, 0)
        for path, direction in fields(self.key):
            if not cursor.next() or not cursor.name_is(encode_text(path)):
                return False
            size = int(cursor.end - cursor.value)
            if size > _LONG_DIRECTION and size != value_size(direction):  # else it would be decoded for each index
                return False
            if compare_values(direction, cursor.decoded()) != 0:
                return False
        return not cursor.next()

    def compared_with(self, other: "IndexDescriptor") -> int:
        """DIFFERENT, EQUIVALENT or IDENTICAL; names do not count, nor whether an index is hidden."""
        if (
            not self.has_key(other.key)
            or self.unique != other.unique
            or self.sparse != other.sparse
            or self._conjuncts() != other._conjuncts()
            or self.distinguishing() != other.distinguishing()
            or not same_collation(self.collation, other.collation)
        ):
            return DIFFERENT
        return IDENTICAL if self._other_options() == other._other_options() else EQUIVALENT

    def _other_options(self) -> dict[str, bytes]:
        """The options by which two equivalent indexes may still differ."""
        others = self._others
        if others is None:
            others = {name: encode_value(value) for name, value in fields(self.spec) if name not in _NOT_OTHER}
            self._others = others
        return others

    def _conjuncts(self) -> list[bytes]:
        """The conditions of the partial filter that must all match, sorted and in a form that equal ones have in
        common; none without a filter."""
        conjuncts = self._conditions
        if conjuncts is None:
            conjuncts = list_for(0 if self.partial_filter is None else len(self.partial_filter))
            if self.partial_filter is not None:
                conjuncts.append(b"")  # it may be empty
                _add_conjuncts(self.partial_filter, conjuncts)
            conjuncts = sort_in_parts(conjuncts)
            self._conditions = conjuncts
        return conjuncts

    def option(self, name: str) -> Value:
        """An option as the specification has it; MISSING if it does not."""
        return get_value(self.spec, name)


def _add_conjuncts(filter: bytes, conjuncts: list[bytes]) -> None:
    for name, value in fields(filter):
        if name == "$and" and isinstance(value, list):
            for part in value:
                if isinstance(part, bytes):
                    _add_conjuncts(part, conjuncts)
                else:
                    conjuncts.append(encode_value(encode({name: part})))
        else:
            conjuncts.append(encode_value(encode({name: value})))


def id_index_spec(collation: Collation | None = None) -> bytes:
    """collation: the collection's."""
    spec: dict[str, Value] = {"v": 2, "key": {"_id": 1}, "name": ID_INDEX_NAME}
    if collation is not None:
        spec["collation"] = collation.spec
    return encode(spec)


def clustered_index_spec(options: CollectionOptions) -> bytes:
    """The `_id` index of a clustered collection, as listIndexes shows it."""
    assert options.clustered_index is not None
    name = get_value(options.clustered_index, "name")
    spec: dict[str, Value] = {"v": 2, "key": {"_id": 1}, "name": name, "unique": True, "clustered": True}
    if options.expire_after_seconds is not None:
        spec["expireAfterSeconds"] = Int64(options.expire_after_seconds)
    if options.collation is not None:
        spec["collation"] = options.collation
    return encode(spec)
