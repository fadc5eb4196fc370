"""Projections: `parse_projection(spec, ctx, for_find)` -> Projection, applied to raw documents.

    parser      from the specification to the tree, and mongod's many rules for it
    plan        what is applied: the fast form for root fields, the general form
    nodes       the tree: inclusion, exclusion, computed fields
    arrays      $slice and the positional operator

`$project` and `find` share all of this. Nothing here reads storage or knows what matched, except by MatchDetails.
"""

from mongottl.query.projection.parser import parse_projection
from mongottl.query.projection.plan import Projection

__all__ = ["Projection", "parse_projection"]
