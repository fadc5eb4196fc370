"""Parses projection specifications.

    {a: 1, "b.c": true}            inclusion             {a: 0, "b.c": false}      exclusion
    {a: {b: 1}}                    means {"a.b": 1}
    {s: {$add: ["$a", 1]}, t: "x"} computed fields: part of an inclusion
    {l: {$slice: 2}}, {l: {$elemMatch: {…}}}, {"l.$": 1}      `find` and `findAndModify` only

`_id` is included unless excluded by name, in inclusions and exclusions. Error codes are mongod's.
"""

from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import clamp_to_long, is_nan
from mongottl.document.path import check_field_path
from mongottl.document.render import render_value
from mongottl.document.types import Value, is_number, type_code_of, type_name
from mongottl.document.walk import count_fields, fields, first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr import parse_expression
from mongottl.query.expr.base import EXPRESSIONS
from mongottl.query.match import check_operators, parse_condition
from mongottl.query.projection.arrays import Positional, SliceNode
from mongottl.query.projection.nodes import COMPUTED, ELEM_MATCH, EXCLUDE, INCLUDE, NODE, Entry, ProjectionNode
from mongottl.query.projection.plan import Projection, RootProjection, TreeProjection


def parse_projection(spec: bytes, ctx: ParseContext, for_find: bool, filter: bytes = EMPTY_DOCUMENT) -> Projection:
    """The projection of a `find` or `findAndModify` (for_find), or of a `$project` stage.

    filter: of the command; with the positional operator it may only contain plain operators (`match.allowed`).

    Raises CommandError: path collisions 31249 and 31250, mixed kinds 31253 and 31254, computed fields in an exclusion
    31252 and 31310, positional rules 31256, 31271, 31276, 31287, 31308, 31324, 31394 and 31395, `$elemMatch` 31255,
    31274 and 31275, and in a stage InvalidPipelineOperator (168), empty sub-documents 51270, paths 15998, 16410, 40352
    and 40353, and errors of expressions.
    """
    parser = ProjectionParser(ctx, for_find, filter)
    for name, value in fields(spec):
        parser.add(name, value)
    return parser.finish(spec)


