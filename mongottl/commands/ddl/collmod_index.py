"""collMod of an index: its TTL, hiding it from the planner, making it unique.

    {index: {name | keyPattern, expireAfterSeconds, hidden, prepareUnique, unique}}

An index becomes unique in two steps. With `prepareUnique` writes cannot add duplicates, but existing ones stay; then
`unique` reports the documents that share a key, or rebuilds the index as a unique one.

Source: MongoDB's collMod reference.
"""

from typing import Final

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import TS_FIELD, IndexDescriptor
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.catalog.key_ranges import ALL_KEYS
from mongottl.document.bson_field import DUPLICATE_FIELD, NUMBERS, unknown_field, wrong_type
from mongottl.document.interrupt import Undivided
from mongottl.document.numbers import clamp_to_int, is_true
from mongottl.document.render import render_beginning
from mongottl.document.types import MISSING, Int64, Value, is_number
from mongottl.document.walk import ElementCursor, get_value
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.stages.stage import BATCH_BYTES, check_alive
from mongottl.exec.write.expiry import rearm_collection
from mongottl.exec.write.index_build import build_indexes
from mongottl.ttl.policy import NO_TTL, is_expired, parse_default_ttl

_OPTIONS: Final = ("name", "keyPattern", "expireAfterSeconds", "hidden", "unique", "prepareUnique")
_TRUTH: Final = "[bool, long, int, decimal, double]"
# Index entries that are checked in one step.
_SCAN_BATCH: Final = 256
_CLUSTERED_CANNOT_HIDE: Final = 6011800


class IndexChange:
    """The fields of collMod's `index`; MISSING or None if not given.

    options: those that say what changes, as given. found_name: of the index, once it is found.
    """

    def __init__(self, change: bytes) -> None:
        self.name: str | None = None
        self.key: bytes | None = None
        self.expire_after_seconds: Value = MISSING
        self.hidden: bool | None = None
        self.unique: bool | None = None
        self.prepare_unique: bool | None = None
        self.options: list[tuple[str, Value]] = []
        self.found_name = ""
        seen: set[str] = set()
        cursor = ElementCursor(change, 0)
        while cursor.next():
            option = cursor.name()
            value = cursor.decoded_without_elements()
            if option in seen:
                raise CommandError(DUPLICATE_FIELD, f"BSON field 'collMod.index.{option}' is a duplicate field")
            if option not in _OPTIONS:
                raise unknown_field(f"collMod.index.{option}")
            seen.add(option)
            if value is None and option in ("name", "keyPattern", "hidden", "unique", "prepareUnique"):
                continue
            if option not in ("name", "keyPattern"):
                self.options.append((option, value))
            if option == "name":
                if not isinstance(value, str):
                    raise wrong_type(f"collMod.index.{option}", value, "string")
                self.name = value
            elif option == "keyPattern":
                if not isinstance(value, bytes):
                    raise wrong_type(f"collMod.index.{option}", value, "object")
                self.key = value
            elif option == "expireAfterSeconds":
                if value is not None:
                    self.expire_after_seconds = value
            else:
                if not isinstance(value, bool) and not is_number(value):
                    raise wrong_type(f"collMod.index.{option}", value, _TRUTH)
                if option == "hidden":
                    self.hidden = is_true(value)
                elif option == "unique":
                    self.unique = is_true(value)
                else:
                    self.prepare_unique = is_true(value)

    @property
    def only_unique(self) -> bool:
        """Whether the only change is `unique`, which can be combined with `dryRun`."""
        return (
            self.unique is True
            and self.expire_after_seconds is MISSING
            and self.hidden is None
            and self.prepare_unique is None
        )


