"""`$group`: documents with equal keys become one, with a running total per output field.

Keys are compared as KeyStrings, so 1, 1.0 and Int64(1) are one group, which shows the first of them. Where the key is a
plain field, its raw bytes lead to the group without being decoded; the KeyString decides only for bytes not seen yet.
Groups come out in the order in which they were first met.
"""

from typing import Final

from mongottl.document.build import DocumentBuilder, encode, encode_fields
from mongottl.document.keystring import encode_value
from mongottl.document.types import JavaScript, MaxKey, MinKey, Missing, Value
from mongottl.document.walk import fields, find_field_at, skip_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState
from mongottl.query.expr.path import FieldExpression
from mongottl.query.pipeline.accumulators import AccumulatorSpec, parse_accumulator
from mongottl.query.pipeline.source import (
    BATCH_SIZE,
    BlockingSource,
    DocumentSource,
    RunContext,
)
from mongottl.query.pipeline.stage import StageSpec, stage

_MAX_REMEMBERED_KEYS: Final = 100_000
_GROUP_CODES: Final[dict[str, int]] = {"can't $divide by zero": 4848401, "can't $mod by zero": 4848403}


class GroupSpec(StageSpec):
    """key: the `_id` expression. accumulators: the output fields, in order."""

    def __init__(self, key: Expression, accumulators: list[AccumulatorSpec]) -> None:
        self.name = "$group"
        self.keeps_metadata = False
        self.key: Final = key
        self.accumulators: Final = accumulators

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return GroupSource(source, self.key, self.accumulators, run)

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = [("_id", self.key.describe())]
        for accumulator in self.accumulators:
            described.append((accumulator.field, accumulator.describe()))
        return encode({"$group": encode_fields(described)})

    def dependencies(self) -> set[str] | None:
        """The root fields that grouping needs; None for the whole document."""
        needed: set[str] = set()
        if not self.key.collect_fields(needed):
            return None
        for accumulator in self.accumulators:
            if not accumulator.argument.collect_fields(needed):
                return None
        return needed


class Group:
    def __init__(self, key: Value, states: list[AccumulatorState]) -> None:
        self.key: Final = key
        self.states: Final = states


class GroupSource(BlockingSource):
    def __init__(
        self, source: DocumentSource, key: Expression, accumulators: list[AccumulatorSpec], run: RunContext
    ) -> None:
        super().__init__(source)
        self._key: Final = key
        self._accumulators: Final = accumulators
        self._arguments: Final[list[Expression]] = [accumulator.argument for accumulator in accumulators]
        self._ev: Final = run.evaluation()
        self._run: Final = run
        self._groups: Final[dict[bytes, Group]] = {}
        self._by_raw_key: Final[dict[bytes, Group]] = {}
        self._ordered: list[Group] = []
        self._position = 0
        self._size = 0

    def absorb(self, batch: list[bytes]) -> None:
        try:
            self._add(batch)
        except CommandError as error:
            # Divisions by zero have codes of their own here, since mongod groups in another engine.
            code = _GROUP_CODES.get(error.message)
            if code is None:
                raise
            raise CommandError(code, error.message) from None
        self._check_size()

    def _add(self, batch: list[bytes]) -> None:
        ev = self._ev
        arguments = self._arguments
        count = len(arguments)
        key = self._key
        for doc in batch:
            ev.root = doc
            group = self._group_by_field(key, doc) if isinstance(key, FieldExpression) else self._group_of(key)
            states = group.states
            for i in range(count):
                states[i].add(arguments[i].evaluate(ev))

    def _group_by_field(self, key: FieldExpression, doc: bytes) -> Group:
        name = key.name_bytes
        type_code, pos = find_field_at(doc, 0, name)
        if type_code == 0:
            return self._group_of(key)
        # The whole element, since it is one slice: all these elements have the same name.
        raw = doc[pos - len(name) - 2 : skip_value(doc, type_code, pos)]
        group = self._by_raw_key.get(raw)
        if group is None:
            group = self._group_of(key)
            if len(self._by_raw_key) >= _MAX_REMEMBERED_KEYS:
                self._by_raw_key.clear()
            self._by_raw_key[raw] = group
        return group

    def _group_of(self, key: Expression) -> Group:
        value = key.evaluate(self._ev)
        if isinstance(value, Missing):
            value = None
        encoded = encode_value(value)
        group = self._groups.get(encoded)
        if group is None:
            states: list[AccumulatorState] = []
            for accumulator in self._accumulators:
                states.append(accumulator.start(value))
            group = Group(value, states)
            self._groups[encoded] = group
            self._size += 200 + 2 * len(encoded) + 100 * len(states)
        return group

    def _check_size(self) -> None:
        if self._run.allow_disk_use or self._size <= self._run.memory_limit_bytes:
            return
        raise CommandError(
            ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed,
            "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in.",
        )

    def finish(self) -> None:
        self._ordered = list(self._groups.values())
        self._groups.clear()
        self._by_raw_key.clear()

    def emit(self) -> list[bytes] | None:
        start = self._position
        groups = self._ordered[start : start + BATCH_SIZE]
        if not groups:
            return None
        self._position = start + BATCH_SIZE
        batch: list[bytes] = []
        for group in groups:
            batch.append(self._output(group))
        return batch

    def _output(self, group: Group) -> bytes:
        builder = DocumentBuilder()
        builder.append("_id", shown(group.key))
        accumulators = self._accumulators
        for i in range(len(accumulators)):
            value = group.states[i].result()
            builder.append_named(accumulators[i].field_bytes, shown_result(accumulators[i].name, value))
        return builder.finish()


def shown(value: Value) -> Value:
    """A value as a group gives it out. MinKey and MaxKey come in a document, code as a string: so does mongod 8."""
    if isinstance(value, (MinKey, MaxKey)):
        return encode({"": value})
    if isinstance(value, JavaScript) and value.scope is None:
        return value.code
    return value


def shown_result(accumulator: str, value: Value) -> Value:
    """What an accumulator made, null for nothing. Those that keep a value as a key would be kept show it like one."""
    if isinstance(value, Missing):
        return None
    if accumulator == "$first" or accumulator == "$last":
        return shown(value)
    if accumulator == "$addToSet" and isinstance(value, list):
        return [shown(item) for item in value]
    return value


@stage("$group")
def parse_group(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$group: {_id: <expression>, <field>: {<accumulator>: …}, …}}`. 15947, 15955 and the accumulators' errors."""
    if not isinstance(argument, bytes):
        raise CommandError(15947, "a group's fields must be specified in an object")
    key: Expression | None = None
    accumulators: list[AccumulatorSpec] = []
    for name, value in fields(argument):
        if name == "_id":
            if key is not None:
                raise CommandError(15948, "a group's _id may only be specified once")
            key = parse_expression(value, ctx)
        elif name == "$doingMerge":
            raise CommandError(17030, "$doingMerge should be true if present")
        else:
            accumulators.append(parse_accumulator(name, value, ctx))
    if key is None:
        raise CommandError(15955, "a group specification must include an _id")
    return [GroupSpec(key, accumulators)]
