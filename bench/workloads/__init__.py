"""What is measured: each workload a function with a name, declared where it is defined.

A family per module: single-document commands, whole-collection commands (`durable`: with the documents in files), the
query language, long messages (`stalls`), TTL, the process itself.
"""

from bench.workloads import bulk, durable, language, point, process, stalls, ttl
from bench.workloads.registry import WORKLOADS, Context, Goal, Workload

__all__ = [
    "WORKLOADS",
    "Context",
    "Goal",
    "Workload",
    "bulk",
    "durable",
    "language",
    "point",
    "process",
    "stalls",
    "ttl",
]
