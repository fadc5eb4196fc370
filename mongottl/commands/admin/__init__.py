"""Server administration: handshake, sessions, parameters, diagnostics, operations, validation, the clock for tests."""
