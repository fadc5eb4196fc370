"""The oplog: what commits have changed, in order, for change streams and for readers of `local.oplog.rs`.

a unit of work ──► OplogEntry ── put ────► a row in the same unit of work, with a data directory (`rows`)
                      (entry)  └─ append ─► the latest entries in memory, after the commit        (`log`)

change streams  ──► Oplog.entry(number) ──► events          (`exec.results.change_stream`)
local.oplog.rs  ──► OplogRecords.scan  ──► documents as mongod's  (`records`, `documents`)
                                            of operations, as applyOps reads them  (`operations`)
"""
