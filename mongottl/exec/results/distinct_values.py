"""The result of `distinct`: the distinct values of a path, sorted, as one array."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.build import ArrayBuilder, ArraySize, value_size
from mongottl.document.collation import Collation
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import MAX_DOCUMENT_BYTES, RawArray, Value
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.steps import Steps

# Maximum size of the array: mongod leaves 4 KiB for the reply's other fields.
MAX_DISTINCT_BYTES: Final = MAX_DOCUMENT_BYTES - 4096
# Values that are sorted, or encoded, in one step: about two milliseconds.
_SORTED_AT_ONCE: Final = 4096
_ENCODED_AT_ONCE: Final = 4096


class DistinctValues:
    """Collects the distinct values; of values that compare equal, the first is kept."""

    def __init__(self, path: FieldPath, collation: Collation | None) -> None:
        self._path = path
        self._collation = collation
        self._values: dict[bytes, Value] = {}
        self._size = ArraySize()

    def add(self, documents: list[bytes]) -> None:
        """Adds the values of documents. 17217 if all values exceed MAX_DISTINCT_BYTES."""
        values = self._values
        for document in documents:
            for value in values_at(document, self._path):
                key = encode_value(value, False, self._collation)
                if key not in values:
                    values[key] = value
                    self._size.add(value_size(value))
                    if self._size.size > MAX_DISTINCT_BYTES:
                        raise CommandError(17217, "distinct too big, 16mb cap")

    def in_order(self, op: OperationContext) -> Steps[RawArray]:
        """All values, sorted. There may be a million: each step sorts, merges or encodes a part of them."""
        keys = list(self._values)
        runs: list[list[bytes]] = []
        for start in range(0, len(keys), _SORTED_AT_ONCE):
            run = keys[start : start + _SORTED_AT_ONCE]
            run.sort()
            runs.append(run)
            op.check_interrupt()
            yield None
        while len(runs) > 1:
            merged: list[list[bytes]] = []
            for i in range(0, len(runs), 2):
                run = runs[i]
                if i + 1 < len(runs):
                    # Python's sort merges two sorted runs in linear time.
                    run = run + runs[i + 1]
                    run.sort()
                merged.append(run)
                op.check_interrupt()
                yield None
            runs = merged
        array = ArrayBuilder()
        left: i64 = _ENCODED_AT_ONCE
        for key in runs[0] if runs else []:
            array.append(self._values[key])
            left -= 1
            if left == 0:
                left = _ENCODED_AT_ONCE
                op.check_interrupt()
                yield None
        return array.finish()
