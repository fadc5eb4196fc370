"""The interface of updates for the write commands: parsed once, applied to each matching document.

    driver = parse_update({$inc: {n: 1}}, ctx)
    outcome = driver.apply(doc, details, is_insert=False)     outcome.document, outcome.modified

Three kinds: modifiers ({$set: …}), replacement ({a: 1, …}), pipeline ([{$set: …}, …]).
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import DocumentBuilder
from mongottl.document.compare import compare_raw
from mongottl.document.interrupt import give_way
from mongottl.document.path import FieldPath
from mongottl.document.render import render_value
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import (
    ARRAY,
    DOCUMENT,
    MAX_DOCUMENT_BYTES,
    REGEX,
    TIMESTAMP,
    UNDEFINED,
    Value,
    type_name,
)
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import (
    ElementCursor,
    decode_value,
    find_field,
    find_field_at,
    first_field_name,
    skip_value,
)
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.equality import equality_fields, id_equality_of
from mongottl.query.match.tree import MatchDetails, MatchExpression
from mongottl.query.timestamps import TimestampClock
from mongottl.query.update.arrayfilters import parse_array_filters
from mongottl.query.update.describe import show_element
from mongottl.query.update.nodes import KEEP, ApplyState, ArrayFilter, ObjectNode, dollar_prefixed, too_large
from mongottl.query.update.registry import Operand, modifiers
from mongottl.query.update.stages import UpdatePipeline
from mongottl.query.update.tree import TreeBuilder
from mongottl.versions import DOLLAR_FIELDS, SYNTAX, UPDATE_PIPELINE

_EMPTY_TIMESTAMP: Final = b"\x00" * 8


class UpdateOutcome:
    """The result of an update of one document.

    document: the document after the update, the same object if nothing changed. modified: whether it counts in
    `nModified`.
    """

    def __init__(self, document: bytes, modified: bool) -> None:
        self.document = document
        self.modified: bool = modified


class UpdateDriver:
    """A parsed update.

    kind: "modifiers", "replacement", "pipeline", or "diff" of an oplog entry.
    needs_positional: a path uses `$`, so match with MatchDetails.
    touched_paths: the paths that it may change, None if it may change any; see `may_touch`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.needs_positional: bool = False
        self.touched_paths: list[str] | None = None

    def apply(self, doc: bytes, details: MatchDetails | None, is_insert: bool) -> UpdateOutcome:
        """Updates one document.

        details: of the match, if `needs_positional`. is_insert: `doc` is being built for an upsert.
        Raises CommandError with the modifier's code; 17419 if the document exceeds MAX_DOCUMENT_BYTES.
        """
        raise NotImplementedError

    def may_touch(self, path: str) -> bool:
        """Whether the update may change the keys of an index on this path.

        Array indexes and positional components are ignored in both paths: an index on "a.b" covers "a.0.b" and
        "a.$[].b".
        """
        touched = self.touched_paths
        if touched is None:
            return True
        wanted = _plain_parts(path)
        for one in touched:
            parts = _plain_parts(one)
            shorter = min(len(parts), len(wanted))
            if parts[:shorter] == wanted[:shorter]:
                return True
        return False


def _plain_parts(path: str) -> list[str]:
    return [part for part in path.split(".") if not part.startswith("$") and not part.isdigit()]


def check_size(document: bytes) -> None:
    if len(document) > MAX_DOCUMENT_BYTES:
        raise too_large()


class ModifierDriver(UpdateDriver):
    def __init__(self, root: ObjectNode, paths: list[str], needs_positional: bool) -> None:
        super().__init__("modifiers")
        self.root = root
        self.touched_paths = paths
        self.needs_positional = needs_positional

    def apply(self, doc: bytes, details: MatchDetails | None, is_insert: bool) -> UpdateOutcome:
        matched = ""
        if details is not None and details.array_index >= 0:
            matched = str(int(details.array_index))
        state = ApplyState(doc, is_insert, matched, self.root)
        if self.root.apply(state, doc, DOCUMENT, 0, i64(len(doc)), False) == KEEP:
            return UpdateOutcome(doc, False)
        check_size(state.out)
        return UpdateOutcome(state.out, True)


