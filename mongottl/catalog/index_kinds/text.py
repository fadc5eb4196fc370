"""Text indexes: {a: "text", b: "text"}, {"$**": "text"}, optionally with ordinary paths before and after.

    {x: 1, a: "text", b: "text", y: 1}    is stored as    {x: 1, _fts: "text", _ftsx: 1, y: 1}, weights {a: 1, b: 1}

One key for each term of a document: the values of the paths before, the term, its score (eight bytes of a double, so
that it can be read out of the key), the values of the paths after. Documents without terms have no keys.

Source: MongoDB's pages "Text Indexes" and "Specify Weights for a Text Index".
"""

import struct
from typing import Final

from mypy_extensions import i64

from mongottl.catalog.index_kinds.kind import IndexKind, IndexPattern, Pattern
from mongottl.catalog.keys import MAX_KEYS, KeyGenerator, check_count
from mongottl.document.build import encode_fields
from mongottl.document.freeing import list_for, put_aside
from mongottl.document.interrupt import give_way, give_way_after
from mongottl.document.keystring import KeyStringBuilder
from mongottl.document.numbers import truncated
from mongottl.document.path import FieldPath, check_path_depth, find_outside_arrays
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import (
    ARRAY,
    MISSING,
    NULL,
    Decimal128,
    Value,
    is_number,
    type_code_of,
    type_name,
)
from mongottl.document.walk import decode_value, fields, fields_by_name
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.fulltext.fields import WILDCARD, TextFields
from mongottl.query.fulltext.languages import ENGLISH, language_named

TEXT: Final = "text"
# The two fields that represent the text in the stored key pattern.
TERM_FIELD: Final = "_fts"
SCORE_FIELD: Final = "_ftsx"
# Weights are below this number.
MAX_WEIGHT: Final = 100_000
VERSIONS: Final = (1, 2, 3)
SCORE_BYTES: Final = 8


class TextKind(IndexKind):
    """The kind "text". CannotCreateIndex (67) for invalid patterns, weights, languages and versions."""

    def __init__(self) -> None:
        options = {"weights": "", "default_language": "string", "language_override": "string"}
        super().__init__("text", TEXT, {**options, "textIndexVersion": "number"})
        self.at_most_one = True
        self.collates = False

    def takes_everything(self, path: str) -> bool:
        return path == WILDCARD

    def check_pattern(self, pattern: Pattern) -> None:
        blocks = 0
        within = False
        for path, direction in pattern:
            if direction != TEXT and path.endswith(WILDCARD):
                raise _refused("Index key contains an illegal field name: field name starts with '$'.")
            is_text = direction == TEXT or (path == SCORE_FIELD and within)
            if is_text and not within:
                blocks += 1
            within = is_text
            if path == SCORE_FIELD and not is_text:
                raise _refused("text index with reserved fields _fts/_ftsx not allowed")
            if path == TERM_FIELD and direction != TEXT:
                raise _refused(f'expecting _fts:"text" in the key pattern, but found _fts:{direction}')
        if blocks > 1:
            raise _refused("'text' fields in index must all be adjacent")

    def check_misplaced(self, option: str) -> None:
        if option == "weights":
            raise _refused('the field "weights" can only be specified with text indexes')

    def normalised(self, key: bytes, options: dict[str, Value]) -> tuple[bytes, dict[str, Value]]:
        if "collation" in options:
            raise _refused("Text indexes do not support collations other than 'simple'")
        weights = _checked_weights(options.pop("weights", MISSING))
        shown: list[tuple[str, Value]] = []
        for path, direction in fields(key):
            if direction != TEXT:
                if path != SCORE_FIELD:
                    shown.append((path, direction))
                continue
            if path != TERM_FIELD:
                _check_weighted_path(path)
                weights.setdefault(path, 1)
            if not any(name == TERM_FIELD for name, _ in shown):
                shown.extend([(TERM_FIELD, TEXT), (SCORE_FIELD, 1)])
        if not weights:
            raise _refused("a text index needs a field")
        ordered: list[tuple[str, Value]] = list_for(len(weights))
        for path in sort_in_parts([*weights]):
            give_way()
            ordered.append((path, weights[path]))
        options["weights"] = encode_fields(ordered)
        put_aside(weights)
        language = options.pop("default_language", "english")
        override = options.pop("language_override", "language")
        version = options.pop("textIndexVersion", 3)
        if not isinstance(language, str) or language_named(language) is None:
            raise _refused("default_language is not valid")
        if not isinstance(override, str) or override == "" or override.startswith("$") or "." in override:
            raise _refused("language_override is not valid")
        options["default_language"] = language
        options["language_override"] = override
        options["textIndexVersion"] = _checked_version(version)
        return encode_fields(shown), options

    def key_generator(self, pattern: IndexPattern) -> KeyGenerator:
        return TextKeyGenerator(pattern.paths, pattern.descending, _fields_of(pattern.spec))


def _refused(message: str) -> CommandError:
    return CommandError(ErrorCode.CannotCreateIndex, message)


