"""Moves filters towards the start of a pipeline.

A filter is split into its conjuncts; each is moved before all stages that do not change its paths, which are followed
through renames. Conjuncts that arrive at one position become one `$match` together with a filter that is already there.

`$expr` may fail where a filter does not, so it is not moved before another filter that may guard it.
"""

from typing import Final

from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.freeing import LongSet
from mongottl.document.interrupt import give_way
from mongottl.document.types import Date, Decimal128, ObjectId, Timestamp, Value
from mongottl.document.walk import fields
from mongottl.query.context import ParseContext
from mongottl.query.expr import parse_expression
from mongottl.query.match import parse_match
from mongottl.query.match.tree import AlwaysTrue
from mongottl.query.pipeline.basic import MatchSpec
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.stage import StageSpec

_LOGICAL: Final = ("$and", "$or", "$nor")
_COMPARISONS: Final = frozenset(("$eq", "$gt", "$gte", "$lt", "$lte"))
# Conditions that do not depend on the document.
_CONSTANT: Final = frozenset(("$comment", "$alwaysTrue", "$alwaysFalse"))


class Conjunct:
    """One conjunct of a filter, not parsed.

    paths: those that it reads, None if unknown. expression: whether it contains an `$expr`.
    comparisons: whether it consists only of comparisons with plain values.
    """

    def __init__(self, name: str, value: Value, ctx: ParseContext) -> None:
        self.name: Final = name
        self.value: Final = value
        self.expression = False
        self.comparisons = True
        found: set[str] = LongSet()
        self.paths: Final = found if self._collect(name, value, found, ctx) else None

    def _collect(self, name: str, value: Value, found: set[str], ctx: ParseContext) -> bool:
        if name in _LOGICAL:
            self.comparisons = self.comparisons and name != "$nor"
            for branch in value if isinstance(value, list) else []:
                if not isinstance(branch, bytes):
                    return False
                for inner, condition in fields(branch):
                    if not self._collect(inner, condition, found, ctx):
                        return False
            return True
        if name == "$expr":
            self.expression = True
            self.comparisons = False
            encoded = encode({"": value})
            if b"$rand" in encoded or b"$meta" in encoded:
                return False
            needed = parse_expression(value, ctx).dependencies()
            if needed is None:
                return False
            for field in needed:
                give_way()
                found.add(field)
            return True
        if name.startswith("$"):
            return name in _CONSTANT
        self.comparisons = self.comparisons and _compares(value)
        found.add(name)
        return True

    def as_filter(self) -> bytes:
        return encode_fields([(self.name, self.value)])

    def before(self, effect: Effect, ctx: ParseContext) -> "Conjunct | None":
        """The condition before a stage that is equivalent to this one after it; None if there is none."""
        if self.paths is None or (effect.comparisons_only and not self.comparisons):
            return None
        renamed = False
        for path in self.paths:
            give_way()
            origin = effect.origin(path)
            if origin is None or (origin != path and self.expression):
                return None
            renamed = renamed or origin != path
        if not renamed:
            return self
        name, value = _renamed(self.name, self.value, effect)
        return Conjunct(name, value, ctx)


def _compares(value: Value) -> bool:
    if isinstance(value, bytes):
        for name, operand in fields(value):
            if name == "$in":
                if not isinstance(operand, list) or not all(_is_plain(item) for item in operand):
                    return False
            elif name not in _COMPARISONS or not _is_plain(operand):
                return False
        return True
    return _is_plain(value)


def _is_plain(value: Value) -> bool:
    return isinstance(value, (bool, int, float, str, Decimal128, Date, ObjectId, Timestamp))


def _renamed(name: str, value: Value, effect: Effect) -> tuple[str, Value]:
    if name in _LOGICAL:
        branches: list[Value] = []
        for branch in value if isinstance(value, list) else []:
            if isinstance(branch, bytes):
                branches.append(encode_fields([_renamed(inner, item, effect) for inner, item in fields(branch)]))
        return name, branches
    if name.startswith("$"):
        return name, value
    return effect.origin(name) or name, value


def conjuncts_of(filter: bytes, ctx: ParseContext) -> list[Conjunct]:
    found: list[Conjunct] = []
    for name, value in fields(filter):
        if name == "$and" and isinstance(value, list):
            for part in value:
                if isinstance(part, bytes):
                    found.extend(conjuncts_of(part, ctx))
        else:
            found.append(Conjunct(name, value, ctx))
    return found


