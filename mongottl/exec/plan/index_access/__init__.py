"""How each type of index serves queries; the types themselves are defined in `catalog.index_kinds`.

To add one: a module here with an `IndexAccess` and a line in the table below.
"""

from typing import Final

from mongottl.catalog.collection import CollectionIndex
from mongottl.exec.plan.index_access.access import IndexAccess as IndexAccess
from mongottl.exec.plan.index_access.btree import BtreeAccess
from mongottl.exec.plan.index_access.geospatial import PlaneAccess, SphereAccess
from mongottl.exec.plan.index_access.hashed import HashedAccess
from mongottl.exec.plan.index_access.text import TextAccess
from mongottl.exec.plan.index_access.wildcard import WildcardAccess

# By the name of the index type.
INDEX_ACCESS: Final[dict[str, IndexAccess]] = {
    "btree": BtreeAccess(),
    "hashed": HashedAccess(),
    "wildcard": WildcardAccess(),
    "text": TextAccess(),
    "2dsphere": SphereAccess(),
    "2d": PlaneAccess(),
}


def access_of(index: CollectionIndex) -> IndexAccess:
    """The `IndexAccess` of an index's type."""
    return INDEX_ACCESS[index.descriptor.kind.name]
