"""Ordinary amounts through every path, as applications send them: hundreds of megabytes, a million documents.

Each test runs against a server process of each storage engine, or of one of them where that makes no difference, by
PyMongo. What comes back is compared with what was written, byte by byte where it can be. Meanwhile another process
pings the server, and the kernel notes the most memory that the server holds: a test names how much more it may take,
and while a ping waits the server may compute for no longer than `watching.STALL_S`. With MONGOTTL_VOLUME_FIGURES in the
environment, pytest -s shows the figures.

An interpreted server gets a tenth of the documents, which still is more than one reply takes.
"""
