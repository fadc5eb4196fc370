"""The writes of `$out` and `$merge`."""

from functools import cmp_to_key, partial
from typing import Final

from mongottl.catalog.catalog import new_uuid
from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.options import NO_OPTIONS
from mongottl.catalog.time_series import completed_options
from mongottl.catalog.view import View
from mongottl.document.bson_field import NUMBERS, wrong_type
from mongottl.document.build import DocumentBuilder, encode, encode_fields
from mongottl.document.collation import Collation, same_collation
from mongottl.document.interrupt import Undivided
from mongottl.document.numbers import clamp_to_long
from mongottl.document.render import render_document
from mongottl.document.types import MISSING, Decimal128, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, fields, find_field_at, get_value
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, WriteError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.unit.recovery_unit import uuid_text
from mongottl.exec.write.modifying import Selection, UpdateResult, apply_update
from mongottl.exec.write.waiting import await_transaction, drop_temporary, until_unchanged
from mongottl.exec.write.writes import (
    check_size,
    insert_batch,
    insert_document,
    prepare_document,
    prepare_documents,
    with_new_id,
)
from mongottl.query.context import ParseContext
from mongottl.query.match import parse_match
from mongottl.query.pipeline.run_context import MergeRequest
from mongottl.query.update import UpdateDriver, parse_pipeline_update
from mongottl.query.update.driver import check_storable
from mongottl.query.update.nodes import compare_components
from mongottl.storage.errors import CatalogChanged, ClaimedByTransaction, DuplicateKey, WriteConflict
from mongottl.storage.stores import Record
from mongottl.versions import DOLLAR_FIELDS, SYNTAX

# What one call of `stamp_output` writes again: a few milliseconds' work.
STAMPED_PER_STEP: Final = 256
STAMPED_BYTES: Final = 2 << 20
_MAX_CONFLICTS: Final = 100


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
    """The documents that are inserted at once: each by itself if the validator takes long."""
    validator = _temporary(op, database, temporary).validator
    if validator is None or not validator.is_long:
        return [documents]
    return [[document] for document in documents]


def insert_output(op: OperationContext, database: str, temporary: str, name: str, documents: list[bytes]) -> None:
    """Inserts documents into a temporary collection.

    DuplicateKeyError (11000) names the temporary collection, as mongod does; in the dialect `cosmos` the target `name`,
    because clients know of no other (assumed).
    """
    collection = _temporary(op, database, temporary)
    prepared = prepare_documents(op, collection, documents)
    try:
        until_unchanged(op, partial(insert_batch, op, collection, prepared))
    except (DuplicateKey, WriteConflict, WriteError):
        for document in prepared:
            try:
                until_unchanged(op, partial(insert_document, op, collection, document))
            except DuplicateKeyError as error:
                raise op.service.dialect.duplicate_output_key(error, f"{database}.{name}") from None


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


def check_merge(
    op: OperationContext, database: str, name: str, on: list[str], named: bool, collation: Collation | None
) -> bool:
    """Whether the unique index on the fields `on` is sparse. 51183 if there is none; that on `_id` always exists.

    collation: the operation's, which the index must have too. named: False if `on` is the default `_id`, whose index
    may have another collation.
    """
    collection = op.catalog.lookup(database, name)
    if on == ["_id"]:
        if collection is None or not named:
            return False
        if collection.has_unique_ids and same_collation(collection.collation, collation):
            return False
    wanted = sorted(on)
    found = sparse = False
    for index in [] if collection is None else collection.indexes:
        descriptor = index.descriptor
        if not index.ready or not descriptor.unique or descriptor.partial_filter is not None:
            continue
        if not same_collation(descriptor.collation, collation):
            continue
        if sorted([path.dotted for path in descriptor.paths]) == wanted:
            sparse = descriptor.sparse if not found else sparse and descriptor.sparse
            found = True
    if not found:
        raise CommandError(
            51183, "Cannot find index to verify that join fields will be unique: $merge needs a unique index on 'on'"
        )
    return sparse


