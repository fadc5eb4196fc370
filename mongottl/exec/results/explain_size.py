"""Keeps the reply of `explain` below the size of one document: what does not fit is left out, and a warning says so.

A filter of 10 MB is in the reply several times: parsed, as the filter of a stage, as index bounds, in the statistics
and as the command. A part that would take the reply beyond 10 MiB is left out. Its place has a `warning` then:

    index bounds omitted due to BSON size limit for explain     for `indexBounds`
    stats tree exceeded BSON size limit for explain             for a stage, when the reply is full
    'filter' has been omitted due to BSON size limit            for any other part

Source: the warnings of MongoDB 8.2; 10 MiB is the default of its parameter internalQueryExplainSizeThresholdBytes. That
`parsedQuery`, filters and stages of pipelines are left out in the same way is assumed.
"""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.freeing import list_for
from mongottl.document.types import Value
from mongottl.document.walk import fields_by_name

MAX_EXPLAIN_BYTES: Final = 10 << 20
BOUNDS_OMITTED: Final = "index bounds omitted due to BSON size limit for explain"
_TREE_OMITTED: Final = "stats tree exceeded BSON size limit for explain"

# Fields whose documents consist of parts that are left out one by one. All others are kept or left out as a whole.
_DIVISIBLE: Final = frozenset(
    {
        "$cursor",
        "$geoNearCursor",
        "allPlansExecution",
        "executionStages",
        "executionStats",
        "inputStage",
        "inputStages",
        "queryPlanner",
        "rejectedPlans",
        "stages",
        "winningPlan",
    }
)
# Parts that are always kept, so that what remains of a reply has its form.
_MAX_SMALL_BYTES: Final = 1024


def fitted(reply: dict[str, Value]) -> dict[str, Value]:
    """The reply, or what of it fits into MAX_EXPLAIN_BYTES, with warnings."""
    if len(encode(reply)) <= MAX_EXPLAIN_BYTES:
        return reply
    return _Room().kept(reply)


class _Room:
    """The bytes that are left for the parts of a reply, in their order."""

    def __init__(self) -> None:
        self._left = MAX_EXPLAIN_BYTES

    def kept(self, parts: dict[str, Value]) -> dict[str, Value]:
        if self._left <= 0 and "stage" in parts:
            return {"warning": _TREE_OMITTED}
        kept: dict[str, Value] = {}
        warnings: list[str] = []
        for name, value in parts.items():
            if name in _DIVISIBLE and isinstance(value, dict):
                kept[name] = self.kept(value)
            elif name in _DIVISIBLE and isinstance(value, list):
                elements: list[Value] = list_for(len(value))
                for element in value:
                    elements.append(self._kept_element(element))
                kept[name] = elements
            else:
                size = len(encode({name: value}))
                if size > self._left and size > _MAX_SMALL_BYTES:
                    omitted = (
                        BOUNDS_OMITTED if name == "indexBounds" else f"'{name}' has been omitted due to BSON size limit"
                    )
                    warnings.append(omitted)
                else:
                    self._left -= size
                    kept[name] = value
        if warnings:
            earlier = kept.get("warning")
            kept["warning"] = "; ".join([earlier, *warnings] if isinstance(earlier, str) else warnings)
        return kept

    def _kept_element(self, element: Value) -> Value:
        """An element of an array of stages, which is a dict or an encoded document."""
        if isinstance(element, dict):
            return self.kept(element)
        if isinstance(element, bytes):
            return self.kept(fields_by_name(element))
        return element
