"""Aggregation expressions: parsed once into a tree of nodes, evaluated on raw documents.

    expression = parse_expression(value, ctx)
    expression.evaluate(ev) -> Value

    base         nodes, evaluation context, scopes, registry       parser       parsing of values into trees
    path         field paths and variables                         numbers      numeric types and conversions
    arithmetic, array, boolean, comparison, conditional, …: the operators, by family

An operator is added to the module of its family, with `@expression`, `@unary_expression` or, for a special syntax,
`@expression_parser`.
"""

# Filters and expressions import each other, so the names that `match` needs must be defined before the operators.
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
    exponential,
    iteration,
    literal,
    meta,
    misc,
    object,
    pattern,
    percentile,
    script,
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
    "exponential",
    "iteration",
    "literal",
    "meta",
    "misc",
    "object",
    "parse_expression",
    "pattern",
    "percentile",
    "script",
    "set",
    "text",
    "trigonometry",
    "variable",
]
