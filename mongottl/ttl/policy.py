"""Whether a document is expired: the rules of Cosmos DB's time to live, as pure functions.

Besides the time, three values decide: `_ts`, the whole second of the document's last write; the root field `ttl` of the
document, if it is valid; and the collection's default, set by an index on `_ts`. This module does not depend on where
they are stored, and reads no clock.

    document ttl ↓   default →   off             on without default (-1)     n > 0
    none                         never expires   never expires               expires at _ts + n
    -1                           never expires   never expires               never expires
    m > 0                        never expires   expires at _ts + m          expires at _ts + m

A document is expired from that second on, inclusively: `now >= _ts + ttl`. All values are plain i64 numbers of seconds,
since these functions run once for each document that is read. 0 is valid neither as `ttl` nor as default, so 0 means
"none" for both.

Source: Azure Cosmos DB for MongoDB, "time to live" articles of 2017 to 2023.
"""

from typing import Final

from librt.strings import read_f64_le, read_i32_le, read_i64_le
from mypy_extensions import i64

from mongottl.document.interrupt import MANY_BYTES
from mongottl.document.types import DOUBLE, INT32, INT64, Value, is_number, type_code_of, type_name
from mongottl.document.walk import find_field
from mongottl.errors import CommandError, ErrorCode

# A document without a meaningful `ttl`; a collection whose default is off.
NO_TTL: Final = 0
# A document that never expires; a collection in which only documents with a `ttl` of their own expire.
NEVER: Final = -1
# Cosmos DB's maximum, about 68 years: the largest int32.
MAX_TTL_S: Final = 2_147_483_647
# The due second of a document that never expires, later than any time: `now_s >= NEVER_AT_S` is always false.
NEVER_AT_S: Final = 9_223_372_036_854_775_807
# The cutoff if no document can be expired, earlier than any `_ts`: `ts_s <= NO_CUTOFF_S` is always false.
NO_CUTOFF_S: Final = -9_223_372_036_854_775_807

_TTL_FIELD: Final = b"ttl"
# It as it stands in a document.
_TTL_NAME: Final = b"ttl\0"


def effective_ttl_s(document_ttl_s: i64, default_ttl_s: i64) -> i64:
    """The seconds after its last write at which a document expires, or NEVER (-1).

    Both arguments are NO_TTL (0), NEVER (-1) or 1..MAX_TTL_S. A default of NO_TTL means that TTL is off for the
    collection; then the document's own `ttl` is ordinary data.
    """
    if default_ttl_s == NO_TTL:
        return NEVER
    if document_ttl_s == NO_TTL:
        return default_ttl_s
    return document_ttl_s


def expires_at_s(ts_s: i64, document_ttl_s: i64, default_ttl_s: i64) -> i64:
    """The first second in which a document written in second `ts_s` is expired, or NEVER_AT_S."""
    ttl_s = effective_ttl_s(document_ttl_s, default_ttl_s)
    if ttl_s == NEVER:
        return NEVER_AT_S
    return ts_s + ttl_s


def is_expired(ts_s: i64, document_ttl_s: i64, default_ttl_s: i64, now_s: i64) -> bool:
    """Whether a document is expired at `now_s`, and so invisible to every command.

    now_s: wall time in whole seconds, rounded down; since the bound is whole, fractions would change nothing.
    """
    return now_s >= expires_at_s(ts_s, document_ttl_s, default_ttl_s)


def default_cutoff_s(default_ttl_s: i64, now_s: i64) -> i64:
    """Documents that follow the default are expired if and only if `_ts <=` this; NO_CUTOFF_S if none can be."""
    if default_ttl_s <= 0:
        return NO_CUTOFF_S
    return now_s - default_ttl_s


def own_cutoff_s(default_ttl_s: i64, now_s: i64) -> i64:
    """Documents with a positive `ttl` of their own are expired if and only if `_ts + ttl <=` this.

    NO_CUTOFF_S while TTL is off for the collection.
    """
    if default_ttl_s == NO_TTL:
        return NO_CUTOFF_S
    return now_s


def _ttl_if_in_range(number: i64) -> i64:
    """The number if it is a valid `ttl` (-1 or 1..MAX_TTL_S), else NO_TTL, which is also the result for 0."""
    if number < NEVER or number > MAX_TTL_S:
        return NO_TTL
    return number


def _ttl_if_whole(number: float) -> i64:
    # The comparison is false for NaN and the infinities, so the conversion below is always defined.
    if not (NEVER <= number <= MAX_TTL_S):
        return NO_TTL
    whole = i64(int(number))
    if float(whole) != number:
        return NO_TTL
    return whole


def meaningful_ttl_s(document: bytes) -> i64:
    """The root field `ttl` of a raw document: NEVER, 1..MAX_TTL_S, or NO_TTL if it is absent or not valid.

    Valid are an int32, an int64 within the range of int32, and a double without fraction within it. Any other value (0,
    -2, 20.5, "20", true, Decimal128, arrays, …) may be stored and is treated as absent. Of two fields `ttl` the first
    counts.
    """
    # In a text of 16 MB bytes are found at once, but not a field among millions.
    if len(document) >= MANY_BYTES and document.find(_TTL_NAME) < 0:
        return NO_TTL
    type_code, pos = find_field(document, _TTL_FIELD)
    if type_code == INT32:
        return _ttl_if_in_range(i64(read_i32_le(document, pos)))
    if type_code == INT64:
        return _ttl_if_in_range(read_i64_le(document, pos))
    if type_code == DOUBLE:
        return _ttl_if_whole(read_f64_le(document, pos))
    return NO_TTL


def counts_as_ttl(value: Value) -> int:
    """The result of `meaningful_ttl_s` for a document whose field `ttl` has this decoded value."""
    if isinstance(value, bool):
        return NO_TTL
    if isinstance(value, int):
        return int(value) if NEVER <= value <= MAX_TTL_S else NO_TTL
    if isinstance(value, float):
        return int(_ttl_if_whole(value))
    return NO_TTL


def parse_default_ttl(value: Value) -> int:
    """`expireAfterSeconds` of an index on `_ts` as a collection default: NEVER (-1) or 1..MAX_TTL_S.

    Accepted as int32, int64 or double without fraction. BadValue (2) for other numbers of these types: 0, -2 and lower,
    fractions, NaN, infinities, numbers that are too large. TypeMismatch (14) for any other type, including Decimal128,
    which is no valid `ttl` either.
    """
    default_ttl_s = counts_as_ttl(value)
    if default_ttl_s != NO_TTL:
        return default_ttl_s
    type_code = type_code_of(value)
    if type_code == INT32 or type_code == INT64 or type_code == DOUBLE:
        raise CommandError(
            ErrorCode.BadValue,
            "The 'expireAfterSeconds' option of an index on '_ts' must be -1 or a whole number of seconds from 1 to "
            f"{MAX_TTL_S}, but is {value}",
        )
    wanted = "an int, a long or a double" if is_number(value) else "a number"
    raise CommandError(
        ErrorCode.TypeMismatch,
        f"The 'expireAfterSeconds' option of an index on '_ts' must be {wanted}, but is of type {type_name(type_code)}",
    )
