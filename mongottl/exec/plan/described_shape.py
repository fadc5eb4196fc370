"""Query shapes as documents, which `$queryStats` returns: `{a: {$eq: "?number"}}`.

Values are replaced by their types. Names of databases, collections, fields and variables can be replaced by their
HMAC-SHA-256 in base64, each field of a path by itself; names of operators and of their parameters stay. A shape that is
given as input is returned as it is, but for its names.

The tables below say which parameters of stages and expressions are names, filters, pipelines and so on. The others are
expressions, in which every name that is not an operator's or a parameter's is replaced: what the tables do not know may
be replaced needlessly, but is not shown.

Source: MongoDB's manual, "$queryStats (aggregation)".
"""

from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.interrupt import give_way
from mongottl.document.types import Regex, Value, is_number, type_code_of, type_name
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields, fields_by_name, first_field_name

_LOGICAL: Final = ("$and", "$or", "$nor")
_KEPT_VARIABLES: Final = frozenset("ROOT CURRENT NOW CLUSTER_TIME REMOVE DESCEND PRUNE KEEP SEARCH_META".split())

# What an argument or a parameter is.
_EXPRESSION: Final = 0
_NAME: Final = 1  # a path or a name, or several of them
_FILTER: Final = 2
_ORDER: Final = 3  # a sort, or a projection
_PIPELINE: Final = 4
_PIPELINES: Final = 5  # by names of the user
_KEPT: Final = 6  # a word of the language
_LITERAL: Final = 7
_OUTPUT: Final = 8  # fields with accumulators, or with parameters such as `window`, `value` and `method`
_BRANCHES: Final = 9  # an array of documents of parameters
_FUSED: Final = 10  # `{pipelines: {…}}`
_NAMESPACE: Final = 11  # a collection or a database, or `{db, coll}`

# Stages whose argument is of a kind, unless it is a document of parameters.
_STAGES: Final[dict[str, int]] = {
    "$count": _NAME,
    "$facet": _PIPELINES,
    "$match": _FILTER,
    "$merge": _NAMESPACE,
    "$out": _NAMESPACE,
    "$project": _ORDER,
    "$sort": _ORDER,
    "$unionWith": _NAMESPACE,
    "$unset": _NAME,
}
# Stages whose arguments are documents of parameters, with the kinds of those that are no expressions.
_STAGE_PARAMETERS: Final[dict[str, dict[str, int]]] = {
    "$bucket": {"default": _LITERAL, "output": _OUTPUT},
    "$bucketAuto": {"granularity": _KEPT, "output": _OUTPUT},
    "$changeStream": {"fullDocument": _KEPT, "fullDocumentBeforeChange": _KEPT, "showExpandedEvents": _KEPT},
    "$collStats": {"count": _LITERAL, "latencyStats": _LITERAL, "queryExecStats": _LITERAL, "storageStats": _LITERAL},
    "$currentOp": {},
    "$densify": {"field": _NAME, "partitionByFields": _NAME, "range": _LITERAL},
    "$fill": {"output": _OUTPUT, "partitionByFields": _NAME, "sortBy": _ORDER},
    "$geoNear": {
        "distanceField": _NAME,
        "includeLocs": _NAME,
        "key": _NAME,
        "near": _LITERAL,
        "query": _FILTER,
        "spherical": _KEPT,
    },
    "$graphLookup": {
        "as": _NAME,
        "connectFromField": _NAME,
        "connectToField": _NAME,
        "depthField": _NAME,
        "from": _NAMESPACE,
        "restrictSearchWithMatch": _FILTER,
    },
    "$listClusterCatalog": {},
    "$listLocalSessions": {"users": _LITERAL},
    "$listSampledQueries": {"namespace": _LITERAL},
    "$listSessions": {"users": _LITERAL},
    "$lookup": {"as": _NAME, "foreignField": _NAME, "from": _NAMESPACE, "localField": _NAME, "pipeline": _PIPELINE},
    "$merge": {"into": _NAMESPACE, "on": _NAME, "whenMatched": _PIPELINE, "whenNotMatched": _KEPT},
    "$out": {"coll": _NAMESPACE, "db": _NAMESPACE, "timeseries": _LITERAL},
    "$planCacheStats": {},
    "$querySettings": {},
    "$queryStats": {"transformIdentifiers": _LITERAL},
    "$rankFusion": {"combination": _LITERAL, "input": _FUSED, "scoreDetails": _KEPT},
    "$replaceRoot": {},
    "$sample": {},
    "$setWindowFields": {"output": _OUTPUT, "sortBy": _ORDER},
    "$unionWith": {"coll": _NAMESPACE, "pipeline": _PIPELINE},
    "$unwind": {"includeArrayIndex": _NAME},
}

