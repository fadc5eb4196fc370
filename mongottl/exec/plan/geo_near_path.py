"""Which path of a collection a `$geoNear` is about, where it does not say so itself."""

from mongottl.catalog.collection import Collection
from mongottl.catalog.index_kinds.geospatial import PLANE, SPHERE
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match import MatchExpression
from mongottl.query.pipeline.run_context import NearRequest


def near_match(collection: Collection | None, request: NearRequest) -> MatchExpression:
    """The stage's filter. NamespaceNotFound (26) without collection; IndexNotFound (27) if no index tells the path."""
    if collection is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"$geoNear: collection {request.namespace} does not exist")
    return request.match(request.key or _path_of_only_index(collection))


def _path_of_only_index(collection: Collection) -> str:
    """The path of the only 2d index, or if there is none, of the only 2dsphere index."""
    for kind in (PLANE, SPHERE):
        found = [index.descriptor for index in collection.indexes if index.descriptor.kind.name == kind]
        if len(found) > 1:
            raise CommandError(
                ErrorCode.IndexNotFound,
                f"There is more than one {kind} index on {collection.namespace}; unsure which to use for $geoNear",
            )
        if found:
            return found[0].paths[found[0].directions.index(kind)].dotted
    raise CommandError(ErrorCode.IndexNotFound, "$geoNear requires a 2d or 2dsphere index, but none were found")
