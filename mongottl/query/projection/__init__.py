"""Projections: `parse_projection(spec, ctx, for_find)` -> Projection, applied to raw documents.

    parser      parses specifications by mongod's rules
    plan        projections as applied: a fast form for root fields, and the general form
    nodes       the tree: inclusion, exclusion, computed fields
    arrays      $slice and the positional operator

`$project` and `find` share all of this. Nothing here reads storage; the matched array index is passed in MatchDetails.
"""

from mongottl.query.projection.parser import parse_projection
from mongottl.query.projection.plan import Projection

__all__ = ["Projection", "parse_projection"]
