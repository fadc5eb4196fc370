"""When the documents of a collection expire: counts by due second, from the expiry indexes, in bounded steps.

    due ≤ edge 0 │ ≤ edge 1 │ ≤ edge 2 │ … │ later          each part of the count is a range of an expiry index
     (expired)

The rules are those of `expiry`: the collection's default and the documents' own `ttl` by `ttl.policy`, and date-field
TTL indexes. A document is counted once for each rule that it follows, and in a multikey index once for each key.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.key_ranges import ascending_values
from mongottl.document.keystring import value_range
from mongottl.document.types import INT64_MAX, INT64_MIN, Date, Int64, Value
from mongottl.exec.service.due_dates import date_due_s
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.storage.stores import MAX_RECORD_ID, ExpiryIndex, KeyRange, Record, RecordStore
from mongottl.ttl.policy import NEVER_AT_S, NO_CUTOFF_S, NO_TTL, expires_at_s

# Entries of an index that are counted in one step: a fraction of a millisecond's work.
COUNTED_PER_STEP: Final = 4096
# Later than every due second, and still a second to calculate with.
LATEST_S: Final = 1 << 60
_MS_PER_S: Final = 1000


def expires(collection: Collection) -> bool:
    """Whether documents of a collection can expire."""
    return collection.default_ttl_s != NO_TTL or len(collection.date_ttl_indexes) > 0


def first_due_s(service: ServiceContext, collection: Collection, after_s: int = NO_CUTOFF_S) -> int | None:
    """The earliest second after `after_s` at which a document of the collection expires, or has expired; None if none
    does."""
    unit = RecoveryUnit(service)
    default_s = collection.default_ttl_s
    found: list[int] = []
    if default_s != NO_TTL:
        records = unit.records(collection)
        if default_s > 0:
            after_ts = after_s if after_s == NO_CUTOFF_S else after_s - default_s
            found += [ts + default_s for ts in records.due_seconds(ExpiryIndex.BY_DEFAULT, after_ts, 1)]
        found += records.due_seconds(ExpiryIndex.BY_OWN, after_s, 1)
    with_numbers = service.dialect.numbers_are_dates
    for index in collection.date_ttl_indexes:
        expire_after_s = index.descriptor.expire_after_s
        assert expire_after_s is not None
        first_ms = INT64_MIN if after_s == NO_CUTOFF_S else (after_s - expire_after_s) * _MS_PER_S + 1
        for first, last in _date_ranges(first_ms, INT64_MAX, with_numbers) if _is_usable(collection, index) else ():
            descending = index.descriptor.descending[0]
            key_range = ascending_values(first, last, descending)
            rows, _ = unit.index(index).scan_fetch(unit.records(collection), key_range, None, 1)
            due_s = date_due_s(index, rows[0][2], with_numbers) if rows else None
            if due_s is not None:
                found.append(due_s)
    return min(found) if found else None


def document_due_s(service: ServiceContext, collection: Collection, document: bytes, record: Record | None) -> int:
    """The second at which a document of a collection expires, by the rule that comes first; NEVER_AT_S if none applies.

    record: of the document, for its `_ts` and `ttl`; None if it has none, as a measurement of a time series.
    """
    due_s = NEVER_AT_S
    if record is not None:
        due_s = int(expires_at_s(record[2], record[3], collection.default_ttl_s))
    with_numbers = service.dialect.numbers_are_dates
    for index in collection.date_ttl_indexes:
        if not index.ready or not index.takes(document):
            continue
        by_date_s = date_due_s(index, document, with_numbers)
        if by_date_s is not None:
            due_s = min(due_s, by_date_s)
    return due_s


def count_by_due(
    service: ServiceContext,
    collection: Collection,
    edges_s: list[int],
    most: int = LATEST_S,
    per_step: int = COUNTED_PER_STEP,
) -> list[int]:
    """How many documents expire up to the first of `edges_s` (which ascend), between it and the second one, and so on,
    and how many after the last one.

    most: the count ends, and what is not counted is left out, when it has reached this number. per_step: how many are
    counted in one step. In a collection that is dropped meanwhile nothing more is counted.
    """
    counts = [0] * (len(edges_s) + 1)
    bounds = [NO_CUTOFF_S, *edges_s, LATEST_S]
    left = most
    default_s = collection.default_ttl_s
    if default_s > 0:
        ends_s = [end_s - default_s for end_s in bounds[1:]]
        left = _count_parts(service, collection, ExpiryIndex.BY_DEFAULT, ends_s, counts, left, per_step)
    if default_s != NO_TTL:
        left = _count_parts(service, collection, ExpiryIndex.BY_OWN, bounds[1:], counts, left, per_step)
    for index in list(collection.date_ttl_indexes):
        for ranges in _ranges_by_due(index, edges_s, service.dialect.numbers_are_dates):
            left = _count_ranges(service, collection, index, ranges, counts, left, per_step)
    return counts


def _ranges_by_due(index: CollectionIndex, edges_s: list[int], with_numbers: bool) -> list[list[KeyRange]]:
    """The ranges of a date-field TTL index whose documents expire in each part of the time, for each type of values."""
    expire_after_s = index.descriptor.expire_after_s
    assert expire_after_s is not None
    lasts_ms = [(edge_s - expire_after_s) * _MS_PER_S for edge_s in edges_s]
    firsts_ms = [INT64_MIN, *[last_ms + 1 for last_ms in lasts_ms]]
    found: list[list[KeyRange]] = []
    for first_ms, last_ms in zip(firsts_ms, [*lasts_ms, INT64_MAX], strict=True):
        for number, (first, last) in enumerate(_date_ranges(first_ms, last_ms, with_numbers)):
            if number == len(found):
                found.append([])
            found[number].append(KeyRange(*value_range(first, last, index.descriptor.descending[0])))
    return found


def _count_parts(
    service: ServiceContext,
    collection: Collection,
    by: ExpiryIndex,
    ends_s: list[int],
    counts: list[int],
    most: int,
    per_step: int,
) -> int:
    """Adds to `counts` how many records of an expiry index are in each part of the time; what is left of `most`.

    Mostly only few of the parts have any, and a store may be a network away: empty ones are not asked for.

    ends_s: the last second of each part.
    """
    unit = RecoveryUnit(service)
    after_s = NO_CUTOFF_S
    while most > 0 and not collection.dropped:
        following = unit.records(collection).due_seconds(by, after_s, 1)
        place = bisect_left(ends_s, following[0]) if following else len(ends_s)
        if place == len(ends_s):
            break
        counted = _count_records(service, collection, by, after_s, ends_s[place], most, per_step)
        counts[place] += counted
        most -= counted
        after_s = ends_s[place]
    return most


def _count_records(
    service: ServiceContext,
    collection: Collection,
    by: ExpiryIndex,
    after_s: int,
    last_s: int,
    most: int,
    per_step: int,
) -> int:
    """Records in an expiry index after one second up to another one, `most` at most."""
    unit = RecoveryUnit(service)
    total = 0
    at: tuple[int, int] | None = (after_s, MAX_RECORD_ID)
    while at is not None and total < most and not collection.dropped:
        records: RecordStore = unit.records(collection)
        limit = min(per_step, most - total)
        counted, at = records.count_due_after(by, at, last_s, limit)
        total += counted
        service.stacks.give_way()
    return total


def _count_ranges(
    service: ServiceContext,
    collection: Collection,
    index: CollectionIndex,
    ranges: list[KeyRange],
    counts: list[int],
    most: int,
    per_step: int,
) -> int:
    """Adds to `counts` how many entries of a date-field TTL index are in each of `ranges`, which are those of earlier
    dates first; what is left of `most`. As in `_count_parts`, empty ones are not asked for."""
    unit = RecoveryUnit(service)
    descending = index.descriptor.descending[0]
    places = list(range(len(ranges)))
    if descending:
        places.reverse()
    # In the order of keys.
    lows = [ranges[place].low for place in places]
    highs = [ranges[place].high for place in places]
    low, high = lows[0], highs[-1]
    while most > 0 and low < high and _is_usable(collection, index):
        earliest, _ = unit.index(index).scan(KeyRange(low, high, not descending), None, 1)
        if not earliest:
            break
        key = earliest[0][0]
        if descending:
            at = bisect_right(lows, key) - 1
            counted = _count_entries(service, collection, index, KeyRange(lows[at], high), most, per_step)
            high = lows[at]
        else:
            at = bisect_right(highs, key)
            counted = _count_entries(service, collection, index, KeyRange(low, highs[at]), most, per_step)
            low = highs[at]
        counts[places[at]] += counted
        most -= counted
    return most


def _count_entries(
    service: ServiceContext,
    collection: Collection,
    index: CollectionIndex,
    key_range: KeyRange,
    most: int,
    per_step: int,
) -> int:
    """Entries of a date-field TTL index in a range, `most` at most."""
    unit = RecoveryUnit(service)
    total = 0
    position: tuple[bytes, int] | None = None
    # Skips ahead by `skipped` entries, by more each time, until the rest of the range is shorter: then by half of them.
    skipped = 0
    grows = True
    while total < most and _is_usable(collection, index):
        found = unit.index(index).entry_at(key_range, position, skipped)
        if found is not None:
            total += skipped + 1
            position = found
            if grows:
                skipped = min(2 * skipped + 1, per_step)
        elif skipped == 0:
            break
        else:
            grows = False
            skipped //= 2
        service.stacks.give_way()
    return min(total, most)


def _is_usable(collection: Collection, index: CollectionIndex) -> bool:
    return index.ready and index.has_keys and not collection.dropped and index in collection.indexes


def _date_ranges(first_ms: int, last_ms: int, with_numbers: bool) -> list[tuple[Value, Value]]:
    """The values of a date field from one instant to another, both inclusive. with_numbers: see `date_due_ms`."""
    first_ms = min(max(first_ms, INT64_MIN), INT64_MAX)
    last_ms = min(max(last_ms, INT64_MIN), INT64_MAX)
    ranges: list[tuple[Value, Value]] = [(Date(first_ms), Date(last_ms))]
    if with_numbers:
        ranges.append((Int64(first_ms), Int64(last_ms)))
    return ranges
