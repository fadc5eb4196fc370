"""Updates in the form in which the oplog has them, for `applyOps`.

    {$v: 2, diff: <diff>}       what has changed: see `apply_diff`
    {_id: …, …}                 the new document

A diff can be applied again to a document that has the changes already, wholly or in part, as it happens when a dump
contains a document and the oplog of the time during which it was made.

Source: the manual's "Replica Set Oplog", and what MongoDB's drivers and tools read.
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder, encode_array
from mongottl.document.interrupt import give_way
from mongottl.document.types import ARRAY, BOOL, DOCUMENT, MAX_DOCUMENT_BYTES, MISSING
from mongottl.document.walk import ElementCursor, fields, find_field, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match import MatchDetails
from mongottl.query.update.driver import UpdateDriver, UpdateOutcome, check_size, replace_document
from mongottl.query.update.nodes import MAX_PADDING, nulls_bytes, too_large

_NULL: Final = encode_array([None])[4:-1]
# Of an index in a diff, which is a number of 64 bits.
_MOST_DIGITS: Final = 18


class LoggedReplacement(UpdateDriver):
    """Replaces a document by one that another server has stored: it is not checked again, and its empty timestamps stay
    as they are."""

    def __init__(self, replacement: bytes) -> None:
        super().__init__("replacement")
        self.replacement = replacement

    def apply(self, doc: bytes, details: MatchDetails | None, is_insert: bool) -> UpdateOutcome:
        return replace_document(doc, self.replacement, True)


class LoggedDiff(UpdateDriver):
    """Applies the diff of an update. ImmutableField (66) if it names `_id`."""

    def __init__(self, diff: bytes) -> None:
        super().__init__("diff")
        self.diff = diff

    def apply(self, doc: bytes, details: MatchDetails | None, is_insert: bool) -> UpdateOutcome:
        changed = apply_diff(doc, self.diff)
        check_size(changed)
        return UpdateOutcome(changed, changed != doc)


def parse_logged_update(update: bytes) -> UpdateDriver:
    """The driver of an update of the oplog. FailedToParse (9) for another version than 2, or without a valid diff."""
    version = get_value(update, "$v")
    if find_field(update, b"$v")[0] == 0:
        return LoggedReplacement(update)
    if version != 2:
        raise _invalid("only version 2 ($v) is known")
    diff = get_value(update, "diff")
    if not isinstance(diff, bytes):
        raise _invalid("it has no diff")
    apply_diff(EMPTY_DOCUMENT, diff)
    for section, changes in fields(diff):
        if section == "s_id" or (isinstance(changes, bytes) and section in _NAMING and _names_id(changes)):
            raise CommandError(
                ErrorCode.ImmutableField,
                "Performing an update on the path '_id' would modify the immutable field '_id'",
            )
    return LoggedDiff(diff)


# The sections of a document's diff that have names of its fields.
_NAMING: Final = ("d", "u", "i")


def _names_id(changes: bytes) -> bool:
    return find_field(changes, b"_id")[0] != 0


def _invalid(why: str) -> CommandError:
    return CommandError(ErrorCode.FailedToParse, f"Unknown form of an update in an oplog entry: {why}")


class _Padding:
    """The size of all nulls that a diff has appended to arrays. None of them is removed again: an array is cut before
    it is filled, and what replaces a null is no shorter."""

    def __init__(self) -> None:
        self.bytes: i64 = 0

    def add(self, size: i64) -> None:
        """17419 if the nulls are longer than a document may be."""
        self.bytes += size
        if self.bytes > MAX_DOCUMENT_BYTES:
            raise too_large()


def apply_diff(document: bytes, diff: bytes) -> bytes:
    """The document with the changes of a diff. FailedToParse (9) for a diff of another form; CannotBackfillArray (34)
    for too many nulls before an element, 17419 if all of them are longer than a document may be.

        {d: {<field>: false}, u: {<field>: <value>}, i: {<field>: <value>}, s<field>: <diff of a document or an array>}

    d: fields that are removed. u: fields with a new value, in their place, or at the end. i: fields that become last.
    s: changes within a field; one that holds neither a document nor an array, as the diff wants it, is left as it is.
    """
    return _changed_document(document, diff, _Padding())


def _changed_document(document: bytes, diff: bytes, padding: _Padding) -> bytes:
    removed: dict[bytes, bytes] = {}
    updated: dict[bytes, bytes] = {}
    last: dict[bytes, bytes] = {}
    below: dict[bytes, bytes] = {}
    cursor = ElementCursor(diff, 0)
    while cursor.next():
        give_way()
        section = cursor.name_bytes()
        if cursor.type_code != DOCUMENT:
            raise _invalid(f"'{cursor.name()}' is no document")
        content = diff[cursor.value : cursor.end]
        if section == b"d":
            _add_elements(content, removed)
        elif section == b"u":
            _add_elements(content, updated)
        elif section == b"i":
            _add_elements(content, last)
        elif section.startswith(b"s") and len(section) > 1:
            below[section[1:]] = content
        else:
            raise _invalid(f"it has no '{cursor.name()}'")
    builder = DocumentBuilder()
    cursor = ElementCursor(document, 0)
    while cursor.next():
        give_way()
        name = cursor.name_bytes()
        if name in removed or name in last:
            continue
        if name in updated:
            builder.append_raw_element(updated.pop(name))
        elif name in below:
            _append_changed(builder, name, document, cursor, below[name], padding)
        else:
            builder.append_raw_element(cursor.raw_element())
    for element in [*updated.values(), *last.values()]:
        give_way()
        builder.append_raw_element(element)
    return builder.finish()


def _add_elements(document: bytes, elements: dict[bytes, bytes]) -> None:
    cursor = ElementCursor(document, 0)
    while cursor.next():
        give_way()
        elements[cursor.name_bytes()] = cursor.raw_element()


def _append_changed(
    builder: DocumentBuilder, name: bytes, holder: bytes, cursor: ElementCursor, diff: bytes, padding: _Padding
) -> None:
    """Appends the value at the cursor with the changes of its diff, under a name. It is as it was if its type is not
    the one that the diff is of."""
    value = holder[cursor.value : cursor.end]
    if _is_of_array(diff):
        if cursor.type_code == ARRAY:
            value = _changed_array(value, diff, padding)
    elif cursor.type_code == DOCUMENT:
        value = _changed_document(value, diff, padding)
    builder.append_raw(name, cursor.type_code, value, 0, i64(len(value)))


def _is_of_array(diff: bytes) -> bool:
    """Whether it is the diff of an array: `a: true` is its first field."""
    cursor = ElementCursor(diff, 0)
    return bool(cursor.next()) and cursor.name_is(b"a") and cursor.type_code == BOOL


def _changed_array(array: bytes, diff: bytes, padding: _Padding) -> bytes:
    """The array with the changes of its diff: `{a: true, l: <length>, u<index>: <value>, s<index>: <diff>}`.

    l: the length, to which it is cut. u: elements with a new value; nulls fill what is missing before them. s: changes
    within an element.
    """
    elements: list[bytes] = []
    cursor = ElementCursor(array, 0)
    while cursor.next():
        give_way()
        elements.append(cursor.raw_element())
    length = get_value(diff, "l")
    if isinstance(length, int) and not isinstance(length, bool) and length >= 0:
        del elements[length:]
    elif length is not MISSING:
        raise _invalid("the length of an array is no whole number")
    cursor = ElementCursor(diff, 0)
    while cursor.next():
        give_way()
        section = cursor.name_bytes()
        if section in (b"a", b"l"):
            continue
        index = section[1:]
        if section[:1] not in (b"u", b"s") or not index.isdigit() or len(index) > _MOST_DIGITS:
            raise _invalid(f"that of an array has no '{cursor.name()}'")
        at = int(index)
        if section[:1] == b"u":
            if at - len(elements) > MAX_PADDING:
                raise CommandError(
                    ErrorCode.CannotBackfillArray, f"can't backfill array to larger than {MAX_PADDING} elements"
                )
            size = len(elements)
            if size <= at:
                padding.add(nulls_bytes(size, at))
                elements += [_NULL] * (at + 1 - size)
            builder = DocumentBuilder()
            builder.append_raw(index, cursor.type_code, diff, cursor.value, cursor.end)
            elements[at] = builder.finish()[4:-1]
        elif cursor.type_code != DOCUMENT:
            raise _invalid(f"'{cursor.name()}' is no document")
        elif at < len(elements):
            elements[at] = _changed_element(index, elements[at], diff[cursor.value : cursor.end], padding)
    return _array_of(elements)


def _changed_element(index: bytes, element: bytes, diff: bytes, padding: _Padding) -> bytes:
    holder = DocumentBuilder()
    holder.append_raw_element(element)
    document = holder.finish()
    cursor = ElementCursor(document, 0)
    cursor.next()
    builder = DocumentBuilder()
    _append_changed(builder, index, document, cursor, diff, padding)
    return builder.finish()[4:-1]


def _array_of(elements: list[bytes]) -> bytes:
    """An array of elements, which get their indexes as names."""
    builder = DocumentBuilder()
    for position, element in enumerate(elements):
        give_way()
        name = str(position).encode("ascii")
        builder.append_raw_element(element[:1] + name + element[element.index(b"\0", 1) :])
    return builder.finish()
