"""`$group`: one document per distinct key, with accumulators per output field.

Keys are compared as KeyStrings, so 1, 1.0 and Int64(1) are one group, which is output with the first of them. If the
key is a field, groups are looked up by its raw bytes; the KeyString is only computed for bytes that have not occurred
yet. Groups are output in the order of their first documents.
"""

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from mongottl.config import MemoryLimits
from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder, encode, encode_fields
from mongottl.document.collation import Collation
from mongottl.document.copied import COPIED
from mongottl.document.freeing import LONG, LONG_BYTES, LongDict, LongList, list_for, put_aside, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.types import Int64, JavaScript, MaxKey, MinKey, Missing, Value, is_number
from mongottl.document.walk import fields, find_field_at, first_field_name, skip_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState
from mongottl.query.expr.parser import ObjectExpression
from mongottl.query.expr.path import FieldExpression
from mongottl.query.memory import LEAST_BYTES
from mongottl.query.pipeline.accumulators import AccumulatorSpec, SimpleAccumulator, first_state, parse_accumulator
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.partition import MAX_LEVEL, Partitions, part_of, read_chunk
from mongottl.query.pipeline.ranked import TopArgument
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import BATCH_BYTES, BATCH_SIZE, DocumentSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.query.spill import SpilledDocuments, SpillFile, SpillSpace, SpillStatistics
from mongottl.versions import OLDEST

_MAX_REMEMBERED_KEYS: Final = 100_000
_MAX_REMEMBERED_BYTES: Final = 256  # of one such key
# Others run before the key of a group is hashed, 10 ms for one of 16 MB. Bytes that are hashed in a microsecond, about.
_LONG_KEY_BYTES: Final = 65536
_HASHED_BYTES: Final = 1024
_GROUP_BYTES: Final = 200  # approximate memory of a group besides its key and states
# After how many bytes of long values that were made the size of the groups is checked before the end of a batch.
_MANY_COPIED_BYTES: Final[i64] = 16 << 20
_MAX_DIVIDED_PER_CALL: Final = 4096  # groups
_GROUP_CODES: Final[dict[str, int]] = {"can't $divide by zero": 4848401, "can't $mod by zero": 4848403}


class GroupSpec(StageSpec):
    """`$group`.

    key: the `_id` expression. accumulators: the output fields, in order. collation: of the keys.
    """

    def __init__(self, key: Expression, accumulators: list[AccumulatorSpec], collation: Collation | None) -> None:
        self.name = "$group"
        self.collation: Final = collation
        self.keeps_metadata = False
        self.key: Final = key
        self.accumulators: Final = accumulators

    def effect(self) -> Effect | None:
        """A filter on the key selects whole groups, since all documents of a group have the same key."""
        key = self.key
        if isinstance(key, FieldExpression):
            return Effect([], {"_id": key.name}, exclusive=True, comparisons_only=True)
        if not isinstance(key, ObjectExpression):
            return None
        renames: dict[str, str] = {} if len(key.names) < LONG else LongDict({})
        for i in range(len(key.names)):
            give_way()
            value = key.values[i]
            if isinstance(value, FieldExpression):
                renames[f"_id.{key.names[i]}"] = value.name
        return Effect([], renames, exclusive=True, comparisons_only=True)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return GroupSource(source, self.key, self.accumulators, self.collation, run, self.followed)

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = list_for(len(self.accumulators))
        described.append(("_id", self.key.describe()))
        for accumulator in self.accumulators:
            give_way()
            described.append((accumulator.field, accumulator.describe()))
        return encode({"$group": encode_fields(described)})

    def dependencies(self) -> set[str] | None:
        """The root fields that grouping reads; None for the whole document."""
        needed: set[str] = set_for(len(self.accumulators))
        if not self.key.collect_fields(needed):
            return None
        for accumulator in self.accumulators:
            give_way()
            if not accumulator.argument.collect_fields(needed):
                return None
        return needed

    def collect_paths(self, paths: set[str]) -> bool:
        """Adds the paths that grouping reads; False if they are not known."""
        if not self.key.collect_paths(paths):
            return False
        for accumulator in self.accumulators:
            give_way()
            if not accumulator.argument.collect_paths(paths):
                return False
        return True


def common_sort_by(group: GroupSpec) -> bytes:
    """The `sortBy` of a group's `$top` and `$bottom` if they all have the same one; b"" if not, or without any."""
    found = b""
    for accumulator in group.accumulators:
        give_way()
        argument = accumulator.argument
        if not isinstance(argument, TopArgument) or argument.pattern.metadata:
            return b""
        if found and argument.sort_by != found:
            return b""
        found = argument.sort_by
    return found


