"""What is measured: each workload a function with a name, declared where it is defined.

A family per module: single-document commands, whole-collection commands, TTL, and the process itself.
"""

from bench.workloads import bulk, point, process, ttl
from bench.workloads.registry import WORKLOADS, Context, Goal, Workload

__all__ = ["WORKLOADS", "Context", "Goal", "Workload", "bulk", "point", "process", "ttl"]
