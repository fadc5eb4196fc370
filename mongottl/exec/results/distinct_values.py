"""The result of `distinct`: the distinct values of a path, sorted, as one array."""

from bisect import bisect_right
from typing import Final

from mongottl.document.build import ArrayBuilder, ArraySize, value_size
from mongottl.document.collation import Collation
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath, values_at
from mongottl.document.types import MAX_DOCUMENT_BYTES, RawArray, Value
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext

# Maximum size of the array: mongod leaves 4 KiB for the reply's other fields.
MAX_DISTINCT_BYTES: Final = MAX_DOCUMENT_BYTES - 4096
# Values that are sorted, or encoded, in one step: about two milliseconds.
_SORTED_AT_ONCE: Final = 4096
_ENCODED_AT_ONCE: Final = 4096


class DistinctValues:
    """Collects the distinct values; of values that compare equal, the first is kept.

    advice: what the log says if they exceed `max_bytes`.
    """

    def __init__(
        self,
        path: FieldPath,
        collation: Collation | None,
        max_bytes: int = MAX_DISTINCT_BYTES,
        advice: str = "",
    ) -> None:
        self._max_bytes = max_bytes
        self._advice = advice
        self._path = path
        self._collation = collation
        self._values: dict[bytes, Value] = {}
        self._size = ArraySize()

    def add(self, documents: list[bytes]) -> None:
        """Adds the values of documents. 17217 if all values exceed `max_bytes`."""
        values = self._values
        for document in documents:
            for value in values_at(document, self._path):
                key = encode_value(value, False, self._collation)
                if key not in values:
                    values[key] = value
                    self._size.add(value_size(value))
                    if self._size.size > self._max_bytes:
                        raise CommandError(17217, "distinct too big, 16mb cap", advice=self._advice)

    def in_order(self, op: OperationContext) -> RawArray:
        """All values, sorted. There may be a million: each step sorts, merges or encodes a part of them."""
        keys = list(self._values)
        runs: list[list[bytes]] = []
        for start in range(0, len(keys), _SORTED_AT_ONCE):
            run = keys[start : start + _SORTED_AT_ONCE]
            run.sort()
            runs.append(run)
            op.check_interrupt()
            op.give_way()
        while len(runs) > 1:
            merged: list[list[bytes]] = []
            for i in range(0, len(runs), 2):
                run = runs[i]
                if i + 1 < len(runs):
                    run = _merged(run, runs[i + 1], op)
                merged.append(run)
            runs = merged
        array = ArrayBuilder()
        run = runs[0] if runs else []
        keys.clear()
        runs.clear()
        for start in range(0, len(run), _ENCODED_AT_ONCE):
            part = run[start : start + _ENCODED_AT_ONCE]
            for key in part:
                array.append(self._values.pop(key))
            # Frees the keys here: freeing a million of them at the end would be one long step.
            run[start : start + _ENCODED_AT_ONCE] = [b""] * len(part)
            op.check_interrupt()
            op.give_way()
        return array.finish()


def _merged(left: list[bytes], right: list[bytes], op: OperationContext) -> list[bytes]:
    """Merges two sorted lists. Each step merges _SORTED_AT_ONCE keys of one list with the keys of the other list that
    do not sort after them."""
    merged: list[bytes] = []
    i = j = 0
    while i < len(left) and j < len(right):
        i_end = min(i + _SORTED_AT_ONCE, len(left))
        j_end = min(j + _SORTED_AT_ONCE, len(right))
        last = min(left[i_end - 1], right[j_end - 1])
        i_end = bisect_right(left, last, i, i_end)
        j_end = bisect_right(right, last, j, j_end)
        part = left[i:i_end] + right[j:j_end]
        part.sort()
        merged += part
        i = i_end
        j = j_end
        op.check_interrupt()
        op.give_way()
    merged += left[i:]
    merged += right[j:]
    return merged