class ReplacementDriver(UpdateDriver):
    """A replacement update.

    replacement: the original document; empty timestamps at its root are replaced, unless the command keeps them.
    """

    def __init__(self, replacement: bytes, ctx: ParseContext) -> None:
        super().__init__("replacement")
        dollar_advice = ctx.advice(SYNTAX, DOLLAR_FIELDS)
        if dollar_advice:
            check_storable(replacement, 0, "", dollar_advice)
        self.replacement = replacement
        if not ctx.keeps_empty_timestamps:
            self.replacement = with_timestamps(replacement, ctx.timestamps, ctx.now_ms)

    def apply(self, doc: bytes, details: MatchDetails | None, is_insert: bool) -> UpdateOutcome:
        return replace_document(doc, self.replacement, is_insert)


class PipelineDriver(UpdateDriver):
    """An update by a pipeline. dollar_advice: for a result with fields that begin with `$`; "" if it may have them."""

    def __init__(self, pipeline: UpdatePipeline, dollar_advice: str) -> None:
        super().__init__("pipeline")
        self.pipeline = pipeline
        self._dollar_advice: Final = dollar_advice

    def apply(self, doc: bytes, details: MatchDetails | None, is_insert: bool) -> UpdateOutcome:
        result = self.pipeline.transform(doc)
        if self._dollar_advice and result != doc:
            check_storable(result, 0, "", self._dollar_advice)
        return replace_document(doc, result, True)


def with_timestamps(replacement: bytes, timestamps: TimestampClock, now_ms: int) -> bytes:
    """The document with the empty timestamps among its root fields, `_id` excepted, replaced by new ones."""
    builder = DocumentBuilder()
    replaced = False
    cursor = ElementCursor(replacement, 0)
    while cursor.next():
        empty = cursor.type_code == TIMESTAMP and replacement[cursor.value : cursor.end] == _EMPTY_TIMESTAMP
        if empty and not cursor.name_is(b"_id"):
            replaced = True
            builder.append_named(cursor.name_bytes(), timestamps.next(now_ms))
        else:
            builder.append_raw_element(cursor.raw_element())
    return builder.finish() if replaced else replacement


def replace_document(doc: bytes, replacement: bytes, allow_dollar: bool) -> UpdateOutcome:
    """Replaces everything but the `_id` of a document; `_id` becomes the first field.

    A replacement without `_id` always counts as a modification; one with `_id` and identical bytes does not.
    ImmutableField (66) for another `_id`, DollarPrefixedFieldName (52) for root fields that start with `$`.
    """
    if doc == replacement:
        return UpdateOutcome(doc, False)
    builder = DocumentBuilder()
    old_type, old_pos = find_field(doc, b"_id")
    new_type, new_pos = find_field(replacement, b"_id")
    if new_type != 0:
        if old_type != 0 and compare_raw(doc, old_type, old_pos, replacement, new_type, new_pos) != 0:
            raise CommandError(
                ErrorCode.ImmutableField,
                "After applying the update, the (immutable) field '_id' was found to have been altered to "
                + show_element("_id", decode_value(replacement, new_type, new_pos)),
            )
        check_id(new_type, replacement, new_pos)
        builder.append_raw(b"_id", new_type, replacement, new_pos, skip_value(replacement, new_type, new_pos))
    elif old_type != 0:
        builder.append_raw(b"_id", old_type, doc, old_pos, skip_value(doc, old_type, old_pos))
    id_written = new_type == 0
    cursor = ElementCursor(replacement, 0)
    while cursor.next():
        if not id_written and cursor.name_is(b"_id"):
            id_written = True
            continue
        if not allow_dollar and replacement[cursor.name_start] == 0x24:  # "$"
            raise dollar_prefixed(cursor.name())
        builder.append_raw_element(cursor.raw_element())
    document = builder.finish()
    check_size(document)
    return UpdateOutcome(document, True)