def change_index(op: OperationContext, collection: Collection, change: IndexChange, dry_run: bool) -> dict[str, Value]:
    """The reply has the old and new values of what changed. dry_run: only check whether the index can become unique."""
    reply: dict[str, Value] = {}
    with Undivided():
        check_alive(collection)
        index = _find_index(collection, change)
        change.found_name = index.name
        old = index.descriptor
        becomes_unique = _checked_unique(index, change)
        new = _changed_descriptor(collection, index, change, reply)
        if not becomes_unique and new is not old:
            op.catalog.replace_descriptor(collection, index, new)
            if new.hidden != old.hidden:
                index.accesses = 0
                index.since_ms = op.now_ms
    if becomes_unique:
        _check_no_duplicates(op, collection, index)
        if dry_run:
            return {}
        _convert(op, collection, index, change, reply)
        reply["unique_new"] = True
    elif new is not old and change.expire_after_seconds is not MISSING:
        rearm_collection(op.service, collection.number)
    return reply


def _checked_unique(index: CollectionIndex, change: IndexChange) -> bool:
    """Whether the index must be made unique. InvalidOptions (72) without `prepareUnique`, BadValue (2) for false."""
    if change.unique is None:
        return False
    if not change.unique:
        raise CommandError(ErrorCode.BadValue, "collMod does not support converting an index to non-unique")
    descriptor = index.descriptor
    if descriptor.unique or descriptor.is_id:
        return False
    if not descriptor.prepare_unique:
        raise CommandError(
            ErrorCode.InvalidOptions,
            "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it before converting the index to"
            " unique",
        )
    return True


def _changed_descriptor(
    collection: Collection, index: CollectionIndex, change: IndexChange, reply: dict[str, Value]
) -> IndexDescriptor:
    """The changed descriptor, still without `unique`; adds old and new values to the reply."""
    old = index.descriptor
    new = old
    if change.expire_after_seconds is not MISSING:
        seconds = _checked_ttl(collection, index, change.expire_after_seconds)
        if old.is_ttl_setting:
            reply["expireAfterSeconds_old"] = Int64(old.default_ttl_s)
        elif old.expire_after_s is not None:
            reply["expireAfterSeconds_old"] = Int64(old.expire_after_s)
        reply["expireAfterSeconds_new"] = Int64(seconds)
        new = new.with_option("expireAfterSeconds", seconds)
    if change.hidden is not None:
        if old.is_id:
            raise CommandError(ErrorCode.BadValue, "can't hide _id index")
        if change.hidden != old.hidden:
            reply["hidden_old"] = old.hidden
            reply["hidden_new"] = change.hidden
            new = new.with_option("hidden", True if change.hidden else MISSING)
    prepare = change.prepare_unique
    if prepare is not None and prepare != old.prepare_unique and not old.unique and not old.is_id:
        if prepare:
            parse_index_spec(old.with_option("unique", True).spec)  # raises if it cannot be unique
        reply["prepareUnique_old"] = old.prepare_unique
        reply["prepareUnique_new"] = prepare
        new = new.with_option("prepareUnique", True if prepare else MISSING)
    return new


def _check_no_duplicates(op: OperationContext, collection: Collection, index: CollectionIndex) -> None:
    """CannotConvertIndexToUnique (359) with `violations`: the `_id`s of unexpired documents that share a key."""
    unit = op.recovery_unit
    violations: list[Value] = []
    after: tuple[bytes, int] | None = None
    key = b""
    group: list[Value] = []
    while True:
        now_s = op.service.now_s()
        entries, more = unit.index(index).scan_fetch(
            unit.records(collection), ALL_KEYS, after, _SCAN_BATCH, BATCH_BYTES
        )
        for entry_key, _, document, ts_s, ttl_s in entries:
            if collection.default_ttl_s != NO_TTL and is_expired(ts_s, ttl_s, collection.default_ttl_s, now_s):
                continue
            if entry_key != key:
                _add_violation(group, violations)
                key = entry_key
                group = []
            group.append(get_value(document, "_id"))
        if collection.dropped or index not in collection.indexes:
            raise CommandError(ErrorCode.IndexNotFound, f"the index {index.name} was dropped")
        if not more:
            break
        after = (entries[-1][0], entries[-1][1])
        op.give_way()
        op.check_interrupt()
    _add_violation(group, violations)
    if violations:
        raise CommandError(
            ErrorCode.CannotConvertIndexToUnique,
            "Cannot convert the index to unique. Please resolve conflicting documents before running collMod again.",
            {"violations": violations},
        )


