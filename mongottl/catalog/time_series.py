"""Time series collections: measurements, each with a time, and optionally with metadata about its source.

    {timeField: "at", metaField: "sensor", granularity: "seconds", bucketMaxSpanSeconds: 3600}

mongod stores measurements in buckets, and the collection is a view over these. Here a measurement is an ordinary
record: reads have the same results, but there are no buckets, nor anything that describes them. As in mongod there is
an index on the meta field and the time, and none on `_id`, which need not be unique.

Source: MongoDB's "Time Series" pages.
"""

from typing import Final

from mongottl.document.bson_field import checked_word
from mongottl.document.build import encode
from mongottl.document.types import DATE, MISSING, Date, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import find_field_at, get_value
from mongottl.errors import CommandError, ErrorCode, WriteError

MAX_BUCKET_SECONDS: Final = 31_536_000
# The span of a bucket by granularity, in seconds.
BUCKET_SPANS: Final = {"seconds": 3600, "minutes": 86_400, "hours": 2_592_000}
# The index for the expiry of a time series collection; clients do not see it.
EXPIRY_INDEX: Final = "$expiry"


class TimeSeries:
    """The field names of a time series collection. meta_field: "" if it has none."""

    def __init__(self, options: bytes) -> None:
        self.time_field = str(get_value(options, "timeField"))
        meta = get_value(options, "metaField")
        self.meta_field = meta if isinstance(meta, str) else ""
        self._time_name: bytes = encode_text(self.time_field)

    def check(self, document: bytes) -> None:
        """BadValue (2) unless the document has a date as its time."""
        type_code, _ = find_field_at(document, 0, self._time_name)
        if type_code != DATE:
            raise WriteError(
                ErrorCode.BadValue,
                f"'{self.time_field}' must be present and contain a valid BSON UTC datetime value",
            )

    def in_bucket_order(self, documents: list[bytes]) -> list[bytes]:
        """Measurements that are inserted together, in the order in which a scan of mongod's buckets returns them: by
        time among those with the same metadata. As given if one has no date as its time."""
        groups: dict[bytes, list[tuple[int, int]]] = {}
        for position, document in enumerate(documents):
            time = get_value(document, self.time_field)
            if not isinstance(time, Date):
                return documents
            meta = get_value(document, self.meta_field) if self.meta_field else MISSING
            group = b"" if meta is MISSING else encode({"": meta})
            groups.setdefault(group, []).append((time.ms, position))
        return [documents[position] for group in groups.values() for _, position in sorted(group)]

    def is_meta(self, path: str) -> bool:
        """Whether a path is the meta field or is below it."""
        return self.meta_field != "" and (path == self.meta_field or path.startswith(self.meta_field + "."))

    def meta_index_spec(self, collation: bytes | None) -> bytes | None:
        """The specification of the index that a new time series collection has. collation: the collection's."""
        if self.meta_field == "":
            return None
        key = encode({self.meta_field: 1, self.time_field: 1})
        spec: dict[str, Value] = {"v": 2, "key": key, "name": f"{self.meta_field}_1_{self.time_field}_1"}
        if collation is not None:
            spec["collation"] = collation
        return encode(spec)

    def expiry_index_spec(self, seconds: int) -> bytes:
        key = encode({self.time_field: 1})
        return encode({"v": 2, "key": key, "name": EXPIRY_INDEX, "expireAfterSeconds": seconds, "internal": True})


def completed_options(
    time_field: str, meta_field: str | None, granularity: str | None, rounding: int | None, span: int | None
) -> bytes:
    """The options of a time series collection with their defaults, as listCollections shows them.

    rounding, span: of buckets, in seconds. BadValue (2) for another granularity or a number out of range,
    InvalidOptions (72) for those that do not go together.
    """
    check_granularity(granularity)
    check_bucket_seconds(rounding, span)
    shown: dict[str, Value] = {"timeField": time_field}
    if meta_field is not None:
        shown["metaField"] = meta_field
    if granularity is None and (rounding is not None or span is not None):
        if rounding is None or span is None or rounding != span:
            raise CommandError(
                ErrorCode.InvalidOptions,
                "'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' must be given together, and be equal",
            )
        shown["bucketRoundingSeconds"] = rounding
        shown["bucketMaxSpanSeconds"] = span
        return encode(shown)
    if granularity is None:
        granularity = "seconds"
    if rounding is not None or (span is not None and span != BUCKET_SPANS[granularity]):
        raise CommandError(
            ErrorCode.InvalidOptions,
            "'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' cannot be combined with 'granularity'",
        )
    shown["granularity"] = granularity
    shown["bucketMaxSpanSeconds"] = BUCKET_SPANS[granularity]
    return encode(shown)


def changed_options(options: bytes, granularity: str | None, rounding: int | None, span: int | None) -> bytes:
    """The options after collMod, which may only enlarge the span of buckets. The errors of `completed_options`, and
    InvalidOptions (72) for a smaller span."""
    if granularity is None and rounding is None and span is None:
        return options
    time_field = str(get_value(options, "timeField"))
    meta = get_value(options, "metaField")
    changed = completed_options(time_field, meta if isinstance(meta, str) else None, granularity, rounding, span)
    if _span(changed) < _span(options):
        raise CommandError(
            ErrorCode.InvalidOptions, "Invalid transition for timeseries: buckets cannot become smaller than they are"
        )
    return changed


def _span(options: bytes) -> int:
    value = get_value(options, "bucketMaxSpanSeconds")
    return int(value) if isinstance(value, int) else 0


def check_granularity(granularity: str | None) -> None:
    if granularity is not None:
        checked_word("timeseries.granularity", granularity, BUCKET_SPANS)


def check_bucket_seconds(rounding: int | None, span: int | None) -> None:
    for name, seconds in (("bucketRoundingSeconds", rounding), ("bucketMaxSpanSeconds", span)):
        if seconds is not None and not 1 <= seconds <= MAX_BUCKET_SECONDS:
            bound = ">= 1" if seconds < 1 else f"<= {MAX_BUCKET_SECONDS}"
            raise CommandError(
                ErrorCode.BadValue, f"BSON field '{name}' value must be {bound}, actual value '{seconds}'"
            )