def _checked_weights(value: Value) -> dict[str, int]:
    """The weights by path. CannotCreateIndex (67) for invalid ones; TypeMismatch (14) for a value that is not a
    document, an array or a string."""
    if value is MISSING:
        return {}
    if isinstance(value, (str, list)):
        if value == WILDCARD:
            return {WILDCARD: 1}
        raise _refused("text index option 'weights' must be an object")
    if not isinstance(value, bytes):
        raise CommandError(
            ErrorCode.TypeMismatch,
            f"The field 'weights' must be of type object, but got {type_name(type_code_of(value))}",
        )
    weights: dict[str, int] = {}
    for path, weight in fields(value):
        give_way()
        if not is_number(weight) or isinstance(weight, bool):
            raise _refused("weight for text index needs numeric type")
        number = truncated(weight)
        if number is None or not 0 < number < MAX_WEIGHT:
            raise _refused(f"text index weight must be in the exclusive interval (0,{MAX_WEIGHT}) but found: {number}")
        _check_weighted_path(path)
        weights[path] = number
    return weights


def _check_weighted_path(path: str) -> None:
    if path == WILDCARD:
        return
    check_path_depth(path, ErrorCode.CannotCreateIndex)
    for part in path.split("."):
        if part == "":
            raise _refused("weight cannot have an empty path component")
        if part.startswith("$"):
            raise _refused("weight cannot have path component with $ prefix")


def _checked_version(value: Value) -> int:
    if isinstance(value, Decimal128):
        raise _refused("text index option 'textIndexVersion' must be a number")
    version = truncated(value)
    if version not in VERSIONS:
        raise _refused(f"bad textIndexVersion: {version}")
    return version


def _fields_of(spec: bytes) -> TextFields:
    """The fields that a normalised specification indexes, with their weights."""
    options = fields_by_name(spec)
    weights: dict[str, int] = {}
    written = options["weights"]
    if isinstance(written, bytes):
        for path, weight in fields(written):
            give_way()
            if isinstance(weight, int):
                weights[path] = weight
    language = options["default_language"]
    override = options["language_override"]
    version = options["textIndexVersion"]
    return TextFields(
        weights,
        (language_named(language) if isinstance(language, str) else None) or ENGLISH,
        override if isinstance(override, str) else "language",
        version if isinstance(version, int) else 3,
    )


class TextKeyGenerator(KeyGenerator):
    """Makes a key for each term of a document.

    fields: the indexed fields. before, after: the ordinary paths before the term, and after its score.
    CannotBuildIndexKeys (201) for an array at one of these; 17261 and 17262 for an invalid language in a document.
    """

    def __init__(self, paths: list[FieldPath], descending: list[bool], text_fields: TextFields) -> None:
        super().__init__()
        self.fields = text_fields
        at = 0
        while paths[at].dotted != TERM_FIELD:
            at += 1
        self.before = paths[:at]
        self.after = paths[at + 2 :]
        self._before_descending = descending[:at]
        self._after_descending = descending[at + 2 :]

    def keys_of(self, document: bytes) -> list[bytes]:
        self.begin()
        before = _components(document, self.before, self._before_descending)
        after = _components(document, self.after, self._after_descending)
        scores = self.fields.scores(document, MAX_KEYS)
        if len(scores) > 1:
            self.note_array(TERM_FIELD)
        keys: list[bytes] = list_for(len(scores))
        size: i64 = 0
        for term, score in scores.items():
            key = self.term_prefix(before, term) + struct.pack(">d", score) + after
            keys.append(key)
            size += len(key)
            check_count(len(keys), size)
            give_way()
            give_way_after(len(key))
        put_aside(scores)
        return keys

    def term_prefix(self, before: bytes, term: str) -> bytes:
        """The prefix of a term's keys, which its score follows. before: the encoded values of the paths before the
        term."""
        builder = KeyStringBuilder()
        builder.append_component(before)
        builder.append(term)
        return builder.finish()

    def encoded_prefix(self, values: list[Value]) -> bytes:
        """The encoded values of the paths before the term."""
        builder = KeyStringBuilder()
        for i in range(len(values)):
            builder.append(values[i], self._before_descending[i])
        return builder.finish()

    def values_of_key(self, document: bytes, key: bytes) -> list[Value]:
        before: list[Value] = [_value_at(document, path) for path in self.before]
        after: list[Value] = [_value_at(document, path) for path in self.after]
        encoded = _components(document, self.before, self._before_descending)
        for term, score in self.fields.scores(document, MAX_KEYS).items():
            if key.startswith(self.term_prefix(encoded, term)):
                return [*before, term, score, *after]
        return [*before, None, None, *after]


def _components(document: bytes, paths: list[FieldPath], descending: list[bool]) -> bytes:
    builder = KeyStringBuilder()
    for i in range(len(paths)):
        type_code, pos = _find(document, paths[i])
        builder.append_raw(document, type_code or NULL, pos, descending[i])
    return builder.finish()


def _value_at(document: bytes, path: FieldPath) -> Value:
    type_code, pos = _find(document, path)
    return None if type_code == 0 else decode_value(document, type_code, pos)


def _find(document: bytes, path: FieldPath) -> tuple[i64, i64]:
    """The type code and offset of the value at a path; type code 0 for none. CannotBuildIndexKeys (201) for an array on
    the path."""
    type_code, pos = find_outside_arrays(document, path)
    if type_code == ARRAY:
        raise CommandError(
            ErrorCode.CannotBuildIndexKeys, f"Field '{path.dotted}' of text index contains an array in the document"
        )
    return type_code, pos