def _add_violation(group: list[Value], violations: list[Value]) -> None:
    if len(group) > 1:
        violations.append({"ids": group})


def _convert(
    op: OperationContext, collection: Collection, index: CollectionIndex, change: IndexChange, reply: dict[str, Value]
) -> None:
    """Builds the unique index, which then replaces the old one, as that is now."""
    new = _changed_descriptor(collection, index, change, reply)
    unique = new.with_option("prepareUnique", MISSING).with_option("unique", True)
    try:
        build_indexes(op, collection, [unique], replaced=index)
    except DuplicateKeyError as error:
        raise CommandError(ErrorCode.CannotConvertIndexToUnique, error.message, error.details) from None


def _find_index(collection: Collection, change: IndexChange) -> CollectionIndex:
    if change.name is not None and change.key is not None:
        raise CommandError(ErrorCode.InvalidOptions, "Cannot specify both key pattern and name.")
    if change.name is None and change.key is None:
        raise CommandError(ErrorCode.InvalidOptions, "Must specify either index name or key pattern.")
    if (
        change.expire_after_seconds is MISSING
        and change.hidden is None
        and change.unique is None
        and change.prepare_unique is None
    ):
        raise CommandError(ErrorCode.InvalidOptions, "no expireAfterSeconds, hidden, unique, or prepareUnique field")
    if change.name is not None:
        index = collection.index_named(change.name)
        if index is None or _is_clustering(index, change):
            raise CommandError(
                ErrorCode.IndexNotFound, f"cannot find index {shortened(change.name)} for ns {collection.namespace}"
            )
        return index
    assert change.key is not None
    key = change.key
    found = [e for e in collection.listed_indexes if e.descriptor.has_key(key) and not _is_clustering(e, change)]
    if not found:
        raise CommandError(
            ErrorCode.IndexNotFound,
            f"cannot find index {render_beginning(change.key)} for ns {collection.namespace}",
        )
    if len(found) > 1:
        conflicting = ", ".join(render_beginning(entry.descriptor.spec) for entry in found)
        raise CommandError(
            ErrorCode.AmbiguousIndexKeyPattern,
            f"index keyPattern {render_beginning(change.key)} matches {len(found)} indexes, must use index name."
            f" Conflicting indexes: {conflicting}",
        )
    return found[0]


def _is_clustering(index: CollectionIndex, change: IndexChange) -> bool:
    """Whether it is the clustered index, which collMod does not treat as an index. 6011800 for `hidden`."""
    if not index.descriptor.clustered:
        return False
    if change.hidden is not None:
        raise CommandError(_CLUSTERED_CANNOT_HIDE, "The 'hidden' option is not supported for a clustered index")
    return True


def _checked_ttl(collection: Collection, index: CollectionIndex, value: Value) -> int:
    """The new `expireAfterSeconds` of an index, by the rules of its field."""
    if not is_number(value):
        raise wrong_type("collMod.index.expireAfterSeconds", value, NUMBERS)
    descriptor = index.descriptor
    if descriptor.is_id:
        raise CommandError(ErrorCode.InvalidOptions, "the _id field does not support TTL indexes")
    if len(descriptor.paths) > 1:
        raise CommandError(
            ErrorCode.InvalidOptions, "TTL indexes are single-field indexes, compound indexes do not support TTL"
        )
    if descriptor.paths[0].dotted != TS_FIELD:
        seconds = clamp_to_int(value)
        if seconds < 0:
            raise CommandError(ErrorCode.InvalidOptions, "TTL index 'expireAfterSeconds' option cannot be less than 0")
        return seconds
    seconds = parse_default_ttl(value)
    if not descriptor.is_ttl_setting:
        if descriptor.unique or descriptor.sparse or descriptor.partial_filter is not None:
            raise CommandError(
                ErrorCode.InvalidOptions,
                f"An index on '{TS_FIELD}' that is unique, sparse or partial cannot have 'expireAfterSeconds'",
            )
        for other in collection.indexes:
            if other.descriptor.is_ttl_setting:
                raise CommandError(
                    ErrorCode.InvalidOptions,
                    f"The default TTL of a collection is set once, and index {other.name} sets it",
                )
    return seconds