def with_id(op: OperationContext, document: bytes) -> bytes:
    """The document with a new `_id`, for a document without one or with null."""
    type_code, _ = find_field_at(document, 0, b"_id")
    if type_code == 0:
        return with_new_id(op, document)
    builder = DocumentBuilder()
    builder.append("_id", op.service.object_ids.generate(op.now_s))
    cursor = ElementCursor(document, 0)
    while cursor.next():
        if not cursor.name_is(b"_id"):
            builder.append_raw_element(cursor.raw_element())
    return builder.finish()


def merge_document(
    op: OperationContext, database: str, name: str, request: MergeRequest, collation: Collation | None
) -> None:
    """Writes one result of `$merge`: updates the matching document or inserts, as its options say. 13113.

    The pipeline of `whenMatched` is checked whether or not a document matches: InvalidOptions (72) for a stage that
    updates do not have. ClaimedByTransaction: the caller waits and calls again.
    """
    while True:
        target = op.catalog.lookup(database, name)
        try:
            return _merge_document(op, database, name, request, collation)
        except CatalogChanged as conflict:
            await_transaction(op, conflict)
        except CommandError as error:
            # Another collection may have taken the target's place, by `$out` or by renaming, while the engine waited.
            if error.code != ErrorCode.QueryPlanKilled or target is None or not target.dropped:
                raise
            op.check_interrupt()
            op.give_way()


def _merge_document(
    op: OperationContext, database: str, name: str, request: MergeRequest, collation: Collation | None
) -> None:
    collection = op.catalog.lookup(database, name)
    context = _update_context(op, f"{database}.{name}", request, collation)
    pipeline = parse_pipeline_update(request.pipeline, context) if request.when_matched == "pipeline" else None
    if request.when_matched == "fail":
        _insert(op, database, name, request.document)
        return
    match = request.match if collection is None else _match_in_partition(collection, request)
    for _ in range(_MAX_CONFLICTS):
        with Undivided():  # nobody inserts the document while it is looked for
            record = None if collection is None else _matching(op, collection, match, collation)
            if collection is None or record is None:
                try:
                    _insert_unmatched(op, database, name, request)
                    return
                except CommandError as error:
                    # Another server may have, and the collection, too.
                    collection = op.catalog.lookup(database, name)
                    if error.code != ErrorCode.DuplicateKey or collection is None:
                        raise
                    record = _matching(op, collection, _match_in_partition(collection, request), collation)
                    if record is None:
                        raise
                match = _match_in_partition(collection, request)
        try:
            _update(op, collection, record, request, context, pipeline)
        except (ClaimedByTransaction, CatalogChanged):
            raise
        except WriteConflict:
            continue
        return
    raise CommandError(ErrorCode.WriteConflict, "the document kept changing; try again")


def _insert_unmatched(op: OperationContext, database: str, name: str, request: MergeRequest) -> None:
    if request.when_not_matched == "insert":
        document = request.document
        _check_stored_fields(op, document)
        if request.when_matched in ("merge", "keepExisting"):
            document = upserted(request.match, document)
        _insert(op, database, name, document)
    elif request.when_not_matched == "fail":
        raise CommandError(
            13113, "$merge could not find a matching document in the target collection for at least one document"
        )


def _check_stored_fields(op: OperationContext, document: bytes) -> None:
    """DollarPrefixedFieldName (52) for a field that begins with `$`, where the announced version stores none. Unlike
    inserts, which refuse those of the root alone, the updates and upserts of `$merge` refuse them at any depth."""
    features = op.service.features
    if op.service.refuses_dollar_fields and features is not None:
        check_storable(document, 0, "", features.advice(SYNTAX, DOLLAR_FIELDS))