def check_storable(buf: bytes, start: i64, path: str, advice: str) -> None:
    """DollarPrefixedFieldName (52) for a field that begins with `$` in the document or array at `start`, but for those
    of a DBRef: what updates could not store before MongoDB 5.0. path: that of the document, with a dot after it.
    advice: of the error, but for fields of the root, of which MongoDB takes only some."""
    cursor = ElementCursor(buf, start)
    while cursor.next():
        is_dollar = buf[cursor.name_start] == 0x24
        if is_dollar and not (cursor.name_is(b"$ref") or cursor.name_is(b"$id") or cursor.name_is(b"$db")):
            name = cursor.name()
            raise CommandError(
                ErrorCode.DollarPrefixedFieldName,
                f"The dollar ($) prefixed field '{name}' in '{path}{name}' is not valid for storage.",
                advice=advice if path else "",
            )
        if cursor.type_code == DOCUMENT or cursor.type_code == ARRAY:
            check_storable(buf, cursor.value, f"{path}{cursor.name()}.", advice)


def check_id(type_code: i64, buf: bytes, pos: i64) -> None:
    """InvalidIdField (53) for a value that cannot be an `_id`; DollarPrefixedFieldName (52) for `$` names in it."""
    if type_code == ARRAY or type_code == REGEX or type_code == UNDEFINED:
        raise CommandError(ErrorCode.InvalidIdField, f"The '_id' value cannot be of type {type_name(int(type_code))}")
    if type_code == DOCUMENT:
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            if buf[cursor.name_start] == 0x24:  # "$"
                raise CommandError(
                    ErrorCode.DollarPrefixedFieldName,
                    f"_id fields may not contain '$'-prefixed fields: {cursor.name()} is not valid for storage.",
                )


def parse_update(
    update: Value, ctx: ParseContext, array_filters: list[bytes] | None = None, multi: bool = False
) -> UpdateDriver:
    """The driver of an update: a document of modifiers, a replacement document, or a list of stages.

    array_filters: the command's `arrayFilters`. multi: refuse replacements, which are not allowed with `multi`.
    Raises CommandError: FailedToParse (9) for unknown modifiers and unused filters, and errors of paths and modifiers.
    """
    if isinstance(update, bytes):
        if first_field_name(update).startswith("$"):
            return _parse_modifiers(update, ctx, [] if array_filters is None else array_filters)
        if multi:
            raise CommandError(ErrorCode.FailedToParse, "multi update is not supported for replacement-style update")
        if array_filters:
            raise CommandError(
                ErrorCode.FailedToParse, "arrayFilters may not be specified for replacement-style updates"
            )
        return ReplacementDriver(update, ctx)
    if isinstance(update, list) and not ctx.lacks(SYNTAX, UPDATE_PIPELINE):
        if array_filters:
            raise CommandError(ErrorCode.FailedToParse, "arrayFilters may not be specified for pipeline-syle updates")
        return parse_pipeline_update(update, ctx)
    raise CommandError(
        ErrorCode.FailedToParse,
        "Update argument must be either an object or an array",
        advice=ctx.advice(SYNTAX, UPDATE_PIPELINE) if isinstance(update, list) else "",
    )


def parse_pipeline_update(pipeline: list[Value], ctx: ParseContext) -> UpdateDriver:
    """The driver of a list of stages, also where updates by a pipeline are not allowed: `$merge` has them, too."""
    return PipelineDriver(UpdatePipeline(pipeline, ctx), ctx.advice(SYNTAX, DOLLAR_FIELDS))


# The modifiers that store their operand as it is, and those that add it, or each of its `$each`, to an array.
_STORE_OPERAND: Final = frozenset(("$max", "$min", "$set", "$setOnInsert"))
_ADD_OPERAND: Final = frozenset(("$addToSet", "$push"))


