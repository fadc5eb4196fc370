"""Hashed indexes: they serve equality only, as points among the hashes."""

from mongottl.catalog.collection import CollectionIndex
from mongottl.catalog.index_kinds.hashed import HASHED
from mongottl.document.hashing import hashed_value
from mongottl.document.path import FieldPath
from mongottl.document.types import Value
from mongottl.exec.plan.bounds import BoundComponent, components_of
from mongottl.exec.plan.index_access.btree import BtreeAccess
from mongottl.exec.plan.predicates import Filter, Predicate
from mongottl.query.match.interval import Interval, point


class HashedAccess(BtreeAccess):
    """Access to hashed indexes: btree indexes with one hashed component."""

    def components(self, index: CollectionIndex) -> list[BoundComponent]:
        return [
            HashedComponent(component.path) if component.direction == HASHED else component
            for component in components_of(index)
        ]


class HashedComponent(BoundComponent):
    """The hashed component: it uses equality predicates only. They are also tested on the documents (collisions)."""

    def __init__(self, path: FieldPath) -> None:
        super().__init__(path, HASHED, False, ordered=False, whole=False)

    def predicates(self, filter: Filter) -> list[Predicate] | None:
        hashed: list[Predicate] = []
        for predicate in filter.by_path.get(self.path.dotted, []):
            if predicate.intervals and not predicate.points:
                continue
            points = _hashed_points(predicate.intervals)
            hashed.append(
                Predicate(
                    predicate.path,
                    points,
                    predicate.source,
                    False,
                    False,
                    predicate.exists,
                    predicate.elements,
                    predicate.orders,
                )
            )
        return hashed or None


def _hashed_points(points: list[Interval]) -> list[Interval]:
    """The hashes as point intervals, ascending and without duplicates."""
    hashes: set[int] = set()
    for interval in points:
        value: Value = interval.low
        hashes.add(hashed_value(value))
    return [point(value) for value in sorted(hashes)]
