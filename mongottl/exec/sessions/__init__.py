"""What a client has between two commands: its sessions, transactions, snapshots and cursors.

sessions        logical sessions; session_ids: their ids, by user; stored_sessions: what restarts must not lose
retryable_writes  statements that were executed, so that a write that is sent again is not
transactions    multi-document transactions under way
snapshots       the points in time that cursors and transactions read; snapshot_catalog: the catalog of one
cursor_registry open cursors
"""