class DistinctGroupSpec(GroupSpec):
    """A `$group` over the documents of a DISTINCT_SCAN, which returns the document first that each group needs.

    group: the stage as it was written, with `$first`, `$last`, `$top` or `$bottom` alone. once: whether the scan
    returns one document for each group; explain then shows the stage as mongod does, `$groupByDistinctScan`.
    """

    def __init__(self, group: GroupSpec, once: bool) -> None:
        accumulators: list[AccumulatorSpec] = list_for(len(group.accumulators))
        for each in group.accumulators:
            give_way()
            argument = each.argument
            if isinstance(argument, TopArgument):
                argument = argument.output
            accumulators.append(SimpleAccumulator(each.field, "$first", argument, first_state, group.collation))
        super().__init__(group.key, accumulators, group.collation)
        self._group: Final = group
        self._once: Final = once

    def describe(self) -> Value:
        if not self._once:
            return self._group.describe()
        root: list[tuple[str, Value]] = list_for(len(self.accumulators))
        root.append(("_id", self.key.describe()))
        for accumulator in self.accumulators:
            give_way()
            root.append((accumulator.field, accumulator.argument.describe()))
        return encode({"$groupByDistinctScan": encode({"newRoot": encode_fields(root)})})


class Group:
    def __init__(self, key: Value, states: list[AccumulatorState]) -> None:
        self.key: Final = key
        self.states: Final = states


class PartTask:
    """A partition of the groups whose documents are in the file. groups: their states so far."""

    def __init__(self, chunks: list[tuple[int, int]], level: int) -> None:
        self.chunks: Final = chunks
        self.level: Final = level
        self.groups: Final[dict[bytes, Group]] = {}


