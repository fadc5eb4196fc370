"""The workloads: each is a function, declared with its name by a decorator.

point     commands on single documents
bulk      commands on whole collections; durable: with the documents in files
language  the query language
stalls    long messages
geometry  geometries of very many corners
store     mongottl on PostgreSQL that is kept waiting
ttl       TTL
process   start-up and idle process
registry  how workloads are declared
"""

from bench.workloads import bulk, durable, geometry, language, point, process, stalls, store, ttl
from bench.workloads.registry import WORKLOADS, Context, Goal, Workload

__all__ = [
    "WORKLOADS",
    "Context",
    "Goal",
    "Workload",
    "bulk",
    "durable",
    "geometry",
    "language",
    "point",
    "process",
    "stalls",
    "store",
    "ttl",
]