def push_down(specs: list[StageSpec], spec: MatchSpec, ctx: ParseContext) -> None:
    """Moves the conjuncts of a `$match` after `specs` as far forward in `specs` as possible."""
    if not _may_move(specs, len(specs)):
        specs.append(spec)
        return
    parts = conjuncts_of(spec.filter, ctx)
    moving = parts
    index = len(specs)
    while index > 0 and moving:
        before = specs[index - 1]
        staying: list[Conjunct] = []
        passing: list[Conjunct] = []
        if isinstance(before, MatchSpec):
            # Moved only all together, so that conditions stay in the order of their stages.
            guarded = any(part.expression or part.paths is None for part in moving)
            if guarded or before.requested or not _may_move(specs, index - 1):
                break
            index -= 1
            continue
        effect = before.known_effect()
        if effect is None:
            break
        narrowing: list[bytes] = []
        joining: list[bytes] = []
        joined = before.joined_path()
        within = Effect([], {joined: ""}, exclusive=True) if joined else None
        for part in moving:
            earlier = part.before(effect, ctx)
            if earlier is not None:
                narrowing.append(part.as_filter())
                passing.append(earlier)
                continue
            inner = None if within is None else part.before(within, ctx)
            if inner is None or part.expression:
                staying.append(part)
            else:
                joining.append(inner.as_filter())
        if len(staying) == len(moving):
            break
        if narrowing:
            before = before.narrowed(all_of(narrowing))
        if joining:
            before = before.joining(all_of(joining))
        specs[index - 1] = before
        _insert_match(specs, index, [part.as_filter() for part in staying], ctx)
        moving = passing
        index -= 1
    if moving == parts:
        _insert_match(specs, index, [spec.filter], ctx, spec)
    else:
        _insert_match(specs, index, [part.as_filter() for part in moving], ctx)


def _may_move(specs: list[StageSpec], count: int) -> bool:
    """Whether a filter after the first `count` stages could move before one of them or be merged with one."""
    if count == 0:
        return False
    last = specs[count - 1]
    return isinstance(last, MatchSpec) or last.known_effect() is not None


def _insert_match(
    specs: list[StageSpec], index: int, filters: list[bytes], ctx: ParseContext, existing: MatchSpec | None = None
) -> None:
    """Inserts a `$match` of these filters at an index, merged with one that is there. existing: a parsed stage for
    them."""
    if not filters:
        return
    for i in (index, index - 1):
        neighbour = specs[i] if 0 <= i < len(specs) else None
        if isinstance(neighbour, CombinedMatch):
            neighbour.filters.extend(filters)
            return
        if isinstance(neighbour, MatchSpec) and not neighbour.requested:
            specs[i] = CombinedMatch([neighbour.filter, *filters])
            return
    specs.insert(index, CombinedMatch(filters) if existing is None else existing)


class CombinedMatch(MatchSpec):
    """Filters that were moved to one position, not parsed yet, since others may follow."""

    def __init__(self, filters: list[bytes]) -> None:
        super().__init__(EMPTY_DOCUMENT, AlwaysTrue())
        self.filters: Final = filters


def finish_matches(specs: list[StageSpec], ctx: ParseContext) -> None:
    """Replaces each CombinedMatch by a parsed `$match`."""
    for i in range(len(specs)):
        gathered = specs[i]
        if isinstance(gathered, CombinedMatch):
            specs[i] = matched(gathered.filters, ctx)


def all_of(filters: list[bytes]) -> bytes:
    """The conjunction of filters; a top-level `$and` of a filter is flattened."""
    if len(filters) == 1:
        return filters[0]
    parts: list[Value] = []
    for filter in filters:
        parts.extend(_parts(filter))
    return encode({"$and": parts})


def _parts(filter: bytes) -> list[bytes]:
    """The operands of a filter that is a single `$and`, else the filter itself."""
    members = fields(filter)
    if len(members) == 1 and members[0][0] == "$and" and isinstance(members[0][1], list):
        parts = [part for part in members[0][1] if isinstance(part, bytes)]
        if len(parts) == len(members[0][1]):
            return parts
    return [filter]


def matched(filters: list[bytes], ctx: ParseContext) -> MatchSpec:
    """A parsed `$match` of several filters, in their order."""
    together = all_of(filters)
    return MatchSpec(together, parse_match(together, ctx))
