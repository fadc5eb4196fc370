"""The documents of a JSON file: one after the other, usually one a line (`mongoexport`), or the elements of one array
(`mongoexport --jsonArray`). They may be laid out over several lines (`--pretty`)."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Final

import bson

from mongottl.dump.batches import DumpFile
from mongottl.dump.errors import DumpError
from mongottl.dump.extended_json import CONVERSION_ERRORS, document_of, no_constant, real_number, whole_number

_READ_BYTES: Final = 1 << 20
# A document of 16 MiB in BSON is hardly longer than this in JSON; bounds what is read in search of an object's end.
_MOST_CHARACTERS: Final = 128 << 20
_SPACE: Final = re.compile(r"[ \t\r\n]*")
# The last bytes of the infinities, as doubles in BSON.
_INFINITIES: Final = (b"\0\0\xf0\x7f", b"\0\0\xf0\xff")
# Begins the name of a type of Extended JSON.
_TYPE_MARK: Final = '"$'


class _FieldTwiceError(Exception):
    """An object has two fields of one name, which a dict cannot have."""


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _FieldTwiceError
    return members


_EXTENDED: Final = json.JSONDecoder(
    object_pairs_hook=document_of, parse_float=real_number, parse_int=whole_number, parse_constant=no_constant
)
# Several times as fast, for text without types of Extended JSON, without fields that are given twice, and without
# numbers that are too large. What it cannot read is read again by the other one.
_PLAIN: Final = json.JSONDecoder(object_pairs_hook=_members, parse_constant=no_constant)


def _may_have_infinity(document: bytes) -> bool:
    """False if no number in a document is an infinity, which `_PLAIN` makes of what is too large for a double."""
    # One byte is found much faster than several, and seldom there.
    return _INFINITIES[0][2] in document and (_INFINITIES[0] in document or _INFINITIES[1] in document)


def json_documents(file: DumpFile) -> Iterator[tuple[bytes, int]]:
    """Each document with the number of its first line. DumpError for what is no JSON, or no document."""
    text = _Text(file)
    in_array = text.next_character() == "["
    if in_array:
        text.skip(1)
    first = True
    while True:
        character = text.next_character()
        if in_array:
            if character == "]":
                text.skip(1)
                if text.next_character():
                    raise text.error("nothing may follow the array")
                return
            if not first:
                if character != ",":
                    raise text.error("a comma or ] is needed" if character else "the array does not end")
                text.skip(1)
                character = text.next_character()
        elif not character:
            return
        if character != "{":
            raise text.error("an object is needed" if character else "the file ends where an object is needed")
        yield text.document(), text.document_line
        first = False


class _Text:
    """The text of a file from the present place on, up to what has been read."""

    def __init__(self, file: DumpFile) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        # Where lines were counted last.
        self._counted = 0
        self._line = 1
        self._bytes_read = 0
        self._ended = False
        self._extended = False
        self.document_line = 1

    def next_character(self) -> str:
        """The next character that is no white space; empty at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def skip(self, count: int) -> None:
        self._at += count

    def line(self) -> int:
        """The number of the line of the present place, the first being 1."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def error(self, what: str) -> DumpError:
        return self._file.error(what, f"line {self.line()}")

    def document(self) -> bytes:
        """The document of the object that begins here."""
        self.document_line = self.line()
        extended = self._extended
        while True:
            decoder = _EXTENDED if extended else _PLAIN
            try:
                value, end = decoder.raw_decode(self._text, self._at)
                document = value if extended else bson.encode(value)
                if not extended and _may_have_infinity(document):
                    extended = True
                    continue
            except json.JSONDecodeError as error:
                where = error.pos - self._at
                # The object may only not have been read to its end.
                if len(self._text) - self._at < _MOST_CHARACTERS and self._read_more():
                    extended = extended or self._extended
                    continue
                line = self.document_line + self._text.count("\n", self._at, self._at + where)
                what = "the file ends within a document" if self._at + where >= len(self._text) else error.msg
                raise self._file.error(what, f"line {line}") from error
            except (_FieldTwiceError, *CONVERSION_ERRORS) as error:
                if not extended:
                    extended = True
                    continue
                what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise self._file.error(what, f"line {self.document_line}") from error
            if not isinstance(document, bytes):
                raise self._file.error("a document is needed, not a value", f"line {self.document_line}")
            self._at = end
            return document

    def _read_more(self) -> bool:
        """Reads on; False at the end of the file. Each time as much as there is, so that a long object is not begun
        anew very often."""
        if self._ended:
            return False
        left = len(self._text) - self._at
        data = self._file.read(max(_READ_BYTES, left), f"line {self.line()}")
        self._ended = not data
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            # The decoder puts up to three bytes that it has kept before the data.
            place = self._bytes_read + error.start - (len(error.object) - len(data))
            raise self._file.error("this is not UTF-8", f"byte {place}") from error
        self._bytes_read += len(data)
        self._text = self._text[self._at :] + text
        self._at = 0
        self._counted = 0
        self._extended = _TYPE_MARK in self._text
        return not self._ended or bool(text)
