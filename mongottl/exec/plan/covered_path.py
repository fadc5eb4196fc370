"""When a query is covered, by the conditions in `stages.covered_scan`, and its access path."""

from mongottl.document.freeing import LongList, LongSet
from mongottl.exec.plan.access_path import IndexPath
from mongottl.exec.stages.covered_scan import CoveredScan, always_present_paths, known_paths
from mongottl.query.match import MatchExpression
from mongottl.query.match.special import ExprExpression
from mongottl.query.match.tree import (
    AlwaysFalse,
    AlwaysTrue,
    ListExpression,
    NotExpression,
    PathExpression,
)
from mongottl.query.projection import Projection
from mongottl.query.sort import SortPattern
from mongottl.ttl.policy import NO_TTL


class CoveredPath(IndexPath):
    """An index scan with the bounds of `path` whose documents are built from the keys."""

    def __init__(self, path: IndexPath) -> None:
        super().__init__(path.collection, path.bounds, AlwaysTrue(), [], path.sorted)
        self.match = path.match
        self.residual = path.residual
        # The query was found to be covered with these.
        self._type_bits = path.bounds.index.type_bits

    def open(self, wanted: int, trial: bool = False) -> CoveredScan:
        return CoveredScan(self.scan_params(self.bounds, wanted, trial), self._type_bits)


def covered_path(
    path: IndexPath, projection: Projection, sort: SortPattern | None, metadata: set[str]
) -> CoveredPath | None:
    """The covered scan with the bounds of `path`, or None if the query is not covered (see `stages.covered_scan`)."""
    included: list[str] = LongList()
    read: set[str] = LongSet()
    if metadata or not projection.collect_paths(included, read):
        return None
    return path_over_keys(path, included, read, sort)


def path_over_keys(
    path: IndexPath, included: list[str], read: set[str], sort: SortPattern | None
) -> CoveredPath | None:
    """The covered scan with the bounds of `path` for a query that copies the paths `included` and evaluates `read`."""
    index = path.bounds.index
    descriptor = index.descriptor
    if path.id_plan or descriptor.kind.name != "btree" or descriptor.collation is not None:
        return None
    if index.arrays.found or path.collection.default_ttl_s != NO_TTL:
        return None
    known = known_paths(path.bounds, index.type_bits)
    if not always_present_paths(path.bounds, index.type_bits).issuperset(included):
        return None
    if not all(_is_known(dotted, known) for dotted in read):
        return None
    if path.residual is not None and not _reads_only(path.residual, known):
        return None
    if (
        path.sorted == 0
        and sort is not None
        and not all(_is_known(sorted_by.dotted, known) for sorted_by in sort.paths)
    ):
        return None
    return CoveredPath(path)


def _is_known(dotted: str, known: set[str]) -> bool:
    """Whether keys determine the value at a path: it or a path above is known; known values are not nested."""
    while dotted not in known:
        above, dot, _ = dotted.rpartition(".")
        if not dot:
            return False
        dotted = above
    return True


def _reads_only(match: MatchExpression, known: set[str]) -> bool:
    """Whether a filter reads only these paths."""
    if isinstance(match, PathExpression):
        return _is_known(match.path.dotted, known)
    if isinstance(match, ListExpression):
        return all(_reads_only(child, known) for child in match.children)
    if isinstance(match, NotExpression):
        return _reads_only(match.child, known)
    if isinstance(match, ExprExpression):
        read: set[str] = LongSet()
        return match.expression.collect_paths(read) and all(_is_known(dotted, known) for dotted in read)
    return isinstance(match, (AlwaysTrue, AlwaysFalse))