def _is_true(value: Value) -> bool:
    """Whether a number or bool includes a field: NaN does, zero of any type does not."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value != 0
    return is_nan(value) or clamp_to_long(value) != 0


class ProjectionParser:
    """Collects the entries of one specification.

    inclusive: None until an entry decides it.
    """

    def __init__(self, ctx: ParseContext, for_find: bool, filter: bytes = EMPTY_DOCUMENT) -> None:
        self.ctx = ctx
        self.filter = filter
        self.for_find = for_find
        self.root = ProjectionNode()
        self.positional: Positional | None = None
        self.slices: SliceNode | None = None
        self.inclusive: bool | None = None
        self.id_included: bool = False
        self.has_elem_match: bool = False
        self.has_computed: bool = False
        self.has_meta: bool = False

    def add(self, path: str, value: Value) -> None:
        """Adds an entry; for a nested document of entries, adds each under the longer path."""
        give_way()
        positional = path.endswith(".$")
        if positional and not self.for_find:
            raise CommandError(31324, "Cannot use positional projection in aggregation projection")
        if isinstance(value, bytes):
            if positional:
                raise CommandError(31271, "positional projection cannot be used with an expression or sub object")
            if is_empty(value):
                raise CommandError(
                    51270, f"An empty sub-projection is not a valid value. Found empty object at path {path}"
                )
            check_field_path(path)
            operator = first_field_name(value)
            if operator.startswith("$") and count_fields(value, 0) == 1 and self._add_operator(path, operator, value):
                return
            for name, member in fields(value):
                self.add(f"{path}.{name}", member)
        elif isinstance(value, bool) or is_number(value):
            if positional or (self.for_find and ".$." in path):
                self._add_positional(path, _is_true(value))
            elif _is_true(value):
                self._add_inclusion(path)
            else:
                self._add_exclusion(path)
        else:
            if positional:
                raise CommandError(31308, "positional projection cannot be used with a literal")
            if self.inclusive is False:
                raise CommandError(
                    31310, f"Cannot use an expression {path}: {render_value(value)} in an exclusion projection"
                )
            self._add_computed(path, value)

    def _add_inclusion(self, path: str) -> None:
        self._put(path, INCLUDE)
        if path == "_id":
            self.id_included = True
        else:
            if self.inclusive is False:
                raise CommandError(31253, f"Cannot do inclusion on field {path} in exclusion projection")
            self.inclusive = True

    def _add_exclusion(self, path: str) -> None:
        self._put(path, EXCLUDE)
        if path != "_id":
            if self.inclusive is True:
                raise CommandError(31254, f"Cannot do exclusion on field {path} in inclusion projection")
            self.inclusive = False

    def _add_computed(self, path: str, value: Value) -> None:
        entry = self._put(path, COMPUTED)
        entry.expression = parse_expression(value, self.ctx)
        self.inclusive = True
        self.has_computed = True

    def _add_operator(self, path: str, operator: str, value: bytes) -> bool:
        """Adds an entry `{path: {<operator>: …}}`. False if the name is not an operator, but a field of a DBRef."""
        if self.for_find and operator == "$elemMatch":
            self._add_elem_match(path, value)
            return True
        if self.for_find and operator == "$slice" and self._add_slice(path, value):
            return True
        if operator == "$elemMatch":
            raise CommandError(
                ErrorCode.InvalidPipelineOperator, "Cannot use $elemMatch projection in aggregation projection"
            )
        if operator == "$meta":
            entry = self._put(path, COMPUTED)
            entry.expression = parse_expression(value, self.ctx)
            self.has_computed = True
            self.has_meta = True
            return True
        is_known = EXPRESSIONS.get(operator) is not None or EXPRESSIONS.unsupported_reason(operator) is not None
        if not is_known and self.ctx.features is not None:
            is_known = self.ctx.features.keeps(EXPRESSIONS.kind, operator)
        if not is_known or self.ctx.lacks(EXPRESSIONS.kind, operator):
            try:
                check_field_path(operator)
            except CommandError:
                what_helps = EXPRESSIONS.advice(self.ctx.features, operator)
                raise CommandError(31325, f"Unknown expression {operator}", advice=what_helps) from None
            return False
        if self.inclusive is False:
            raise CommandError(31252, "Cannot use expression other than $meta in exclusion projection")
        self._add_computed(path, value)
        return True

    def _add_elem_match(self, path: str, value: bytes) -> None:
        if self.positional is not None:
            raise CommandError(31255, "Cannot specify positional operator and $elemMatch.")
        if "." in path:
            raise CommandError(31275, "Cannot use $elemMatch projection on a nested field.")
        operand = fields(value)[0][1]
        if not isinstance(operand, bytes):
            raise CommandError(
                31274,
                f"elemMatch: Invalid argument, object required, but got {type_name(type_code_of(operand))}",
            )
        check_operators(operand, plain=True)
        entry = self._put(path, ELEM_MATCH)
        entry.condition = parse_condition(encode({path: {"$elemMatch": operand}}), self.ctx)
        self.has_elem_match = True
        self.has_computed = True

    def _add_slice(self, path: str, value: bytes) -> bool:
        """Adds an entry for find's `$slice`; False if it is the expression `$slice`.

        If find's `$slice` is refused, also for a path collision, the error of the expression is raised.
        """
        argument = fields(value)[0][1]
        reason = "Location31273: $slice only supports numbers and [skip, limit] arrays"
        skip = 0
        limit = 0
        is_valid = False
        if is_number(argument):
            limit = clamp_to_long(argument)
            skip = min(limit, 0)
            is_valid = True
        elif isinstance(argument, list):
            reason = "Location31272: $slice array argument should be of form [skip, limit]"
            if len(argument) == 2 and is_number(argument[0]) and is_number(argument[1]):
                skip = clamp_to_long(argument[0])
                limit = clamp_to_long(argument[1])
                reason = "Location31274: $slice limit must be positive"
                is_valid = limit > 0
        if is_valid:
            try:
                self._put(path, INCLUDE)
                if self.slices is None:
                    self.slices = SliceNode()
                self.slices.add(path, skip, abs(limit))
                return True
            except CommandError as error:
                reason = f"Location{int(error.code)}: {error.message}"
        try:
            parse_expression(value, self.ctx)
        except CommandError as error:
            raise CommandError(
                error.code,
                f"Invalid $slice syntax. The given syntax {render_value(value)} did not match the find() syntax "
                f"because :: {reason} :: The given syntax did not match the expression $slice syntax. :: caused by :: "
                f"{error.message}",
            ) from None
        return False

    def _add_positional(self, path: str, included: bool) -> None:
        if self.positional is not None:
            raise CommandError(31276, "Cannot specify more than one positional projection per query.")
        if self.has_elem_match:
            raise CommandError(31256, "Cannot specify positional operator and $elemMatch.")
        if not path.endswith(".$"):
            raise CommandError(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path. Positional projection "
                "may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, "
                "remove the parts following the '$' and the results will be equivalent.",
            )
        array_path = path[:-2]
        if array_path.endswith(".$") or ".$." in array_path:
            raise CommandError(31287, f"Cannot use positional operator twice: '{path}'.")
        if not included or self.inclusive is False:
            raise CommandError(31395, "positional projection cannot be used with exclusion")
        check_operators(self.filter, plain=True)
        self.inclusive = True
        self._put(array_path, INCLUDE)
        features = self.ctx.features
        is_defective = features is not None and features.projects_no_element()
        self.positional = Positional(array_path, is_defective)

    def _put(self, path: str, kind: int) -> Entry:
        """A new entry at a path. 31249 and 31250 if the path collides with that of another entry."""
        check_field_path(path)
        parts = path.split(".")
        node = self.root
        for depth in range(len(parts) - 1):
            entry = node.get(parts[depth])
            if entry is None:
                entry = Entry(parts[depth], NODE)
                entry.node = ProjectionNode()
                node.add(entry)
            below = entry.node
            if below is None:
                raise CommandError(31249, f"Path collision at {path} remaining portion {'.'.join(parts[depth + 1 :])}")
            node = below
        last = parts[len(parts) - 1]
        if node.get(last) is not None:
            raise CommandError(31250, f"Path collision at {path}")
        entry = Entry(last, kind)
        node.add(entry)
        return entry

    def _is_inclusion_by_default(self) -> bool:
        """Whether a projection is an inclusion whose entries are only `_id` and operators that decide nothing."""
        if self.slices is not None:
            return self.id_included
        if self.has_elem_match or (self.has_meta and not self.for_find):
            return True
        return self.id_included

    def finish(self, spec: bytes) -> Projection:
        """The projection of all entries."""
        inclusive = self.inclusive
        if inclusive is None:
            inclusive = self._is_inclusion_by_default()
        if is_empty(spec):
            return Projection(spec, "exclusion")
        root = self.root
        id_entry = root.get("_id")
        if inclusive:
            if id_entry is None:
                root.add_first(Entry("_id", INCLUDE))
            elif id_entry.kind == EXCLUDE:
                root.remove(id_entry)
        kind = "inclusion" if inclusive else "exclusion"
        has_cuts = self.positional is not None or self.slices is not None
        if not has_cuts and not self.has_computed and all(entry.kind != NODE for entry in root.entries):
            names: list[str] = list_for(len(root.entries))
            for entry in root.entries:
                give_way()
                if (entry.kind == INCLUDE) == inclusive:
                    names.append(entry.name)
            return RootProjection(spec, names, inclusive)
        root.finish(inclusive)
        projection = TreeProjection(spec, kind, root, self.positional, self.slices)
        projection.needs_positional = self.positional is not None
        projection.is_simple = not has_cuts and not self.has_computed
        return projection
