"""The oplog: what commits have changed, in order, for change streams and for readers of `local.oplog.rs`.

a unit of work ──► Change ──► LoggedChange ──► OplogEntry   made once each, then never changed  (`change`, `entry`)
                                                  ├─ put ────► a row in the same unit, with a data folder  (`rows`)
                                                  └─ append ─► the latest in memory, after the commit      (`log`)

change streams  ──► Oplog.entry(number) ──► events          (`exec.results.change_stream`)
local.oplog.rs  ──► OplogRecords.scan  ──► documents as mongod's  (`records`, `documents`)
                                            of operations, as applyOps reads them  (`operations`)
"""