def _match_in_partition(collection: Collection, request: MergeRequest) -> bytes:
    """The filter for the existing document. By `_id` alone, which `$merge` goes by if it names no paths, it is only
    unique together with the shard key if the collection has one."""
    shard_key = collection.shard_key
    if shard_key is None or shard_key.ids_are_unique or [name for name, _ in fields(request.match)] != ["_id"]:
        return request.match
    value: Value = request.document
    for part in shard_key.path.parts:
        value = get_value(value, part) if isinstance(value, bytes) else MISSING
    equal = encode({"$eq": None if value is MISSING else value})
    return encode_fields([*fields(request.match), (shard_key.path.dotted, equal)])


def _insert(op: OperationContext, database: str, name: str, document: bytes) -> None:
    with Undivided():
        collection = op.catalog.lookup(database, name)
        if collection is None:
            op.catalog.check_new_name(database, name)
            collection = op.catalog.create_collection(database, name)
        prepared = prepare_document(op, collection, document)
        check_size(op, collection, prepared)
        insert_document(op, collection, prepared)
        op.service.metrics.documents["inserted"] += 1


def _matching(op: OperationContext, collection: Collection, match: bytes, collation: Collation | None) -> Record | None:
    """The record with the `on` values of the result, if it is not expired, or None."""
    tree = parse_match(match, ParseContext(op.now_ms, collation=collation))
    selection = Selection(collection, tree, None, MISSING)
    stage = selection.open(op, wanted=1)
    while (batch := stage.next_batch(op)) is not None:
        records = selection.current(op, stage, batch)
        if records:
            return records[0]
    return None


def _update_context(
    op: OperationContext, namespace: str, request: MergeRequest, collation: Collation | None
) -> ParseContext:
    context = ParseContext(
        op.now_ms,
        request.let,
        namespace,
        collation=collation,
        timestamps=op.service.timestamps,
        cluster_time=op.cluster_time,
    )
    context.open_scripts = op.open_scripts
    if request.when_matched == "pipeline":
        context.features = op.service.features
    return context


def _update(
    op: OperationContext,
    collection: Collection,
    record: Record,
    request: MergeRequest,
    context: ParseContext,
    pipeline: UpdateDriver | None,
) -> None:
    """pipeline: that of `whenMatched`, if it is one."""
    mode = request.when_matched
    if mode == "keepExisting":
        return
    driver = pipeline
    if driver is None:
        _check_stored_fields(op, request.document)
        document = merged(record[1], request.document) if mode == "merge" else request.document
        # The document is stored unchanged: field names that begin with `$` are no modifiers.
        driver = parse_pipeline_update([_replace_with(document)], context)
    apply_update(op, collection, None, record, driver, UpdateResult())


def _replace_with(document: bytes) -> bytes:
    literal = DocumentBuilder()
    literal.append("$literal", document)
    stage = DocumentBuilder()
    stage.append("$replaceWith", literal.finish())
    return stage.finish()


def upserted(match: bytes, document: bytes) -> bytes:
    """A document that `$merge` inserts by an upsert with `$set`: `_id` and the `on` fields, null if it lacks them, then
    the others in the order of modifiers."""
    base = DocumentBuilder()
    identifier = get_value(document, "_id")
    if identifier is not MISSING:
        base.append("_id", identifier)
    for path, condition in fields(match):
        if path != "_id" and isinstance(condition, bytes):
            root, *below = path.split(".")
            value = get_value(condition, "$eq")
            for name in reversed(below):
                value = encode({name: value})
            base.append(root, value)
    return merged(base.finish(), document)


def merged(existing: bytes, document: bytes) -> bytes:
    """The existing document with the other's root fields, as `$set` sets them.

    Existing fields keep their position; new ones follow in the order of modifiers.
    """
    elements: dict[bytes, bytes] = {}
    cursor = ElementCursor(existing, 0)
    while cursor.next():
        elements[cursor.name_bytes()] = cursor.raw_element()
    given: dict[str, bytes] = {}
    cursor = ElementCursor(document, 0)
    while cursor.next():
        given[cursor.name()] = cursor.raw_element()
    for name in sorted(given, key=cmp_to_key(compare_components)):
        elements[encode_text(name)] = given[name]
    builder = DocumentBuilder()
    for element in elements.values():
        builder.append_raw_element(element)
    return builder.finish()
