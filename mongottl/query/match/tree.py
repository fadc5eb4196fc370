"""The tree of a parsed filter: nodes that match raw documents, give their ranges of values and describe themselves for
explain.

    MatchExpression
    ├── AndExpression, OrExpression, NorExpression   `children`
    ├── NotExpression                                `child`
    ├── AlwaysTrue, AlwaysFalse
    ├── PathExpression                               a leaf on a `path`; the subclasses are in the other modules of this
    package
    └── WholeDocumentExpression                      $expr, $jsonSchema, $sampleRate: without path and ranges

How a path reaches values (MongoDB's "implicit array traversal"), for the filter {"a.b": …}:

    {a: {b: 1}}            1                       {a: [{b: 1}, {b: [2, 3]}]}   1, 2, 3, [2, 3]
    {a: 5}, {}             missing                 {a: [1, [{b: 1}]]}           nothing: no second array level
    {a: [{}, {b: 1}]}      missing, 1              {a: []}                      nothing at all

A numeric component is a field name in documents and an index in arrays; an array that is reached as an element by index
at the end of the path is not traversed. A leaf matches if any of the path's values matches, missing included.

Positions follow `document.walk`: a value is (buf, type code, offset), a document (buf, start). Nodes have no state of
an evaluation, so a tree can be reused; but one that has tested documents ahead belongs to one operation until it has
been asked about them (`test_ahead`).
"""

from typing import Final

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.freeing import LongSet, append_to, freed_in_slices, list_for, put_aside, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_raw
from mongottl.document.long_lists import with_more
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DOCUMENT, Value
from mongottl.document.walk import cstring_end, find_field_at, skip_value
from mongottl.query.match.interval import Interval, complement, everything

# Results of the walk that records positions, besides an array index.
_NO_MATCH: Final = -2
_NO_INDEX: Final = -1

# From this number of children of an `$and` on, equalities on one path are tested together.
MANY_CHILDREN: Final = 16


class MatchDetails:
    """Details of a match.

    array_index: for the positional `$`: the index of the element that matched, in the outermost array that the path
    traversed implicitly; -1 if no array was. Of several leaves under an `$and` the last one that has an index counts,
    in the order of `sort_position`.
    """

    def __init__(self) -> None:
        self.array_index: i64 = -1


class MatchExpression:
    """A node of a filter's tree; subclasses implement the abstract methods."""

    def matches_at(self, buf: bytes, start: i64) -> bool:
        """Whether the document (or array, taken as a document) at `start` matches."""
        raise NotImplementedError

    def matches(self, doc: bytes) -> bool:
        """Whether a root document matches."""
        return self.matches_at(doc, 0)

    def matches_positional_at(self, buf: bytes, start: i64, details: MatchDetails) -> bool:
        """Whether the document at `start` matches; sets `details.array_index` for the positional `$`."""
        return self.matches_at(buf, start)

    def matches_positional(self, doc: bytes, details: MatchDetails) -> bool:
        """Whether a root document matches; sets `details.array_index` for the positional `$`."""
        details.array_index = -1
        return self.matches_positional_at(doc, 0, details)

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        """Whether a value matches, where the first component of every path denotes the value itself.

        For `$pull: {a: {$gt: 3}}` (parsed from {"": {$gt: 3}}) and array filters ({"x.b": 1}: x is the element).
        """
        raise NotImplementedError

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        """Whether a single value matches, ignoring paths and without traversing arrays; used within $elemMatch."""
        raise NotImplementedError

    def describe(self) -> Value:
        """The `parsedQuery` form of explain, as a dict."""
        raise NotImplementedError

    def index_kinds(self) -> tuple[str, ...]:
        """The kinds of index, one of which is needed to evaluate this part of a filter (text search, order by
        distance); () if it can be tested on a document alone."""
        give_way()
        return ()

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        """Adds the collations on which its ranges of values depend (`text_order`); None is the order of bytes."""
        give_way()

    def equality_key(self) -> bytes:
        """For an equality: the KeyString of its operand, if a value matches exactly if its KeyString is equal; else
        empty."""
        return b""

    def simplify(self) -> "MatchExpression":
        """An equivalent tree without redundant nodes; may change this one."""
        give_way()
        return self

    def runs_scripts(self) -> bool:
        """Whether a `$where` is part of it."""
        give_way()
        return False

    def asks_processes(self) -> bool:
        """Whether it asks a process about documents, so that it pays to call `test_ahead` before it is asked about
        them: for many in one request."""
        return False

    def test_ahead(self, documents: list[bytes]) -> None:
        """Prepares for being asked about these documents next, one by one; then `end_ahead` is called."""

    def end_ahead(self) -> None:
        """Lets go what `test_ahead` has found."""

    def depth(self) -> int:
        """The number of levels of the tree; 1 for a leaf."""
        give_way()
        return 1


