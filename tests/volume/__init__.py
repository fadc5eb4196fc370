"""Ordinary amounts through every path, as applications send them: hundreds of megabytes, a million documents.

Each test runs against a server process of each storage engine, by PyMongo. What comes back is compared with what was
written, byte by byte where it can be. Meanwhile another process pings the server, and the kernel notes the most memory
that the server holds: a test names how much more it may take, and no ping may take longer than `watching.PING_S`.

An interpreted server gets a tenth of the documents, which still is more than one reply takes.
"""
