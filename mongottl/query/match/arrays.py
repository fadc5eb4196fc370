"""`$size $elemMatch $all`."""

from mypy_extensions import i64

from mongottl.document.collation import Collation
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import whole
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DOCUMENT, INT_MAX, Regex, Value
from mongottl.document.walk import count_fields, cstring_end, first_field_name, get_value, skip_value
from mongottl.query.context import ParseContext
from mongottl.query.match.comparison import equality
from mongottl.query.match.interval import Interval, everything, intersection
from mongottl.query.match.number_errors import element_text, whole_number_fault
from mongottl.query.match.parser import is_operator_document, parse_document, parse_value_operators
from mongottl.query.match.regex import make_regex
from mongottl.query.match.registry import ANY_TYPE, bad_value, match_operator, root_operators
from mongottl.query.match.special import ExprExpression
from mongottl.query.match.tree import (
    AlwaysFalse,
    AndExpression,
    ListExpression,
    MatchExpression,
    NotExpression,
    PathExpression,
    describe_operand,
)
from mongottl.query.match.where import WhereExpression
from mongottl.versions import OLDEST


class SizeExpression(PathExpression):
    """`{path: {$size: n}}`: an array with exactly n elements."""

    def __init__(self, path: FieldPath, size: int) -> None:
        super().__init__(path, traverse_leaf=False)
        self.size = size
        self._size: i64 = i64(size)

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return type_code == ARRAY and count_fields(buf, pos) == self._size

    def describe_operand(self) -> dict[str, Value]:
        return {"$size": self.size}