# Expressions and accumulators with parameters by name.
_NAMED: Final = frozenset(
    """
    $accumulator $bottom $bottomN $cond $convert $dateAdd $dateDiff $dateFromParts $dateFromString $dateSubtract
    $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $derivative $expMovingAvg $filter $firstN
    $function $getField $hour $integral $isoDayOfWeek $isoWeek $isoWeekYear $lastN $let $ltrim $map $maxN $median
    $millisecond $minMaxScaler $minN $minute $month $percentile $reduce $regexFind $regexFindAll $regexMatch $replaceAll
    $replaceOne $rtrim $second $setField $shift $sortArray $switch $top $topN $trim $unsetField $week $year $zip
    """.split()
)
# Of these, the parameters that are no expressions.
_PARAMETERS: Final[dict[str, int]] = {
    "arrayIndexAs": _NAME,
    "as": _NAME,
    "branches": _BRANCHES,
    "field": _NAME,
    "lang": _KEPT,
    "method": _KEPT,
    "sortBy": _ORDER,
}
# Beside an accumulator, or instead of it, in the output of a stage.
_OUTPUT_PARAMETERS: Final[dict[str, int]] = {"method": _KEPT, "value": _EXPRESSION, "window": _LITERAL}


class Shaper:
    """Makes shapes. key: of the HMAC, None to keep names. of_shapes: whether the input has types for values already."""

    def __init__(self, key: bytes | None = None, of_shapes: bool = False) -> None:
        self._key: Final = key
        self._of_shapes: Final = of_shapes
        self._replaced: Final[dict[str, str]] = {}

    def name(self, name: str) -> str:
        """A path, each of its fields by itself."""
        return name if self._key is None else ".".join([self._identifier(part) for part in name.split(".")])

    def _identifier(self, name: str) -> str:
        if self._key is None:
            return name
        known = self._replaced.get(name)
        if known is None:
            import base64  # seldom needed
            import hmac

            digest = hmac.digest(self._key, encode_text(name), "sha256")
            known = self._replaced[name] = base64.b64encode(digest).decode("ascii")
        return known

    def literal(self, value: Value) -> Value:
        """The type of a value: "?number", "?array<?string>", "?array<>" with items of several types, "[]" if empty.

        Of the items that are arrays themselves only that they are.
        """
        if self._of_shapes:
            return value
        if not isinstance(value, list):
            return _type_of(value)
        if not value:
            return "[]"
        first = _type_of(value[0])
        for item in value:
            give_way()
            if _type_of(item) != first:
                return "?array<>"
        return f"?array<{first}>"

    def filter(self, filter: bytes) -> bytes:
        clauses = self._clauses(filter)
        return clauses[0] if len(clauses) == 1 else encode_fields([("$and", list(clauses))] if clauses else [])

    def _clauses(self, filter: bytes) -> list[bytes]:
        clauses: list[bytes] = []
        for name, value in fields(filter):
            if name == "$comment":
                continue
            if name in _LOGICAL and isinstance(value, list):
                branches: list[Value] = [self.filter(branch) for branch in value if isinstance(branch, bytes)]
                clauses.append(encode_fields([(name, branches)]))
            elif name == "$expr":
                clauses.append(encode_fields([(name, self.expression(value))]))
            elif name == "$text" and isinstance(value, bytes):
                clauses.append(encode_fields([(name, encode_fields([(n, self.literal(v)) for n, v in fields(value)]))]))
            elif name.startswith("$"):
                clauses.append(encode_fields([(name, self.literal(value))]))
            elif isinstance(value, bytes) and first_field_name(value).startswith("$"):
                for condition, operand in fields(value):
                    shaped = encode_fields([(condition, self._operand(condition, operand))])
                    clauses.append(encode_fields([(self.name(name), shaped)]))
            else:
                condition = "$regex" if isinstance(value, Regex) else "$eq"
                shown = "?string" if isinstance(value, Regex) else self.literal(value)
                clauses.append(encode_fields([(self.name(name), encode_fields([(condition, shown)]))]))
        return clauses

    def _operand(self, condition: str, operand: Value) -> Value:
        if condition in ("$not", "$elemMatch") and isinstance(operand, bytes):
            if first_field_name(operand).startswith("$") and first_field_name(operand) not in _LOGICAL:
                return encode_fields([(name, self._operand(name, value)) for name, value in fields(operand)])
            return self.filter(operand)
        return operand if condition == "$type" else self.literal(operand)

    def order(self, pattern: bytes) -> bytes:
        """A sort, projection or key pattern: its directions and inclusions stay."""
        shaped: list[tuple[str, Value]] = []
        for name, value in fields(pattern):
            give_way()
            shown: Value
            if isinstance(value, bool) or is_number(value):
                shown = value
            elif isinstance(value, bytes) and first_field_name(value) == "$elemMatch":
                shown = encode_fields([(n, self._operand(n, v)) for n, v in fields(value)])
            elif isinstance(value, bytes) and not first_field_name(value).startswith("$"):
                shown = self.order(value)
            else:
                shown = self.expression(value)
            shaped.append((name if name.startswith("$") else self.name(name), shown))
        return encode_fields(shaped)

    def expression(self, value: Value) -> Value:
        give_way()
        if isinstance(value, bytes):
            return encode_fields([self._operator_or_field(name, item) for name, item in fields(value)])
        if isinstance(value, list):
            if not any(isinstance(item, bytes) or (isinstance(item, str) and item.startswith("$")) for item in value):
                return self.literal(value)
            return [self.expression(item) for item in value]
        if isinstance(value, str) and value.startswith("$$"):
            variable, dot, path = value[2:].partition(".")
            shown = variable if variable in _KEPT_VARIABLES else self.name(variable)
            return f"$${shown}{dot}{self.name(path) if path else ''}"
        if isinstance(value, str) and value.startswith("$"):
            return f"${self.name(value[1:])}"
        return self.literal(value)

    def _operator_or_field(self, name: str, argument: Value) -> tuple[str, Value]:
        if not name.startswith("$"):
            return self.name(name), self.expression(argument)
        if name == "$literal":
            return name, self.literal(argument)
        if name == "$meta":
            return name, argument
        if name in _NAMED:
            if isinstance(argument, bytes):
                return name, self._parameters(argument, _PARAMETERS)
            if name == "$getField":
                return name, self._kind(_NAME, argument)
        return name, self.expression(argument)

    def _parameters(self, given: bytes, kinds: dict[str, int]) -> bytes:
        return encode_fields([(name, self._kind(kinds.get(name, _EXPRESSION), value)) for name, value in fields(given)])

    def _kind(self, kind: int, value: Value) -> Value:
        """A parameter, or the argument of a stage. A value that is not of the kind is an expression."""
        if kind == _KEPT:
            return value
        if kind == _LITERAL:
            return self.literal(value)
        if kind == _NAME:
            return self._names(value)
        if kind == _NAMESPACE and isinstance(value, str):
            return self._identifier(value)
        if isinstance(value, bytes):
            if kind == _FILTER:
                return self.filter(value)
            if kind == _ORDER:
                return self.order(value)
            if kind == _PIPELINES:
                return encode_fields([(self.name(name), self._kind(_PIPELINE, item)) for name, item in fields(value)])
            if kind == _NAMESPACE:
                return encode_fields([(name, self._kind(_NAMESPACE, item)) for name, item in fields(value)])
            if kind == _FUSED:
                return self._parameters(value, {"pipelines": _PIPELINES})
            if kind == _OUTPUT:
                return encode_fields([(self.name(name), self._output(item)) for name, item in fields(value)])
        elif isinstance(value, list):
            if kind == _PIPELINE:
                return self.pipeline(value)
            if kind == _BRANCHES:
                return [self._parameters(item, {}) for item in value if isinstance(item, bytes)]
        elif kind == _PIPELINE:
            return value  # "merge"
        return self.expression(value)

    def _names(self, value: Value) -> Value:
        if isinstance(value, str):
            return self.expression(value) if value.startswith("$") else self.name(value)
        if isinstance(value, list):
            return [self._names(item) for item in value]
        return self.expression(value)

    def _output(self, value: Value) -> Value:
        if not isinstance(value, bytes):
            return self.expression(value)
        shaped: list[tuple[str, Value]] = []
        for name, item in fields(value):
            kind = _OUTPUT_PARAMETERS.get(name)
            shaped.append(self._operator_or_field(name, item) if kind is None else (name, self._kind(kind, item)))
        return encode_fields(shaped)

    def pipeline(self, pipeline: list[Value]) -> list[Value]:
        return [self.stage(stage) for stage in pipeline if isinstance(stage, bytes)]

    def stage(self, stage: bytes) -> bytes:
        name = first_field_name(stage)
        argument = fields_by_name(stage)[name]
        kinds = _STAGE_PARAMETERS.get(name)
        if kinds is not None and isinstance(argument, bytes):
            return encode_fields([(name, self._parameters(argument, kinds))])
        return encode_fields([(name, self._kind(_STAGES.get(name, _EXPRESSION), argument))])

    def command(self, shape: bytes) -> bytes:
        """The fields of a command that are in its shape, `{cmdNs, command, filter, …}`."""
        shown: list[tuple[str, Value]] = []
        for name, value in fields(shape):
            if name == "cmdNs":
                value = self._kind(_NAMESPACE, value)
            elif name == "hint" and isinstance(value, bytes):
                value = self.order(value)
            elif name in ("hint", "key"):
                value = self._names(value)
            elif name in ("filter", "query", "sort", "projection") and isinstance(value, bytes):
                value = self.order(value) if name in ("sort", "projection") else self.filter(value)
            elif name in ("min", "max", "let") and isinstance(value, bytes):
                value = encode_fields([(self.name(n), self.expression(v)) for n, v in fields(value)])
            elif name == "pipeline" and isinstance(value, list):
                value = self.pipeline(value)
            elif name in ("skip", "limit"):
                value = self.literal(value)
            shown.append((name, value))
        return encode_fields(shown)


def _type_of(value: Value) -> str:
    return "?number" if is_number(value) else "?" + type_name(type_code_of(value))