def _described(expressions: list[MatchExpression]) -> list[Value]:
    described: list[Value] = list_for(len(expressions))
    for expression in expressions:
        described.append(expression.describe())
    return described


def describe_operand(expression: MatchExpression) -> dict[str, Value]:
    """The operator document of a leaf, or of leaves on one path: {"$gt": 1, "$lt": 5}."""
    if isinstance(expression, PathExpression):
        return expression.describe_operand()
    if isinstance(expression, NotExpression):
        return {"$not": describe_operand(expression.child)}
    operand: dict[str, Value] = {}
    if isinstance(expression, AndExpression):
        for child in expression.children:
            operand.update(describe_operand(child))
    return operand


def path_of(expression: MatchExpression) -> FieldPath | None:
    """The path that all leaves of an expression share; None if they have different paths or none."""
    if isinstance(expression, PathExpression):
        return expression.path
    if isinstance(expression, NotExpression):
        return path_of(expression.child)
    if isinstance(expression, AndExpression) and expression.children:
        first = path_of(expression.children[0])
        for child in expression.children:
            path = path_of(child)
            if path is None or first is None or path.dotted != first.dotted:
                return None
        return first
    return None


# MongoDB's order of the leaves beneath an `$and`, on which the positional `$` depends: the place of each operator, the
# `order` of its `@match_operator`. Leaves with the same place are sorted by path. Places are multiples of ten, so that
# others fit between them.
leaf_order: Final[dict[str, int]] = {}
# The place after all others, which several operators share.
LAST: Final = 1000


def sort_position(expression: MatchExpression) -> tuple[int, str]:
    """The sort key of a child of an `$and` in MongoDB's order: position of its operator, then its path.

    Other nodes than leaves on paths all sort first; they record no array index, so their order does not matter.
    """
    if not isinstance(expression, PathExpression):
        return -1, ""
    for name in expression.describe_operand():
        return leaf_order.get(name, LAST), expression.path.dotted
    return LAST, expression.path.dotted


class ListExpression(MatchExpression):
    """Base of `$and`, `$or` and `$nor`."""

    def __init__(self, children: list[MatchExpression]) -> None:
        give_way()
        self.children = freed_in_slices(children)

    def name(self) -> str:
        raise NotImplementedError

    def describe(self) -> Value:
        return {self.name(): _described(self.children)}

    def index_kinds(self) -> tuple[str, ...]:
        for child in self.children:
            kinds = child.index_kinds()
            if kinds:
                return kinds
        return ()

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        give_way()
        for child in self.children:
            child.add_text_orders(orders)

    def runs_scripts(self) -> bool:
        return any(child.runs_scripts() for child in self.children)

    def asks_processes(self) -> bool:
        return len(self.children) <= MANY_CHILDREN and any(child.asks_processes() for child in self.children)

    def test_ahead(self, documents: list[bytes]) -> None:
        for child in self.children:
            if child.asks_processes() and not child.runs_scripts():
                child.test_ahead(documents)

    def end_ahead(self) -> None:
        for child in self.children:
            child.end_ahead()

    def depth(self) -> int:
        deepest = 0
        for child in self.children:
            deepest = max(deepest, child.depth())
        return 1 + deepest


