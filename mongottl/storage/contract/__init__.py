"""An engine that wraps another one, and asserts at every call that the caller and the wrapped engine keep the contract.

Tests run servers and the conformance suite on it. It checks types, ranges and order of the arguments, that writes
happen inside a unit of work, that results are complete, in order and within their limits, that counters are exact, and
that only the allowed errors are raised. A violation is an AssertionError that names the method. It stores nothing and
does not depend on the engine.

The checks make additional reads at each call, so it is for tests only.

    engine       the engine, and its units of work
    records      its record stores; sorted_data: its sorted data
    calls        what these ask of the engine at each call
    checks       what holds for arguments and results of all of them
"""

from mongottl.storage.contract.engine import ContractEngine as ContractEngine
