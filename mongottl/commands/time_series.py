"""Operations that time series collections refuse, in addition to those that views refuse.

Source: MongoDB's "Time Series Collection Limitations".
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.named_collections import no_buckets
from mongottl.catalog.time_series import TimeSeries
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext

_LISTS: Final = ("$and", "$or", "$nor")
_INDEX_KINDS: Final = ("btree", "2dsphere")
_META_INDEX_KINDS: Final = ("2d", "hashed")


def check_measurement_update(series: TimeSeries, filter: bytes, update: Value, multi: bool) -> None:
    """InvalidOptions (72) unless an update with `multi` selects by the meta field only and changes only it.

    A part of an evaluation: both may have millions of paths.
    """
    if not multi:
        raise _invalid("Cannot perform a non-multi update on a time-series collection")
    if series.meta_field == "":
        raise _invalid("Cannot perform an update on a time-series collection that does not have a metaField")
    if not isinstance(update, bytes) or not _are_modifiers(update):
        raise _invalid("Cannot perform a non-modifier update on a time-series collection")
    if not _is_about_meta(series, filter):
        raise _invalid(
            f"Cannot perform an update on a time-series collection when querying on a field that is not the metaField"
            f" '{series.meta_field}'"
        )
    for modifier, paths in fields(update):
        if not isinstance(paths, bytes):
            continue
        for path, value in fields(paths):
            give_way()
            renamed = modifier == "$rename" and isinstance(value, str) and not series.is_meta(value)
            if renamed or not series.is_meta(path):
                raise _invalid(
                    "Cannot perform an update on a time-series collection which updates a field that is not the"
                    f" metaField '{series.meta_field}'"
                )


def _are_modifiers(update: bytes) -> bool:
    for name, _ in fields(update):
        give_way()
        if not name.startswith("$"):
            return False
    return True


def _is_about_meta(series: TimeSeries, filter: bytes) -> bool:
    for name, value in fields(filter):
        if name in _LISTS and isinstance(value, list):
            for part in value:
                give_way()
                if not isinstance(part, bytes) or not _is_about_meta(series, part):
                    return False
        elif name != "$comment" and not series.is_meta(name):
            return False
    return True


def check_time_series_index(series: TimeSeries, descriptor: IndexDescriptor) -> None:
    """Refuses indexes that time series collections cannot have: CannotCreateIndex (67) for other index types.

    InvalidOptions (72) for unique and text indexes, for sparse ones except on the meta field, and for a TTL without a
    partial filter; 7246201 for wildcard indexes. On the meta field, 2d and hashed indexes are allowed too.
    """
    if descriptor.unique or descriptor.prepare_unique:
        raise _invalid("Unique indexes are not supported on time-series collections")
    kind = descriptor.kind.name
    if kind == "text":
        raise _invalid("Text indexes are not supported on time-series collections")
    if kind == "wildcard":
        from mongottl.catalog.index_kinds.wildcard import SEVERAL_WILDCARDS  # imported with the index

        raise CommandError(SEVERAL_WILDCARDS, "Wildcard indexes are not supported on time-series collections")
    only_meta = all(series.is_meta(path.dotted) for path in descriptor.paths)
    if descriptor.sparse and not only_meta:
        raise _invalid("Sparse indexes are not supported on measurements of time-series collections")
    if descriptor.expire_after_s is not None and descriptor.partial_filter is None:
        raise _invalid("TTL indexes on time-series collections need a partialFilterExpression on the metaField")
    partial = descriptor.partial_filter
    if descriptor.expire_after_s is not None and partial is not None and not _is_about_meta(series, partial):
        raise _invalid(
            "The partialFilterExpression of a TTL index on a time-series collection must be on its metaField"
        )
    if descriptor.is_id or not (kind in _INDEX_KINDS or (only_meta and kind in _META_INDEX_KINDS)):
        raise CommandError(
            ErrorCode.CannotCreateIndex, f"Index {descriptor.name} is not supported on time-series collections"
        )


def check_raw_data(op: OperationContext, database: str, name: str) -> None:
    """CommandNotSupported (115) if `rawData` requests the buckets of a time series collection, which do not exist here.

    For other collections `rawData` has no effect.
    """
    found = op.catalog.find(database, name)
    if isinstance(found, Collection) and found.time_series is not None:
        raise no_buckets(found)


def _invalid(message: str) -> CommandError:
    return CommandError(ErrorCode.InvalidOptions, message)