class AndExpression(ListExpression):
    """All children match. Without children it is true: the empty filter.

    With many children (`$all`) the equalities on one path are tested together: the path is walked once for all of them.

    explicit: whether the filter contains it as `$and`. Otherwise it combines the fields of a filter, and does not count
    as a level in `depth`.
    """

    def __init__(self, children: list[MatchExpression], explicit: bool = True) -> None:
        super().__init__(children)
        self.explicit = explicit
        self._sorted: list[MatchExpression] | None = None
        self._parts: AndParts | None = None

    def depth(self) -> int:
        return super().depth() if self.explicit else super().depth() - 1

    def name(self) -> str:
        return "$and"

    def matches_at(self, buf: bytes, start: i64) -> bool:
        if len(self.children) > MANY_CHILDREN:
            return self._divided().match_at(buf, start)
        return all(child.matches_at(buf, start) for child in self.children)

    def _divided(self) -> "AndParts":
        parts = self._parts
        if parts is None or parts.count != len(self.children):
            parts = AndParts(self.children)
            self._parts = parts
        return parts

    def _in_sorted_order(self) -> list[MatchExpression]:
        """The children in MongoDB's order, so that the array to which `$` applies does not depend on the order in the
        filter."""
        ordered = self._sorted
        if ordered is None or len(ordered) != len(self.children):
            ordered = sorted(self.children, key=sort_position)
            self._sorted = ordered
        return ordered

    def matches_positional_at(self, buf: bytes, start: i64, details: MatchDetails) -> bool:
        ordered = self._in_sorted_order()
        if len(ordered) > MANY_CHILDREN:
            if not self._divided().match_at(buf, start):
                details.array_index = -1
                return False
            before = details.array_index
            details.array_index = -1
            position = len(ordered) - 1
            while position >= 0 and details.array_index < 0:
                ordered[position].matches_positional_at(buf, start, details)
                position -= 1
            if details.array_index < 0:
                details.array_index = before
            return True
        for child in ordered:
            if not child.matches_positional_at(buf, start, details):
                details.array_index = -1
                return False
        return True

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if len(self.children) > MANY_CHILDREN:
            return self._divided().match_value(buf, type_code, pos)
        return all(child.matches_value(buf, type_code, pos) for child in self.children)

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return all(child.matches_single(buf, type_code, pos) for child in self.children)

    def test_ahead(self, documents: list[bytes]) -> None:
        """Only documents that pass the conditions before it are tested ahead by a child, as without this."""
        asking = [i for i in range(len(self.children)) if self.children[i].asks_processes()]
        for i in range(asking[-1] + 1):
            child = self.children[i]
            if i in asking:
                child.test_ahead(documents)
                if child.runs_scripts():
                    return
            if i < asking[-1]:
                documents = [document for document in documents if child.matches(document)]

    def describe(self) -> Value:
        if not self.children:
            return {}
        return {"$and": _described(self.children)}

    def simplify(self) -> MatchExpression:
        children = self.children
        count = len(children)
        # The children stay a list of their own while each is as simple as can be, as most are.
        flat = children
        kept = 0
        for child in children:
            simple = child.simplify()
            if isinstance(simple, AlwaysFalse):
                return simple
            if simple is child and flat is children and not isinstance(simple, (AndExpression, AlwaysTrue)):
                kept += 1
                continue
            if flat is children:
                if count == 1 and isinstance(simple, AndExpression):
                    self._parts = simple._parts
                    flat = simple.children
                    break
                flat = with_more(list_for(count), children[:kept])
            if isinstance(simple, AndExpression):
                flat = with_more(flat, simple.children)
            elif not isinstance(simple, AlwaysTrue):
                flat.append(simple)
        if len(flat) == 1:
            return flat[0]
        scripts: list[MatchExpression] = []
        for child in flat:
            give_way()
            if child.runs_scripts():
                scripts.append(child)
        if scripts:  # last, as in MongoDB: they may count on the other conditions
            flat = with_more(_others_than(scripts, flat), scripts)
        self.children = freed_in_slices(flat)
        if len(flat) > MANY_CHILDREN:
            self._divided()  # made here, where other operations can run in between
        return self


