"""A collection's validator, compiled once: which documents may be written.

The paths of an encrypted collection take binary values only. That these are encrypted values is not checked.

Source: MongoDB's "Schema Validation" pages.
"""

from typing import TYPE_CHECKING, Final

from mongottl.catalog.options import CollectionOptions
from mongottl.document.build import encode
from mongottl.document.collation import Collation
from mongottl.document.types import BINARY, Value
from mongottl.document.walk import is_empty
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext

if TYPE_CHECKING:
    from mongottl.query.match import MatchExpression

# A document takes a validator of as many bytes a millisecond at most, unless it is itself as long, or the validator has
# an expression, which computes as much as it likes for any document, or a regular expression, as `pattern` and
# `patternProperties` of a schema are. The last one is the type of such a value, or another byte of the same number.
_LONG_BYTES: Final = 32 * 1024
_LONG_PARTS: Final = (b"$expr\0", b"$regex\0", b"pattern", b"\x0b")

_TIMES = (b"$$NOW", b"$$CLUSTER_TIME")


class Validator:
    """The filter of `validator`, with `validationLevel` and `validationAction`.

    collation: the collection's. moderate: a document that did not match before an update need not match after it.
    refuses: whether the write of a document that does not match fails. logs: whether it is logged.
    is_long: whether it may take long for a single short document, so that others should run before the next one.
    """

    def __init__(self, filter: bytes, level: str, action: str, collation: Collation | None) -> None:
        self.filter = filter
        self.collation = collation
        self.moderate = level == "moderate"
        self.refuses = action != "warn"
        self.logs = action != "error"
        self.is_long = len(filter) >= _LONG_BYTES or any(part in filter for part in _LONG_PARTS)
        self._asks_time = any(name in filter for name in _TIMES)
        self._now_ms: int = 0
        self._spare: Validator | None = None
        self._level = level
        self._action = action
        self.match = self._parsed(ParseContext(collation=collation))

    def accepts(self, document: bytes, now_ms: int) -> bool:
        """Whether a document matches. now_ms: the operation's instant, for a validator that uses `$$NOW`."""
        if self._asks_time and now_ms != self._now_ms:
            self._now_ms = now_ms
            self.match = self._parsed(ParseContext(now_ms, collation=self.collation))
        return self.match.matches(document)

    def takes_long(self, document: bytes) -> bool:
        """Whether this document may take long: then others run meanwhile, so `lend` gives the validator for it."""
        return self.is_long or len(document) >= _LONG_BYTES

    def lend(self) -> "Validator":
        """An equal validator for one operation, during whose evaluation others may use this one."""
        spare = self._spare
        if spare is None:
            return Validator(self.filter, self._level, self._action, self.collation)
        self._spare = None
        return spare

    def take_back(self, lent: "Validator") -> None:
        """Called when the operation does not use it any more."""
        self._spare = lent

    def _parsed(self, context: ParseContext) -> "MatchExpression":
        from mongottl.query.match import parse_condition  # kept out of the start of the server

        return parse_condition(self.filter, context)


def validator_of(options: CollectionOptions) -> Validator | None:
    """The validator of these options, or None if there is none.

    It is parsed once for them. Commands call this in an evaluation before they use options that a client has given: a
    long validator takes a second, and those who make or change a collection let nobody run.
    """
    known = options.parsed_validator
    if isinstance(known, Validator):
        return known
    filter = _whole_filter(options)
    if filter is None or options.validation_level == "off":
        return None
    collation = None if options.collation is None else parse_collation(options.collation)
    parsed = Validator(filter, options.validation_level, options.validation_action, collation)
    options.parsed_validator = parsed
    return parsed


def _whole_filter(options: CollectionOptions) -> bytes | None:
    """The filter of `validator` together with that of `encryptedFields`, or None without both."""
    filters: list[Value] = []
    if options.validator is not None and not is_empty(options.validator):
        filters.append(options.validator)
    for path in options.encrypted_paths or []:
        absent = encode({path: encode({"$exists": False})})
        binary = encode({path: encode({"$type": BINARY})})
        filters.append(encode({"$or": [absent, binary]}))
    if not filters:
        return None
    only = filters[0]
    if len(filters) == 1 and isinstance(only, bytes):
        return only
    return encode({"$and": filters})
