"""The writes of `$merge`.

A batch of results is written together where they are found by `_id`: those that match in one unit of work, the others
in another. What cannot be written so is written one by one, with the errors of single documents.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from mongottl.catalog.collection import Collection
from mongottl.catalog.validator import Validator
from mongottl.document.build import DocumentBuilder, encode, encode_fields
from mongottl.document.collation import Collation, same_collation
from mongottl.document.freeing import put_aside
from mongottl.document.interrupt import MANY_BYTES, Undivided, give_way
from mongottl.document.keystring import encode_value
from mongottl.document.sorting import sorted_by_comparison
from mongottl.document.types import MISSING, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, fields, find_field_at, get_value
from mongottl.errors import CommandError, ErrorCode, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.write.by_id import living_by_ids, takes_together
from mongottl.exec.write.keys_ahead import KeysAhead
from mongottl.exec.write.modifying import Selection, UpdateResult, apply_update, store_together, updated_document
from mongottl.exec.write.validation import InvalidDocument, check_document
from mongottl.exec.write.waiting import await_transaction, together
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

T = TypeVar("T")

_MAX_CONFLICTS: Final = 100


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


def merge_together(
    op: OperationContext, database: str, name: str, requests: list[MergeRequest], collation: Collation | None
) -> list[MergeRequest]:
    """Writes results of one `$merge` together, and returns those that are left for `merge_document`, in their order:
    those that need more than their `_id` to be found, and all that could not be written so."""
    keys = _keys_of_ids(requests, collation)
    if not keys:
        return requests
    collection = _existing_or_made(op, database, name, requests[0])
    if collection is None or not takes_together(collection):
        return requests
    if not collection.has_unique_ids or not same_collation(collection.collation, collation):
        return requests
    matched: list[MergeRequest] = []
    records: list[Record] = []
    others: list[MergeRequest] = requests
    mode = requests[0].when_matched
    if mode != "fail":
        found = _carried_out(op, lambda: living_by_ids(op, collection, keys))
        if found is None:
            return requests
        others = []
        for request, key in zip(requests, keys, strict=True):
            record = found.get(key)
            if record is None:
                others.append(request)
            else:
                matched.append(request)
                records.append(record)
    left: list[MergeRequest] = []
    is_kept = not matched or mode == "keepExisting"
    if not is_kept and not _carried_out(op, lambda: _update_all(op, collection, matched, records, collation)):
        left = matched
    is_discarded = not others or (mode != "fail" and requests[0].when_not_matched == "discard")
    if not is_discarded and not _carried_out(op, lambda: _insert_all(op, collection, others)):
        left = requests if left else others
    return left


def _carried_out(op: OperationContext, step: Callable[[], T]) -> T | None:
    """What a step of writing a batch returns; None if it fails for one of the documents, which are then written one by
    one."""
    try:
        return together(op, step, DuplicateKey, WriteConflict)
    except CommandError as error:
        if is_interruption(error):
            raise
    return None


def _keys_of_ids(requests: list[MergeRequest], collation: Collation | None) -> list[bytes]:
    """The KeyStrings of the `_id`s by which several results are found that are written as they are; none if some are
    found by other fields, or two by the same `_id`."""
    if len(requests) == 1 or requests[0].when_matched == "pipeline":
        return []
    if any([name for name, _ in fields(request.match)] != ["_id"] for request in requests):
        return []
    keys = [_key_of(request.document, collation) for request in requests]
    return keys if len(set(keys)) == len(keys) else []


def _existing_or_made(op: OperationContext, database: str, name: str, request: MergeRequest) -> Collection | None:
    """The target, which is made if results are inserted that match nothing; None if that fails, or there is none."""
    collection = op.catalog.lookup(database, name)
    if collection is not None or request.when_not_matched != "insert":
        return collection
    return _carried_out(op, lambda: _made(op, database, name))


def _made(op: OperationContext, database: str, name: str) -> Collection:
    with Undivided():
        return _target(op, database, name)


def _target(op: OperationContext, database: str, name: str) -> Collection:
    """The target, which is made if there is none. In an undivided block."""
    collection = op.catalog.lookup(database, name)
    if collection is None:
        op.catalog.check_new_name(database, name)
        collection = op.catalog.create_collection(database, name)
    return collection


def _key_of(document: bytes, collation: Collation | None) -> bytes:
    return encode_value(get_value(document, "_id"), False, collation)


def _update_all(
    op: OperationContext,
    collection: Collection,
    requests: list[MergeRequest],
    records: list[Record],
    collation: Collation | None,
) -> bool:
    """Updates the records that results match in one unit of work; False if that fails for one of them."""
    context = _update_context(op, collection.namespace, requests[0], collation)
    drivers = [_replacement(op, request, record, context) for request, record in zip(requests, records, strict=True)]
    updated = [updated_document(None, record, driver) for record, driver in zip(records, drivers, strict=True)]
    return store_together(op, collection, records, updated, drivers[0], UpdateResult(), None)


def _insert_all(op: OperationContext, collection: Collection, requests: list[MergeRequest]) -> bool:
    """Inserts results in one unit of work; False if they are not to be inserted. CommandError, DuplicateKey,
    WriteConflict if that fails for one of them."""
    if requests[0].when_not_matched != "insert":
        return False
    documents = [_inserted(op, request) for request in requests]
    prepared = prepare_documents(op, collection, documents)
    for document in prepared:
        check_size(op, collection, document)
    insert_batch(op, collection, prepared)
    op.service.metrics.documents["inserted"] += len(requests)
    return True


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
        if collection is None:
            collection = _made(op, database, name)
        insert_document(op, collection, _checked(op, collection, request.document))
        op.service.metrics.documents["inserted"] += 1
        return
    match = request.match if collection is None else _match_in_partition(collection, request)
    with KeysAhead() as ahead:
        insertion: _Insertion | None = None
        if _takes_long(collection, request):
            insertion = _prepared(op, collection, match, request, collation, ahead)
        for _ in range(_MAX_CONFLICTS):
            with Undivided():  # nobody inserts the document while it is looked for
                record = None if collection is None else _matching(op, collection, match, collation)
                if collection is None or record is None:
                    try:
                        _insert_unmatched(op, database, name, request, insertion)
                    except CommandError as error:
                        # Another server may have, and the collection, too.
                        collection = op.catalog.lookup(database, name)
                        if error.code != ErrorCode.DuplicateKey or collection is None:
                            raise
                        record = _matching(op, collection, _match_in_partition(collection, request), collation)
                        if record is None:
                            raise
                        match = _match_in_partition(collection, request)
            if record is None:
                if insertion is not None and insertion.unlogged is not None:
                    insertion.unlogged.complete()
                return
            assert collection is not None
            try:
                _update(op, collection, record, request, context, pipeline)
            except (ClaimedByTransaction, CatalogChanged):
                raise
            except WriteConflict:
                continue
            return
    raise CommandError(ErrorCode.WriteConflict, "the document kept changing; try again")


class _Insertion:
    """A document that is inserted if none matches, and what was done with it before the block in which that is found
    out, while others ran.

    collection: for which that was done; None if it does not exist. passed: the validator that has let it pass.
    unlogged: what is to be logged once it is inserted.
    """

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.collection: Collection | None = None
        self.passed: Validator | None = None
        self.unlogged: InvalidDocument | None = None


def _takes_long(collection: Collection | None, request: MergeRequest) -> bool:
    """Whether an insertion of the result would take long: to make it, to check it, or to make its keys."""
    size = len(request.document)
    if request.when_not_matched != "insert":
        return False
    if size >= MANY_BYTES or collection is None:
        return size >= MANY_BYTES
    validator = collection.validator
    return size >= collection.ahead_bytes or (validator is not None and validator.takes_long(request.document))


def _prepared(
    op: OperationContext,
    collection: Collection | None,
    match: bytes,
    request: MergeRequest,
    collation: Collation | None,
    ahead: KeysAhead,
) -> _Insertion | None:
    """What is inserted if nothing matches, which is looked for once more then; None if something does."""
    if collection is not None and _matching(op, collection, match, collation) is not None:
        return None
    try:
        insertion = _Insertion(_inserted(op, request))
        if collection is not None:
            document = _checked(op, collection, insertion.document)
            insertion.document = document
            insertion.collection = collection
            ahead.make(collection.writable_indexes, document)
            validator = collection.validator
            if validator is not None and validator.takes_long(document):
                insertion.unlogged = check_document(op, collection, document)
                insertion.passed = validator
    except CommandError as error:
        # Others may have inserted what matches while the document was checked.
        if is_interruption(error) or collection is None or _matching(op, collection, match, collation) is None:
            raise
        return None
    return insertion


def _insert_unmatched(
    op: OperationContext, database: str, name: str, request: MergeRequest, insertion: _Insertion | None
) -> None:
    """In an undivided block. insertion: what has been done before it."""
    if request.when_not_matched == "insert":
        _insert(op, database, name, _Insertion(_inserted(op, request)) if insertion is None else insertion)
    elif request.when_not_matched == "fail":
        raise CommandError(
            13113, "$merge could not find a matching document in the target collection for at least one document"
        )


def _inserted(op: OperationContext, request: MergeRequest) -> bytes:
    """The document that is inserted for a result that matches none."""
    if request.when_matched == "fail":
        return request.document
    _check_stored_fields(op, request.document)
    if request.when_matched in ("merge", "keepExisting"):
        return upserted(request.match, request.document)
    return request.document


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


def _insert(op: OperationContext, database: str, name: str, insertion: _Insertion) -> None:
    """In an undivided block."""
    collection = _target(op, database, name)
    document = insertion.document
    if insertion.collection is not collection:
        document = _checked(op, collection, document)
    insert_document(op, collection, document, insertion.passed)
    op.service.metrics.documents["inserted"] += 1


def _checked(op: OperationContext, collection: Collection, document: bytes) -> bytes:
    """A document as it will be stored. The errors of `prepare_document` and `check_size`."""
    prepared = prepare_document(op, collection, document)
    check_size(op, collection, prepared)
    return prepared


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
    driver = _replacement(op, request, record, context) if pipeline is None else pipeline
    apply_update(op, collection, None, record, driver, UpdateResult())


def _replacement(op: OperationContext, request: MergeRequest, record: Record, context: ParseContext) -> UpdateDriver:
    """The update by "merge" or "replace" of a record that a result matches."""
    _check_stored_fields(op, request.document)
    document = merged(record[1], request.document) if request.when_matched == "merge" else request.document
    # The document is stored unchanged: field names that begin with `$` are no modifiers.
    return parse_pipeline_update([_replace_with(document)], context)


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
    for name in sorted_by_comparison([*given], compare_components):
        give_way()
        elements[encode_text(name)] = given[name]
    builder = DocumentBuilder()
    for element in elements.values():
        give_way()
        builder.append_raw_element(element)
    put_aside(given)
    put_aside(elements)
    return builder.finish()