class OrExpression(ListExpression):
    """At least one child matches.

    Records no array index, as mongod does not, unless it is an `$in` in another form: only equalities on one path. With
    many children the equalities on one path are tested together.
    """

    def __init__(self, children: list[MatchExpression]) -> None:
        super().__init__(children)
        self._tests: list[MatchExpression] = []
        self._tested = -1

    def name(self) -> str:
        return "$or"

    def tests(self) -> list[MatchExpression]:
        """Expressions of which one matches exactly if one of the children does."""
        if len(self.children) <= MANY_CHILDREN:
            return self.children
        if self._tested != len(self.children):
            self._tests = combined_equalities(self.children)
            self._tested = len(self.children)
        return self._tests

    def _is_in(self) -> bool:
        """Whether all children are equalities on the same path."""
        path = ""
        for child in self.children:
            if not isinstance(child, PathExpression) or not child.traverse_leaf or not child.equality_key():
                return False
            if path and child.path.dotted != path:
                return False
            path = child.path.dotted
        return True

    def matches_positional_at(self, buf: bytes, start: i64, details: MatchDetails) -> bool:
        if not self._is_in():
            return self.matches_at(buf, start)
        matched = False
        before = details.array_index
        first: i64 = -1
        for child in self.children:
            details.array_index = -1
            if not child.matches_positional_at(buf, start, details):
                continue
            matched = True
            found: i64 = details.array_index
            if found >= 0 and (first < 0 or found < first):
                first = found
        details.array_index = before if first < 0 else int(first)
        return matched

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return any(child.matches_at(buf, start) for child in self.tests())

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return any(child.matches_value(buf, type_code, pos) for child in self.tests())

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return any(child.matches_single(buf, type_code, pos) for child in self.tests())

    def simplify(self) -> MatchExpression:
        children = self.children
        flat = children
        kept = 0
        for child in children:
            simple = child.simplify()
            if always_true(simple):
                return AndExpression([])
            if simple is child and flat is children and not isinstance(simple, (OrExpression, AlwaysFalse)):
                kept += 1
                continue
            if flat is children:
                flat = with_more(list_for(len(children)), children[:kept])
            if isinstance(simple, OrExpression):
                flat = with_more(flat, simple.children)
            elif not isinstance(simple, AlwaysFalse):
                flat.append(simple)
        if not flat:
            return AlwaysFalse()
        if len(flat) == 1:
            return flat[0]
        self.children = freed_in_slices(flat)
        self.tests()  # made here, where other operations can run in between
        return self


class NorExpression(ListExpression):
    """No child matches."""

    def __init__(self, children: list[MatchExpression]) -> None:
        super().__init__(children)
        # At least one child matches.
        self._any = OrExpression(self.children)

    def name(self) -> str:
        return "$nor"

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return not self._any.matches_at(buf, start)

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return not self._any.matches_value(buf, type_code, pos)

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return not self._any.matches_single(buf, type_code, pos)

    def simplify(self) -> MatchExpression:
        kept: list[MatchExpression] = list_for(len(self.children))
        for child in self.children:
            simple = child.simplify()
            if always_true(simple):
                return AlwaysFalse()
            if not isinstance(simple, AlwaysFalse):
                kept.append(simple)
        if not kept:
            return AndExpression([])
        self.children = kept
        self._any = OrExpression(kept)
        self._any.tests()
        return self


class NotExpression(MatchExpression):
    """The child does not match: over the whole path, so that `$ne` means "no value that the path reaches equals"."""

    def __init__(self, child: MatchExpression) -> None:
        self.child = child

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return not self.child.matches_at(buf, start)

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return not self.child.matches_value(buf, type_code, pos)

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return not self.child.matches_single(buf, type_code, pos)

    def describe(self) -> Value:
        give_way()
        path = path_of(self.child)
        if path is None:
            described: list[Value] = [self.child.describe()]
            return {"$nor": described}
        return {path.dotted: {"$not": describe_operand(self.child)}}

    def simplify(self) -> MatchExpression:
        child = self.child.simplify()
        if isinstance(child, AlwaysFalse):
            return AndExpression([])
        if always_true(child):
            return AlwaysFalse()
        self.child = child
        return self

    def depth(self) -> int:
        return 1 + self.child.depth()

    def intervals(self) -> list[Interval] | None:
        """The ranges outside which this cannot match, for the path that `path_of` returns; None if unknown."""
        child = self.child
        if isinstance(child, NotExpression):
            return None
        if not isinstance(child, PathExpression):
            return None
        intervals = child.intervals()
        return None if intervals is None else complement(intervals)

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        self.child.add_text_orders(orders)


