"""Which request units per second the operations of a collection may spend."""

from typing import NamedTuple

from mongottl.catalog.collection import Collection
from mongottl.catalog.throughput import DEFAULT_UNITS_PER_S, Throughput
from mongottl.exec.service.service import ServiceContext


class Budget(NamedTuple):
    """holder: the namespace of the collection that has the throughput for itself, or the name of the database whose
    collections share it. throughput: how much there is in each second."""

    holder: str
    throughput: Throughput


def throughput_of(service: ServiceContext, database: str, collection: str) -> Budget:
    """The throughput of a collection, which need not exist: its own, else what its database shares, else 400 of its
    own."""
    found = service.catalog.find(database, collection)
    own = found.options.throughput if isinstance(found, Collection) else None
    shared = service.databases.shared(database) if own is None else None
    if shared is not None:
        return Budget(database, shared)
    return Budget(f"{database}.{collection}", Throughput(DEFAULT_UNITS_PER_S) if own is None else own)
