"""Aggregation expressions: parsed once into a tree of nodes, evaluated on raw documents.

    expression = parse_expression(value, ctx)
    expression.evaluate(ev) -> Value

    base         nodes, evaluation context, scopes, registry       parser       from values to trees
    path         field paths and variables                         numbers      numeric types and conversions
    arithmetic, boolean, comparison, conditional, literal, variable, …: the operators, by family

An operator is added where its family lives, by `@expression`, `@unary_expression` or, for a syntax of its own,
`@expression_parser`.
"""

from mongottl.query.expr import (  # registers the operators
    arithmetic,
    boolean,
    comparison,
    conditional,
    literal,
    variable,
)
from mongottl.query.expr.base import (
    EXPRESSIONS,
    UNBOUND,
    Constant,
    EvaluationContext,
    Expression,
    Scope,
)
from mongottl.query.expr.parser import parse_expression

__all__ = [
    "EXPRESSIONS",
    "UNBOUND",
    "Constant",
    "EvaluationContext",
    "Expression",
    "Scope",
    "arithmetic",
    "boolean",
    "comparison",
    "conditional",
    "literal",
    "parse_expression",
    "variable",
]