class AlwaysTrue(MatchExpression):
    """`{$alwaysTrue: 1}`, and expressions that simplify to it."""

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return True

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return True

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return True

    def describe(self) -> Value:
        return {"$alwaysTrue": 1}


class AlwaysFalse(MatchExpression):
    """`{$alwaysFalse: 1}`, and expressions that simplify to it, such as `{a: {$in: []}}`."""

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return False

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return False

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return False

    def describe(self) -> Value:
        return {"$alwaysFalse": 1}


def always_true(expression: MatchExpression) -> bool:
    """Whether an expression is known to match everything."""
    return isinstance(expression, AlwaysTrue) or (isinstance(expression, AndExpression) and not expression.children)


class WholeDocumentExpression(MatchExpression):
    """A test of the whole document; single values that are not documents do not match."""

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return type_code == DOCUMENT and self.matches_at(buf, pos)

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return type_code == DOCUMENT and self.matches_at(buf, pos)


class PathExpression(MatchExpression):
    """A leaf: a test of the values at a path.

    traverse_leaf: whether the elements of an array at the end of the path are tested, and then the array itself;
    `$size` and `$elemMatch` test only the array. A path with a dot at its end, `a.`, ends at an array `a`; in a
    document it goes on to a field without a name.
    """

    def __init__(self, path: FieldPath, traverse_leaf: bool = True) -> None:
        give_way()
        self.path = path
        self.traverse_leaf = traverse_leaf
        self._depth: i64 = path.depth
        self._first: bytes = path.part_bytes[0]
        self._names: list[bytes] = path.part_bytes
        self._indexes: list[int] = path.indexes
        # For arrays: the component at which the path has ended, before a dot at its end. Otherwise none.
        self._dot_at: i64 = -1
        if path.depth > 1 and not path.part_bytes[-1]:
            self._dot_at = path.depth - 1

    def intervals(self) -> list[Interval] | None:
        """Ascending, disjoint ranges outside which this leaf cannot match, see `interval`. None if unknown."""
        return [everything(exact=False)]

    def describe_operand(self) -> dict[str, Value]:
        """The operator document of this leaf: {"$eq": 1}."""
        raise NotImplementedError

    def describe(self) -> Value:
        give_way()
        return {self.path.dotted: self.describe_operand()}

    def matches_at(self, buf: bytes, start: i64) -> bool:
        give_way()
        if self._depth != 1:
            return self._walk(buf, start, 0)
        type_code, pos = find_field_at(buf, start, self._first)
        if type_code == ARRAY and self.traverse_leaf:
            return self._any_element(buf, pos)
        return self.matches_single(buf, type_code, pos)

    def matches_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return self._from_value(buf, type_code, pos, 1)

    def _any_element(self, buf: bytes, start: i64) -> bool:
        """Whether an element of the array at the end of the path, or the array itself, matches."""
        pos: i64 = start + 4
        while True:
            type_code: i64 = buf[pos]
            if type_code == 0:
                return self.matches_single(buf, ARRAY, start)
            give_way()
            pos = cstring_end(buf, pos + 1) + 1
            if self.matches_single(buf, type_code, pos):
                return True
            pos = skip_value(buf, type_code, pos)

    def _walk(self, buf: bytes, start: i64, part: i64) -> bool:
        """Matches the path's components from `part` on within the document at `start`."""
        while True:
            type_code, pos = find_field_at(buf, start, self._names[part])
            part += 1
            if type_code != DOCUMENT or part == self._depth:
                return self._from_value(buf, type_code, pos, part)
            start = pos

    def _from_value(self, buf: bytes, type_code: i64, pos: i64, part: i64) -> bool:
        """Matches the components from `part` on, starting from the value at the components before it."""
        if part == self._depth:
            if type_code == ARRAY and self.traverse_leaf:
                return self._any_element(buf, pos)
            return self.matches_single(buf, type_code, pos)
        if type_code == DOCUMENT:
            return self._walk(buf, pos, part)
        if type_code == ARRAY:
            return self._within_array(buf, pos, part)
        return self.matches_single(buf, 0, -1)

    def _within_array(self, buf: bytes, start: i64, part: i64) -> bool:
        if part == self._dot_at:
            return self._from_value(buf, ARRAY, start, self._depth)
        wanted: i64 = i64(self._indexes[part])
        last = part + 1 == self._depth
        index: i64 = 0
        pos: i64 = start + 4
        while True:
            type_code: i64 = buf[pos]
            if type_code == 0:
                return False
            give_way()
            pos = cstring_end(buf, pos + 1) + 1
            if type_code == DOCUMENT and self._walk(buf, pos, part):
                return True
            if index == wanted:
                if last:
                    if self.matches_single(buf, type_code, pos):
                        return True
                elif type_code == DOCUMENT:
                    if self._walk(buf, pos, part + 1):
                        return True
                elif type_code == ARRAY and self._within_array(buf, pos, part + 1):
                    return True
            pos = skip_value(buf, type_code, pos)
            index += 1

    # The walk that also returns the array index; separate from the plain one, which is faster.

    def matches_positional_at(self, buf: bytes, start: i64, details: MatchDetails) -> bool:
        index = self._index_walk(buf, start, 0)
        if index == _NO_MATCH:
            return False
        if index != _NO_INDEX:
            details.array_index = index
        return True

    def single_index(self, buf: bytes, type_code: i64, pos: i64) -> i64:
        """-2 if the value does not match, else the array index found by the test itself ($elemMatch), or -1."""
        return _NO_INDEX if self.matches_single(buf, type_code, pos) else _NO_MATCH

    def _index_walk(self, buf: bytes, start: i64, part: i64) -> i64:
        type_code, pos = find_field_at(buf, start, self._names[part])
        part += 1
        if part == self._depth:
            if type_code == ARRAY and self.traverse_leaf:
                return self._index_of_element(buf, pos)
            return self.single_index(buf, type_code, pos)
        if type_code == DOCUMENT:
            return self._index_walk(buf, pos, part)
        if type_code == ARRAY:
            return self._index_within_array(buf, pos, part)
        return self.single_index(buf, 0, -1)

    def _index_of_element(self, buf: bytes, start: i64) -> i64:
        index: i64 = 0
        pos: i64 = start + 4
        while True:
            type_code: i64 = buf[pos]
            if type_code == 0:
                return self.single_index(buf, ARRAY, start)
            pos = cstring_end(buf, pos + 1) + 1
            if self.matches_single(buf, type_code, pos):
                return index
            pos = skip_value(buf, type_code, pos)
            index += 1

    def _index_within_array(self, buf: bytes, start: i64, part: i64) -> i64:
        if part == self._dot_at:
            return self._index_of_element(buf, start) if self.traverse_leaf else self.single_index(buf, ARRAY, start)
        wanted: i64 = i64(self._indexes[part])
        last = part + 1 == self._depth
        index: i64 = 0
        pos: i64 = start + 4
        while True:
            type_code: i64 = buf[pos]
            if type_code == 0:
                return _NO_MATCH
            pos = cstring_end(buf, pos + 1) + 1
            if type_code == DOCUMENT and self._index_walk(buf, pos, part) != _NO_MATCH:
                return index
            if index == wanted:
                # A component that is an index is not an implicit traversal: the array index comes from the levels
                # below.
                below: i64 = _NO_MATCH
                if last:
                    below = self.single_index(buf, type_code, pos)
                elif type_code == DOCUMENT:
                    below = self._index_walk(buf, pos, part + 1)
                elif type_code == ARRAY:
                    below = self._index_within_array(buf, pos, part + 1)
                if below != _NO_MATCH:
                    return below
            pos = skip_value(buf, type_code, pos)
            index += 1