@match_operator(
    "$size",
    order=20,
    reasons=("array length was not equal to given size", "array length was equal to given size"),
    types=("array",),
    whole_arrays=True,
    since=OLDEST,
)
def parse_size(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$size: n}}`. BadValue if n is not a whole number, or negative."""
    fault = whole_number_fault(operand)
    if fault:
        raise bad_value(f"Failed to parse $size. {fault}: {element_text('$size', operand)}")
    size = whole(operand)
    if size is None or size > INT_MAX:
        raise bad_value(f"Failed to parse $size. Cannot represent in an int: {element_text('$size', operand)}")
    return SizeExpression(path, size)


class ElementsExpression(PathExpression):
    """Base of both forms of `$elemMatch`: matches an array with an element that passes.

    child: the condition. In the object form its paths start at the element, in the value form they are unused.
    """

    def __init__(self, path: FieldPath, child: MatchExpression) -> None:
        super().__init__(path, traverse_leaf=False)
        self.child = child

    def element_matches(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        raise NotImplementedError

    def _first_index(self, buf: bytes, start: i64) -> i64:
        """The index of the first element that passes, or -2."""
        index: i64 = 0
        pos: i64 = start + 4
        while True:
            type_code: i64 = buf[pos]
            if type_code == 0:
                return -2
            pos = cstring_end(buf, pos + 1) + 1
            if self.element_matches(buf, type_code, pos):
                return index
            give_way()
            pos = skip_value(buf, type_code, pos)
            index += 1

    def matches_single(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return type_code == ARRAY and self._first_index(buf, pos) >= 0

    def single_index(self, buf: bytes, type_code: i64, pos: i64) -> i64:
        return self._first_index(buf, pos) if type_code == ARRAY else -2

    def depth(self) -> int:
        return 1 + self.child.depth()


class ElemMatchObjectExpression(ElementsExpression):
    """`{path: {$elemMatch: {b: 1, c: 2}}}`: an element that is a document (or array) and matches the filter.

    For multikey planning: the children's paths, prefixed with this path, must all hold in one element.
    """

    def element_matches(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return (type_code == DOCUMENT or type_code == ARRAY) and self.child.matches_at(buf, pos)

    def describe_operand(self) -> dict[str, Value]:
        return {"$elemMatch": self.child.describe()}

    def simplify(self) -> MatchExpression:
        self.child = self.child.simplify()
        return AlwaysFalse() if isinstance(self.child, AlwaysFalse) else self


class ElemMatchValueExpression(ElementsExpression):
    """`{path: {$elemMatch: {$gt: 1, $lt: 5}}}`: one element that meets all the conditions."""

    def element_matches(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return self.child.matches_single(buf, type_code, pos)

    def describe_operand(self) -> dict[str, Value]:
        return {"$elemMatch": describe_operand(self.child)}

    def simplify(self) -> MatchExpression:
        self.child = self.child.simplify()
        return AlwaysFalse() if isinstance(self.child, AlwaysFalse) else self

    def intervals(self) -> list[Interval] | None:
        """The intersection of all conditions, for one element; never exact, since only arrays match."""
        conditions = self.child.children if isinstance(self.child, AndExpression) else [self.child]
        allowed = [everything(exact=False)]
        for condition in conditions:
            ranges: list[Interval] | None = None
            if isinstance(condition, PathExpression):
                # A nested $elemMatch is about the elements of the element, which have no keys.
                ranges = condition.intervals() if condition.traverse_leaf else None
            elif isinstance(condition, NotExpression):
                ranges = condition.intervals()
            if ranges is not None:
                allowed = intersection(allowed, ranges)
        return allowed

    def add_text_orders(self, orders: list[Collation | None]) -> None:
        give_way()
        self.child.add_text_orders(orders)


@match_operator(
    "$elemMatch",
    order=10,
    reasons=("array did not satisfy the child predicate", "array did satisfy the child predicate"),
    types=("array",),
    whole_arrays=True,
    since=OLDEST,
)
def parse_elem_match(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$elemMatch: {…}}}`: the value form if the first name is a field operator, else the object form.

    BadValue if it is not a document, and for operators on the root document such as `$expr`.
    """
    if not isinstance(operand, bytes):
        raise bad_value("$elemMatch needs an Object")
    first = first_field_name(operand)
    for banned in ("$where", "$text", "$near", "$nearSphere", "$geoNear"):
        if first == banned:
            raise bad_value(f"$elemMatch cannot contain {banned} expression")
    is_value_form = is_operator_document(operand, incomplete_dbref=True) and (
        root_operators.get(first) is None and root_operators.unsupported_reason(first) is None
    )
    if is_value_form:
        return ElemMatchValueExpression(path, parse_value_operators(operand, ctx))
    child = parse_document(operand, ctx)
    if child.index_kinds():
        raise bad_value("$text is not allowed in this context")
    name = _root_only(child)
    if name:
        raise bad_value(f"{name} can only be applied to the top-level document")
    return ElemMatchObjectExpression(path, child)


def _root_only(expression: MatchExpression) -> str:
    """The name of an operator in a filter that only the top-level document may be tested by, or ""."""
    if isinstance(expression, ListExpression):
        for child in expression.children:
            name = _root_only(child)
            if name:
                return name
    if isinstance(expression, WhereExpression):
        return "$where"
    return "$expr" if isinstance(expression, ExprExpression) else ""


@match_operator(
    "$all",
    order=None,
    reasons=("array did not contain all specified values", "array did contain all specified values"),
    types=ANY_TYPE,
    whole_arrays=True,
    since=OLDEST,
)
def parse_all(path: FieldPath, operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{field: {$all: [value or regex, …]}}` or `{field: {$all: [{$elemMatch: …}, …]}}`: matches all of them; an empty
    array matches nothing.

    BadValue if it is not an array, mixes the two forms, or contains other operators.
    """
    if not isinstance(operand, list):
        raise bad_value("$all needs an array")
    if not operand:
        return AlwaysFalse()
    children: list[MatchExpression] = list_for(len(operand))
    if _is_elem_match(operand[0]):
        for entry in operand:
            if not isinstance(entry, bytes) or not _is_elem_match(entry):
                raise bad_value("$all/$elemMatch has to be consistent")
            children.append(parse_elem_match(path, get_value(entry, "$elemMatch"), ctx))
    else:
        for entry in operand:
            if isinstance(entry, Regex):
                children.append(make_regex(path, entry.pattern, entry.options))
            elif isinstance(entry, bytes) and is_operator_document(entry):
                raise bad_value("no $ expressions in $all")
            else:
                children.append(equality(path, entry, ctx))
    return AndExpression(children)


def _is_elem_match(entry: Value) -> bool:
    return isinstance(entry, bytes) and first_field_name(entry) == "$elemMatch"
