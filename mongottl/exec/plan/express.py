"""The express plan: one record by its `_id`, found without a parsed filter or a plan (EXPRESS_IXSCAN in explain).

A filter that is exactly {_id: value} or {_id: {$eq: value}} asks for one key of the index on `_id`. What else a command
may say (sort, collation, hint, positional operators) is for the command to rule out first.
"""

from mongottl.catalog.collection import Collection
from mongottl.document.keystring import encode_raw
from mongottl.exec.operation.context import OperationContext
from mongottl.query.match import simple_id_filter
from mongottl.storage.interface import Record
from mongottl.ttl.policy import NO_TTL, is_expired


def is_express(collection: Collection, filter: bytes) -> bool:
    """Whether a filter asks for one key of the index on `_id`, and the collection has that index."""
    return collection.id_index is not None and simple_id_filter(filter)[0] != 0


def express_record(op: OperationContext, collection: Collection, filter: bytes) -> Record | None:
    """The living record that an express filter asks for, or None.

    Under the collection's collation, for operations that name none: that is what the index on `_id` has.
    """
    index = collection.id_index
    assert index is not None
    type_code, pos = simple_id_filter(filter)
    key = encode_raw(filter, type_code, pos, False, collection.collation)
    unit = op.recovery_unit
    record = unit.index(index).fetch_exact(unit.records(collection), key)
    if (
        record is not None
        and collection.default_ttl_s != NO_TTL
        and is_expired(record[2], record[3], collection.default_ttl_s, op.now_s)
    ):
        return None
    return record
