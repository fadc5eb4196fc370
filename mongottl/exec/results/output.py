"""The writes of `$out`."""

from functools import partial
from typing import Final

from mongottl.catalog.catalog import new_uuid
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.options import NO_OPTIONS
from mongottl.catalog.time_series import completed_options
from mongottl.catalog.validator import Validator
from mongottl.catalog.view import View
from mongottl.document.bson_field import NUMBERS, wrong_type
from mongottl.document.numbers import clamp_to_long
from mongottl.document.render import render_document
from mongottl.document.types import Decimal128
from mongottl.document.walk import fields
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, WriteError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.unit.recovery_unit import uuid_text
from mongottl.exec.write.keys_ahead import KeysAhead
from mongottl.exec.write.validation import InvalidDocument, check_document
from mongottl.exec.write.waiting import drop_temporary, until_unchanged
from mongottl.exec.write.writes import (
    insert_batch,
    insert_document,
    prepare_documents,
)
from mongottl.storage.errors import ClaimedByTransaction, DuplicateKey, WriteConflict

# What one call of `stamp_output` writes again: a few milliseconds' work.
STAMPED_PER_STEP: Final = 256
STAMPED_BYTES: Final = 2 << 20


def check_out(op: OperationContext, database: str, name: str, time_series: bytes | None) -> None:
    """IllegalOperation (20) for a target name that is not allowed, InvalidNamespace (73) in the dialect `cosmos`; 17152
    for a capped target.

    time_series: the `timeseries` options of `$out`, or None. With options: 7268700 if the target exists and is no time
    series collection, 7406103 if its options differ.
    """
    if time_series is not None and isinstance(op.catalog.find(database, name), View):
        raise CommandError(7268700, f"$out with 'timeseries' cannot write to the view '{database}.{name}'")
    target = op.catalog.lookup(database, name, time_series=True)
    if target is None:
        _check_publishable(op, database, name)
    elif _is_capped(target):
        raise CommandError(17152, f"namespace '{target.namespace}' is capped so it can't be used for $out")
    if time_series is None:
        return
    wanted = _time_series_options(time_series)
    if target is None:
        return
    if target.options.time_series is None:
        raise CommandError(
            7268700, f"$out with 'timeseries' needs a time series collection, and '{target.namespace}' is another"
        )
    if target.options.time_series != wanted:
        raise CommandError(
            7406103,
            f"time series options of '{target.namespace}' do not match those of $out: {render_document(wanted)}",
        )


def _time_series_options(written: bytes) -> bytes:
    """The options of `$out` with their defaults. TypeMismatch (14), and the errors of `completed_options`."""
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for name, value in fields(written):
        if value is None:
            continue
        if name.startswith("bucket"):
            if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
                raise wrong_type(f"$out.timeseries.{name}", value, NUMBERS)
            numbers[name] = clamp_to_long(value)
        elif isinstance(value, str):
            texts[name] = value
        else:
            raise wrong_type(f"$out.timeseries.{name}", value, "string")
    return completed_options(
        texts["timeField"],
        texts.get("metaField"),
        texts.get("granularity"),
        numbers.get("bucketRoundingSeconds"),
        numbers.get("bucketMaxSpanSeconds"),
    )


def _check_publishable(op: OperationContext, database: str, name: str) -> None:
    try:
        op.catalog.check_new_name(database, name)
    except CommandError as error:
        if error.code != ErrorCode.InvalidNamespace or op.service.dialect.invalid_names_have_one_code:
            raise
        raise CommandError(ErrorCode.IllegalOperation, error.message) from None


def _is_capped(collection: Collection) -> bool:
    return collection.options.capped


def open_output(op: OperationContext, database: str, name: str, time_series: bytes | None) -> str:
    """Creates an empty temporary collection with the target's options and indexes; its name.

    The TTL setting on `_ts` has no effect until `publish_output`, so that no document expires before it can be seen.
    `publish_output` renames the collection; `discard_output` or the next start of the server drops it.

    time_series: as for `check_out`.
    """
    made = until_unchanged(op, partial(_make_output, op, database, name, time_series))
    try:
        until_unchanged(op, partial(_add_indexes, op, made, name))
    except BaseException:
        drop_temporary(op, made)
        raise
    return made.name


def _make_output(op: OperationContext, database: str, name: str, time_series: bytes | None) -> Collection:
    target = op.catalog.lookup(database, name, time_series=True)
    temporary = f"tmp.agg_out.{uuid_text(new_uuid())}"
    op.catalog.check_new_name(database, temporary)
    options = NO_OPTIONS
    if target is not None:
        options = target.options
    elif time_series is not None:
        options = NO_OPTIONS.with_options({"timeseries": _time_series_options(time_series)})
    return op.catalog.create_collection(database, temporary, options.with_options({"temp": True}))


def _add_indexes(op: OperationContext, made: Collection, name: str) -> None:
    """Gives the temporary collection the indexes that the target has and it has not, and takes others away."""
    target = op.catalog.lookup(made.database, name, time_series=True)
    if target is None:
        return
    if made.dropped:
        raise _temporary_dropped(made.namespace)
    existing_specs = _specs(made)
    ready = [index.descriptor for index in target.indexes if index.ready and not index.descriptor.is_id]
    wanted = [descriptor.spec for descriptor in ready if descriptor.spec not in existing_specs]
    specs = _specs(target)
    unwanted = [index for index in made.indexes if not index.descriptor.is_id and index.descriptor.spec not in specs]
    if unwanted:  # the target has lost the index on its shard key
        op.catalog.remove_indexes(made, unwanted)
    op.catalog.start_indexes(made, [IndexDescriptor(spec) for spec in wanted])
    finished = [index for index in made.indexes if not index.ready and not index.descriptor.is_ttl_setting]
    if finished:
        op.catalog.finish_indexes(made, finished)


