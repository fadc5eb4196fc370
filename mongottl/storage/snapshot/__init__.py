"""Snapshots and write sets: views over the storage contract, for any engine.

    History    before-images of what commits have changed since the oldest open snapshot
    Snapshot   the data as of one commit: the engine's present, patched back by the history
    WriteSet   what one transaction has written: patched over its snapshot, carried out by one unit of work

    PatchIsolation   these as an engine's isolation

An engine has only to offer it. While no snapshot is open nothing is recorded, so nothing is paid. See architecture
decision 13.
"""
