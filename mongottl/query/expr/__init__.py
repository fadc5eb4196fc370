"""Aggregation expressions: parsed once into a tree of nodes, evaluated on raw documents.

    expression = parse_expression(value, ctx)
    expression.evaluate(ev) -> Value

    base         nodes, evaluation context, scopes, registry       parser       from values to trees
    path         field paths and variables                         numbers      numeric types and conversions
    arithmetic, array, boolean, comparison, conditional, …: the operators, by family

An operator is added where its family lives, by `@expression`, `@unary_expression` or, for a syntax of its own,
`@expression_parser`.
"""

# Filters and expressions contain each other, so the names that `match` needs are there before the operators are.
from mongottl.query.expr.base import (
    EXPRESSIONS,
    UNBOUND,
    Constant,
    EvaluationContext,
    Expression,
    Scope,
)
from mongottl.query.expr.parser import parse_expression

# isort: split
from mongottl.query.expr import (  # registers the operators
    accumulation,
    arithmetic,
    array,
    bitwise,
    boolean,
    comparison,
    conditional,
    conversion,
    date,
    iteration,
    literal,
    meta,
    misc,
    object,
    pattern,
    percentile,
    set,
    text,
    trigonometry,
    variable,
)

__all__ = [
    "EXPRESSIONS",
    "UNBOUND",
    "Constant",
    "EvaluationContext",
    "Expression",
    "Scope",
    "accumulation",
    "arithmetic",
    "array",
    "bitwise",
    "boolean",
    "comparison",
    "conditional",
    "conversion",
    "date",
    "iteration",
    "literal",
    "meta",
    "misc",
    "object",
    "parse_expression",
    "pattern",
    "percentile",
    "set",
    "text",
    "trigonometry",
    "variable",
]