def parts_to_insert(op: OperationContext, database: str, temporary: str, documents: list[bytes]) -> list[list[bytes]]:
    """The documents that are inserted at once: each by itself if the validator takes long for one of them."""
    validator = _temporary(op, database, temporary).validator
    if validator is None or not any(validator.takes_long(document) for document in documents):
        return [documents]
    return [[document] for document in documents]


def insert_output(op: OperationContext, database: str, temporary: str, name: str, documents: list[bytes]) -> None:
    """Inserts documents into a temporary collection.

    DuplicateKeyError (11000) names the temporary collection, as mongod does; in the dialect `cosmos` the target `name`,
    because clients know of no other (assumed).
    """
    collection = _temporary(op, database, temporary)
    prepared = prepare_documents(op, collection, documents)
    passed: Validator | None = None
    unlogged: InvalidDocument | None = None
    validator = collection.validator
    if validator is not None and len(prepared) == 1 and validator.takes_long(prepared[0]):
        unlogged = check_document(op, collection, prepared[0])
        passed = validator
        collection = _temporary(op, database, temporary)  # others may have run
    with KeysAhead() as ahead:
        for document in prepared:
            if len(document) >= collection.ahead_bytes:
                ahead.make(collection.writable_indexes, document)
        try:
            until_unchanged(op, partial(insert_batch, op, collection, prepared, passed))
        except (DuplicateKey, WriteConflict, WriteError):
            for document in prepared:
                try:
                    until_unchanged(op, partial(insert_document, op, collection, document, passed))
                except DuplicateKeyError as error:
                    raise op.service.dialect.duplicate_output_key(error, f"{database}.{name}") from None
    if unlogged is not None:
        unlogged.complete()


def _temporary(op: OperationContext, database: str, temporary: str) -> Collection:
    made = op.catalog.lookup(database, temporary, time_series=True)
    if made is None:
        raise _temporary_dropped(f"{database}.{temporary}")
    return made


def _temporary_dropped(namespace: str) -> CommandError:
    return CommandError(ErrorCode.CommandFailed, f"the temporary collection {namespace} was dropped")


def stamp_output(op: OperationContext, database: str, temporary: str, after: int) -> int:
    """Sets `_ts` of the records after `after` to now, up to STAMPED_PER_STEP; the last one's id, 0 after the end.

    Without a TTL setting it does nothing: then documents count from when they were written.
    """
    return until_unchanged(op, partial(_stamp_output, op, database, temporary, after))


def _stamp_output(op: OperationContext, database: str, temporary: str, after: int) -> int:
    made = _temporary(op, database, temporary)
    if not _ttl_settings(made):
        return 0
    unit = op.recovery_unit.write(made)
    records, more = op.recovery_unit.records(made).scan(after, STAMPED_PER_STEP, True, STAMPED_BYTES)
    old = [record for record in records if record[2] != unit.now_s]
    if old:
        with unit:
            unit.records.update_records(old, [(rid, document, unit.now_s, ttl_s) for rid, document, _, ttl_s in old])
            unit.commit()
    return records[-1][0] if more else 0


def _ttl_settings(made: Collection) -> list[CollectionIndex]:
    """The TTL setting of a temporary collection, which has no effect yet."""
    return [index for index in made.indexes if not index.ready]


def publish_output(op: OperationContext, database: str, temporary: str, name: str) -> None:
    """Renames the temporary collection to the target's name. CommandFailed (125) if the target's indexes changed.

    ClaimedByTransaction if a transaction uses the target: the caller waits and calls again, as all DDL waits.
    """
    until_unchanged(op, partial(_publish_output, op, database, temporary, name))


def _publish_output(op: OperationContext, database: str, temporary: str, name: str) -> None:
    user = op.service.transactions.user_of(f"{database}.{name}")
    if user is not None:
        raise ClaimedByTransaction(user.data)
    made = _temporary(op, database, temporary)
    target = op.catalog.lookup(database, name, time_series=True)
    if target is None:
        _check_publishable(op, database, name)
    else:
        if _specs(target) != _specs(made):
            raise CommandError(
                ErrorCode.CommandFailed,
                f"indexes of target collection {target.namespace} changed while processing $out",
            )
        op.service.cursors.close_where_namespace(target.namespace)
    settings = _ttl_settings(made)
    if settings:
        op.catalog.finish_indexes(made, settings)
        op.service.expiry.unarmed.add(made.number)
    op.catalog.rename_collection(made, database, name, target)
    if settings:
        op.service.hooks.wake_reaper()


def _specs(collection: Collection) -> list[bytes]:
    return sorted([index.descriptor.spec for index in collection.indexes if not index.descriptor.is_id])


def discard_output(op: OperationContext, database: str, temporary: str) -> None:
    made = op.catalog.lookup(database, temporary, time_series=True)
    if made is not None:
        drop_temporary(op, made)