class GroupSource(DocumentSource):
    """Beyond the memory limit, documents of new groups are written to a file, partitioned by their keys, and then each
    partition is grouped like the input. If states of groups grow (`$push`), all other documents are written there too,
    and the existing groups are divided into the same partitions.

    followed: whether another stage gets the groups, so that their values are converted by `output_value`.
    """

    def __init__(
        self,
        source: DocumentSource,
        key: Expression,
        accumulators: list[AccumulatorSpec],
        collation: Collation | None,
        run: RunContext,
        followed: bool,
    ) -> None:
        self._followed: Final = followed
        self._collation: Final = collation
        self.source: Final = source
        self._key: Final = key
        self._accumulators: Final = accumulators
        self._arguments: Final[list[Expression]] = list_for(len(accumulators))
        for accumulator in accumulators:
            give_way()
            self._arguments.append(accumulator.argument)
        # Whether there are LONG at least: then others run in between, and each new group is measured at once.
        self._many: Final = len(accumulators) >= LONG
        self._ev: Final = run.evaluation()
        self._limit_bytes: Final[i64] = run.limits.group_bytes
        self._space: Final = run.space
        self._share: Final = run.memory.share()
        # The accumulators that grow, set with the first group, and the memory limit of each.
        self._growing: Final[list[int]] = []
        self._growth_limits: Final[list[i64]] = []
        self._limits: Final = run.limits
        self._started = False
        self._is_new = False  # whether the current document's group has just been created
        self._groups: dict[bytes, Group] = {}
        self._by_raw_key: Final[dict[bytes, Group]] = {}
        self._size: i64 = 0
        self._given_bytes: i64 = 0
        self._reading = True
        # Finished groups and their keys in reverse order, so that groups are released when they are output.
        self._ready: list[bytes] = []
        self._finished: dict[bytes, Group] = {}
        # The approximate memory of one of them; documents of those before them that were moved to a file.
        self._finished_bytes: i64 = 0
        self._moved: SpilledDocuments | None = None
        self._moved_file: SpillFile | None = None
        self.spilled: Final = SpillStatistics()
        self._file: SpillFile | None = None
        self._parts: Partitions | None = None
        self._tasks: list[PartTask] = []
        self._tasks_size: i64 = 0  # of the groups of tasks
        self._chunks: list[tuple[int, int]] = []  # of the current partition, in reverse order
        self._level = -1
        self._dividing: Iterator[tuple[bytes, Group]] | None = None
        self._divided: list[PartTask] = []

    def next_batch(self) -> list[bytes] | None:
        if self._moved is not None:
            moved = self._moved.take()
            if moved:
                return moved
            self._moved = None
        if self._ready:
            return self._next_output()
        if self._reading:
            batch = self.source.next_batch()
            if batch is not None:
                self._absorb(batch)
                return []
            self._reading = False
            self._end_level()
            return self._next_output()
        if self._dividing is not None:
            self._divide(self._dividing)
            return []
        if self._chunks:
            self._regroup()
            return []
        if self._groups or self._parts is not None:
            self._end_level()
            return []
        if not self._tasks:
            self._close_file()
            return None
        task = self._tasks.pop()
        self._groups = task.groups
        self._size = 0
        for encoded, group in self._groups.items():
            self._size += 2 * i64(len(encoded)) + _GROUP_BYTES
            for state in group.states:
                self._size += i64(state.size())
        self._tasks_size = self._tasks_size - self._size if self._tasks else 0
        task.chunks.reverse()
        self._chunks = task.chunks
        self._level = task.level
        return []

    def statistics(self) -> dict[str, Value]:
        found: dict[str, Value] = {"totalOutputDataSizeBytes": Int64(int(self._given_bytes))}
        found.update(self.spilled.describe())
        return found

    def held_bytes(self) -> int:
        held: i64 = i64(len(self._ready)) * self._finished_bytes
        if self._groups:
            held += self._size
        for task in self._tasks:
            for group in task.groups.values():
                for state in group.states:
                    held += i64(state.size())
        return int(held) + self.source.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        if not self._ready:
            return self.source.spill(space)
        if self._moved is None:
            file = self._moved_file
            if file is None:
                file = space.create()
                self._moved_file = file
            self._moved = SpilledDocuments(file)
        self._moved.put(self._next_output())
        return True

    def close(self) -> None:
        self._close_file()
        moved = self._moved_file
        self._moved_file = None
        if moved is not None:
            moved.close()
        put_aside(self._groups)
        put_aside(self._finished)
        for task in self._tasks:
            put_aside(task.groups)
        self._groups = {}
        self._finished = {}
        self._ready = []
        self._tasks = []
        self._dividing = None
        self._divided = []
        self._by_raw_key.clear()
        self._share.release()
        self.source.close()

    def _close_file(self) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _absorb(self, batch: list[bytes]) -> None:
        try:
            self._add(batch)
        except CommandError as error:
            raise _group_error(error) from None
        self._check_size()

    def _add(self, batch: list[bytes]) -> None:
        ev = self._ev
        key = self._key
        copied: i64 = COPIED.bytes
        for doc in batch:
            ev.root = doc
            group = self._group_by_field(key, doc) if isinstance(key, FieldExpression) else self._group_of(key, doc)
            if group is not None:
                self._add_to(group)
                if self._many or COPIED.bytes - copied >= _MANY_COPIED_BYTES:
                    self._check_size()
                    copied = COPIED.bytes
        ev.root = EMPTY_DOCUMENT  # a `$facet` may have a thousand groups, each with its last document

    def _add_to(self, group: Group) -> None:
        """Adds the current document to a group."""
        if self._growing:
            self._add_growing(group)
        else:
            ev = self._ev
            ev.held = 0
            copied: i64 = COPIED.bytes
            arguments = self._arguments
            states = group.states
            for i in range(len(states)):
                if self._many:
                    give_way()
                value = arguments[i].evaluate(ev)
                if COPIED.bytes != copied:
                    ev.hold(value, COPIED.bytes - copied)
                    copied = COPIED.bytes
                if not self._is_new and isinstance(value, (str, bytes, list)):
                    # It may replace a smaller value.
                    before: i64 = states[i].size()
                    states[i].add(value)
                    self._size += i64(states[i].size()) - before
                else:
                    states[i].add(value)
        if self._is_new:
            self._is_new = False
            self._size += _GROUP_BYTES
            for state in group.states:
                if self._many:
                    give_way()
                if not state.grows():
                    self._size += i64(state.size())

    def _add_growing(self, group: Group) -> None:
        """Adds the current document to a group whose states grow, and measures them."""
        ev = self._ev
        ev.held = 0
        copied: i64 = COPIED.bytes
        growing = self._growing
        states = group.states
        next_growing = 0
        for i in range(len(states)):
            if self._many:
                give_way()
            state = states[i]
            value = self._arguments[i].evaluate(ev)
            if COPIED.bytes != copied:
                ev.hold(value, COPIED.bytes - copied)
                copied = COPIED.bytes
            if next_growing < len(growing) and growing[next_growing] == i:
                before: i64 = state.size()
                state.add(value)
                size: i64 = state.size()
                self._size += size - before
                if size > self._growth_limits[next_growing]:
                    raise accumulator_limit_exceeded(self._accumulators[i].name, self._growth_limits[next_growing])
                next_growing += 1
            else:
                state.add(value)

    def _group_by_field(self, key: FieldExpression, doc: bytes) -> Group | None:
        name = key.name_bytes
        type_code, pos = find_field_at(doc, 0, name)
        if type_code == 0:
            return self._group_of(key, doc)
        # The key is the slice of the whole element, since all these elements have the same name.
        end = skip_value(doc, type_code, pos)
        if end - pos > _MAX_REMEMBERED_BYTES:
            return self._group_of(key, doc)
        raw = doc[pos - len(name) - 2 : end]
        group = self._by_raw_key.get(raw)
        if group is None:
            group = self._group_of(key, doc)
            if group is not None:
                if len(self._by_raw_key) >= _MAX_REMEMBERED_KEYS:
                    self._by_raw_key.clear()
                self._by_raw_key[raw] = group
        return group

    def _group_of(self, key: Expression, doc: bytes) -> Group | None:
        """The current document's group; None if the document has been written to the file instead."""
        value = key.evaluate(self._ev)
        if isinstance(value, Missing):
            value = None
        encoded = encode_value(value, False, self._collation)
        if len(encoded) > _LONG_KEY_BYTES:
            give_way(len(encoded) // _HASHED_BYTES)
        return self._find(encoded, value, doc)

    def _find(self, encoded: bytes, value: Value, doc: bytes) -> Group | None:
        group = self._groups.get(encoded)
        parts = self._parts
        if parts is not None and (group is None or self._growing):
            parts.put(encoded, doc)
            return None
        if group is None:
            states: list[AccumulatorState] = list_for(len(self._accumulators))
            for accumulator in self._accumulators:
                if self._many:
                    give_way()
                states.append(accumulator.start(value))
            if not self._started:
                self._started = True
                self._find_growing(states)
            group = Group(value, states)
            self._groups[encoded] = group
            self._size += 2 * i64(len(encoded))
            self._is_new = True
        return group

    def _find_growing(self, states: list[AccumulatorState]) -> None:
        for i in range(len(states)):
            if self._many:
                give_way()
            if states[i].grows():
                self._growing.append(i)
                self._growth_limits.append(growth_limit(self._accumulators[i].name, self._limits))

    def _check_size(self) -> None:
        held: i64 = self._size + self._tasks_size
        if self._parts is not None:
            self._share.hold(held, True)
            return
        if self._growing and self._level < 0:
            # Where groups are divided, those that were divided stay in memory while one part after the other grows.
            held *= 2
        share = self._share
        # A part of the groups that is small enough is not divided again.
        small = self._level >= 0 and self._size <= LEAST_BYTES and share.memory.is_modest()
        if self._size <= self._limit_bytes and share.hold(held, small):
            return
        space = self._space
        if space is None:
            if self._size <= self._limit_bytes:
                raise share.memory.exceeded("$group", ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed)
            raise CommandError(
                ErrorCode.QueryExceededMemoryLimitNoDiskUseAllowed,
                "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in.",
            )
        if self._level >= MAX_LEVEL or len(self._groups) < 2:
            # Such groups cannot be divided; their accumulators have their own limits.
            if not share.hold(held, self._size <= LEAST_BYTES and share.memory.is_modest()):
                raise share.memory.exceeded("$group")
            return
        file = self._file
        if file is None:
            file = space.create()
            self._file = file
        self._parts = Partitions(file, self._level + 1, self.spilled)
        self.spilled.spills += 1
        if self._growing:
            self._by_raw_key.clear()

    def _end_level(self) -> None:
        """Ends a level: all documents of its groups, or of their partitions, have been read."""
        groups = self._groups
        parts = self._parts
        self._groups = {}
        self._parts = None
        self._by_raw_key.clear()
        if parts is not None:
            tasks = [PartTask(chunks, parts.level) for chunks in parts.finish()]
            if self._growing:
                self._divided = tasks
                self._tasks_size += self._size
                self._size = 0
                self._dividing = iter(groups.items())
                return
            self._tasks.extend(tasks)
        self._ready = list(groups)
        self._ready.reverse()
        self._finished = groups
        self._finished_bytes = self._size // max(i64(len(groups)), 1)

    def _divide(self, known: Iterator[tuple[bytes, Group]]) -> None:
        """Moves some of the groups to their partitions."""
        tasks = self._divided
        level = tasks[0].level
        for _ in range(_MAX_DIVIDED_PER_CALL):
            item = next(known, None)
            if item is None:
                self._dividing = None
                self._tasks.extend(tasks)
                return
            tasks[part_of(item[0], level)].groups[item[0]] = item[1]

    def _regroup(self) -> None:
        """Groups a chunk of the current partition."""
        file = self._file
        if file is None:
            raise AssertionError("a part without a file")
        offset, size = self._chunks.pop()
        ev = self._ev
        try:
            for encoded, doc in read_chunk(file.read(offset, size)):
                ev.root = doc
                group: Group | None = None if self._growing else self._groups.get(encoded)
                if group is None:
                    value = self._key.evaluate(ev)
                    group = self._find(encoded, None if isinstance(value, Missing) else value, doc)
                if group is not None:
                    self._add_to(group)
        except CommandError as error:
            raise _group_error(error) from None
        self._check_size()

    def _next_output(self) -> list[bytes]:
        """The next finished groups."""
        batch: list[bytes] = []
        size = 0
        ready = self._ready
        while ready and len(batch) < BATCH_SIZE and size < BATCH_BYTES:
            document = self._output(self._finished.pop(ready.pop()))
            size += len(document)
            batch.append(document)
        self._given_bytes += size
        self._share.hold(i64(len(ready)) * self._finished_bytes + self._tasks_size, True)
        return batch

    def _output(self, group: Group) -> bytes:
        builder = DocumentBuilder()
        convert = self._followed
        builder.append("_id", output_value(group.key) if convert else group.key)
        accumulators = self._accumulators
        for i in range(len(accumulators)):
            if self._many:
                give_way()
            value = group.states[i].result()
            if isinstance(value, Missing):
                value = None
            builder.append_named(accumulators[i].field_bytes, output_value(value) if convert else value)
        return builder.finish()


def growth_limit(accumulator: str, limits: MemoryLimits) -> int:
    """The memory limit in bytes of one state of an accumulator that collects values."""
    return limits.add_to_set_bytes if accumulator in ("$addToSet", "$setUnion") else limits.push_bytes


def accumulator_limit_exceeded(accumulator: str, limit_bytes: int) -> CommandError:
    return CommandError(
        ErrorCode.ExceededMemoryLimit,
        f"{accumulator} used too much memory and spilling to disk cannot reduce memory consumption any further."
        f" Memory limit: {limit_bytes} bytes",
    )


def _group_error(error: CommandError) -> CommandError:
    """Replaces the codes of division by zero, which are others here, since mongod groups in another engine."""
    code = _GROUP_CODES.get(error.message)
    return error if code is None else CommandError(code, error.message)


def output_value(value: Value) -> Value:
    """A group's value as the next stage gets it, also in an array: MinKey and MaxKey become a document, code a string.

    So it is in mongod 8, whose groups run in another engine than most stages after them.
    """
    if isinstance(value, (MinKey, MaxKey)):
        return encode({"": value})
    if isinstance(value, JavaScript) and value.scope is None:
        return value.code
    if not isinstance(value, list) or not _has_converted(value):
        return value
    given: list[Value] = list_for(len(value))
    for item in value:
        give_way()
        given.append(output_value(item))
    return given


def _has_converted(values: list[Value]) -> bool:
    """Whether `output_value` changes one of the values."""
    for value in values:
        give_way()
        if isinstance(value, (MinKey, MaxKey, JavaScript)):
            return True
    return False


def _check_no_inclusion(key: Value) -> None:
    """17390 for `{_id: {a: 1}}`: a number or boolean there looks like a projection; `$literal` is allowed."""
    if not isinstance(key, bytes) or first_field_name(key).startswith("$"):
        return
    for _, value in fields(key):
        if isinstance(value, bool) or is_number(value):
            raise CommandError(17390, "$group does not support inclusion-style expressions")


@stage("$group", StageTraits(planned=True), since=OLDEST)
def parse_group(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$group: {_id: <expression>, <field>: {<accumulator>: …}, …}}`. 15947, 15955 and the accumulators' errors."""
    if not isinstance(argument, bytes):
        raise CommandError(15947, "a group's fields must be specified in an object")
    key: Expression | None = None
    accumulators: list[AccumulatorSpec] = LongList() if len(argument) >= LONG_BYTES else []
    for name, value in fields(argument):
        give_way()
        if name == "_id":
            if key is not None:
                raise CommandError(15948, "a group's _id may only be specified once")
            _check_no_inclusion(value)
            key = parse_expression(value, ctx)
        elif name == "$doingMerge":
            raise CommandError(17030, "$doingMerge should be true if present")
        else:
            accumulators.append(parse_accumulator(name, value, ctx))
    if key is None:
        raise CommandError(15955, "a group specification must include an _id")
    return [GroupSpec(key, accumulators, ctx.collation)]
