"""Filters: parsed once into a tree of typed nodes, matched against raw documents.

    tree        the nodes that all share: and, or, nor, not, and leaves that walk a path
    interval    the ranges of values that leaves tell to the planner
    filter      parse_match: a whole filter
    parser      filters and operator documents into trees, the shortcut for `_id` lookups
    registry    the tables of operators
    comparison  $eq $ne $gt $gte $lt $lte $in $nin
    logical     $and $or $nor $not
    elements    $exists $type $mod
    regex, pcre $regex with $options, over PCRE2
    arrays      $size $elemMatch $all
    bits        $bitsAllSet and its three siblings
    text        $text
    geo, near   $geoWithin $geoIntersects; $near $nearSphere, which only an index answers
    text_order  what collations the ranges of a filter depend on
    special     $expr $comment $sampleRate $alwaysTrue $alwaysFalse; the unsupported names
    schema, schema_parser  $jsonSchema
    allowed     operators that only a search in a collection can answer
    equality    what an upsert takes over from its filter
    numbers     whole numbers and truth out of operands

To add an operator: a function with `@match_operator("$x")` or `@root_operator("$x")` in its family's module.
"""

from mongottl.query.match import (
    arrays,
    bits,
    comparison,
    elements,
    geo,
    logical,
    near,
    regex,
    schema_parser,
    special,
    text,
)
from mongottl.query.match.allowed import check_operators
from mongottl.query.match.equality import equality_fields
from mongottl.query.match.filter import parse_condition, parse_match
from mongottl.query.match.parser import id_equality, parse_value_operators, simple_id_filter
from mongottl.query.match.registry import match_operators, root_operators
from mongottl.query.match.tree import MatchDetails, MatchExpression

__all__ = [
    "MatchDetails",
    "MatchExpression",
    "arrays",
    "bits",
    "check_operators",
    "comparison",
    "elements",
    "equality_fields",
    "geo",
    "id_equality",
    "logical",
    "match_operators",
    "near",
    "parse_condition",
    "parse_match",
    "parse_value_operators",
    "regex",
    "root_operators",
    "schema_parser",
    "simple_id_filter",
    "special",
    "text",
]
