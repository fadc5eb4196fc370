"""What commands need to parse a query: the parse context, `let`, `$natural` sorts, metadata."""

from functools import partial
from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.view import View
from mongottl.document.build import EMPTY_DOCUMENT
from mongottl.document.compare import compare_values
from mongottl.document.types import Value, is_number
from mongottl.document.walk import ElementCursor, fields, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.views import view_collation
from mongottl.query.collation import parse_collation
from mongottl.query.context import ParseContext
from mongottl.query.metadata import SORT_KEY, check_available
from mongottl.query.sort import SortPattern

_RUNTIME_CONSTANTS: Final = ("NOW", "CLUSTER_TIME", "JS_SCOPE", "IS_MR", "USER_ROLES")


def context_of(
    op: OperationContext, name: str, let: bytes = EMPTY_DOCUMENT, collation: bytes = EMPTY_DOCUMENT
) -> ParseContext:
    """The parse context of a command: the operation's time, its collation, and the values of its `let` variables.

    collation: the command's; if empty, that of the collection or view applies.
    """
    context = _context_without_collation(op, f"{op.database}.{name}")
    if not is_empty(collation):
        context.collation = parse_collation(collation)
    else:
        collection = op.catalog.find(op.database, name)
        if isinstance(collection, View):
            context.collation = view_collation(collection)
        elif collection is not None:
            context.collation = collection.collation
    if not is_empty(let):
        context.let = op.compute(partial(evaluate_let, let, context))
    return context


def context_for(op: OperationContext, collection: Collection, let: bytes) -> ParseContext:
    """`context_of` a command on this collection that has no collation of its own."""
    context = _context_without_collation(op, collection.namespace)
    context.collation = collection.collation
    if not is_empty(let):
        context.let = op.compute(partial(evaluate_let, let, context))
    return context


def _context_without_collation(op: OperationContext, namespace: str) -> ParseContext:
    context = ParseContext(op.now_ms, None, namespace, timestamps=op.service.timestamps, cluster_time=op.cluster_time)
    context.keeps_empty_timestamps = op.write_options.keeps_empty_timestamps
    context.open_scripts = op.open_scripts
    context.features = op.service.features
    return context


def timeless_context_of(op: OperationContext, name: str, collation: bytes) -> ParseContext:
    """The parse context of commands whose filters have no `$$NOW`, `$$CLUSTER_TIME` and `let` variables."""
    context = context_of(op, name, collation=collation)
    context.runtime_constants = False
    return context


def evaluate_let(let: bytes, context: ParseContext) -> dict[str, Value]:
    """The values of a command's `let`. Its expressions may use earlier variables, but no fields of documents.

    4738901 for a variable named like a system variable, 51144 for the use of one, 4890500 for the use of a field.
    """
    from mongottl.query.expr import EvaluationContext, parse_expression
    from mongottl.query.expr.path import check_user_name

    values: dict[str, Value] = {}
    earlier = ParseContext(context.now_ms, values, context.namespace, False, context.collation).inheriting(context)
    variables = ElementCursor(let, 0)
    while variables.next():
        name, value = variables.name(), variables.decoded()
        if name in _RUNTIME_CONSTANTS:
            raise CommandError(4738901, f"Attempt to set internal constant: {name}")
        check_user_name(name)
        expression = parse_expression(value, earlier)
        if expression.dependencies() != set():
            raise CommandError(
                4890500,
                "Command let Expression tried to access a field, but this is not allowed because command let"
                " expressions run before the query examines any documents.",
            )
        values[name] = expression.evaluate(EvaluationContext())
    return values


def natural_order(document: bytes) -> int:
    """1 or -1 for `{$natural: ±1}`, 0 for anything else. BadValue (2) for other forms of `$natural`."""
    for name, value in fields(document):
        if name == "$natural":
            if len(fields(document)) > 1:
                raise CommandError(ErrorCode.BadValue, "$natural sort cannot be set with other fields")
            for direction in (1, -1):
                if is_number(value) and compare_values(value, direction) == 0:
                    return direction
            raise CommandError(ErrorCode.BadValue, "$natural sort must be 1 or -1")
    return 0


def checked_metadata(context: ParseContext, sort: SortPattern | None) -> set[str]:
    """The `$meta` keywords that a query reads. 40218 for one not provided; BadValue (2) for `sortKey` without sort."""
    asked = context.metadata.requested if sort is None else context.metadata.requested.union(sort.metadata)
    check_available(asked, context.metadata.provided)
    if SORT_KEY in asked and sort is None:
        raise CommandError(ErrorCode.BadValue, "cannot use sortKey $meta projection without a sort")
    return asked
