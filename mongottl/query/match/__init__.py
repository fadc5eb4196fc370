"""Filters: parsed once into a tree of typed nodes, matched against raw documents.

    tree        the node classes: and, or, nor, not, and the base of leaves, which walk a path
    interval    ranges of values, by which leaves describe themselves to the planner
    filter      parse_match: a whole filter
    parser      parsing of filters and operator documents, and detection of plain `_id` lookups
    registry    the tables of operators
    comparison  $eq $ne $gt $gte $lt $lte $in $nin
    logical     $and $or $nor $not
    elements    $exists $type $mod
    regex, pcre $regex with $options, over PCRE2
    arrays      $size $elemMatch $all
    bits        $bitsAllSet $bitsAnySet $bitsAllClear $bitsAnyClear
    text        $text
    geo, near   $geoWithin $geoIntersects; $near $nearSphere, which only an index answers
    text_order  collations on which the ranges of a filter depend
    special     $expr $comment $sampleRate $alwaysTrue $alwaysFalse
    where       $where
    schema, schema_parser  $jsonSchema
    allowed     refusal of operators that need an index or a script
    equality    equalities of a filter, which an upsert copies into the new document
    number_errors  error texts about numeric operands

To add an operator: a function with `@match_operator("$x", …)` or `@root_operator("$x", …)` in its family's module.
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
    where,
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
    "where",
]
