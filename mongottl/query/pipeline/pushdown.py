"""Filters on their way forward through a pipeline.

A filter is cut into the parts of its conjunction; each goes before as many stages as leave alone what it looks at, and
its paths are followed through renames. What goes no further becomes one `$match` with whatever stands there already.

`$expr` may fail where a filter does not, so it does not go before another filter that may guard it.
"""

from typing import Final

from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
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
# Conditions without a path that are the same for every document.
_CONSTANT: Final = frozenset(("$comment", "$alwaysTrue", "$alwaysFalse"))


class Conjunct:
    """One part of a filter, as written.

    paths: those that it looks at, None if it may look at anything. expression: whether an `$expr` is in it.
    comparisons: whether it compares with plain values, and nothing else.
    """

    def __init__(self, name: str, value: Value, ctx: ParseContext) -> None:
        self.name: Final = name
        self.value: Final = value
        self.expression = False
        self.comparisons = True
        found: set[str] = set()
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
            written = encode({"": value})
            if b"$rand" in written or b"$meta" in written:
                return False
            needed = parse_expression(value, ctx).dependencies()
            found.update(needed or ())
            return needed is not None
        if name.startswith("$"):
            return name in _CONSTANT
        self.comparisons = self.comparisons and _compares(value)
        found.add(name)
        return True

    def written(self) -> bytes:
        return encode_fields([(self.name, self.value)])

    def before(self, effect: Effect, ctx: ParseContext) -> "Conjunct | None":
        """What to ask before a stage so that this holds behind it; None if that cannot be said."""
        if self.paths is None or (effect.comparisons_only and not self.comparisons):
            return None
        renamed = False
        for path in self.paths:
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


def sink(specs: list[StageSpec], spec: MatchSpec, ctx: ParseContext) -> None:
    """Puts a `$match` that comes behind `specs` as far forward as its parts can go."""
    if not _may_move(specs, len(specs)):
        specs.append(spec)
        return
    parts = conjuncts_of(spec.filter, ctx)
    moving = parts
    place = len(specs)
    while place > 0 and moving:
        before = specs[place - 1]
        staying: list[Conjunct] = []
        passing: list[Conjunct] = []
        if isinstance(before, MatchSpec):
            # Either all of them pass or none: conditions stay in the order of their stages.
            guarded = any(part.expression or part.paths is None for part in moving)
            if guarded or before.requested or not _may_move(specs, place - 1):
                break
            place -= 1
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
                narrowing.append(part.written())
                passing.append(earlier)
                continue
            inner = None if within is None else part.before(within, ctx)
            if inner is None or part.expression:
                staying.append(part)
            else:
                joining.append(inner.written())
        if len(staying) == len(moving):
            break
        if narrowing:
            before = before.narrowed(all_of(narrowing))
        if joining:
            before = before.joining(all_of(joining))
        specs[place - 1] = before
        _put(specs, place, [part.written() for part in staying], ctx)
        moving = passing
        place -= 1
    if moving == parts:
        _put(specs, place, [spec.filter], ctx, spec)
    else:
        _put(specs, place, [part.written() for part in moving], ctx)


def _may_move(specs: list[StageSpec], count: int) -> bool:
    """Whether there is anything that a filter behind the first `count` of these might pass or become one with."""
    if count == 0:
        return False
    last = specs[count - 1]
    return isinstance(last, MatchSpec) or last.known_effect() is not None


def _put(
    specs: list[StageSpec], place: int, filters: list[bytes], ctx: ParseContext, whole: MatchSpec | None = None
) -> None:
    """A `$match` of these filters at a place, one with what filters there. whole: the same, if it is there already."""
    if not filters:
        return
    for i in (place, place - 1):
        neighbour = specs[i] if 0 <= i < len(specs) else None
        if isinstance(neighbour, GatheredMatch):
            neighbour.filters.extend(filters)
            return
        if isinstance(neighbour, MatchSpec) and not neighbour.requested:
            specs[i] = GatheredMatch([neighbour.filter, *filters])
            return
    specs.insert(place, GatheredMatch(filters) if whole is None else whole)


class GatheredMatch(MatchSpec):
    """Filters that have come to stand at one place, not yet parsed as one: others may follow."""

    def __init__(self, filters: list[bytes]) -> None:
        super().__init__(EMPTY_DOCUMENT, AlwaysTrue())
        self.filters: Final = filters


def finish_matches(specs: list[StageSpec], ctx: ParseContext) -> None:
    """Makes ordinary stages of the filters that were gathered."""
    for i in range(len(specs)):
        gathered = specs[i]
        if isinstance(gathered, GatheredMatch):
            specs[i] = matched(gathered.filters, ctx)


def all_of(filters: list[bytes]) -> bytes:
    """One filter that is met where all of these are; those that are such a conjunction come without their `$and`."""
    if len(filters) == 1:
        return filters[0]
    parts: list[Value] = []
    for filter in filters:
        parts.extend(_parts(filter))
    return encode({"$and": parts})


def _parts(filter: bytes) -> list[bytes]:
    """The parts of a filter that is a single `$and`, else the filter."""
    members = fields(filter)
    if len(members) == 1 and members[0][0] == "$and" and isinstance(members[0][1], list):
        parts = [part for part in members[0][1] if isinstance(part, bytes)]
        if len(parts) == len(members[0][1]):
            return parts
    return [filter]


def matched(filters: list[bytes], ctx: ParseContext) -> MatchSpec:
    """One `$match` of several filters, in their order."""
    together = all_of(filters)
    return MatchSpec(together, parse_match(together, ctx))
