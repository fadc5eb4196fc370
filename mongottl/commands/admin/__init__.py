"""The server itself: handshake, sessions, parameters, diagnostics, operations, validation, and the clock of tests."""