class ReachedKeys(PathExpression):
    """Collects during one evaluation which of the wanted KeyStrings occur at a path; matches when all do."""

    def __init__(self, path: FieldPath, wanted: set[bytes]) -> None:
        super().__init__(path)
        self._wanted = wanted
        self._found: set[bytes] = set_for(len(wanted))

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != 0:
            key = encode_raw(buf, type_code, pos)
            if key in self._wanted:
                self._found.add(key)
        return len(self._found) == len(self._wanted)


class AnyEquality(PathExpression):
    """Whether a value at a path equals one of many. keys: their KeyStrings (`MatchExpression.equality_key`)."""

    def __init__(self, path: FieldPath, keys: set[bytes]) -> None:
        super().__init__(path)
        self._keys = keys

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return type_code != 0 and encode_raw(buf, type_code, pos) in self._keys


def combined_equalities(children: list[MatchExpression]) -> list[MatchExpression]:
    """The children of an `$or`, with one AnyEquality in place of many equalities on one path."""
    by_path: dict[str, list[PathExpression]] = {}
    tests: list[MatchExpression] = list_for(len(children))
    for child in children:
        give_way()
        if isinstance(child, PathExpression) and child.traverse_leaf and child.equality_key():
            append_to(by_path, child.path.dotted, child)
        else:
            tests.append(child)
    for equalities in by_path.values():
        give_way()
        if len(equalities) <= MANY_CHILDREN:
            tests.extend(equalities)
            continue
        keys: set[bytes] = LongSet()
        for equality in equalities:
            give_way()
            keys.add(equality.equality_key())
        tests.append(AnyEquality(equalities[0].path, keys))
    put_aside(by_path)
    return tests