def _parse_modifiers(update: bytes, ctx: ParseContext, array_filters: list[bytes]) -> UpdateDriver:
    filters: dict[str, ArrayFilter] = parse_array_filters(array_filters, ctx)
    builder = TreeBuilder(filters)
    dollar_advice = ctx.advice(SYNTAX, DOLLAR_FIELDS)
    cursor = ElementCursor(update, 0)
    while cursor.next():
        name = cursor.name()
        parser = modifiers.get(name)
        if parser is None and ctx.features is not None and ctx.features.keeps(modifiers.kind, name):
            parser = modifiers.removed(name)
        if parser is None:
            raise CommandError(
                ErrorCode.FailedToParse,
                f"Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an "
                "array",
            )
        if cursor.type_code != DOCUMENT:
            raise CommandError(
                ErrorCode.FailedToParse,
                f"Modifiers operate on fields but we found type {type_name(int(cursor.type_code))} instead. "
                f"For example: {{$mod: {{<field>: ...}}}} not {{{show_element(name, cursor.decoded())}}}",
            )
        entry = ElementCursor(update, cursor.value)
        while entry.next():
            if dollar_advice and entry.type_code in (DOCUMENT, ARRAY):
                if name in _STORE_OPERAND:
                    check_storable(update, entry.value, f"{entry.name()}.", dollar_advice)
                elif name in _ADD_OPERAND:
                    each_type, each = find_field_at(update, entry.value, b"$each")
                    if entry.type_code == ARRAY or each_type == 0:
                        check_storable(update, entry.value, f"{entry.name()}.", dollar_advice)
                    elif each_type == ARRAY:
                        check_storable(update, each, f"{entry.name()}.", dollar_advice)
            operand = Operand(entry.name(), entry.type_code, update, entry.value, entry.end)
            builder.add(operand, parser, ctx)
    for identifier in filters:
        if identifier not in builder.used:
            raise CommandError(
                ErrorCode.FailedToParse,
                f"The array filter for identifier '{identifier}' was not used in the update {render_value(update)}",
            )
    return ModifierDriver(builder.root, builder.paths, builder.positional)


def new_document_for_upsert(driver: UpdateDriver, filter: MatchExpression, ctx: ParseContext) -> bytes:
    """The document that an upsert inserts if no document matches.

    The update, including `$setOnInsert`, is applied to a document of the equalities of the filter (for a replacement:
    of `_id` only). `_id` is the first field if there is one; else the caller must generate it.
    NotSingleValueField (54) for two equalities of a path; NotExactValueField (111) for an equality of a path inside
    `_id` with a replacement; ImmutableField (66) if the update changes the filter's `_id`.
    """
    if driver.kind == "replacement":
        builder = DocumentBuilder()
        builder.append("_id", id_equality_of(filter))
        base = builder.finish()
    else:
        base = _document_of(equality_fields(filter))
    document = driver.apply(base, None, True).document
    type_code, pos = find_field(document, b"_id")
    if type_code != 0:
        check_id(type_code, document, pos)
    return id_first(document)


def id_first(document: bytes) -> bytes:
    """The document with its `_id`, if any, as the first field."""
    cursor = ElementCursor(document, 0)
    if not cursor.next() or cursor.name_is(b"_id"):
        return document
    while cursor.next():
        if cursor.name_is(b"_id"):
            builder = DocumentBuilder()
            builder.append_raw_element(cursor.raw_element())
            builder.append_raw_element(document[4 : cursor.element])
            builder.append_raw_element(document[cursor.end : len(document) - 1])
            return builder.finish()
    return document


def _document_of(pairs: list[tuple[FieldPath, Value]]) -> bytes:
    """The document of equalities, its fields in the order of their paths. No path may be a prefix of another."""
    root = DocumentBuilder()
    # The documents that are being written inside of the root, and their names.
    inner: list[DocumentBuilder] = []
    names: list[str] = []
    for path, value in sorted_by_keys(pairs, [encode_text(path.dotted) for path, _ in pairs]):
        give_way()
        parts = path.parts
        common = 0
        while common < len(names) and common < len(parts) - 1 and names[common] == parts[common]:
            common += 1
        _finish_documents(root, inner, names, common)
        for name in parts[common:-1]:
            inner.append(DocumentBuilder())
            names.append(name)
        (inner[-1] if inner else root).append(parts[-1], value)
    _finish_documents(root, inner, names, 0)
    return root.finish()


def _finish_documents(root: DocumentBuilder, inner: list[DocumentBuilder], names: list[str], kept: int) -> None:
    """Adds each of the documents to the one around it, but for the outermost ones."""
    while len(inner) > kept:
        document = inner.pop().finish()
        (inner[-1] if inner else root).append(names.pop(), document)
