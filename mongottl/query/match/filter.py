"""Whole filters: parsed, checked as a whole, and simplified."""

from typing import Final

from mongottl.query.context import ParseContext
from mongottl.query.match.near import check_near
from mongottl.query.match.parser import parse_document
from mongottl.query.match.registry import bad_value
from mongottl.query.match.text import check_text_parts
from mongottl.query.match.tree import MatchExpression
from mongottl.query.metadata import GEO_NEAR_DISTANCE, TEXT_SCORE, MetadataUse

# Maximal depth of a filter's tree, as in mongod.
MAX_TREE_DEPTH: Final = 100


def parse_match(filter: bytes, ctx: ParseContext, near: bool = False) -> MatchExpression:
    """The tree of a filter, simplified. {} matches everything.

    near: whether `$near`, which also sorts the documents, is allowed; 5626500 if it is not.
    Raises CommandError: BadValue (2) for unknown operators and malformed operands, and the codes of the operators.
    """
    outer = ctx.takes_near
    ctx.takes_near = near
    tree = parse_document(filter, ctx)
    ctx.takes_near = outer
    if tree.depth() > MAX_TREE_DEPTH:
        raise bad_value(f"exceeded maximum query tree depth of {MAX_TREE_DEPTH}")
    if TEXT_SCORE in ctx.metadata.provided:
        check_text_parts(tree)
    simple = tree.simplify()
    if GEO_NEAR_DISTANCE in ctx.metadata.provided:
        check_near(simple)
        if TEXT_SCORE in ctx.metadata.provided:
            raise bad_value("text and geoNear not allowed in same query")
    return simple


def parse_condition(filter: bytes, ctx: ParseContext) -> MatchExpression:
    """The tree of a filter that is tested on single documents, without a collection.

    BadValue (2) for operators that need an index, besides the errors of `parse_match`.
    """
    outer = ctx.metadata
    ctx.metadata = MetadataUse()
    tree = parse_match(filter, ctx)
    if TEXT_SCORE in ctx.metadata.provided:
        raise bad_value("$text is not allowed in this context")
    outer.include(ctx.metadata)
    ctx.metadata = outer
    return tree