def _others_than(some: list[MatchExpression], expressions: list[MatchExpression]) -> list[MatchExpression]:
    """The expressions that are not among some of them, in their order."""
    known: set[MatchExpression] = set(some)
    others: list[MatchExpression] = list_for(len(expressions))
    for expression in expressions:
        give_way()
        if expression not in known:
            others.append(expression)
    return others


class AndParts:
    """The children of an `$and`, divided into sets of many equalities on one path, as KeyStrings, and the others.

    firsts: one of the equalities of each path, tested first, since most documents fail it.
    """

    def __init__(self, children: list[MatchExpression]) -> None:
        self.count = len(children)
        by_path: dict[str, list[MatchExpression]] = {}
        self._others: list[MatchExpression] = list_for(len(children))
        for child in children:
            give_way()
            if isinstance(child, PathExpression) and child.traverse_leaf and child.equality_key():
                append_to(by_path, child.path.dotted, child)
            else:
                self._others.append(child)
        self._firsts: list[MatchExpression] = []
        self._paths: list[FieldPath] = []
        self._wanted: list[set[bytes]] = []
        for equalities in by_path.values():
            give_way()
            first = equalities[0]
            if len(equalities) <= MANY_CHILDREN or not isinstance(first, PathExpression):
                self._others.extend(equalities)
                continue
            self._firsts.append(first)
            self._paths.append(first.path)
            wanted: set[bytes] = LongSet()
            for equality in equalities:
                give_way()
                wanted.add(equality.equality_key())
            self._wanted.append(wanted)
        put_aside(by_path)

    def match_at(self, buf: bytes, start: i64) -> bool:
        for child in self._others:
            give_way()
            if not child.matches_at(buf, start):
                return False
        for i in range(len(self._firsts)):
            if not self._firsts[i].matches_at(buf, start):
                return False
            if not ReachedKeys(self._paths[i], self._wanted[i]).matches_at(buf, start):
                return False
        return True

    def match_value(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        for child in self._others:
            give_way()
            if not child.matches_value(buf, type_code, pos):
                return False
        for i in range(len(self._firsts)):
            if not self._firsts[i].matches_value(buf, type_code, pos):
                return False
            if not ReachedKeys(self._paths[i], self._wanted[i]).matches_value(buf, type_code, pos):
                return False
        return True
