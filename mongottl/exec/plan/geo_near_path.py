"""The path of a `$geoNear` without `key`: that of the collection's only geospatial index."""

from mongottl.catalog.collection import Collection
from mongottl.catalog.index_kinds.geospatial import PLANE, SPHERE
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.match import MatchExpression
from mongottl.query.pipeline.run_context import NearRequest


def near_match(collection: Collection | None, request: NearRequest) -> MatchExpression:
    """The filter of a `$geoNear`. NamespaceNotFound (26) without collection; IndexNotFound (27) without one index."""
    if collection is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"$geoNear: collection {request.namespace} does not exist")
    return request.match(request.key or _path_of_only_index(collection))


def _path_of_only_index(collection: Collection) -> str:
    """The path of the only 2d index, or without one, of the only 2dsphere index. IndexNotFound (27)."""
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
